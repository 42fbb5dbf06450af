"""Define PCP'19's allocation model, with optional intervals (cp19 section 2.2).

If `p[i,n]` units of job i fit on node n, the model has the intervals u[i,n,1..p]. The number of present intervals
equals the job's number of units. Each node has one cumulative per resource. The number of variables grows with the
number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.cp import cp_problem
from cpsched.dispatchers.cp.cp_problem import CpProblem, intervals_per_node, node_model_size
from cpsched.dispatchers.cp.decision_builder import AssignLargestValueDecision, ScheduleOrPostponeDecisionBuilder
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, empty_plan
from cpsched.kernels.cp.running_rectangles import running_rectangles
from cpsched.kernels.cp.startable_jobs import units_fitting_on_empty_nodes
from cpsched.kernels.fit_rules import amount_taken_on_node, units_fitting_on_node
from cpsched.model import EXCLUSIVE, BoolArray, IntArray

_INTERVAL_BUILD_S = 4e-5
"""Time to build an optional interval and propagate it once, in seconds."""


class NodeAllocationModel:
    """The model of a cluster with nodes, in which the solver places every unit."""

    own_search_proves = False
    """False, because the solver's own search abandons a start after one attempt even if other places would allow it."""

    def __init__(self, solver: Any, problem: CpProblem, plan: CpPlan | None) -> None:
        facts = problem.facts
        self.solver, self.facts, self.horizon_s = solver, facts, problem.horizon_s
        self._durations = facts.table.estimate_s[facts.jobs].tolist()
        self.start = [solver.IntVar(0, self.horizon_s - duration_s) for duration_s in self._durations]
        self.tasks = [solver.FixedDurationIntervalVar(*p, "") for p in zip(self.start, self._durations, strict=True)]
        self.parts = intervals_per_job(facts, plan)
        self.nodes: list[list[int]] = []
        """Node of each interval, by job, highest node first."""
        self.units: list[list[Any]] = []
        """Optional intervals, by job."""
        self.present: list[list[Any]] = []
        """Presence variables of the intervals, by job."""
        for j, slot in enumerate(facts.jobs.tolist()):
            room = intervals_per_node(facts, slot, self.parts[j])
            nodes = np.repeat(np.arange(len(room)), room)[::-1].tolist()
            latest_s, duration_s = self.horizon_s - self._durations[j], self._durations[j]
            units = [solver.FixedDurationIntervalVar(0, latest_s, duration_s, True, "") for _ in nodes]
            self.nodes.append(nodes)
            self.units.append(units)
            self.present.append([unit.PerformedExpr().Var() for unit in units])

    @staticmethod
    def min_build_time_s(problem: CpProblem, plan: CpPlan | None) -> float:
        """Return the expected time (s) to build and propagate a model, before it is built."""
        return _INTERVAL_BUILD_S * node_model_size(problem.facts)

    @property
    def build_time_s(self) -> float:
        """Expected time to build the model and propagate once, in seconds."""
        return _INTERVAL_BUILD_S * sum(map(len, self.units))

    def post_constraints(self) -> None:
        """Post alternatives and cumulatives."""
        for j in range(len(self.tasks)):
            self._require_units_at_start(j)
        for r in range(self.facts.machine.capacity.shape[1]):
            self._limit_nodes_to_capacity(r)

    def _require_units_at_start(self, j: int) -> None:
        """Require `parts` present intervals at the job's start, in order on each node."""
        solver, facts, slot = self.solver, self.facts, int(self.facts.jobs[j])
        for unit in self.units[j]:
            solver.Add(unit.StartsAtStart(self.tasks[j]))
        solver.Add(solver.Sum(self.present[j]) == self.parts[j])
        pairs = zip(self.nodes[j], self.nodes[j][1:], self.present[j], self.present[j][1:], strict=False)
        for node, other, first, second in pairs:
            if node == other:
                solver.Add(first >= second)
        if facts.table.sharing[slot] & EXCLUSIVE:
            room = units_fitting_on_empty_nodes(facts, slot)[self.nodes[j]].tolist()
            solver.Add(solver.ScalProd(self.present[j], room) >= int(facts.table.units[slot]))

    def _limit_nodes_to_capacity(self, r: int) -> None:
        """Limit each node to its capacity, unless it can hold all its intervals at once."""
        solver, facts = self.solver, self.facts
        taking: dict[int, list[tuple[Any, int]]] = {}
        for j, slot in enumerate(facts.jobs.tolist()):
            for node, unit in zip(self.nodes[j], self.units[j], strict=True):
                amount = int(amount_taken_on_node(facts.table, slot, facts.machine, node, 1, r))
                if amount > 0:
                    taking.setdefault(node, []).append((unit, amount))
        held: dict[int, list[tuple[Any, int]]] = {node: [] for node in taking}
        for node, amount, until_s in self._unavailable_amounts(r):
            if node in held:
                held[node].append((solver.FixedInterval(0, until_s, ""), amount))
        for node, units in taking.items():
            tasks, capacity = units + held[node], int(facts.machine.capacity[node, r])
            if sum(amount for _, amount in tasks) > capacity:
                solver.Add(
                    solver.Cumulative([task for task, _ in tasks], [amount for _, amount in tasks], capacity, "")
                )

    def _unavailable_amounts(self, r: int) -> list[tuple[int, int, int]]:
        """Return (node, amount, seconds from now) for each amount that is unavailable."""
        facts, stride = self.facts, int(self.facts.machine.capacity[:, r].max()) + 1
        axis = np.arange(len(facts.machine.capacity)), stride
        position, amount, end_s = running_rectangles(facts, axis, r, facts.now_s + self.horizon_s)
        lasting = end_s > facts.now_s
        columns = (position[lasting] // stride, amount[lasting], end_s[lasting] - facts.now_s)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def placement_variables_and_values(self, plan: CpPlan, j: int) -> tuple[list[Any], list[int]]:
        """Return the presence variables of job `j`, and their values in `plan`."""
        first = int(plan.first[j])
        left: dict[int, int] = {}
        for node in plan.node[first : first + int(plan.parts[j])].tolist():
            left[node] = left.get(node, 0) + 1
        values = []
        for node in self.nodes[j]:
            values.append(int(left.get(node, 0) > 0))
            left[node] = left.get(node, 0) - 1
        return self.present[j], values

    def make_decision_builder(self, plan: CpPlan | None, rank: Sequence[int] | None, complete: bool) -> Any:
        """Return the guided search or, without a plan or rank, the solver's own search."""
        if plan is not None and rank is not None:
            return NodeDecisionBuilder(self, plan, rank, complete)
        solver, present = self.solver, [variable for each in self.present for variable in each]
        starts = solver.Phase(self.tasks, solver.INTERVAL_DEFAULT)
        places = solver.Phase(present, solver.CHOOSE_FIRST_UNBOUND, solver.ASSIGN_MAX_VALUE)
        return solver.Compose([starts, places])

    def read_plan(self, search: Any) -> CpPlan:
        """Return the plan of the solver's current solution."""
        facts, table, machine = self.facts, self.facts.table, self.facts.machine
        plan = empty_plan(facts)
        for j, slot in enumerate(facts.jobs.tolist()):
            plan.start_s[j] = facts.now_s + self.start[j].Value()
            there = zip(self.nodes[j], self.present[j], strict=True)
            chosen = [node for node, present in there if present.Value()]
            part, wanted = int(plan.first[j]), int(facts.table.units[slot])
            plan.parts[j], whole = len(chosen), bool(table.sharing[slot] & EXCLUSIVE)
            for later, node in zip(range(len(chosen) - 1, -1, -1), chosen, strict=True):
                room = int(units_fitting_on_node(table, slot, machine, machine.capacity, node)) if whole else 1
                plan.node[part], plan.units[part] = node, min(room, wanted - later)
                plan.dy[part] = [
                    amount_taken_on_node(table, slot, machine, node, 1, r) for r in range(plan.dy.shape[1])
                ]
                wanted -= int(plan.units[part])
                part += 1
        return plan


class NodeDecisionBuilder(ScheduleOrPostponeDecisionBuilder):
    """A search that places units on the highest nodes that can hold them."""

    def __init__(self, model: NodeAllocationModel, plan: CpPlan, rank: Sequence[int], complete: bool) -> None:
        super().__init__(model, plan, rank, complete)
        self._nodes = model

    @override
    def first_startable_job(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        """Find the first job with the dive's kernel, or with the solver if `complete`."""
        return (
            super().first_startable_job(placed, earliest_s)
            if self._complete
            else self.find_and_place_startable_job(placed, earliest_s)
        )

    @override
    def next_placement_decision(self, j: int) -> Any:
        if not self._complete:
            return self.assign_all_places_decision(*self._nodes.placement_variables_and_values(self.plan, j))
        undecided = (variable for variable in self._nodes.present[j] if not variable.Bound())
        variable = next(undecided, None)
        return AssignLargestValueDecision(variable, 1) if variable is not None else None


def intervals_per_job(facts: CpInstance, plan: CpPlan | None) -> list[int]:
    """Return each job's number of units or, if exclusive, of nodes in the first leaf."""
    whole = facts.table.sharing[facts.jobs] & EXCLUSIVE != 0
    if not whole.any():
        return facts.table.units[facts.jobs].tolist()  # type: ignore[no-any-return]
    leaf = plan if plan is not None else cp_problem.build_first_leaf_plan(facts)
    return np.where(whole, leaf.parts, facts.table.units[facts.jobs]).tolist()  # type: ignore[no-any-return]
