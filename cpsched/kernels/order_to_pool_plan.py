"""Turn an order into a plan on a pool, with each job at its earliest start.

The search stores the profile before each job. It then replans only the jobs after the first change in an order.
"""

from __future__ import annotations

from cpsched.jit.decorators import subroutine
from cpsched.kernels.order_search_state import EXCEEDS_LIMIT, OrderSearchState, placed_job_hash
from cpsched.kernels.plan_costs import cost_with_shared_tail, start_cost
from cpsched.kernels.pool_list_scheduling import start_on_pool
from cpsched.kernels.pool_profile import (
    earliest_fit_breakpoint,
    fits_at_first_breakpoint,
    subtract_amount,
)
from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.model import NEVER


@subroutine
def decode_order_on_pool(site: SchedulingState, search: OrderSearchState, first: int, limit: float) -> float:
    """Plan the trial order on a pool, and return its cost.

    Return `EXCEEDS_LIMIT` if the cost is above `limit`.

    - The order equals the best order before place `first`.
    - The first `OrderSearchSettings.reservations` jobs that cannot start now reserve their slots. Later jobs may take
      the slots of the other jobs. The cost of the plan ignores this.
    - Planning stops when the rest of the plan is known: the placed jobs occupy the same resources as in the best plan,
      and the rest of both orders is equal.
    """
    order, amount, reserve = search.trial.order, search.queued.amount, search.queued.reserve
    queue, estimate_s = site.queue, site.jobs.estimate_s
    times, level, points, row = search.rows.times, search.rows.level, search.rows.points, search.trial.row
    starts, spent, known = search.trial.starts, search.trial.spent, search.trial.known
    at, total, held = search.best.row[first], search.best.spent[first], search.best.known[first]
    left, now_s = search.settings.reservations, site.now_s
    for k in range(first):
        left -= search.best.starts[k] > now_s
    search.shared.same = search.head
    for k in range(first, search.head):
        if k >= search.shared.upto and held == search.best.known[k]:
            return cost_with_shared_tail(site, search, k, limit)
        search.counts.placed += 1
        position, n = order[k], points[at]
        duration_s, need = estimate_s[queue[position]], amount[position]
        wanted = max(need, min(need + reserve[position], level[at, n - 1]))
        start_s = times[at, earliest_fit_breakpoint(times[at], level[at], n, duration_s, wanted)]
        total += start_cost(site, search, position, start_s)
        if total > limit:
            return EXCEEDS_LIMIT
        to = row[k + 1]
        for i in range(n):
            times[to, i], level[to, i] = times[at, i], level[at, i]
        if start_s == now_s or left > 0:
            n = subtract_amount(times[to], level[to], n, start_s, start_s + duration_s, need)
            held += placed_job_hash(position, start_s, need)
        left -= start_s > now_s
        points[to] = n
        starts[k], spent[k + 1], known[k + 1], at = start_s, total, held, to
    return float(total)


@subroutine
def apply_plan_on_pool(site: SchedulingState, search: OrderSearchState, whole: bool) -> None:
    """Start the jobs that the best order starts now, and each later job that fits.

    Later jobs are the jobs after the head. If `whole`, plan starts for the other jobs, up to
    `OrderSearchSettings.covered` jobs in total.
    """
    draft, queue, estimate_s = site.draft, site.queue, site.jobs.estimate_s
    amount, order = search.queued.amount, search.best.order
    plan_s, now_s = draft.plan_s, site.now_s
    for k in range(search.head):
        position = order[k]
        if search.best.starts[k] == now_s:
            start_on_pool(site, position, amount[position])
        plan_s[position] = search.best.starts[k]
    if search.head == search.able:
        return
    at = search.best.row[search.head]
    times, level, n = search.rows.times[at], search.rows.level[at], search.rows.points[at]
    for k in range(search.head, search.able):
        if level[0] == 0:
            break
        position = order[k]
        duration_s, need = estimate_s[queue[position]], amount[position]
        if need <= level[0] and fits_at_first_breakpoint(times, level, n, duration_s, need):
            start_on_pool(site, position, need)
            n = subtract_amount(times, level, n, now_s, now_s + duration_s, need)
    if whole:
        for k in range(search.head, min(search.able, search.settings.covered)):
            position = order[k]
            if plan_s[position] == NEVER:
                duration_s, need = estimate_s[queue[position]], amount[position]
                plan_s[position] = times[earliest_fit_breakpoint(times, level, n, duration_s, need)]
                n = subtract_amount(times, level, n, plan_s[position], plan_s[position] + duration_s, need)
