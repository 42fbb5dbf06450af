"""The search of pcp20 section 3, guided: whoever can start first starts, on the highest positions; or is postponed.

A plain decision builder has the solver try positions one by one and thrashes as soon as jobs contend. This one asks
the dive's kernel where the next job goes, and posts start and positions value by value; the solver verifies them
and says what that means for the others. It comes in two forms:

- `complete=False`: a job's start and all of its positions are one decision; its alternative is to postpone the job.
  Cheap, reaches most good leaves, proves nothing.
- `complete=True`: start, node and position of every unit are decisions of their own. Exhausting it is a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ortools.constraint_solver import pywrapcp

from cpsched.dispatchers.cp import kernels
from cpsched.dispatchers.cp.kernels import Plan
from cpsched.dispatchers.cp.variables import Unit, Variables
from cpsched.model import EXCLUSIVE


class Place(pywrapcp.PyDecision):  # type: ignore[misc]
    """Job `j` starts as the plan says, on the positions the plan says; or it is postponed."""

    def __init__(self, search: Search, j: int, chance: int) -> None:
        super().__init__()
        self._search, self._j, self._chance = search, j, chance

    def Apply(self, _: Any) -> None:  # noqa: N802 - the solver's name
        """Post the start and every position."""
        self._search.post(self._j)

    def Refute(self, _: Any) -> None:  # noqa: N802
        """Postpone."""
        self._search.postpone(self._j, self._chance)


class Start(pywrapcp.PyDecision):  # type: ignore[misc]
    """Job `j` starts at its earliest; or it is postponed."""

    def __init__(self, search: Search, j: int, tau: int, chance: int) -> None:
        super().__init__()
        self._search, self._j, self._tau, self._chance = search, j, tau, chance

    def Apply(self, _: Any) -> None:  # noqa: N802
        """Post the start."""
        self._search.open(self._j, self._tau)

    def Refute(self, _: Any) -> None:  # noqa: N802
        """Postpone."""
        self._search.postpone(self._j, self._chance)


class Take(pywrapcp.PyDecision):  # type: ignore[misc]
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


class Search(pywrapcp.PyDecisionBuilder):  # type: ignore[misc]
    """The decision builder; `plan` holds the leaf it stands on when the solver reports a solution.

    `rank` says who goes first among the jobs that can start first (by job, smallest first; the paper: priority).
    """

    def __init__(self, variables: Variables, plan: Plan, rank: Sequence[int], complete: bool) -> None:
        super().__init__()
        self._variables, self._rank, self._complete = variables, rank, complete
        self.plan = plan
        self._depth = variables.solver.IntVar(0, len(rank))
        self._trail: list[int] = []
        self._kept: list[Any] = []

    def Next(self, solver: Any) -> Any:  # noqa: N802
        """The next decision, None where every job is placed."""
        del self._trail[self._depth.Min() :]
        if self._complete and self._trail and (decision := self._unplaced_part(self._trail[-1])) is not None:
            return self._keep(decision)
        facts, placed = self._variables.facts, self._placed()
        while True:
            waiting = [(s.Min(), self._rank[j], j) for j, s in enumerate(self._variables.start) if not placed[j]]
            if not waiting:
                return None
            tau, _, j = min(waiting)
            chance = kernels.next_chance(facts, self.plan, placed, j, facts.now_s + tau) - facts.now_s
            if kernels.put_at(facts, self.plan, placed, j, facts.now_s + tau):
                decision = Start(self, j, tau, chance) if self._complete else Place(self, j, chance)
                return self._keep(decision)
            self._variables.start[j].SetMin(chance)

    def _keep(self, decision: Any) -> Any:
        """The solver holds no reference to a decision made in Python: keep one."""
        self._kept.append(decision)
        return decision

    def _placed(self) -> Any:
        placed = np.zeros(len(self._rank), np.bool_)
        placed[self._trail] = True
        return placed

    def open(self, j: int, tau: int) -> None:
        """Post start `tau` of job `j`; its parts come next."""
        depth = len(self._trail)
        self._trail.append(j)
        self._depth.SetMin(depth + 1)
        self.plan.start_s[j] = self._variables.facts.now_s + tau
        self._variables.start[j].SetValue(tau)

    def post(self, j: int) -> None:
        """Post start and positions of job `j` as the plan has them."""
        self.open(j, int(self.plan.start_s[j]) - self._variables.facts.now_s)
        first = int(self.plan.first[j])
        if len(self._variables.units[j]) != self.plan.count[j]:
            self._variables.solver.Fail()
        axis = np.searchsorted(self._variables.nodes, self.plan.node[first : first + self.plan.count[j]])
        for part, (unit, x) in enumerate(zip(self._variables.units[j], axis.tolist(), strict=True), start=first):
            unit.node.SetValue(x)
            if not self._variables.sharing(j) & EXCLUSIVE:
                for r, place in unit.place.items():
                    place.SetValue(int(self.plan.y[part, r]))

    def postpone(self, j: int, chance: int) -> None:
        """Job `j` starts at the next moment that could help it, or later."""
        self._variables.start[j].SetMin(chance)

    def _unplaced_part(self, j: int) -> Any:
        """A decision on the first part of job `j` that has no place yet; None where all have one."""
        plan, facts = self.plan, self._variables.facts
        placed = self._placed()
        placed[j] = False
        tau, first = int(plan.start_s[j]), int(plan.first[j])
        for done, unit in enumerate(self._variables.units[j]):
            if not unit.node.Bound():
                top = int(self._variables.nodes[unit.node.Max()])
                node = kernels.next_spot(facts, plan, placed, j, done, top, tau)
                if node < 0:
                    self._variables.solver.Fail()
                return Take(unit.node, int(np.searchsorted(self._variables.nodes, node)))
            for r, place in unit.place.items():
                if not place.Bound():
                    return Take(place, self._highest(j, done, unit, r, tau, placed))
            self._note(j, first + done, unit)
        plan.count[j] = len(self._variables.units[j])
        return None

    def _highest(self, j: int, done: int, unit: Unit, r: int, tau: int, placed: Any) -> int:
        """The highest free position of resource `r` on the node of `unit`."""
        node = int(self._variables.nodes[unit.node.Value()])
        ceiling = unit.place[r].Max() + unit.size[r]
        y = kernels.gap_below(self._variables.facts, self.plan, placed, j, done, node, r, ceiling, tau)
        if y < 0:
            self._variables.solver.Fail()
        return int(y)

    def _note(self, j: int, part: int, unit: Unit) -> None:
        """Write a placed part of job `j` into the plan."""
        plan, facts = self.plan, self._variables.facts
        slot, node = int(facts.jobs[j]), int(self._variables.nodes[unit.node.Value()])
        plan.node[part] = node
        if self._variables.sharing(j) & EXCLUSIVE:
            given = int(plan.units[int(plan.first[j]) : part].sum())
            asked = facts.per_unit[slot] > 0
            room = int((facts.capacity[node, asked] // facts.per_unit[slot, asked]).min())
            plan.units[part] = min(room, int(facts.units[slot]) - given)
            plan.y[part], plan.dy[part] = 0, facts.capacity[node]
            return
        plan.units[part] = 1
        plan.dy[part] = facts.per_unit[slot]
        plan.y[part] = 0
        for r, place in unit.place.items():
            plan.y[part, r] = place.Value()
