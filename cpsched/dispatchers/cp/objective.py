"""What the search minimises: the sum of slowdowns (s - q + d) / d of the considered jobs (cp19 section 4).

Up to a constant that is the *weighted delay*: the sum of weight times (start - now), with weight 1 / d. A job of 100 s
that was submitted 50 s ago and is planned to start in 20 s has slowdown (20 + 50 + 100) / 100 = 1.7; of that 0.2 is its
weighted delay, and 1.5 is constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cpsched._jit import Column, Floats, kernel
from cpsched.dispatchers.cp.positions import Facts, Plan
from cpsched.model import IntArray, Snapshot

if TYPE_CHECKING:  # it imports the solver
    from cpsched.dispatchers.cp.variables import Variables

_BITS = 60
"""Room for the scaled objective; the solver counts in 64."""
_LEAST = 1e7
"""Enough for the smallest scaled weight: its rounding loses 5e-8."""


def by_slowdown(snapshot: Snapshot, jobs: IntArray) -> IntArray:
    """`jobs` by slowdown (t - q + d) / d at the moment of the snapshot, largest first, then in arrival order."""
    waited_s = snapshot.now_s - snapshot.table.submit_s[jobs]
    return jobs[np.argsort(-waited_s / snapshot.table.estimate_s[jobs], kind="stable")]


def slowdown_weights(facts: Facts) -> npt.NDArray[np.float64]:
    """What one second of delay costs, by job: 1 / d."""
    weights: npt.NDArray[np.float64] = 1.0 / facts.estimate_s[facts.jobs]
    return weights


@kernel
def delay(now_s: int, weights: Floats, start_s: Column) -> float:
    """The weighted delay of a plan: the sum of weight times (start - now), by job in order."""
    total = 0.0
    for j in range(len(weights)):
        total += weights[j] * (start_s[j] - now_s)
    return total


def constant(snapshot: Snapshot, facts: Facts, weights: npt.NDArray[np.float64]) -> float:
    """What the sum of slowdowns has beside the weighted delay: what the jobs have waited so far, and 1 for each."""
    waited_s = snapshot.now_s - snapshot.table.submit_s[facts.jobs]
    return float((weights * waited_s).sum()) + len(facts.jobs)


@dataclass(frozen=True, slots=True)
class Scaled:
    """The weighted delay as the solver sees it: in integers."""

    now_s: int
    weights: tuple[int, ...]

    @classmethod
    def of(cls, weights: npt.NDArray[np.float64], now_s: int, horizon_s: int) -> Scaled:
        """Integers as precise as the largest possible sum of delays allows in 60 bits."""
        factor = min(2.0**_BITS / (float(weights.sum()) * max(1, horizon_s)), _LEAST / float(weights.min()))
        return cls(now_s, tuple(max(1, round(weight * factor)) for weight in weights.tolist()))

    def expression(self, variables: Variables) -> Any:
        """`delay` of what the solver decides; its starts are seconds from now."""
        return variables.solver.ScalProd(variables.start, list(self.weights)).Var()

    def value(self, plan: Plan) -> int:
        """`delay` of a plan."""
        starts = plan.start_s.tolist()
        return sum(weight * (start - self.now_s) for weight, start in zip(self.weights, starts, strict=True))
