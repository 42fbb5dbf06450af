"""Implement list scheduling: the dispatchers' interface to the compiled kernels.

`plan` processes a queue in a given order and returns which jobs start now and when the other jobs can start. The number
of reservations selects the classic list schedulers:

- `STRICT`: the first job that does not fit ends the round (first come, first served).
- `GREEDY`: every job that fits starts.
- 1: the first job that must wait reserves its earliest start (EASY backfilling).
- K: the first K jobs that must wait reserve their earliest starts (Slurm's backfill).
- `EVERY_JOB`: all jobs that must wait reserve their earliest starts (conservative backfilling).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cpsched.errors import InvalidValue, require
from cpsched.kernels import queue_orders
from cpsched.kernels.node_list_scheduling import earliest_start_of_extra_job, plan_on_nodes
from cpsched.kernels.pool_list_scheduling import plan_on_pool
from cpsched.kernels.queue_orders import GREEDY, STRICT
from cpsched.kernels.scheduling_state import (
    WHOLE_QUEUE,
    ListSchedulerParameters,
    SchedulingState,
    build_node_resource_state,
    copy_starts,
    get_planned_starts,
    new_plan_result,
    new_plan_workspace,
    no_node_classes,
)
from cpsched.model import (
    NEVER,
    NO_STARTS,
    Decision,
    Effort,
    IntArray,
    Job,
    JobTable,
    Need,
    Snapshot,
    Starts,
    frozen_array,
)
from cpsched.model.job_table import COLUMNS
from cpsched.wait_reasons import explain_waits

FloatArray = npt.NDArray[np.float64]


class OrderSymbols(NamedTuple):
    """The symbols in the formulas of queue orders: columns of the queued jobs, then constants. Times are in seconds."""

    E: FloatArray
    """Estimates."""
    r: FloatArray
    """Numbers of processors: units times the amount of the cluster's first resource."""
    s: FloatArray
    """Submission times, at least 1."""
    W: FloatArray
    """Waits so far."""
    R: float
    """Number of processors of the cluster."""
    tau: float
    """Scale of `boost`."""


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """A named queue order: by `key`, then `tie`, then arrival.

    `OrderSymbols` defines the symbols in the formulas. Tier and priority are the site's ranking.
    """

    name: str
    key: str
    tie: str
    sentence: str
    source: str
    code: int = queue_orders.GIVEN
    """The order's code in the kernels, if they implement it."""
    by: Callable[[OrderSymbols], npt.ArrayLike] | None = None
    """Function that computes sort keys, if no kernel implements the order."""


TANG, SC17 = "Tang et al. 2009", "Carastan-Santos and de Camargo 2017"
YU = "Yu and Scully 2024"
ONE_PROCESSOR = 1 + 1e-15
"""Substitute for r = 1, because UNICEP divides by log2(r). Jobs with one processor thus precede all larger jobs."""

ORDERS: dict[str, QueueOrder] = {
    order.name: order
    for order in (
        QueueOrder("reg", "arrival", "", "By arrival", "debs24", queue_orders.ARRIVAL),
        QueueOrder("shortest", "E", "", "Shortest estimate first", "mod17", queue_orders.SHORTEST),
        QueueOrder("longest", "-E", "", "Longest estimate first", "mod17", queue_orders.LONGEST),
        QueueOrder("sjf", "E", "r", "Shortest estimate first", "debs24", queue_orders.SJF),
        QueueOrder("ljf", "-E", "r", "Longest estimate first", "debs24", queue_orders.LJF),
        QueueOrder("saf", "r*E", "", "Smallest area first", "debs24", queue_orders.SAF),
        QueueOrder("laf", "-r*E", "", "Largest area first", "debs24", queue_orders.LAF),
        QueueOrder("spf", "r*E^2", "r*E", "Smallest processors x squared estimate first", "debs24", queue_orders.SPF),
        QueueOrder("priority", "-tier", "-priority", "The site's priority first", "Slurm", queue_orders.PRIORITY),
        QueueOrder("wfp3", "-r*(W/E)^3", "", "Largest processors x (wait / estimate) cubed first", TANG,
              by=lambda q: -q.r * (q.W / q.E) ** 3),
        QueueOrder("unicep", "-W/(log2(r)*E)", "", "Largest wait / (log of processors x estimate) first", TANG,
              by=lambda q: -q.W / (np.log2(np.maximum(q.r, ONE_PROCESSOR)) * q.E)),
        QueueOrder("f1", "r*log10(E) + 870*log10(s)", "", "Smallest F1 first", SC17,
              by=lambda q: q.r * np.log10(q.E) + 870 * np.log10(q.s)),
        QueueOrder("f2", "r*E^0.5 + 25600*log10(s)", "", "Smallest F2 first", SC17,
              by=lambda q: q.r * np.sqrt(q.E) + 25_600 * np.log10(q.s)),
        QueueOrder("f3", "r*E + 6860000*log10(s)", "", "Smallest F3 first", SC17,
              by=lambda q: q.r * q.E + 6_860_000 * np.log10(q.s)),
        QueueOrder("f4", "r^0.5*E + 530000*log10(s)", "", "Smallest F4 first", SC17,
              by=lambda q: np.sqrt(q.r) * q.E + 530_000 * np.log10(q.s)),
        QueueOrder("boost", "s - tau*log(1/(1 - exp(-r*E/(R*tau))))", "", "By arrival minus a boost of small jobs", YU,
              by=lambda q: q.s + q.tau * np.log(-np.expm1(-np.maximum(q.r * q.E, 1) / (max(q.R, 1) * q.tau)))),
    )
}  # fmt: skip
"""All queue orders by name (debs24 section 3; mod17 section 4)."""

if TYPE_CHECKING:
    OrderName = str
else:
    OrderName = Literal[tuple(ORDERS)]
    """A key of `ORDERS`; command lines list them as choices."""

SortKey = Callable[[Job], Any]
"""A function that returns a job's sort key, of any sortable type. Smaller keys come first; ties by arrival."""

Allocation = Literal["first-fit", "best-fit"]
"""Order of nodes for a placement: by index, or nodes with the fewest free resources first (mod17)."""

ALLOCATIONS: dict[Allocation, int] = {"first-fit": queue_orders.FIRST_FIT, "best-fit": queue_orders.BEST_FIT}

EVERY_JOB = NEVER
"""Value of `reservations`: every job that must wait reserves its earliest start."""

ARRIVAL_ORDER = frozen_array([])
"""Empty positions, which stand for the queue's own order."""


DEFAULT_TAU_H = 1.0


@dataclass(frozen=True, slots=True)
class ListSchedulerSpec:
    """The parameters of a list scheduler.

    - `reservations`: number of jobs that reserve their earliest start, in order, if they cannot start. Other jobs start
      only if they delay none of these jobs. Special values are `STRICT`, `GREEDY` and `EVERY_JOB`.
    - `order`: a key of `ORDERS`, or None if the caller passes positions.
    - `backfill`: order of the other jobs after a single reservation; `reg` keeps the order.
    - `allocation`: node selection.
    - `tau_h`: scale of the order `boost`, in hours.
    """

    reservations: int
    order: OrderName | None = "reg"
    backfill: OrderName = "reg"
    allocation: Allocation = "first-fit"
    tau_h: float = DEFAULT_TAU_H

    _methods: dict[bool, ListSchedulerParameters] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def has_kernel_order(self) -> bool:
        """Whether the kernels implement the order, so that no positions are needed."""
        return self.order is not None and ORDERS[self.order].by is None

    def __post_init__(self) -> None:
        count = isinstance(self.reservations, int) and self.reservations >= STRICT
        require(count, "reservations", self.reservations, "must be a whole number of at least 0, or STRICT")
        for name, order in (("order", self.order), ("backfill", self.backfill)):
            require(order is None or order in ORDERS, name, order, f"must be one of {', '.join(ORDERS)}")
        require(ORDERS[self.backfill].by is None, "backfill", self.backfill, "must be an order in the compiled kernels")
        require(self.tau_h > 0, "tau_h", self.tau_h, "must be positive")
        require(self.order == "boost" or self.tau_h == DEFAULT_TAU_H, "tau_h", self.tau_h, "requires order=boost")
        require(self.allocation in ALLOCATIONS, "allocation", self.allocation, f"must be {' or '.join(ALLOCATIONS)}")

    def kernel_parameters(self, whole: bool) -> ListSchedulerParameters:
        """Return the kernels' parameters for the whole plan, or for only the starts."""
        if whole not in self._methods:
            order = ORDERS[self.order].code if self.order is not None else queue_orders.GIVEN
            backfill, allocation = ORDERS[self.backfill].code, ALLOCATIONS[self.allocation]
            self._methods[whole] = ListSchedulerParameters(order, backfill, self.reservations, allocation, int(whole))
        return self._methods[whole]


list_scheduler_of = lru_cache(maxsize=256)(ListSchedulerSpec)
"""Cached constructor of `ListSchedulerSpec`."""


def plan(
    snapshot: Snapshot,
    order: OrderName | SortKey | npt.ArrayLike = "reg",
    reservations: int | None = None,
    backfill: OrderName = "reg",
    allocation: Allocation = "first-fit",
    need: Need = "plan",
) -> Decision:
    """Decide by list scheduling: place the queued jobs one by one, in `order`.

    `order` is one of:

    - a key of `ORDERS`, such as "saf";
    - a function of a `Job` that returns a sort key, smaller first: a number, or a tuple of numbers.
      `snapshot.estimate_of(job)` is the job's estimate in seconds;
    - an array of Q numbers, one per job in `snapshot.queue`, in queue order; smaller first.

    Ties are broken by arrival. The first `reservations` jobs that cannot start reserve their earliest start; no other
    job may delay them. None means all such jobs; `STRICT` and `GREEDY` mean none. `backfill` is the order of the other
    jobs after a single reservation, if it differs from `order`. `need` has the same meaning as in `Dispatcher.decide`.
    Raise `InvalidValue` for an invalid order or number of reservations.

    >>> from cpsched.model import Cluster, Request
    >>> cluster = Cluster.of([[4]], ["cores"])
    >>> long, short = Job(1, 0, 90, Request(1, (3,))), Job(2, 0, 30, Request(1, (3,)))
    >>> snapshot = Snapshot.of(0, cluster, cluster.capacity, [long, short], estimates={1: 90, 2: 30})
    >>> plan(snapshot).plan_by_job(snapshot)
    {1: 0, 2: 90}
    >>> plan(snapshot, order=lambda job: job.walltime_s).plan_by_job(snapshot)
    {1: 30, 2: 0}
    """
    count = EVERY_JOB if reservations is None else reservations
    if isinstance(order, str):
        return plan_by_spec(list_scheduler_of(count, order, backfill, allocation), snapshot, need)
    positions = sort_queue_positions(snapshot, order)
    return plan_by_spec(list_scheduler_of(count, None, backfill, allocation), snapshot, need, positions)


def sort_queue_positions(snapshot: Snapshot, order: SortKey | npt.ArrayLike) -> IntArray:
    """Return the queued jobs' positions, int64[Q], sorted by a function or numbers."""
    if callable(order):
        keys = [order(job) for job in snapshot.queued_jobs()]
        require(all(key == key for key in keys), "order", order, "must not return NaN")
        try:
            return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
        except TypeError as error:
            raise InvalidValue("order", order, f"must return sortable keys: {error}") from error
    numbers, wanted = np.asarray(order), (len(snapshot.queue),)
    right = numbers.shape == wanted and numbers.dtype.kind in "biuf" and not np.isnan(numbers).any()
    given = f"{len(numbers)} numbers" if numbers.ndim == 1 and len(numbers) != wanted[0] else order
    require(right, "order", given, f"must be a name, a function of a job, or {wanted[0]} numbers, one per queued job")
    return np.argsort(numbers, kind="stable").astype(np.int64)


def plan_by_spec(
    scheme: ListSchedulerSpec, snapshot: Snapshot, need: Need, positions: IntArray = ARRIVAL_ORDER
) -> Decision:
    """Return the decision of the list scheduler `scheme`.

    `positions` is the queue order if `scheme` defines none.
    """
    if scheme.order is not None and (by := ORDERS[scheme.order].by) is not None:
        table, queue = snapshot.table, snapshot.queue
        processors, submit_s = table.units[queue] * table.per_unit[queue, 0], table.submit_s[queue]
        columns = table.estimate_s[queue], processors, np.maximum(submit_s, 1), snapshot.now_s - submit_s
        E, r, s, W = (column.astype(np.float64) for column in columns)
        symbols = OrderSymbols(E, r, s, W, float(snapshot.cluster.capacity[:, 0].sum()), 3600 * scheme.tau_h)
        positions = sort_queue_positions(snapshot, by(symbols))
    n, whole = len(snapshot.queue), need == "plan"
    if not n:
        return Decision(NO_STARTS, kernel_effort("empty-queue", 0), ARRIVAL_ORDER if whole else None)
    carried = snapshot.carried
    site = carried if isinstance(carried, SchedulingState) else get_scheduling_state(snapshot)
    schedule = plan_on_pool if snapshot.cluster.counted else plan_on_nodes
    count = schedule(site, scheme.kernel_parameters(whole), positions)
    starts = Starts(*copy_starts(site.draft), True) if count else NO_STARTS
    cost = kernel_effort("none-starts" if not count else "all-start" if count == n else "some-start", n)
    if not whole:
        return Decision(starts, cost)
    plan_s = get_planned_starts(site.draft, n)
    return Decision(starts, cost, plan_s, explain_waits(snapshot, starts, plan_s))


def planned_starts(snapshot: Snapshot, positions: IntArray) -> IntArray:
    """Return each queued job's earliest start in seconds, int64[Q].

    A start delays no job that comes before it in `positions`. The starts equal those from `plan` with that order. No
    waits are computed, so this function suits repeated planning.
    """
    n = len(snapshot.queue)
    if not n:
        return ARRIVAL_ORDER
    site = get_scheduling_state(snapshot)
    schedule = plan_on_pool if snapshot.cluster.counted else plan_on_nodes
    schedule(site, list_scheduler_of(EVERY_JOB, None).kernel_parameters(True), positions)
    return get_planned_starts(site.draft, n)


class WillRunEstimator:
    """An estimator of the start of one more job behind a snapshot's queue.

    The queue is placed only once, in the order `positions` (int64[Q]). Each job gets its earliest start that delays no
    job before it. The last row of the snapshot's table must be free, because the additional job overwrites it.
    """

    def __init__(self, snapshot: Snapshot, positions: IntArray) -> None:
        self._cluster, self._site = snapshot.cluster, get_scheduling_state(snapshot)
        plan_on_nodes(
            self._site,
            ListSchedulerParameters(
                queue_orders.GIVEN, queue_orders.ARRIVAL, EVERY_JOB, queue_orders.FIRST_FIT, WHOLE_QUEUE
            ),
            positions,
        )

    def start_s(self, job: Job) -> int:
        """Return the start of `job` in seconds that delays no queued job, or `NEVER`.

        Raise `InvalidValue` for a request that does not match the cluster.
        """
        alone, jobs = JobTable.of(self._cluster, [job]), self._site.jobs
        for name in COLUMNS:
            getattr(jobs, name)[-1] = getattr(alone, name)[0]
        return int(earliest_start_of_extra_job(self._site, len(jobs.jobs) - 1))


def get_scheduling_state(snapshot: Snapshot) -> SchedulingState:
    """Return the kernel state that the snapshot carries, or a new one."""
    if isinstance(snapshot.carried, SchedulingState):
        return snapshot.carried
    cluster, resources = snapshot.cluster, len(snapshot.cluster.resources)
    return SchedulingState(
        now_s=snapshot.now_s,
        queued=len(snapshot.queue),
        active=len(snapshot.running),
        machine=build_node_resource_state(cluster, snapshot.free),
        jobs=snapshot.table,
        queue=np.array(snapshot.queue),
        running=np.array(snapshot.running),
        groups=no_node_classes(resources),
        draft=new_plan_result(),
        trial=new_plan_workspace(resources),
    )


@lru_cache(maxsize=4096)
def kernel_effort(path: str, considered: int) -> Effort:
    """Return the effort of a kernel's decision. Results are cached."""
    return Effort(path, considered)


__all__ = [
    "ARRIVAL_ORDER",
    "EVERY_JOB",
    "GREEDY",
    "ORDERS",
    "STRICT",
    "Allocation",
    "ListSchedulerSpec",
    "OrderName",
    "QueueOrder",
    "WillRunEstimator",
    "plan",
    "plan_by_spec",
    "planned_starts",
]
