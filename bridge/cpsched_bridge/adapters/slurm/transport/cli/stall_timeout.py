"""Limit how long slurmctld may be silent during a reading, by its recent pace.

A program that still prints is not stuck.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cpsched_bridge.errors import BackendTimeout

MOST_TIMES = 6.0
"""Maximum silence, in multiples of the configured one; and maximum duration of an answer, in silences."""


@dataclass(slots=True)
class StallTimeout:
    """Limit a program's silence: `least_s`, doubled by each reading that exceeds it."""

    least_s: float
    silence_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.silence_s = self.least_s

    @property
    def most_s(self) -> float:
        """Return the time limit of a program that keeps printing.

        Longer answers take longer.
        """
        return MOST_TIMES * self.silence_s

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Adapt the limit to one reading."""
        try:
            yield
        except BackendTimeout:
            self.silence_s = min(2 * self.silence_s, MOST_TIMES * self.least_s)
            raise
        self.silence_s = max(self.silence_s / 2, self.least_s)
