"""Presolve: skip the solver if no search can change the decision."""

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
    BoundAndIncumbent,
    CpInstance,
    CpPlan,
    CumulativeRelaxation,
    TotalDelayObjective,
    empty_plan,
)
from cpsched.kernels.cp.delay_costs import delay
from cpsched.kernels.cp.dive import dive
from cpsched.kernels.cp.relaxation import relax

_NODES = 1000
"""Number of nodes of the relaxed tree, about 10 ms. More nodes rarely prove more (measured in contended KIT rounds)."""
_DIVES = 16
"""Number of dives during the tree search, up to 2 ms each."""
_SHAKES = 16
"""Number of dives in perturbed order if the tree proves nothing."""


def place_all_now(facts: CpInstance) -> CpSolveResult | None:
    """Return the result that starts every considered job now; None if the dive cannot place them all.

    This result is optimal: no term of an objective decreases with a job's start, and no start is before now.
    """
    plan = empty_plan(facts)
    if dive(facts, plan, np.arange(len(facts.jobs)), True) < len(facts.jobs):
        return None
    return CpSolveResult(plan, "single" if len(facts.jobs) == 1 else "all-fit", certain=True)


def first_leaf_meets_bound(facts: CpInstance, objective: TotalDelayObjective, seed: int) -> CpSolveResult:
    """Return the first leaf, improved by branch and bound on the problem without places.

    A plan whose delays cost as much as those of the best relaxed plan is optimal, and the result is certain. If all
    jobs are interchangeable, the best relaxed plan is known without a search. An uncertain result contains the best
    plan found, including dives in perturbed order, as a starting point for the solver.
    """
    plan = cp_problem.first_leaf(facts)
    relaxed = relax(facts, True)
    bound = interchangeable_bound(facts, relaxed, objective)
    if _meets(bound, objective, plan):
        return CpSolveResult(plan, "bound-met", True, bound, "optimal")
    least = bound
    _, _, bound = branch_and_bound(
        facts, BoundAndIncumbent(relaxed, objective, plan, empty_plan(facts)), _NODES, _DIVES
    )
    bound = max(bound, least)
    if not _meets(bound, objective, plan):
        plan = perturbed_dives(facts, plan, objective, np.random.default_rng(seed))
    met = _meets(bound, objective, plan)
    answer = CpSolveResult(plan, "bound-met", met, bound)
    return dataclasses.replace(answer, status="optimal") if met else answer


def solve_pool_tree(problem: CpProblem, left_shifted: bool = False) -> CpSolveResult:
    """Return the same for the pool model, which has no places: if the tree is exhausted, its best plan is optimal.

    If no pool can run short, all jobs start now. This model does not check whether they fit on the nodes.
    `left_shifted` excludes plans in which a single job could start earlier, which makes the tree much smaller. The
    models of cp19 do not use it, so that their published results can be reproduced.
    """
    facts, objective = problem.facts, problem.objective
    relaxed = pool_relaxation(problem)
    plan = empty_plan(facts)
    if relaxed.demand.shape[1] == 0:
        plan.start_s[:] = facts.now_s
        return CpSolveResult(plan, "single" if len(facts.jobs) == 1 else "all-fit", certain=True)
    nodes = max(_NODES, 2 * len(facts.jobs))
    tree = BoundAndIncumbent(relaxed, objective, plan, empty_plan(facts))
    _, met, bound = branch_and_bound(facts, tree, nodes, LEFT_SHIFTED if left_shifted else NO_PLACES)
    return CpSolveResult(plan, "bound-met", met, bound, "optimal" if met else "")


def pool_relaxation(problem: CpProblem) -> CumulativeRelaxation:
    """Return the relaxation to pools. Jobs that are fixed at the end of the horizon follow the considered jobs."""
    facts = problem.facts
    return relax(facts.with_considered_jobs(np.concatenate((facts.jobs, problem.rest))), False)


def is_infeasible(problem: CpProblem) -> bool:
    """Return whether the model has no solution (cp19 sections 3 and 4).

    There are two reasons:

    - a job is longer than the horizon, which overdue jobs shorten;
    - the jobs that are not searched, which all end at the horizon, do not fit together.
    """
    facts = problem.facts
    if problem.horizon_s < int(facts.table.estimate_s[facts.jobs].max()):
        return True
    if len(problem.rest) == 0:
        return False
    found = pool_relaxation(problem)
    return bool((found.demand[len(facts.jobs) :].sum(axis=0) > found.capacity[-1]).any())


def _meets(bound: float, objective: TotalDelayObjective, plan: CpPlan) -> bool:
    """Return whether no plan can be better, apart from rounding."""
    return bound >= delay(objective, plan.start_s) * (1 - COST_TOLERANCE)


def perturbed_dives(
    facts: CpInstance, best: CpPlan, objective: TotalDelayObjective, random: np.random.Generator
) -> CpPlan:
    """Return the best of `best` and of dives in the order of its starts, each perturbed by a few places."""
    J, trial = len(facts.jobs), empty_plan(facts)
    least = delay(objective, best.start_s)
    for _ in range(_SHAKES):
        place = np.empty(J)
        place[np.argsort(best.start_s, kind="stable")] = np.arange(J)
        order = np.argsort(place + random.normal(0.0, max(1.0, J / 8), J), kind="stable")
        dive(facts, trial, order, False)
        found = delay(objective, trial.start_s)
        if found < least * (1 - COST_TOLERANCE):
            best, trial, least = trial, best, found
    return best
