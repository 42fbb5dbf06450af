"""How long slurmctld may take to answer a reading: it follows the pace seen, and what answers is not stuck."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cpsched_bridge.errors import BackendTimeout

MOST_TIMES = 6.0
"""The longest silence, in times of that which the settings allow; and an answer that goes on, in times of a silence."""


@dataclass(slots=True)
class StallTimeout:
    """How long a program may be silent: `least_s`, twice as long after each reading that failed for it."""

    least_s: float
    silence_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.silence_s = self.least_s

    @property
    def most_s(self) -> float:
        """How long a program may take that prints all the while: the more there is to print, the longer that takes."""
        return MOST_TIMES * self.silence_s

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Follow one reading."""
        try:
            yield
        except BackendTimeout:
            self.silence_s = min(2 * self.silence_s, MOST_TIMES * self.least_s)
            raise
        self.silence_s = max(self.silence_s / 2, self.least_s)
