"""Count failures and determine when the bridge must pause."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from cpsched_bridge.backoff_groups import make_equivalence_class_key
from cpsched_bridge.cycle.start_outcomes import CAUSE_KINDS, FailureCause, ObservedStartOutcomes, Suspect
from cpsched_bridge.ports import Observation

FAILURE_WINDOW_S = 300.0
"""Seconds for which a failure counts, longer than a restart of the cluster's controller."""
MAX_FAILED_STARTS = 3
"""Number of consecutive failed starts that make a user count as failing. Fewer may have unrelated causes."""
MAX_FAILED_DECISIONS = 5
"""Number of consecutive failed or invalid decisions after which the bridge pauses."""
_MAX_STORED_FAILURES = 8
"""Number of failed starts stored per user. Older ones are dropped."""


@dataclass(slots=True)
class _UserStartResults:
    """The recent results of one user's starts."""

    failed: deque[tuple[float, frozenset[Suspect]]]
    """Times and suspects of the newest failed starts since the last successful start."""
    last_success_s: float = -math.inf


@dataclass(slots=True)
class CircuitBreaker:
    """A breaker that trips if the starts of many users, or many decisions, fail.

    At least `failing_users` users, and most users, must have only failed starts. Consecutive failed decisions also trip
    the breaker. Each user counts once, regardless of the number of failed starts. The breaker does not trip if a single
    user, account, partition, QOS, shape or node (a suspect) explains the failures. A suspect explains them if too few
    users would be failing without the starts that involve it. The only known value of a kind, for example a site's only
    partition, explains nothing.
    """

    failing_users: int
    _users: dict[str, _UserStartResults] = field(default_factory=dict)
    _known: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in CAUSE_KINDS})
    """Known names of each kind, at most two, which suffice to show that there is more than one."""
    _bad_decisions: int = 0

    def record_reading(self, seen: Observation, starts: ObservedStartOutcomes, at_s: float) -> None:
        """Record an observation's names and start outcomes at monotonic time `at_s`."""
        self._known["node"].update(seen.cluster.node_names[:2])
        if any(len(names) < 2 for names in self._known.values()):
            for job in (*(each.job for each in seen.pending), *(each.job for each in seen.running)):
                for kind, name in zip(CAUSE_KINDS, make_equivalence_class_key(job).name, strict=False):
                    self._known[kind] |= {name} if len(self._known[kind]) < 2 else set()
        for failed in starts.failed:
            if failed.cause is FailureCause.UNKNOWN:
                self._get_user_results(failed.pending.job.user).failed.append((at_s, failed.suspects))
        for user in starts.began.values():
            record = self._get_user_results(user)
            record.last_success_s = at_s
            record.failed.clear()

    def _get_user_results(self, user: str) -> _UserStartResults:
        return self._users.setdefault(user, _UserStartResults(deque(maxlen=_MAX_STORED_FAILURES)))

    def record_decision(self, good: bool) -> None:
        """Record whether a decision could be applied."""
        self._bad_decisions = 0 if good else self._bad_decisions + 1

    def list_failing_users(self, now_s: float) -> list[str]:
        """Return the users whose recent starts have all failed, at monotonic `now_s`."""
        from_s = now_s - FAILURE_WINDOW_S
        for user, record in list(self._users.items()):
            while record.failed and record.failed[0][0] < from_s:
                record.failed.popleft()
            if not record.failed and record.last_success_s < from_s:
                del self._users[user]
        return [user for user, record in self._users.items() if len(record.failed) >= MAX_FAILED_STARTS]

    def trip_reason(self, now_s: float) -> str | None:
        """Return why the bridge must pause, or None if no pause is needed."""
        failing = self.list_failing_users(now_s)
        enough = len(failing) >= self.failing_users and 2 * len(failing) > len(self._users)
        if enough and self._find_suspect(failing) is None:
            return f"all starts by {len(failing)} of {len(self._users)} users failed within {FAILURE_WINDOW_S:g} s"
        if self._bad_decisions >= MAX_FAILED_DECISIONS:
            return f"{self._bad_decisions} consecutive decisions failed"
        return None

    def forget_user(self, user: str) -> None:
        """Discard the failures of one user's starts."""
        self._users.pop(user, None)

    def get_first_failure_s(self, user: str) -> float:
        """Return the monotonic time of a failing user's oldest recorded failure."""
        return self._users[user].failed[0][0]

    def _find_suspect(self, failing: Sequence[str]) -> Suspect | None:
        """Return a suspect that explains the failures of the `failing` users, or None."""
        starts = {user: [suspects for _, suspects in self._users[user].failed] for user in failing}
        several = {kind for kind, names in self._known.items() if len(names) > 1} | {"user"}
        found = {suspect for theirs in starts.values() for suspects in theirs for suspect in suspects}
        for suspect in sorted(found):
            left = sum(any(suspect not in suspects for suspects in theirs) for theirs in starts.values())
            if suspect[0] in several and left < self.failing_users - 1:
                return suspect
        return None

    def reset(self) -> None:
        """Discard all recorded failures, for example after a resume."""
        self._users.clear()
        self._bad_decisions = 0
