"""PCP'20's model where all units are alike: positions that are equal are one class, and a class needs no variables.

Where every considered job asks for the same kind of unit, a node has room for so many of them at a time. Each such room
is a *slot*: equal positions, merged. A slot that running jobs hold becomes free when they end, and stays free. Then
diffn over the slots has a solution exactly where no moment has more units than free slots: all that runs holds its
slots from now on, so that whoever starts next, in the order of starts, finds as many free as the count says, whichever
the others took. One cumulative says that; the dive's kernel chooses the places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpsched.dispatchers.cp.by_pool import TASK_S, PoolModel
from cpsched.dispatchers.cp.search import Guided
from cpsched.dispatchers.cp.window import Problem
from cpsched.kernels.cp.considered import room_when_empty
from cpsched.kernels.cp.relaxation import relax
from cpsched.kernels.cp.state import Facts, Plan, Relaxation
from cpsched.model import DISTINCT, EXCLUSIVE, BoolArray, IntArray


def all_alike(facts: Facts) -> bool:
    """Whether all units of the considered jobs are of one kind, and a node's rooms for it are as good as separate."""
    slots = facts.jobs
    columns = (facts.table.sharing[slots], facts.table.node_set[slots], *facts.table.per_unit[slots].T)
    if any((column != column[0]).any() for column in columns):
        return False
    sharing, slot = int(facts.table.sharing[slots[0]]), int(slots[0])
    if sharing & EXCLUSIVE:  # a slot is a whole node: each has to hold as many units as any other
        room = room_when_empty(facts, slot)
        return len(np.unique(room[room > 0])) <= 1
    if sharing & DISTINCT:  # of two slots of one node a job may use one only
        asked = facts.table.per_unit[slot] > 0
        held = facts.machine.capacity[room_when_empty(facts, slot) > 0][:, asked] // facts.table.per_unit[slot][asked]
        return bool((held.min(axis=1) <= 1).all())
    return True


class SlotModel(PoolModel):
    """See `engine.Model`: the slots are a pool."""

    @staticmethod
    def relaxed(problem: Problem) -> Relaxation:
        """What runs short; of that the slots come first, and imply the rest."""
        return relax(problem.facts, True)

    @property
    def cost_s(self) -> float:
        """What building and the first propagation take, in seconds."""
        return TASK_S * (len(self.start) + len(self._pools.moment_s))

    def post(self) -> None:
        """No more units than free slots; where all units find one even now, nothing is posted."""
        if self._pools.demand.shape[1] > 0:
            self.keep_within(0, self.tasks())

    def search(self, plan: Plan | None, rank: Sequence[int] | None, complete: bool) -> Guided:
        """Schedule or postpone; a job that starts takes the first slots that are free."""
        return SlotSearch(self, plan, rank, complete)


class SlotSearch(Guided):
    """Both forms of `Guided` are the same here: other places would change nothing."""

    def first(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        """See `Guided.first`."""
        return self.first_with_room(placed, earliest_s)
