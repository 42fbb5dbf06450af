"""Define search limits in seconds or in branches."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.dispatchers.cp.cp_dispatcher_config import Control
from cpsched.errors import require

_FIRST_SEARCH_DIVISOR = 8
"""Divisor of the effort that yields the limit for the first search."""


@dataclass(frozen=True, slots=True)
class RestartSearchLimits:
    """The limits of one call, `total_s`, and of its first search, `first_s`.

    With `effort`, the limit is in branches, with an eighth for the first search, and no clock is read. The call ends
    after `restarts` consecutive searches without improvement (cp19 section 3: delta_max, delta, k). A model is not
    built if building and propagating it, which cannot be interrupted, is expected to take more than `model_s` seconds.
    """

    total_s: float
    first_s: float
    restarts: int
    effort: int | None = None
    model_s: float = 0.1
    control: Control = "stops"
    """The action after a search without improvement (see `cp_dispatcher_config.VALUE_MEANINGS`)."""
    seed: int = 0
    """The seed of the perturbed orders."""

    def __post_init__(self) -> None:
        require(self.total_s > 0, "limit_s", self.total_s, "must be positive")
        require(self.first_s > 0, "first_limit_s", self.first_s, "must be positive")
        require(self.restarts > 0, "restarts", self.restarts, "must be positive")
        require(self.model_s >= 0, "model_s", self.model_s, "must not be negative")
        require(self.effort is None or self.effort > 0, "effort", self.effort, "must be positive")

    def is_model_within_limit(self, build_time_s: float) -> bool:
        """Return whether a model that takes `build_time_s` seconds is within the limits.

        `build_time_s` is the time to build and propagate the model. Releasing it takes the same time again.
        """
        return build_time_s <= self.model_s and (self.effort is not None or 2 * build_time_s <= self.total_s)

    @property
    def total_budget(self) -> int:
        """Limit for the whole call, in branches or milliseconds."""
        return self.effort if self.effort is not None else int(self.total_s * 1000)

    @property
    def first_budget(self) -> int:
        """Limit for the first search, in branches or milliseconds."""
        return (
            max(1, self.effort // _FIRST_SEARCH_DIVISOR)
            if self.effort is not None
            else max(1, int(self.first_s * 1000))
        )
