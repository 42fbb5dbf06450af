"""Define the models of pools: HCP's, and PCP'20's for identical units, whose positions need no variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.decision_builder import ScheduleOrPostponeDecisionBuilder
from cpsched.dispatchers.cp.position_model import post_free_amount_cumulative
from cpsched.dispatchers.cp.presolve import pool_relaxation
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, CumulativeRelaxation
from cpsched.kernels.cp.relaxation import build_relaxation
from cpsched.kernels.cp.startable_jobs import units_fitting_on_empty_nodes
from cpsched.model import DISTINCT, EXCLUSIVE, BoolArray, IntArray

TASK_S = 2e-5
"""Time to build one task of a cumulative and propagate it once, in seconds."""


class PoolModel:
    """HCP's model of the cluster, with one pool per resource (cp19 section 2.2)."""

    own_search_proves = True

    def __init__(self, solver: Any, problem: CpProblem, plan: CpPlan | None) -> None:
        facts = problem.facts
        self.solver, self.facts, self.horizon_s = solver, facts, problem.horizon_s
        self._problem, self._pools = problem, self.build_relaxation(problem)
        self._durations = facts.table.estimate_s[facts.jobs].tolist()
        self.start = [solver.IntVar(0, self.horizon_s - duration_s) for duration_s in self._durations]

    @staticmethod
    def build_relaxation(problem: CpProblem) -> CumulativeRelaxation:
        """Return the pools that can run short, with their free amounts and demands."""
        return pool_relaxation(problem)

    @staticmethod
    def min_build_time_s(problem: CpProblem, plan: CpPlan | None) -> float:
        """Return a lower bound on the build time in seconds."""
        return TASK_S * (len(problem.facts.jobs) + len(problem.facts.running))

    @property
    def build_time_s(self) -> float:
        """Expected time to build the model and propagate once, in seconds."""
        tasks = len(self._pools.demand) + len(self._pools.moment_s)
        return TASK_S * int(self._pools.demand.shape[1]) * tasks

    def post_constraints(self) -> None:
        """Post a cumulative for each pool that can run short."""
        solver, tasks = self.solver, self.build_job_intervals()
        for slot in self._problem.rest.tolist():
            duration_s = int(self.facts.table.estimate_s[slot])
            tasks.append(solver.FixedInterval(self.horizon_s - duration_s, duration_s, ""))
        for k in range(self._pools.demand.shape[1]):
            self.post_pool_cumulative(k, tasks)

    def build_job_intervals(self) -> list[Any]:
        """Return the considered jobs as intervals."""
        pairs = zip(self.start, self._durations, strict=True)
        return [self.solver.FixedDurationIntervalVar(start, duration_s, "") for start, duration_s in pairs]

    def post_pool_cumulative(self, k: int, tasks: Sequence[Any]) -> None:
        """Limit the jobs to the amounts of pool `k` that are free over time."""
        demands, free = self._pools.demand[:, k].tolist(), self._pools.capacity[:, k].tolist()
        post_free_amount_cumulative(
            self.solver, tasks, demands, (self._pools.moment_s - self.facts.now_s).tolist(), free
        )

    def placement_variables_and_values(self, plan: CpPlan, j: int) -> tuple[list[Any], list[int]]:
        """Return empty lists, because jobs have no places."""
        return [], []

    def make_decision_builder(
        self, plan: CpPlan | None, rank: Sequence[int] | None, complete: bool
    ) -> ScheduleOrPostponeDecisionBuilder:
        """Return the search that starts or postpones jobs, by rank or in given order."""
        return ScheduleOrPostponeDecisionBuilder(self, plan, rank, complete)

    def read_plan(self, search: ScheduleOrPostponeDecisionBuilder) -> CpPlan:
        """Return the plan of the solution that `search` found."""
        return search.plan


def are_all_units_identical(facts: CpInstance) -> bool:
    """Return whether all considered units are identical, so that counting suffices."""
    slots = facts.jobs
    columns = (facts.table.sharing[slots], facts.table.node_set[slots], *facts.table.per_unit[slots].T)
    if any((column != column[0]).any() for column in columns):
        return False
    sharing, slot = int(facts.table.sharing[slots[0]]), int(slots[0])
    if sharing & EXCLUSIVE:  # a slot is a whole node, so all nodes must hold the same number of units
        room = units_fitting_on_empty_nodes(facts, slot)
        return len(np.unique(room[room > 0])) <= 1
    if sharing & DISTINCT:  # a job may use only one slot on a node
        asked = facts.table.per_unit[slot] > 0
        held = (
            facts.machine.capacity[units_fitting_on_empty_nodes(facts, slot) > 0][:, asked]
            // facts.table.per_unit[slot][asked]
        )
        return bool((held.min(axis=1) <= 1).all())
    return True


class IdenticalUnitsModel(PoolModel):
    """PCP'20's model for identical units, in which the slots form a pool.

    If every considered job requests the same kind of unit, a node holds a fixed number of units at a time. The space
    for one unit is a *slot*. A slot used by a running job becomes free when that job ends, and stays free. Therefore,
    jobs fit if and only if the number of running units never exceeds the number of free slots. If jobs are placed in
    the order of their starts, each job finds enough free slots, whichever slots other jobs occupy. One cumulative
    expresses this condition. The dive's kernel chooses the places.
    """

    @staticmethod
    def build_relaxation(problem: CpProblem) -> CumulativeRelaxation:
        """Return capacities that can run short. Slots come first and imply the others."""
        return build_relaxation(problem.facts, True)

    @property
    def build_time_s(self) -> float:
        """Expected time to build the model and propagate once, in seconds."""
        return TASK_S * (len(self.start) + len(self._pools.moment_s))

    def post_constraints(self) -> None:
        """Limit the running units to the free slots if these can run short."""
        if self._pools.demand.shape[1] > 0:
            self.post_pool_cumulative(0, self.build_job_intervals())

    def make_decision_builder(
        self, plan: CpPlan | None, rank: Sequence[int] | None, complete: bool
    ) -> ScheduleOrPostponeDecisionBuilder:
        """Return the search, in which a starting job takes the first free slots."""
        return IdenticalUnitsDecisionBuilder(self, plan, rank, complete)


class IdenticalUnitsDecisionBuilder(ScheduleOrPostponeDecisionBuilder):
    """A search over slots, whose two forms are equal because places do not matter."""

    @override
    def first_startable_job(self, placed: BoolArray, earliest_s: IntArray) -> tuple[int, IntArray]:
        return self.find_and_place_startable_job(placed, earliest_s)
