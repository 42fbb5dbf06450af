"""The dive: find the first leaf of pcp20's search in one sweep over job ends."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import FixedColumn
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan
from cpsched.kernels.cp.plan_instant import (
    end_jobs_until,
    next_end_of_present_jobs,
    reset_instant_to_now,
    subtract_job_amounts,
    unit_kinds,
    update_room_of_touched_nodes,
)
from cpsched.kernels.fit_rules import amount_taken_on_node
from cpsched.model import EXCLUSIVE, IntArray


@subroutine
def highest_gap(plan: CpPlan, node: int, r: int, ceiling: int, dy: int) -> int:
    """Return the highest free position for `dy` positions below `ceiling`, or -1."""
    moment = plan.moment
    older, plan_y, plan_dy, floor = moment.older, plan.y, plan.dy, moment.floor[node, r]
    y = ceiling - dy
    moved = True
    while moved and y >= floor:
        moved = False
        part = moment.newest[node]
        while part >= 0:
            if plan_y[part, r] < y + dy and y < plan_y[part, r] + plan_dy[part, r]:
                y = plan_y[part, r] - dy
                moved = True
            part = older[part]
    return y if y >= floor else -1


@subroutine
def place_part(facts: CpInstance, plan: CpPlan, slot: int, part: int, node: int) -> bool:
    """Place `part` in the highest gap of `node` in each resource.

    If any resource has no gap, return False and place nothing.
    """
    moment, capacity = plan.moment, facts.machine.capacity
    for r in range(capacity.shape[1]):
        dy = amount_taken_on_node(facts.table, slot, facts.machine, node, 1, r)
        y = highest_gap(plan, node, r, capacity[node, r], dy) if dy > 0 else 0
        if y < 0:
            return False
        plan.y[part, r], plan.dy[part, r] = y, dy
    plan.node[part] = node
    moment.older[part] = moment.newest[node]
    moment.newest[node] = part
    return True


@subroutine
def place_job(facts: CpInstance, plan: CpPlan, room_of: FixedColumn, j: int) -> bool:
    """Place each part of job `j` on the highest node on which it still fits.

    This is the largest value in pcp20's search. `room_of` is the number of the job's units that fit on each node now
    (see `update_room_of_touched_nodes`). If any part does not fit, return False and place no part. The free amounts of
    the instant do not change: `subtract_job_amounts` subtracts the job's amounts.
    """
    slot = facts.jobs[j]
    whole = facts.table.sharing[slot] & EXCLUSIVE
    wanted, part, moment = facts.table.units[slot], plan.first[j], plan.moment
    for node in range(len(room_of) - 1, -1, -1):
        room = min(wanted, room_of[node])
        while room > 0 and place_part(facts, plan, slot, part, node):
            plan.units[part] = room if whole else 1
            wanted -= plan.units[part]
            room -= plan.units[part]
            part += 1
        if wanted == 0:
            plan.parts[j] = part - plan.first[j]
            return True
    while part > plan.first[j]:
        part -= 1
        moment.newest[plan.node[part]] = moment.older[part]
    return False


@kernel
def dive(facts: CpInstance, plan: CpPlan, order: FixedColumn, only_now: bool) -> int:
    """Fill `plan` with the first leaf of the search in pcp20 section 3.

    Of the jobs that can start first, the first in `order` (in pcp20: highest priority) starts immediately. Each of its
    units takes the highest legal positions. No job then starts before a job that was placed earlier, and amounts that
    are free when a job starts remain free. Therefore, one sweep over the ends of jobs finds the plan of pcp20's dive
    without a solver.

    `only_now` stops the sweep at the first instant. Return the number of jobs that start now. Jobs without a plan have
    start -1.
    """
    J, N = len(facts.jobs), len(facts.machine.free)

    # For each kind of unit, count the units that fit on each node, and their sum. A job that requests more than the sum
    # is skipped without examining the nodes. Each step updates only the nodes that it touched.
    shapes, kind_of = unit_kinds(facts)
    moment = plan.moment
    reset_instant_to_now(facts, moment)
    moment.touched[:] = True
    room, rooms = np.zeros((len(shapes), N), np.int64), np.zeros(len(shapes), np.int64)
    update_room_of_touched_nodes(facts, moment, shapes, room, rooms)
    plan.start_s[:] = -1
    present = np.zeros(J, np.bool_)
    waiting, next_running, start_now = J, 0, 0
    tau = facts.now_s
    while True:
        # Every job that fits at this instant starts.
        for j in order:
            if plan.start_s[j] >= 0 or rooms[kind_of[j]] < facts.table.units[facts.jobs[j]]:
                continue
            if place_job(facts, plan, room[kind_of[j]], j):
                plan.start_s[j] = tau
                present[j] = True
                waiting -= 1
                subtract_job_amounts(plan, j)
                update_room_of_touched_nodes(facts, moment, shapes, room, rooms)
        if tau == facts.now_s:
            start_now = J - waiting
        if waiting == 0 or only_now:
            return start_now

        # Advance to the next end of a running job or of a job in this plan.
        tau = next_end_of_present_jobs(facts, plan, present, next_running)
        next_running = end_jobs_until(facts, plan, present, next_running, tau)
        update_room_of_touched_nodes(facts, moment, shapes, room, rooms)


@kernel
def collect_starts_now(facts: CpInstance, plan: CpPlan) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return the jobs in `plan` that start now, as the columns of `Starts`."""
    J = len(facts.jobs)
    slots, offsets = np.empty(J, np.int64), np.zeros(J + 1, np.int64)
    nodes, units = np.empty(len(plan.node), np.int64), np.empty(len(plan.node), np.int64)
    count = filled = 0
    for j in range(J):
        if plan.start_s[j] != facts.now_s:
            continue
        begin = filled
        for part in range(plan.first[j] + plan.parts[j] - 1, plan.first[j] - 1, -1):
            # Entries are sorted by node. Parts are placed from the highest node to the lowest, so most entries are
            # appended.
            at_node = filled
            while at_node > begin and nodes[at_node - 1] > plan.node[part]:
                at_node -= 1
            if at_node > begin and nodes[at_node - 1] == plan.node[part]:
                units[at_node - 1] += plan.units[part]
                continue
            for moved in range(filled, at_node, -1):
                nodes[moved], units[moved] = nodes[moved - 1], units[moved - 1]
            nodes[at_node], units[at_node] = plan.node[part], plan.units[part]
            filled += 1
        slots[count], offsets[count + 1] = facts.jobs[j], filled
        count += 1
    return slots[:count].copy(), offsets[: count + 1].copy(), nodes[:filled].copy(), units[:filled].copy()
