"""Limit how long slurmctld may be silent during a reading, based on its recent response times.

A program that is still printing is not stuck.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cpsched_bridge.errors import BackendTimeout

MOST_TIMES = 6.0
"""Factor for the maximum silence (times `least_s`) and for the maximum duration of an answer (times the silence)."""


@dataclass(slots=True)
class AdaptiveIdleTimeout:
    """A limit on a program's silence, of at least `least_s` seconds.

    A reading that times out doubles the limit, and a successful one halves it.
    """

    least_s: float
    silence_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.silence_s = self.least_s

    @property
    def limit_s(self) -> float:
        """Return the time limit in seconds of a program that keeps printing a long answer."""
        return MOST_TIMES * self.silence_s

    @contextmanager
    def track_reading(self) -> Iterator[None]:
        """Track the reading inside the context, and adapt the limit to its result."""
        try:
            yield
        except BackendTimeout:
            self.silence_s = min(2 * self.silence_s, MOST_TIMES * self.least_s)
            raise
        self.silence_s = max(self.silence_s / 2, self.least_s)
