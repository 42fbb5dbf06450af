"""Define the result of a solver call, and derive decisions from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cpsched.dispatchers.cp import cp_problem
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, WeightedDelayObjective
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.kernels.cp.dive import collect_starts_now
from cpsched.kernels.cp.startable_jobs import startable_slots
from cpsched.model import NEVER, NO_STARTS, Decision, Effort, IntArray, Need, PendingCode, Snapshot, Starts
from cpsched.planning import GREEDY, Allocation, ListSchedulerSpec, plan_by_spec
from cpsched.wait_reasons import explain_waits


@dataclass(frozen=True, slots=True)
class CpSolveResult:
    """A plan for the considered jobs, or None, with its path and search effort.

    `bound` is a proven lower bound on the cost of delays (see `cp_objective`). `certain` means that no search can
    improve the plan.
    """

    plan: CpPlan | None
    path: str
    certain: bool
    bound: float = 0.0
    status: str = ""
    solver_s: float = 0.0
    branches: int = 0
    first_s: float = 0.0
    """Solver time in seconds until the first plan."""
    best_s: float = 0.0
    """Solver time in seconds until the best plan."""


def build_solve_effort(
    facts: CpInstance, answer: CpSolveResult, objective: WeightedDelayObjective, variables: int
) -> Effort:
    """Return a result's effort. Objective and bound are known only after a search."""
    solved = answer.status != "" and answer.plan is not None
    return Effort(
        path=answer.path,
        considered=len(facts.jobs),
        variables=variables,
        status=answer.status,
        objective=objective.constant + plan_delay_cost(objective, answer.plan.start_s)
        if solved and answer.plan
        else None,
        bound=objective.constant + answer.bound if solved else None,
        solver_s=answer.solver_s,
        branches=answer.branches,
        first_s=answer.first_s,
        best_s=answer.best_s,
    )


def decision_of_placed_plan(
    snapshot: Snapshot, facts: CpInstance, plan: CpPlan, effort: Effort, need: Need
) -> Decision:
    """Return the decision that starts jobs planned for now at their planned places."""
    starts = Starts(*collect_starts_now(facts, plan))
    plan_s = planned_starts_in_queue_order(snapshot, facts.jobs, plan.start_s)
    return _build_decision(snapshot, starts, plan_s, effort, need)


def decision_of_unplaced_plan(
    snapshot: Snapshot, facts: CpInstance, plan: CpPlan, effort: Effort, need: Need, allocation: Allocation
) -> Decision:
    """Return the decision that places the jobs planned for now (cp19 section 2.2).

    Jobs are placed in priority order. `unplaced` in the effort counts jobs that do not fit and wait.
    """
    chosen, starts = facts.jobs[plan.start_s == facts.now_s], NO_STARTS
    if len(chosen):
        only = replace(snapshot, queue=np.array(chosen), by_construction=True)
        starts = plan_by_spec(_ALLOCATION_SPECS[allocation], only, "starts", np.arange(len(chosen))).starts
    if len(starts) == 0 and len(snapshot.running) == 0:
        return start_first_job_if_idle(snapshot, facts, replace(effort, unplaced=len(chosen)), need)
    start_s = np.where(plan.start_s == facts.now_s, NEVER, plan.start_s)
    start_s[np.isin(facts.jobs, starts.slots)] = facts.now_s
    effort = replace(effort, unplaced=len(chosen) - len(starts))
    plan_s = planned_starts_in_queue_order(snapshot, facts.jobs, start_s)
    return _build_decision(snapshot, starts, plan_s, effort, need)


def start_first_job_if_idle(snapshot: Snapshot, facts: CpInstance, effort: Effort, need: Need) -> Decision:
    """If no job is running, start the first that fits, because rounds would repeat."""
    able = startable_slots(facts, facts.jobs, 1)
    if len(facts.running) > 0 or len(able) == 0:
        return empty_decision(snapshot, effort, need)
    facts = facts.with_considered_jobs(able)
    return decision_of_placed_plan(
        snapshot, facts, cp_problem.build_first_leaf_plan(facts), replace(effort, path=f"{effort.path}-alone"), need
    )


_ALLOCATION_SPECS = {name: ListSchedulerSpec(GREEDY, None, allocation=name) for name in ("first-fit", "best-fit")}


def _build_decision(snapshot: Snapshot, starts: Starts, plan_s: IntArray, effort: Effort, need: Need) -> Decision:
    if need == "starts":
        return Decision(starts, effort)
    waits = explain_waits(snapshot, starts, plan_s, PendingCode.WEIGHT, PendingCode.NOT_CONSIDERED)
    return Decision(starts, effort, plan_s, waits)


def empty_decision(snapshot: Snapshot, effort: Effort, need: Need) -> Decision:
    """Return a decision without starts."""
    return _build_decision(snapshot, NO_STARTS, np.full(len(snapshot.queue), NEVER, np.int64), effort, need)


def planned_starts_in_queue_order(snapshot: Snapshot, jobs: IntArray, start_s: IntArray) -> IntArray:
    """Return expected starts in queue order, with `NEVER` for jobs not considered."""
    at = dict(zip(jobs.tolist(), start_s.tolist(), strict=True))
    return np.array([at.get(slot, NEVER) for slot in snapshot.queue.tolist()], dtype=np.int64)
