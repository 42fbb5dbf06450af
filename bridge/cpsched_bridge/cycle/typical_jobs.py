"""Determine the site's typical requests for GPUs from the jobs of the last weeks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cpsched.model import Cluster, EndedJob, Request, TypicalRequests
from cpsched.model.typical_requests import TYPICAL_DAYS, find_typical_requests
from cpsched_bridge.ports import Observation

DAY_S = 86_400
UPDATE_INTERVAL_S = DAY_S
"""Seconds of cluster time between updates of typical requests."""
RETRY_INTERVAL_S = 600
"""Seconds of cluster time between updates while there are no typical requests."""
MAX_ENDED_JOBS = 100_000
"""Maximum number of ended jobs to remember. The oldest ones are dropped."""


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
            self._update_s = now_s + (RETRY_INTERVAL_S if self._typical is None else UPDATE_INTERVAL_S)
        if self._typical is None:
            return observation

        observation = replace(observation, typical=self._typical)
        if not self.chooses_nodes:
            return observation
        if self._clusters is None or self._clusters[0] is not cluster:
            self._clusters = cluster, replace(cluster, typical=self._typical)
        return replace(observation, cluster=self._clusters[1])
