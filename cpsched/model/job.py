"""Define a job's request, and pending, running and ended jobs."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.errors import require
from cpsched.model.reason import PendingReason, to_pending_reason
from cpsched.model.value_bounds import (
    DISTINCT,
    EXCLUSIVE,
    require_amount,
    require_duration,
    require_time,
    require_total_amount,
)

Placement = tuple[tuple[int, int], ...]
"""The location of a job: (node index, units on that node) pairs in ascending order, each node once.

`((0, 4), (2, 1))` is four units on node 0 and one on node 2.
"""


MAX_PRIORITY = 0xFFFFFFFF
"""Largest priority or tier, because Slurm uses 32 bits."""


@dataclass(frozen=True, slots=True)
class Request:
    """A job's request for identical units, each with its amounts **on one node**.

    - `units`: number of units. (pcp20 section 2.1: rn_i.)
    - `per_unit`: amounts in the order of `Cluster.resources`. (pcp20: req_i,r / rn_i.)
    - `distinct`: whether each unit needs its own node (Slurm's fixed `--nodes`). Otherwise, units may share a node.
    - `exclusive`: whether the job gets whole nodes. Then no other job may run on them, and they count as fully used.
    - `node_set`: the row of `Cluster.node_sets` with the nodes that the job may use. Row 0 contains all nodes.

    This request is for two units of four cores each, on any nodes:

    >>> Request(units=2, per_unit=(4,))
    Request(units=2, per_unit=(4,), distinct=False, exclusive=False, node_set=0)
    """

    units: int
    per_unit: tuple[int, ...]
    distinct: bool = False
    exclusive: bool = False
    node_set: int = 0

    def __post_init__(self) -> None:
        require(self.units > 0, "units", self.units, "must be positive")
        require(min(self.per_unit, default=-1) >= 0, "per_unit", self.per_unit, "must not be negative")
        largest = max(self.per_unit)
        require(largest > 0, "per_unit", self.per_unit, "must request a positive amount")
        require_amount("per_unit", largest)
        require_total_amount("units", self.units * largest)
        require(self.node_set >= 0, "node_set", self.node_set, "must be a row of node_sets")

    @property
    def sharing(self) -> int:
        """Bits for `JobTable.sharing`."""
        return DISTINCT * self.distinct | EXCLUSIVE * self.exclusive


@dataclass(frozen=True, slots=True)
class Job:
    """A job as known to a scheduler, without its true run time.

    - `submit_s`: submission time in seconds.
    - `walltime_s`: requested run time in seconds. The cluster ends the job after this time.
    - `queue`: name of the queue (Slurm: partition).
    - `ineligible`: why the job may not start yet (such as a dependency or a begin time), or None. Decisions ignore
      ineligible jobs. Text becomes a `PendingReason` with the code `other`.
    - `qos`: quality of service, or an empty string.
    - `tier`, `priority`: the site's ranking, larger first. The tier takes precedence over the priority. Both are 0 if
      the site does not rank jobs.

    >>> job = Job(id=7, submit_s=0, walltime_s=3600, request=Request(2, (4,)), user="ada")
    >>> job.request.units * job.walltime_s
    7200
    """

    id: int
    submit_s: int
    walltime_s: int
    request: Request
    user: str = ""
    name: str = ""
    queue: str = ""
    account: str = ""
    ineligible: PendingReason | None = None
    qos: str = ""
    priority: int = 0
    tier: int = 0

    def __post_init__(self) -> None:
        if self.ineligible is not None:
            object.__setattr__(self, "ineligible", to_pending_reason(self.ineligible))
        require_time("submit_s", self.submit_s)
        require_duration("walltime_s", self.walltime_s)
        require(0 <= self.priority <= MAX_PRIORITY, "priority", self.priority, "must be from 0 to 2^32 - 1")
        require(0 <= self.tier <= MAX_PRIORITY, "tier", self.tier, "must be from 0 to 2^32 - 1")


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that has occupied `placement` since `start_s`, in seconds.

    Adapters omit from `placement` the nodes that will not return to the scheduler (drained, down).
    """

    job: Job
    start_s: int
    placement: Placement

    def __post_init__(self) -> None:
        require_time("start_s", self.start_s)


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that ran from `start_s` to `end_s`, in seconds."""

    job: Job
    start_s: int
    end_s: int

    @property
    def run_s(self) -> int:
        """True run time in seconds, at least 1 as in the literature."""
        return max(1, self.end_s - self.start_s)

    @property
    def wait_s(self) -> int:
        """Wait in seconds."""
        return self.start_s - self.job.submit_s
