"""When a running job that outlived its estimate is expected to end, compiled."""

from __future__ import annotations

from cpsched._jit import IN1, INT, OUT1, kernel
from cpsched.kernels.state import Array

OVERRUN_CODES = {"one-second": 0, "double": 1, "walltime": 2}


@kernel(INT(INT, INT, INT, INT, INT), makes_arrays=False)
def expected_end(start_s: int, estimate_s: int, walltime_s: int, now_s: int, overrun: int) -> int:
    """`cpsched.overrun.expected_end_s`, compiled."""
    end_s = start_s + estimate_s
    if end_s > now_s:
        return end_s
    if overrun == 1:
        while end_s <= now_s:
            estimate_s *= 2
            end_s = start_s + estimate_s
        return end_s
    if overrun == 2:
        end_s = start_s + walltime_s
    return max(end_s, now_s + 1)


@kernel(INT(OUT1, OUT1, IN1, IN1, IN1, INT, INT, INT), makes_arrays=False)
def revise_overdue(
    running: Array,
    end_s: Array,
    start_s: Array,
    estimate_s: Array,
    walltime_s: Array,
    count: int,
    now_s: int,
    overrun: int,
) -> int:
    """Move the running jobs that outlived their expected end to a later one; returns how many there were.

    `running[:count]` is sorted by (`end_s`, slot) before and after.
    """
    overdue = 0
    while overdue < count and end_s[running[overdue]] <= now_s:
        slot = running[overdue]
        end_s[slot] = expected_end(start_s[slot], estimate_s[slot], walltime_s[slot], now_s, overrun)
        overdue += 1
    for i in range(overdue - 1, -1, -1):
        slot, j = running[i], i
        while j + 1 < count and (
            end_s[running[j + 1]] < end_s[slot] or (end_s[running[j + 1]] == end_s[slot] and running[j + 1] < slot)
        ):
            running[j] = running[j + 1]
            j += 1
        running[j] = slot
    return overdue
