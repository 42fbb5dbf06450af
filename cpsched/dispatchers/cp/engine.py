"""The search control of cp19 section 3: limits that double, restarts that stop when they bring nothing.

First the solver verifies the plan at hand, posted in one go. A restart is a search of its own for something better
than the best plan so far: searches that branch on every unit, and may prove the plan optimal, take turns with
searches by a shaken order.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
from ortools.constraint_solver import pywrapcp

from cpsched.dispatchers.cp import constraints, objective
from cpsched.dispatchers.cp.answer import Answer
from cpsched.dispatchers.cp.limit import Limit
from cpsched.dispatchers.cp.positions import Facts, Plan
from cpsched.dispatchers.cp.search import Search, values_of
from cpsched.dispatchers.cp.variables import Variables, occupied, variables
from cpsched.dispatchers.cp.window import copy_of


def improve(facts: Facts, answer: Answer, weights: npt.NDArray[np.float64], limit: Limit, seed: int) -> Answer:
    """Have the solver verify the plan of `answer` and look for one of less weighted delay.

    Status `optimal`: proved; `feasible`: found or verified by the solver; `unverified`: the limit came first, the
    plan is the dive's own. Path `dive`: the model would be too large for the limit, the dives alone decide.
    """
    parts, by_dive = int(answer.plan.parts.sum()), dataclasses.replace(answer, path="dive", status="unverified")
    if not limit.covers(parts):
        return by_dive
    solver = pywrapcp.Solver("cpsched", _parameters())
    model = variables(solver, facts, answer.plan)
    held = {r: occupied(model, r) for r in model.resources}
    if not limit.covers(parts, (parts + len(boxes.size) for boxes in held.values())):
        return by_dive
    run = Run(model, weights, answer.plan)
    if not run.budget(limit).crossed:
        constraints.post(model, held)
        run.restart(limit, np.random.default_rng(seed))
    return dataclasses.replace(
        answer,
        plan=run.plan,
        path="solver",
        status=run.status,
        bound=objective.delay(facts.now_s, weights, run.plan.start_s) if run.status == "optimal" else answer.bound,
        solver_s=solver.WallTime() / 1000,
        branches=solver.Branches(),
    )


def _parameters() -> Any:
    """Without the cumulatives that OR-Tools adds to each diffn unit by unit: ours take jobs as a whole."""
    parameters = pywrapcp.Solver.DefaultSolverParameters()
    parameters.diffn_use_cumulative = False
    return parameters


class Budget:
    """What one search may still spend; the solver asks at every node."""

    def __init__(self, solver: Any, limit: Limit, doubled: int) -> None:
        # The solver keeps this callback alive in C++, where no garbage collector sees the cycle.
        self._solver, self._by_effort = weakref.proxy(solver), limit.effort is not None
        self._until = min(limit.total, self._spent() + (limit.first << doubled))
        self.crossed = False
        self()

    def _spent(self) -> int:
        return int(self._solver.Branches() if self._by_effort else self._solver.WallTime())

    def __call__(self) -> bool:
        """Whether it is used up."""
        self.crossed = self.crossed or self._spent() >= self._until
        return self.crossed


class Run:
    """The restarts of one call: the best plan so far, and what the solver said of it."""

    def __init__(self, model: Variables, weights: npt.NDArray[np.float64], plan: Plan) -> None:
        self.plan, self.status = plan, "unverified"
        self._model = model
        scaled = objective.Scaled.of(weights, model.facts.now_s, model.horizon_s)
        self._cost, self._best = scaled.expression(model), scaled.value(plan)
        model.solver.Add(self._cost <= self._best)

    def budget(self, limit: Limit, doubled: int = 0) -> Budget:
        """What the next search gets: the first limit, doubled so many times."""
        return Budget(self._model.solver, limit, doubled)

    def restart(self, limit: Limit, random: np.random.Generator) -> None:
        """Verify the plan, then search until the limit, a proof, or `limit.restarts` restarts without a better plan.

        Verifying gets as much as the first search; a search after one that brought nothing has twice as much.
        """
        self._verify(self.budget(limit))
        idle = turn = 0
        while idle < limit.restarts:
            budget = self.budget(limit, idle)
            if budget.crossed:
                return
            complete = turn % 2 == 0
            better = self._improved_by(
                Search(self._model, copy_of(self.plan), self._rank(turn, random), complete), budget
            )
            if complete and not budget.crossed:
                self.status = "optimal"
                return
            idle = 0 if better else idle + 1
            turn += 1

    def _verify(self, budget: Budget) -> None:
        """Post the plan as a whole; the solver propagates every constraint."""
        solver, now_s = self._model.solver, self._model.facts.now_s
        leaf = solver.Assignment()
        for j, start in enumerate(self._model.start):
            variables, values = values_of(self._model, self.plan, j)
            for variable, value in zip([start, *variables], [int(self.plan.start_s[j]) - now_s, *values], strict=True):
                leaf.Add(variable)
                leaf.SetValue(variable, value)
        solver.NewSearch(solver.RestoreAssignment(leaf), [solver.CustomLimit(budget)])
        if solver.NextSolution():
            self.status = "feasible"
        solver.EndSearch()

    def _rank(self, turn: int, random: np.random.Generator) -> list[int]:
        """Who goes first among those that can start first: as in the best plan; every other restart shaken."""
        noise = random.normal(0.0, max(2.0, len(self.plan.start_s) / 8), len(self.plan.start_s))
        place = np.empty(len(noise))
        place[np.argsort(self.plan.start_s, kind="stable")] = np.arange(len(noise))
        order = np.argsort(place + (noise if turn > 0 else 0), kind="stable")
        rank = np.empty(len(noise), np.int64)
        rank[order] = np.arange(len(noise))
        found: list[int] = rank.tolist()
        return found

    def _improved_by(self, search: Search, budget: Budget) -> bool:
        """One search for plans below the best."""
        solver = self._model.solver
        below = solver.ConstraintAdder(self._cost <= self._best - 1)
        solver.NewSearch(solver.Compose([below, search]), [solver.Minimize(self._cost, 1), solver.CustomLimit(budget)])
        before = self._best
        while solver.NextSolution():
            self._best, self.plan, self.status = self._cost.Value(), copy_of(search.plan), "feasible"
        solver.EndSearch()
        return self._best < before
