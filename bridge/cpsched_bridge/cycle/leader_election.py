"""Elect the leading bridge, which holds and renews a lease on the cluster.

- The first bridge to hold the lease stays in control. A bridge that finds another bridge's lease yields.
- A leader sends commands only until its lease expires: `gone_s` seconds after it sent the last successful renewal. A
  lease that has not changed for `gone_s` seconds belongs to a dead bridge and is taken over. Each bridge measures this
  time with its own monotonic clock, because the lease contains a counter instead of a time.
- Two bridges that exchange messages (`PeerLink`) shorten this time. The lease then names the other bridge, which may
  take over `SHORT_LEASE_S` seconds after the leader's last message. The leader's time counts from its last message
  that the other bridge answered. If the link is cut, the leader removes that name from the lease before this time is
  over, or sends no more commands. A cut link alone therefore never moves control.
- Each takeover increases the lease's epoch. The bridge's changes carry it, and the submit plugin refuses the changes of
  an earlier epoch.
- If a lease disappears, its owner has time to write it again before a waiting bridge takes over. A lease that its owner
  has marked as released is taken over immediately.
- A new process that finds its own bridge's lease takes it over immediately, because it belongs to the previous process.
  Later, the same situation would mean that two processes have the same name. The process that owns the lease then
  continues, and the other process yields.
- A bridge that released every job but could not record this in its ledger says so in its lease. The next process of
  that bridge trusts the lease more than its ledger: no hold on the cluster belongs to the bridge any more.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Self

from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.errors import BackendError, CommandRefused
from cpsched_bridge.ports import FENCED_EPOCH, Backend, Lease
from cpsched_bridge.store.lock_and_request_files import LeadershipStatus

RENEWALS_PER_LEASE = 6
"""Number of times that a lease is renewed within its duration."""
SHORT_LEASE_S = 6.0
"""Seconds after the leader's last message at which the bridge that the lease names may take over."""
LINK_LOST_S = 2.5
"""Seconds without an answer after which the leader returns to the long lease."""
RELEASED = "released"
"""Value of `Lease.run` of a lease without an owner. No process has this name."""
JOBS_RELEASED = "jobs-released"
"""The same, if the owner has also released all its jobs and could not record this in its ledger."""
CONCURRENT_LEASE = Lease("", "", 0, "a bridge that acquired the lease at the same moment")
"""Placeholder for another bridge's lease that has not been read yet."""
NEVER_S = float("-inf")


@dataclass(frozen=True, slots=True)
class PeerMessage:
    """What a bridge reports to the other one about itself."""

    bridge: str = ""
    run: str = ""
    where: str = ""
    can_lead: bool = False
    """Whether the bridge takes over if the other one ends. In shadow mode and while it is paused, it does not."""

    @property
    def owner(self) -> tuple[str, str]:
        """The names of the bridge and the process, as in a lease."""
        return self.bridge, self.run

    def to_text(self) -> bytes:
        """Return the message as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_text(cls, text: bytes) -> Self:
        """Return the message. Raise `ValueError` or `TypeError` if the text is malformed."""
        return cls(**json.loads(text))


@dataclass(slots=True)
class PeerLink:
    """The last signs of life of the other bridge. Times are monotonic, in seconds."""

    send: Callable[[PeerMessage], PeerMessage | None] = lambda message: None
    """Sends a message to the other bridge. Returns its answer, or None if there is none."""
    peer: PeerMessage = field(default_factory=PeerMessage)
    """The last message of the other bridge."""
    answered_s: float = NEVER_S
    """Time at which the last message was sent that the other bridge answered."""
    heard_s: float = NEVER_S
    """Time at which the last message was received, or the last answered message was sent."""
    own: PeerMessage = field(default_factory=PeerMessage)
    """This bridge's last message, with which it answers. It is empty while the cycle hangs."""

    def exchange(self, now_s: float, lease: Lease, can_lead: bool) -> None:
        """Send a message, and record the answer."""
        self.own = PeerMessage(lease.bridge, lease.run, lease.where, can_lead)
        answer = self.send(self.own)
        if answer is not None and answer.bridge:
            self.peer, self.answered_s = answer, now_s
            self.heard_s = max(self.heard_s, now_s)

    def receive(self, message: PeerMessage, now_s: float) -> PeerMessage:
        """Record a message of the other bridge, and return the answer."""
        self.peer, self.heard_s = message, now_s
        return self.own


@dataclass(slots=True)
class LeaderElection:
    """One bridge's election state: its lease `mine`, and other bridges' leases."""

    backend: Backend
    mine: Lease
    gone_s: float
    is_takeover_requested: Callable[[], bool] = lambda: False
    """Returns whether the operator has requested a takeover since the last call."""
    link: PeerLink = field(default_factory=PeerLink)
    unix_s: Callable[[], float] = lambda: 0.0
    """Returns the present Unix time in seconds."""
    other_leader: Lease | None = field(default=None, init=False)
    """The lease of another bridge in control, as of the last observation, or None if there is none."""
    _other_lease: Lease | None = field(default=None, init=False)
    """The last lease of another process that was seen."""
    _changed_s: float = field(default=0.0, init=False)
    _present_s: float = field(default=0.0, init=False)
    """Monotonic times at which `_other_lease` last changed (`_changed_s`) and was last seen (`_present_s`)."""
    _is_leader: bool = field(default=False, init=False)
    """Whether the lease was this process's own when it was last seen or successfully written."""
    _has_held_lease: bool = field(default=False, init=False)
    """Whether this process has ever held the lease."""
    _renewed_s: float = field(default=float("-inf"), init=False)
    """Monotonic time at which the last successful renewal was sent."""
    _next_s: float = field(default=0.0, init=False)
    """Monotonic time of the next renewal, or of the next attempt after a refusal."""
    _observed_s: float = field(default=float("-inf"), init=False)
    """Monotonic time of the last observation."""
    _can_lead: bool = field(default=False, init=False)
    """Whether this bridge was neither paused nor in shadow mode then."""
    _leader: tuple[str, str] | None = field(default=None, init=False)
    _leader_since_s: float = field(default=0.0, init=False)
    """The owner of the lease as last seen, and the monotonic time of its first observation."""
    _reported_problem: str = field(default="", init=False)
    _is_takeover_pending: bool = field(default=False, init=False)
    """Whether a requested takeover is pending, for example because the other bridge has just renewed its lease."""
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)
    """Held while the lease is written. It guards `mine`, `_renewed_s` and `_is_leader`."""

    def standby_reason(self) -> str | None:
        """Return why this bridge must not be in control, or None if it may be."""
        return (
            None
            if self.other_leader is None
            else f"another bridge is in control of this cluster: {self.other_leader.where}"
        )

    def is_lease_expired(self, now_s: float) -> bool:
        """Return whether this bridge leads, and another one may have taken over since the last renewal."""
        if not self._is_leader:
            return False
        if not self.mine.standby:
            return now_s - self._renewed_s >= self.gone_s
        return now_s - max(self._renewed_s, self.link.answered_s) >= SHORT_LEASE_S

    def has_standby(self, now_s: float) -> bool:
        """Return whether another bridge takes over as soon as this bridge releases its lease."""
        return bool(self._find_standby(now_s))

    def _find_standby(self, now_s: float) -> str:
        """Return the name of the bridge that answers this bridge's messages and can lead, or ""."""
        peer = self.link.peer
        return peer.bridge if peer.can_lead and now_s - self.link.answered_s < LINK_LOST_S else ""

    def observe_and_renew_lease(
        self, seen: Lease | None, wanted: bool, now_s: float, recorder: CycleRecorder
    ) -> Lease | None:
        """Record the observed lease. If `wanted`, acquire or renew this bridge's lease.

        `now_s` is the monotonic time. Return another controlling bridge's lease, or None. If the cluster refuses the
        lease, report this and continue without a lease. Raise all other errors of the backend.
        """
        self._observed_s, self._can_lead = now_s, wanted
        before = self.other_leader
        self._is_takeover_pending = (self.is_takeover_requested() or self._is_takeover_pending) and wanted
        self.other_leader = self.find_other_leader(seen, now_s)
        self._is_leader = self._is_own_lease(seen)
        if self._is_leader:
            is_due = now_s >= self._next_s or self.is_lease_expired(now_s)
            is_due = is_due or self.mine.standby != self._find_standby(now_s)
        else:
            may_write = now_s >= self._next_s or not self._reported_problem
            is_due = self._is_takeover_pending or (self.other_leader is None and may_write)
        if wanted and is_due:
            self._acquire_or_renew_lease(seen, now_s, recorder)
        elif self._is_leader and not wanted:
            self.release_lease()
        self.backend.epoch = self._find_epoch(seen)
        leading = self.mine if self._is_leader else self.other_leader
        leader = None if leading is None else leading.owner
        if leader != self._leader:
            self._leader, self._leader_since_s = leader, now_s
        _report_leader_change(before, self.other_leader, recorder)
        return self.other_leader

    def _find_epoch(self, seen: Lease | None) -> int:
        """Return the epoch of this bridge's changes, or 0 if no bridge has a lease that other bridges can read.

        A paused bridge that has released its lease, or finds that of a dead bridge, still releases jobs. These changes
        carry the epoch of that lease, so that they are refused as soon as another bridge leads.
        """
        if self.other_leader is not None:
            return FENCED_EPOCH
        if self._reported_problem:
            return 0
        if self._is_leader:
            return self.mine.epoch
        return 0 if seen is None else seen.epoch

    def describe(self, now_s: float, unix_s: float) -> LeadershipStatus:
        """Return which bridge leads, for the operator."""
        link, lease = self.link, self.mine if self._is_leader else self.other_leader
        has_standby = lease is not None and (self._is_leader or lease.standby == self.mine.bridge) and lease.standby
        return LeadershipStatus(
            leader="" if lease is None else lease.where,
            is_here=self._is_leader,
            since_unix_s=unix_s - (now_s - self._leader_since_s),
            other=link.peer.where,
            heard_unix_s=unix_s - (now_s - link.heard_s) if link.peer.where else None,
            takeover_s=SHORT_LEASE_S if has_standby else self.gone_s,
            epoch=max(self.mine.epoch, 0 if self._other_lease is None else self._other_lease.epoch),
        )

    def find_other_leader(self, seen: Lease | None, now_s: float) -> Lease | None:
        """Record the observed lease. Return another controlling bridge's lease, or None."""
        if seen is not None and self._is_own_lease(seen):
            if seen.beat > self.mine.beat:  # the answer to the last renewal was lost
                self.mine, self._has_held_lease = seen, True
            return None
        self._record_other_lease(seen, now_s)
        return self._find_possibly_live_lease(seen, now_s)

    def _is_own_lease(self, seen: Lease | None) -> bool:
        return seen is not None and seen.owner == self.mine.owner

    def release_lease(self, have_jobs_been_released: bool = False) -> None:
        """Mark the lease that this bridge may hold as released. Raise the backend's errors.

        `have_jobs_been_released` is for the next process of this bridge: all jobs are released, and the ledger does not
        record this.
        """
        with self._writing:
            if self._has_held_lease or have_jobs_been_released:
                run = JOBS_RELEASED if have_jobs_been_released else RELEASED
                notice = replace(self.mine, run=run, beat=self.mine.beat + 1, standby="")
                self.backend.acquire_lease(notice, self.mine if self._has_held_lease else None)
            self._is_leader = False

    def is_own_jobs_released_notice(self, seen: Lease | None) -> bool:
        """Return whether an earlier process of this bridge has released all jobs without a record."""
        return seen is not None and (seen.bridge, seen.run) == (self.mine.bridge, JOBS_RELEASED)

    def keep_link(self, now_s: float) -> None:
        """Exchange messages with the other bridge. If it does not answer, return to the long lease.

        This runs once a second, also during a cycle, in another thread. It neither sends messages nor renews the lease
        while the cycle hangs, or if the lease has expired, for example while this process was suspended. A cycle hangs
        after `gone_s` only: a slow decision may take half of this time, and would also be slow on the other bridge.
        """
        if now_s - self._observed_s >= self.gone_s or self.is_lease_expired(now_s):
            self.link.own = PeerMessage()
            return
        self.link.exchange(now_s, self.mine, self._can_lead)
        if not self._is_leader or not self.mine.standby or self._find_standby(now_s):
            return
        if not self._writing.acquire(blocking=False):
            return
        try:
            self._write_lease(replace(self.mine, standby=""), self.mine, now_s)
        except BackendError:  # repeated in a second
            pass
        finally:
            self._writing.release()

    def _record_other_lease(self, theirs: Lease | None, now_s: float) -> None:
        if theirs is None:
            return
        if theirs != self._other_lease:
            self._changed_s = now_s
        self._other_lease, self._present_s = theirs, now_s

    def _find_possibly_live_lease(self, seen: Lease | None, now_s: float) -> Lease | None:
        """Return the present or recent lease of another bridge that may be alive, or None."""
        other = self._other_lease
        if other is None or other.run in (RELEASED, JOBS_RELEASED):
            return None
        heard_s = self.link.heard_s if self.link.peer.owner == other.owner else float("-inf")
        if seen is None:
            waits_s, sign_s = self.gone_s / RENEWALS_PER_LEASE, max(self._present_s, heard_s)
        elif seen.bridge == self.mine.bridge and not self._has_held_lease:
            return None
        else:
            waits_s = SHORT_LEASE_S if seen.standby == self.mine.bridge else self.gone_s
            sign_s = max(self._changed_s, heard_s)
        return other if now_s - sign_s < waits_s else None

    def _acquire_or_renew_lease(self, seen: Lease | None, now_s: float, recorder: CycleRecorder) -> None:
        """Replace the lease `seen` with this bridge's lease, renewed."""
        self._next_s = now_s + self.gone_s / RENEWALS_PER_LEASE
        with self._writing:
            lease, expected = replace(self.mine, standby=self._find_standby(now_s)), seen
            if self._is_leader:
                expected = self.mine
            else:
                last = seen or self._other_lease
                epoch = max(lease.epoch, 0 if last is None else last.epoch + 1)
                if seen is None:  # the lost lease may be that of a bridge that this bridge has not seen lead
                    epoch = max(epoch, int(self.unix_s()))
                lease = replace(lease, epoch=epoch)
            try:
                taken = self._write_lease(lease, expected, now_s)
            except CommandRefused as error:
                self._report_lease_problem(str(error), recorder)
                return
        self._report_lease_problem("", recorder)
        if taken:
            self._is_takeover_pending = False
            self.other_leader = self._other_lease = None
        else:
            self.other_leader = self.other_leader or CONCURRENT_LEASE

    def _write_lease(self, lease: Lease, expected: Lease | None, now_s: float) -> bool:
        """Write this bridge's lease with a new counter. Return whether the lease was `expected`."""
        lease = replace(lease, beat=self.mine.beat + 1)
        if not self.backend.acquire_lease(lease, expected):
            self.mine, self._renewed_s = replace(self.mine, standby=""), float("-inf")
            return False
        self.mine, self._renewed_s = lease, now_s
        self._is_leader = self._has_held_lease = True
        return True

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
