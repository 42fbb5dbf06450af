"""From an order to a plan on nodes: each job in turn gets its earliest slot.

While jobs are placed, groups are only added. So the last jobs can be taken back: their moves are undone, and the groups
added since are forgotten. A mark before each job says how far to go back. This lets the search replan only what stands
behind the first change of an order.
"""

from __future__ import annotations

from cpsched.jit.decorators import subroutine
from cpsched.kernels.costs import price, priced_as_before
from cpsched.kernels.lines import fill_units, rank_by_latest
from cpsched.kernels.nodes import commit, make_room_by_group, reserve, starts_now
from cpsched.kernels.ranges import places_of, take_moves_back
from cpsched.kernels.search_state import OUT, Price, Search, hold
from cpsched.kernels.state import Site
from cpsched.kernels.totals import bound_by_totals, take_from_totals
from cpsched.model import NEVER


@subroutine
def mark(site: Site, search: Search, k: int) -> None:
    """Note all counters before the job at place `k` is placed."""
    trial, marks = site.trial, search.marks
    marks.moves[k], marks.groups[k], marks.steps[k] = trial.moves, trial.groups.count, trial.groups.steps
    marks.started[k], marks.failed[k], marks.slotted[k] = site.draft.started, trial.hopeless, trial.slotted
    available, resources = trial.available, len(trial.available)
    for r in range(resources):
        marks.available[k * resources + r] = available[r]


@subroutine
def take_back(site: Site, search: Search, k: int) -> None:
    """Take back all jobs from place `k` on."""
    trial, draft, groups, marks = site.trial, site.draft, site.trial.groups, search.marks
    take_moves_back(trial, marks.moves[k])
    available, resources = trial.available, len(trial.available)
    for r in range(resources):
        available[r] = marks.available[k * resources + r]
    groups.count, groups.steps = marks.groups[k], marks.steps[k]
    draft.started, trial.hopeless, trial.slotted = marks.started[k], marks.failed[k], marks.slotted[k]


@subroutine
def place(site: Site, search: Search, position: int, k: int, to: int) -> int:
    """Give a job its earliest slot beside all jobs placed; returns its start, NEVER where it has none.

    Reads row `k` of the totals, and writes row `to`.
    """
    make_room_by_group(site.trial)
    slot, moves = site.queue[position], site.trial.moves
    start_s = bound_by_totals(site, search, k, slot)
    if start_s != NEVER:
        if start_s == site.now_s and starts_now(site, slot):
            commit(site, position, start_s, False)
        else:
            start_s = reserve(site, slot, start_s)
            if start_s != NEVER:
                commit(site, position, start_s, True)
    take_from_totals(site, search, k, to, slot, start_s, moves)
    return int(start_s)


@subroutine
def place_at(site: Site, search: Search, position: int, start_s: int, k: int) -> None:
    """Place a job at `start_s`, which `place` has found for it before."""
    slot, moves = site.queue[position], site.trial.moves
    if start_s != NEVER:
        make_room_by_group(site.trial)
        fill_units(site, slot, start_s, start_s + site.jobs.estimate_s[slot])
        if start_s > site.now_s:
            rank_by_latest(site, slot, start_s)
        commit(site, position, start_s, start_s > site.now_s)
    take_from_totals(site, search, k, k + 1, slot, start_s, moves)


@subroutine
def return_to(site: Site, search: Search, k: int) -> None:
    """Place the jobs of the best order before place `k`, and take all others back."""
    take_back(site, search, min(search.shared.valid, k))
    for i in range(search.shared.valid, k):
        mark(site, search, i)
        search.counts.placed += 1
        place_at(site, search, search.best.order[i], search.best.starts[i], i)
    mark(site, search, k)
    search.shared.valid = k


@subroutine
def decode_placed(site: Site, search: Search, objective: Price, first: int, limit: float) -> float:
    """Plan the order on trial on nodes; returns its cost, `OUT` where that is more than `limit`.

    - The order equals the best one before place `first`.
    - A job that can never run costs nothing.
    - As soon as the jobs placed hold the same as in the best plan, and the rest of both orders is equal, the rest of
      the plan is known and is not planned again.
    - Afterwards `shared.valid` is `first`, while jobs behind that place are still placed.
    """
    order, starts, spent, known = search.trial.order, search.trial.starts, search.trial.spent, search.trial.known
    return_to(site, search, first)
    total, held = search.best.spent[first], search.best.known[first]
    search.shared.same = search.head
    for k in range(first, search.head):
        mark(site, search, k)
        if k >= search.shared.upto and held == search.best.known[k]:
            return priced_as_before(site, search, objective, k, total, limit)
        search.counts.placed += 1
        position, moves = order[k], site.trial.moves
        starts[k] = place(site, search, position, k, k + 1)
        if starts[k] != NEVER:
            total += price(site, search, objective, position, starts[k])
            held += hold(position, starts[k], places_of(site.trial, moves))
        spent[k + 1], known[k + 1] = total, held
        if total > limit:
            mark(site, search, k + 1)
            return OUT
    mark(site, search, search.head)
    return float(total)


@subroutine
def carry_out_placed(site: Site, search: Search, whole: bool) -> None:
    """Start the jobs that the best order starts now, and behind its head every job that fits beside them.

    With `whole`, give the other jobs behind the head a planned start, up to `Settings.covered` jobs in all.
    """
    return_to(site, search, search.head)
    draft, order, trial, plan_s = site.draft, search.best.order, site.trial, site.draft.plan_s
    for position in range(site.queued):
        plan_s[position] = NEVER
    for k in range(search.head):
        plan_s[order[k]] = search.best.starts[k]
    for k in range(search.head, search.able):
        make_room_by_group(trial)
        if starts_now(site, site.queue[order[k]]):
            moves = trial.moves
            commit(site, order[k], site.now_s, False)
            take_from_totals(site, search, search.head, search.head, site.queue[order[k]], site.now_s, moves)
    trial.lasting = 1
    if whole:
        for k in range(search.head, min(search.able, search.settings.covered)):
            if draft.plan_s[order[k]] == NEVER:
                draft.plan_s[order[k]] = place(site, search, order[k], search.head, search.head)
