"""Turn an order into a plan on nodes, with each job at its earliest start.

Placing a job only adds classes. The last jobs are removed by undoing their moves and dropping the added classes.
Counters saved before each job define the state to restore. Thus, the search replans only the jobs after the
first change of an order.
"""

from __future__ import annotations

from cpsched.jit.decorators import subroutine
from cpsched.kernels.node_class_availability import count_units_fitting_during, set_ranks_latest_freed_first
from cpsched.kernels.node_class_moves import placement_hash, undo_node_moves
from cpsched.kernels.node_list_scheduling import (
    can_start_now,
    earliest_reservation,
    place_job,
    resize_class_columns,
    start_job,
)
from cpsched.kernels.order_search_state import EXCEEDS_LIMIT, OrderSearchState, placed_job_hash
from cpsched.kernels.plan_costs import cost_with_shared_tail, start_cost
from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.kernels.total_profile import lower_bound_by_totals, take_from_totals
from cpsched.model import NEVER


@subroutine
def save_undo_marks(site: SchedulingState, search: OrderSearchState, k: int) -> None:
    """Save all counters before the job at place `k` is placed."""
    trial, marks = site.trial, search.marks
    marks.moves[k], marks.groups[k], marks.steps[k] = trial.moves, trial.groups.count, trial.groups.steps
    marks.started[k], marks.failed[k], marks.slotted[k] = site.draft.started, trial.hopeless, trial.slotted
    available, resources = trial.available, len(trial.available)
    for r in range(resources):
        marks.available[k * resources + r] = available[r]


@subroutine
def undo_placements(site: SchedulingState, search: OrderSearchState, k: int) -> None:
    """Remove the jobs at place `k` and all later places."""
    trial, draft, groups, marks = site.trial, site.draft, site.trial.groups, search.marks
    undo_node_moves(trial, marks.moves[k])
    available, resources = trial.available, len(trial.available)
    for r in range(resources):
        available[r] = marks.available[k * resources + r]
    groups.count, groups.steps = marks.groups[k], marks.steps[k]
    draft.started, trial.hopeless, trial.slotted = marks.started[k], marks.failed[k], marks.slotted[k]


@subroutine
def place_at_earliest_start(site: SchedulingState, search: OrderSearchState, position: int, k: int, to: int) -> int:
    """Place a job at its earliest start. Return the start, or NEVER.

    Read row `k` of the totals, and write row `to`.
    """
    resize_class_columns(site.trial)
    slot, moves = site.queue[position], site.trial.moves
    start_s = lower_bound_by_totals(site, search, k, slot)
    if start_s != NEVER:
        if start_s == site.now_s and can_start_now(site, slot):
            start_job(site, position)
        else:
            start_s = earliest_reservation(site, slot, start_s)
            if start_s != NEVER:
                place_job(site, position, start_s, True)
    take_from_totals(site, search, k, to, slot, start_s, moves)
    return int(start_s)


@subroutine
def place_at_known_start(site: SchedulingState, search: OrderSearchState, position: int, start_s: int, k: int) -> None:
    """Place a job at `start_s`, as returned by `place_at_earliest_start`."""
    slot, moves = site.queue[position], site.trial.moves
    if start_s != NEVER:
        resize_class_columns(site.trial)
        count_units_fitting_during(site, slot, start_s, start_s + site.jobs.estimate_s[slot])
        if start_s > site.now_s:
            set_ranks_latest_freed_first(site, slot, start_s)
            place_job(site, position, start_s, True)
        else:
            start_job(site, position)
    take_from_totals(site, search, k, k + 1, slot, start_s, moves)


@subroutine
def restore_best_prefix(site: SchedulingState, search: OrderSearchState, k: int) -> None:
    """Place the jobs before place `k` in the best order, and remove all other jobs."""
    undo_placements(site, search, min(search.shared.valid, k))
    for i in range(search.shared.valid, k):
        save_undo_marks(site, search, i)
        search.counts.placed += 1
        place_at_known_start(site, search, search.best.order[i], search.best.starts[i], i)
    save_undo_marks(site, search, k)
    search.shared.valid = k


@subroutine
def decode_order_on_nodes(site: SchedulingState, search: OrderSearchState, first: int, limit: float) -> float:
    """Plan the trial order on nodes, and return its cost.

    Return `EXCEEDS_LIMIT` if the cost is above `limit`.

    - Before place `first`, the order equals the best order.
    - A job that can never run costs nothing.
    - Planning stops when the rest of the plan is known: the placed jobs occupy the same resources as in the best plan,
      and the rest of both orders is equal.
    - Afterwards, `shared.valid` is `first`, although later jobs are still placed.
    """
    order, starts, spent, known = search.trial.order, search.trial.starts, search.trial.spent, search.trial.known
    restore_best_prefix(site, search, first)
    total, held = search.best.spent[first], search.best.known[first]
    search.shared.same = search.head
    for k in range(first, search.head):
        save_undo_marks(site, search, k)
        if k >= search.shared.upto and held == search.best.known[k]:
            return cost_with_shared_tail(site, search, k, limit)
        search.counts.placed += 1
        position, moves = order[k], site.trial.moves
        starts[k] = place_at_earliest_start(site, search, position, k, k + 1)
        if starts[k] != NEVER:
            total += start_cost(site, search, position, starts[k])
            held += placed_job_hash(position, starts[k], placement_hash(site.trial, moves))
        spent[k + 1], known[k + 1] = total, held
        if total > limit:
            save_undo_marks(site, search, k + 1)
            return EXCEEDS_LIMIT
    save_undo_marks(site, search, search.head)
    return float(total)


@subroutine
def apply_plan_on_nodes(site: SchedulingState, search: OrderSearchState, whole: bool) -> None:
    """Start the jobs that the best order starts now, and each later job that fits.

    Later jobs are the jobs after the head. If `whole`, plan starts for the other jobs, up to
    `OrderSearchSettings.covered` jobs in total.
    """
    restore_best_prefix(site, search, search.head)
    draft, order, trial, plan_s = site.draft, search.best.order, site.trial, site.draft.plan_s
    for position in range(site.queued):
        plan_s[position] = NEVER
    for k in range(search.head):
        plan_s[order[k]] = search.best.starts[k]
    for k in range(search.head, search.able):
        resize_class_columns(trial)
        if can_start_now(site, site.queue[order[k]]):
            moves = trial.moves
            start_job(site, order[k])
            take_from_totals(site, search, search.head, search.head, site.queue[order[k]], site.now_s, moves)
    trial.lasting = 1
    if whole:
        for k in range(search.head, min(search.able, search.settings.covered)):
            if draft.plan_s[order[k]] == NEVER:
                draft.plan_s[order[k]] = place_at_earliest_start(site, search, order[k], search.head, search.head)
