"""PCP'20's model where all units are alike: positions that are equal are one class, and a class needs no variables.

Where every considered job asks for the same kind of unit, a node has room for a fixed number of units at a time. The
room for one unit is a *slot*: equal positions, merged. A slot held by a running job becomes free when that job ends,
and stays free. Therefore the jobs fit into the slots exactly if at no moment more units run than slots are free: taken
in the order of starts, each job finds as many free slots as the count says, whichever slots the others took. One
cumulative states this. The dive's kernel chooses the places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.decision_builder import GuidedDecisionBuilder
from cpsched.dispatchers.cp.pool_model import TASK_S, PoolModel
from cpsched.kernels.cp.cp_state import CpInstance, Plan, Relaxation
from cpsched.kernels.cp.relaxation import relax
from cpsched.kernels.cp.startable_jobs import room_when_empty
from cpsched.model import DISTINCT, EXCLUSIVE, BoolArray, IntArray


def all_alike(facts: CpInstance) -> bool:
    """Whether all units of the considered jobs are of one kind, so that a node's room for them is merely counted."""
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
    """The model by slots, which are a pool."""

    @staticmethod
    def relaxed(problem: CpProblem) -> Relaxation:
        """The capacities that can run short. The slots come first, and imply the others."""
        return relax(problem.facts, True)

    @property
    def cost_s(self) -> float:
        """What building and the first propagation take, in seconds."""
        return TASK_S * (len(self.start) + len(self._pools.moment_s))

    def post(self) -> None:
        """No more units run than slots are free. Nothing is posted where all units find a slot even now."""
        if self._pools.demand.shape[1] > 0:
            self.keep_within(0, self.tasks())

    def search(self, plan: Plan | None, rank: Sequence[int] | None, complete: bool) -> GuidedDecisionBuilder:
        """Schedule or postpone; a job that starts takes the first slots that are free."""
        return SlotSearch(self, plan, rank, complete)


class SlotSearch(GuidedDecisionBuilder):
    """Both forms of `GuidedDecisionBuilder` are the same here: other places would change nothing."""

    @override
    def first(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        return self.first_with_room(placed, earliest_s)
