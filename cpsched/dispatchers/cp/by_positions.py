"""The allocation model of PCP'20: one first position for each unit and resource, whatever the number of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpsched.dispatchers.cp import constraints, window
from cpsched.dispatchers.cp.positions import Plan
from cpsched.dispatchers.cp.search import Guided, Search, values_of
from cpsched.dispatchers.cp.variables import Boxes, Stairs, occupied, stairs, variables
from cpsched.dispatchers.cp.window import Problem

_PAIR_S = 3.5e-7
"""First propagation of diffn, by pair of boxes."""
_PART_S = 0.0005
"""Building the model and its first propagation, by part (measured: 0.36 ms)."""
_ELEMENT_S = 5e-5
_STEP_S = 1.5e-7
"""A staircase, by unit, and by unit and entry."""


class PositionModel:
    """See `engine.Model`; variables, constraints and search are in the modules of those names."""

    own_search_proves = True

    def __init__(self, solver: Any, problem: Problem, plan: Plan) -> None:
        self.solver, self.facts, self.horizon_s = solver, problem.facts, problem.horizon_s
        self._parts = int(plan.parts.sum())
        self.variables = variables(solver, problem.facts, problem.horizon_s, plan)
        self.start = self.variables.start
        self._held = {r: occupied(self.variables, r) for r in self.variables.resources}
        self._stairs = {r: self._cheaper(r, held) for r, held in self._held.items()}

    def _cheaper(self, r: int, held: Boxes) -> Stairs | None:
        """What runs as a staircase, or None where its boxes in diffn cost less."""
        found, boxes = stairs(self.variables, r, held), len(held.size)
        if found is None:
            return None
        steps = len(found.kind_of) + found.free_from.size
        as_boxes_s = (2 * self._parts + boxes) * boxes * _PAIR_S
        return found if self._parts * (_ELEMENT_S + steps * _STEP_S) < as_boxes_s else None

    @staticmethod
    def least_cost_s(problem: Problem, plan: Plan | None) -> float:
        """What building takes at least, in seconds; known before anything is built."""
        return _PART_S * int(plan.parts.sum()) if plan is not None else 0.0

    @property
    def cost_s(self) -> float:
        """What building and the first propagation take, in seconds; that grows with the square of the boxes."""
        beside = (len(held.size) if self._stairs[r] is None else 0 for r, held in self._held.items())
        boxes = (self._parts + count for count in beside)
        return self._parts * _PART_S + sum(count * count for count in boxes) * _PAIR_S

    def post(self) -> None:
        """All constraints."""
        constraints.post(self.variables, self._held, self._stairs)

    def leaf(self, plan: Plan, j: int) -> tuple[list[Any], list[int]]:
        """The variables of the places of job `j`, and their values in `plan`."""
        return values_of(self.variables, plan, j)

    def search(self, plan: Plan | None, rank: Sequence[int] | None, complete: bool) -> Guided:
        """The guided search; without ranks in priority order."""
        shown = plan if plan is not None else window.empty_plan(self.facts)
        ranks = rank if rank is not None else range(len(self.start))
        return Search(self, self.variables, shown, ranks, complete)

    def read(self, search: Guided) -> Plan:
        """The plan of the solution that `search` stands on."""
        return search.plan
