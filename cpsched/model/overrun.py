"""Compute the expected end of a running job, even if it has outlived its estimate.

A policy's `overrun` setting selects the rule. The default is `Dispatcher.overrun`: `one-second` for the dispatchers of
cp19, pcp20 and mod17, and `walltime` for all others. A `Policy` built in Python without `PolicySpec` defaults to
`walltime`.
"""

from __future__ import annotations

from typing import Literal

from cpsched.jit.decorators import scalar_subroutine

Overrun = Literal["one-second", "double", "walltime"]
ONE_SECOND, DOUBLE, WALLTIME = range(3)
OVERRUN_CODES: dict[Overrun, int] = {"one-second": ONE_SECOND, "double": DOUBLE, "walltime": WALLTIME}
"""Codes of the rules in the kernels."""
DEFAULT_OVERRUN: Overrun = "walltime"


@scalar_subroutine
def expected_end_by_code(start_s: int, estimate_s: int, walltime_s: int, now_s: int, overrun: int) -> int:
    """Return a running job's expected end in seconds, which is later than `now_s`.

    If the job has outlived its estimate, the expected end is:

    - `one-second`: one second from now (cp19 section 4).
    - `double`: the end of the estimate, which is doubled until it covers the time already run.
    - `walltime`: the end of the walltime, or one second from now if that end has passed.

    Times are within the bounds in `cpsched.model.value_bounds`, so no sum overflows int64.
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


def expected_end_s(start_s: int, estimate_s: int, walltime_s: int, now_s: int, overrun: Overrun) -> int:
    """Return the result of `expected_end_by_code` for the name of a rule."""
    return expected_end_by_code(start_s, estimate_s, walltime_s, now_s, OVERRUN_CODES[overrun])
