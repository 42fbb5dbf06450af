"""Define the dispatcher of the CP family, whose members differ in parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.cp import cp_problem, presolve
from cpsched.dispatchers.cp.cp_dispatcher_config import CpDispatcherConfig, RestartSearchLimits
from cpsched.dispatchers.cp.cp_objective import OBJECTIVES, sort_by_priority_rule, with_site_priority
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.node_weight_order import (
    order_nodes_lightest_last,
    restore_node_order,
    with_chosen_nodes,
)
from cpsched.dispatchers.cp.solve_result import (
    CpSolveResult,
    build_solve_effort,
    decision_of_placed_plan,
    decision_of_unplaced_plan,
    empty_decision,
    start_first_job_if_idle,
)
from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.errors import require
from cpsched.feasibility import units_fitting_by_node
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, WeightedDelayObjective, empty_plan_instant
from cpsched.kernels.cp.startable_jobs import ever_startable_slots, startable_slots
from cpsched.model import Decision, Effort, EndedJob, IntArray, Need, Snapshot
from cpsched.planning import Allocation
from cpsched.registration import FileParameter, Registration

_COUNT_VARIABLES = {
    "positions": cp_problem.position_model_size,
    "nodes": cp_problem.node_model_size,
    "pool": cp_problem.pool_model_size,
}
_USES_EXPECTED_WAITS = ("late", "weighted-wait", "urgency")
_PCP20 = CpDispatcherConfig()


class ConstraintDispatcher(Dispatcher):
    """A dispatcher that starts the jobs that a constraint model plans for now.

    - `recipe`: the parts that define a member of the family (default: PCP'20).
    - `site_weight`: weight of the site's priority in the objective. With 0, the priority is ignored. With 1, it counts
      as much as the objective's own weights (see `cpsched.site.priority_multipliers`).
    - `limit_s`: time limit per call, in seconds. When it is reached, the best plan so far is used. If there is no plan,
      no job starts (path `late`). If no job is running either, the next round would be the same, so the first job that
      fits starts alone.
    - `first_limit_s`: time limit for the first search, in seconds. A search gets at least the time needed to build the
      model and verify the plan. After a search without improvement, the next limit doubles. The papers use 1 s, because
      their first plan comes from the first search.
    - `effort`: limit in solver branches instead of seconds. In this case, no clock is read, and the same snapshot and
      `seed` give the same decision.
    - `considered`: maximum number of jobs in the model, unless the recipe uses `all`.
    - `restarts`: number of consecutive restarts without improvement after which the call ends. (cp19 calls `limit_s`,
      `first_limit_s` and `restarts` delta_max, delta and k.)
    - `waits_s`: expected waits in seconds by queue (None: learned from ended jobs). Programs read them from `ewt_file`.
    """

    overrun = "one-second"
    certain = True
    """Whether the solver is skipped if no search can change the decision. Studies set False, as in the papers."""
    in_order = True
    """Whether jobs with equal requests, estimates and costs must start in the order considered, to prune plans."""

    def __init__(
        self,
        recipe: CpDispatcherConfig = _PCP20,
        site_weight: float = 0.0,
        limit_s: float = 16.0,
        first_limit_s: float = 0.01,
        effort: int | None = None,
        considered: int = 100,
        restarts: int = 2,
        seed: int = 0,
        waits_s: Annotated[Mapping[str, float] | None, FileParameter("ewt_file")] = None,
    ) -> None:
        require(site_weight >= 0, "site_weight", site_weight, "must not be negative")
        require(considered > 0, "considered", considered, "must be positive")
        self._recipe, self._site_weight = recipe, site_weight
        self._considered = considered
        self._limit = RestartSearchLimits(
            limit_s, first_limit_s, restarts, effort, recipe.model_s, recipe.control, seed
        )
        self.expected_waits = ExpectedQueueWaits(waits_s)
        by_expected_wait = not {recipe.objective, recipe.priority}.isdisjoint(_USES_EXPECTED_WAITS)
        self.learns = self.expected_waits.learns and by_expected_wait

    @override
    def learn(self, ended: EndedJob) -> None:
        self.expected_waits.learn(ended)

    @override
    def memory(self) -> dict[str, list[int]] | None:
        return self.expected_waits.memory() if self.learns else None

    @override
    def recall(self, memory: Mapping[str, Sequence[int]]) -> None:
        self.expected_waits.recall(memory)

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        if snapshot.cluster.weights is None:
            decision = self._decide(snapshot, need)
        else:
            order, reordered = order_nodes_lightest_last(snapshot)
            decision = restore_node_order(self._decide(reordered, need), order)
        cluster = snapshot.cluster
        chooses = cluster.has_topology or cluster.typical is not None
        return with_chosen_nodes(decision, snapshot) if chooses else decision

    def _decide(self, snapshot: Snapshot, need: Need) -> Decision:
        facts = cp_problem.build_cp_instance(snapshot, self._recipe.running)
        slots, rest = self._select_slots(facts, snapshot.queue)
        able = slots if self._recipe.jobs == "startable" else startable_slots(facts, slots, 1)
        if len(slots) == 0 or (len(able) == 0 and self.certain):
            path = "nothing-fits" if len(snapshot.queue) else "empty-queue"
            return empty_decision(snapshot, Effort(path), need)
        slots = sort_by_priority_rule(self._recipe.priority, snapshot, slots, self.expected_waits)
        problem = CpProblem(
            facts.with_considered_jobs(slots),
            self._build_objective(snapshot, slots),
            rest,
            bool((facts.end_s[facts.running] <= facts.now_s).any()),
            self.in_order,
        )
        return self._build_decision(snapshot, problem, self._presolve_or_solve(problem), need)

    def _build_objective(self, snapshot: Snapshot, slots: IntArray) -> WeightedDelayObjective:
        objective = OBJECTIVES[self._recipe.objective](snapshot, slots, self.expected_waits)
        return with_site_priority(objective, snapshot, slots, self._site_weight) if self._site_weight else objective

    def _select_slots(self, facts: CpInstance, queue: IntArray) -> tuple[IntArray, IntArray]:
        """Return the slots to plan, in arrival order, and the slots of `CpProblem.rest`."""
        no_jobs = queue[:0]
        if self._recipe.jobs == "startable":
            return startable_slots(facts, queue, self._considered), no_jobs
        queue = ever_startable_slots(facts, queue, empty_plan_instant(facts.machine.capacity))
        if self._recipe.jobs == "first":
            return queue[: self._considered], queue[self._considered :]
        return queue, no_jobs

    def _presolve_or_solve(self, problem: CpProblem) -> CpSolveResult:
        """Return the presolve result if it is conclusive, or else the solver's result."""
        if presolve.is_infeasible(problem):
            return CpSolveResult(None, "infeasible", True, status="infeasible")
        answer = self._plan_without_solver(problem)
        if answer.certain and self.certain and not problem.overdue:
            return answer
        from cpsched.dispatchers.cp.search_control import improve_plan  # imports the solver on first use

        shown = (
            self._recipe.priority != "none" and answer.plan is not None and problem.fits_horizon(answer.plan.start_s)
        )
        return improve_plan(problem, answer, self._recipe.model, self._limit, shown)

    def _plan_without_solver(self, problem: CpProblem) -> CpSolveResult:
        """Return a plan found without the solver, and whether the plan is proven optimal."""
        facts, objective = problem.facts, problem.objective
        if self._recipe.model == "pool":
            return presolve.solve_pool_tree(problem)
        if problem.overdue:
            return CpSolveResult(cp_problem.build_first_leaf_plan(facts), "", certain=False)
        if self.certain:
            return presolve.try_start_all_now(facts) or presolve.solve_by_relaxed_bound(
                facts, objective, self._limit.seed
            )
        return CpSolveResult(cp_problem.build_first_leaf_plan(facts), "", certain=False)

    def _build_decision(self, snapshot: Snapshot, problem: CpProblem, answer: CpSolveResult, need: Need) -> Decision:
        facts = problem.facts
        if answer.plan is None:
            return self._decide_without_plan(snapshot, facts, answer, need)
        effort = build_solve_effort(facts, answer, problem.objective, _COUNT_VARIABLES[self._recipe.model](facts))
        if self._recipe.model == "pool":
            fit: Allocation = "first-fit" if self._recipe.allocation == "first-fit" else "best-fit"
            return decision_of_unplaced_plan(snapshot, facts, answer.plan, effort, need, fit)
        if problem.overdue:
            return decision_of_placed_plan(
                snapshot, facts, *postpone_infeasible_starts(snapshot, facts, answer.plan, effort), need
            )
        return decision_of_placed_plan(snapshot, facts, answer.plan, effort, need)

    def _decide_without_plan(
        self, snapshot: Snapshot, facts: CpInstance, answer: CpSolveResult, need: Need
    ) -> Decision:
        """Start no job, with the exception that `start_first_job_if_idle` makes."""
        effort = Effort(answer.path, len(facts.jobs), _COUNT_VARIABLES[self._recipe.model](facts), answer.status)
        effort = dataclasses.replace(effort, solver_s=answer.solver_s, branches=answer.branches)
        return start_first_job_if_idle(snapshot, facts, effort, need)


def postpone_infeasible_starts(
    snapshot: Snapshot, facts: CpInstance, plan: CpPlan, effort: Effort
) -> tuple[CpPlan, Effort]:
    """Return `plan` without starts blocked by overdue jobs, and the updated effort."""
    free, unplaced = snapshot.free.copy(), 0
    for j, slot in enumerate(facts.jobs.tolist()):
        if plan.start_s[j] != facts.now_s:
            continue
        job, first = snapshot.table.jobs[slot], int(plan.first[j])
        part = slice(first, first + int(plan.parts[j]))
        nodes, room = plan.node[part], units_fitting_by_node(job.request, snapshot.cluster, free)
        taken = np.bincount(nodes, plan.units[part], len(free)).astype(np.int64)
        if (taken > room).any():
            plan.start_s[j] = facts.now_s + 1
            unplaced += 1
            continue
        np.subtract.at(free, nodes, plan.dy[part])
    return plan, dataclasses.replace(effort, unplaced=unplaced)


def build_cp_registration(
    name: str, summary: str, source: str, recipe: CpDispatcherConfig, **limits: object
) -> Registration:
    """Return the registration of a member of the CP family, with its default limits."""
    return Registration(name, summary, source, ConstraintDispatcher, {"recipe": recipe, **limits})
