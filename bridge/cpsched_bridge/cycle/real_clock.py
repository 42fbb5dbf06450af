"""Provide the loop's real-time clock. A signal ends its waits immediately."""

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

from typing_extensions import override

from cpsched.jit import compile_progress
from cpsched_bridge.ports import LoopClock


class RealClock(LoopClock):
    """A real-time clock. `stop` may be called from a signal handler or another thread."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether the loop must end."""
        return self._stopped

    @override
    def monotonic_s(self) -> float:
        return time.monotonic()

    @override
    def unix_s(self) -> float:
        return time.time()

    @override
    def wait(self, seconds: float) -> bool:
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
