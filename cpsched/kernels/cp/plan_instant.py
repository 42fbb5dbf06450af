"""The cluster at one instant of a plan, and the kinds of units that jobs request."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, Flags, Matrix
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, PlanInstantState
from cpsched.kernels.fit_rules import UNBOUNDED, amount_taken_on_node, units_fitting_on_node
from cpsched.model import IntArray


@subroutine
def request_same_unit_kind(facts: CpInstance, a: int, b: int) -> bool:
    """Return whether jobs `a` and `b` request the same kind of unit on the same nodes."""
    if facts.table.sharing[a] != facts.table.sharing[b] or facts.table.node_set[a] != facts.table.node_set[b]:
        return False
    for r in range(facts.table.per_unit.shape[1]):  # noqa: SIM110 - a loop compiles, a generator does not
        if facts.table.per_unit[a, r] != facts.table.per_unit[b, r]:
            return False
    return True


@subroutine
def unit_kinds(facts: CpInstance) -> tuple[IntArray, IntArray]:
    """Return a sample slot of each unit kind, int64[K], and each job's kind, int64[J]."""
    kind_of, shapes = np.zeros(len(facts.jobs), np.int64), np.empty(len(facts.jobs), np.int64)
    kinds = 0
    for j in range(len(facts.jobs)):
        kind_of[j] = kinds
        for k in range(kinds):
            if request_same_unit_kind(facts, shapes[k], facts.jobs[j]):
                kind_of[j] = k
                break
        if kind_of[j] == kinds:
            shapes[kinds] = facts.jobs[j]
            kinds += 1
    return shapes[:kinds].copy(), kind_of


@subroutine
def reset_instant_to_now(facts: CpInstance, moment: PlanInstantState) -> None:
    """Set `moment` to the cluster's current state: no planned jobs or touched nodes."""
    N, R = facts.machine.free.shape
    left, floor, newest, touched = moment.left, moment.floor, moment.newest, moment.touched
    for node in range(N):
        newest[node] = -1
        touched[node] = False
        for r in range(R):
            left[node, r] = max(facts.machine.free[node, r], 0)
            floor[node, r] = facts.machine.capacity[node, r] - left[node, r]


@subroutine
def release_ended_running_jobs(facts: CpInstance, moment: PlanInstantState, first: int, until_s: int) -> int:
    """Release running jobs that end by `until_s`. Return the next job's index."""
    left, floor, touched = moment.left, moment.floor, moment.touched
    while first < len(facts.running) and facts.end_s[facts.running[first]] <= until_s:
        slot = facts.running[first]
        first += 1
        begin = facts.table.place_at[slot]
        for p in range(begin, begin + facts.table.place_count[slot]):
            node = facts.place_node[p]
            touched[node] = True
            for r in range(left.shape[1]):
                amount = amount_taken_on_node(facts.table, slot, facts.machine, node, facts.place_units[p], r)
                left[node, r] += amount
                floor[node, r] -= amount
    return first


@subroutine
def subtract_job_amounts(plan: CpPlan, j: int) -> None:
    """Subtract the amounts of job `j` at the plan's instant, and mark its nodes."""
    left, touched = plan.moment.left, plan.moment.touched
    for part in range(plan.first[j], plan.first[j] + plan.parts[j]):
        touched[plan.node[part]] = True
        for r in range(left.shape[1]):
            left[plan.node[part], r] -= plan.dy[part, r]


@subroutine
def release_job(plan: CpPlan, j: int) -> None:
    """End job `j`: undo `place_job` and `subtract_job_amounts` for this job."""
    moment = plan.moment
    left, newest, older = moment.left, moment.newest, moment.older
    for part in range(plan.first[j], plan.first[j] + plan.parts[j]):
        node = plan.node[part]
        moment.touched[node] = True
        for r in range(left.shape[1]):
            left[node, r] += plan.dy[part, r]
        if newest[node] == part:
            newest[node] = older[part]
            continue
        newer = newest[node]
        while older[newer] != part:
            newer = older[newer]
        older[newer] = older[part]


@subroutine
def update_room_of_touched_nodes(
    facts: CpInstance, moment: PlanInstantState, shapes: FixedColumn, room: Matrix, rooms: Column
) -> None:
    """Recount `room` and its sums `rooms` on the touched nodes, and reset `touched`."""
    touched, table, machine = moment.touched, facts.table, facts.machine
    for node in range(len(touched)):
        if not touched[node]:
            continue
        touched[node] = False
        for k in range(len(shapes)):
            units = units_fitting_on_node(table, shapes[k], machine, moment.left, node)
            rooms[k] += units - room[k, node]
            room[k, node] = units


@subroutine
def next_end_of_present_jobs(facts: CpInstance, plan: CpPlan, present: Flags, next_running: int) -> int:
    """Return the next end of a running job or of a job in `present`."""
    end_s = UNBOUNDED
    if next_running < len(facts.running):
        end_s = facts.end_s[facts.running[next_running]]
    for j in range(len(facts.jobs)):
        if present[j]:
            end_s = min(end_s, plan.start_s[j] + facts.table.estimate_s[facts.jobs[j]])
    return end_s


@subroutine
def end_jobs_until(facts: CpInstance, plan: CpPlan, present: Flags, next_running: int, tau: int) -> int:
    """End all jobs that end by `tau`. Return the index of the next running job."""
    for j in range(len(facts.jobs)):
        if present[j] and plan.start_s[j] + facts.table.estimate_s[facts.jobs[j]] <= tau:
            present[j] = False
            release_job(plan, j)
    return release_ended_running_jobs(facts, plan.moment, next_running, tau)


@subroutine
def set_plan_instant(facts: CpInstance, plan: CpPlan, placed: Flags, tau: int) -> int:
    """Set the plan's instant to `tau` with the jobs in `placed`, which start by then.

    Mark the nodes that differ from the current state as touched. Return the index of the running job that ends next.
    """
    moment = plan.moment
    newest, older = moment.newest, moment.older
    reset_instant_to_now(facts, moment)
    next_running = release_ended_running_jobs(facts, moment, 0, tau)
    for j in range(len(facts.jobs)):
        if placed[j] and plan.start_s[j] + facts.table.estimate_s[facts.jobs[j]] > tau:
            for part in range(plan.first[j], plan.first[j] + plan.parts[j]):
                older[part] = newest[plan.node[part]]
                newest[plan.node[part]] = part
            subtract_job_amounts(plan, j)
    return next_running
