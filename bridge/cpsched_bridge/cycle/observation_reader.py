"""Read the cluster in each cycle.

The first observation also includes jobs that ended while no bridge was running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cpsched.formatting import format_count
from cpsched.model import EndedJob, PowerCap
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.cycle_values import ClusterReading
from cpsched_bridge.cycle.leader_election import LeaderElection
from cpsched_bridge.cycle.reconcile import make_unrecorded_release_transition
from cpsched_bridge.cycle.verified_decision import require_power_cap_resources
from cpsched_bridge.ports import Backend, Observation
from cpsched_bridge.store.ledger import MANAGED_STATES, Ledger

HISTORY_RETRY_INTERVAL_S = 60
"""Seconds of cluster time between attempts to read a history that was incomplete at the start."""


@dataclass(slots=True)
class ObservationReader:
    """A reader of the cluster's state for one bridge."""

    backend: Backend
    ledger: Ledger
    power: PowerCap | None = None
    """The configured power cap."""
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
        observation = self.backend.observe(self.ledger.list_pinned_job_ids())
        self._ended_before += observation.ended
        return observation

    def read(self, recorder: CycleRecorder) -> ClusterReading:
        """Read the cluster, and report its notes.

        Raise `InvalidSetting` if the power cap names a resource that the cluster does not have.

        `past` is empty after the first call, unless the backend reports `history_missing`. In that case, the history is
        read again regularly. In the first reading, the ended jobs also include past jobs that the ledger still records
        as open.
        """
        if self._has_read_history:
            observation = self.backend.observe(self.ledger.list_pinned_job_ids())
            reading = ClusterReading(observation, observation.ended, self._read_missing_history(observation.now_s))
        else:
            past = tuple(self.backend.read_history())
            observation = self.backend.observe(self.ledger.list_pinned_job_ids())
            self._has_read_history, self._next_history_s = True, observation.now_s + HISTORY_RETRY_INTERVAL_S
            alive = self.ledger.list_open_job_ids()
            missed = (ended for ended in past if ended.job.id in alive)
            before, self._ended_before = self._ended_before, []
            reading = ClusterReading(observation, (*missed, *before, *observation.ended), past)
            require_power_cap_resources(self.power, observation.cluster)
        self._report_notes(observation, recorder)
        return reading

    def _report_notes(self, observation: Observation, recorder: CycleRecorder) -> None:
        if self.backend.transport_info != self._transport:
            self._transport = self.backend.transport_info
            recorder.add_event("transport", self._transport)
        for note in observation.notes:
            recorder.add_event("site_policy", note)

    def _read_missing_history(self, now_s: int) -> Sequence[EndedJob]:
        """Read an incomplete history again if a retry is due. It may contain known jobs."""
        if not self.backend.history_missing or now_s < self._next_history_s:
            return ()
        self._next_history_s = now_s + HISTORY_RETRY_INTERVAL_S
        return tuple(self.backend.read_history())

    def apply_jobs_released_notice(
        self, observation: Observation, election: LeaderElection, recorder: CycleRecorder
    ) -> None:
        """Apply an earlier process's release notice, which is in the first lease, before the notice is overwritten.

        Jobs that were running were not released, and keep their pins if they are requeued.
        """
        if self._is_first and election.is_own_jobs_released_notice(observation.lease):
            old = [*self.ledger.list_entries(*MANAGED_STATES), *self.ledger.list_orphaned_pins()]
            running, pinned = {each.job.id for each in observation.running}, observation.list_pinned_job_ids()
            old = [entry for entry in old if entry.job_id not in running]
            now_s = observation.now_s
            self.ledger.record(
                (make_unrecorded_release_transition(entry, now_s, entry.job_id in pinned) for entry in old),
                recorder.number,
            )
            detail = f"the previous bridge released {format_count(len(old), 'job')}, but could not record it"
            recorder.add_event("released", detail)
        self._is_first = False
