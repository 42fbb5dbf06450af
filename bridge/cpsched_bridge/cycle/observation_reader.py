"""Read the cluster in each cycle, and determine the typical requests for GPUs from the jobs of the last weeks.

The first observation also includes jobs that ended while no bridge was running.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from cpsched.formatting import format_count
from cpsched.model import Cluster, EndedJob, PowerCap, Request, TypicalRequests
from cpsched.model.typical_requests import TYPICAL_DAYS, find_typical_requests
from cpsched_bridge.cycle.cluster_state import ClusterReading
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.leader_election import LeaderElection
from cpsched_bridge.cycle.reconcile import make_unrecorded_release_transition
from cpsched_bridge.cycle.verified_decision import require_power_cap_resources
from cpsched_bridge.ports import Backend, Observation
from cpsched_bridge.store.ledger import MANAGED_STATES, Ledger

HISTORY_RETRY_INTERVAL_S = 60
"""Seconds of cluster time between attempts to read a history that was incomplete at the start."""
DAY_S = 86_400
TYPICAL_UPDATE_INTERVAL_S = DAY_S
"""Seconds of cluster time between updates of typical requests."""
TYPICAL_RETRY_INTERVAL_S = 600
"""Seconds of cluster time between updates while there are no typical requests."""
MAX_ENDED_JOBS = 100_000
"""Maximum number of ended jobs to remember. The oldest ones are dropped."""


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


@dataclass(slots=True)
class TypicalJobs:
    """The requests of recently ended jobs, and the typical requests among them."""

    chooses_nodes: bool
    """Whether decisions choose nodes by the typical requests."""
    _ended: deque[tuple[int, Request]] = field(default_factory=lambda: deque(maxlen=MAX_ENDED_JOBS))
    """End times in seconds and requests."""
    _resources: tuple[str, ...] = ()
    _typical: TypicalRequests | None = None
    _update_s: int = 0
    """Cluster time of the next update."""
    _clusters: tuple[Cluster, Cluster] | None = None
    """The last observed cluster, and the same with the typical requests. A decision reuses data of an equal object."""

    def add_to_observation(self, observation: Observation, ended: Iterable[EndedJob]) -> Observation:
        """Return the observation with the typical requests, after adding newly ended jobs."""
        now_s, cluster = observation.now_s, observation.cluster
        if cluster.resources != self._resources:
            self._ended.clear()
            self._resources, self._typical, self._update_s = cluster.resources, None, now_s
        self._ended.extend((each.end_s, each.job.request) for each in ended)

        if now_s >= self._update_s:
            first_s = now_s - TYPICAL_DAYS * DAY_S
            recent = (request for end_s, request in self._ended if end_s >= first_s)
            self._typical, self._clusters = find_typical_requests(recent, cluster.resources), None
            self._update_s = now_s + (TYPICAL_RETRY_INTERVAL_S if self._typical is None else TYPICAL_UPDATE_INTERVAL_S)
        if self._typical is None:
            return observation

        observation = replace(observation, typical=self._typical)
        if not self.chooses_nodes:
            return observation
        if self._clusters is None or self._clusters[0] is not cluster:
            self._clusters = cluster, replace(cluster, typical=self._typical)
        return replace(observation, cluster=self._clusters[1])
