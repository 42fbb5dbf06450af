"""The rule of a list scheduler as numbers, and the orders of the queue."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpsched._jit import kernel
from cpsched.kernels.state import Array, Jobs

STRICT, GREEDY = -1, 0
"""Numbers of reservations with a meaning of their own: stop at the first job that does not fit; pass over it."""


FIRST_FIT, BEST_FIT = 0, 1


ORDER, BACKFILL, RESERVATIONS, ALLOCATION, COUNTED, WANT_PLAN = range(6)
"""Fields of a rule (int64[6]), the whole of what makes one list scheduler differ from another: the order of the queue;
the order after a single reservation (`ARRIVAL`: the same); how many reservations; which nodes a start gets; whether the
cluster is a counted pool; whether the whole plan is wanted."""


ARRIVAL, SHORTEST, LONGEST, SJF, LJF, SAF, LAF, SPF, GIVEN = range(9)
"""Orders; `GIVEN`: by positions from outside."""


@kernel(makes_arrays=False)
def first_key(code: int, estimate_s: int, processors: int) -> int:
    """What an order sorts by first: E is the estimate, r the processors (debs24 section 3)."""
    if code in (SHORTEST, SJF):
        return estimate_s
    if code in (LONGEST, LJF):
        return -estimate_s
    if code == SAF:
        return processors * estimate_s
    if code == LAF:
        return -processors * estimate_s
    if code == SPF:
        return processors * estimate_s * estimate_s
    return 0


@kernel(makes_arrays=False)
def second_key(code: int, estimate_s: int, processors: int) -> int:
    """What it sorts by next; remaining ties keep the order of arrival."""
    if code in (SJF, LJF):
        return processors
    if code == SPF:
        return processors * estimate_s
    return 0


@kernel()
def sorted_positions(code: int, queue: Array, jobs: Jobs) -> Array:
    """The positions of a queue in order `code`: a merge sort, stable."""
    n = len(queue)
    first, second = np.empty(n, np.int64), np.empty(n, np.int64)
    order, merged = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        slot = queue[i]
        processors = jobs.units[slot] * jobs.per_unit[slot, 0]
        first[i] = first_key(code, jobs.estimate_s[slot], processors)
        second[i] = second_key(code, jobs.estimate_s[slot], processors)
        order[i] = i
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            i, j = low, middle
            for k in range(low, high):
                take_left = i < middle
                if take_left and j < high:
                    a, b = order[i], order[j]
                    take_left = first[a] < first[b] or (first[a] == first[b] and second[a] <= second[b])
                if take_left:
                    merged[k] = order[i]
                    i += 1
                else:
                    merged[k] = order[j]
                    j += 1
        order, merged = merged, order
        width *= 2
    return order


@kernel(makes_arrays=False)
def position_of(order: Array, i: int) -> Any:
    """The queue position of the i-th in an order; an empty one is that of the queue."""
    return order[i] if len(order) else i


@kernel()
def positions_in(rule: Array, given: Array, queue: Array, jobs: Jobs) -> Any:
    """The queue positions in the order of a rule; empty where that is the queue's."""
    if rule[ORDER] == ARRIVAL:
        return np.empty(0, np.int64)
    if rule[ORDER] == GIVEN:
        return given.copy()
    return sorted_positions(rule[ORDER], queue, jobs)
