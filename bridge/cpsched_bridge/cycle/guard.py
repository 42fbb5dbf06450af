"""What keeps the bridge from doing harm: a bound on commands, and the count of failures that makes it stand down."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from cpsched_bridge.errors import NotReady
from cpsched_bridge.ports import Check
from cpsched_bridge.settings import GuardSettings

T = TypeVar("T")


@dataclass(slots=True)
class Allowance:
    """How many jobs a cycle may still send commands for. What is asked for first is sent; the rest waits."""

    left: int

    def take(self, wanted: Sequence[T]) -> list[T]:
        """The first of `wanted` that are still allowed."""
        taken = list(wanted[: self.left])
        self.left -= len(taken)
        return taken


@dataclass(slots=True)
class FailureWatch:
    """Counts what goes wrong and says when it is too much to carry on."""

    settings: GuardSettings
    _starts: deque[tuple[float, bool]] = field(default_factory=deque)
    _failed: int = 0
    _bad_decisions: int = 0

    def started(self, at_s: float, results: Iterable[bool]) -> None:
        """Take note of starts that came true (True) or did not (False), at a monotonic time."""
        for result in results:
            self._starts.append((at_s, result))
            self._failed += not result

    def decided(self, good: bool) -> None:
        """Take note of a decision that was applicable, or was not."""
        self._bad_decisions = 0 if good else self._bad_decisions + 1

    def verdict(self, now_s: float) -> str | None:
        """Why the bridge must stand down; None if it may go on."""
        while self._starts and self._starts[0][0] < now_s - self.settings.window_s:
            self._failed -= not self._starts.popleft()[1]
        if self._failed >= self.settings.max_failed_starts and 2 * self._failed > len(self._starts):
            return f"{self._failed} of {len(self._starts)} starts failed within {self.settings.window_s:g} s"
        if self._bad_decisions >= self.settings.max_failed_decisions:
            return f"{self._bad_decisions} decisions in a row failed"
        return None

    def reset(self) -> None:
        """Begin anew, after a resume."""
        self._starts.clear()
        self._failed = 0
        self._bad_decisions = 0


def require_ready(checks: Iterable[Check]) -> None:
    """Raise `NotReady` naming every required check that fails and how to mend it."""
    broken = [check for check in checks if check.required and not check.ok]
    if broken:
        lines = (f"  {check.name}: {check.detail}; {check.mend}".rstrip("; ") for check in broken)
        raise NotReady("control mode is refused until these hold:\n" + "\n".join(lines))
