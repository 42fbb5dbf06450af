"""Free amounts over time of a counted pool: a line of breakpoints."""

from __future__ import annotations

from cpsched._jit import kernel
from cpsched.kernels.state import Array


@kernel(makes_arrays=False)
def lower_bound(times: Array, count: int, at_s: int) -> int:
    """The first index of the sorted `times[:count]` that holds `at_s` or more."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if times[middle] < at_s:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(makes_arrays=False)
def occupy(times: Array, level: Array, count: int, start_s: int, end_s: int, amount: int) -> int:
    """Take `amount` off a line during [start_s, end_s); returns its new number of breakpoints."""
    first = lower_bound(times, count, start_s)
    if first == count or times[first] != start_s:
        for k in range(count, first, -1):
            times[k], level[k] = times[k - 1], level[k - 1]
        times[first], level[first] = start_s, level[first - 1]
        count += 1
    last = lower_bound(times, count, end_s)
    if last == count or times[last] != end_s:
        for k in range(count, last, -1):
            times[k], level[k] = times[k - 1], level[k - 1]
        times[last], level[last] = end_s, level[last - 1]
        count += 1
    for k in range(first, last):
        level[k] -= amount
    return count


@kernel(makes_arrays=False)
def earliest(times: Array, level: Array, count: int, duration_s: int, amount: int) -> int:
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


@kernel(makes_arrays=False)
def starts_now(times: Array, level: Array, count: int, duration_s: int, amount: int) -> bool:
    """Whether `amount` is there from the line's first second on, for `duration_s`."""
    end_s, k = times[0] + duration_s, 0
    while k < count and times[k] < end_s:
        if level[k] < amount:
            return False
        k += 1
    return True


@kernel(makes_arrays=False)
def insert_time(times: Array, count: int, at_s: int) -> int:
    """Add a second to the sorted `times[:count]` unless it is there; returns the new count."""
    at = lower_bound(times, count, at_s)
    if at < count and times[at] == at_s:
        return count
    for k in range(count, at, -1):
        times[k] = times[k - 1]
    times[at] = at_s
    return count + 1
