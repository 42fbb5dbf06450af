"""What a search among orders of the queue works on: the best order found, the order on trial, and their plans."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import subroutine
from cpsched.jit.handles import Column, Handle, Matrix, Reals
from cpsched.kernels.groups import mixed
from cpsched.kernels.state import grow, no_entries
from cpsched.model import IntArray

OUT = 1e300
"""The cost of a plan that was given up: it costs more than the best plan, or breaks the bound of waits."""

POOL_JOBS = 20
"""About how many times faster a job is placed on a pool than on nodes."""


class Price(Handle):
    """The price of waiting: the fields of `dispatchers.lookahead.objectives.ObjectiveRow`, see `kernels.costs`."""

    power: int
    """0: the cost grows linearly with the start; otherwise it is r (F^power - W^power)."""
    ageing_power: int
    bounded: int
    """Whether plans are bounded, see `Search.bound_s`."""
    r: float
    e: float
    flat: float
    area: float
    ageing: float
    aged_s: float
    """The wait at which ageing doubles a price where `ageing` is 1, in seconds. Python sets it anew in each round where
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
    """Bit k: candidate order k is tried, see `kernels.search`."""
    moves: int
    """Bit k: move k is made, see `kernels.moves`."""
    reservations: int
    """On a pool: how many jobs that cannot start now hold the slot that is planned for them."""


class Counts(Handle):
    """What a round has spent so far."""

    drawn: int
    """State of the random generator."""
    decoded: int
    """Orders decoded."""
    placed: int
    """Jobs placed, in all those orders together."""


class Shared(Handle):
    """How much the order on trial, and the jobs placed at present, have in common with the best order."""

    upto: int
    """From this place on the order on trial equals the best order."""
    same: int
    """From this place on the plan on trial is known to equal the plan of the best order."""
    valid: int
    """On nodes: how many jobs of the best order, from its front, are placed at present."""


class Queued(Handle, grows=True):
    """The waiting jobs, by queue position."""

    weight: Reals
    """The cost of one second."""
    expected: Reals
    """How long the job is expected to run, in seconds; used in its weight alone."""
    reserve: Column
    """Processors that must stay free beside the job."""
    amount: Column
    """Processors that the job takes; on a pool NEVER for a job that can never run; on nodes always 1."""


class Tried(Handle, grows=True):
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
    """On a pool: the profile before each job, as a row of `Rows`."""


class Last(Handle, grows=True):
    """The best order as slots, for the next round, and room to build orders in."""

    ordered: int
    """Entries of `slots` in use."""
    slots: Column
    """The best order as slots."""
    where: Column
    """By slot: the queue position plus one; all zero between two uses."""
    spare: Column
    """Queue positions that a move has taken out."""


class Marks(Handle, grows=True):
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


class Rows(Handle, grows=True):
    """On a pool: a profile in each row, see `cpsched.kernels.profile`."""

    points: Column
    """By row: how many breakpoints it has."""
    times: Matrix
    """int64[rows, breakpoints]: seconds."""
    level: Matrix
    """int64[rows, breakpoints]: what is free from then on."""


class Totals(Handle, grows=True):
    """On nodes: what all nodes together have free, before each job; see `cpsched.kernels.totals`."""

    times: Matrix
    """int64[rows, breakpoints]: seconds."""
    free: Matrix
    """int64[rows, breakpoints * R]: what is free from then on, R entries for each breakpoint."""
    points: Column
    """By row: how many breakpoints it has."""
    asked: Column
    """int64[R]: what the job at hand asks for with all its units."""


class Search(Handle):
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
    waited for a good part of it (`costs.BOUND_FROM`). A plan in which one of these waits longer is given up."""
    settings: SearchSettings
    counts: Counts
    shared: Shared
    queued: Queued
    best: Tried
    """The best order so far."""
    trial: Tried
    """The order on trial."""
    last: Last
    marks: Marks
    rows: Rows
    totals: Totals


def new_search(settings: SearchSettings) -> Search:
    """A search that has no order yet."""
    none = no_entries

    def tried() -> Tried:
        return Tried(none(), none(), np.zeros(0), none(), none())

    def matrix() -> IntArray:
        return np.zeros((0, 0), np.int64)

    return Search(
        able=0, head=0, overdue=0, fixed=0, bound_s=0,
        settings=settings,
        counts=Counts(drawn=0, decoded=0, placed=0),
        shared=Shared(upto=0, same=0, valid=0),
        queued=Queued(np.zeros(0), np.zeros(0), none(), none()),
        best=tried(),
        trial=tried(),
        last=Last(0, none(), none(), none()),
        marks=Marks(*(none() for _ in range(7))),
        rows=Rows(none(), matrix(), matrix()),
        totals=Totals(matrix(), matrix(), none(), none()),
    )  # fmt: skip


@subroutine
def longer_reals(column: Reals, room: int) -> Reals:
    """`column` with room for `room` entries. What it held may be lost."""
    return column if room <= len(column) else np.empty(max(room, 2 * len(column)))


@subroutine
def make_room_for(search: Search, count: int, slots: int, resources: int) -> None:
    """Make room for a queue of `count` jobs in a table of `slots` slots."""
    room, queued, last = count + 2, search.queued, search.last
    queued.weight = longer_reals(queued.weight, room)
    grow(queued, "reserve amount", 0, room)
    make_room_for_order(search.best, room)
    make_room_for_order(search.trial, room)
    grow(search.marks, "moves groups steps started failed slotted", 0, room)
    grow(search.marks, "available", 0, room * resources)
    grow(last, "spare", 0, room)
    if len(last.where) < slots:
        last.where = np.zeros(2 * slots, np.int64)


@subroutine
def make_room_for_order(tried: Tried, room: int) -> None:
    """Make room for an order of `room` jobs."""
    grow(tried, "order starts known row", 0, room)
    tried.spent = longer_reals(tried.spent, room)


@subroutine
def make_rows(search: Search, points: int) -> None:
    """Make room for two profiles of `points` breakpoints before each job of the head, and behind the last one."""
    count, rows = 2 * (search.head + 1), search.rows
    if rows.times.shape[0] < count or rows.times.shape[1] < points:
        count, points = max(2 * count, rows.times.shape[0]), max(2 * points, rows.times.shape[1])
        rows.times, rows.level = np.empty((count, points), np.int64), np.empty((count, points), np.int64)
        rows.points = np.empty(count, np.int64)
    for k in range(search.head + 1):
        search.best.row[k], search.trial.row[k] = k, search.head + 1 + k


@subroutine
def accept(search: Search, first: int) -> None:
    """Make the order on trial the best one. Both are equal before place `first`; their plans are from `same` on."""
    best, trial, same = search.best, search.trial, search.shared.same
    for k in range(first, search.head):
        best.spent[k + 1] = trial.spent[k + 1]
        if k < same:
            best.order[k], best.starts[k], best.known[k + 1] = trial.order[k], trial.starts[k], trial.known[k + 1]
            best.row[k + 1], trial.row[k + 1] = trial.row[k + 1], best.row[k + 1]
    search.shared.valid = same


@subroutine
def hold(position: int, start_s: int, places: int) -> int:
    """A hash of one job's holding: its queue position, its start, and a number for its `places`."""
    return mixed(mixed(mixed(position) + start_s) + places)
