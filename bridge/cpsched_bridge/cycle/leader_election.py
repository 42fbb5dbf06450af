"""Elect the leading bridge, which holds and renews a lease on the cluster.

- The first bridge to hold the lease stays in control. A bridge that finds another bridge's lease yields.
- A lease that has not changed for `gone_s` seconds belongs to a dead bridge and is taken over. Each bridge measures
  this time with its own monotonic clock, because the lease contains a counter instead of a time.
- If a lease disappears, its owner has time to write it again before a waiting bridge takes over.
- A new process that finds its own bridge's lease takes it over immediately, because it belongs to the previous process.
  Later, the same situation would mean that two processes have the same name. The process that owns the lease then
  continues, and the other process yields.
- A bridge that released every job but could not record this in its ledger replaces its lease with a notice. The next
  process of that bridge trusts the notice more than its ledger: no hold on the cluster belongs to the bridge any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.errors import CommandRefused
from cpsched_bridge.ports import Backend, Lease

RENEWALS_PER_LEASE = 6
"""Number of times that a lease is renewed within its duration."""
RELEASE_NOTICE = "handed-back"
"""Value of `Lease.run` that marks a release notice. No process has this name."""
CONCURRENT_LEASE = Lease("", "", 0, "a bridge that acquired the lease at the same moment")
"""Placeholder for another bridge's lease that has not been read yet."""


@dataclass(slots=True)
class LeaderElection:
    """One bridge's election state: its lease `mine`, and other bridges' leases."""

    backend: Backend
    mine: Lease
    gone_s: float
    is_takeover_requested: Callable[[], bool] = lambda: False
    """Returns whether the operator has requested a takeover since the last call."""
    other_leader: Lease | None = field(default=None, init=False)
    """The lease of another bridge in control, as of the last observation, or None if there is none."""
    _other_lease: Lease | None = field(default=None, init=False)
    """The last lease of another process that was seen."""
    _changed_s: float = field(default=0.0, init=False)
    _present_s: float = field(default=0.0, init=False)
    """Monotonic times at which `_other_lease` last changed (`_changed_s`) and was last seen (`_present_s`)."""
    _has_held_lease: bool = field(default=False, init=False)
    """Whether this process has ever held the lease."""
    _next_s: float = field(default=0.0, init=False)
    """Monotonic time of the next renewal, or of the next attempt after a refusal."""
    _observed_s: float = field(default=float("-inf"), init=False)
    _reported_problem: str = field(default="", init=False)
    _is_takeover_pending: bool = field(default=False, init=False)
    """Whether a requested takeover is pending, for example because the other bridge has just renewed its lease."""

    def standby_reason(self) -> str | None:
        """Return why this bridge must not be in control, or None if it may be."""
        return (
            None
            if self.other_leader is None
            else f"another bridge is in control of this cluster: {self.other_leader.where}"
        )

    def is_lease_observation_stale(self, now_s: float) -> bool:
        """Return whether another bridge may have taken over since the last observation."""
        return now_s - self._observed_s >= self.gone_s

    def observe_and_renew_lease(
        self, seen: Lease | None, wanted: bool, now_s: float, recorder: CycleRecorder
    ) -> Lease | None:
        """Record the observed lease. If `wanted`, acquire or renew this bridge's lease.

        `now_s` is the monotonic time. Return another controlling bridge's lease, or None. If the cluster refuses the
        lease, report this and continue without a lease. Raise all other errors of the backend.
        """
        self._observed_s, before = now_s, self.other_leader
        self._is_takeover_pending = (self.is_takeover_requested() or self._is_takeover_pending) and wanted
        self.other_leader = self.find_other_leader(seen, now_s)
        mine = self._is_own_lease(seen)
        rested = now_s >= self._next_s
        due = (
            rested
            if mine
            else self._is_takeover_pending or (self.other_leader is None and (rested or not self._reported_problem))
        )
        if wanted and due:
            self._write_lease(seen, now_s, recorder)
        elif mine and not wanted:
            self.release_lease()
        _report_leader_change(before, self.other_leader, recorder)
        return self.other_leader

    def find_other_leader(self, seen: Lease | None, now_s: float) -> Lease | None:
        """Record the observed lease. Return another controlling bridge's lease, or None."""
        if self._is_own_lease(seen):
            return None
        self._record_other_lease(seen, now_s)
        return self._find_possibly_live_lease(seen, now_s)

    def _is_own_lease(self, seen: Lease | None) -> bool:
        return seen is not None and seen.owner == self.mine.owner

    def release_lease(self) -> None:
        """Remove the lease that this bridge may hold. Raise the backend's errors."""
        if self._has_held_lease:
            self.backend.release_lease(self.mine)

    def write_jobs_released_notice(self) -> None:
        """Replace the lease with a notice that all jobs are released.

        The ledger does not record this release. Raise the backend's errors.
        """
        word = replace(self.mine, run=RELEASE_NOTICE, beat=self.mine.beat + 1)
        self.backend.acquire_lease(word, self.mine if self._has_held_lease else None)

    def is_own_jobs_released_notice(self, seen: Lease | None) -> bool:
        """Return whether the lease is a release notice of this bridge's earlier process."""
        return seen is not None and (seen.bridge, seen.run) == (self.mine.bridge, RELEASE_NOTICE)

    def _record_other_lease(self, theirs: Lease | None, now_s: float) -> None:
        if theirs is None:
            return
        if theirs != self._other_lease:
            self._changed_s = now_s
        self._other_lease, self._present_s = theirs, now_s

    def _find_possibly_live_lease(self, seen: Lease | None, now_s: float) -> Lease | None:
        """Return the present or recent lease of another bridge that may be alive, or None."""
        if seen is None:
            waits = self._other_lease is not None and now_s - self._present_s < self.gone_s / RENEWALS_PER_LEASE
            return self._other_lease if waits else None
        predecessor = seen.bridge == self.mine.bridge and not self._has_held_lease
        return None if predecessor or now_s - self._changed_s >= self.gone_s else seen

    def _write_lease(self, seen: Lease | None, now_s: float, recorder: CycleRecorder) -> None:
        """Replace the lease `seen` with this bridge's lease, renewed."""
        self._next_s = now_s + self.gone_s / RENEWALS_PER_LEASE
        lease = replace(self.mine, beat=self.mine.beat + 1)
        try:
            taken = self.backend.acquire_lease(lease, seen)
        except CommandRefused as error:
            self._report_lease_problem(str(error), recorder)
            return
        self._report_lease_problem("", recorder)
        if taken:
            self.mine, self._has_held_lease, self._is_takeover_pending = lease, True, False
            self.other_leader = self._other_lease = None
        else:
            self.other_leader = self.other_leader or CONCURRENT_LEASE

    def _report_lease_problem(self, text: str, recorder: CycleRecorder) -> None:
        if text and text != self._reported_problem:
            recorder.add_event(
                "lease_unwritable", f"the lease cannot be written, so other bridges cannot detect this bridge: {text}"
            )
        self._reported_problem = text


def _report_leader_change(before: Lease | None, now: Lease | None, recorder: CycleRecorder) -> None:
    if now is not None and (before is None or before.owner != now.owner):
        recorder.add_event("other_bridge", f"another bridge is in control of this cluster: {now.where}")
    if now is None and before is not None:
        recorder.add_event("other_bridge_gone", f"the other bridge is no longer in control: {before.where}")
