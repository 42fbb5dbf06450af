"""Runs plug-ins under a command: what they print goes to stderr, and one that hangs is ended, with file and line.

Progress renews the limit. Compiling kernels and importing the compiler count as progress.

- The timer's signal ends loops written in Python, sleeps, and waits, and tells where the code was.
- A call into compiled code sees no signal. At twice the limit the process is ended (exit code 1) after a traceback.
- Python handles signals in its main thread only; elsewhere the second limit alone holds.
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

from cpsched.jit import compile_progress as compiling
from cpsched.traceback_origin import plugin_source_location
from cpsched_sim.errors import Stalled

LIMIT_S = 600.0
"""How long commands wait for progress, unless told otherwise."""

_STDERR = 2
"""The descriptor: `sys.stderr` may be a progress bar's."""

_AGAIN_S = 1.0
"""The signal is repeated that often, for code that catches it and goes on."""


class _OutOfPatience(BaseException):
    """Raised by the signal. Not an `Exception`, so that an `except Exception` of a plug-in lets it pass."""


class Watchdog:
    """A limit of so many seconds (0: none) without progress; to be renewed by whoever sees some."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._armed_s = 0.0
        self.signals = threading.current_thread() is threading.main_thread()

    def reset(self, *progress: object) -> None:
        """There was progress, of whatever kind. Costs next to nothing: timers are set anew once in a while."""
        now_s = time.monotonic()
        if self.limit_s and now_s - self._armed_s > min(1.0, self.limit_s / 10):
            self._armed_s = now_s
            if self.signals:
                signal.setitimer(signal.ITIMER_REAL, self.limit_s, _AGAIN_S)
            faulthandler.dump_traceback_later(2 * self.limit_s, exit=True, file=_STDERR)

    def and_tell(self, progress: Callable[..., object]) -> Callable[..., None]:
        """`progress`, which renews the limit whenever it is called."""

        def told(*done: Any) -> None:
            self.reset()
            progress(*done)

        return told

    def on_timer(self, number: int, frame: FrameType | None) -> None:
        """The limit is over, unless kernels are being compiled."""
        if not compiling.is_compiling():
            raise _OutOfPatience
        self._armed_s = 0.0
        self.reset()

    def end(self) -> None:
        """No limit from now on."""
        if self.signals:
            signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def watched(limit_s: float) -> Iterator[Watchdog]:
    """Run plug-ins in the block. Raises `Stalled` where nothing renews the limit for so long; 0: no limit."""
    found = Watchdog(limit_s)
    handler = signal.signal(signal.SIGALRM, found.on_timer) if found.signals and limit_s else None
    try:
        with redirect_stdout(sys.stderr):
            found.reset()
            yield found
    except _OutOfPatience as error:
        raise Stalled(limit_s, plugin_source_location(error)) from error
    finally:
        if limit_s:
            found.end()
        if handler is not None:
            signal.signal(signal.SIGALRM, handler)
