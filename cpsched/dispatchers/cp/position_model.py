"""Define PCP'20's allocation model, with one position per unit and resource."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpsched.dispatchers.cp import position_constraints
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.decision_builder import (
    PositionDecisionBuilder,
    ScheduleOrPostponeDecisionBuilder,
    part_variables_and_values,
)
from cpsched.dispatchers.cp.position_variables import (
    RunningJobRectangles,
    RunningJobStaircase,
    create_position_variables,
    fixed_running_job_rectangles,
    to_running_job_staircase,
)
from cpsched.kernels.cp.cp_state import CpPlan

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
        position_constraints.post_position_constraints(self.variables, self._held, self._stairs)

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
