"""The scheduling model of HCP: start times alone, all nodes one pool of each resource (cp19 section 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpsched.dispatchers.cp.certain import pools
from cpsched.dispatchers.cp.constraints import no_more_than_free
from cpsched.dispatchers.cp.positions import Plan
from cpsched.dispatchers.cp.search import Guided
from cpsched.dispatchers.cp.window import Problem

_TASK_S = 2e-5
"""Building and first propagation, by task of a cumulative."""


class PoolModel:
    """See `engine.Model`."""

    own_search_proves = True

    def __init__(self, solver: Any, problem: Problem, plan: Plan | None) -> None:
        facts = problem.facts
        self.solver, self.facts, self.horizon_s = solver, facts, problem.horizon_s
        self._problem, self._pools = problem, pools(problem)
        self._durations = facts.estimate_s[facts.jobs].tolist()
        self.start = [solver.IntVar(0, self.horizon_s - duration_s) for duration_s in self._durations]

    @staticmethod
    def least_cost_s(problem: Problem, plan: Plan | None) -> float:
        """What building takes at least, in seconds."""
        return _TASK_S * (len(problem.facts.jobs) + len(problem.facts.running))

    @property
    def cost_s(self) -> float:
        """What building and the first propagation take, in seconds."""
        tasks = len(self._pools.demand) + len(self._pools.moment_s)
        return _TASK_S * int(self._pools.demand.shape[1]) * tasks

    def post(self) -> None:
        """A cumulative for each pool that can run short; what runs are fixed tasks, merged by their end."""
        solver, pools = self.solver, self._pools
        tasks = [solver.FixedDurationIntervalVar(*pair, "") for pair in zip(self.start, self._durations, strict=True)]
        for slot in self._problem.rest.tolist():
            duration_s = int(self.facts.estimate_s[slot])
            tasks.append(solver.FixedInterval(self.horizon_s - duration_s, duration_s, ""))
        moment_s = (pools.moment_s - self.facts.now_s).tolist()
        for k in range(pools.demand.shape[1]):
            no_more_than_free(solver, tasks, pools.demand[:, k].tolist(), moment_s, pools.capacity[:, k].tolist())

    def leaf(self, plan: Plan, j: int) -> tuple[list[Any], list[int]]:
        """No job has places."""
        return [], []

    def search(self, plan: Plan | None, rank: Sequence[int] | None, complete: bool) -> Guided:
        """Schedule or postpone; without ranks in priority order."""
        return Guided(self, plan, rank, complete)

    def read(self, search: Guided) -> Plan:
        """The plan of the solution that `search` stands on."""
        return search.plan
