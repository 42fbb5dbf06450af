"""The dispatching problem without places: a relaxation whose best plan bounds every real plan from below.

Places are what makes the problem hard. Without them a branch and bound over start times is cheap; where its best
plan, once given places by the dive, is as good as without, nothing better exists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpsched._jit import Column, Matrix, inner, kernel
from cpsched.dispatchers.cp.objective import Objective, cost_of, delay
from cpsched.dispatchers.cp.positions import (
    PLENTY,
    Facts,
    Moment,
    Plan,
    dive,
    end_running,
    same_shape,
    shapes_of,
    units_held,
    units_on,
    untouched,
)
from cpsched.model import EXCLUSIVE, BoolArray, IntArray

CLOSE = 1e-9
"""Relative difference of objectives that counts as none."""
NO_PLACES = -1
"""In place of a number of dives: the problem without places is the problem."""


class Relaxation(NamedTuple):
    """The dispatching problem without places: E moments, K shared capacities that only grow with time.

    A capacity is the amount of one resource in all nodes, or the room for one kind of unit in all nodes; what a job
    takes of it, wherever it is placed, is a lower bound. So every plan is a plan here, not the other way round.
    """

    moment_s: Column
    """int64[E], the first is now, the others are ends of running jobs"""
    capacity: Matrix
    """int64[E, K]: from that moment on"""
    demand: Matrix
    """int64[J, K]"""


@inner
def may_use(facts: Facts, slot: int, node: int) -> bool:
    """Whether an empty `node` could take a unit of `slot`."""
    return units_on(facts, facts.capacity, node, slot) > 0


@inner
def room_for(facts: Facts, left: IntArray, node: int, slot: int) -> int:
    """Units of `slot` that fit into `left`, as if they could share; 1 for a whole node that is free."""
    if not may_use(facts, slot, node):
        return 0
    if facts.sharing[slot] & EXCLUSIVE:
        return int(untouched(facts, left, node))
    return units_held(facts, slot, left, node)


@inner
def least_taken(facts: Facts, slot: int, kind: int) -> int:
    """The least room for units like `kind` (a slot) that a job like `slot` can take, wherever it is placed."""
    N = len(facts.capacity)
    whole, kind_whole = facts.sharing[slot] & EXCLUSIVE, facts.sharing[kind] & EXCLUSIVE
    if kind_whole and not whole:
        return 0

    # A job that wants whole nodes takes all the room of each; `each` is the least that one of its nodes has.
    each, most = PLENTY, 1
    for node in range(N):
        if not may_use(facts, slot, node):
            continue
        if not may_use(facts, kind, node):
            return 0
        if whole:
            each = min(each, room_for(facts, facts.capacity, node, kind))
            most = max(most, units_on(facts, facts.capacity, node, slot))
    if whole:
        return int(each * ((facts.units[slot] + most - 1) // most))

    # Another job takes, with each unit, at least as much room as units of the kind fit into its own amounts.
    return int(min(each, units_held(facts, kind, facts.per_unit, slot)) * facts.units[slot])


@inner
def least_amount(facts: Facts, slot: int, r: int) -> int:
    """The least of resource `r` that a job like `slot` takes."""
    if not facts.sharing[slot] & EXCLUSIVE:
        return int(facts.units[slot] * facts.per_unit[slot, r])
    least, most = PLENTY, 1
    for node in range(len(facts.capacity)):
        if may_use(facts, slot, node):
            least = min(least, facts.capacity[node, r])
            most = max(most, units_on(facts, facts.capacity, node, slot))
    return int(least * ((facts.units[slot] + most - 1) // most))


@inner
def demands(facts: Facts, shapes: IntArray, kind_of: IntArray) -> IntArray:
    """What each job takes at least of the room for each kind of unit, then of each resource: int64[J, K + R]."""
    J, K, R = len(facts.jobs), len(shapes), facts.capacity.shape[1]
    demand = np.zeros((J, K + R), np.int64)
    of_kind = np.empty(K, np.int64)
    for k in range(K):
        for other in range(K):
            of_kind[other] = least_taken(facts, shapes[other], shapes[k])
        for j in range(J):
            demand[j, k] = of_kind[kind_of[j]] // facts.units[shapes[kind_of[j]]] * facts.units[facts.jobs[j]]
            if facts.sharing[facts.jobs[j]] & EXCLUSIVE:
                demand[j, k] = least_taken(facts, facts.jobs[j], shapes[k])
    for j in range(J):
        for r in range(R):
            demand[j, K + r] = least_amount(facts, facts.jobs[j], r)
    return demand


@inner
def capacities(facts: Facts, shapes: IntArray, K: int) -> tuple[IntArray, IntArray]:
    """The moments [E] at which running jobs end, now first, and what there is of each capacity from then on.

    Capacities are the room for each of the first `K` of `shapes`, then the amounts of each resource.
    """
    N, R = facts.capacity.shape

    # Only nodes that some considered job may use count.
    useful, touched = np.zeros(N, np.bool_), np.zeros(N, np.bool_)
    left, floor = np.zeros((N, R), np.int64), np.zeros((N, R), np.int64)
    for node in range(N):
        for slot in shapes:
            useful[node] |= may_use(facts, slot, node)
        touched[node] = useful[node]
        for r in range(R):
            left[node, r] = max(facts.free[node, r], 0)
    none = np.empty(0, np.int64)
    moment = Moment(left, floor, none, none)
    held, total = np.zeros((N, K + R), np.int64), np.zeros(K + R, np.int64)
    moment_s = np.empty(len(facts.running) + 1, np.int64)
    capacity = np.empty((len(facts.running) + 1, K + R), np.int64)
    E, next_running, tau = 0, end_running(facts, moment, touched, 0, facts.now_s), facts.now_s
    while True:
        # Count what the nodes touched since the last moment hold now.
        for node in range(N):
            if not (touched[node] and useful[node]):
                continue
            touched[node] = False
            for k in range(K + R):
                now = left[node, k - K] if k >= K else room_for(facts, left, node, shapes[k])
                total[k] += now - held[node, k]
                held[node, k] = now
        moment_s[E] = tau
        for k in range(K + R):
            capacity[E, k] = total[k]
        E += 1

        # On to the next end of a running job.
        if next_running == len(facts.running):
            return moment_s[:E], capacity[:E]
        tau = facts.end_s[facts.running[next_running]]
        next_running = end_running(facts, moment, touched, next_running, tau)


@kernel
def relax(facts: Facts, rooms: bool) -> Relaxation:
    """Drop places from the problem; capacities that cannot run short are left out.

    Without `rooms` the capacities are the amounts of the resources alone: the pools of cp19's scheduling model.
    """
    J = len(facts.jobs)
    shapes, kind_of = shapes_of(facts)
    counted = shapes if rooms else shapes[:0]
    demand = demands(facts, counted, kind_of)
    moment_s, capacity = capacities(facts, shapes, len(counted))

    # A capacity that all jobs together do not use up even now, when it is least, keeps nobody waiting.
    short = np.empty(demand.shape[1], np.int64)
    count = 0
    for k in range(demand.shape[1]):
        if demand[:, k].sum() > capacity[0, k]:
            short[count] = k
            count += 1
    E = len(moment_s)
    kept_capacity, kept_demand = np.empty((E, count), np.int64), np.empty((J, count), np.int64)
    for i in range(count):
        for e in range(E):
            kept_capacity[e, i] = capacity[e, short[i]]
        for j in range(J):
            kept_demand[j, i] = demand[j, short[i]]
    return Relaxation(moment_s, kept_capacity, kept_demand)


@inner
def has_room(relaxed: Relaxation, facts: Facts, placed: BoolArray, start_s: IntArray, j: int, tau: int) -> bool:
    """Whether job `j` could start at `tau` beside those `placed`, none of which starts later."""
    at_s = np.searchsorted(relaxed.moment_s, tau, side="right") - 1
    for k in range(relaxed.demand.shape[1]):
        if relaxed.demand[j, k] == 0:
            continue
        used = relaxed.demand[j, k]
        for other in range(len(placed)):
            if placed[other] and start_s[other] + facts.estimate_s[facts.jobs[other]] > tau:
                used += relaxed.demand[other, k]
        if used > relaxed.capacity[at_s, k]:
            return False
    return True


@inner
def next_room(relaxed: Relaxation, facts: Facts, placed: BoolArray, start_s: IntArray, j: int, tau: int) -> int:
    """The earliest moment after `tau` at which something can end: see `next_chance`."""
    chance = PLENTY
    after = np.searchsorted(relaxed.moment_s, tau, side="right")
    if after < len(relaxed.moment_s):
        chance = relaxed.moment_s[after]
    for other in range(len(placed)):
        end_s = (start_s[other] if placed[other] else tau) + facts.estimate_s[facts.jobs[other]]
        if other != j and end_s > tau:
            chance = min(chance, end_s)
    return chance


@inner
def copy_plan(target: Plan, source: Plan) -> None:
    """Overwrite `target`."""
    for j in range(len(source.start_s)):
        target.start_s[j], target.parts[j] = source.start_s[j], source.parts[j]
    for p in range(len(source.node)):
        target.node[p], target.units[p] = source.node[p], source.units[p]
        for r in range(source.y.shape[1]):
            target.y[p, r], target.dy[p, r] = source.y[p, r], source.dy[p, r]


@inner
def postpone_alike(facts: Facts, alike: IntArray, earliest: IntArray, job: int) -> None:
    """Jobs like `job` after it are interchangeable with it: they never start before it."""
    for other in range(job + 1, len(alike)):
        if alike[other] == alike[job]:
            earliest[other] = max(earliest[other], earliest[job])


@inner
def alike_jobs(facts: Facts, objective: Objective) -> IntArray:
    """By job: the first considered job of the same request, estimate and cost."""
    weight, since_s = objective.weight, objective.since_s
    alike = np.arange(len(weight))
    for j in range(len(weight)):
        for first in range(j):
            a, b = facts.jobs[first], facts.jobs[j]
            same = facts.units[a] == facts.units[b] and facts.estimate_s[a] == facts.estimate_s[b]
            same &= weight[first] == weight[j] and since_s[first] == since_s[j]
            if same and same_shape(facts, a, b):
                alike[j] = first
                break
    return alike


@kernel
def one_by_one(facts: Facts, relaxed: Relaxation, objective: Objective) -> float:
    """Where all jobs are interchangeable: what the delays of the best relaxed plan cost; else 0, which bounds nothing.

    One after the other starts as early as it can. Let g be those starts, s those of another plan, both ascending, and k
    the first with s[k] < g[k]. When s[k] comes, as many jobs run beside the k-th as there is room for: m that started
    less than one duration before, so that g[k-m] > s[k] - d. Then s[k-m], no earlier than g[k-m], is one of m + 1 that
    run at s[k] in the other plan, which has no room for them.
    """
    J = len(facts.jobs)
    for first in alike_jobs(facts, objective):
        if first != 0:
            return 0.0
    duration_s, tau, total = facts.estimate_s[facts.jobs[0]], facts.now_s, 0.0
    start_s = np.empty(J, np.int64)
    ended = 0
    for k in range(J):
        while True:
            while ended < k and start_s[ended] + duration_s <= tau:
                ended += 1
            e = np.searchsorted(relaxed.moment_s, tau, side="right") - 1
            fits = True
            for c in range(relaxed.demand.shape[1]):
                fits &= (k - ended + 1) * relaxed.demand[0, c] <= relaxed.capacity[e, c]
            if fits:
                break
            tau = PLENTY
            if e + 1 < len(relaxed.moment_s):
                tau = relaxed.moment_s[e + 1]
            if ended < k:
                tau = min(tau, start_s[ended] + duration_s)
            if tau == PLENTY:
                return 0.0
        start_s[k] = tau
        total += cost_of(objective, 0, tau)
    return total


@kernel
def branch(
    facts: Facts, relaxed: Relaxation, objective: Objective, best: Plan, trial: Plan, most: int, dives: int
) -> tuple[int, bool, float]:
    """Branch and bound on the relaxed problem, at most `most` nodes and `dives` plans: improves `best`, may prove it.

    Same tree as the paper's search, starts only: the job that can start first starts, or is postponed. The order of
    every relaxed plan better than `best` is given to the dive, which finds places for it; with `dives` = `NO_PLACES`
    the starts of the relaxed plan are the plan, and `best` need not hold one. Returns the nodes spent, whether the
    tree was exhausted, and a lower bound of what delays cost (0 if it was not).
    """
    J = len(facts.jobs)

    # A node of the tree, at depth d: d jobs of `who` are placed, and no other starts before its `earliest[d]`.
    earliest = np.full((J + 1, J), facts.now_s, np.int64)
    placed, start_s, who = np.zeros(J, np.bool_), np.zeros(J, np.int64), np.zeros(J, np.int64)
    upper = delay(objective, best.start_s) if best.start_s[0] >= facts.now_s else np.inf
    lower = upper
    alike = alike_jobs(facts, objective)
    depth = spent = 0
    while spent < most and dives != 0:
        spent += 1

        # The job that can start first, in arrival order among equals, and what a plan from here costs at least. Where
        # the job has no room at that moment it is postponed, which needs no branch, and the choice is made again.
        job, tau = -1, 0
        while True:
            bound, tau, job = 0.0, PLENTY, -1
            for j in range(J):
                begin = start_s[j] if placed[j] else earliest[depth, j]
                bound += cost_of(objective, j, begin)
                if not placed[j] and begin < tau:
                    tau, job = begin, j
            if bound >= upper * (1 - CLOSE) or job < 0 or has_room(relaxed, facts, placed, start_s, job, tau):
                break
            earliest[depth, job] = next_room(relaxed, facts, placed, start_s, job, tau)
            postpone_alike(facts, alike, earliest[depth], job)
        # Down: it starts at that moment.
        if bound < upper * (1 - CLOSE) and job >= 0:
            placed[job], start_s[job], who[depth] = True, tau, job
            for j in range(J):
                earliest[depth + 1, j] = earliest[depth, j]
            depth += 1
            continue

        # A leaf that is better than the best plan: the dive finds places for jobs in its order.
        if bound < upper * (1 - CLOSE):
            if dives == NO_PLACES:
                trial.start_s[:] = start_s
            else:
                dive(facts, trial, who, False)
                dives -= 1
            found = delay(objective, trial.start_s)
            if found < upper * (1 - CLOSE):
                copy_plan(best, trial)
                upper = found
            lower = min(lower, bound)
        # Up, and to the other branch: the job placed last is postponed.
        if depth == 0:
            return spent, True, min(lower, upper)
        depth -= 1
        job = who[depth]
        placed[job] = False
        earliest[depth, job] = next_room(relaxed, facts, placed, start_s, job, start_s[job])
        postpone_alike(facts, alike, earliest[depth], job)
    return spent, False, 0.0
