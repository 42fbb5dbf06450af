"""The profile of a counted pool: `level[k]` is free from second `times[k]` up to the next of `count` breakpoints."""

from __future__ import annotations

from cpsched.jit.decorators import scalar_subroutine
from cpsched.jit.handles import Column, FixedColumn


@scalar_subroutine
def lower_bound(times: FixedColumn, count: int, at_s: int) -> int:
    """The first index of the sorted `times[:count]` that holds `at_s` or more."""
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
    """Make `at_s` a breakpoint with the level of the one before, unless it is one; returns the new count."""
    at = lower_bound(times, count, at_s)
    if at < count and times[at] == at_s:
        return count
    for k in range(count, at, -1):
        times[k], level[k] = times[k - 1], level[k - 1]
    times[at], level[at] = at_s, level[at - 1]
    return count + 1


@scalar_subroutine
def occupy(times: Column, level: Column, count: int, start_s: int, end_s: int, amount: int) -> int:
    """Take `amount` off a profile during [start_s, end_s); returns its new number of breakpoints."""
    count = add_breakpoint(times, level, count, start_s)
    count = add_breakpoint(times, level, count, end_s)
    k = lower_bound(times, count, start_s)
    while times[k] < end_s:
        level[k] -= amount
        k += 1
    return count


@scalar_subroutine
def earliest_breakpoint(times: FixedColumn, level: FixedColumn, count: int, duration_s: int, amount: int) -> int:
    """The index of the first breakpoint from which `amount` is there for `duration_s`; -1 where there is none."""
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
def starts_now(times: FixedColumn, level: FixedColumn, count: int, duration_s: int, amount: int) -> bool:
    """Whether `amount` is there from the profile's first second on, for `duration_s`."""
    end_s, k = times[0] + duration_s, 0
    while k < count and times[k] < end_s:
        if level[k] < amount:
            return False
        k += 1
    return True
