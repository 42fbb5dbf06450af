"""Plan start times on pools with CP-SAT (debs24 section 2.3).

A model covers either one round, in which all jobs may start from now on, or a trace with release times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from cpsched.kernels.cp.cp_state import WeightedDelayObjective
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.model import IntArray

FloatArray = npt.NDArray[np.float64]
_MAX_OBJECTIVE = 2.0**52
"""Upper bound on the objective, which keeps the solver's sums within 64 bits."""
_TABLE_ENTRIES = 16
"""Number of entries in each job's cost table."""
_MAX_ITERATIONS = 3
"""Maximum number of iterations of Dinkelbach's algorithm, each of which solves the model again."""


@dataclass(frozen=True, slots=True)
class PoolSchedulingProblem:
    """A set of J jobs to plan on K pools. Times are in seconds from `now_s`."""

    now_s: int
    release_s: IntArray
    """Earliest start of each job, int64[J]."""
    duration_s: IntArray
    demand: IntArray
    """Amount that each job needs from each pool, int64[J, K]."""
    moment_s: IntArray
    """Times at which running jobs release resources, int64[E], starting with 0."""
    capacity: IntArray
    """Available capacity from each time in `moment_s` on, int64[E, K]."""

    @property
    def horizon_s(self) -> int:
        """A time by which all jobs can end, even if they run one after another."""
        return int(max(self.moment_s[-1], self.release_s.max()) + self.duration_s.sum())


@dataclass(frozen=True, slots=True)
class CpSatBudget:
    """The solver's budget: seconds, or thousandths of its deterministic time."""

    seconds: float
    effort: int | None
    seed: int


@dataclass(frozen=True, slots=True)
class CpSatSolution:
    """A solution with absolute start times.

    `start_s` is None if the solver found no plan. `bound` is a proven lower bound on the cost, or None.
    """

    start_s: IntArray | None
    cost: float
    bound: float | None
    status: str
    seconds: float
    branches: int = 0


class CpSatModel:
    """The variables and constraints of a problem, without an objective."""

    def __init__(self, problem: PoolSchedulingProblem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        horizon_s, durations = problem.horizon_s, problem.duration_s.tolist()
        releases = problem.release_s.tolist()
        self.start = [
            self.model.new_int_var(release, horizon_s - duration_s, "")
            for release, duration_s in zip(releases, durations, strict=True)
        ]
        self.tasks = [
            self.model.new_fixed_size_interval_var(start, duration_s, "")
            for start, duration_s in zip(self.start, durations, strict=True)
        ]
        for k in range(problem.demand.shape[1]):
            self._limit_to_pool(k)

    def _limit_to_pool(self, k: int) -> None:
        """Limit the jobs to pool `k`, with amounts held by running jobs as fixed tasks."""
        problem, model = self.problem, self.model
        tasks = [(task, d) for task, d in zip(self.tasks, problem.demand[:, k].tolist(), strict=True) if d > 0]
        steps = np.diff(problem.capacity[:, k]).tolist()
        for until_s, amount in zip(problem.moment_s[1:].tolist(), steps, strict=True):
            if amount > 0:
                tasks.append((model.new_fixed_size_interval_var(0, until_s, ""), amount))
        if tasks:
            total = int(problem.capacity[-1, k])
            model.add_cumulative([task for task, _ in tasks], [amount for _, amount in tasks], total)

    def hint(self, start_s: IntArray) -> None:
        """Set the plan from which the search starts."""
        for start, at_s in zip(self.start, (start_s - self.problem.now_s).tolist(), strict=True):
            self.model.add_hint(start, at_s)


def solve_pool_problem(
    problem: PoolSchedulingProblem,
    objective: WeightedDelayObjective,
    budget: CpSatBudget,
    hint_s: IntArray | None = None,
) -> CpSatSolution:
    """Return the cheapest plan found within the budget, starting from any `hint_s`."""
    built = CpSatModel(problem)
    weight = objective.weight
    factor = min(_MAX_OBJECTIVE / (float(weight.sum()) * problem.horizon_s), 1e6 / float(weight.min()))
    terms: list[Any] = []
    whole = [max(1, round(each * factor)) for each in weight.tolist()]
    since_after = (objective.since_s - problem.now_s).tolist()
    for start, since_s in zip(built.start, since_after, strict=True):
        if since_s > 0:
            late = built.model.new_int_var(0, problem.horizon_s, "")
            built.model.add(late >= start - since_s)
            if hint_s is not None:  # a hint must include every variable
                built.model.add_hint(late, max(0, int(hint_s[len(terms)]) - problem.now_s - since_s))
            start = late
        terms.append(start)
    built.model.minimize(cp_model.LinearExpr.weighted_sum(terms, whole))
    if hint_s is not None:
        built.hint(hint_s)
    solver, status = _solve_model(built.model, budget)
    if status not in ("optimal", "feasible"):
        return CpSatSolution(None, np.inf, None, status, solver.wall_time)
    start_s = left_shift(problem, np.array([solver.value(start) for start in built.start], np.int64) + problem.now_s)
    cost = plan_delay_cost(objective, start_s)
    if status == "optimal":
        return CpSatSolution(start_s, cost, cost, status, solver.wall_time, solver.num_branches)
    # The solver counts delays from time zero, but the objective counts them from `since_s`, which can be earlier.
    constant = sum(each * min(0, since) for each, since in zip(whole, since_after, strict=True))
    bound = min(cost, (solver.best_objective_bound - constant) / factor)
    return CpSatSolution(start_s, cost, bound, status, solver.wall_time, solver.num_branches)


def left_shift(problem: PoolSchedulingProblem, start_s: IntArray) -> IntArray:
    """Return the plan in which each job starts as early as earlier jobs allow.

    No job starts later than before. A solver that stops early leaves gaps, and no event on the cluster marks their end.
    """
    total, J = problem.capacity[-1], len(start_s)
    running = np.diff(problem.capacity, axis=0)
    begin = np.concatenate((np.zeros(len(running), np.int64), np.empty(J, np.int64)))
    end = np.concatenate((problem.moment_s[1:], np.empty(J, np.int64)))
    demand, count = np.concatenate((running, np.empty((J, running.shape[1]), np.int64))), len(running)
    found = np.empty(J, np.int64)
    for j in np.argsort(start_s, kind="stable").tolist():
        release_s, asked = int(problem.release_s[j]), problem.demand[j]
        ends = np.unique(end[:count])
        for at_s in [release_s, *ends[ends > release_s].tolist()]:
            over = (begin[:count] < at_s + problem.duration_s[j]) & (end[:count] > at_s)
            # Usage rises only when a task begins.
            moments = np.unique(np.maximum(begin[:count][over], at_s))
            b, e, d = begin[:count][over], end[:count][over], demand[:count][over]
            if all((d[(b <= moment) & (e > moment)].sum(axis=0) + asked <= total).all() for moment in moments.tolist()):
                break
        begin[count], end[count], demand[count] = at_s, at_s + problem.duration_s[j], asked
        found[j] = at_s + problem.now_s
        count += 1
    return found


def trace_metric_objective(
    metric: str, submit_s: IntArray, run_s: IntArray, processors: IntArray
) -> WeightedDelayObjective:
    """Return bsld, af or awf of a whole trace as a cost of delays."""
    n, bounded_s = len(run_s), np.maximum(run_s, 10)
    if metric == "bsld":
        return WeightedDelayObjective(1.0 / (n * bounded_s), submit_s + bounded_s - run_s, 1.0)
    weight = np.full(n, 1.0 / n) if metric == "af" else processors * run_s / float((processors * run_s).sum())
    return WeightedDelayObjective(weight, submit_s.copy(), float((weight * run_s).sum()))


def _solve_model(model: Any, budget: CpSatBudget, share: float = 1.0) -> tuple[Any, str]:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.random_seed = 1, budget.seed
    if budget.effort is not None:
        solver.parameters.max_deterministic_time = share * budget.effort / 1000
    else:
        solver.parameters.max_time_in_seconds = share * budget.seconds
    status = solver.solve(model)
    words = {cp_model.OPTIMAL: "optimal", cp_model.FEASIBLE: "feasible", cp_model.INFEASIBLE: "infeasible"}
    return solver, words.get(status, "unknown")


# ------------------------------------------------------------------------------------------------------------- P2SF


def compute_p2sf(
    problem: PoolSchedulingProblem, submit_s: IntArray, processors: npt.ArrayLike, start_s: IntArray
) -> float:
    """Return P2SF: 3/4 * sum r (F^4 - W^4) / sum r (F^3 - W^3) (debs24 equation 6)."""
    upper, lower = _p2sf_numerator_and_denominator_terms(problem, submit_s, processors, start_s)
    return float(0.75 * upper.sum() / lower.sum())


def _p2sf_numerator_and_denominator_terms(
    problem: PoolSchedulingProblem, submit_s: IntArray, processors: npt.ArrayLike, start_s: IntArray
) -> tuple[FloatArray, FloatArray]:
    wait = (start_s - submit_s).astype(np.float64)
    response, r = wait + problem.duration_s, np.asarray(processors, np.float64)
    return r * (response**4 - wait**4), r * (response**3 - wait**3)


def solve_p2sf(
    problem: PoolSchedulingProblem, submit_s: IntArray, processors: npt.ArrayLike, budget: CpSatBudget, hint_s: IntArray
) -> CpSatSolution:
    """Minimize P2SF with Dinkelbach's algorithm and linearly interpolated costs.

    Let l be the ratio of a known plan. A plan for which the sum of r (F^4 - W^4) - l r (F^3 - W^3) is below 0 has a
    smaller ratio. No bound is proven, because the tables are exact only at their entries.
    """
    best, least = hint_s, compute_p2sf(problem, submit_s, processors, hint_s)
    seconds, status, branches = 0.0, "feasible", 0
    for _ in range(_MAX_ITERATIONS):
        ratio = least / 0.75

        def linearized_p2sf_cost(at_s: IntArray, ratio: float = ratio) -> FloatArray:
            upper, lower = _p2sf_numerator_and_denominator_terms(problem, submit_s, processors, at_s + problem.now_s)
            return upper - ratio * lower

        built = CpSatModel(problem)
        built.model.minimize(tabulated_cost_objective(built, linearized_p2sf_cost, best - problem.now_s))
        solver, outcome = _solve_model(built.model, budget, 1 / _MAX_ITERATIONS)
        seconds, branches = seconds + solver.wall_time, branches + solver.num_branches
        if outcome not in ("optimal", "feasible"):
            break
        start_s = np.array([solver.value(start) for start in built.start], np.int64) + problem.now_s
        found = compute_p2sf(problem, submit_s, processors, start_s)
        if found >= least * (1 - 1e-6):
            break
        best, least = start_s, found
    return CpSatSolution(best, least, None, status, seconds, branches)


def tabulated_cost_objective(built: CpSatModel, cost: Callable[[IntArray], FloatArray], hint_s: IntArray) -> Any:
    """Return the sum of tabulated costs of the jobs' starts, with `hint_s` as a hint."""
    problem, model = built.problem, built.model
    first, last = problem.release_s, problem.horizon_s - problem.duration_s
    shares = np.concatenate(([0.0], np.geomspace(1 / 512, 1.0, _TABLE_ENTRIES)))
    grid = first + np.rint(np.outer(shares, last - first)).astype(np.int64)
    grid += np.arange(len(shares))[:, None]  # every interval must be nonempty
    values = np.stack([cost(row) for row in grid])
    values -= values.min(axis=0)
    factor = min(1.0, 2.0**40 / max(1.0, float(values.max(axis=0).sum())))
    whole = values * factor
    terms, weights = [], []
    for j, start in enumerate(built.start):
        inside = []
        for k in range(_TABLE_ENTRIES):
            low, high = int(grid[k, j]), int(grid[k + 1, j])
            slope = (whole[k + 1, j] - whole[k, j]) / (high - low)
            there, at = model.new_bool_var(""), model.new_int_var(0, high - low - 1, "")
            model.add(at == 0).only_enforce_if(~there)
            model.add(start == low + at).only_enforce_if(there)
            here = low <= int(hint_s[j]) < high
            model.add_hint(there, here)
            model.add_hint(at, int(hint_s[j]) - low if here else 0)
            inside.append(there)
            terms += [there, at]
            weights += [round(whole[k, j] * 1024), round(slope * 1024)]
        model.add_exactly_one(inside)
        model.add_hint(start, int(hint_s[j]))
    return cp_model.LinearExpr.weighted_sum(terms, weights)
