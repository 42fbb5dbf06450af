"""What a plan costs: the sum over all jobs of a price, which depends on the job's planned start.

The letters: r are the processors of a job, E is how long it is expected to run (s), W how long it has waited (s), and
F = W + E. What a second costs is set by `Price`, from a row of `cpsched.dispatchers.lookahead.objectives`.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import scalar_subroutine, subroutine
from cpsched.jit.handles import FixedColumn, FixedReals, Reals
from cpsched.kernels.orders import bits_of, order_of
from cpsched.kernels.search_state import OUT, Price, Search
from cpsched.kernels.state import Site
from cpsched.model import NEVER

HOUR = 3600.0

BOUND_FROM = 0.5
"""The bound of the longest wait holds for jobs that have waited for this share of it. Plans for younger jobs reach
further ahead, and rest on estimates."""


TYPICAL = 0.75
"""The typical area of a queue is this quantile of the areas of its jobs."""


@scalar_subroutine
def powered(x: float, power: int) -> float:
    """`x` to a small power."""
    result = x
    for _ in range(power - 1):
        result *= x
    return result


@subroutine
def typical_area(site: Site, search: Search, least_s: float) -> float:
    """The `TYPICAL` quantile of the queued jobs' areas r E, in processor seconds; E counts as `least_s` or more.

    The queue must not be empty.
    """
    jobs, queue, expected, areas = site.jobs, site.queue, search.queued.expected, np.empty(site.queued)
    for i in range(site.queued):
        slot = queue[i]
        areas[i] = max(1, jobs.units[slot] * jobs.per_unit[slot, 0]) * max(expected[i], least_s)
    at = int(np.ceil(TYPICAL * (site.queued - 1)))
    keys = bits_of(areas)
    return float(areas[order_of(keys, keys)[at]])


@subroutine
def weigh_alone(site: Site, search: Search, objective: Price) -> tuple[float, float]:
    """Make the weight of every queued job r^`r` E^`e` (1 + `flat` A / (r E)): what a second costs for its own sake.

    Returns the sums over the queue of these weights and of r E. The queue must not be empty.
    """
    jobs, queue, least_s, own, area = site.jobs, site.queue, objective.least_s, 0.0, 0.0
    weight, expected = search.queued.weight, search.queued.expected
    flat = objective.flat * typical_area(site, search, least_s) if objective.flat > 0.0 else 0.0
    for i in range(site.queued):
        slot = queue[i]
        r, E = float(max(1, jobs.units[slot] * jobs.per_unit[slot, 0])), max(expected[i], least_s)
        weight[i] = r**objective.r * E**objective.e * (1.0 + flat / (r * E))
        own += weight[i]
        area += r * E
    return own, area


@subroutine
def weigh(site: Site, search: Search, objective: Price, site_weight: FixedReals) -> None:
    """Compute the price of a second, and the reserve in processors, of every queued job.

    `site_weight` holds the site's factor by queue position; empty where the site has none. The queue must not be empty.
    """
    jobs, queue, least_s = site.jobs, site.queue, objective.least_s
    weight, reserve, expected = search.queued.weight, search.queued.reserve, search.queued.expected
    units, per_unit, submit_s, pool = jobs.units, jobs.per_unit, jobs.submit_s, site.machine.pool
    own, area = weigh_alone(site, search, objective)
    for i in range(site.queued):
        slot = queue[i]
        r, E = float(max(1, units[slot] * per_unit[slot, 0])), max(expected[i], least_s)
        W = float(site.now_s - submit_s[slot])
        age = powered(W / objective.aged_s, objective.ageing_power)
        weight[i] = (weight[i] + objective.area * r * E * own / area) * (1.0 + objective.ageing * age)
        if len(site_weight):
            weight[i] *= site_weight[i]
        new_and_long = objective.reserve_above_s < E and objective.reserve_until_s > W
        reserve[i] = int(objective.reserve * pool) if new_and_long else 0


@subroutine
def price(site: Site, search: Search, objective: Price, position: int, start_s: int) -> float:
    """What it costs to start the job at a queue position at `start_s`: 0 for now, `OUT` where it breaks the bound."""
    delay_s, waited_s = float(start_s - site.now_s), float(site.now_s - site.jobs.submit_s[site.queue[position]])
    if waited_s + delay_s > search.bound_s and waited_s >= BOUND_FROM * search.bound_s:
        return OUT
    if objective.power == 0:
        return float(search.queued.weight[position] * delay_s)
    W, E = waited_s / HOUR, search.queued.expected[position] / HOUR
    later, now = W + delay_s / HOUR, powered(W + E, objective.power) - powered(W, objective.power)
    rise = powered(later + E, objective.power) - powered(later, objective.power) - now
    return float(search.queued.weight[position] * rise)


@subroutine
def priced(
    site: Site, search: Search, objective: Price, order: FixedColumn, starts: FixedColumn, spent: Reals, first: int,
    total: float,
) -> float:  # fmt: skip
    """The cost of the head of a decoded order, of which `total` is the part before place `first`.

    Writes `spent` from place `first` on.
    """
    for k in range(first, search.head):
        if starts[k] != NEVER:
            total += price(site, search, objective, order[k], starts[k])
        spent[k + 1] = total
    return float(total)


@subroutine
def priced_as_before(site: Site, search: Search, objective: Price, k: int, total: float, limit: float) -> float:
    """The cost of a plan on trial that equals the best plan from place `k` on and has cost `total` before; or `OUT`."""
    search.shared.same = k
    cost = priced(site, search, objective, search.best.order, search.best.starts, search.trial.spent, k, total)
    return cost if cost <= limit else OUT
