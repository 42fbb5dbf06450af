"""Define a job's request, pending, running and ended jobs, and the reasons why a job is pending, as codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cpsched.errors import require
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


class PendingCode(StrEnum):
    """The reasons why a pending job does not start now, with arguments in parentheses.

    The dispatcher considered the job:

    - `never` (the violated rule): even the empty cluster could not run the job.
    - `resources`, or `whole_nodes` for whole nodes (units that fit, units requested): too few resources are free.
    - `blocks` (units requested): enough nodes are free, but they do not fill blocks as the topology requires.
    - `reserved`, `priority`, `weight`: the job fits, but it would delay a reservation, or other jobs come first or have
      a larger weight.
    - `not_considered`, `next_pass`: the search considers only the jobs before it, or the next scheduler pass decides.
    - `other` (text): a plug-in's reason.

    The job may not start yet:

    - `dependency`, or `depends_on` (names of the jobs): it waits for other jobs.
    - `begin_time`, or `begins_at` (cluster time in seconds): it waits for its begin time.
    - `array_limit` (name of the elements): its array has reached its limit on running elements.
    - `cluster` (name, details): a reason given by the cluster, such as a limit.
    - `backed_off`, or `backed_off_here` if the job cannot be released (the reason, and the group whose starts fail).
    - `held`, or `held_for_jobs` if PBS holds the job for other jobs (the holds). `held_by` (the holder).
    - `queue_opened`: PBS's scheduler may start jobs in its queue. `in_transit`: it is moving to another queue.
    - `no_gap`, `before_reservation` (missing resources, the reservations): it does not fit before these reservations
      end. `beside_reservation` (name): it does not fit next to the reserved cores.

    The bridge does not manage the job:

    - `unmodelled` (summary, details), `unreadable` (details): its request is not modelled, or cannot be read.
    - `chosen_nodes`: its owner requested specific nodes. `magnetic_reservation` (name). `preemption` (the group whose
      jobs it may preempt): it may start by preempting running jobs.
    """

    NEVER = "never"
    RESOURCES = "resources"
    WHOLE_NODES = "whole_nodes"
    BLOCKS = "blocks"
    RESERVED = "reserved"
    PRIORITY = "priority"
    WEIGHT = "weight"
    NOT_CONSIDERED = "not_considered"
    NEXT_PASS = "next_pass"
    OTHER = "other"
    DEPENDENCY = "dependency"
    DEPENDS_ON = "depends_on"
    BEGIN_TIME = "begin_time"
    BEGINS_AT = "begins_at"
    ARRAY_LIMIT = "array_limit"
    CLUSTER = "cluster"
    BACKED_OFF = "backed_off"
    BACKED_OFF_HERE = "backed_off_here"
    HELD = "held"
    HELD_FOR_JOBS = "held_for_jobs"
    HELD_BY = "held_by"
    QUEUE_OPENED = "queue_opened"
    IN_TRANSIT = "in_transit"
    NO_GAP = "no_gap"
    BEFORE_RESERVATION = "before_reservation"
    BESIDE_RESERVATION = "beside_reservation"
    UNMODELLED = "unmodelled"
    UNREADABLE = "unreadable"
    CHOSEN_NODES = "chosen_nodes"
    MAGNETIC_RESERVATION = "magnetic_reservation"
    PREEMPTION = "preemption"


@dataclass(frozen=True, slots=True)
class PendingReason:
    """The reason why a pending job does not start now, as a code with arguments.

    >>> PendingReason(PendingCode.RESOURCES, (0, 2)).arguments
    (0, 2)
    """

    code: PendingCode
    arguments: tuple[int | str, ...] = ()

    def __post_init__(self) -> None:
        require(isinstance(self.code, PendingCode), "reason.code", self.code, "must be a PendingCode")
        kinds = ARGUMENTS.get(self.code, ())
        right = isinstance(self.arguments, tuple) and tuple(map(type, self.arguments)) == kinds
        require(right, "reason.arguments", self.arguments, f"must match the {len(kinds)} arguments of {self.code}")


ARGUMENTS: dict[PendingCode, tuple[type, ...]] = {
    **dict.fromkeys((PendingCode.BEGINS_AT, PendingCode.BLOCKS), (int,)),
    **dict.fromkeys((PendingCode.RESOURCES, PendingCode.WHOLE_NODES), (int, int)),
    **dict.fromkeys(
        (
            PendingCode.NEVER, PendingCode.OTHER, PendingCode.ARRAY_LIMIT, PendingCode.HELD, PendingCode.HELD_FOR_JOBS,
            PendingCode.HELD_BY, PendingCode.BESIDE_RESERVATION, PendingCode.UNREADABLE,
            PendingCode.MAGNETIC_RESERVATION, PendingCode.PREEMPTION, PendingCode.DEPENDS_ON,
        ),
        (str,),
    ),
    **dict.fromkeys(
        (
            PendingCode.CLUSTER, PendingCode.BACKED_OFF, PendingCode.BACKED_OFF_HERE, PendingCode.BEFORE_RESERVATION,
            PendingCode.UNMODELLED,
        ),
        (str, str),
    ),
}  # fmt: skip


def to_pending_reason(reason: PendingReason | str) -> PendingReason:
    """Return `reason` as a `PendingReason`. Text, as from plug-ins, gets code `other`."""
    return PendingReason(PendingCode.OTHER, (reason,)) if isinstance(reason, str) else reason
