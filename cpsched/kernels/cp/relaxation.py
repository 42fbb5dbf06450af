"""A relaxation of the dispatching problem that ignores places.

Its best plan bounds the cost of every real plan. Places make the problem hard. Without places, a branch and bound over
start times is cheap. If the dive finds places for the relaxation's best plan at the same cost, no better plan exists.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import FixedColumn, FixedMatrix
from cpsched.kernels.cp.cp_state import CpInstance, CumulativeRelaxation, PlanInstantState, empty_plan_instant
from cpsched.kernels.cp.plan_instant import release_ended_running_jobs, reset_instant_to_now, unit_kinds
from cpsched.kernels.fit_rules import UNBOUNDED, is_idle, units_fitting_on_node, units_that_fit_row
from cpsched.kernels.pool_profile import first_index_at_least
from cpsched.model import EXCLUSIVE, IntArray


@subroutine
def could_node_hold_unit(facts: CpInstance, slot: int, node: int) -> bool:
    """Return whether an empty `node` could hold a unit of job `slot`."""
    return units_fitting_on_empty_node(facts, slot, node) > 0


@subroutine
def units_fitting_on_empty_node(facts: CpInstance, slot: int, node: int) -> int:
    """Return the number of units of job `slot` that fit on `node` when no job runs."""
    return units_fitting_on_node(facts.table, slot, facts.machine, facts.machine.capacity, node)


@subroutine
def units_fitting_in_left(facts: CpInstance, left: FixedMatrix, node: int, slot: int) -> int:
    """Return how many units of job `slot` fit into `left`, ignoring sharing rules.

    For a job that requests whole nodes, return 1 if the node is free.
    """
    if not could_node_hold_unit(facts, slot, node):
        return 0
    if facts.table.sharing[slot] & EXCLUSIVE:
        return int(is_idle(facts.machine, left, node))
    return units_that_fit_row(facts.table, slot, left, node)


@subroutine
def minimum_units_displaced(facts: CpInstance, slot: int, kind: int) -> int:
    """Return the minimum number of units of job `kind` that job `slot` displaces.

    The minimum applies to any placement.
    """
    N = len(facts.machine.capacity)
    whole, kind_whole = facts.table.sharing[slot] & EXCLUSIVE, facts.table.sharing[kind] & EXCLUSIVE
    if kind_whole and not whole:
        return 0

    # A job that requests whole nodes takes all room of each node. `each` is the minimum room on such a node.
    each, most = UNBOUNDED, 1
    for node in range(N):
        if not could_node_hold_unit(facts, slot, node):
            continue
        if not could_node_hold_unit(facts, kind, node):
            return 0
        if whole:
            each = min(each, units_fitting_in_left(facts, facts.machine.capacity, node, kind))
            most = max(most, units_fitting_on_empty_node(facts, slot, node))
    if whole:
        return int(each * ((facts.table.units[slot] + most - 1) // most))

    # Each unit of any other job takes the room of at least as many units of the kind as fit into its amounts.
    return int(min(each, units_that_fit_row(facts.table, kind, facts.table.per_unit, slot)) * facts.table.units[slot])


@subroutine
def minimum_amount_taken(facts: CpInstance, slot: int, r: int) -> int:
    """Return the minimum amount of `r` that job `slot` takes in any placement."""
    if not facts.table.sharing[slot] & EXCLUSIVE:
        return int(facts.table.units[slot] * facts.table.per_unit[slot, r])
    least, most = UNBOUNDED, 1
    for node in range(len(facts.machine.capacity)):
        if could_node_hold_unit(facts, slot, node):
            least = min(least, facts.machine.capacity[node, r])
            most = max(most, units_fitting_on_empty_node(facts, slot, node))
    return int(least * ((facts.table.units[slot] + most - 1) // most))


@subroutine
def minimum_demands(facts: CpInstance, shapes: FixedColumn, kind_of: FixedColumn) -> IntArray:
    """Return each job's minimum demand by unit kind, then resource: int64[J, K + R]."""
    J, K, R = len(facts.jobs), len(shapes), facts.machine.capacity.shape[1]
    demand = np.zeros((J, K + R), np.int64)
    of_kind, units = np.empty(K, np.int64), facts.table.units
    for k in range(K):
        for other in range(K):
            of_kind[other] = minimum_units_displaced(facts, shapes[other], shapes[k])
        for j in range(J):
            demand[j, k] = of_kind[kind_of[j]] // units[shapes[kind_of[j]]] * units[facts.jobs[j]]
            if facts.table.sharing[facts.jobs[j]] & EXCLUSIVE:
                demand[j, k] = minimum_units_displaced(facts, facts.jobs[j], shapes[k])
    for j in range(J):
        for r in range(R):
            demand[j, K + r] = minimum_amount_taken(facts, facts.jobs[j], r)
    return demand


@subroutine
def capacities_over_time(
    facts: CpInstance, moment: PlanInstantState, shapes: FixedColumn, K: int
) -> tuple[IntArray, IntArray]:
    """Return the instants, int64[E], and the capacities from then, int64[E, K + R].

    The instants are the current time and the ends of running jobs. The capacities are the room for each of the first
    `K` kinds in `shapes`, then the amount of each resource.
    """
    N, R = facts.machine.capacity.shape

    # Count only the nodes that at least one considered job may use.
    reset_instant_to_now(facts, moment)
    useful, touched, left = np.zeros(N, np.bool_), moment.touched, moment.left
    for node in range(N):
        for slot in shapes:
            useful[node] |= could_node_hold_unit(facts, slot, node)
        touched[node] = useful[node]
    held, total = np.zeros((N, K + R), np.int64), np.zeros(K + R, np.int64)
    moment_s = np.empty(len(facts.running) + 1, np.int64)
    capacity = np.empty((len(facts.running) + 1, K + R), np.int64)
    E, next_running, tau = 0, release_ended_running_jobs(facts, moment, 0, facts.now_s), facts.now_s
    while True:
        # Recount the nodes that changed since the last instant.
        for node in range(N):
            if not (touched[node] and useful[node]):
                continue
            touched[node] = False
            for k in range(K + R):
                now = left[node, k - K] if k >= K else units_fitting_in_left(facts, left, node, shapes[k])
                total[k] += now - held[node, k]
                held[node, k] = now
        moment_s[E] = tau
        for k in range(K + R):
            capacity[E, k] = total[k]
        E += 1

        # Advance to the next end of a running job.
        if next_running == len(facts.running):
            return moment_s[:E], capacity[:E]
        tau = facts.end_s[facts.running[next_running]]
        next_running = release_ended_running_jobs(facts, moment, next_running, tau)


@kernel
def build_relaxation_columns(
    facts: CpInstance, moment: PlanInstantState, rooms: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the columns of a `CumulativeRelaxation`.

    Omit capacities that suffice for all jobs. If `rooms` is false, the capacities are only the resource amounts: the
    pools in cp19's scheduling model.
    """
    J = len(facts.jobs)
    shapes, kind_of = unit_kinds(facts)
    counted = shapes if rooms else shapes[:0]
    demand = minimum_demands(facts, counted, kind_of)
    moment_s, capacity = capacities_over_time(facts, moment, shapes, len(counted))

    # A capacity that suffices for all jobs now, when it is smallest, never delays a job.
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
    return moment_s, kept_capacity, kept_demand


@subroutine
def fits_relaxation_at(
    relaxed: CumulativeRelaxation, facts: CpInstance, start_s: FixedColumn, j: int, tau: int
) -> bool:
    """Return whether job `j` could start at `tau`, given the starts of other jobs, or UNBOUNDED."""
    at_s = first_index_at_least(relaxed.moment_s, len(relaxed.moment_s), tau + 1) - 1
    for k in range(relaxed.demand.shape[1]):
        if relaxed.demand[j, k] == 0:
            continue
        used = relaxed.demand[j, k]
        for other in range(len(start_s)):
            end_s = start_s[other] + facts.table.estimate_s[facts.jobs[other]]
            if start_s[other] <= tau < end_s:
                used += relaxed.demand[other, k]
        if used > relaxed.capacity[at_s, k]:
            return False
    return True


@subroutine
def next_job_end(relaxed: CumulativeRelaxation, facts: CpInstance, start_s: FixedColumn, j: int, tau: int) -> int:
    """Return the earliest time after `tau` at which another job can end, given starts or UNBOUNDED."""
    chance = UNBOUNDED
    after = first_index_at_least(relaxed.moment_s, len(relaxed.moment_s), tau + 1)
    if after < len(relaxed.moment_s):
        chance = relaxed.moment_s[after]
    for other in range(len(start_s)):
        end_s = (tau if start_s[other] == UNBOUNDED else start_s[other]) + facts.table.estimate_s[facts.jobs[other]]
        if other != j and end_s > tau:
            chance = min(chance, end_s)
    return chance


def build_relaxation(facts: CpInstance, rooms: bool) -> CumulativeRelaxation:
    """Return the relaxation of a round (see `build_relaxation_columns`)."""
    return CumulativeRelaxation(*build_relaxation_columns(facts, empty_plan_instant(facts.machine.capacity), rooms))
