"""Time as a replay counts it: without what it takes to load kernels, or to compile them on a new machine.

A kernel is opened at its first call, in the middle of some decision. What that takes says nothing about the decision.
"""

from __future__ import annotations

import time

from cpsched.jit import compile_progress

compile_progress.set_clock(lambda: (time.perf_counter_ns(), time.process_time()))


def wall_ns() -> int:
    """Nanoseconds on the wall, from some moment on."""
    return time.perf_counter_ns() - compile_progress.compile_seconds()[0]


def cpu_s() -> float:
    """CPU seconds of this process, from some moment on."""
    return time.process_time() - compile_progress.compile_seconds()[1]
