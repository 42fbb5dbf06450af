"""The state of a search over queue orders: best order, trial order and plans."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import subroutine
from cpsched.jit.shared_structs import Column, Matrix, Reals, SharedStruct
from cpsched.kernels.node_classes import hash64
from cpsched.kernels.scheduling_state import empty_column, grow_columns
from cpsched.model import IntArray

EXCEEDS_LIMIT = 1e300
"""Cost of an abandoned plan, whose cost exceeds the best cost or whose waits exceed the bound."""

POOL_JOBS_PER_NODE_JOB = 20
"""Ratio of the times to place a job on nodes and on a pool."""


class WaitCostParameters(SharedStruct):
    """The cost of waiting: the fields of `WaitCostObjective` (see `plan_costs`)."""

    power: int
    """0: the cost is linear in the start. Otherwise, the cost is r (F^power - W^power)."""
    ageing_power: int
    bounded: int
    """Whether plans are bounded (see `OrderSearchState.bound_s`)."""
    r: float
    e: float
    flat: float
    area: float
    ageing: float
    aged_s: float
    """Wait in seconds at which ageing doubles a cost if `ageing` is 1.

    If this wait depends on the history, Python sets it in each round.
    """
    least_s: float
    reserve: float
    reserve_above_s: float
    reserve_until_s: float


class OrderSearchSettings(SharedStruct):
    """The settings and limits of a search."""

    limit: int
    """Maximum number of orders to decode after the candidates."""
    work: int
    """Maximum number of jobs to place in a round. On a pool, it is multiplied by `POOL_JOBS_PER_NODE_JOB`."""
    horizon: int
    """Maximum number of jobs to decode and search."""
    covered: int
    """Maximum number of jobs for which to plan a start."""
    overdue_s: int
    """Wait in seconds after which a job moves to the front, in order of arrival."""
    seed: int
    candidates: int
    """Bit k: try candidate order k (see `kernels.order_search`)."""
    moves: int
    """Bit k: use move k (see `kernels.order_moves`)."""
    reservations: int
    """On a pool: number of waiting jobs that reserve their planned slots."""


class OrderSearchCounters(SharedStruct):
    """Counters of the work done so far in a round."""

    drawn: int
    """State of the random number generator."""
    decoded: int
    """Number of orders decoded."""
    placed: int
    """Number of jobs placed in all decoded orders."""


class SharedOrderBounds(SharedStruct):
    """The parts of the best order that the trial order and the placed jobs share."""

    upto: int
    """Place from which the trial order equals the best order."""
    same: int
    """Place from which the trial plan is known to equal the best plan."""
    valid: int
    """On nodes: number of jobs placed from the front of the best order."""


class QueuedJobColumns(SharedStruct, grows=True):
    """The waiting jobs by queue position."""

    weight: Reals
    """Cost of one second of waiting."""
    expected: Reals
    """Expected run time in seconds, which affects only the weight."""
    reserve: Column
    """Number of processors that must remain free in addition to the job's."""
    amount: Column
    """On a pool: number of processors, or NEVER if the job can never run. On nodes: 1."""


class CandidateQueueOrder(SharedStruct, grows=True):
    """An order of the queue and its plan, by place in the order."""

    order: Column
    """Queue positions."""
    starts: Column
    """Planned starts in seconds."""
    spent: Reals
    """Total cost of the jobs before each place."""
    known: Column
    """Hash of the slots of the jobs before each place, regardless of their order."""
    row: Column
    """On a pool: the profile before each job, as a row of `PoolAvailabilityProfiles`."""


class PreviousBestOrder(SharedStruct, grows=True):
    """The best order, as slots for the next round, and buffers for building orders."""

    ordered: int
    """Number of entries of `slots` in use."""
    slots: Column
    """The best order as slots."""
    where: Column
    """Queue position plus one by slot. All entries are 0 between uses."""
    spare: Column
    """Queue positions that a move has removed."""


class PlacementUndoMarks(SharedStruct, grows=True):
    """On nodes: the counters before each placement of a job, used to undo it."""

    moves: Column
    """Number of entries of `trial.moved` in use."""
    available: Column
    """`trial.available`: R entries for each place."""
    groups: Column
    """Number of classes in use."""
    steps: Column
    """Number of steps in use."""
    started: Column
    """Number of starts in the plan result."""
    failed: Column
    """Number of entries of `trial.failed` in use."""
    slotted: Column
    """Number of entries of `trial.slotted_job` in use."""


class PoolAvailabilityProfiles(SharedStruct, grows=True):
    """On a pool: one profile per row (see `cpsched.kernels.pool_profile`)."""

    points: Column
    """Number of breakpoints of each row."""
    times: Matrix
    """int64[rows, breakpoints]: times in seconds."""
    level: Matrix
    """int64[rows, breakpoints]: number of free units from each time."""


class TotalAvailabilityProfile(SharedStruct, grows=True):
    """On nodes: total free amounts of all nodes before each job (see `total_profile`)."""

    times: Matrix
    """int64[rows, breakpoints]: times in seconds."""
    free: Matrix
    """int64[rows, breakpoints * R]: free amounts from each time, R per breakpoint."""
    points: Column
    """Number of breakpoints of each row."""
    asked: Column
    """int64[R]: total request of the current job."""


class OrderSearchState(SharedStruct):
    """A search over orders, which decodes the first `head` jobs of an order."""

    able: int
    """Number of jobs that can ever run."""
    head: int
    """Number of jobs to decode and search."""
    overdue: int
    """Number of overdue jobs, which come first, in order of arrival."""
    fixed: int
    """Number of jobs at the front that the search does not move."""
    bound_s: int
    """Bound in seconds on the longest total wait, past and planned. `NEVER` means no bound.

    It applies to jobs that have waited for at least the share `plan_costs.BOUND_WAIT_SHARE` of the bound. The search
    abandons a plan in which one of these jobs waits longer than the bound.
    """
    settings: OrderSearchSettings
    objective: WaitCostParameters
    counts: OrderSearchCounters
    shared: SharedOrderBounds
    queued: QueuedJobColumns
    best: CandidateQueueOrder
    """The best order so far."""
    trial: CandidateQueueOrder
    """The trial order."""
    last: PreviousBestOrder
    marks: PlacementUndoMarks
    rows: PoolAvailabilityProfiles
    totals: TotalAvailabilityProfile


def new_order_search_state(settings: OrderSearchSettings, objective: WaitCostParameters) -> OrderSearchState:
    """Return the initial state of a search, without an order."""
    none = empty_column

    def new_candidate_order() -> CandidateQueueOrder:
        return CandidateQueueOrder(none(), none(), np.zeros(0), none(), none())

    def empty_matrix() -> IntArray:
        return np.zeros((0, 0), np.int64)

    return OrderSearchState(
        able=0, head=0, overdue=0, fixed=0, bound_s=0,
        settings=settings,
        objective=objective,
        counts=OrderSearchCounters(drawn=0, decoded=0, placed=0),
        shared=SharedOrderBounds(upto=0, same=0, valid=0),
        queued=QueuedJobColumns(np.zeros(0), np.zeros(0), none(), none()),
        best=new_candidate_order(),
        trial=new_candidate_order(),
        last=PreviousBestOrder(0, none(), none(), none()),
        marks=PlacementUndoMarks(*(none() for _ in range(7))),
        rows=PoolAvailabilityProfiles(none(), empty_matrix(), empty_matrix()),
        totals=TotalAvailabilityProfile(empty_matrix(), empty_matrix(), none(), none()),
    )  # fmt: skip


@subroutine
def resized_reals(column: Reals, room: int) -> Reals:
    """Return a column of at least `room` entries. Its contents may be lost."""
    return column if room <= len(column) else np.empty(max(room, 2 * len(column)))


@subroutine
def allocate_queue_columns(search: OrderSearchState, count: int, slots: int, resources: int) -> None:
    """Allocate columns for `count` queued jobs and for `slots` slots."""
    room, queued, last = count + 2, search.queued, search.last
    queued.weight = resized_reals(queued.weight, room)
    grow_columns(queued, "reserve amount", 0, room)
    allocate_order_columns(search.best, room)
    allocate_order_columns(search.trial, room)
    grow_columns(search.marks, "moves groups steps started failed slotted", 0, room)
    grow_columns(search.marks, "available", 0, room * resources)
    grow_columns(last, "spare", 0, room)
    if len(last.where) < slots:
        last.where = np.zeros(2 * slots, np.int64)


@subroutine
def allocate_order_columns(tried: CandidateQueueOrder, room: int) -> None:
    """Allocate an order of `room` jobs."""
    grow_columns(tried, "order starts known row", 0, room)
    tried.spent = resized_reals(tried.spent, room)


@subroutine
def allocate_profiles(search: OrderSearchState, points: int) -> None:
    """Allocate two profiles for each place in the head, and two after the last job.

    Each profile has `points` breakpoints.
    """
    count, rows = 2 * (search.head + 1), search.rows
    if rows.times.shape[0] < count or rows.times.shape[1] < points:
        count, points = max(2 * count, rows.times.shape[0]), max(2 * points, rows.times.shape[1])
        rows.times, rows.level = np.empty((count, points), np.int64), np.empty((count, points), np.int64)
        rows.points = np.empty(count, np.int64)
    for k in range(search.head + 1):
        search.best.row[k], search.trial.row[k] = k, search.head + 1 + k


@subroutine
def accept_candidate(search: OrderSearchState, first: int) -> None:
    """Set the best order to the trial order.

    The orders are equal before place `first`, and their plans are equal from place `same`.
    """
    best, trial, same = search.best, search.trial, search.shared.same
    for k in range(first, search.head):
        best.spent[k + 1] = trial.spent[k + 1]
        if k < same:
            best.order[k], best.starts[k], best.known[k + 1] = trial.order[k], trial.starts[k], trial.known[k + 1]
            best.row[k + 1], trial.row[k + 1] = trial.row[k + 1], best.row[k + 1]
    search.shared.valid = same


@subroutine
def placed_job_hash(position: int, start_s: int, places: int) -> int:
    """Return a hash of a job's queue position, start and `places`."""
    return hash64(hash64(hash64(position) + start_s) + places)
