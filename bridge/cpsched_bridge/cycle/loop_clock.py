"""Measure the loop's time, and wait between cycles until a signal or another thread ends the loop."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from cpsched.jit import compile_progress


class LoopClock:
    """The clock by which the loop measures time and waits between cycles.

    `stop` may be called from a signal handler or another thread.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether the loop ends after the current cycle."""
        return self._stopped

    def monotonic_s(self) -> float:
        """Return the time of a monotonic clock in seconds."""
        return time.monotonic()

    def unix_s(self) -> float:
        """Return the wall-clock time as Unix time in seconds, for display and Prometheus."""
        return time.time()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`, or less if woken. Return False if the loop must end."""
        if not self._stopped:
            select.select([self._read], [], [], max(0.0, seconds))
        return not self._stopped

    def stop(self) -> None:
        """End the current wait and all later waits immediately."""
        self._stopped = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"x")

    @contextmanager
    def stop_on_signals(self) -> Iterator[None]:
        """End the loop after the current cycle on SIGTERM or SIGINT.

        A second signal ends the process. After the first signal, the main thread compiles nothing. The previous
        handlers are restored on exit.
        """
        former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def handle_stop_signal(number: int, frame: FrameType | None) -> None:
            self.stop()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)

        for number in former:
            signal.signal(number, handle_stop_signal)
        stops = compile_progress.cancel_compilation_if(
            lambda: self._stopped and threading.current_thread() is threading.main_thread()
        )
        try:
            with stops:
                yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
