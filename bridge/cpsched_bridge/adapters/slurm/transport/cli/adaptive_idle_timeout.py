"""Limit how long slurmctld may be silent during a reading.

The limit depends on earlier readings. A program that is still printing is not stuck.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cpsched_bridge.errors import BackendTimeout

MAX_TIMEOUT_FACTOR = 6.0
"""Maximum silence as a multiple of `least_s`, and maximum duration of an answer as a multiple of the silence."""


@dataclass(slots=True)
class AdaptiveIdleTimeout:
    """A limit on how long a program may print nothing, at least `least_s` seconds.

    A reading that times out doubles the limit, and a successful reading halves it.
    """

    least_s: float
    silence_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.silence_s = self.least_s

    @property
    def limit_s(self) -> float:
        """The time limit in seconds for a program that keeps printing a long answer."""
        return MAX_TIMEOUT_FACTOR * self.silence_s

    @contextmanager
    def track_reading(self) -> Iterator[None]:
        """Track the reading inside the context, and adapt the limit to its result."""
        try:
            yield
        except BackendTimeout:
            self.silence_s = min(2 * self.silence_s, MAX_TIMEOUT_FACTOR * self.least_s)
            raise
        self.silence_s = max(self.silence_s / 2, self.least_s)
