"""When a running job that outlived its estimate is expected to end."""

from __future__ import annotations

from cpsched.kernels.jit import bare, inner
from cpsched.kernels.state import Site

ONE_SECOND, DOUBLE, WALLTIME = range(3)
OVERRUN_CODES = {"one-second": ONE_SECOND, "double": DOUBLE, "walltime": WALLTIME}


@bare
def expected_end(start_s: int, estimate_s: int, walltime_s: int, now_s: int, overrun: int) -> int:
    """When a running job is expected to end, seen from `now_s`; always later than `now_s`.

    A job that outlived its estimate is expected to end

    - `ONE_SECOND`: one second from now (cp19 section 4);
    - `DOUBLE`: when its estimate, doubled until it covers the time already run, is over;
    - `WALLTIME`: at its walltime, and after that one second from now.

    Times are within `cpsched.bounds`, so that no sum leaves int64.
    """
    end_s = start_s + estimate_s
    if end_s > now_s:
        return end_s
    if overrun == DOUBLE:
        covered_s = max(1, estimate_s)
        while start_s + covered_s <= now_s:
            covered_s *= 2
        return start_s + covered_s
    if overrun == WALLTIME:
        end_s = start_s + walltime_s
    return max(end_s, now_s + 1)


@inner
def revise_overdue(site: Site, overrun: int) -> int:
    """Move the running jobs that outlived their expected end to a later one; returns how many there were.

    The running jobs are sorted by (`end_s`, slot) before and after.
    """
    jobs, running, count, now_s = site.jobs, site.running, site.active, site.now_s
    end_s, start_s, estimate_s, walltime_s = jobs.end_s, jobs.start_s, jobs.estimate_s, jobs.walltime_s
    overdue = 0
    while overdue < count and end_s[running[overdue]] <= now_s:
        slot = running[overdue]
        end_s[slot] = expected_end(start_s[slot], estimate_s[slot], walltime_s[slot], now_s, overrun)
        overdue += 1

    # From the last of them to the first, each moves up to where its new end belongs.
    for i in range(overdue - 1, -1, -1):
        slot, j = running[i], i
        while j + 1 < count and (
            end_s[running[j + 1]] < end_s[slot] or (end_s[running[j + 1]] == end_s[slot] and running[j + 1] < slot)
        ):
            running[j] = running[j + 1]
            j += 1
        running[j] = slot
    return overdue
