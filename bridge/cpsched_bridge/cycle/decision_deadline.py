"""Call the policy with a time limit that the kernel's interval timer enforces.

The timer's signal raises an exception in the code that is running.

- The signal interrupts Python loops, sleeps, and waits for locks, sockets and child processes.
- The signal does not interrupt a call into compiled code (a kernel, a solver), because Python handles signals only
  after the call returns. The systemd watchdog kills a bridge that hangs in such a call.
- Time spent loading and compiling kernels does not count.
- Python handles signals only in the main thread. In any other thread, `run_within_time_limit` sets no limit; see
  `can_enforce_deadline`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

import structlog

from cpsched.errors import escape_controls
from cpsched.jit import compile_progress
from cpsched.plugin_error_location import plugin_source_location
from cpsched_bridge.cycle.cycle_failures import describe_failure, format_traceback
from cpsched_bridge.errors import DecisionTimeout, PolicyFailure

compile_progress.set_compile_clock(lambda: (time.perf_counter_ns(), time.process_time()))

T = TypeVar("T")

_SIGNAL_INTERVAL_S = 1.0
"""Seconds between repeated signals, which reach code that caught the exception or was compiling."""
_CLOCK_TOLERANCE_S = 0.01
"""Maximum seconds by which the timer's clock may be ahead of the bridge's clock."""


class _DeadlineExceeded(BaseException):
    """The exception that the signal raises, which `except Exception` does not catch."""


def can_enforce_deadline() -> bool:
    """Return whether `run_within_time_limit` can enforce its limit in this thread."""
    return threading.current_thread() is threading.main_thread()


def run_within_time_limit(limit_s: float, work: Callable[[], T]) -> T:
    """Return the result of `work`. Raise `DecisionTimeout` after `limit_s` seconds.

    Time spent compiling kernels does not count. The previous signal handler and timer are restored afterwards.
    """
    if not can_enforce_deadline():
        return work()
    armed = True
    began_s, compiled_ns = time.monotonic(), compile_progress.compile_seconds()[0]

    def on_alarm(number: int, frame: FrameType | None) -> None:
        if not armed or compile_progress.is_compiling():
            return
        excused_s = (compile_progress.compile_seconds()[0] - compiled_ns) / 1e9
        if time.monotonic() - began_s - excused_s >= limit_s - _CLOCK_TOLERANCE_S:
            raise _DeadlineExceeded

    handler = signal.signal(signal.SIGALRM, on_alarm)
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, limit_s, _SIGNAL_INTERVAL_S)
    try:
        result = work()
        armed = False
        return result
    except _DeadlineExceeded as overdue:
        armed = False
        place = plugin_source_location(overdue)
        where = f" ({escape_controls(str(place))})" if place is not None else ""
        raise DecisionTimeout(f"no decision within {limit_s:g} s{where}") from None
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)  # None: not set in Python
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s - (time.monotonic() - began_s)), every_s)


def call_policy(limit_s: float, work: Callable[[], T], kind: str = "decision_failed") -> T:
    """Return the result of `work`, which calls the policy.

    Raise `PolicyFailure` of this `kind` if `work` raises anything, and of kind `decision_timeout` if `work` takes more
    than `limit_s` seconds. `SystemExit`, `KeyboardInterrupt` and `CompilationCancelled` propagate, because they end the
    program.
    """
    try:
        return run_within_time_limit(limit_s, work)
    except (SystemExit, KeyboardInterrupt, compile_progress.CompilationCancelled, PolicyFailure):
        raise
    except DecisionTimeout as error:
        raise PolicyFailure("decision_timeout", str(error)) from error
    except BaseException as error:  # includes exceptions outside `Exception`, such as asyncio.CancelledError
        structlog.get_logger("bridge").error(kind, exception=format_traceback(error))
        raise PolicyFailure(kind, describe_failure(error)) from error
