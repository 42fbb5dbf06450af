"""How long a search may take: a value, in seconds or in branches."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.errors import require

_SHARES = 8
"""The share of the first search in an effort is one of so many."""
_PART_S = 0.0005
"""Building the model and posting one plan, by part (measured: 0.36 ms); that cannot be interrupted."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The first search gets `first_s` seconds, each further one twice as many; in sum `total_s` at most.

    With `effort` the same in branches, an eighth of them for the first search, and no clock is read.
    `restarts` in a row that bring nothing end it all (cp19 section 3: delta_max, delta, k).
    """

    total_s: float
    first_s: float
    restarts: int
    effort: int | None = None

    def __post_init__(self) -> None:
        require(self.total_s > 0, "limit_s", self.total_s, "must be positive")
        require(self.first_s > 0, "first_limit_s", self.first_s, "must be positive")
        require(self.restarts > 0, "restarts", self.restarts, "must be positive")
        require(self.effort is None or self.effort > 0, "effort", self.effort, "must be positive")

    def covers(self, parts: int) -> bool:
        """Whether a model of so many parts can be built and verified in the time there is."""
        return self.effort is not None or parts * _PART_S <= self.total_s

    def verifies(self, parts: int) -> bool:
        """Whether verifying a plan of so many parts costs no more than the first search."""
        return self.effort is not None or parts * _PART_S <= self.first_s

    @property
    def total(self) -> int:
        """All there is: branches, or milliseconds."""
        return self.effort if self.effort is not None else int(self.total_s * 1000)

    @property
    def first(self) -> int:
        """What the first search gets: branches, or milliseconds."""
        return max(1, self.effort // _SHARES) if self.effort is not None else max(1, int(self.first_s * 1000))
