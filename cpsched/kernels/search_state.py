"""What a search among orders of the queue works on: the best order found, the order on trial, and their plans."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import subroutine
from cpsched.jit.handles import Column, Handle, Matrix, Reals
from cpsched.kernels.node_classes import hash64
from cpsched.kernels.scheduling_state import empty_column, grow_columns
from cpsched.model import IntArray

EXCEEDS_LIMIT = 1e300
"""The cost of a plan that was given up: it costs more than the best plan, or breaks the bound of waits."""

POOL_JOBS = 20
"""About how many times faster a job is placed on a pool than on nodes."""


class PriceParameters(Handle):
    """The price of waiting: the fields of `dispatchers.lookahead.objectives.ObjectiveRow`, see `kernels.plan_costs`."""

    power: int
    """0: the cost grows linearly with the start; otherwise it is r (F^power - W^power)."""
    ageing_power: int
    bounded: int
    """Whether plans are bounded, see `OrderSearch.bound_s`."""
    r: float
    e: float
    flat: float
    area: float
    ageing: float
    aged_s: float
    """The wait at which ageing doubles a price where `ageing` is 1, in seconds. Python sets it in each round where
    it follows from the history."""
    least_s: float
    reserve: float
    reserve_above_s: float
    reserve_until_s: float


class SearchSettings(Handle):
    """How far a search goes."""

    limit: int
    """The most orders that are decoded after the candidates."""
    work: int
    """How many jobs may be placed in a round, over all orders; then no further order is decoded. On a pool `POOL_JOBS`
    times as many."""
    horizon: int
    """The most jobs that are decoded and searched."""
    covered: int
    """The most jobs that get a planned start."""
    overdue_s: int
    """Jobs that have waited longer than this come first, in order of arrival."""
    seed: int
    candidates: int
    """Bit k: candidate order k is tried, see `kernels.order_search`."""
    moves: int
    """Bit k: move k is made, see `kernels.order_moves`."""
    reservations: int
    """On a pool: how many jobs that cannot start now hold the slot that is planned for them."""


class SearchCounts(Handle):
    """What a round has spent so far."""

    drawn: int
    """State of the random generator."""
    decoded: int
    """Orders decoded."""
    placed: int
    """Jobs placed, in all those orders together."""


class CommonPrefix(Handle):
    """How much the order on trial, and the jobs placed at present, have in common with the best order."""

    upto: int
    """From this place on the order on trial equals the best order."""
    same: int
    """From this place on the plan on trial is known to equal the plan of the best order."""
    valid: int
    """On nodes: how many jobs of the best order, from its front, are placed at present."""


class QueueColumns(Handle, grows=True):
    """The waiting jobs, by queue position."""

    weight: Reals
    """The cost of one second."""
    expected: Reals
    """How long the job is expected to run, in seconds; used in its weight alone."""
    reserve: Column
    """Processors that must stay free beside the job."""
    amount: Column
    """Processors that the job takes; on a pool NEVER for a job that can never run; on nodes always 1."""


class CandidateOrder(Handle, grows=True):
    """An order of the queue, and its plan, by place in the order."""

    order: Column
    """Queue positions."""
    starts: Column
    """The planned starts."""
    spent: Reals
    """The cost of all jobs before a place."""
    known: Column
    """A hash of what all jobs before a place hold and when, independent of their order."""
    row: Column
    """On a pool: the profile before each job, as a row of `ProfileRows`."""


class PreviousOrder(Handle, grows=True):
    """The best order as slots, for the next round, and room to build orders in."""

    ordered: int
    """Entries of `slots` in use."""
    slots: Column
    """The best order as slots."""
    where: Column
    """By slot: the queue position plus one; all zero between two uses."""
    spare: Column
    """Queue positions that a move has taken out."""


class UndoMarks(Handle, grows=True):
    """On nodes: counters as they were before each job of the order was placed, so that the job can be taken back."""

    moves: Column
    """Entries of `trial.moved` in use."""
    available: Column
    """`trial.available`: R entries for each place."""
    groups: Column
    """Groups in use."""
    steps: Column
    """Steps in use."""
    started: Column
    """Starts in the draft."""
    failed: Column
    """Entries of `trial.failed` in use."""
    slotted: Column
    """Entries of `trial.slotted_job` in use."""


class ProfileRows(Handle, grows=True):
    """On a pool: a profile in each row, see `cpsched.kernels.pool_profile`."""

    points: Column
    """By row: how many breakpoints it has."""
    times: Matrix
    """int64[rows, breakpoints]: seconds."""
    level: Matrix
    """int64[rows, breakpoints]: what is free from then on."""


class TotalProfile(Handle, grows=True):
    """On nodes: what all nodes together have free, before each job; see `cpsched.kernels.total_profile`."""

    times: Matrix
    """int64[rows, breakpoints]: seconds."""
    free: Matrix
    """int64[rows, breakpoints * R]: what is free from then on, R entries for each breakpoint."""
    points: Column
    """By row: how many breakpoints it has."""
    asked: Column
    """int64[R]: what the job at hand asks for with all its units."""


class OrderSearch(Handle):
    """A search among orders. An order holds queue positions; its first `head` jobs are decoded and searched."""

    able: int
    """How many jobs can run at all."""
    head: int
    """How many jobs are decoded and searched."""
    overdue: int
    """How many jobs are overdue: they come first, in order of arrival."""
    fixed: int
    """How many jobs at the front the search leaves in place."""
    bound_s: int
    """The bound of the longest wait, past and planned, in seconds; `NEVER`: no bound. It holds for jobs that have
    waited for a good part of it (`plan_costs.BOUND_FROM`). A plan in which one of these waits longer is given up."""
    settings: SearchSettings
    counts: SearchCounts
    shared: CommonPrefix
    queued: QueueColumns
    best: CandidateOrder
    """The best order so far."""
    trial: CandidateOrder
    """The order on trial."""
    last: PreviousOrder
    marks: UndoMarks
    rows: ProfileRows
    totals: TotalProfile


def new_search(settings: SearchSettings) -> OrderSearch:
    """A search that has no order yet."""
    none = empty_column

    def tried() -> CandidateOrder:
        return CandidateOrder(none(), none(), np.zeros(0), none(), none())

    def matrix() -> IntArray:
        return np.zeros((0, 0), np.int64)

    return OrderSearch(
        able=0, head=0, overdue=0, fixed=0, bound_s=0,
        settings=settings,
        counts=SearchCounts(drawn=0, decoded=0, placed=0),
        shared=CommonPrefix(upto=0, same=0, valid=0),
        queued=QueueColumns(np.zeros(0), np.zeros(0), none(), none()),
        best=tried(),
        trial=tried(),
        last=PreviousOrder(0, none(), none(), none()),
        marks=UndoMarks(*(none() for _ in range(7))),
        rows=ProfileRows(none(), matrix(), matrix()),
        totals=TotalProfile(matrix(), matrix(), none(), none()),
    )  # fmt: skip


@subroutine
def resized_reals(column: Reals, room: int) -> Reals:
    """`column` with room for `room` entries. What it held may be lost."""
    return column if room <= len(column) else np.empty(max(room, 2 * len(column)))


@subroutine
def make_room_for(search: OrderSearch, count: int, slots: int, resources: int) -> None:
    """Make room for a queue of `count` jobs in a table of `slots` slots."""
    room, queued, last = count + 2, search.queued, search.last
    queued.weight = resized_reals(queued.weight, room)
    grow_columns(queued, "reserve amount", 0, room)
    make_room_for_order(search.best, room)
    make_room_for_order(search.trial, room)
    grow_columns(search.marks, "moves groups steps started failed slotted", 0, room)
    grow_columns(search.marks, "available", 0, room * resources)
    grow_columns(last, "spare", 0, room)
    if len(last.where) < slots:
        last.where = np.zeros(2 * slots, np.int64)


@subroutine
def make_room_for_order(tried: CandidateOrder, room: int) -> None:
    """Make room for an order of `room` jobs."""
    grow_columns(tried, "order starts known row", 0, room)
    tried.spent = resized_reals(tried.spent, room)


@subroutine
def make_rows(search: OrderSearch, points: int) -> None:
    """Make room for two profiles of `points` breakpoints before each job of the head, and behind the last one."""
    count, rows = 2 * (search.head + 1), search.rows
    if rows.times.shape[0] < count or rows.times.shape[1] < points:
        count, points = max(2 * count, rows.times.shape[0]), max(2 * points, rows.times.shape[1])
        rows.times, rows.level = np.empty((count, points), np.int64), np.empty((count, points), np.int64)
        rows.points = np.empty(count, np.int64)
    for k in range(search.head + 1):
        search.best.row[k], search.trial.row[k] = k, search.head + 1 + k


@subroutine
def accept_candidate(search: OrderSearch, first: int) -> None:
    """Make the order on trial the best one. Both are equal before place `first`; their plans are from `same` on."""
    best, trial, same = search.best, search.trial, search.shared.same
    for k in range(first, search.head):
        best.spent[k + 1] = trial.spent[k + 1]
        if k < same:
            best.order[k], best.starts[k], best.known[k + 1] = trial.order[k], trial.starts[k], trial.known[k + 1]
            best.row[k + 1], trial.row[k + 1] = trial.row[k + 1], best.row[k + 1]
    search.shared.valid = same


@subroutine
def holding_hash(position: int, start_s: int, places: int) -> int:
    """A hash of one job's holding: its queue position, its start, and a number for its `places`."""
    return hash64(hash64(hash64(position) + start_s) + places)
