"""Progress of compiling, for whoever waits: which door, how far, and how long it took."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Watcher = Callable[[str, int, int], None]
"""Called at every step with the door that is compiled, how many of its functions are done, and how many it has."""

_said: set[str] = set()


def log_once(message: str) -> None:
    """Put a message in the log; Python shows a warning of a log without handlers on stderr."""
    if message not in _said:
        _said.add(message)
        logging.getLogger("cpsched").warning(message)


def _say_that_it_takes_time(name: str, done: int, total: int) -> None:
    log_once("compiling the kernels; the next run finds them in the cache")


_watcher: Watcher = _say_that_it_takes_time


def set_progress_callback(watcher: Watcher) -> None:
    """Report progress to `watcher` from now on, instead of with one line in the log."""
    global _watcher
    _watcher = watcher


def progress_callback() -> Watcher:
    """The watcher in force."""
    return _watcher


class CompilationCancelled(BaseException):
    """The caller's check stopped the compiler. Numba wraps each `Exception` that passes through it, but not this."""


_check: Callable[[], bool] = bool
"""Whether the compiler is to stop."""


@contextmanager
def cancellable_by(check: Callable[[], bool]) -> Iterator[None]:
    """Within the block, raise `CompilationCancelled` from the compiler's next step on if `check` says so in its
    thread.
    """
    global _check
    former, _check = _check, check
    try:
        yield
    finally:
        _check = former


def raise_if_cancelled() -> None:
    """Raise `CompilationCancelled` if the compiler is to stop."""
    if _check():
        raise CompilationCancelled


def _step(name: str, done: int, total: int) -> None:
    raise_if_cancelled()
    _watcher(name, done, total)


class Progress:
    """Progress of one door: how many of its functions are compiled. A door from the cache reports nothing."""

    def __init__(self, name: str, functions: Sequence[Callable[..., Any]]) -> None:
        self._name, self._waiting, self._total, self._compiles = name, set(functions), len(functions), False

    def begin(self) -> None:
        """The door is not in the cache."""
        self._compiles = True
        _step(self._name, 0, self._total)

    def done(self, function: Callable[..., Any]) -> None:
        """One function is compiled, for the first time or for further types."""
        if self._compiles and function in self._waiting:
            self._waiting.remove(function)
            _step(self._name, self._total - len(self._waiting), self._total)

    def __enter__(self) -> None:
        _under_way.append(self)

    def __exit__(self, *exc: object) -> None:
        _under_way.remove(self)
        if self._compiles and self._waiting and exc[0] is None:
            _watcher(self._name, self._total, self._total)


_under_way: list[Progress] = []


def function_done(function: Callable[..., Any]) -> None:
    """A helper was compiled as a part of the door, or doors, under way."""
    for progress in _under_way:
        progress.done(function)


Clock = Callable[[], tuple[int, float]]
"""Nanoseconds on the wall, and seconds of CPU."""

_clock: Clock | None = None
_spent = (0, 0.0)
_opening = False


def set_clock(clock: Clock) -> None:
    """Measure with `clock` from now on. The core has no clock of its own."""
    global _clock
    _clock = clock


def compile_seconds() -> tuple[int, float]:
    """Time spent on opening doors so far, by the clock: importing the compiler, loading, compiling."""
    return _spent


def is_compiling() -> bool:
    """Whether a door is being opened now: the compiler is imported, or compiles, or kernels are loaded."""
    return _opening


@contextmanager
def compilation() -> Iterator[None]:
    """Measure the opening of a door. A door opened meanwhile counts as a part of it."""
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
