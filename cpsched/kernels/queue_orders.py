"""Parameters of list schedulers as numbers, and functions that sort the queue."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, Reals
from cpsched.kernels.scheduling_state import ListSchedulerParameters, SchedulingState
from cpsched.model import IntArray

STRICT, GREEDY = -1, 0
"""Special values of `ListSchedulerParameters.reservations`.

- `STRICT`: the first job that does not fit ends the plan.
- `GREEDY`: a job that does not fit is skipped.
"""

FIRST_FIT, BEST_FIT = 0, 1
"""Node selection: nodes by index, or nodes with the smallest free amounts first."""

ARRIVAL, SHORTEST, LONGEST, SJF, LJF, SAF, LAF, SPF, GIVEN, PRIORITY = range(10)
"""Orders of the queue (see `planning.ORDERS`). `GIVEN` means the positions given by the caller."""

LARGEST_INT = (1 << 63) - 1


@scalar_subroutine
def saturating_product(a: int, b: int) -> int:
    """Return `a` times `b`, both at least 0, or `LARGEST_INT` on overflow."""
    return LARGEST_INT if a > 0 and b > LARGEST_INT // a else a * b


@scalar_subroutine
def first_sort_key(code: int, estimate_s: int, processors: int) -> int:
    """Return an order's first sort key, with E and r as in debs24 section 3.

    E is the estimate, and r the number of processors.
    """
    if code in (SHORTEST, SJF):
        return estimate_s
    if code in (LONGEST, LJF):
        return -estimate_s
    if code == SAF:
        return saturating_product(processors, estimate_s)
    if code == LAF:
        return -saturating_product(processors, estimate_s)
    if code == SPF:
        return saturating_product(saturating_product(processors, estimate_s), estimate_s)
    return 0


@scalar_subroutine
def second_sort_key(code: int, estimate_s: int, processors: int) -> int:
    """Return an order's second sort key; remaining ties are in order of arrival."""
    if code in (SJF, LJF):
        return processors
    if code == SPF:
        return saturating_product(processors, estimate_s)
    return 0


@subroutine
def sortable_bits(numbers: Reals) -> IntArray:
    """Return the bits of nonnegative `numbers` as integers of the same sort order."""
    return numbers.view(np.int64)


@scalar_subroutine
def sort_pairs(first: Column, second: Column, count: int) -> None:
    """Sort the first `count` pairs in place by `first` (Shell sort, not stable)."""
    gap = 1
    while 3 * gap + 1 < count:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            a, b, j = first[i], second[i], i
            while j >= gap and first[j - gap] > a:
                first[j], second[j] = first[j - gap], second[j - gap]
                j -= gap
            first[j], second[j] = a, b
        gap //= 3


@subroutine
def sort_positions(first: Column, second: Column) -> IntArray:
    """Return positions sorted by `first`, then by `second` (merge sort, stable).

    NumPy's sorting functions would take a tenth of the total compile time.
    """
    n = len(first)
    order, merged = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        order[i] = i

    # Merge pairs of sorted runs of `width` positions until one run remains.
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


@subroutine
def sorted_queue_positions(code: int, site: SchedulingState) -> IntArray:
    """Return the queue positions in the order `code`. Ties are in order of arrival."""
    n, queue, jobs = site.queued, site.queue, site.jobs
    estimate_s, units, per_unit = jobs.estimate_s, jobs.units, jobs.per_unit
    tier, priority = jobs.tier, jobs.priority
    first, second = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        slot = queue[i]
        processors = units[slot] * per_unit[slot, 0]
        if code == PRIORITY:
            first[i], second[i] = -tier[slot], -priority[slot]
        else:
            first[i] = first_sort_key(code, estimate_s[slot], processors)
            second[i] = second_sort_key(code, estimate_s[slot], processors)
    return sort_positions(first, second)


@subroutine
def queue_positions(method: ListSchedulerParameters, given: FixedColumn, site: SchedulingState) -> IntArray:
    """Return queue positions in a method's order, or none for the queue's own order."""
    if method.order == ARRIVAL:
        return np.empty(0, np.int64)
    if method.order == GIVEN:
        return given.copy()
    return sorted_queue_positions(method.order, site)


@scalar_subroutine
def queue_position_at(order: FixedColumn, i: int) -> int:
    """Return the queue position at index `i` of an order, or `i` if it is empty."""
    return int(order[i]) if len(order) else i
