"""Implement the papers' guided search, which starts or postpones the next job.

The next job is the one that can start first. Among jobs that can start at the same time, it is the first by rank. A
plain decision builder would try places one by one, which takes too long under contention. This search posts places from
the dive's kernel. The solver verifies the places and propagates them to the other jobs. The search has two forms:

- `complete=False`: a job's places are one decision without an alternative. This is cheap and reaches most good leaves,
  but proves nothing.
- `complete=True`: every unit's place is a separate decision. Exhausting this search proves optimality.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from ortools.constraint_solver import pywrapcp
from typing_extensions import override

from cpsched.dispatchers.cp.position_variables import PositionModelVariables, UnitPlacementVariables
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, CpSearchState, empty_plan
from cpsched.kernels.cp.next_decision import (
    find_next_part_place,
    find_next_startable_job,
    highest_gap_below,
    new_search_state,
    next_possible_start,
)
from cpsched.kernels.fit_rules import UNBOUNDED, units_fitting_on_node
from cpsched.model import EXCLUSIVE, BoolArray, IntArray


class ConstraintModel(Protocol):
    """The variables and constraints of one problem."""

    solver: Any
    facts: CpInstance
    horizon_s: int
    start: list[Any]
    """Start variable of each job, in seconds from now."""

    own_search_proves: bool
    """Whether exhausting a search without ranks is a proof."""

    @property
    def build_time_s(self) -> float:
        """Expected time to build the model and propagate once, in seconds."""

    def post_constraints(self) -> None:
        """Post the constraints."""

    def placement_variables_and_values(self, plan: CpPlan, j: int) -> tuple[list[Any], list[int]]:
        """Return the variables for the places of job `j`, and their values in `plan`."""

    def make_decision_builder(self, plan: CpPlan | None, rank: Sequence[int] | None, complete: bool) -> Any:
        """Return a decision builder."""

    def read_plan(self, search: Any) -> CpPlan:
        """Return the plan of the solver's current solution."""


class ScheduleOrPostponeDecision(pywrapcp.PyDecision):  # type: ignore[misc]
    """Starts job `j` as early as possible, or postpones it."""

    def __init__(self, search: ScheduleOrPostponeDecisionBuilder, j: int, tau: int, chance: int) -> None:
        super().__init__()
        self._search, self._j, self._tau, self._chance = search, j, tau, chance

    def Apply(self, _: Any) -> None:  # noqa: N802
        """Post the start."""
        self._search.schedule_start(self._j, self._tau)

    def Refute(self, _: Any) -> None:  # noqa: N802
        """Post the postponement."""
        self._search.postpone(self._j, self._chance)


class AssignLargestValueDecision(pywrapcp.PyDecision):  # type: ignore[misc]
    """Assigns the largest free value to a variable, or requires a smaller value."""

    def __init__(self, variable: Any, value: int) -> None:
        super().__init__()
        self._variable, self._value = variable, value

    def Apply(self, _: Any) -> None:  # noqa: N802
        """Post the value."""
        self._variable.SetValue(self._value)

    def Refute(self, _: Any) -> None:  # noqa: N802
        """Require a smaller value."""
        self._variable.SetMax(self._value - 1)


class ScheduleOrPostponeDecisionBuilder(pywrapcp.PyDecisionBuilder):  # type: ignore[misc]
    """Builds the decisions of the guided search.

    `plan` contains the leaf of the current solution, which is empty at first if no plan is given. `rank` orders jobs
    that can start first, with the smallest rank first (by priority in the papers). Without ranks, jobs keep their
    order. This class decides starts. A model with places overrides `next_placement_decision`.
    """

    def __init__(self, model: ConstraintModel, plan: CpPlan | None, rank: Sequence[int] | None, complete: bool) -> None:
        super().__init__()
        jobs = len(model.start)
        self._model, self._complete = model, complete
        self._order = np.arange(jobs) if rank is None else np.argsort(rank, kind="stable")
        self.plan = plan if plan is not None else empty_plan(model.facts)
        self._depth = model.solver.IntVar(0, jobs)
        self._step: CpSearchState | None = None
        self._trail: list[int] = []
        self._offered = False
        self._kept: list[Any] = []

    def Next(self, solver: Any) -> Any:  # noqa: N802
        """Return the next decision, or None if every job is placed."""
        del self._trail[self._depth.Min() :]
        if self._trail and (decision := self.next_placement_decision(self._trail[-1])) is not None:
            return self._keep_reference(decision)
        return self._next_start_decision()

    def _next_start_decision(self) -> Any:
        """Return the start of the first job that fits, and postpone jobs that do not fit.

        Only the final postponed start of each job is posted, because every post triggers a propagation.
        """
        facts, placed, start = self._model.facts, self._placed_jobs(), self._model.start
        while True:
            earliest_s = np.array([s.Min() for s in start], np.int64) + facts.now_s
            j, postponed_s = self.first_startable_job(placed, earliest_s)
            late = np.flatnonzero(postponed_s >= 0)
            if j < 0 and len(late) == 0:
                return None
            if j >= 0 and len(late) == 0:
                tau = int(self.plan.start_s[j])
                chance = next_possible_start(facts, self.plan, self.search_state_after_placing(placed, j))
                return self._keep_reference(
                    ScheduleOrPostponeDecision(self, j, tau - facts.now_s, chance - facts.now_s)
                )
            at = postponed_s[late] - facts.now_s
            if at.max() > self._model.horizon_s:
                self._model.solver.Fail()
            self._postpone_all(late.tolist(), at.tolist())

    def first_startable_job(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        """Return the first job that can start, and each job's postponed start.

        -1 means no job or start. This method postpones no job, because the solver checks whether a job fits.
        """
        waiting = np.where(placed, UNBOUNDED, earliest_s)[self._order]
        j = -1 if placed.all() else int(self._order[np.argmin(waiting)])
        if j >= 0:
            self.plan.start_s[j] = earliest_s[j]
        return j, np.full(len(placed), -1, np.int64)

    def find_and_place_startable_job(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        """Find the first startable job with the dive's kernel, and plan its places."""
        step = self.search_state_after_placing(placed)
        step.earliest_s[:] = earliest_s
        return find_next_startable_job(self._model.facts, self.plan, step), step.postponed_to_s

    def search_state_after_placing(self, placed: BoolArray, j: int = -1, done: int = 0) -> CpSearchState:
        """Return the search state after placing `placed` jobs and `done` parts of `j`."""
        if self._step is None:
            self._step = new_search_state(self._model.facts, self._order)
        self._step.placed[:] = placed
        self._step.j, self._step.done = j, done
        return self._step

    def next_placement_decision(self, j: int) -> Any:
        """Return the next decision on a job's places, or None if all are assigned."""
        return None

    def _keep_reference(self, decision: Any) -> Any:
        """Keep a reference to a decision, because the solver does not keep one."""
        self._kept.append(decision)
        return decision

    def _placed_jobs(self) -> BoolArray:
        placed: BoolArray = np.zeros(len(self._order), np.bool_)
        placed[self._trail] = True
        return placed

    def _postpone_all(self, jobs: Sequence[int], at: Sequence[int]) -> None:
        """Postpone each job to its time in `at`, with few propagations."""
        start = self._model.start
        if len(jobs) < 3:
            for j, moment in zip(jobs, at, strict=True):
                self.postpone(j, moment)
            return
        least = self._model.solver.Min([(start[j] - moment).Var() for j, moment in zip(jobs, at, strict=True)])
        least.SetMin(0)

    def schedule_start(self, j: int, tau: int) -> None:
        """Post start `tau` of job `j`. Decisions on its parts follow."""
        depth = len(self._trail)
        self._trail.append(j)
        self._offered = False
        self._depth.SetMin(depth + 1)
        self.plan.start_s[j] = self._model.facts.now_s + tau
        self._model.start[j].SetValue(tau)

    def postpone(self, j: int, chance: int) -> None:
        """Require that job `j` starts at `chance` or later."""
        self._model.start[j].SetMin(chance)

    def assign_all_places_decision(self, undecided: Sequence[Any], values: Sequence[int]) -> Any:
        """Return a decision that assigns all of a job's places, or None if none is left."""
        if all(variable.Bound() for variable in undecided):
            return None
        if self._offered:
            self._model.solver.Fail()
        self._offered = True
        return self._model.solver.AssignVariablesValues(undecided, values)


class PositionDecisionBuilder(ScheduleOrPostponeDecisionBuilder):
    """Searches the position model, highest positions first (pcp20 section 3)."""

    def __init__(
        self,
        model: ConstraintModel,
        variables: PositionModelVariables,
        plan: CpPlan | None,
        rank: Sequence[int] | None,
        complete: bool,
    ) -> None:
        super().__init__(model, plan, rank, complete)
        self._variables = variables

    @override
    def first_startable_job(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        return self.find_and_place_startable_job(placed, earliest_s)

    @override
    def next_placement_decision(self, j: int) -> Any:
        return (
            self._next_part_placement_decision(j)
            if self._complete
            else self.assign_all_places_decision(*part_variables_and_values(self._variables, self.plan, j))
        )

    def _next_part_placement_decision(self, j: int) -> Any:
        """Return a decision on the first part without a place, or None if there is none."""
        plan, facts = self.plan, self._variables.facts
        placed = self._placed_jobs()
        placed[j] = False
        first = int(plan.first[j])
        for done, unit in enumerate(self._variables.units[j]):
            if done > 0:
                self._break_unit_symmetry(self._variables.units[j][done - 1], unit)
            if not unit.node.Bound():
                top = int(self._variables.nodes[unit.node.Max()])
                node = find_next_part_place(facts, plan, self.search_state_after_placing(placed, j, done), top)
                if node < 0:
                    self._variables.solver.Fail()
                return AssignLargestValueDecision(unit.node, int(np.searchsorted(self._variables.nodes, node)))
            for r, place in unit.place.items():
                if not place.Bound():
                    return AssignLargestValueDecision(
                        place, self._highest_free_position(self.search_state_after_placing(placed, j, done), unit, r)
                    )
            self._write_part_to_plan(j, first + done, unit)
        plan.parts[j] = len(self._variables.units[j])
        return None

    @staticmethod
    def _break_unit_symmetry(higher: UnitPlacementVariables, lower: UnitPlacementVariables) -> None:
        """Place a unit below the previous unit to break the symmetry of a job's units."""
        lower.node.SetMax(higher.node.Value())
        r = next(iter(lower.size))
        lower.position[r].SetMax(higher.position[r].Value() - lower.size[r])

    def _highest_free_position(self, step: CpSearchState, unit: UnitPlacementVariables, r: int) -> int:
        """Return the highest free position of resource `r` on the node of `unit`."""
        node = int(self._variables.nodes[unit.node.Value()])
        grain = int(self._variables.grain[r])
        ceiling = (unit.place[r].Max() + unit.size[r]) * grain
        y = highest_gap_below(self._variables.facts, self.plan, step, (node, r, ceiling))
        if y < 0:
            self._variables.solver.Fail()
        return int(y) // grain

    def _write_part_to_plan(self, j: int, part: int, unit: UnitPlacementVariables) -> None:
        """Write a placed part of job `j` to the plan."""
        plan, facts = self.plan, self._variables.facts
        slot, node = int(facts.jobs[j]), int(self._variables.nodes[unit.node.Value()])
        plan.node[part] = node
        if self._variables.sharing(j) & EXCLUSIVE:
            first = int(plan.first[j])
            given, later = int(plan.units[first:part].sum()), first + len(self._variables.units[j]) - part - 1
            room = units_fitting_on_node(facts.table, slot, facts.machine, facts.machine.capacity, node)
            # Each later part has at least one unit, because a placement has no node without units.
            plan.units[part] = min(room, int(facts.table.units[slot]) - given - later)
            plan.y[part], plan.dy[part] = 0, facts.machine.capacity[node]
            return
        plan.units[part] = 1
        plan.dy[part] = facts.table.per_unit[slot]
        plan.y[part] = 0
        for r, place in unit.place.items():
            plan.y[part, r] = place.Value() * int(self._variables.grain[r])


def part_variables_and_values(variables: PositionModelVariables, plan: CpPlan, j: int) -> tuple[list[Any], list[int]]:
    """Return the variables for the places of job `j`, and their values in `plan`."""
    first, count = int(plan.first[j]), int(plan.parts[j])
    if len(variables.units[j]) != count:  # nodes differ in size, and the plan uses a different number of nodes
        variables.solver.Fail()
    axis = np.searchsorted(variables.nodes, plan.node[first : first + count]).tolist()
    found: list[Any] = []
    values: list[int] = []
    for part, (unit, x) in enumerate(zip(variables.units[j], axis, strict=True), start=first):
        found.append(unit.node)
        values.append(x)
        for r, place in unit.place.items():
            found.append(place)
            whole = variables.sharing(j) & EXCLUSIVE
            values.append(0 if whole else int(plan.y[part, r] // variables.grain[r]))
    return found, values
