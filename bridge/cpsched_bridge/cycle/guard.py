"""What keeps the bridge from doing harm: a bound on commands, and the count of failures that makes it stand down."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from cpsched_bridge.cycle.came_true import KINDS, StartsToCome, Suspect
from cpsched_bridge.likes import likes_of
from cpsched_bridge.ports import Observation

T = TypeVar("T")
WINDOW_S = 300.0
"""Past seconds in which failures count: a restart of the cluster's controller is over by then."""
FAILED_STARTS = 3
"""Failed starts in a row from which on all of a user's starts count as failing: one or two have causes of their own."""
FAILED_DECISIONS = 5
"""Decisions in a row that raised or broke a rule from which on the bridge pauses."""
_REMEMBERED = 8
"""Failed starts of a user that are remembered: the newest ones."""


@dataclass(slots=True)
class Allowance:
    """How many jobs a cycle may still send commands for. What is asked for first is sent; the rest waits."""

    left: int

    def take(self, wanted: Sequence[T], whose: Callable[[T], str] = lambda _: "") -> list[T]:
        """As many of `wanted` as are still allowed, in their order: the first of each user, then the second, ...

        `whose` tells users apart. So nobody's commands wait for all those of somebody else.
        """
        taken = list(wanted) if len(wanted) <= self.left else _in_turn(wanted, whose, self.left)
        self.left -= len(taken)
        return taken


def _in_turn(wanted: Sequence[T], whose: Callable[[T], str], most: int) -> list[T]:
    turns = Counter[str]()
    ranks: list[tuple[int, int]] = []
    for position, each in enumerate(wanted):
        ranks.append((turns[whose(each)], position))
        turns[whose(each)] += 1
    return [wanted[position] for position in sorted(position for _, position in sorted(ranks)[:most])]


@dataclass(slots=True)
class _Record:
    """What came of one user's starts lately."""

    failed: deque[tuple[float, frozenset[Suspect]]]
    """When, and who may be behind it, since the last start that came true; the newest ones."""
    true_s: float = -math.inf


@dataclass(slots=True)
class FailureWatch:
    """Counts what goes wrong and says when it is too much to carry on.

    A user all of whose starts fail is one witness, however many those are. Witnesses are believed where there are
    enough of them, more than half of all users with starts, and where nobody and nothing nearer than the cluster can
    be behind it: without the starts that any one user, account, partition, QOS, shape or node had a part in, only one
    witness less would be left. A kind of which only one was ever seen, such as the partition of a site that has one,
    says nothing.
    """

    failing_users: int
    _users: dict[str, _Record] = field(default_factory=dict)
    _known: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})
    """Names of each kind that were seen: two are enough to know that there is more than one."""
    _bad_decisions: int = 0

    def saw(self, seen: Observation) -> None:
        """Take note of whom and what there is."""
        self._known["node"].update(seen.cluster.node_names[:2])
        if all(len(names) > 1 for names in self._known.values()):
            return
        for job in (*(each.job for each in seen.pending), *(each.job for each in seen.running)):
            for kind, name in zip(KINDS, likes_of(job), strict=False):
                if len(self._known[kind]) < 2:
                    self._known[kind].add(name)

    def started(self, at_s: float, starts: StartsToCome) -> None:
        """Take note of what came of starts, at a monotonic time."""
        for failed in starts.failed:
            if not failed.alone:
                self._record(failed.pending.job.user).failed.append((at_s, failed.suspects))
        for user in starts.true:
            record = self._record(user)
            record.true_s = at_s
            record.failed.clear()

    def _record(self, user: str) -> _Record:
        return self._users.setdefault(user, _Record(deque(maxlen=_REMEMBERED)))

    def decided(self, good: bool) -> None:
        """Take note of a decision that was applicable, or was not."""
        self._bad_decisions = 0 if good else self._bad_decisions + 1

    def failing(self, now_s: float) -> list[str]:
        """The users all of whose starts fail, at a monotonic time."""
        from_s = now_s - WINDOW_S
        for user, record in list(self._users.items()):
            while record.failed and record.failed[0][0] < from_s:
                record.failed.popleft()
            if not record.failed and record.true_s < from_s:
                del self._users[user]
        return [user for user, record in self._users.items() if len(record.failed) >= FAILED_STARTS]

    def verdict(self, now_s: float) -> str | None:
        """Why the bridge must stand down; None if it may go on."""
        failing = self.failing(now_s)
        enough = len(failing) >= self.failing_users and 2 * len(failing) > len(self._users)
        if enough and self._culprit(failing) is None:
            return f"all starts of {len(failing)} of {len(self._users)} users failed within {WINDOW_S:g} s"
        if self._bad_decisions >= FAILED_DECISIONS:
            return f"{self._bad_decisions} decisions in a row failed"
        return None

    def _culprit(self, failing: Sequence[str]) -> Suspect | None:
        """Somebody or something that may be behind so many failures that too few witnesses are left."""
        starts = {user: [suspects for _, suspects in self._users[user].failed] for user in failing}
        several = {kind for kind, names in self._known.items() if len(names) > 1} | {"user"}
        found = {suspect for theirs in starts.values() for suspects in theirs for suspect in suspects}
        for suspect in sorted(found):
            left = sum(any(suspect not in suspects for suspects in theirs) for theirs in starts.values())
            if suspect[0] in several and left < self.failing_users - 1:
                return suspect
        return None

    def reset(self) -> None:
        """Begin anew, after a resume."""
        self._users.clear()
        self._bad_decisions = 0
