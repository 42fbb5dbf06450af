"""Elect the leading bridge by a lease on the cluster, which the bridge in control renews.

- The first bridge to hold the lease stays in control. A bridge that finds another bridge's lease yields.
- A lease that has not changed for `gone_s` seconds belongs to a dead bridge and is taken over. Each bridge measures
  this with its own monotonic clock, because the lease contains a counter, not a time.
- If a lease vanishes, its owner has time to write it again before a waiting bridge takes over.
- A process that has not held a lease yet and finds a lease of its own bridge takes the lease over immediately, because
  the lease belongs to the previous process. Later, the same situation would mean that two processes have the same name:
  the process that owns the lease continues, and the other one yields.
- A bridge that released every job but could not record this in its ledger replaces its lease with a notice. The next
  process of that bridge gives the notice precedence over its ledger: holds on the cluster are no longer the bridge's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.errors import CommandRefused
from cpsched_bridge.ports import Backend, Lease

RENEWALS_PER_LEASE = 6
"""Number of renewals within the time after which a lease expires."""
HANDED_BACK = "handed-back"
"""Value of `Lease.run` that marks the notice; no process has this name."""
FASTER = Lease("", "", 0, "one that claimed it at the same moment")
"""Placeholder for the lease of another bridge that has not been read yet."""


@dataclass(slots=True)
class LeaderElection:
    """The election state of one bridge, which acquires the lease `mine` while it wants to control the cluster."""

    backend: Backend
    mine: Lease
    gone_s: float
    asked: Callable[[], bool] = lambda: False
    """Returns whether the operator has requested a takeover from any other bridge since the last call."""
    other_leader: Lease | None = field(default=None, init=False)
    """The lease of another bridge in control, according to the last observation; None if there is none."""
    _theirs: Lease | None = field(default=None, init=False)
    """The last lease of another process that was seen."""
    _changed_s: float = field(default=0.0, init=False)
    _there_s: float = field(default=0.0, init=False)
    """Monotonic times at which `_theirs` last changed (`_changed_s`) and was last present (`_there_s`)."""
    _made: bool = field(default=False, init=False)
    """Whether this process has ever held the lease."""
    _next_s: float = field(default=0.0, init=False)
    """Monotonic time of the next renewal, or of the next attempt after a refusal."""
    _looked_s: float = field(default=float("-inf"), init=False)
    _complaint: str = field(default="", init=False)
    _wished: bool = field(default=False, init=False)
    """Whether a requested takeover is pending, because the other bridge renews faster than this bridge reads."""

    def standby_reason(self) -> str | None:
        """Return why this bridge must not be in control, or None if it may be."""
        return (
            None
            if self.other_leader is None
            else f"another bridge is in control of this cluster: {self.other_leader.where}"
        )

    def is_outdated(self, now_s: float) -> bool:
        """Return whether the last observation is so old that another bridge may have taken over since."""
        return now_s - self._looked_s >= self.gone_s

    def observe_lease(self, seen: Lease | None, wanted: bool, now_s: float, report: CycleReport) -> None:
        """Record the lease in an observation at monotonic time `now_s`; if `wanted`, acquire or renew the own lease.

        If the cluster does not accept a lease, the bridge continues without one and reports this. Raise all other
        errors of the backend.
        """
        self._looked_s, before = now_s, self.other_leader
        self._wished = (self.asked() or self._wished) and wanted
        self.other_leader = self.find_other_leader(seen, now_s)
        mine = self._is_mine(seen)
        rested = now_s >= self._next_s
        due = rested if mine else self._wished or (self.other_leader is None and (rested or not self._complaint))
        if wanted and due:
            self._write(seen, now_s, report)
        elif mine and not wanted:
            self.release_lease()
        report.rival = self.other_leader
        _tell(before, self.other_leader, report)

    def find_other_leader(self, seen: Lease | None, now_s: float) -> Lease | None:
        """Return the lease of another bridge in control, or None, and record the lease."""
        if self._is_mine(seen):
            return None
        self._note(seen, now_s)
        return self._alive(seen, now_s)

    def _is_mine(self, seen: Lease | None) -> bool:
        return seen is not None and seen.owner == self.mine.owner

    def release_lease(self) -> None:
        """Remove this bridge's lease from the cluster, if it has one. Raise the backend's errors."""
        if self._made:
            self.backend.release_lease(self.mine)

    def leave_release_mark(self) -> None:
        """Replace the lease with a notice that every job is released although the ledger does not record this.

        Raise the backend's errors.
        """
        word = replace(self.mine, run=HANDED_BACK, beat=self.mine.beat + 1)
        self.backend.acquire_lease(word, self.mine if self._made else None)

    def is_own_release_mark(self, seen: Lease | None) -> bool:
        """Return whether the lease in an observation is the notice of an earlier process of this bridge."""
        return seen is not None and (seen.bridge, seen.run) == (self.mine.bridge, HANDED_BACK)

    def _note(self, theirs: Lease | None, now_s: float) -> None:
        if theirs is None:
            return
        if theirs != self._theirs:
            self._changed_s = now_s
        self._theirs, self._there_s = theirs, now_s

    def _alive(self, seen: Lease | None, now_s: float) -> Lease | None:
        """Return the lease of another bridge that may be alive, even if the lease is absent now, or None."""
        if seen is None:
            waits = self._theirs is not None and now_s - self._there_s < self.gone_s / RENEWALS_PER_LEASE
            return self._theirs if waits else None
        predecessor = seen.bridge == self.mine.bridge and not self._made
        return None if predecessor or now_s - self._changed_s >= self.gone_s else seen

    def _write(self, seen: Lease | None, now_s: float, report: CycleReport) -> None:
        """Replace `seen` with the next renewal of this bridge's lease."""
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
            report.add_event("no_claim", f"other bridges cannot see this one: {words}")
        self._complaint = words


def _tell(before: Lease | None, now: Lease | None, report: CycleReport) -> None:
    if now is not None and (before is None or before.owner != now.owner):
        report.add_event("other_bridge", f"in control of this cluster: {now.where}")
    if now is None and before is not None:
        report.add_event("other_bridge_gone", f"not in control any more: {before.where}")
