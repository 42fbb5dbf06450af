"""PCP'20's model where all units are alike: positions that are equal are one class, and a class needs no variables.

Where every considered job asks for the same kind of unit, a node has room for so many of them at a time. Each such room
is a *slot*: equal positions, merged. A slot that running jobs hold becomes free when they end, and stays free. Then
diffn over the slots has a solution exactly where no moment has more units than free slots: all that runs holds its
slots from now on, so that whoever starts next, in the order of starts, finds as many free as the count says, whichever
the others took. One cumulative says that; the dive's kernel chooses the places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cpsched.dispatchers.cp import relaxation
from cpsched.dispatchers.cp.constraints import no_more_than_free
from cpsched.dispatchers.cp.positions import Facts, Plan, room_when_empty
from cpsched.dispatchers.cp.search import Guided
from cpsched.dispatchers.cp.window import Problem
from cpsched.model import DISTINCT, EXCLUSIVE, BoolArray, IntArray

_TASK_S = 2e-5
"""Building and first propagation, by task of the cumulative."""


def all_alike(facts: Facts) -> bool:
    """Whether all units of the considered jobs are of one kind, and a node's rooms for it are as good as separate."""
    slots = facts.jobs
    columns = (facts.sharing[slots], facts.node_set[slots], *facts.per_unit[slots].T)
    if any((column != column[0]).any() for column in columns):
        return False
    sharing, slot = int(facts.sharing[slots[0]]), int(slots[0])
    if sharing & EXCLUSIVE:  # a slot is a whole node: each has to hold as many units as any other
        room = room_when_empty(facts, slot)
        return len(np.unique(room[room > 0])) <= 1
    if sharing & DISTINCT:  # of two slots of one node a job may use one only
        asked = facts.per_unit[slot] > 0
        held = facts.capacity[room_when_empty(facts, slot) > 0][:, asked] // facts.per_unit[slot][asked]
        return bool((held.min(axis=1) <= 1).all())
    return True


class SlotModel:
    """See `engine.Model`."""

    own_search_proves = True

    def __init__(self, solver: Any, problem: Problem, plan: Plan | None) -> None:
        facts = problem.facts
        self.solver, self.facts, self.horizon_s = solver, facts, problem.horizon_s
        self._durations = facts.estimate_s[facts.jobs].tolist()
        self._slots = relaxation.relax(facts, True)
        self.start = [solver.IntVar(0, self.horizon_s - duration_s) for duration_s in self._durations]

    @staticmethod
    def least_cost_s(problem: Problem, plan: Plan | None) -> float:
        """What building takes at least, in seconds."""
        return _TASK_S * (len(problem.facts.jobs) + len(problem.facts.running))

    @property
    def cost_s(self) -> float:
        """The same."""
        return _TASK_S * (len(self.start) + len(self._slots.moment_s))

    def post(self) -> None:
        """No more units than free slots; where all units find one even now, nothing is posted."""
        if self._slots.demand.shape[1] > 0:  # of what runs short the slots come first, and imply the rest
            solver = self.solver
            pairs = zip(self.start, self._durations, strict=True)
            tasks = [solver.FixedDurationIntervalVar(start, duration_s, "") for start, duration_s in pairs]
            until_s = (self._slots.moment_s - self.facts.now_s).tolist()
            no_more_than_free(
                solver, tasks, self._slots.demand[:, 0].tolist(), until_s, self._slots.capacity[:, 0].tolist()
            )

    def leaf(self, plan: Plan, j: int) -> tuple[list[Any], list[int]]:
        """No job has places."""
        return [], []

    def search(self, plan: Plan | None, rank: Sequence[int] | None, complete: bool) -> Guided:
        """Schedule or postpone; a job that starts takes the first slots that are free."""
        return SlotSearch(self, plan, rank, complete)

    def read(self, search: Guided) -> Plan:
        """The plan of the solution that `search` stands on."""
        return search.plan


class SlotSearch(Guided):
    """Both forms of `Guided` are the same here: other places would change nothing."""

    def first(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        """See `Guided.first`."""
        return self.first_with_room(placed, earliest_s)
