"""Train the configured policy and decide with it, or with the fallback if the policy fails.

The fallback decides in the same cycle. A failed policy is retried in each of the next few cycles, then less and less
often. To limit the cost of failures, the pause is at least ten times as long as the last failed call, up to a maximum.

A dispatcher whose process is still starting has not failed. Until it is ready, the fallback decides. Without a
fallback, there is no decision.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cpsched.formatting import format_count
from cpsched.model import EndedJob, Job
from cpsched.policy import Policy
from cpsched_bridge.cycle.backoff import ExponentialBackoff
from cpsched_bridge.cycle.cluster_state import ClusterReading, Observed
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder, describe_failure
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.cycle.verified_decision import FALLBACK_PATH, DecisionFailure, VerifiedDecider, call_policy
from cpsched_bridge.cycle_report import Decided, JobChanges
from cpsched_bridge.errors import PolicyFailure
from cpsched_bridge.ports import Observation
from cpsched_bridge.settings import Settings

_MAX_STORED_ENDS = 100_000
"""Maximum number of job ends stored to detect repeats, which may occur after a reconnect."""
MAX_CONSECUTIVE_FAILURES = 3
"""Number of consecutive failures after which the policy is retried less often."""
_PAUSE_FACTOR = 10.0
_MAX_PAUSE_S = 600.0


@dataclass(slots=True)
class PolicyTrainer:
    """A trainer for `policy`, which trains for at most `limit_s` seconds per call."""

    policy: Policy
    limit_s: float
    _known: OrderedDict[tuple[int, int], None] = field(default_factory=OrderedDict)
    """Known ends, oldest first. In a plain `dict`, each deletion makes the oldest entry slower to find."""
    _unlearned: deque[EndedJob] = field(default_factory=deque)
    _running: frozenset[int] | None = None

    def add_ended_jobs(self, ended: Iterable[EndedJob]) -> list[EndedJob]:
        """Return the ends that are new, and store them for the next call to `train`."""
        fresh = []
        for each in ended:
            key = (each.job.id, each.end_s)
            if key not in self._known:
                self._known[key] = None
                fresh.append(each)
        self._unlearned.extend(fresh)
        while len(self._known) > _MAX_STORED_ENDS:
            self._known.popitem(last=False)
        return fresh

    def record_reading(self, reading: ClusterReading) -> JobChanges:
        """Return the jobs that have newly started or ended."""
        past = self.add_ended_jobs(reading.past)
        ended = self.add_ended_jobs(reading.ended)
        return JobChanges(self.find_newly_started_jobs(reading.observation, ended), ended, past)

    def train(self) -> None:
        """Train the policy on the stored ends.

        Raise `PolicyFailure` if the policy fails for a job or runs out of time. A job for which it fails is not
        retried. Jobs that remain when time runs out are used in the next call.
        """
        if self._unlearned:
            call_policy(self.limit_s, self._train_with_stored_jobs, "learning_failed")

    def _train_with_stored_jobs(self) -> None:
        failures: list[str] = []
        while self._unlearned:
            ended = self._unlearned.popleft()
            try:
                self.policy.learn(ended)
            except Exception as error:
                failures.append(f"job {ended.job.id}: {describe_failure(error)}")
        if failures:
            raise PolicyFailure(
                "learning_failed",
                f"learning from {format_count(len(failures), 'ended job')} failed; first error: {failures[0]}",
            )

    def find_newly_started_jobs(self, seen: Observation, ended: Iterable[EndedJob]) -> list[tuple[Job, int]]:
        """Return (job, start in seconds) for jobs started since the last observation.

        The result is empty for the first observation, because it cannot show which jobs are new.
        """
        before, self._running = self._running, frozenset(r.job.id for r in seen.running)
        if before is None:
            return []
        found = [(r.job, r.start_s) for r in seen.running if r.job.id not in before]
        return found + [(e.job, e.start_s) for e in ended if e.job.id not in before]


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
        learner = PolicyTrainer(policy, limit_s)
        first = VerifiedDecider(policy, limit_s, pace, cap, train=learner.train)
        second = None if fallback is None else VerifiedDecider(fallback, limit_s, pace, cap, is_fallback=True)
        return PolicyWithFallback(first, learner, second, pace, settings.cycle.interval_s)

    def decide(self, observed: Observed, recorder: CycleRecorder) -> Decided:
        """Return a decision, or the start-up step that it waits for.

        Raise `DecisionFailure` if neither the policy nor the fallback can decide.
        """
        if self.fallback is None:
            waits_for = self.first.not_ready_reason() or ""
            return Decided(waits_for=waits_for) if waits_for else self.first.decide(observed, recorder)
        if self._is_policy_call_due() and not self._is_policy_starting(recorder):
            return self._decide_or_fall_back(self.fallback, observed, recorder)
        return self.fallback.decide(observed, recorder)

    def _is_policy_call_due(self) -> bool:
        return self._failures == 0 or self.pace.monotonic_s() >= self._retry_at_s

    def _is_policy_starting(self, recorder: CycleRecorder) -> bool:
        """Return whether the configured policy is still starting, and report this once."""
        text = self.first.not_ready_reason()
        if text is None:
            return False
        if not (self._was_starting or self._failures):
            recorder.add_event(FALLBACK_PATH, f"the fallback decides while the dispatcher starts: {text}")
        self._was_starting = True
        return True

    def _decide_or_fall_back(self, fallback: VerifiedDecider, observed: Observed, recorder: CycleRecorder) -> Decided:
        began_s = self.pace.monotonic_s()
        try:
            decided = self.first.decide(observed, recorder)
        except DecisionFailure as failure:
            self._note_failure(failure, began_s, recorder)
            return fallback.decide(observed, recorder)
        self._note_success(recorder)
        return decided

    def _note_failure(self, failure: PolicyFailure, began_s: float, recorder: CycleRecorder) -> None:
        recorder.add_event(failure.kind, str(failure))
        if self._failures == 0:
            recorder.add_event(FALLBACK_PATH, f"the fallback decides: {failure.kind}")
        self._failures += 1
        now_s = self.pace.monotonic_s()
        over = self._failures - MAX_CONSECUTIVE_FAILURES
        rest_s = ExponentialBackoff(self.interval_s, _MAX_PAUSE_S).delay_s(over) if over > 0 else 0.0
        self._retry_at_s = now_s + max(rest_s, min(_MAX_PAUSE_S, _PAUSE_FACTOR * (now_s - began_s)))

    def _note_success(self, recorder: CycleRecorder) -> None:
        if self._failures or self._was_starting:
            after = f" again after {format_count(self._failures, 'failure')}" if self._failures else ""
            recorder.add_event("fallback_ended", f"the configured policy decides{after}")
        self._failures, self._was_starting = 0, False
