"""What the search minimises: the sum of slowdowns (s - q + d) / d of the considered jobs (cp19 section 4).

Up to a constant that is the *weighted delay*: the sum of weight times (start - now), with weight 1 / d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

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


def scaled(weights: npt.NDArray[np.float64], horizon_s: int) -> list[int]:
    """`weights` as integers, as precise as their largest possible sum of delays allows in 60 bits."""
    factor = min(2.0**_BITS / (float(weights.sum()) * max(1, horizon_s)), _LEAST / float(weights.min()))
    return [max(1, round(weight * factor)) for weight in weights.tolist()]


def weighted_delay(variables: Variables, weights: list[int]) -> Any:
    """The solver's objective, from scaled weights."""
    return variables.solver.ScalProd(variables.start, weights).Var()


def delay_of(plan: Plan, now_s: int, weights: list[int]) -> int:
    """The value of `weighted_delay` for `plan`."""
    return sum(weight * (start - now_s) for weight, start in zip(weights, plan.start_s.tolist(), strict=True))
