"""What a search among orders of the queue works on: the best order found, the order on trial, and their plans."""

from __future__ import annotations

import numpy as np

from cpsched.compile.handles import Column, Handle, Matrix, Reals
from cpsched.compile.jit import inner
from cpsched.kernels.groups import mixed
from cpsched.kernels.state import longer, no_entries
from cpsched.model import IntArray

OUT = 1e300
"""The cost of a plan that was given up because it costs more than the best one."""

POOL_JOBS = 20
"""Jobs are placed so many times faster on a pool than on nodes, about."""


class Price(Handle):
    """What a second costs that a job waits: the fields of `cpsched.dispatchers.lookahead.objectives.ObjectiveRow`."""

    power: int
    """0: the cost grows linearly with the start; otherwise it is r (F^power - W^power)."""
    ageing_power: int
    bounded: int
    """Whether plans are bounded, see `Search.bound_s`."""
    r: float
    e: float
    flat: float
    ageing: float
    aged_s: float
    least_s: float
    reserve: float
    reserve_above_s: float
    reserve_until_s: float


class SearchSettings(Handle):
    """How far a search goes."""

    limit: int
    """The most orders that are decoded after the candidates."""
    work: int
    """Once so many jobs were placed in a round, in all orders together, no other order is decoded; on a pool
    `POOL_JOBS` times as many."""
    horizon: int
    """The most jobs that are decoded and searched."""
    covered: int
    """The most jobs that get a planned start."""
    overdue_s: int
    """Jobs that waited longer come first, in order of arrival."""
    seed: int
    candidates: int
    """Bits of the candidate orders that are tried."""
    moves: int
    """Bits of the moves that are made."""
    reservations: int
    """On a pool: so many jobs that cannot start now hold the slot that is planned for them."""


class Counts(Handle):
    """What a round has spent so far."""

    drawn: int
    """State of the random generator."""
    decoded: int
    """Orders decoded."""
    placed: int
    """Jobs placed, in all those orders together."""
    winner: int
    """The candidate that was the best."""


class Shared(Handle):
    """What the order on trial, and what is placed at present, have in common with the best order."""

    upto: int
    """From this place on the order on trial is the best one."""
    same: int
    """From this place on the plan on trial is known to be that of the best order."""
    valid: int
    """On nodes: so many jobs of the best order are placed at present."""


class Queued(Handle, grows=True):
    """The waiting jobs, by queue position."""

    weight: Reals
    """The cost of one second."""
    expected: Reals
    """How long the job is expected to run, for its weight."""
    reserve: Column
    """Processors that must stay free beside the job."""
    amount: Column
    """Processors that the job takes; on a pool NEVER where it can never run."""


class Tried(Handle, grows=True):
    """An order of the queue, and its plan, by place in the order."""

    order: Column
    """Queue positions."""
    starts: Column
    """The planned starts."""
    spent: Reals
    """What the jobs before a place cost."""
    known: Column
    """A hash of all reservations made before a place, independent of their order."""
    row: Column
    """On a pool: the profile before each job, as a row of `Rows`."""


class Last(Handle, grows=True):
    """The best order as the next round finds it, and room to build orders in."""

    ordered: int
    """Entries of `slots` in use."""
    slots: Column
    """The best order as slots."""
    where: Column
    """Queue positions by slot, plus one; zero between two uses."""
    spare: Column


class Marks(Handle, grows=True):
    """On nodes: how things were before each job of the order, so that it can be taken back."""

    moves: Column
    """Entries of `trial.moved` in use."""
    available: Column
    """What is available, all resources side by side."""
    groups: Column
    steps: Column
    started: Column
    failed: Column
    slotted: Column


class Rows(Handle, grows=True):
    """On a pool: profiles, a row each."""

    points: Column
    """Breakpoints of each row."""
    times: Matrix
    level: Matrix


class Totals(Handle, grows=True):
    """On nodes: what all nodes together have free, before each job; see `cpsched.kernels.totals`."""

    times: Matrix
    """When that changes."""
    free: Matrix
    """What they have free then, all resources of a breakpoint side by side."""
    points: Column
    """Breakpoints of each row."""
    asked: Column
    """What a job asks for in all, by resource."""


class Search(Handle):
    """A search among orders. Orders hold queue positions; the first `head` of them are decoded and searched."""

    able: int
    """Jobs that can run at all."""
    head: int
    """Jobs that are decoded and searched."""
    overdue: int
    """Jobs that come first, in order of arrival."""
    fixed: int
    """Jobs at the front that the search leaves where they are."""
    bound_s: int
    """A plan in which a job that has waited for half of this waits longer in all is given up; `NEVER`: no bound."""
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
        counts=Counts(drawn=0, decoded=0, placed=0, winner=-1),
        shared=Shared(upto=0, same=0, valid=0),
        queued=Queued(np.zeros(0), np.zeros(0), none(), none()),
        best=tried(),
        trial=tried(),
        last=Last(0, none(), none(), none()),
        marks=Marks(*(none() for _ in range(7))),
        rows=Rows(none(), matrix(), matrix()),
        totals=Totals(matrix(), matrix(), none(), none()),
    )  # fmt: skip


@inner
def longer_reals(column: Reals, room: int) -> Reals:
    """`column` with room for `room` entries, which may be lost."""
    return column if room <= len(column) else np.empty(max(room, 2 * len(column)))


@inner
def make_room_for(search: Search, count: int, slots: int, resources: int) -> None:
    """Let there be room for a queue of `count`, in a table of `slots`."""
    room, queued, last = count + 2, search.queued, search.last
    queued.weight = longer_reals(queued.weight, room)
    queued.reserve, queued.amount = longer(queued.reserve, 0, room), longer(queued.amount, 0, room)
    make_room_for_order(search.best, room)
    make_room_for_order(search.trial, room)
    make_room_for_marks(search.marks, room, resources)
    last.spare = longer(last.spare, 0, room)
    if len(last.where) < slots:
        last.where = np.zeros(2 * slots, np.int64)


@inner
def make_room_for_order(tried: Tried, room: int) -> None:
    """Let there be room for an order of so many jobs."""
    tried.order, tried.starts = longer(tried.order, 0, room), longer(tried.starts, 0, room)
    tried.known, tried.row = longer(tried.known, 0, room), longer(tried.row, 0, room)
    tried.spent = longer_reals(tried.spent, room)


@inner
def make_room_for_marks(marks: Marks, room: int, resources: int) -> None:
    """Let there be room for a mark before each of so many jobs."""
    marks.moves, marks.groups = longer(marks.moves, 0, room), longer(marks.groups, 0, room)
    marks.steps, marks.started = longer(marks.steps, 0, room), longer(marks.started, 0, room)
    marks.failed, marks.slotted = longer(marks.failed, 0, room), longer(marks.slotted, 0, room)
    marks.available = longer(marks.available, 0, room * resources)


@inner
def make_rows(search: Search, points: int) -> None:
    """Let there be two rows of so many breakpoints before each job of the head and behind the last."""
    count, rows = 2 * (search.head + 1), search.rows
    if rows.times.shape[0] < count or rows.times.shape[1] < points:
        count, points = max(2 * count, rows.times.shape[0]), max(2 * points, rows.times.shape[1])
        rows.times, rows.level = np.empty((count, points), np.int64), np.empty((count, points), np.int64)
        rows.points = np.empty(count, np.int64)
    for k in range(search.head + 1):
        search.best.row[k], search.trial.row[k] = k, search.head + 1 + k


@inner
def accept(search: Search, first: int) -> None:
    """Let the order on trial be the best one; both are the same before place `first`, their plans from `same` on."""
    best, trial, same = search.best, search.trial, search.shared.same
    for k in range(first, search.head):
        best.spent[k + 1] = trial.spent[k + 1]
        if k < same:
            best.order[k], best.starts[k], best.known[k + 1] = trial.order[k], trial.starts[k], trial.known[k + 1]
            best.row[k + 1], trial.row[k + 1] = trial.row[k + 1], best.row[k + 1]
    search.shared.valid = same


@inner
def hold(position: int, start_s: int, places: int) -> int:
    """A number for a job that holds something from a second on; `places` says what."""
    return mixed(mixed(mixed(position) + start_s) + places)
