"""Read the cluster, and determine from its lease which bridge is in control.

The first observation also includes jobs that ended while no bridge was running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cpsched.formatting import format_count
from cpsched.model import EndedJob, PowerCap
from cpsched_bridge.cycle.mode_and_readiness import CurrentBridgeMode
from cpsched_bridge.cycle.real_clock import record_phase_duration
from cpsched_bridge.cycle.reconcile import make_unrecorded_release_transition
from cpsched_bridge.cycle.verified_decision import require_power_cap_resources
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.ports import Backend, LoopClock, Observation
from cpsched_bridge.store.ledger import MANAGED_STATES, Ledger

HISTORY_RETRY_INTERVAL_S = 60
"""Seconds of cluster time between attempts to read a history that was incomplete at the start."""


@dataclass(slots=True)
class ObservationReader:
    """A reader of the cluster's state for one bridge."""

    backend: Backend
    ledger: Ledger
    _has_read_history: bool = field(default=False, init=False)
    _next_history_s: int = field(default=0, init=False)
    """Cluster time at which to read the history again if part of it is missing."""
    _ended_before: list[EndedJob] = field(default_factory=list, init=False)
    """Ended jobs that `read_first` found and the first cycle has not processed yet."""
    _transport: str = field(default="", init=False)
    """The last reported transport."""
    _is_first: bool = field(default=True, init=False)

    def read_first(self) -> Observation:
        """Make an observation before the first cycle, which receives its ended jobs."""
        seen = self.backend.observe(self.ledger.get_pin_restores())
        self._ended_before += seen.ended
        return seen

    def read(self) -> tuple[Observation, Sequence[EndedJob]]:
        """Return an observation, and the jobs that ended before the bridge started.

        The second value is empty after the first call, unless the backend reports `history_missing`. In that case, the
        history is read again regularly. In the first observation, the ended jobs also include past jobs that the ledger
        still records as open.
        """
        if self._has_read_history:
            seen = self.backend.observe(self.ledger.get_pin_restores())
            return seen, self._read_missing_history(seen.now_s)
        past = tuple(self.backend.read_history())
        seen = self.backend.observe(self.ledger.get_pin_restores())
        self._has_read_history, self._next_history_s = True, seen.now_s + HISTORY_RETRY_INTERVAL_S
        alive = self.ledger.list_open_job_ids()
        missed = (ended for ended in past if ended.job.id in alive)
        before, self._ended_before = self._ended_before, []
        return replace(seen, ended=(*missed, *before, *seen.ended)), past

    def _read_missing_history(self, now_s: int) -> Sequence[EndedJob]:
        """Read an incomplete history again if a retry is due. It may contain known jobs."""
        if not self.backend.history_missing or now_s < self._next_history_s:
            return ()
        self._next_history_s = now_s + HISTORY_RETRY_INTERVAL_S
        return tuple(self.backend.read_history())

    def read_for_cycle(
        self, report: CycleReport, mode: CurrentBridgeMode, pace: LoopClock, power: PowerCap | None
    ) -> tuple[Observation, Sequence[EndedJob]]:
        """Read the cluster into the report, and check the lease.

        Return the results of `read`. Raise `InvalidSetting` if the power cap names a resource that the cluster does not
        have.
        """
        with record_phase_duration(report, "observe", pace):
            seen, past = self.read()
            if self._is_first:
                require_power_cap_resources(power, seen.cluster)
            report.observation = seen
            if self.backend.transport_info != self._transport:
                self._transport = self.backend.transport_info
                report.add_event("transport", self._transport)
            for note in seen.notes:
                report.add_event("site_policy", note)
            if (
                self._is_first
                and mode.configured != "shadow"
                and mode.leader_election.is_own_jobs_released_notice(seen.lease)
            ):
                self._apply_jobs_released_notice(seen.now_s, report)
            self._is_first = False
            mode.leader_election.observe_and_renew_lease(seen.lease, mode.wants_leadership, pace.monotonic_s(), report)
        return seen, past

    def _apply_jobs_released_notice(self, now_s: int, report: CycleReport) -> None:
        """Apply an earlier process's release notice before the notice is overwritten."""
        old = [*self.ledger.list_entries(*MANAGED_STATES), *self.ledger.list_orphaned_pins()]
        self.ledger.record((make_unrecorded_release_transition(entry, now_s) for entry in old), report.number)
        report.add_event(
            "released", f"the previous bridge released {format_count(len(old), 'job')}, but could not record it"
        )
