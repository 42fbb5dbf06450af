"""The custom search of the papers, guided by the dive: the job that can start first starts, or is postponed.

Of jobs that can start at the same moment the first by rank is taken. A plain decision builder would have the solver try
places one by one, and would thrash as soon as jobs contend. This search asks the dive's kernel where the next job goes
and posts that; the solver verifies it and propagates it to the other jobs. The search has two forms:

- `complete=False`: the places of a job are one decision without alternative. Cheap, reaches most good leaves,
  proves nothing.
- `complete=True`: the place of every unit is a decision of its own. Exhausting it is a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from ortools.constraint_solver import pywrapcp
from typing_extensions import override

from cpsched.dispatchers.cp.position_variables import PositionVariables, UnitVariables
from cpsched.kernels.cp.cp_state import CpInstance, Plan, SearchStep, empty_plan
from cpsched.kernels.cp.search_guide import gap_below, new_step, next_chance, next_spot, next_to_start
from cpsched.kernels.fit_rules import UNBOUNDED, units_on
from cpsched.model import EXCLUSIVE, BoolArray, IntArray


class Model(Protocol):
    """Variables and constraints of one problem; nothing is posted before `post`."""

    solver: Any
    facts: CpInstance
    horizon_s: int
    start: list[Any]
    """By job, seconds from now."""

    own_search_proves: bool
    """Whether the search without ranks, where it ends, has seen everything."""

    @property
    def cost_s(self) -> float:
        """What building and the first propagation are expected to take."""

    def post(self) -> None:
        """Post the constraints."""

    def leaf(self, plan: Plan, j: int) -> tuple[list[Any], list[int]]:
        """The variables of the places of job `j`, and their values in `plan`."""

    def search(self, plan: Plan | None, rank: Sequence[int] | None, complete: bool) -> Any:
        """A decision builder."""

    def read(self, search: Any) -> Plan:
        """The plan of the solution that the solver stands on."""


class StartOrPostpone(pywrapcp.PyDecision):  # type: ignore[misc]
    """Job `j` starts at its earliest; or it is postponed."""

    def __init__(self, search: GuidedDecisionBuilder, j: int, tau: int, chance: int) -> None:
        super().__init__()
        self._search, self._j, self._tau, self._chance = search, j, tau, chance

    def Apply(self, _: Any) -> None:  # noqa: N802
        """Post the start."""
        self._search.open(self._j, self._tau)

    def Refute(self, _: Any) -> None:  # noqa: N802
        """Postpone."""
        self._search.postpone(self._j, self._chance)


class AssignLargest(pywrapcp.PyDecision):  # type: ignore[misc]
    """`variable` takes the largest value that is still free; or a smaller one."""

    def __init__(self, variable: Any, value: int) -> None:
        super().__init__()
        self._variable, self._value = variable, value

    def Apply(self, _: Any) -> None:  # noqa: N802
        """Post the value."""
        self._variable.SetValue(self._value)

    def Refute(self, _: Any) -> None:  # noqa: N802
        """Post that it is smaller."""
        self._variable.SetMax(self._value - 1)


class GuidedDecisionBuilder(pywrapcp.PyDecisionBuilder):  # type: ignore[misc]
    """The decision builder; `plan` holds the leaf it stands on when the solver reports a solution.

    `rank` says who goes first among the jobs that can start first (by job, smallest first; the paper: priority). What
    this class decides are starts; a model with places says in `parts` what comes after the start of a job. Without a
    plan the leaf is empty at first; without ranks jobs go in their own order.
    """

    def __init__(self, model: Model, plan: Plan | None, rank: Sequence[int] | None, complete: bool) -> None:
        super().__init__()
        jobs = len(model.start)
        self._model, self._complete = model, complete
        self._order = np.arange(jobs) if rank is None else np.argsort(rank, kind="stable")
        self.plan = plan if plan is not None else empty_plan(model.facts)
        self._depth = model.solver.IntVar(0, jobs)
        self._step: SearchStep | None = None
        self._trail: list[int] = []
        self._offered = False
        self._kept: list[Any] = []

    def Next(self, solver: Any) -> Any:  # noqa: N802
        """The next decision, None where every job is placed."""
        del self._trail[self._depth.Min() :]
        if self._trail and (decision := self.parts(self._trail[-1])) is not None:
            return self._keep(decision)
        return self._next_start()

    def _next_start(self) -> Any:
        """The start of the job that can start first. Jobs that have no room at their earliest are postponed.

        The solver is told where each ends up, not every step on the way: each telling sets off a propagation.
        """
        facts, placed, start = self._model.facts, self._placed(), self._model.start
        while True:
            earliest_s = np.array([s.Min() for s in start], np.int64) + facts.now_s
            j, put_off_s = self.first(placed, earliest_s)
            late = np.flatnonzero(put_off_s >= 0)
            if j < 0 and len(late) == 0:
                return None
            if j >= 0 and len(late) == 0:
                tau = int(self.plan.start_s[j])
                chance = next_chance(facts, self.plan, self.step(placed, j))
                return self._keep(StartOrPostpone(self, j, tau - facts.now_s, chance - facts.now_s))
            at = put_off_s[late] - facts.now_s
            if at.max() > self._model.horizon_s:
                self._model.solver.Fail()
            self._put_off(late.tolist(), at.tolist())

    def first(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        """The job, of those not `placed`, that can start first (-1 for none), and by job to when it is put off.

        Here no job is put off: the solver finds out whether there is room.
        """
        waiting = np.where(placed, UNBOUNDED, earliest_s)[self._order]
        j = -1 if placed.all() else int(self._order[np.argmin(waiting)])
        if j >= 0:
            self.plan.start_s[j] = earliest_s[j]
        return j, np.full(len(placed), -1, np.int64)

    def first_with_room(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        """The same where the dive's kernel finds places, which it writes into the plan."""
        step = self.step(placed)
        step.earliest_s[:] = earliest_s
        return next_to_start(self._model.facts, self.plan, step), step.put_off_s

    def step(self, placed: BoolArray, j: int = -1, done: int = 0) -> SearchStep:
        """The step for the kernels: jobs in `placed` have their places, and so have the first `done` parts of `j`."""
        if self._step is None:
            self._step = new_step(self._model.facts, self._order)
        self._step.placed[:] = placed
        self._step.j, self._step.done = j, done
        return self._step

    def parts(self, j: int) -> Any:
        """The next decision on the places of job `j`, None where it has them all."""
        return None

    def _keep(self, decision: Any) -> Any:
        """The solver holds no reference to a decision made in Python: keep one."""
        self._kept.append(decision)
        return decision

    def _placed(self) -> BoolArray:
        placed: BoolArray = np.zeros(len(self._order), np.bool_)
        placed[self._trail] = True
        return placed

    def _put_off(self, jobs: Sequence[int], at: Sequence[int]) -> None:
        """Let no job of `jobs` start before its moment: one constraint for all, and so one propagation."""
        start = self._model.start
        if len(jobs) < 3:
            for j, moment in zip(jobs, at, strict=True):
                self.postpone(j, moment)
            return
        least = self._model.solver.Min([(start[j] - moment).Var() for j, moment in zip(jobs, at, strict=True)])
        least.SetMin(0)

    def open(self, j: int, tau: int) -> None:
        """Post start `tau` of job `j`; its parts come next."""
        depth = len(self._trail)
        self._trail.append(j)
        self._offered = False
        self._depth.SetMin(depth + 1)
        self.plan.start_s[j] = self._model.facts.now_s + tau
        self._model.start[j].SetValue(tau)

    def postpone(self, j: int, chance: int) -> None:
        """Let job `j` start at the next moment at which it could, or later."""
        self._model.start[j].SetMin(chance)

    def at_once(self, undecided: Sequence[Any], values: Sequence[int]) -> Any:
        """One decision for all places of a job, offered once; None where they are taken."""
        if all(variable.Bound() for variable in undecided):
            return None
        if self._offered:
            self._model.solver.Fail()
        self._offered = True
        return self._model.solver.AssignVariablesValues(undecided, values)


class PositionDecisionBuilder(GuidedDecisionBuilder):
    """The search of the position model: each unit on the highest positions (pcp20 section 3)."""

    def __init__(
        self, model: Model, variables: PositionVariables, plan: Plan | None, rank: Sequence[int] | None, complete: bool
    ) -> None:
        super().__init__(model, plan, rank, complete)
        self._variables = variables

    @override
    def first(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        return self.first_with_room(placed, earliest_s)

    @override
    def parts(self, j: int) -> Any:
        return self._next_part(j) if self._complete else self.at_once(*values_of(self._variables, self.plan, j))

    def _next_part(self, j: int) -> Any:
        """A decision on the first part of job `j` that has no place yet; None where all have one."""
        plan, facts = self.plan, self._variables.facts
        placed = self._placed()
        placed[j] = False
        first = int(plan.first[j])
        for done, unit in enumerate(self._variables.units[j]):
            if done > 0:
                self._keep_order(self._variables.units[j][done - 1], unit)
            if not unit.node.Bound():
                top = int(self._variables.nodes[unit.node.Max()])
                node = next_spot(facts, plan, self.step(placed, j, done), top)
                if node < 0:
                    self._variables.solver.Fail()
                return AssignLargest(unit.node, int(np.searchsorted(self._variables.nodes, node)))
            for r, place in unit.place.items():
                if not place.Bound():
                    return AssignLargest(place, self._highest(self.step(placed, j, done), unit, r))
            self._note(j, first + done, unit)
        plan.parts[j] = len(self._variables.units[j])
        return None

    @staticmethod
    def _keep_order(higher: UnitVariables, lower: UnitVariables) -> None:
        """Break the symmetry of a job's units: each stands below the one before it."""
        lower.node.SetMax(higher.node.Value())
        r = next(iter(lower.size))
        lower.position[r].SetMax(higher.position[r].Value() - lower.size[r])

    def _highest(self, step: SearchStep, unit: UnitVariables, r: int) -> int:
        """The highest free position of resource `r` on the node of `unit`."""
        node = int(self._variables.nodes[unit.node.Value()])
        grain = int(self._variables.grain[r])
        ceiling = (unit.place[r].Max() + unit.size[r]) * grain
        y = gap_below(self._variables.facts, self.plan, step, (node, r, ceiling))
        if y < 0:
            self._variables.solver.Fail()
        return int(y) // grain

    def _note(self, j: int, part: int, unit: UnitVariables) -> None:
        """Write a placed part of job `j` into the plan."""
        plan, facts = self.plan, self._variables.facts
        slot, node = int(facts.jobs[j]), int(self._variables.nodes[unit.node.Value()])
        plan.node[part] = node
        if self._variables.sharing(j) & EXCLUSIVE:
            first = int(plan.first[j])
            given, later = int(plan.units[first:part].sum()), first + len(self._variables.units[j]) - part - 1
            room = units_on(facts.table, slot, facts.machine, facts.machine.capacity, node)
            # Each part that comes later holds at least one unit: a node without units is no part of a placement.
            plan.units[part] = min(room, int(facts.table.units[slot]) - given - later)
            plan.y[part], plan.dy[part] = 0, facts.machine.capacity[node]
            return
        plan.units[part] = 1
        plan.dy[part] = facts.table.per_unit[slot]
        plan.y[part] = 0
        for r, place in unit.place.items():
            plan.y[part, r] = place.Value() * int(self._variables.grain[r])


def values_of(variables: PositionVariables, plan: Plan, j: int) -> tuple[list[Any], list[int]]:
    """The variables of the places of job `j`, and the values that `plan` gives them."""
    first, count = int(plan.first[j]), int(plan.parts[j])
    if len(variables.units[j]) != count:  # whole nodes of another size: see `variables`
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
