"""Two bridges beside one cluster see each other by a claim, which the one in control leaves there and keeps fresh.

- The first to claim stays in control; whoever finds another bridge's claim steps back.
- A claim that has not changed for `gone_s` is one of a dead bridge, and is taken over. Each bridge measures that by its
  own steady clock: what is written is a count, no time.
- A claim that vanishes gets its owner time to write it anew; then whoever waits takes its place.
- A process that has made no claim yet, and finds one of its own bridge, takes it over at once: it is its predecessor's.
  Later the same would mean that two processes have one name: the one whose claim stands goes on, the other steps back.
- A bridge that has handed every job back and could not write that down leaves a word instead of its claim. The next
  process of that bridge believes it more than its ledger: who holds a job now does not do so for the bridge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.errors import CommandRefused
from cpsched_bridge.ports import Backend, Lease

RENEWALS_PER_LEASE = 6
"""How often a claim changes within the time after which it counts as gone."""
HANDED_BACK = "handed-back"
"""The run of a claim that is such a word: no process has it for a name."""
FASTER = Lease("", "", 0, "one that claimed it at the same moment")
"""Stands for a claim that has not been read yet."""


@dataclass(slots=True)
class LeaderElection:
    """Looks at the claim of each reading, and claims the cluster for `mine` while this bridge wants to control it."""

    backend: Backend
    mine: Lease
    gone_s: float
    asked: Callable[[], bool] = lambda: False
    """Whether somebody has asked, since the last call, to take control whoever has it."""
    other_leader: Lease | None = field(default=None, init=False)
    """The claim of another bridge that is in control, by the last look."""
    _theirs: Lease | None = field(default=None, init=False)
    """The last claim of another process."""
    _changed_s: float = field(default=0.0, init=False)
    _there_s: float = field(default=0.0, init=False)
    """When that claim last changed, and when it was last there."""
    _made: bool = field(default=False, init=False)
    """Whether this process has claimed the cluster before."""
    _next_s: float = field(default=0.0, init=False)
    """When the next beat is due, or the next try where the cluster refused one."""
    _looked_s: float = field(default=float("-inf"), init=False)
    _complaint: str = field(default="", init=False)
    _wished: bool = field(default=False, init=False)
    """Whether somebody has asked to take control, and the other bridge was faster each time: slow readings lose."""

    def why_not(self) -> str | None:
        """Why this bridge must not be in control; None if nothing is in the way."""
        return (
            None
            if self.other_leader is None
            else f"another bridge is in control of this cluster: {self.other_leader.where}"
        )

    def outdated(self, now_s: float) -> bool:
        """Whether the last look is so old that another bridge may have taken over since."""
        return now_s - self._looked_s >= self.gone_s

    def look(self, seen: Lease | None, wanted: bool, now_s: float, report: CycleReport) -> None:
        """Take note of the claim that a reading shows, at a monotonic time; where that is `wanted`, claim the cluster.

        Where the cluster takes no claim, the bridge goes on without one, and says so. Raises what else the backend
        raises.
        """
        self._looked_s, before = now_s, self.other_leader
        self._wished = (self.asked() or self._wished) and wanted
        self.other_leader = self.rival_of(seen, now_s)
        mine = self._is_mine(seen)
        rested = now_s >= self._next_s
        due = rested if mine else self._wished or (self.other_leader is None and (rested or not self._complaint))
        if wanted and due:
            self._write(seen, now_s, report)
        elif mine and not wanted:
            self.release_lease()
        report.rival = self.other_leader
        _tell(before, self.other_leader, report)

    def rival_of(self, seen: Lease | None, now_s: float) -> Lease | None:
        """The claim of another bridge that is in control, by the claim of a reading; takes note of that."""
        if self._is_mine(seen):
            return None
        self._note(seen, now_s)
        return self._alive(seen, now_s)

    def _is_mine(self, seen: Lease | None) -> bool:
        return seen is not None and seen.owner == self.mine.owner

    def release_lease(self) -> None:
        """Take this bridge's claim off the cluster, if it has made one. Raises what the backend raises."""
        if self._made:
            self.backend.release_lease(self.mine)

    def leave_word(self) -> None:
        """Leave a word in place of the claim: every job is handed back, and the ledger does not say so.

        Raises what the backend raises.
        """
        word = replace(self.mine, run=HANDED_BACK, beat=self.mine.beat + 1)
        self.backend.acquire_lease(word, self.mine if self._made else None)

    def word_of(self, seen: Lease | None) -> bool:
        """Whether the claim of a reading is the word of a former process of this bridge."""
        return seen is not None and (seen.bridge, seen.run) == (self.mine.bridge, HANDED_BACK)

    def _note(self, theirs: Lease | None, now_s: float) -> None:
        if theirs is None:
            return
        if theirs != self._theirs:
            self._changed_s = now_s
        self._theirs, self._there_s = theirs, now_s

    def _alive(self, seen: Lease | None, now_s: float) -> Lease | None:
        """The claim of another bridge that must be taken for alive, whether or not it stands there now."""
        if seen is None:
            waits = self._theirs is not None and now_s - self._there_s < self.gone_s / RENEWALS_PER_LEASE
            return self._theirs if waits else None
        predecessor = seen.bridge == self.mine.bridge and not self._made
        return None if predecessor or now_s - self._changed_s >= self.gone_s else seen

    def _write(self, seen: Lease | None, now_s: float, report: CycleReport) -> None:
        """Write the next beat of this bridge's claim in place of what was `seen`."""
        self._next_s = now_s + self.gone_s / RENEWALS_PER_LEASE
        claim = replace(self.mine, beat=self.mine.beat + 1)
        try:
            taken = self.backend.acquire_lease(claim, seen)
        except CommandRefused as error:
            self._complain(str(error), report)
            return
        self._complain("", report)
        if taken:
            self.mine, self._made, self._wished = claim, True, False
            self.other_leader = self._theirs = None
        else:
            self.other_leader = self.other_leader or FASTER

    def _complain(self, words: str, report: CycleReport) -> None:
        if words and words != self._complaint:
            report.tell("no_claim", f"other bridges cannot see this one: {words}")
        self._complaint = words


def _tell(before: Lease | None, now: Lease | None, report: CycleReport) -> None:
    if now is not None and (before is None or before.owner != now.owner):
        report.tell("other_bridge", f"in control of this cluster: {now.where}")
    if now is None and before is not None:
        report.tell("other_bridge_gone", f"not in control any more: {before.where}")
