"""How long a search may take: a value, in seconds or in branches."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.dispatchers.cp.model_choice import Control
from cpsched.errors import require

_SHARES = 8
"""The share of the first search in an effort is one of so many."""


@dataclass(frozen=True, slots=True)
class SearchLimit:
    """A search gets `first_s` seconds, twice as many after one that brought nothing; in sum `total_s` at most.

    With `effort` the same in branches, an eighth of them for the first search, and no clock is read.
    `restarts` in a row that bring nothing end it all (cp19 section 3: delta_max, delta, k). No model is built that is
    expected to take more than `model_s` to build and propagate, which nothing interrupts; that goes by its size.
    """

    total_s: float
    first_s: float
    restarts: int
    effort: int | None = None
    model_s: float = 0.1
    control: Control = "stops"
    """What follows a search that found nothing new, see `model_choice.WORDS`."""

    def __post_init__(self) -> None:
        require(self.total_s > 0, "limit_s", self.total_s, "must be positive")
        require(self.first_s > 0, "first_limit_s", self.first_s, "must be positive")
        require(self.restarts > 0, "restarts", self.restarts, "must be positive")
        require(self.model_s >= 0, "model_s", self.model_s, "must not be negative")
        require(self.effort is None or self.effort > 0, "effort", self.effort, "must be positive")

    def covers(self, cost_s: float) -> bool:
        """Whether a model that takes so many seconds to build and propagate is to be built.

        Taking it down takes as long again.
        """
        return cost_s <= self.model_s and (self.effort is not None or 2 * cost_s <= self.total_s)

    @property
    def total(self) -> int:
        """All there is: branches, or milliseconds."""
        return self.effort if self.effort is not None else int(self.total_s * 1000)

    @property
    def first(self) -> int:
        """What the first search gets: branches, or milliseconds."""
        return max(1, self.effort // _SHARES) if self.effort is not None else max(1, int(self.first_s * 1000))
