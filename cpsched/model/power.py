"""A cap of power: the most that all running jobs may draw together, and what each of them is taken to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cpsched.errors import require

if TYPE_CHECKING:
    from cpsched.model.job import Request


@dataclass(frozen=True, slots=True)
class PowerCap:
    """All running jobs together draw `cap_w` watts at most. Part of a `Cluster`, and so known to all that judge.

    `watts` are pairs: the name of a resource, and what a job draws for each amount of it that the job asks for.
    Raises `InvalidValue` for a cap that is not positive, or watts that are negative or missing.
    """

    cap_w: int
    watts: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        require(self.cap_w > 0, "power.cap_w", self.cap_w, "must be positive")
        require(bool(self.watts), "power.watts", "", "must say what a job draws for each amount of a resource")
        for name, each in self.watts:
            require(each >= 0, f"power.watts.{name}", each, "must not be negative")

    @classmethod
    def of(cls, cap_w: int, watts: Mapping[str, int]) -> PowerCap:
        """The cap, with watts by resource."""
        return cls(cap_w, tuple(watts.items()))

    def draw_w(self, request: Request, resources: Sequence[str]) -> int:
        """Watts of a job with this request, on a cluster of these resources."""
        watts = dict(self.watts)
        each = sum(amount * watts.get(name, 0) for name, amount in zip(resources, request.per_unit, strict=True))
        return request.units * each
