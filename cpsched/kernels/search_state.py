"""What a search among orders of the queue works on: the best order found, the order on trial, and their plans."""

from __future__ import annotations

import numpy as np

from cpsched.handles import Column, FixedReals, Handle, Matrix, Reals
from cpsched.kernels.groups import mixed
from cpsched.kernels.jit import inner
from cpsched.kernels.state import longer, no_entries

OUT = 1e300
"""The cost of a plan that was given up because it costs more than the best one."""

POOL_JOBS = 20
"""Jobs are placed so many times faster on a pool than on nodes, about."""


class Objective(Handle):
    """What a search minimises; see `cpsched.dispatchers.lookahead.objectives`."""

    power: int
    """0: the cost grows linearly with the start; otherwise it is r (F^power - W^power)."""
    ageing_power: int
    """The power of the wait in the ageing."""
    bounded: int
    """Whether plans are bounded, see `Search.bound_s`."""
    parameters: FixedReals
    """Exponent of r, exponent of E, factor and seconds of ageing, least E; then for the reserve its share of the
    machine, the E above which a job must leave it free, and the wait up to which it must; then the share of the
    queue's typical area that each job counts for beside its own."""


class Search(Handle, grows=True):
    """A search among orders. Orders hold queue positions; the first `head` of them are decoded and searched."""

    limit: int
    """The most orders that are decoded after the candidates."""
    work: int
    """Once so many jobs were placed in a round, in all orders together, no other order is decoded; on a pool
    `POOL_JOBS` times as many."""
    horizon: int
    """The most jobs that are decoded and searched."""
    covered: int
    """The most jobs that get a planned start."""
    candidates: int
    """Bits of the candidate orders that are tried."""
    moves: int
    """Bits of the moves that are made."""
    reservations: int
    """On a pool: so many jobs that cannot start now hold the slot that is planned for them."""
    overdue_s: int
    """Jobs that waited longer come first, in order of arrival."""
    seed: int
    drawn: int
    """State of the random generator."""
    decoded: int
    """Orders decoded in this round."""
    placed: int
    """Jobs placed in this round, in all those orders together."""
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
    valid: int
    """On nodes: so many jobs of the best order are placed at present."""
    winner: int
    """The candidate that was the best."""
    weight: Reals
    """By queue position: the cost of one second."""
    expected: Reals
    """By queue position: how long the job is expected to run, for its weight."""
    reserve: Column
    """By queue position: processors that must stay free beside the job."""
    amount: Column
    """By queue position: processors that the job takes; on a pool NEVER where it can never run."""
    order: Column
    trial: Column
    spare: Column
    """Room to build orders in."""
    starts: Column
    """The planned starts of the best order."""
    trial_starts: Column
    spent: Reals
    """What the jobs of the best order before a position cost."""
    trial_spent: Reals
    known: Column
    """A number for what the jobs of the best order before a position hold, and when; the same for the same holdings,
    in whatever order they were given."""
    trial_known: Column
    upto: int
    """From this place on the order on trial is the best one."""
    same: int
    """From this place on the plan on trial is known to be that of the best order."""
    where: Column
    """Queue positions by slot, plus one; zero between two uses."""
    slots: Column
    """The best order as slots, for the next round."""
    ordered: int
    """Entries of `slots` in use."""
    row: Column
    """On a pool: the profile before each job of the best order, as a row of `times` and `level`."""
    trial_row: Column
    points: Column
    """Breakpoints of each row."""
    times: Matrix
    level: Matrix
    total_times: Matrix
    """On nodes: when what all nodes together have free changes, before each job; see `cpsched.kernels.totals`."""
    total_free: Matrix
    """What they have free then, all resources of a breakpoint side by side."""
    total_points: Column
    asked: Column
    """What a job asks for in all, by resource."""
    at_moves: Column
    """On nodes: entries of `trial.moved` in use before each job."""
    at_available: Column
    """What is available before each job, all resources side by side."""
    at_groups: Column
    at_steps: Column
    at_started: Column
    at_failed: Column
    at_slotted: Column


def new_search(
    limit: int, work: int, horizon: int, covered: int, candidates: int, overdue_s: int, seed: int, moves: int,
    reservations: int,
) -> Search:  # fmt: skip
    """A search that has no order yet."""
    none = no_entries
    return Search(
        limit=limit, work=work, horizon=horizon, covered=covered, candidates=candidates, overdue_s=overdue_s,
        moves=moves, reservations=reservations,
        seed=seed, placed=0, drawn=0, decoded=0, able=0, head=0, overdue=0, fixed=0, valid=0, winner=-1, ordered=0,
        upto=0, same=0, bound_s=0, weight=np.zeros(0), expected=np.zeros(0), spent=np.zeros(0), trial_spent=np.zeros(0),
        times=np.zeros((0, 0), np.int64), level=np.zeros((0, 0), np.int64),
        total_times=np.zeros((0, 0), np.int64), total_free=np.zeros((0, 0), np.int64),
        **{name: none() for name in (
            "reserve", "amount", "order", "trial", "spare", "starts", "trial_starts", "known", "trial_known", "where",
            "slots", "row", "trial_row", "points", "at_moves", "at_available", "at_groups", "at_steps", "at_started",
            "at_failed", "at_slotted", "total_points", "asked",
        )},
    )  # fmt: skip


@inner
def longer_reals(column: Reals, room: int) -> Reals:
    """`column` with room for `room` entries, which may be lost."""
    return column if room <= len(column) else np.empty(max(room, 2 * len(column)))


@inner
def make_room_for(search: Search, count: int, slots: int, resources: int) -> None:
    """Let there be room for a queue of `count`, in a table of `slots`."""
    room = count + 2
    search.weight = longer_reals(search.weight, room)
    search.spent, search.trial_spent = longer_reals(search.spent, room), longer_reals(search.trial_spent, room)
    search.reserve, search.amount = longer(search.reserve, 0, room), longer(search.amount, 0, room)
    search.order, search.trial = longer(search.order, 0, room), longer(search.trial, 0, room)
    search.spare = longer(search.spare, 0, room)
    search.starts, search.trial_starts = longer(search.starts, 0, room), longer(search.trial_starts, 0, room)
    search.row, search.trial_row = longer(search.row, 0, room), longer(search.trial_row, 0, room)
    search.known, search.trial_known = longer(search.known, 0, room), longer(search.trial_known, 0, room)
    search.at_moves, search.at_groups = longer(search.at_moves, 0, room), longer(search.at_groups, 0, room)
    search.at_steps, search.at_started = longer(search.at_steps, 0, room), longer(search.at_started, 0, room)
    search.at_failed, search.at_slotted = longer(search.at_failed, 0, room), longer(search.at_slotted, 0, room)
    search.at_available = longer(search.at_available, 0, room * resources)
    if len(search.where) < slots:
        search.where = np.zeros(2 * slots, np.int64)


@inner
def make_rows(search: Search, points: int) -> None:
    """Let there be two rows of so many breakpoints before each job of the head and behind the last."""
    rows = 2 * (search.head + 1)
    if search.times.shape[0] < rows or search.times.shape[1] < points:
        rows, points = max(2 * rows, search.times.shape[0]), max(2 * points, search.times.shape[1])
        search.times, search.level = np.empty((rows, points), np.int64), np.empty((rows, points), np.int64)
        search.points = np.empty(rows, np.int64)
    for k in range(search.head + 1):
        search.row[k], search.trial_row[k] = k, search.head + 1 + k


@inner
def accept(search: Search, first: int) -> None:
    """Let the order on trial be the best one; both are the same before place `first`, their plans from `same` on."""
    order, trial, starts, trial_starts = search.order, search.trial, search.starts, search.trial_starts
    spent, trial_spent, row, trial_row = search.spent, search.trial_spent, search.row, search.trial_row
    known, trial_known = search.known, search.trial_known
    for k in range(first, search.head):
        spent[k + 1] = trial_spent[k + 1]
        if k < search.same:
            order[k], starts[k], known[k + 1] = trial[k], trial_starts[k], trial_known[k + 1]
            row[k + 1], trial_row[k + 1] = trial_row[k + 1], row[k + 1]
    search.valid = search.same


@inner
def hold(position: int, start_s: int, places: int) -> int:
    """A number for a job that holds something from a second on; `places` says what."""
    return mixed(mixed(mixed(position) + start_s) + places)
