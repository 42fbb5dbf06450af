"""Report the progress of compilation: the current kernel and the time spent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Watcher = Callable[[str, int, int], None]
"""A callback that receives the kernel's name, the number of functions compiled so far, and their total number."""

_said: set[str] = set()


def log_once(message: str) -> None:
    """Log a message once. Without handlers, Python prints warnings to stderr."""
    if message not in _said:
        _said.add(message)
        logging.getLogger("cpsched").warning(message)


def _log_compilation(name: str, done: int, total: int) -> None:
    log_once("compiling kernels; later runs load them from the cache")


_watcher: Watcher = _log_compilation


def set_progress_callback(watcher: Watcher) -> None:
    """Report future progress to `watcher` instead of logging a single line."""
    global _watcher
    _watcher = watcher


def current_progress_callback() -> Watcher:
    """Return the active callback."""
    return _watcher


class CompilationCancelled(BaseException):
    """Raised if the compiler must stop. Numba would wrap a subclass of `Exception`."""


_check: Callable[[], bool] = bool
"""The check that returns whether the compiler must stop."""


@contextmanager
def cancel_compilation_if(check: Callable[[], bool]) -> Iterator[None]:
    """Within the block, raise `CompilationCancelled` after `check` returns true.

    The compiler calls `check` at each step, in its own thread.
    """
    global _check
    former, _check = _check, check
    try:
        yield
    finally:
        _check = former


def raise_if_cancelled() -> None:
    """Raise `CompilationCancelled` if the compiler must stop."""
    if _check():
        raise CompilationCancelled


def _report_progress(name: str, done: int, total: int) -> None:
    raise_if_cancelled()
    _watcher(name, done, total)


class KernelCompileProgress:
    """The progress of one kernel's compilation. A cached kernel reports no progress."""

    def __init__(self, name: str, functions: Sequence[Callable[..., Any]]) -> None:
        self._name, self._waiting, self._total, self._compiles = name, set(functions), len(functions), False

    def mark_uncached(self) -> None:
        """Record that the kernel is not in the cache."""
        self._compiles = True
        _report_progress(self._name, 0, self._total)

    def mark_function_compiled(self, function: Callable[..., Any]) -> None:
        """Record that a function is compiled, for the first time or for additional types."""
        if self._compiles and function in self._waiting:
            self._waiting.remove(function)
            _report_progress(self._name, self._total - len(self._waiting), self._total)

    def __enter__(self) -> None:
        _under_way.append(self)

    def __exit__(self, *exc: object) -> None:
        _under_way.remove(self)
        if self._compiles and self._waiting and exc[0] is None:
            _watcher(self._name, self._total, self._total)


_under_way: list[KernelCompileProgress] = []


def on_function_compiled(function: Callable[..., Any]) -> None:
    """Record that a subroutine was compiled as part of the kernels in progress."""
    for progress in _under_way:
        progress.mark_function_compiled(function)


Clock = Callable[[], tuple[int, float]]
"""A function that returns wall-clock time in nanoseconds and CPU time in seconds."""

_clock: Clock | None = None
_spent = (0, 0.0)
_opening = False


def set_compile_clock(clock: Clock) -> None:
    """Use `clock` for all later measurements. The core has no clock of its own."""
    global _clock
    _clock = clock


def compile_seconds() -> tuple[int, float]:
    """Return the wall-clock nanoseconds and CPU seconds spent on loading kernels.

    The times include importing the compiler and compiling kernels.
    """
    return _spent


def is_compiling() -> bool:
    """Return whether the compiler is being imported, or a kernel loaded or compiled."""
    return _opening


@contextmanager
def measure_compilation() -> Iterator[None]:
    """Measure the time to load a kernel, including kernels loaded within the block."""
    global _spent, _opening
    if _clock is None or _opening:
        yield
        return
    _opening, began = True, _clock()
    try:
        yield
    finally:
        ended = _clock()
        _spent = (_spent[0] + ended[0] - began[0], _spent[1] + ended[1] - began[1])
        _opening = False
