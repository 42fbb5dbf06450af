"""Availability profiles of a counted pool.

`level[k]` units are free from `times[k]` (s) until the next of the `count` breakpoints.
"""

from __future__ import annotations

from cpsched.jit.decorators import scalar_subroutine
from cpsched.jit.shared_structs import Column, FixedColumn


@scalar_subroutine
def first_index_at_least(times: FixedColumn, count: int, at_s: int) -> int:
    """Return the first index of the sorted `times[:count]` with a time >= `at_s`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if times[middle] < at_s:
            low = middle + 1
        else:
            high = middle
    return low


@scalar_subroutine
def add_breakpoint(times: Column, level: Column, count: int, at_s: int) -> int:
    """Insert a breakpoint at `at_s` if missing. Return the number of breakpoints."""
    at = first_index_at_least(times, count, at_s)
    if at < count and times[at] == at_s:
        return count
    for k in range(count, at, -1):
        times[k], level[k] = times[k - 1], level[k - 1]
    times[at], level[at] = at_s, level[at - 1]
    return count + 1


@scalar_subroutine
def subtract_amount(times: Column, level: Column, count: int, start_s: int, end_s: int, amount: int) -> int:
    """Subtract `amount` during [start_s, end_s). Return the new number of breakpoints."""
    count = add_breakpoint(times, level, count, start_s)
    count = add_breakpoint(times, level, count, end_s)
    k = first_index_at_least(times, count, start_s)
    while times[k] < end_s:
        level[k] -= amount
        k += 1
    return count


@scalar_subroutine
def earliest_fit_breakpoint(times: FixedColumn, level: FixedColumn, count: int, duration_s: int, amount: int) -> int:
    """Return the first breakpoint from which `amount` is free for `duration_s`, or -1."""
    k = 0
    while k < count:
        if level[k] < amount:
            k += 1
            continue
        end_s, j = times[k] + duration_s, k + 1
        while j < count and times[j] < end_s and level[j] >= amount:
            j += 1
        if j == count or times[j] >= end_s:
            return k
        k = j + 1
    return -1


@scalar_subroutine
def fits_at_first_breakpoint(times: FixedColumn, level: FixedColumn, count: int, duration_s: int, amount: int) -> bool:
    """Return whether `amount` is free for `duration_s` from the first breakpoint."""
    end_s, k = times[0] + duration_s, 0
    while k < count and times[k] < end_s:
        if level[k] < amount:
            return False
        k += 1
    return True
