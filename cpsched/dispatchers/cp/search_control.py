"""Implement cp19's search control, with doubling limits in seconds or branches, and a stopping rule.

If there is a plan, the solver first verifies the whole plan. Then it restarts. Each restart is a separate search for a
plan that is cheaper than the best so far. Two kinds of restarts alternate: searches that branch on every unit, which
may prove optimality, and searches in a perturbed order.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from ortools.constraint_solver import pywrapcp

from cpsched.dispatchers.cp.cp_dispatcher_config import RestartSearchLimits
from cpsched.dispatchers.cp.cp_objective import IntegerDelayCosts
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.decision_builder import ConstraintModel
from cpsched.dispatchers.cp.node_model import NodeAllocationModel
from cpsched.dispatchers.cp.pool_model import IdenticalUnitsModel, PoolModel, are_all_units_identical
from cpsched.dispatchers.cp.position_model import PositionAllocationModel
from cpsched.dispatchers.cp.solve_result import CpSolveResult
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, WeightedDelayObjective, empty_plan
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.model import IntArray

MODELS: dict[str, Any] = {
    "positions": PositionAllocationModel,
    "slots": IdenticalUnitsModel,
    "nodes": NodeAllocationModel,
    "pool": PoolModel,
}


def improve_plan(
    problem: CpProblem, answer: CpSolveResult, model_name: str, limit: RestartSearchLimits, guided: bool = True
) -> CpSolveResult:
    """Verify the plan in `answer` with the solver, and search for a cheaper plan.

    The status is `optimal` if the plan is proven optimal, `feasible` if the solver found or verified it, and otherwise
    `unverified`. The path is `dive` if the model would be too large, `late` if the limit was reached without a plan,
    and `infeasible` if no plan exists.

    If `guided` is false, the solver uses its own search and gets no plan. If this search ends without a proof, the
    guided search follows, in the order of the jobs.
    """
    if model_name == "positions" and are_all_units_identical(problem.facts):
        model_name = "slots"
    make = MODELS[model_name]
    same = find_symmetric_jobs(problem.facts, problem.objective) if problem.in_order else []
    if same and answer.plan is not None and guided:
        answer = dataclasses.replace(answer, plan=sort_symmetric_starts(answer.plan, same))
    too_large = (
        dataclasses.replace(answer, path="dive", status="unverified") if guided else CpSolveResult(None, "late", False)
    )
    if not limit.is_model_within_limit(make.min_build_time_s(problem, answer.plan)):
        return too_large
    solver = pywrapcp.Solver("cpsched", _solver_parameters(model_name))
    model: ConstraintModel = make(solver, problem, answer.plan)
    if not limit.is_model_within_limit(model.build_time_s):
        return too_large
    run = RestartSearch(model, problem, answer.plan if guided else None, same)
    if not run.next_search_budget(limit).crossed:
        model.post_constraints()
        run.run_restarts(limit, np.random.default_rng(limit.seed))
    found = run.plan
    optimal = run.status == "optimal" and found is not None
    return dataclasses.replace(
        answer,
        plan=found,
        path="solver" if found is not None else "infeasible" if run.status == "infeasible" else "late",
        status=run.status,
        bound=plan_delay_cost(problem.objective, found.start_s) if optimal and found is not None else answer.bound,
        solver_s=solver.WallTime() / 1000,
        branches=solver.Branches(),
        first_s=run.first_s,
        best_s=run.best_s,
    )


def _solver_parameters(model_name: str) -> Any:
    """Return solver parameters that disable redundant propagators.

    Diffn adds no cumulatives per unit, because the model's own cumulatives treat each job as a whole. Elements have no
    tables of range minima, which took half of the build time with 1,173 nodes and saved no branches. A model with nodes
    has a cumulative per node and resource, for which time tables alone suffice and propagate quickly. With edge finders
    and disjunctions, one propagation can take a second, and the solver checks its limit only between decisions.
    """
    parameters = pywrapcp.Solver.DefaultSolverParameters()
    parameters.diffn_use_cumulative = False
    parameters.use_element_rmq = False
    if model_name == "nodes":
        parameters.use_cumulative_edge_finder = False
        parameters.use_all_possible_disjunctions = False
        parameters.use_sequence_high_demand_tasks = False
    return parameters


class RemainingSearchBudget:
    """The remaining budget of a search, which the solver checks at every search node.

    `reserve` is set aside for the time after the last search. A search gets at least `least`.
    """

    def __init__(self, solver: Any, limit: RestartSearchLimits, doubled: int, reserve: int, least: int = 0) -> None:
        # The solver keeps this callback alive in C++, where the garbage collector cannot see the reference cycle.
        self._solver, self._by_effort = weakref.proxy(solver), limit.effort is not None
        self._until = min(limit.total_budget - reserve, self._used_budget() + max(least, limit.first_budget << doubled))
        self.crossed = False
        self()

    def _used_budget(self) -> int:
        return int(self._solver.Branches() if self._by_effort else self._solver.WallTime())

    def __call__(self) -> bool:
        """Return whether the budget is exhausted."""
        self.crossed = self.crossed or self._used_budget() >= self._until
        return self.crossed


class RestartSearch:
    """The restarts of one call, with the best plan so far, or None, and the status."""

    def __init__(
        self, model: ConstraintModel, problem: CpProblem, plan: CpPlan | None, same: Sequence[IntArray] = ()
    ) -> None:
        self.plan, self.status = plan, "unverified"
        self.first_s = self.best_s = 0.0
        self._model, self._guided = model, plan is not None
        self._built_ms = self._least_ms = 0
        scaled = IntegerDelayCosts.from_objective(problem.objective, model.facts.now_s, model.horizon_s)
        self._cost = scaled.build_cost_variable(model)
        self._same = same
        for group in same:
            for first, second in itertools.pairwise(group.tolist()):
                model.solver.Add(model.start[first] <= model.start[second])
        self._best: int | None = None
        if plan is not None:
            self._best = scaled.cost_of_plan(plan.start_s)
            model.solver.Add(self._cost <= self._best)

    def next_search_budget(self, limit: RestartSearchLimits, doubled: int = 0) -> RemainingSearchBudget:
        """Return the budget of the next search: the first limit, doubled `doubled` times.

        The budget has a minimum. Releasing a model takes as long as building it, and the limit includes this time.
        """
        return RemainingSearchBudget(self._model.solver, limit, doubled, self._built_ms, self._least_ms)

    def run_restarts(self, limit: RestartSearchLimits, random: np.random.Generator) -> None:
        """Verify the plan, then search until the limit, a proof or the stopping rule.

        A search gets the first limit, or the time to build the model and verify the plan, whichever is longer. Every
        search begins with a propagation of the whole model, so a smaller limit would not allow a single branch. After a
        search without improvement, the limit doubles.
        """
        if limit.effort is None:
            self._built_ms = self._least_ms = int(self._model.solver.WallTime())
        if self.plan is not None:
            self._verify_plan(self.next_search_budget(limit), self.plan)
        if limit.effort is None:
            self._least_ms = int(self._model.solver.WallTime())
        idle, turn, own = 0, 0, not self._guided
        while self.plan is None or idle < limit.restarts:
            budget = self.next_search_budget(limit, idle)
            if budget.crossed:
                return
            complete = turn % 2 == 0 or not self._guided
            better = self._run_search(self._build_search(turn, random, complete, own), budget)
            if self._best == 0:
                self.status = "optimal"
                return
            if not budget.crossed:
                if complete and (not own or self._model.own_search_proves):
                    self.status = "optimal" if self.plan is not None else "infeasible"
                    return
                own = False
            if limit.control == "doubles" and self.plan is not None:
                return
            idle = 0 if better else idle + 1
            turn += 1

    def _verify_plan(self, budget: RemainingSearchBudget, plan: CpPlan) -> None:
        """Post the whole plan at once, so that the solver propagates every constraint."""
        solver, now_s = self._model.solver, self._model.facts.now_s
        leaf = solver.Assignment()
        for j, start in enumerate(self._model.start):
            variables, values = self._model.placement_variables_and_values(plan, j)
            for variable, value in zip([start, *variables], [int(plan.start_s[j]) - now_s, *values], strict=True):
                leaf.Add(variable)
                leaf.SetValue(variable, value)
        solver.NewSearch(solver.RestoreAssignment(leaf), [solver.CustomLimit(budget)])
        if solver.NextSolution():
            self.status = "feasible"
            self.first_s = self.best_s = solver.WallTime() / 1000
        solver.EndSearch()

    def _build_search(self, turn: int, random: np.random.Generator, complete: bool, own: bool) -> Any:
        if own:
            return self._model.make_decision_builder(self.plan, None, True)
        if self.plan is None or not self._guided:
            blank = empty_plan(self._model.facts)
            return self._model.make_decision_builder(blank, range(len(self._model.start)), True)
        return self._model.make_decision_builder(self.plan.copy(), self._rank_jobs(self.plan, turn, random), complete)

    def _rank_jobs(self, plan: CpPlan, turn: int, random: np.random.Generator) -> list[int]:
        """Return each job's rank by start in `plan`, perturbed after turn 0."""
        noise = random.normal(0.0, max(2.0, len(plan.start_s) / 8), len(plan.start_s))
        place = np.empty(len(noise))
        place[np.argsort(plan.start_s, kind="stable")] = np.arange(len(noise))
        order = np.argsort(place + (noise if turn > 0 else 0), kind="stable")
        rank = np.empty(len(noise), np.int64)
        rank[order] = np.arange(len(noise))
        for group in self._same:
            rank[group] = np.sort(rank[group])
        found: list[int] = rank.tolist()
        return found

    def _run_search(self, search: Any, budget: RemainingSearchBudget) -> bool:
        """Search for a cheaper plan, and return whether one was found."""
        solver = self._model.solver
        steps = [search]
        if self._best is not None:
            steps.insert(0, solver.ConstraintAdder(self._cost <= self._best - 1))
        solver.NewSearch(solver.Compose(steps), [solver.Minimize(self._cost, 1), solver.CustomLimit(budget)])
        before = self._best
        while solver.NextSolution():
            self._best, self.plan, self.status = self._cost.Value(), self._model.read_plan(search).copy(), "feasible"
            self.best_s = solver.WallTime() / 1000
            self.first_s = self.first_s or self.best_s
        solver.EndSearch()
        return self._best != before


def find_symmetric_jobs(facts: CpInstance, objective: WeightedDelayObjective) -> list[IntArray]:
    """Return groups of interchangeable considered jobs, each as ascending positions.

    Jobs with equal request, estimate and cost can be exchanged without changing the plan's cost. With a fixed order
    within each group, the search visits only one of the plans that differ only by exchanges.
    """
    slots, table = facts.jobs, facts.table
    requested = (table.units, table.estimate_s, table.sharing, table.node_set, table.per_unit)
    rows = np.column_stack([*(column[slots] for column in requested), objective.weight, objective.since_s])
    _, kind_of, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return [np.flatnonzero(kind_of.reshape(-1) == kind) for kind in np.flatnonzero(count > 1)]


def sort_symmetric_starts(plan: CpPlan, alike: list[IntArray]) -> CpPlan:
    """Return the plan in which each group's jobs start in the order considered."""
    found = plan.copy()
    for group in alike:
        for j, other in zip(
            group.tolist(), group[np.argsort(plan.start_s[group], kind="stable")].tolist(), strict=True
        ):
            found.start_s[j], found.parts[j] = plan.start_s[other], plan.parts[other]
            to, of = slice(*plan.first[j : j + 2]), slice(*plan.first[other : other + 2])
            for name in ("node", "units", "y", "dy"):
                getattr(found, name)[to] = getattr(plan, name)[of]
    return found
