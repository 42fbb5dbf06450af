"""Compute a plan's cost: the sum of the jobs' costs at their planned starts.

Symbols: r is a job's number of processors, E its expected run time (s), W its wait so far (s), and F = W + E.
`WaitCostParameters` defines the cost of one second of wait, from a row of `cpsched.dispatchers.lookahead.objectives`.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import scalar_subroutine, subroutine
from cpsched.jit.shared_structs import FixedReals, Reals
from cpsched.kernels.order_search_state import EXCEEDS_LIMIT, CandidateQueueOrder, OrderSearchState
from cpsched.kernels.queue_orders import sort_positions, sortable_bits
from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.model import NEVER

HOUR_S = 3600.0

BOUND_WAIT_SHARE = 0.5
"""The bound on the longest wait applies to jobs that have waited for at least this share of the bound.

Plans for jobs with shorter waits reach further into the future and depend more on estimates.
"""


TYPICAL_AREA_QUANTILE = 0.75
"""The quantile of job areas that defines the typical area of a queue."""


@scalar_subroutine
def integer_power(x: float, power: int) -> float:
    """Return `x` raised to a small positive integer power."""
    result = x
    for _ in range(power - 1):
        result *= x
    return result


@subroutine
def typical_area(site: SchedulingState, search: OrderSearchState, least_s: float) -> float:
    """Return the `TYPICAL_AREA_QUANTILE` quantile of the queued jobs' areas r E.

    Areas are in processor seconds. E is at least `least_s`. The queue must not be empty.
    """
    jobs, queue, expected, areas = site.jobs, site.queue, search.queued.expected, np.empty(site.queued)
    for i in range(site.queued):
        slot = queue[i]
        areas[i] = max(1, jobs.units[slot] * jobs.per_unit[slot, 0]) * max(expected[i], least_s)
    at = int(np.ceil(TYPICAL_AREA_QUANTILE * (site.queued - 1)))
    keys = sortable_bits(areas)
    return float(areas[sort_positions(keys, keys)[at]])


@subroutine
def set_weights_without_site_priority(site: SchedulingState, search: OrderSearchState) -> tuple[float, float]:
    """Set each queued job's weight to r^`r` E^`e` (1 + `flat` A / (r E)).

    Return the sums of these weights and of r E over the queue. The queue must not be empty.
    """
    objective, jobs, queue, own, area = search.objective, site.jobs, site.queue, 0.0, 0.0
    weight, expected, least_s = search.queued.weight, search.queued.expected, objective.least_s
    flat = objective.flat * typical_area(site, search, least_s) if objective.flat > 0.0 else 0.0
    for i in range(site.queued):
        slot = queue[i]
        r, E = float(max(1, jobs.units[slot] * jobs.per_unit[slot, 0])), max(expected[i], least_s)
        weight[i] = r**objective.r * E**objective.e * (1.0 + flat / (r * E))
        own += weight[i]
        area += r * E
    return own, area


@subroutine
def weigh_jobs(site: SchedulingState, search: OrderSearchState, site_weight: FixedReals) -> None:
    """Compute each queued job's cost per second and reserve.

    `site_weight` contains the site's factors by queue position, or is empty. The queue must not be empty.
    """
    objective, jobs, queue, least_s = search.objective, site.jobs, site.queue, search.objective.least_s
    weight, reserve, expected = search.queued.weight, search.queued.reserve, search.queued.expected
    units, per_unit, submit_s, pool = jobs.units, jobs.per_unit, jobs.submit_s, site.machine.pool
    own, area = set_weights_without_site_priority(site, search)
    for i in range(site.queued):
        slot = queue[i]
        r, E = float(max(1, units[slot] * per_unit[slot, 0])), max(expected[i], least_s)
        W = float(site.now_s - submit_s[slot])
        age = integer_power(W / objective.aged_s, objective.ageing_power)
        weight[i] = (weight[i] + objective.area * r * E * own / area) * (1.0 + objective.ageing * age)
        if len(site_weight):
            weight[i] *= site_weight[i]
        new_and_long = objective.reserve_above_s < E and objective.reserve_until_s > W
        reserve[i] = int(objective.reserve * pool) if new_and_long else 0


@subroutine
def start_cost(site: SchedulingState, search: OrderSearchState, position: int, start_s: int) -> float:
    """Return the cost of starting a job at `start_s`, which is 0 if it starts now.

    Return `EXCEEDS_LIMIT` if the start violates the bound.
    """
    delay_s, waited_s = float(start_s - site.now_s), float(site.now_s - site.jobs.submit_s[site.queue[position]])
    if waited_s + delay_s > search.bound_s and waited_s >= BOUND_WAIT_SHARE * search.bound_s:
        return EXCEEDS_LIMIT
    power = search.objective.power
    if power == 0:
        return float(search.queued.weight[position] * delay_s)
    W, E = waited_s / HOUR_S, search.queued.expected[position] / HOUR_S
    later, now = W + delay_s / HOUR_S, integer_power(W + E, power) - integer_power(W, power)
    rise = integer_power(later + E, power) - integer_power(later, power) - now
    return float(search.queued.weight[position] * rise)


@subroutine
def cost_of_order_head(
    site: SchedulingState, search: OrderSearchState, decoded: CandidateQueueOrder, spent: Reals, first: int
) -> float:
    """Return the cost of a decoded order's head, given `spent` up to place `first`.

    Write `spent` after place `first`.
    """
    order, starts, total = decoded.order, decoded.starts, spent[first]
    for k in range(first, search.head):
        if starts[k] != NEVER:
            total += start_cost(site, search, order[k], starts[k])
        spent[k + 1] = total
    return float(total)


@subroutine
def cost_with_shared_tail(site: SchedulingState, search: OrderSearchState, k: int, limit: float) -> float:
    """Return the cost of a trial plan that is equal to the best plan from place `k`.

    Place `k` is after the first changed place. Return `EXCEEDS_LIMIT` if the cost is above `limit`.
    """
    search.shared.same = k
    cost = cost_of_order_head(site, search, search.best, search.trial.spent, k)
    return cost if cost <= limit else EXCEEDS_LIMIT
