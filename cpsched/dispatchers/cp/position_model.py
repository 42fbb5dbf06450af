"""Define PCP'20's allocation model, with one position per unit and resource (pcp20 section 3).

The variables already keep a unit inside one node for all its resources. Two of the paper's constraints are omitted:

- The alldifferent over the positions of one job follows from diffn. The search breaks the symmetry by assigning
  decreasing positions to a job's units.
- The second implied cumulative (over the position axis, with durations as heights and the worst-case makespan as
  capacity) cannot prune. Units of one job never overlap at a position. So the heights there sum to at most the
  capacity, which is the sum of all durations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.decision_builder import (
    PositionDecisionBuilder,
    ScheduleOrPostponeDecisionBuilder,
    part_variables_and_values,
)
from cpsched.dispatchers.cp.position_variables import (
    PositionModelVariables,
    RunningJobRectangles,
    RunningJobStaircase,
    create_position_variables,
    eligible_nodes,
    fixed_running_job_rectangles,
    to_running_job_staircase,
)
from cpsched.kernels.cp.cp_state import CpPlan
from cpsched.kernels.cp.startable_jobs import units_fitting_on_empty_nodes
from cpsched.model import DISTINCT, EXCLUSIVE

_BOX_PAIR_COST_S = 1e-7
"""Time of diffn's first propagation per pair of boxes, in seconds (measured with 200 to 600 boxes)."""
_PART_BUILD_S = 0.00015
"""Time to build a part and propagate it once, without Elements, in seconds (measured: 0.1 and 0.05 ms)."""
_ELEMENT_BUILD_S = 1e-5
_STAIRCASE_ENTRY_S = 5e-8
"""Time to build a staircase, in seconds per unit and entry (measured with 64 to 50,000 entries: 4e-8 to 7e-8)."""


class PositionAllocationModel:
    """The position model, which combines variables, constraints and a search."""

    own_search_proves = True

    def __init__(self, solver: Any, problem: CpProblem, plan: CpPlan) -> None:
        self.solver, self.facts, self.horizon_s = solver, problem.facts, problem.horizon_s
        self._parts = int(plan.parts.sum())
        self.variables = create_position_variables(solver, problem.facts, problem.horizon_s, plan)
        self.start = self.variables.start
        self._held = {r: fixed_running_job_rectangles(self.variables, r) for r in self.variables.resources}
        self._stairs = {r: self._build_staircase_if_cheaper(r, held) for r, held in self._held.items()}

    def _build_staircase_if_cheaper(self, r: int, held: RunningJobRectangles) -> RunningJobStaircase | None:
        """Return the running jobs as a staircase, or None if boxes take less time."""
        found, boxes = to_running_job_staircase(self.variables, r, held), len(held.size)
        if found is None:
            return None
        as_boxes_s = (2 * self._parts + boxes) * boxes * _BOX_PAIR_COST_S
        return found if self._parts * _staircase_build_time_s(found) < as_boxes_s else None

    @staticmethod
    def min_build_time_s(problem: CpProblem, plan: CpPlan | None) -> float:
        """Return a lower bound on the build time in seconds before anything is built."""
        return _PART_BUILD_S * int(plan.parts.sum()) if plan is not None else 0.0

    @property
    def build_time_s(self) -> float:
        """Expected time to build the model and propagate once, in seconds."""
        total_s = self._parts * _PART_BUILD_S
        for r, held in self._held.items():
            found = self._stairs[r]
            boxes = self._parts + (len(held.size) if found is None else 0)
            total_s += boxes * boxes * _BOX_PAIR_COST_S + (
                self._parts * _staircase_build_time_s(found) if found is not None else 0.0
            )
        return total_s

    def post_constraints(self) -> None:
        """Post all constraints."""
        post_position_constraints(self.variables, self._held, self._stairs)

    def placement_variables_and_values(self, plan: CpPlan, j: int) -> tuple[list[Any], list[int]]:
        """Return the variables for the places of job `j`, and their values in `plan`."""
        return part_variables_and_values(self.variables, plan, j)

    def make_decision_builder(
        self, plan: CpPlan | None, rank: Sequence[int] | None, complete: bool
    ) -> ScheduleOrPostponeDecisionBuilder:
        """Return the guided search."""
        return PositionDecisionBuilder(self, self.variables, plan, rank, complete)

    def read_plan(self, search: ScheduleOrPostponeDecisionBuilder) -> CpPlan:
        """Return the plan of the solver's current solution."""
        return search.plan


def _staircase_build_time_s(steps: RunningJobStaircase) -> float:
    """Return the time to build the staircase constraint for one unit, in seconds."""
    return _ELEMENT_BUILD_S + (len(steps.kind_of) + steps.free_from.size) * _STAIRCASE_ENTRY_S


def post_position_constraints(
    variables: PositionModelVariables,
    held: Mapping[int, RunningJobRectangles],
    steps: Mapping[int, RunningJobStaircase | None],
) -> None:
    """Post all constraints, with running jobs per resource as boxes or a staircase."""
    for r, fixed in held.items():
        found = steps[r]
        if found is None:
            post_no_overlap_2d(variables, r, fixed)
        else:
            post_no_overlap_2d(variables, r, NO_RECTANGLES)
            post_staircase_element(variables, r, found)
        post_capacity_cumulative(variables, r, fixed)
    for j in range(len(variables.units)):
        post_all_different_nodes(variables, j)
        post_whole_node_capacity(variables, j)


def post_no_overlap_2d(variables: PositionModelVariables, r: int, fixed: RunningJobRectangles) -> None:
    """Post diffn over (s, y) x (d, dy) for units and `fixed` boxes of resource `r`."""
    constant = _make_constant_cache(variables.solver)
    boxes = [
        (variables.start[j], unit.position[r], constant(variables.estimate_s(j)), constant(unit.size[r]))
        for j, units in enumerate(variables.units)
        for unit in units
        if r in unit.size
    ]
    boxes += [
        (constant(0), constant(position), constant(duration_s), constant(size))
        for position, size, duration_s in zip(*(column.tolist() for column in fixed.columns()), strict=True)
    ]
    if boxes:
        columns = [list(column) for column in zip(*boxes, strict=True)]
        variables.solver.Add(variables.solver.NonOverlappingBoxesConstraint(*columns))


def post_staircase_element(variables: PositionModelVariables, r: int, steps: RunningJobStaircase) -> None:
    """Post s >= free_from[y] as one Element per unit, which replaces fixed boxes."""
    solver, stride = variables.solver, int(variables.stride[r])
    flat = steps.free_from.reshape(-1).tolist()
    if not any(flat):
        return
    kinds = steps.kind_of.tolist()
    for start, units in zip(variables.start, variables.units, strict=True):
        for unit in units:
            if r not in unit.size:
                continue
            if unit.place[r].Bound():
                at = steps.free_from[steps.kind_of, unit.place[r].Value()]
                solver.Add(start >= solver.Element(at.tolist(), unit.node))
            else:
                kind = solver.Element(kinds, unit.node)
                solver.Add(start >= solver.Element(flat, (kind * stride + unit.place[r]).Var()))


NO_RECTANGLES = RunningJobRectangles(*(np.empty(0, np.int64) for _ in range(3)))


def _make_constant_cache(solver: Any) -> Callable[[int], Any]:
    """Return a function that converts constants to variables and caches them."""
    known: dict[int, Any] = {}

    def constant(value: int) -> Any:
        if value not in known:
            known[value] = solver.IntConst(value)
        return known[value]

    return constant


def post_capacity_cumulative(variables: PositionModelVariables, r: int, fixed: RunningJobRectangles) -> None:
    """Post the implied cumulative(s, d, amounts of `r`), with one task per job."""
    solver, facts = variables.solver, variables.facts
    tasks, demands = [], []
    for j, units in enumerate(variables.units):
        demand = sum(unit.size.get(r, 0) for unit in units)
        if variables.sharing(j) & EXCLUSIVE:
            slot = int(facts.jobs[j])
            demand = len(units) * int(
                facts.machine.capacity[eligible_nodes(facts, slot), r].min() // variables.grain[r]
            )
        if demand > 0:
            tasks.append(solver.FixedDurationIntervalVar(variables.start[j], variables.estimate_s(j), ""))
            demands.append(demand)
    ends, which = np.unique(fixed.duration_s, return_inverse=True)
    held = np.bincount(which, weights=fixed.size, minlength=len(ends)).astype(np.int64)
    for duration_s, amount in zip(ends.tolist(), held.tolist(), strict=True):
        tasks.append(solver.FixedInterval(0, duration_s, ""))
        demands.append(amount)
    total = int(facts.machine.capacity[variables.nodes, r].sum() // variables.grain[r])
    if tasks:
        solver.Add(solver.Cumulative(tasks, demands, total, ""))


def post_free_amount_cumulative(
    solver: Any, tasks: Sequence[Any], demands: Sequence[int], moment_s: Sequence[int], free: Sequence[int]
) -> None:
    """Limit `tasks` to ascending `free` amounts from each `moment_s` (s from now) on."""
    demanded = [(task, amount) for task, amount in zip(tasks, demands, strict=True) if amount > 0]
    for until_s, before, after in zip(moment_s[1:], free, free[1:], strict=False):
        if after > before:
            demanded.append((solver.FixedInterval(0, until_s, ""), after - before))
    solver.Add(solver.Cumulative([task for task, _ in demanded], [amount for _, amount in demanded], free[-1], ""))


def post_all_different_nodes(variables: PositionModelVariables, j: int) -> None:
    """Post alldifferent(x) for a job whose units must not share a node.

    For whole nodes, diffn implies it.
    """
    if variables.sharing(j) & DISTINCT and len(variables.units[j]) > 1:
        variables.solver.Add(variables.solver.AllDifferent([unit.node for unit in variables.units[j]], False))


def post_whole_node_capacity(variables: PositionModelVariables, j: int) -> None:
    """Require that an exclusive job's nodes together hold all its units."""
    facts, slot = variables.facts, int(variables.facts.jobs[j])
    if not variables.sharing(j) & EXCLUSIVE:
        return
    room = units_fitting_on_empty_nodes(facts, slot)[variables.nodes]
    if len(np.unique(room[room > 0])) > 1:
        rooms = [variables.solver.Element(room.tolist(), unit.node) for unit in variables.units[j]]
        variables.solver.Add(variables.solver.Sum(rooms) >= int(facts.table.units[slot]))
