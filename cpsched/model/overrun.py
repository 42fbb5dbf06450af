"""When a running job that outlived its estimate is expected to end.

The rule in force is the one that the policy's settings name (`overrun`). Where they name none, it is the dispatcher's
own (`Dispatcher.overrun`): `walltime` for `lookahead`, `one-second` for all others. A `Policy` that is made in Python
without `PolicySpec` goes by `one-second`, unless it is told another rule.
"""

from __future__ import annotations

from typing import Literal

from cpsched.jit.decorators import scalar_subroutine

Overrun = Literal["one-second", "double", "walltime"]
ONE_SECOND, DOUBLE, WALLTIME = range(3)
OVERRUN_CODES: dict[Overrun, int] = {"one-second": ONE_SECOND, "double": DOUBLE, "walltime": WALLTIME}
"""How kernels know the words."""


@scalar_subroutine
def expected_end(start_s: int, estimate_s: int, walltime_s: int, now_s: int, overrun: int) -> int:
    """When a running job is expected to end, seen from `now_s`; always later than `now_s`.

    A job that outlived its estimate is expected to end

    - `one-second`: one second from now (cp19 section 4);
    - `double`: when its estimate, doubled until it covers the time already run, is over;
    - `walltime`: at its walltime, and after that one second from now.

    Times are within `cpsched.model.value_bounds`, so that no sum leaves int64.
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
    """The same, by the word."""
    return expected_end(start_s, estimate_s, walltime_s, now_s, OVERRUN_CODES[overrun])
