"""When a running job that outlived its estimate is expected to end."""

from __future__ import annotations

from typing import Literal

from cpsched.kernels.overrun import OVERRUN_CODES, expected_end

Overrun = Literal["one-second", "double", "walltime"]


def expected_end_s(start_s: int, estimate_s: int, walltime_s: int, now_s: int, overrun: Overrun) -> int:
    """When a running job is expected to end, seen from `now_s`; always later than `now_s`.

    A job that outlived its estimate is expected to end: after one more second (`one-second`, cp19 section 4);
    when its estimate, doubled until it covers the time already run, is over (`double`); or at its walltime
    (`walltime`), and after that one second later.
    """
    return expected_end(start_s, estimate_s, walltime_s, now_s, OVERRUN_CODES[overrun])
