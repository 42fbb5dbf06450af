"""The clocks of a replay, without the time for loading or compiling kernels.

A kernel is loaded at its first call, during a decision. This time does not count as part of the decision.
"""

from __future__ import annotations

import time

from cpsched.jit import compile_progress

compile_progress.set_compile_clock(lambda: (time.perf_counter_ns(), time.process_time()))


def wall_ns_without_compilation() -> int:
    """Return wall-clock nanoseconds since an arbitrary origin."""
    return time.perf_counter_ns() - compile_progress.compile_seconds()[0]


def cpu_s_without_compilation() -> float:
    """Return CPU seconds of this process since an arbitrary origin."""
    return time.process_time() - compile_progress.compile_seconds()[1]
