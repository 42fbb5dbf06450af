"""Define HCP's model, which has one pool per resource (cp19 section 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.decision_builder import ScheduleOrPostponeDecisionBuilder
from cpsched.dispatchers.cp.position_constraints import post_free_amount_cumulative
from cpsched.dispatchers.cp.presolve import pool_relaxation
from cpsched.kernels.cp.cp_state import CpPlan, CumulativeRelaxation

TASK_S = 2e-5
"""Time to build one task of a cumulative and propagate it once, in seconds."""


class PoolModel:
    """A model of the cluster as pools of resources."""

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
