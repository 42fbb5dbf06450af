"""Redirect the output of plug-ins to stderr, and stop a plug-in that hangs.

The error message contains the plug-in's file and line.

Any progress restarts the time limit. Compiling kernels and importing the compiler count as progress.

- The timer's signal interrupts Python loops, sleeps and waits, and reports the line being executed.
- Compiled code does not handle signals. At twice the limit, the process ends (exit code 1) with a traceback.
- Python handles signals only in its main thread. In other threads, only the second limit applies.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from types import FrameType
from typing import Any

from cpsched.errors import plugin_source_location
from cpsched.jit import compile_progress
from cpsched_sim.errors import Stalled

STALL_TIMEOUT_S = 600.0
"""Default limit on seconds without progress."""

_STDERR_FD = 2
"""The file descriptor of stderr, used because a progress bar may have replaced `sys.stderr`."""

_SIGNAL_REPEAT_S = 1.0
"""Seconds between repetitions of the signal. A plug-in may catch the first exception."""


class _PluginTimedOut(BaseException):
    """Raised by the signal handler.

    It is not an `Exception`, so that a plug-in's `except Exception` does not catch it.
    """


class PluginWatchdog:
    """A limit on seconds without progress. Callers report progress with `reset`."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._armed_s = 0.0
        self.signals = threading.current_thread() is threading.main_thread()

    def reset(self, *progress: object) -> None:
        """Report progress. Calls are cheap, because most do not set a timer."""
        now_s = time.monotonic()
        if self.limit_s and now_s - self._armed_s > min(1.0, self.limit_s / 10):
            self._armed_s = now_s
            if self.signals:
                signal.setitimer(signal.ITIMER_REAL, self.limit_s, _SIGNAL_REPEAT_S)
            faulthandler.dump_traceback_later(2 * self.limit_s, exit=True, file=_STDERR_FD)

    def resetting_callback(self, progress: Callable[..., object]) -> Callable[..., None]:
        """Wrap `progress` so that each call restarts the limit."""

        def reset_and_report(*done: Any) -> None:
            self.reset()
            progress(*done)

        return reset_and_report

    def on_timer(self, number: int, frame: FrameType | None) -> None:
        """Stop the plug-in, unless kernels are being compiled."""
        if not compile_progress.is_compiling():
            raise _PluginTimedOut
        self._armed_s = 0.0
        self.reset()

    def disarm(self) -> None:
        """Remove the limit."""
        if self.signals:
            signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def watch_plugins(limit_s: float) -> Iterator[PluginWatchdog]:
    """Run plug-ins in the `with` block.

    Raise `Stalled` after `limit_s` seconds without progress (0: never).
    """
    found = PluginWatchdog(limit_s)
    handler = signal.signal(signal.SIGALRM, found.on_timer) if found.signals and limit_s else None
    try:
        with redirect_stdout(sys.stderr):
            found.reset()
            yield found
    except _PluginTimedOut as error:
        raise Stalled(limit_s, plugin_source_location(error)) from error
    finally:
        if limit_s:
            found.disarm()
        if handler is not None:
            signal.signal(signal.SIGALRM, handler)
