"""The allocation model of PCP'20: one first position for each unit and resource, whatever the number of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpsched.dispatchers.cp import position_constraints
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.decision_builder import GuidedDecisionBuilder, PositionDecisionBuilder, values_of
from cpsched.dispatchers.cp.position_variables import Rectangles, StepProfile, fixed_rectangles, step_profile, variables
from cpsched.kernels.cp.cp_state import Plan

_PAIR_S = 1e-7
"""Seconds of the first propagation of diffn, for each pair of boxes (measured with 200 to 600 boxes)."""
_PART_S = 0.00015
"""Seconds of building and first propagation, for each part, without Elements (measured: 0.1 and 0.05 ms)."""
_ELEMENT_S = 1e-5
_STEP_S = 5e-8
"""Seconds of a staircase, for each unit and entry (measured with 64 to 50,000 entries: 4 to 7e-8)."""


class PositionModel:
    """The model by positions; variables, constraints and search are in the modules of those names."""

    own_search_proves = True

    def __init__(self, solver: Any, problem: CpProblem, plan: Plan) -> None:
        self.solver, self.facts, self.horizon_s = solver, problem.facts, problem.horizon_s
        self._parts = int(plan.parts.sum())
        self.variables = variables(solver, problem.facts, problem.horizon_s, plan)
        self.start = self.variables.start
        self._held = {r: fixed_rectangles(self.variables, r) for r in self.variables.resources}
        self._stairs = {r: self._cheaper(r, held) for r, held in self._held.items()}

    def _cheaper(self, r: int, held: Rectangles) -> StepProfile | None:
        """The running jobs as a staircase; None where boxes in diffn cost less."""
        found, boxes = step_profile(self.variables, r, held), len(held.size)
        if found is None:
            return None
        as_boxes_s = (2 * self._parts + boxes) * boxes * _PAIR_S
        return found if self._parts * _climbing_s(found) < as_boxes_s else None

    @staticmethod
    def least_cost_s(problem: CpProblem, plan: Plan | None) -> float:
        """What building takes at least, in seconds; known before anything is built."""
        return _PART_S * int(plan.parts.sum()) if plan is not None else 0.0

    @property
    def cost_s(self) -> float:
        """What building and the first propagation take, in seconds; grows with the square of the number of boxes."""
        total_s = self._parts * _PART_S
        for r, held in self._held.items():
            found = self._stairs[r]
            boxes = self._parts + (len(held.size) if found is None else 0)
            total_s += boxes * boxes * _PAIR_S + (self._parts * _climbing_s(found) if found is not None else 0.0)
        return total_s

    def post(self) -> None:
        """All constraints."""
        position_constraints.post(self.variables, self._held, self._stairs)

    def leaf(self, plan: Plan, j: int) -> tuple[list[Any], list[int]]:
        """The variables of the places of job `j`, and their values in `plan`."""
        return values_of(self.variables, plan, j)

    def search(self, plan: Plan | None, rank: Sequence[int] | None, complete: bool) -> GuidedDecisionBuilder:
        """The guided search."""
        return PositionDecisionBuilder(self, self.variables, plan, rank, complete)

    def read(self, search: GuidedDecisionBuilder) -> Plan:
        """The plan of the solution that `search` stands on."""
        return search.plan


def _climbing_s(steps: StepProfile) -> float:
    """What one unit's part of a staircase takes to build, in seconds."""
    return _ELEMENT_S + (len(steps.kind_of) + steps.free_from.size) * _STEP_S
