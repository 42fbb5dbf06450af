"""Decide without the solver if no search can change the decision."""

from __future__ import annotations

import dataclasses

import numpy as np

from cpsched.dispatchers.cp import cp_problem
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.solve_result import CpSolveResult
from cpsched.kernels.cp.branch_and_bound import (
    COST_TOLERANCE,
    LEFT_SHIFTED,
    NO_PLACES,
    branch_and_bound,
    interchangeable_bound,
)
from cpsched.kernels.cp.cp_state import (
    BranchAndBoundState,
    CpInstance,
    CpPlan,
    CumulativeRelaxation,
    WeightedDelayObjective,
    empty_plan,
)
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.kernels.cp.dive import dive
from cpsched.kernels.cp.relaxation import build_relaxation

_MAX_TREE_NODES = 1000
"""Maximum number of nodes to visit in the relaxed tree, which takes about 10 ms. More nodes rarely prove more."""
_MAX_TREE_DIVES = 16
"""Maximum number of dives during the tree search, each of which takes up to 2 ms."""
_PERTURBED_DIVES = 16
"""Number of dives in perturbed orders if the tree search proves nothing."""


def try_start_all_now(facts: CpInstance) -> CpSolveResult | None:
    """Return the result that starts all jobs now, or None if the dive cannot do so.

    This result is optimal, because no objective decreases when a job starts later, and no job can start before now.
    """
    plan = empty_plan(facts)
    if dive(facts, plan, np.arange(len(facts.jobs)), True) < len(facts.jobs):
        return None
    return CpSolveResult(plan, "single" if len(facts.jobs) == 1 else "all-fit", certain=True)


def solve_by_relaxed_bound(facts: CpInstance, objective: WeightedDelayObjective, seed: int) -> CpSolveResult:
    """Return the first leaf, improved by branch and bound on the relaxed problem.

    The relaxed problem has no places. If a plan costs no more than the best relaxed plan, it is optimal and the result
    is certain. If all jobs are interchangeable, the best relaxed cost is known without a search. An uncertain result
    contains the best plan found, including plans from perturbed dives, as a starting point for the solver.
    """
    plan = cp_problem.build_first_leaf_plan(facts)
    relaxed = build_relaxation(facts, True)
    bound = interchangeable_bound(facts, relaxed, objective)
    if _meets_bound(bound, objective, plan):
        return CpSolveResult(plan, "bound-met", True, bound, "optimal")
    least = bound
    _, _, bound = branch_and_bound(
        facts, BranchAndBoundState(relaxed, objective, plan, empty_plan(facts)), _MAX_TREE_NODES, _MAX_TREE_DIVES
    )
    bound = max(bound, least)
    if not _meets_bound(bound, objective, plan):
        plan = improve_by_perturbed_dives(facts, plan, objective, np.random.default_rng(seed))
    met = _meets_bound(bound, objective, plan)
    answer = CpSolveResult(plan, "bound-met", met, bound)
    return dataclasses.replace(answer, status="optimal") if met else answer


def solve_pool_tree(problem: CpProblem, left_shifted: bool = False) -> CpSolveResult:
    """Return the pool model's result, which is optimal if the tree is exhausted.

    If no pool can run short, all jobs start now. The model does not check whether they fit on the nodes. `left_shifted`
    excludes plans in which a single job could start earlier, which makes the tree much smaller. To reproduce published
    results, the models of cp19 do not use it.
    """
    facts, objective = problem.facts, problem.objective
    relaxed = pool_relaxation(problem)
    plan = empty_plan(facts)
    if relaxed.demand.shape[1] == 0:
        plan.start_s[:] = facts.now_s
        return CpSolveResult(plan, "single" if len(facts.jobs) == 1 else "all-fit", certain=True)
    nodes = max(_MAX_TREE_NODES, 2 * len(facts.jobs))
    tree = BranchAndBoundState(relaxed, objective, plan, empty_plan(facts))
    _, met, bound = branch_and_bound(facts, tree, nodes, LEFT_SHIFTED if left_shifted else NO_PLACES)
    return CpSolveResult(plan, "bound-met", met, bound, "optimal" if met else "")


def pool_relaxation(problem: CpProblem) -> CumulativeRelaxation:
    """Return the relaxation to pools, with the jobs in `rest` after considered jobs."""
    facts = problem.facts
    return build_relaxation(facts.with_considered_jobs(np.concatenate((facts.jobs, problem.rest))), False)


def is_infeasible(problem: CpProblem) -> bool:
    """Return whether the model has no solution (cp19 sections 3 and 4).

    There are two possible reasons:

    - A job is longer than the horizon, which overdue jobs shorten.
    - The jobs that are not searched, which all end at the horizon, do not fit at the same time.
    """
    facts = problem.facts
    if problem.horizon_s < int(facts.table.estimate_s[facts.jobs].max()):
        return True
    if len(problem.rest) == 0:
        return False
    found = pool_relaxation(problem)
    return bool((found.demand[len(facts.jobs) :].sum(axis=0) > found.capacity[-1]).any())


def _meets_bound(bound: float, objective: WeightedDelayObjective, plan: CpPlan) -> bool:
    """Return whether `bound` proves that `plan` is optimal, up to rounding."""
    return bound >= plan_delay_cost(objective, plan.start_s) * (1 - COST_TOLERANCE)


def improve_by_perturbed_dives(
    facts: CpInstance, best: CpPlan, objective: WeightedDelayObjective, random: np.random.Generator
) -> CpPlan:
    """Return the cheapest plan of `best` and several dives in perturbed orders."""
    J, trial = len(facts.jobs), empty_plan(facts)
    least = plan_delay_cost(objective, best.start_s)
    for _ in range(_PERTURBED_DIVES):
        place = np.empty(J)
        place[np.argsort(best.start_s, kind="stable")] = np.arange(J)
        order = np.argsort(place + random.normal(0.0, max(1.0, J / 8), J), kind="stable")
        dive(facts, trial, order, False)
        found = plan_delay_cost(objective, trial.start_s)
        if found < least * (1 - COST_TOLERANCE):
            best, trial, least = trial, best, found
    return best
