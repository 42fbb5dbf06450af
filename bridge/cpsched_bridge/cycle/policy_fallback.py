"""Decide with the configured policy, or with the fallback if the policy fails.

The fallback decides in the same cycle. A failed policy is retried in each of the next few cycles, then less and less
often. To limit the cost of failures, the pause is at least ten times as long as the last failed call, up to a maximum.

A dispatcher whose process is still starting has not failed. Until it is ready, the fallback decides. Without a
fallback, there is no decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cpsched.formatting import format_count
from cpsched.policy import Policy
from cpsched_bridge.cycle.backoff import ExponentialBackoff
from cpsched_bridge.cycle.policy_training import PolicyTrainer
from cpsched_bridge.cycle.verified_decision import FALLBACK_PATH, VerifiedDecider
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.errors import PolicyFailure
from cpsched_bridge.ports import LoopClock, Observation
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.ledger import ManagedJobEntry

MAX_CONSECUTIVE_FAILURES = 3
"""Number of consecutive failures after which the policy is retried less often."""
_PAUSE_FACTOR = 10.0
_MAX_PAUSE_S = 600.0


@dataclass(slots=True)
class PolicyWithFallback:
    """The configured policy, its training, and its `fallback`."""

    first: VerifiedDecider
    learner: PolicyTrainer
    fallback: VerifiedDecider | None
    pace: LoopClock
    interval_s: float
    _failures: int = field(default=0, init=False)
    _was_starting: bool = field(default=False, init=False)
    """Whether the configured policy has not decided since its process was starting."""
    _retry_at_s: float = field(default=0.0, init=False)
    """Monotonic time before which the configured policy is not retried."""

    @staticmethod
    def from_policies(
        policy: Policy, fallback: Policy | None, pace: LoopClock, settings: Settings
    ) -> PolicyWithFallback:
        """Return a policy and its fallback with the limits that the settings specify."""
        limit_s, cap = settings.cycle.decide_timeout_s, settings.policy.power.to_power_cap()
        first, *rest = (VerifiedDecider(each, limit_s, pace, cap) for each in (policy, fallback) if each is not None)
        learner = PolicyTrainer(policy, limit_s)
        return PolicyWithFallback(first, learner, rest[0] if rest else None, pace, settings.cycle.interval_s)

    def decide(self, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport) -> None:
        """Add a decision, or the awaited start-up step, to the report.

        Raise `PolicyFailure` if neither the policy nor the fallback can decide.
        """
        if self.fallback is None:
            report.waits_for = self.first.not_ready_reason() or ""
            if not report.waits_for:
                self._decide_with_policy(seen, entries, report)
        elif self._is_policy_call_due() and not self._is_policy_starting(report):
            self._decide_or_fall_back(self.fallback, seen, entries, report)
        else:
            self._decide_with_fallback(self.fallback, seen, entries, report)

    def _is_policy_call_due(self) -> bool:
        return self._failures == 0 or self.pace.monotonic_s() >= self._retry_at_s

    def _is_policy_starting(self, report: CycleReport) -> bool:
        """Return whether the configured policy is still starting, and report this once."""
        text = self.first.not_ready_reason()
        if text is None:
            return False
        if not (self._was_starting or self._failures):
            report.add_event(FALLBACK_PATH, f"the fallback decides while the dispatcher starts: {text}")
        self._was_starting = True
        return True

    def _decide_or_fall_back(
        self, fallback: VerifiedDecider, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport
    ) -> None:
        began_s = self.pace.monotonic_s()
        try:
            self._decide_with_policy(seen, entries, report)
        except PolicyFailure as failure:
            self._note_failure(failure, began_s, report)
            self._decide_with_fallback(fallback, seen, entries, report)
        else:
            self._note_success(report)

    def _decide_with_policy(
        self, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport
    ) -> None:
        self.learner.train()
        self.first.decide(seen, entries, report)

    def _decide_with_fallback(
        self, fallback: VerifiedDecider, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport
    ) -> None:
        report.fallback, report.policy_failure = True, ""
        fallback.decide(seen, entries, report)

    def _note_failure(self, failure: PolicyFailure, began_s: float, report: CycleReport) -> None:
        report.add_event(failure.kind, str(failure))
        if self._failures == 0:
            report.add_event(FALLBACK_PATH, f"the fallback decides: {failure.kind}")
        self._failures += 1
        now_s = self.pace.monotonic_s()
        over = self._failures - MAX_CONSECUTIVE_FAILURES
        rest_s = ExponentialBackoff(self.interval_s, _MAX_PAUSE_S).delay_s(over) if over > 0 else 0.0
        self._retry_at_s = now_s + max(rest_s, min(_MAX_PAUSE_S, _PAUSE_FACTOR * (now_s - began_s)))

    def _note_success(self, report: CycleReport) -> None:
        if self._failures or self._was_starting:
            after = f" again after {format_count(self._failures, 'failure')}" if self._failures else ""
            report.add_event("fallback_ended", f"the configured policy decides{after}")
        self._failures, self._was_starting = 0, False
