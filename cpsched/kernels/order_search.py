"""Search over queue orders for `lookahead`: candidates, local search and plan."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, FixedReals, Reals
from cpsched.kernels.fit_rules import exceeds_free
from cpsched.kernels.node_class_moves import write_starts
from cpsched.kernels.node_classes import hash64
from cpsched.kernels.node_list_scheduling import begin_plan_on_classes, can_start_now, resize_class_columns, start_job
from cpsched.kernels.order_moves import propose_move
from cpsched.kernels.order_search_state import (
    EXCEEDS_LIMIT,
    POOL_JOBS_PER_NODE_JOB,
    OrderSearchState,
    accept_candidate,
    allocate_profiles,
    allocate_queue_columns,
)
from cpsched.kernels.order_to_node_plan import (
    apply_plan_on_nodes,
    decode_order_on_nodes,
    save_undo_marks,
    undo_placements,
)
from cpsched.kernels.order_to_pool_plan import apply_plan_on_pool, decode_order_on_pool
from cpsched.kernels.plan_costs import cost_of_order_head, weigh_jobs
from cpsched.kernels.pool_list_scheduling import (
    collect_releases,
    free_pool_units,
    init_plan_result,
    pool_demand,
    start_on_pool,
    write_pool_placements,
    write_pool_profile,
)
from cpsched.kernels.queue_orders import LAF, SAF, SJF, SPF, sort_positions, sortable_bits, sorted_queue_positions
from cpsched.kernels.scheduling_state import SchedulingState, grow_columns
from cpsched.kernels.total_profile import init_total_profile
from cpsched.model import NEVER, IntArray

LAST, FIRST_COME, SHORTEST_JOB, SMALLEST_AREA, SHORTEST_SMALL, LARGEST_AREA, SMITH = range(7)
"""Candidate orders.

- `LAST`: the order of the previous round, then new jobs.
- `FIRST_COME`, `SHORTEST_JOB`, `SMALLEST_AREA`, `SHORTEST_SMALL`, `LARGEST_AREA`: reg, sjf, saf, spf and laf.
- `SMITH`: by cost per second divided by area, largest first (Smith 1956).
"""

NONE_START, ALL_START, SEARCHED = range(3)
"""Outcomes of a round: no job can start, all jobs start, or a search was needed."""


@subroutine
def set_trial_order(site: SchedulingState, search: OrderSearchState, found: Column) -> None:
    """Set the trial order to the overdue jobs, then `found`.

    Omit jobs that can never run.
    """
    submit_s, amount, trial, k = site.jobs.submit_s, search.queued.amount, search.trial.order, 0
    overdue_s = site.now_s - search.settings.overdue_s
    for i in range(search.overdue):
        trial[i] = search.best.order[i]
        k += 1
    for i in range(len(found)):
        position = found[i]
        if amount[position] != NEVER and submit_s[site.queue[position]] >= overdue_s:
            trial[k] = position
            k += 1


@subroutine
def fix_overdue_jobs_first(site: SchedulingState, search: OrderSearchState) -> None:
    """Fix the overdue jobs at the front of the best order, in order of arrival."""
    overdue_s, k = site.now_s - search.settings.overdue_s, 0
    for position in range(site.queued):
        if search.queued.amount[position] != NEVER and site.jobs.submit_s[site.queue[position]] < overdue_s:
            search.best.order[k] = position
            k += 1
    search.overdue = k
    search.fixed = min(k, search.head)


@subroutine
def write_previous_order(site: SchedulingState, search: OrderSearchState, found: Column) -> None:
    """Write the previous round's order, followed by new jobs, to `found`."""
    n, queue, where, slots, k = site.queued, site.queue, search.last.where, search.last.slots, 0
    for i in range(n):
        where[queue[i]] = i + 1
    for i in range(search.last.ordered):
        if where[slots[i]] > 0:
            found[k] = where[slots[i]] - 1
            k += 1
            where[slots[i]] = 0
    for i in range(n):
        if where[queue[i]] > 0:
            found[k] = i
            k += 1
            where[queue[i]] = 0


@subroutine
def load_candidate_order(site: SchedulingState, search: OrderSearchState, which: int) -> None:
    """Set the trial order to candidate `which`."""
    found = np.arange(site.queued)
    if which == LAST:
        write_previous_order(site, search, found)
    elif which == SMITH:
        price = np.empty(site.queued)
        for i in range(site.queued):
            area = max(1, site.jobs.units[site.queue[i]] * site.jobs.per_unit[site.queue[i], 0])
            price[i] = search.queued.weight[i] / (area * max(search.queued.expected[i], 1.0))
        dearest = sortable_bits(price)
        for i in range(site.queued):
            dearest[i] = -dearest[i]
        found = sort_positions(dearest, found)
    elif which == SHORTEST_JOB:
        found = sorted_queue_positions(SJF, site)
    elif which == SMALLEST_AREA:
        found = sorted_queue_positions(SAF, site)
    elif which == SHORTEST_SMALL:
        found = sorted_queue_positions(SPF, site)
    elif which == LARGEST_AREA:
        found = sorted_queue_positions(LAF, site)
    set_trial_order(site, search, found)
    search.shared.upto = search.head


@subroutine
def cost_of_jobs_after_head(site: SchedulingState, search: OrderSearchState, order: Column) -> float:
    """Return the cost of the jobs after the head, run one at a time on all nodes."""
    jobs, queue, pool = site.jobs, site.queue, float(max(1, site.machine.pool))
    delay_s, cost = 0.0, 0.0
    if search.head == search.able:
        return 0.0
    for k in range(search.able):
        slot = queue[order[k]]
        if k >= search.head:
            cost += search.queued.weight[order[k]] * delay_s
        delay_s += jobs.units[slot] * jobs.per_unit[slot, 0] * jobs.estimate_s[slot] / pool
    return float(cost)


@subroutine
def plan_trial_order(
    site: SchedulingState,
    search: OrderSearchState,
    first: int,
    limit: float,
    counted: bool,
) -> float:
    """Plan the trial order on a pool (`counted`) or on nodes. Return its cost."""
    search.counts.decoded += 1
    if counted:
        return decode_order_on_pool(site, search, first, limit)
    return decode_order_on_nodes(site, search, first, limit)


@subroutine
def longest_wait_in_trial_plan(site: SchedulingState, search: OrderSearchState) -> int:
    """Return the longest total wait (past and planned) in the trial plan, in seconds."""
    submit_s, longest_s = site.jobs.submit_s, 0
    for k in range(search.head):
        if search.trial.starts[k] != NEVER:
            longest_s = max(longest_s, search.trial.starts[k] - submit_s[site.queue[search.trial.order[k]]])
    return int(longest_s)


@subroutine
def is_candidate_enabled(search: OrderSearchState, which: int) -> bool:
    """Return whether the settings enable candidate order `which`."""
    return bool((search.settings.candidates >> which) & 1)


@subroutine
def is_budget_used(search: OrderSearchState, counted: bool) -> bool:
    """Return whether this round has used its budget of placed jobs, `settings.work`."""
    return bool(
        search.counts.placed >= (POOL_JOBS_PER_NODE_JOB * search.settings.work if counted else search.settings.work)
    )


@subroutine
def accept_whole_order(search: OrderSearchState) -> None:
    """Set the best order to the trial order, including the jobs after the head."""
    accept_candidate(search, 0)
    for k in range(search.head, search.able):
        search.best.order[k] = search.trial.order[k]


@subroutine
def plan_bounding_candidates(site: SchedulingState, search: OrderSearchState, counted: bool) -> tuple[float, float]:
    """Make the previous or the arrival order, whichever is cheaper, the best order.

    The bound is the shorter of their longest waits. Return the cost of the cheaper order, and the cost of its head.
    Each order is decoded once, because only costs depend on the bound.
    """
    best, head_cost, bound_s = EXCEEDS_LIMIT, EXCEEDS_LIMIT, NEVER
    for which in (LAST, FIRST_COME):
        if is_candidate_enabled(search, which):
            load_candidate_order(site, search, which)
            plan_trial_order(site, search, 0, EXCEEDS_LIMIT, counted)
            bound_s = min(bound_s, longest_wait_in_trial_plan(site, search))
            if which == LAST:
                accept_whole_order(search)
    search.bound_s = bound_s
    if is_candidate_enabled(search, LAST):
        cost = cost_of_order_head(site, search, search.best, search.best.spent, 0)
        behind = cost_of_jobs_after_head(site, search, search.best.order)
        if cost + behind < best:
            best, head_cost = cost + behind, cost
    if is_candidate_enabled(search, FIRST_COME) and head_cost > 0.0:
        cost = cost_of_order_head(site, search, search.trial, search.trial.spent, 0)
        behind = cost_of_jobs_after_head(site, search, search.trial.order)
        if cost + behind < best:
            best, head_cost = cost + behind, cost
            accept_whole_order(search)
    return float(best), float(head_cost)


@subroutine
def select_best_candidate(site: SchedulingState, search: OrderSearchState, counted: bool) -> float:
    """Make the cheapest candidate the best order. Return the cost of its head."""
    best, head_cost, others = EXCEEDS_LIMIT, EXCEEDS_LIMIT, LAST
    if search.objective.bounded:
        best, head_cost = plan_bounding_candidates(site, search, counted)
        others = SHORTEST_JOB
    for which in range(others, SMITH + 1):
        if head_cost == 0.0 or (head_cost < EXCEEDS_LIMIT and is_budget_used(search, counted)):
            break
        if not is_candidate_enabled(search, which):
            continue
        load_candidate_order(site, search, which)
        behind = cost_of_jobs_after_head(site, search, search.trial.order)
        cost = plan_trial_order(site, search, 0, best - behind, counted)
        if cost + behind < best:
            best, head_cost = cost + behind, cost
            accept_whole_order(search)
    return float(head_cost)


@subroutine
def hill_climb(site: SchedulingState, search: OrderSearchState, best: float, counted: bool) -> float:
    """Accept random moves that do not increase the cost. Return the head's cost."""
    if search.head - search.fixed < 2:
        return best
    for _ in range(search.settings.limit):
        if best == 0.0 or is_budget_used(search, counted):
            break
        first = propose_move(search)
        cost = plan_trial_order(site, search, first, best, counted)
        if cost <= best:
            best = cost
            accept_candidate(search, first)
    return best


@subroutine
def begin_search_round(
    site: SchedulingState,
    search: OrderSearchState,
    site_weight: FixedReals,
    counted: bool,
) -> None:
    """Begin a round: compute costs, and find the jobs that can ever run."""
    n = site.queued
    allocate_queue_columns(search, n, len(site.jobs.units), site.machine.free.shape[1])
    weigh_jobs(site, search, site_weight)
    search.counts.drawn = hash64(search.settings.seed) + hash64(site.now_s)
    search.counts.decoded = search.counts.placed = search.able = search.shared.valid = 0
    search.bound_s, search.best.known[0] = NEVER, 0
    search.best.spent[0] = search.trial.spent[0] = 0.0
    eventually = 0
    if counted:
        eventually = collect_releases(site) + free_pool_units(site)
    for i in range(n):
        search.queued.amount[i] = pool_demand(site, site.queue[i]) if counted else 1
        if counted and search.queued.amount[i] > eventually:
            search.queued.amount[i] = NEVER
        search.able += search.queued.amount[i] != NEVER
    search.head = min(search.able, search.settings.horizon)
    fix_overdue_jobs_first(site, search)


@subroutine
def presolve_on_pool(site: SchedulingState, search: OrderSearchState) -> int:
    """Return the outcome if all orders have the same one, else `SEARCHED`."""
    available, wanted, least = free_pool_units(site), 0, NEVER
    for i in range(site.queued):
        if search.queued.amount[i] != NEVER:
            wanted += search.queued.amount[i]
            least = min(least, search.queued.amount[i])
    if wanted <= available:
        return ALL_START
    return NONE_START if least > available else SEARCHED


@subroutine
def presolve_on_nodes(site: SchedulingState, search: OrderSearchState) -> int:
    """Do the same as `presolve_on_pool` on nodes. For `ALL_START`, place the jobs."""
    none = True
    for i in range(site.queued):
        resize_class_columns(site.trial)
        if can_start_now(site, site.queue[i]):
            none = False
            break
    site.trial.hopeless = 0
    if none:
        return NONE_START
    for i in range(site.queued):
        resize_class_columns(site.trial)
        if exceeds_free(site.jobs, site.queue[i], site.trial.available) or not can_start_now(site, site.queue[i]):
            return SEARCHED
        start_job(site, i)
    return ALL_START


@subroutine
def store_best_order(site: SchedulingState, search: OrderSearchState) -> None:
    """Store the best order as slots for the next round."""
    grow_columns(search.last, "slots", 0, search.able)
    search.last.ordered = search.able
    for k in range(search.able):
        search.last.slots[k] = site.queue[search.best.order[k]]


@subroutine
def write_best_order_plan(site: SchedulingState, search: OrderSearchState, whole: bool, counted: bool) -> None:
    """Write the plan of the best order to the plan result."""
    if counted:
        apply_plan_on_pool(site, search, whole)
    else:
        apply_plan_on_nodes(site, search, whole)


@subroutine
def search_and_apply_best_order(
    site: SchedulingState,
    search: OrderSearchState,
    answer: int,
    whole: bool,
    counted: bool,
) -> None:
    """Find an order and apply its plan.

    If no job can start, use the previous order, and plan it only if `whole`.
    """
    if answer == SEARCHED:
        hill_climb(site, search, select_best_candidate(site, search, counted), counted)
        write_best_order_plan(site, search, whole, counted)
        return
    load_candidate_order(site, search, LAST)
    for k in range(search.able):
        search.best.order[k] = search.trial.order[k]
    if whole:
        plan_trial_order(site, search, 0, EXCEEDS_LIMIT, counted)
        accept_candidate(search, 0)
        write_best_order_plan(site, search, whole, counted)


@subroutine
def search_on_pool(site: SchedulingState, search: OrderSearchState, whole: bool) -> int:
    """Decide a round on a pool. Return the outcome."""
    answer = presolve_on_pool(site, search)
    if answer == ALL_START:
        for i in range(site.queued):
            if search.queued.amount[i] != NEVER:
                start_on_pool(site, i, search.queued.amount[i])
        return answer
    allocate_profiles(search, site.active + 2 * search.able + 4)
    times, level = search.rows.times[0], search.rows.level[0]
    search.rows.points[0] = write_pool_profile(site, free_pool_units(site), times, level)
    search_and_apply_best_order(site, search, answer, whole, True)
    return answer


@subroutine
def search_on_nodes(site: SchedulingState, search: OrderSearchState, whole: bool) -> int:
    """Decide a round on nodes. Return the outcome."""
    begin_plan_on_classes(site, 2)
    site.trial.lasting = 0
    save_undo_marks(site, search, 0)
    answer = presolve_on_nodes(site, search)
    if answer != ALL_START:
        if answer == SEARCHED or whole:
            undo_placements(site, search, 0)
            init_total_profile(site, search)
        search_and_apply_best_order(site, search, answer, whole, False)
    write_starts(site)
    return answer


Asked = tuple[Reals, FixedReals, bool, bool]
"""Arguments of `look_ahead`:

- expected run times in seconds, by queue position;
- the site's factors for the jobs' weights, by queue position, empty if all factors are equal;
- whether the cluster is a counted pool;
- whether to return the whole plan instead of only the starts.
"""


@kernel
def look_ahead(site: SchedulingState, search: OrderSearchState, asked: Asked) -> int:
    """Write the queue's plan to `site.draft`, and store the order for the next round.

    Return `NONE_START`, `ALL_START` or `SEARCHED`.
    """
    expected, site_weight, counted, whole = asked
    search.queued.expected = expected
    init_plan_result(site.draft, site.queued)
    site.draft.offsets[0] = 0
    begin_search_round(site, search, site_weight, counted)
    if counted:
        answer = search_on_pool(site, search, whole)
        write_pool_placements(site)
    else:
        answer = search_on_nodes(site, search, whole)
    if answer == ALL_START:
        search.last.ordered = 0
    else:
        store_best_order(site, search)
    return answer


@kernel
def export_order(search: OrderSearchState) -> IntArray:
    """Return, as slots, the order from which the next round starts."""
    return search.last.slots[: search.last.ordered].copy()


@kernel
def restore_order(search: OrderSearchState, slots: FixedColumn) -> int:
    """Set the order from which the next round starts. Return the number of slots."""
    search.last.slots = slots.copy()
    search.last.ordered = len(slots)
    return search.last.ordered
