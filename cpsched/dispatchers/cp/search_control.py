"""The search control of cp19: limits that double, restarts that stop when they bring nothing.

Where a plan is at hand, the solver first verifies it: the plan is posted as a whole. Then come restarts. A restart is a
separate search for a plan better than the best so far. Two kinds take turns: searches that branch on every unit, which
may prove the plan optimal, and searches in a shaken order.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from ortools.constraint_solver import pywrapcp

from cpsched.dispatchers.cp.cp_objective import IntegerCosts
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.decision_builder import Model
from cpsched.dispatchers.cp.node_model import NodeModel
from cpsched.dispatchers.cp.pool_model import PoolModel
from cpsched.dispatchers.cp.position_model import PositionModel
from cpsched.dispatchers.cp.search_limit import SearchLimit
from cpsched.dispatchers.cp.slot_model import SlotModel, all_alike
from cpsched.dispatchers.cp.solve_result import SolveResult
from cpsched.kernels.cp.cp_state import CpInstance, Objective, Plan, empty_plan
from cpsched.kernels.cp.delay_costs import delay
from cpsched.model import IntArray

MODELS: dict[str, Any] = {"positions": PositionModel, "slots": SlotModel, "nodes": NodeModel, "pool": PoolModel}


def improve(
    problem: CpProblem, answer: SolveResult, model_name: str, limit: SearchLimit, seed: int, guided: bool = True
) -> SolveResult:
    """Have the solver verify the plan of `answer`, and look for one whose delays cost less.

    Status `optimal`: proved; `feasible`: found or verified by the solver; `unverified`: the limit came first, the
    plan is the one at hand. Path `dive`: the model would be too large for the limit, the plan at hand decides.

    Without `guided` the solver searches in its own way and is shown no plan; where that ends and proves nothing, the
    guided search goes on, in the order of the jobs. Path `late`: the limit came before a first plan; `infeasible`: the
    model has none.
    """
    if model_name == "positions" and all_alike(problem.facts):
        model_name = "slots"
    make = MODELS[model_name]
    same = interchangeable(problem.facts, problem.objective) if problem.in_order else []
    if same and answer.plan is not None and guided:
        answer = dataclasses.replace(answer, plan=in_order(answer.plan, same))
    too_large = (
        dataclasses.replace(answer, path="dive", status="unverified") if guided else SolveResult(None, "late", False)
    )
    if not limit.covers(make.least_cost_s(problem, answer.plan)):
        return too_large
    solver = pywrapcp.Solver("cpsched", _parameters(model_name))
    model: Model = make(solver, problem, answer.plan)
    if not limit.covers(model.cost_s):
        return too_large
    run = RestartSearch(model, problem, answer.plan if guided else None, same)
    if not run.budget(limit).crossed:
        model.post()
        run.restart(limit, np.random.default_rng(seed))
    found = run.plan
    optimal = run.status == "optimal" and found is not None
    return dataclasses.replace(
        answer,
        plan=found,
        path="solver" if found is not None else "infeasible" if run.status == "infeasible" else "late",
        status=run.status,
        bound=delay(problem.objective, found.start_s) if optimal and found is not None else answer.bound,
        solver_s=solver.WallTime() / 1000,
        branches=solver.Branches(),
        first_s=run.first_s,
        best_s=run.best_s,
    )


def _parameters(model_name: str) -> Any:
    """Without the cumulatives that OR-Tools adds to each diffn unit by unit: ours take jobs as a whole.

    Elements have no tables of range minima: with 1,173 nodes these took half of building, and brought no more branches.
    A model with nodes has a cumulative for each node and resource; with time tables alone, which suffice to be right,
    its propagations are short. With edge finders and disjunctions as well one of them can take a second, and the
    solver asks for the limit between two decisions only.
    """
    parameters = pywrapcp.Solver.DefaultSolverParameters()
    parameters.diffn_use_cumulative = False
    parameters.use_element_rmq = False
    if model_name == "nodes":
        parameters.use_cumulative_edge_finder = False
        parameters.use_all_possible_disjunctions = False
        parameters.use_sequence_high_demand_tasks = False
    return parameters


class SearchBudget:
    """What one search may still spend; the solver asks at every node.

    Of all there is, `reserve` is kept for what comes after the last search. A search gets `least` at least.
    """

    def __init__(self, solver: Any, limit: SearchLimit, doubled: int, reserve: int, least: int = 0) -> None:
        # The solver keeps this callback alive in C++, where no garbage collector sees the cycle.
        self._solver, self._by_effort = weakref.proxy(solver), limit.effort is not None
        self._until = min(limit.total - reserve, self._spent() + max(least, limit.first << doubled))
        self.crossed = False
        self()

    def _spent(self) -> int:
        return int(self._solver.Branches() if self._by_effort else self._solver.WallTime())

    def __call__(self) -> bool:
        """Whether the budget is used up."""
        self.crossed = self.crossed or self._spent() >= self._until
        return self.crossed


class RestartSearch:
    """The restarts of one call: the best plan so far, None before the first, and what the solver said of it."""

    def __init__(self, model: Model, problem: CpProblem, plan: Plan | None, same: Sequence[IntArray] = ()) -> None:
        self.plan, self.status = plan, "unverified"
        self.first_s = self.best_s = 0.0
        self._model, self._guided = model, plan is not None
        self._built_ms = self._least_ms = 0
        scaled = IntegerCosts.of(problem.objective, model.facts.now_s, model.horizon_s)
        self._cost = scaled.expression(model)
        self._same = same
        for group in same:
            for first, second in itertools.pairwise(group.tolist()):
                model.solver.Add(model.start[first] <= model.start[second])
        self._best: int | None = None
        if plan is not None:
            self._best = scaled.value(plan.start_s)
            model.solver.Add(self._cost <= self._best)

    def budget(self, limit: SearchLimit, doubled: int = 0) -> SearchBudget:
        """What the next search gets: the first limit, doubled so many times, or `least_ms` where that is more.

        A model that took long to build takes as long to take down again, which the limit has to cover, too.
        """
        return SearchBudget(self._model.solver, limit, doubled, self._built_ms, self._least_ms)

    def restart(self, limit: SearchLimit, random: np.random.Generator) -> None:
        """Verify the plan, then search until the limit, a proof, or what the search control says.

        A search gets as much as the first limit, or as building the model and verifying the plan took, where that is
        more: every search begins with a propagation of the whole model, and a model is not built to take no branch of
        it. After a search that brought nothing the next has twice the first limit.
        """
        if limit.effort is None:
            self._built_ms = self._least_ms = int(self._model.solver.WallTime())
        if self.plan is not None:
            self._verify(self.budget(limit), self.plan)
        if limit.effort is None:
            self._least_ms = int(self._model.solver.WallTime())
        idle, turn, own = 0, 0, not self._guided
        while self.plan is None or idle < limit.restarts:
            budget = self.budget(limit, idle)
            if budget.crossed:
                return
            complete = turn % 2 == 0 or not self._guided
            better = self._improved_by(self._search(turn, random, complete, own), budget)
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

    def _verify(self, budget: SearchBudget, plan: Plan) -> None:
        """Post the plan as a whole; the solver propagates every constraint."""
        solver, now_s = self._model.solver, self._model.facts.now_s
        leaf = solver.Assignment()
        for j, start in enumerate(self._model.start):
            variables, values = self._model.leaf(plan, j)
            for variable, value in zip([start, *variables], [int(plan.start_s[j]) - now_s, *values], strict=True):
                leaf.Add(variable)
                leaf.SetValue(variable, value)
        solver.NewSearch(solver.RestoreAssignment(leaf), [solver.CustomLimit(budget)])
        if solver.NextSolution():
            self.status = "feasible"
            self.first_s = self.best_s = solver.WallTime() / 1000
        solver.EndSearch()

    def _search(self, turn: int, random: np.random.Generator, complete: bool, own: bool) -> Any:
        if own:
            return self._model.search(self.plan, None, True)
        if self.plan is None or not self._guided:
            blank = empty_plan(self._model.facts)
            return self._model.search(blank, range(len(self._model.start)), True)
        return self._model.search(self.plan.copy(), self._rank(self.plan, turn, random), complete)

    def _rank(self, plan: Plan, turn: int, random: np.random.Generator) -> list[int]:
        """By job, its rank among jobs that can start first: as in the best plan, shaken in every other restart."""
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

    def _improved_by(self, search: Any, budget: SearchBudget) -> bool:
        """One search for plans below the best."""
        solver = self._model.solver
        steps = [search]
        if self._best is not None:
            steps.insert(0, solver.ConstraintAdder(self._cost <= self._best - 1))
        solver.NewSearch(solver.Compose(steps), [solver.Minimize(self._cost, 1), solver.CustomLimit(budget)])
        before = self._best
        while solver.NextSolution():
            self._best, self.plan, self.status = self._cost.Value(), self._model.read(search).copy(), "feasible"
            self.best_s = solver.WallTime() / 1000
            self.first_s = self.first_s or self.best_s
        solver.EndSearch()
        return self._best != before


def interchangeable(facts: CpInstance, objective: Objective) -> list[IntArray]:
    """The considered jobs of each kind of which there are several: positions among the considered jobs, ascending.

    Two jobs of the same request, estimate and cost can be exchanged: the plan then takes and costs the same. A search
    that knows this visits only one of the plans that differ by exchanges.
    """
    slots, table = facts.jobs, facts.table
    asked = (table.units, table.estimate_s, table.sharing, table.node_set, table.per_unit)
    rows = np.column_stack([*(column[slots] for column in asked), objective.weight, objective.since_s])
    _, kind_of, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return [np.flatnonzero(kind_of.reshape(-1) == kind) for kind in np.flatnonzero(count > 1)]


def in_order(plan: Plan, alike: list[IntArray]) -> Plan:
    """The same plan, in which the jobs of each group start in the order in which they are considered."""
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
