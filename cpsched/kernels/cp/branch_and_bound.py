"""Branch and bound on the dispatching problem without places."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn
from cpsched.kernels.cp.cp_state import (
    BranchAndBoundState,
    CpInstance,
    CpPlan,
    CumulativeRelaxation,
    WeightedDelayObjective,
)
from cpsched.kernels.cp.delay_costs import job_delay_cost, plan_delay_cost
from cpsched.kernels.cp.dive import dive
from cpsched.kernels.cp.plan_instant import request_same_unit_kind
from cpsched.kernels.cp.relaxation import fits_relaxation_at, next_job_end
from cpsched.kernels.fit_rules import UNBOUNDED
from cpsched.kernels.pool_profile import first_index_at_least
from cpsched.model import IntArray

COST_TOLERANCE = 1e-9
"""Relative difference below which objectives count as equal."""
NO_PLACES = -1
"""Special value of `dives`: jobs need no places, so every relaxed plan is valid."""
LEFT_SHIFTED = -2
"""Like `NO_PLACES`, but skip plans in which a job could start earlier: other plans cost no more."""


@subroutine
def copy_plan(target: CpPlan, source: CpPlan) -> None:
    """Copy the starts and places of `source` to `target`."""
    for j in range(len(source.start_s)):
        target.start_s[j], target.parts[j] = source.start_s[j], source.parts[j]
    for p in range(len(source.node)):
        target.node[p], target.units[p] = source.node[p], source.units[p]
        for r in range(source.y.shape[1]):
            target.y[p, r], target.dy[p, r] = source.y[p, r], source.dy[p, r]


@subroutine
def break_symmetry(alike: FixedColumn, earliest: Column, job: int) -> None:
    """Prevent interchangeable jobs after `job` from starting before it."""
    for other in range(job + 1, len(alike)):
        if alike[other] == alike[job]:
            earliest[other] = max(earliest[other], earliest[job])


@subroutine
def first_identical_job_of_each(facts: CpInstance, objective: WeightedDelayObjective) -> IntArray:
    """For each job, return the first with equal request, estimate and cost, int64[J]."""
    weight, since_s, units, estimate_s = objective.weight, objective.since_s, facts.table.units, facts.table.estimate_s
    alike = np.arange(len(weight))
    for j in range(len(weight)):
        for first in range(j):
            a, b = facts.jobs[first], facts.jobs[j]
            same = units[a] == units[b] and estimate_s[a] == estimate_s[b]
            same &= weight[first] == weight[j] and since_s[first] == since_s[j]
            if same and request_same_unit_kind(facts, a, b):
                alike[j] = first
                break
    return alike


@kernel
def interchangeable_bound(facts: CpInstance, relaxed: CumulativeRelaxation, objective: WeightedDelayObjective) -> float:
    """Return the best relaxed plan's cost if all jobs are interchangeable, else 0.

    In that plan, each job in turn starts as early as possible. Proof that no plan has an earlier k-th start: let g be
    these starts and s the starts in another plan, both ascending, d a job's duration, and k the first index with
    s[k] < g[k]. The k-th job did not start at s[k], because m jobs filled the room at that time. They had started after
    s[k] - d, so g[k-m] > s[k] - d. Since s[k-m] >= g[k-m], the other plan runs m + 1 jobs at s[k]. There is no room
    for them.
    """
    J = len(facts.jobs)
    for first in first_identical_job_of_each(facts, objective):
        if first != 0:
            return 0.0
    duration_s, tau, total = facts.table.estimate_s[facts.jobs[0]], facts.now_s, 0.0
    start_s = np.empty(J, np.int64)
    ended = 0
    for k in range(J):
        while True:
            while ended < k and start_s[ended] + duration_s <= tau:
                ended += 1
            e = first_index_at_least(relaxed.moment_s, len(relaxed.moment_s), tau + 1) - 1
            fits = True
            for c in range(relaxed.demand.shape[1]):
                fits &= (k - ended + 1) * relaxed.demand[0, c] <= relaxed.capacity[e, c]
            if fits:
                break
            tau = UNBOUNDED
            if e + 1 < len(relaxed.moment_s):
                tau = relaxed.moment_s[e + 1]
            if ended < k:
                tau = min(tau, start_s[ended] + duration_s)
            if tau == UNBOUNDED:
                return 0.0
        start_s[k] = tau
        total += job_delay_cost(objective, 0, tau)
    return total


@kernel
def branch_and_bound(facts: CpInstance, tree: BranchAndBoundState, most: int, dives: int) -> tuple[int, bool, float]:
    """Improve the best plan by branch and bound on the relaxation.

    The tree is that of pcp20's search, reduced to starts: the job that can start first is either started or postponed.
    For each relaxed plan that is better than the best plan, a dive in its order finds places. At most `most` nodes are
    visited, and at most `dives` dives are made. If `dives` is `NO_PLACES`, the relaxed plan itself is used, and no best
    plan is needed initially. `LEFT_SHIFTED` skips additional plans. Jobs are placed in the order of their starts. When
    a job is about to start at `tau`, all jobs that start before `tau` are placed. If the job also fits a second
    earlier, it can start then, because the plan has room for it from `tau`.

    Return the number of visited nodes, whether the tree was exhausted, and a lower bound on the cost of delays (0 if
    the tree was not exhausted).
    """
    J, relaxed, objective, best, trial = len(facts.jobs), tree.relaxed, tree.objective, tree.best, tree.trial

    # At depth d of the tree, the first d jobs of `who` are placed, and no other job starts before `earliest[d]`.
    # The start of a job that is not placed is `UNBOUNDED`.
    earliest = np.full((J + 1, J), facts.now_s, np.int64)
    start_s, who = np.full(J, UNBOUNDED, np.int64), np.zeros(J, np.int64)
    upper = plan_delay_cost(objective, best.start_s) if best.start_s[0] >= facts.now_s else np.inf
    lower = upper
    alike = first_identical_job_of_each(facts, objective)
    depth = spent = 0
    while spent < most and dives != 0:
        spent += 1

        # Find the job that can start first (of several jobs, the first in priority order), and the least cost of a plan
        # from here. If the job does not fit at that time, or fits earlier, postpone it, which needs no branch, and
        # choose again.
        job, tau = -1, 0
        while True:
            bound, tau, job = 0.0, UNBOUNDED, -1
            for j in range(J):
                begin = earliest[depth, j] if start_s[j] == UNBOUNDED else start_s[j]
                bound += job_delay_cost(objective, j, begin)
                if start_s[j] == UNBOUNDED and begin < tau:
                    tau, job = begin, j
            if bound >= upper * (1 - COST_TOLERANCE) or job < 0:
                break
            if fits_relaxation_at(relaxed, facts, start_s, job, tau):
                first = dives != LEFT_SHIFTED or tau == facts.now_s
                if first or not fits_relaxation_at(relaxed, facts, start_s, job, tau - 1):
                    break
            earliest[depth, job] = next_job_end(relaxed, facts, start_s, job, tau)
            break_symmetry(alike, earliest[depth], job)
        # Descend: start the job at that time.
        if bound < upper * (1 - COST_TOLERANCE) and job >= 0:
            start_s[job], who[depth] = tau, job
            for j in range(J):
                earliest[depth + 1, j] = earliest[depth, j]
            depth += 1
            continue

        # This leaf is better than the best plan, so find places with a dive in its order.
        if bound < upper * (1 - COST_TOLERANCE):
            if dives < 0:
                trial.start_s[:] = start_s
            else:
                dive(facts, trial, who, False)
                dives -= 1
            found = plan_delay_cost(objective, trial.start_s)
            if found < upper * (1 - COST_TOLERANCE):
                copy_plan(best, trial)
                upper = found
            lower = min(lower, bound)
        # Ascend and take the other branch: postpone the job placed last.
        if depth == 0:
            return spent, True, min(lower, upper)
        depth -= 1
        job = who[depth]
        earliest[depth, job] = next_job_end(relaxed, facts, start_s, job, start_s[job])
        start_s[job] = UNBOUNDED
        break_symmetry(alike, earliest[depth], job)
    return spent, False, 0.0
