"""What a job asks for, and what is known of it while it waits, runs, and after it has ended."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.errors import require
from cpsched.model.reason import PendingReason, reason_from
from cpsched.model.sentinels import DISTINCT, EXCLUSIVE
from cpsched.model.value_bounds import require_amount, require_duration, require_time, require_total

Placement = tuple[tuple[int, int], ...]
"""Where a job runs: (node index, units on that node), each node once, in node order.

`((0, 4), (2, 1))` is four units on node 0 and one on node 2.
"""


MOST_PRIORITY = 0xFFFFFFFF
"""The largest priority, and the largest tier: Slurm's 32 bits."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a job asks for: `units` identical units, each wanting `per_unit` amounts **on one node**.

    - `units`: how many. (pcp20 section 2.1: rn_i.)
    - `per_unit`: amounts in the order of `Cluster.resources`. (pcp20: req_i,r / rn_i.)
    - `distinct`: every unit on a node of its own (Slurm's fixed `--nodes`); otherwise units may share a node.
    - `exclusive`: the job uses whole nodes: nobody else may be there, and all of each node counts as used.
    - `node_set`: the row of `Cluster.node_sets` whose nodes the job may use; row 0 holds all nodes.

    Two units of four cores each, wherever they fit:

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
        require(largest > 0, "per_unit", self.per_unit, "must ask for something")
        require_amount("per_unit", largest)
        require_total("units", self.units * largest)
        require(self.node_set >= 0, "node_set", self.node_set, "must be a row of node_sets")

    @property
    def sharing(self) -> int:
        """The `JobTable.sharing` bits."""
        return DISTINCT * self.distinct | EXCLUSIVE * self.exclusive


@dataclass(frozen=True, slots=True)
class Job:
    """A job as a scheduler may know it; never its real runtime.

    - `submit_s`: when the job was submitted, in seconds.
    - `walltime_s`: the run time that its user asked for; the cluster ends the job after that.
    - `queue`: the name of the queue (Slurm: the partition) that the job was submitted to.
    - `ineligible`: why the job may not start yet (a dependency, a begin time, ...), and None where it may. An
      ineligible job is left out of decisions. A text becomes a reason with the code `other`.
    - `qos`: the quality of service that the job was submitted under, where its site has such.
    - `tier`, `priority`: what the site ranks its jobs by, larger first: any job of a higher tier comes before those of
      a lower one. Both are 0 where nobody ranks jobs.

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
            object.__setattr__(self, "ineligible", reason_from(self.ineligible))
        require_time("submit_s", self.submit_s)
        require_duration("walltime_s", self.walltime_s)
        require(0 <= self.priority <= MOST_PRIORITY, "priority", self.priority, "must be within 32 bits, not negative")
        require(0 <= self.tier <= MOST_PRIORITY, "tier", self.tier, "must be within 32 bits, not negative")


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that occupies `placement` since `start_s`.

    An adapter leaves out of `placement` the nodes that will not come back to the scheduler (drained, down).
    """

    job: Job
    start_s: int
    placement: Placement

    def __post_init__(self) -> None:
        require_time("start_s", self.start_s)


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that ran from `start_s` to `end_s`: what predictors and expected waits learn from."""

    job: Job
    start_s: int
    end_s: int

    @property
    def run_s(self) -> int:
        """Real run time in seconds; the field's minimum is one second."""
        return max(1, self.end_s - self.start_s)

    @property
    def wait_s(self) -> int:
        """Seconds in the queue."""
        return self.start_s - self.job.submit_s
