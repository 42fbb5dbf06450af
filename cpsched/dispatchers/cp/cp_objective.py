"""Define search objectives, in which each job's cost grows with its start time.

A job costs nothing until `since_s`, and `weight` per second afterwards. For example, a 100 s job was submitted 50 s ago
and is planned to start in 20 s. Its slowdown is (20 + 50 + 100) / 100 = 1.7. The delay from now on adds 0.2 of it
(weight 1 / 100), and 1.5 is constant. Formulas use start s, submission q, estimate d and the queue's expected wait ewt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.kernels.cp.cp_state import WeightedDelayObjective
from cpsched.model import BSLD_BOUND_S, IntArray, Snapshot
from cpsched.site.priority_multipliers import site_rank_multipliers

if TYPE_CHECKING:
    from cpsched.dispatchers.cp.decision_builder import ConstraintModel

FloatArray = npt.NDArray[np.float64]
_OBJECTIVE_BITS = 60
"""Number of bits in the scaled objective, less than the solver's 64."""
_MIN_SCALED_WEIGHT = 1e7
"""Upper bound on the smallest scaled weight. At this bound, its relative rounding error is 5e-8."""


# ------------------------------------------------------------------------------------------------ the objectives


def slowdown_objective(snapshot: Snapshot, jobs: IntArray, waits: ExpectedQueueWaits) -> WeightedDelayObjective:
    """Return the sum of slowdowns (s - q + d) / d (cp19 section 4)."""
    return _build_wait_objective(snapshot, jobs, 1.0 / snapshot.table.estimate_s[jobs], len(jobs))


def relative_lateness_objective(
    snapshot: Snapshot, jobs: IntArray, waits: ExpectedQueueWaits
) -> WeightedDelayObjective:
    """Return the sum of max(0, (s - q - ewt) / ewt) (cp19 section 2.2: PCP)."""
    expected_s = expected_wait_by_job_s(snapshot, jobs, waits)
    due_s = snapshot.table.submit_s[jobs] + np.rint(expected_s).astype(np.int64)
    return _build_delay_objective(snapshot.now_s, due_s, 1.0 / expected_s, 0.0)


def weighted_wait_objective(snapshot: Snapshot, jobs: IntArray, waits: ExpectedQueueWaits) -> WeightedDelayObjective:
    """Return the sum of max(ewt) / ewt * (s - q) (cp19 section 2.2: HCP)."""
    expected_s = expected_wait_by_job_s(snapshot, jobs, waits)
    return _build_wait_objective(snapshot, jobs, expected_s.max() / expected_s, 0.0)


def total_wait_objective(snapshot: Snapshot, jobs: IntArray, waits: ExpectedQueueWaits) -> WeightedDelayObjective:
    """Return the sum of waits s - q (mod17 section 4: CPH)."""
    return _build_wait_objective(snapshot, jobs, np.ones(len(jobs)), 0.0)


def mean_response_objective(snapshot: Snapshot, jobs: IntArray, waits: ExpectedQueueWaits) -> WeightedDelayObjective:
    """Return the mean response time F = s - q + d (debs24 equation 4)."""
    mean_s = float(snapshot.table.estimate_s[jobs].mean())
    return _build_wait_objective(snapshot, jobs, np.full(len(jobs), 1.0 / len(jobs)), mean_s)


def area_weighted_response_objective(
    snapshot: Snapshot, jobs: IntArray, waits: ExpectedQueueWaits
) -> WeightedDelayObjective:
    """Return the mean response time weighted by area r * d (debs24 equation 5)."""
    area = job_areas(snapshot, jobs)
    weight = area / area.sum()
    return _build_wait_objective(snapshot, jobs, weight, float((weight * snapshot.table.estimate_s[jobs]).sum()))


def bounded_slowdown_objective(snapshot: Snapshot, jobs: IntArray, waits: ExpectedQueueWaits) -> WeightedDelayObjective:
    """Return the mean bounded slowdown, max(1, F / max(d, 10)) (debs24 equation 3)."""
    table = snapshot.table
    bounded_s = np.maximum(table.estimate_s[jobs], BSLD_BOUND_S)
    due_s = table.submit_s[jobs] + bounded_s - table.estimate_s[jobs]
    return _build_delay_objective(snapshot.now_s, due_s, 1.0 / (len(jobs) * bounded_s), 1.0)


def with_site_priority(
    objective: WeightedDelayObjective, snapshot: Snapshot, jobs: IntArray, site_weight: float
) -> WeightedDelayObjective:
    """Return `objective` with weights multiplied by the site's priority factors.

    The constant is unchanged (see `cpsched.site.priority_multipliers`). The default of `site_weight` is 0. The bridge
    sets it to 1 if the cluster ranks its jobs, as Slurm does.
    """
    weight = objective.weight * site_priority_factors(snapshot, jobs, site_weight, objective.weight)
    return WeightedDelayObjective(weight, objective.since_s, objective.constant)


def site_priority_factors(snapshot: Snapshot, jobs: IntArray, site_weight: float, own: FloatArray) -> FloatArray:
    """Return the site's factors for `own`, the weights of `jobs`, float64[J]."""
    table = snapshot.table
    return site_rank_multipliers(table.tier[jobs], table.priority[jobs], site_weight, own)


def job_areas(snapshot: Snapshot, jobs: IntArray) -> FloatArray:
    """Return each job's area (processors times estimate), at least 1, float64[J]."""
    table = snapshot.table
    found: FloatArray = (table.units[jobs] * table.per_unit[jobs, 0] * table.estimate_s[jobs]).astype(np.float64)
    return np.maximum(found, 1.0)


def expected_wait_by_job_s(snapshot: Snapshot, jobs: IntArray, waits: ExpectedQueueWaits) -> FloatArray:
    """Return the expected wait of each job's queue, in seconds, float64[J]."""
    names = [snapshot.table.jobs[slot].queue for slot in jobs.tolist()]
    by_name = {name: waits.expected_wait_s(name) for name in set(names)}
    return np.array([by_name[name] for name in names], np.float64)


def _build_wait_objective(
    snapshot: Snapshot, jobs: IntArray, weight: FloatArray, constant: float
) -> WeightedDelayObjective:
    """Return the objective of weighted waits, with past waits added to `constant`."""
    waited_s = snapshot.now_s - snapshot.table.submit_s[jobs]
    return WeightedDelayObjective(
        weight, np.full(len(jobs), snapshot.now_s, np.int64), float((weight * waited_s).sum()) + float(constant)
    )


def _build_delay_objective(now_s: int, due_s: IntArray, weight: FloatArray, constant: float) -> WeightedDelayObjective:
    """Return the weighted sum of the delays after `due_s`, plus `constant`."""
    overdue_s = np.maximum(0, now_s - due_s)
    return WeightedDelayObjective(weight, np.maximum(due_s, now_s), float((weight * overdue_s).sum()) + float(constant))


Make = Callable[[Snapshot, IntArray, ExpectedQueueWaits], WeightedDelayObjective]
ObjectiveName = Literal["slowdown", "late", "weighted-wait", "wait", "af", "awf", "bsld"]
OBJECTIVES: dict[ObjectiveName, Make] = {
    "slowdown": slowdown_objective,
    "late": relative_lateness_objective,
    "weighted-wait": weighted_wait_objective,
    "wait": total_wait_objective,
    "af": mean_response_objective,
    "awf": area_weighted_response_objective,
    "bsld": bounded_slowdown_objective,
}
"""Functions that build the objectives, by name."""


# ------------------------------------------------------------------------------------------------ the priorities


def sort_by_slowdown(snapshot: Snapshot, jobs: IntArray) -> IntArray:
    """Return `jobs` by descending slowdown at the snapshot's time, then by arrival."""
    waited_s = snapshot.now_s - snapshot.table.submit_s[jobs]
    return jobs[np.argsort(-waited_s / snapshot.table.estimate_s[jobs], kind="stable")]


def sort_by_urgency(snapshot: Snapshot, jobs: IntArray, waits: ExpectedQueueWaits) -> IntArray:
    """Return `jobs` by descending wait / ewt, then smaller area (cp19 section 2.2)."""
    waited_s = snapshot.now_s - snapshot.table.submit_s[jobs]
    return jobs[np.lexsort((job_areas(snapshot, jobs), -waited_s / expected_wait_by_job_s(snapshot, jobs, waits)))]


PriorityName = Literal["slowdown", "urgency", "none"]


def sort_by_priority_rule(
    name: PriorityName, snapshot: Snapshot, jobs: IntArray, waits: ExpectedQueueWaits
) -> IntArray:
    """Return `jobs`, given in arrival order, with the highest priority first."""
    if name == "slowdown":
        return sort_by_slowdown(snapshot, jobs)
    return sort_by_urgency(snapshot, jobs, waits) if name == "urgency" else jobs


# ------------------------------------------------------------------------------------------------ for the solver


@dataclass(frozen=True, slots=True)
class IntegerDelayCosts:
    """The cost of delays as integers, as the solver requires."""

    weights: tuple[int, ...]
    since_s: tuple[int, ...]
    now_s: int

    @classmethod
    def from_objective(cls, objective: WeightedDelayObjective, now_s: int, horizon_s: int) -> IntegerDelayCosts:
        """Return integer costs, scaled so that the largest possible cost fits in 60 bits."""
        weight = objective.weight
        factor = min(
            2.0**_OBJECTIVE_BITS / (float(weight.sum()) * max(1, horizon_s)), _MIN_SCALED_WEIGHT / float(weight.min())
        )
        whole = tuple(max(1, round(each * factor)) for each in weight.tolist())
        return cls(whole, tuple(objective.since_s.tolist()), now_s)

    def build_cost_variable(self, model: ConstraintModel) -> Any:
        """Return the cost of delays as a solver variable."""
        solver, terms = model.solver, []
        for start, since_s in zip(model.start, self.since_s, strict=True):
            after = since_s - self.now_s
            terms.append(solver.Max(start - after, 0).Var() if after > 0 else start)
        return solver.ScalProd(terms, list(self.weights)).Var()

    def cost_of_plan(self, start_s: IntArray) -> int:
        """Return the cost of delays in a plan."""
        rows = zip(self.weights, self.since_s, start_s.tolist(), strict=True)
        return sum(weight * max(0, start - since) for weight, since, start in rows)
