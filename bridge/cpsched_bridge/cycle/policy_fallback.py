"""Decide with the configured policy, or in the same cycle with the fallback if the policy hangs or fails.

A failed policy is retried in each of the next few cycles, then less and less often. The cost of failures is bounded,
too: the pause is ten times as long as the last failure took.

A dispatcher whose process is still starting (imports, compiling) has not failed. Until it is ready, the fallback
decides. Without a fallback, there is no decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cpsched.policy import Policy
from cpsched_bridge.cycle.backoff import Backoff
from cpsched_bridge.cycle.policy_training import PolicyTrainer
from cpsched_bridge.cycle.verified_decision import FALLBACK, VerifiedDecider
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.errors import PolicyFailure
from cpsched_bridge.ports import LoopClock, Observation
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.ledger import ManagedJobEntry

MAX_FAILURES = 3
"""Number of consecutive failures after which the policy is retried less often."""
_TIMES_THE_COST = 10.0
_LONGEST_S = 600.0


@dataclass(slots=True)
class PolicyWithFallback:
    """The configured policy, its training, and its `fallback`."""

    first: VerifiedDecider
    learner: PolicyTrainer
    fallback: VerifiedDecider | None
    pace: LoopClock
    interval_s: float
    _failures: int = field(default=0, init=False)
    _begins: bool = field(default=False, init=False)
    """Whether the configured policy has made no decision since its process started."""
    _not_before_s: float = field(default=0.0, init=False)
    """Monotonic time before which the configured policy is not retried."""

    @staticmethod
    def wrap_policies(
        policy: Policy, fallback: Policy | None, pace: LoopClock, settings: Settings
    ) -> PolicyWithFallback:
        """Build the policy and its fallback according to the settings."""
        limit_s, cap = settings.cycle.decide_timeout_s, settings.policy.power.to_power_cap()
        first, *rest = (VerifiedDecider(each, limit_s, pace, cap) for each in (policy, fallback) if each is not None)
        learner = PolicyTrainer(policy, limit_s)
        return PolicyWithFallback(first, learner, rest[0] if rest else None, pace, settings.cycle.interval_s)

    def decide(self, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport) -> None:
        """Fill the report with a decision (see `VerifiedDecider.decide`) or with the step that a decision waits for.

        Raise `PolicyFailure` if neither the policy nor the fallback could decide.
        """
        if self.fallback is None:
            report.waits_for = self.first.not_ready_reason() or ""
            if not report.waits_for:
                self._ask_first(seen, entries, report)
        elif self._is_due() and not self._note_beginning(report):
            self._ask_in_turn(self.fallback, seen, entries, report)
        else:
            self._ask_fallback(self.fallback, seen, entries, report)

    def _is_due(self) -> bool:
        return self._failures == 0 or self.pace.monotonic_s() >= self._not_before_s

    def _note_beginning(self, report: CycleReport) -> bool:
        """Return whether the configured policy is still starting, and report that once."""
        words = self.first.not_ready_reason()
        if words is None:
            return False
        if not (self._begins or self._failures):
            report.add_event(FALLBACK, f"the fallback decides while the dispatcher starts: {words}")
        self._begins = True
        return True

    def _ask_in_turn(
        self, fallback: VerifiedDecider, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport
    ) -> None:
        began_s = self.pace.monotonic_s()
        try:
            self._ask_first(seen, entries, report)
        except PolicyFailure as failure:
            self._note_failure(failure, began_s, report)
            self._ask_fallback(fallback, seen, entries, report)
        else:
            self._note_success(report)

    def _ask_first(self, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport) -> None:
        self.learner.train()
        self.first.decide(seen, entries, report)

    def _ask_fallback(
        self, fallback: VerifiedDecider, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport
    ) -> None:
        report.fallback, report.policy_failure = True, ""
        fallback.decide(seen, entries, report)

    def _note_failure(self, failure: PolicyFailure, began_s: float, report: CycleReport) -> None:
        report.add_event(failure.kind, str(failure))
        if self._failures == 0:
            report.add_event(FALLBACK, f"the fallback decides: {failure.kind}")
        self._failures += 1
        now_s = self.pace.monotonic_s()
        over = self._failures - MAX_FAILURES
        rest_s = Backoff(self.interval_s, _LONGEST_S).delay_s(over) if over > 0 else 0.0
        self._not_before_s = now_s + max(rest_s, min(_LONGEST_S, _TIMES_THE_COST * (now_s - began_s)))

    def _note_success(self, report: CycleReport) -> None:
        if self._failures or self._begins:
            report.add_event("fallback_over", f"the configured policy decides again, after {self._failures} failures")
        self._failures, self._begins = 0, False
