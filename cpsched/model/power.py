"""Define the cap on running jobs' total power draw, and each job's assumed draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cpsched.errors import require

if TYPE_CHECKING:
    from cpsched.model.job import Request


@dataclass(frozen=True, slots=True)
class PowerCap:
    """A limit of `cap_w` watts on running jobs' total draw, which `verify` checks.

    `watts` contains (resource name, watts per unit of the requested amount) pairs. The constructor raises
    `InvalidValue` for a cap that is not positive, and for watts that are negative or missing.
    """

    cap_w: int
    watts: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        require(self.cap_w > 0, "power.cap_w", self.cap_w, "must be positive")
        require(bool(self.watts), "power.watts", "", "must contain at least one resource")
        for name, each in self.watts:
            require(each >= 0, f"power.watts.{name}", each, "must not be negative")

    @classmethod
    def of(cls, cap_w: int, watts: Mapping[str, int]) -> PowerCap:
        """Return a cap from watts by resource name."""
        return cls(cap_w, tuple(watts.items()))

    def draw_w(self, request: Request, resources: Sequence[str]) -> int:
        """Return the power draw in watts of a job with this request."""
        watts = dict(self.watts)
        each = sum(amount * watts.get(name, 0) for name, amount in zip(resources, request.per_unit, strict=True))
        return request.units * each
