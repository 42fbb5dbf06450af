"""Minimize one metric of all queued jobs with CP-SAT (debs24: CP per objective)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.cp import cp_problem, presolve
from cpsched.dispatchers.cp.cp_objective import (
    OBJECTIVES,
    FloatArray,
    job_areas,
    site_priority_factors,
    with_site_priority,
)
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.solve_result import (
    CpSolveResult,
    build_solve_effort,
    decision_of_unplaced_plan,
    empty_decision,
)
from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.errors import require
from cpsched.kernels.cp.cp_state import CpInstance, WeightedDelayObjective, empty_plan, empty_plan_instant
from cpsched.kernels.cp.relaxation import build_relaxation
from cpsched.kernels.cp.startable_jobs import ever_startable_slots, startable_slots
from cpsched.model import NEVER, Decision, Effort, IntArray, Need, Snapshot
from cpsched.planning import EVERY_JOB, ORDERS, Allocation, ListSchedulerSpec, plan_by_spec

if TYPE_CHECKING:  # imports the solver
    from cpsched.dispatchers.cp.cp_sat import PoolSchedulingProblem

Metric = Literal["bsld", "af", "awf", "p2sf"]


class CpSatDispatcher(Dispatcher):
    """A dispatcher that plans the queue on pools with a minimal `objective`.

    - `objective`: bsld, af or awf (sums over the queued jobs), or p2sf (a ratio of two sums).
    - `site_weight`: weight of the site's priority. With 0, the priority is ignored. With 1, it counts as much as the
      objective's own weights (see `cpsched.site.priority_multipliers`). In p2sf, the priority multiplies the
      processors, which are the weights of the ratio.
    - `plans`: comma-separated orders of list plans (`spf,saf,sjf`). The solver improves each list plan and also plans
      from scratch. The best result is used (debs24: CP-BSLD+, CP-P2SF+).
    - `limit_s`: solver time per round in seconds, shared by all plans of the round. If the solver finds no plan,
      list-reg decides (path `late`). debs24 allows 20 s, or 40 s if no plan is found within 20 s.
    - `effort`: limit in thousandths of the solver's deterministic time, instead of seconds.
    - `allocation`: node selection. If the pool plan starts a job that does not fit on the nodes, the job waits and
      `unplaced` counts it.

    The effort of a decision contains its objective and, if known, a proven lower bound. Their difference is the gap.
    P2SF has no bound. Idling can lower P2SF, which is undesirable. Therefore, if all jobs can start now, all start.
    """

    certain = True
    """Whether the solver is skipped if no search can change the decision. Studies set False."""

    def __init__(
        self,
        objective: Metric = "bsld",
        plans: str = "",
        site_weight: float = 0.0,
        limit_s: float = 20.0,
        effort: int | None = None,
        allocation: Allocation = "best-fit",
        seed: int = 0,
    ) -> None:
        require(site_weight >= 0, "site_weight", site_weight, "must not be negative")
        require(limit_s > 0, "limit_s", limit_s, "must be positive")
        require(effort is None or effort > 0, "effort", effort, "must be positive")
        self._metric: Metric = objective
        self._site_weight = site_weight
        self._orders = tuple(name.strip() for name in plans.split(",") if name.strip())
        for name in self._orders:
            require(name in ORDERS, "plans", name, f"must be one or more of: {', '.join(ORDERS)}")
        self._limit_s, self._effort, self._seed = limit_s, effort, seed
        self._allocation = allocation

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        facts = cp_problem.build_cp_instance(snapshot)
        slots = ever_startable_slots(facts, snapshot.queue, empty_plan_instant(facts.machine.capacity))
        if len(slots) == 0 or (self.certain and len(startable_slots(facts, slots, 1)) == 0):
            return empty_decision(snapshot, Effort("nothing-fits" if len(snapshot.queue) else "empty-queue"), need)
        objective = self._build_objective(snapshot, slots)
        order = _positions_by_area_per_weight(snapshot, slots, objective)
        slots = slots[order]
        objective = WeightedDelayObjective(objective.weight[order], objective.since_s[order], objective.constant)
        problem = CpProblem(facts.with_considered_jobs(slots), objective, slots[:0], False)
        answer = self._presolve_or_solve(snapshot, problem)
        if answer.plan is None:
            return self._decide_by_list_scheduling(snapshot, answer, len(slots), need)
        effort = build_solve_effort(problem.facts, answer, objective, len(slots))
        if self._metric == "p2sf" and effort.objective is not None:
            effort = replace(
                effort, objective=self._compute_p2sf(snapshot, problem.facts, answer.plan.start_s), bound=None
            )
        return decision_of_unplaced_plan(snapshot, problem.facts, answer.plan, effort, need, self._allocation)

    def _build_objective(self, snapshot: Snapshot, slots: IntArray) -> WeightedDelayObjective:
        """Return the objective to minimize or, for p2sf, the awf objective to order jobs."""
        name = "awf" if self._metric == "p2sf" else self._metric
        objective = OBJECTIVES[name](snapshot, slots, ExpectedQueueWaits({}))
        return with_site_priority(objective, snapshot, slots, self._site_weight) if self._site_weight else objective

    def _presolve_or_solve(self, snapshot: Snapshot, problem: CpProblem) -> CpSolveResult:
        """Return the presolve result if it is conclusive, or else the solver's result."""
        answer = presolve.solve_pool_tree(problem, left_shifted=True)
        regular = self._metric != "p2sf" or answer.path in ("single", "all-fit")
        if self.certain and answer.certain and regular:
            return answer
        return self._solve_from_list_plans(snapshot, problem, answer)

    def _solve_from_list_plans(self, snapshot: Snapshot, problem: CpProblem, answer: CpSolveResult) -> CpSolveResult:
        """Return the best plan of solver runs that start from the given and list plans."""
        from cpsched.dispatchers.cp import cp_sat  # imports the solver on first use

        facts, objective = problem.facts, problem.objective
        pooled = _build_pool_problem(problem)
        hints: list[IntArray | None] = [_plan_list_starts(snapshot, facts, name) for name in self._orders]
        hints = [hint for hint in hints if hint is not None]
        effort = self._effort // (len(hints) + 1) + 1 if self._effort is not None else None
        budget = cp_sat.CpSatBudget(self._limit_s / (len(hints) + 1), effort, self._seed)
        first = answer.plan.start_s if answer.plan is not None and answer.plan.start_s[0] >= facts.now_s else None
        if self._metric == "p2sf":
            submit_s, processors = snapshot.table.submit_s[facts.jobs], self._site_weighted_processors(snapshot, facts)
            shown = _plan_list_starts(snapshot, facts, "reg")
            starts = [hint for hint in (shown if shown is not None else first, *hints) if hint is not None]
            if not starts:
                return CpSolveResult(None, "late", False, status="unknown")
            found = [cp_sat.solve_p2sf(pooled, submit_s, processors, budget, start) for start in starts]
        else:
            found = [cp_sat.solve_pool_problem(pooled, objective, budget, hint) for hint in (first, *hints)]
        best = min(found, key=lambda each: each.cost)
        if best.start_s is None:
            return CpSolveResult(None, "late", False, status=best.status)
        plan = empty_plan(facts)
        plan.start_s[:] = best.start_s
        bounds = [each.bound for each in found if each.bound is not None]
        return CpSolveResult(
            plan,
            "solver",
            False,
            max(bounds, default=0.0),
            "optimal" if any(each.status == "optimal" for each in found) and bounds else best.status,
            sum(each.seconds for each in found),
            sum(each.branches for each in found),
        )

    def _compute_p2sf(self, snapshot: Snapshot, facts: CpInstance, start_s: IntArray) -> float:
        """Return the P2SF of the planned jobs."""
        wait = (start_s - snapshot.table.submit_s[facts.jobs]).astype(np.float64)
        response, r = wait + facts.table.estimate_s[facts.jobs], self._site_weighted_processors(snapshot, facts)
        return float(0.75 * (r * (response**4 - wait**4)).sum() / (r * (response**3 - wait**3)).sum())

    def _site_weighted_processors(self, snapshot: Snapshot, facts: CpInstance) -> FloatArray:
        """Return r in P2SF, each job's processors multiplied by the site's factors."""
        taken = facts.table.units[facts.jobs] * facts.table.per_unit[facts.jobs, 0]
        processors: FloatArray = np.maximum(1, taken).astype(np.float64)
        if not self._site_weight:
            return processors
        return processors * site_priority_factors(snapshot, facts.jobs, self._site_weight, processors)

    @staticmethod
    def _decide_by_list_scheduling(snapshot: Snapshot, answer: CpSolveResult, considered: int, need: Need) -> Decision:
        """Return the decision of list-reg, used if the solver finds no plan."""
        decision = plan_by_spec(ListSchedulerSpec(EVERY_JOB, "reg"), snapshot, need)
        effort = Effort("late", considered, considered, answer.status, solver_s=answer.solver_s)
        return replace(decision, effort=effort)


def _build_pool_problem(problem: CpProblem) -> PoolSchedulingProblem:
    """Return the problem on pools."""
    from cpsched.dispatchers.cp.cp_sat import PoolSchedulingProblem

    facts, found = problem.facts, build_relaxation(problem.facts, False)
    nothing = np.zeros(len(facts.jobs), np.int64)
    durations = facts.table.estimate_s[facts.jobs]
    return PoolSchedulingProblem(
        facts.now_s, nothing, durations, found.demand, found.moment_s - facts.now_s, found.capacity
    )


def _plan_list_starts(snapshot: Snapshot, facts: CpInstance, order: str) -> IntArray | None:
    """Return the jobs' starts from list scheduling, or None if a job has no start."""
    plan_s = plan_by_spec(ListSchedulerSpec(EVERY_JOB, order), snapshot, "plan").plan_s
    if plan_s is None:
        return None
    at = dict(zip(snapshot.queue.tolist(), plan_s.tolist(), strict=True))
    starts = np.array([at[slot] for slot in facts.jobs.tolist()], np.int64)
    return None if (starts == NEVER).any() else starts


def _positions_by_area_per_weight(snapshot: Snapshot, slots: IntArray, objective: WeightedDelayObjective) -> IntArray:
    """Return positions by area / weight, then by larger area (debs24 section 5.1)."""
    area = job_areas(snapshot, slots)
    return np.lexsort((-area, np.round(area / objective.weight, 6)))
