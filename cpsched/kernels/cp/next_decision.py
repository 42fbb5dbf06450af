"""Guide the solver's search to the next startable job and its places."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import FixedColumn
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, CpSearchState
from cpsched.kernels.cp.dive import highest_gap, place_job, place_part
from cpsched.kernels.cp.plan_instant import (
    end_jobs_until,
    next_end_of_present_jobs,
    set_plan_instant,
    unit_kinds,
    update_room_of_touched_nodes,
)
from cpsched.kernels.fit_rules import UNBOUNDED, units_fitting_on_node
from cpsched.model import EXCLUSIVE, IntArray


@kernel
def units_fitting_by_kind(facts: CpInstance) -> tuple[IntArray, IntArray]:
    """Return the units of each kind that fit on each node now, and each job's kind.

    The arrays are int64[K, N] and int64[J].
    """
    shapes, kind_of = unit_kinds(facts)
    room = np.empty((len(shapes), len(facts.machine.free)), np.int64)
    for k in range(len(shapes)):
        for node in range(len(facts.machine.free)):
            room[k, node] = units_fitting_on_node(facts.table, shapes[k], facts.machine, facts.machine.free, node)
    return room, kind_of


@subroutine
def earliest_unplaced_start(step: CpSearchState, at_s: FixedColumn) -> int:
    """Return the smallest `at_s` of an unplaced job, or `UNBOUNDED` if there is none."""
    tau = UNBOUNDED
    for j in range(len(at_s)):
        if not step.placed[j]:
            tau = min(tau, at_s[j])
    return tau


def new_search_state(facts: CpInstance, order: IntArray) -> CpSearchState:
    """Return the first step of a search, with no job placed.

    `order` breaks ties between jobs that can start first.
    """
    J, (room, kind_of) = len(facts.jobs), units_fitting_by_kind(facts)
    nobody, column = np.zeros(J, np.bool_), np.full(J, -1, np.int64)
    return CpSearchState(-1, 0, nobody, column, order, column.copy(), room, kind_of)


@kernel
def find_next_startable_job(facts: CpInstance, plan: CpPlan, step: CpSearchState) -> int:
    """Return the unplaced job that can start first, or -1.

    - `step.order` breaks ties.
    - No placed job starts later than the earliest start of any other job.
    - A job that does not fit together with the placed jobs does not fit until one of them, or a running job, ends. It
      is postponed to that time, see `step.postponed_to_s`.
    - The start and places of the returned job are written to the plan.
    - The result is -1 if all jobs are placed, or if no other job can ever start.
    """
    J = len(facts.jobs)
    at_s, placed, postponed_to_s, kind_of = step.earliest_s.copy(), step.placed, step.postponed_to_s, step.kind_of
    postponed_to_s[:] = -1
    tau = earliest_unplaced_start(step, at_s)
    if tau == UNBOUNDED:
        return -1
    present = np.zeros(J, np.bool_)
    next_running = set_plan_instant(facts, plan, placed, tau)
    for j in range(J):
        present[j] = placed[j] and plan.start_s[j] + facts.table.estimate_s[facts.jobs[j]] > tau
    room, rooms, shapes = step.room.copy(), step.room.sum(axis=1), np.empty(len(step.room), np.int64)
    for j in range(J):
        shapes[kind_of[j]] = facts.jobs[j]
    update_room_of_touched_nodes(facts, plan.moment, shapes, room, rooms)
    while True:
        # A job that does not fit at this instant is postponed to the next end of a job.
        later = next_end_of_present_jobs(facts, plan, present, next_running)
        for j in step.order:
            if placed[j] or at_s[j] > tau:
                continue
            if rooms[kind_of[j]] >= facts.table.units[facts.jobs[j]] and place_job(facts, plan, room[kind_of[j]], j):
                plan.start_s[j] = tau
                return int(j)
            at_s[j] = postponed_to_s[j] = later

        # Advance to the next time at which a job could start.
        tau = earliest_unplaced_start(step, at_s)
        if tau == UNBOUNDED:
            return -1
        next_running = end_jobs_until(facts, plan, present, next_running, tau)
        update_room_of_touched_nodes(facts, plan.moment, shapes, room, rooms)


@kernel
def next_possible_start(facts: CpInstance, plan: CpPlan, step: CpSearchState) -> int:
    """Return the current job's next possible start after its planned start.

    In a plan whose jobs start as early as possible, a job starts now or when another job ends. The other job is
    running, placed, or not yet placed. In the last case, it starts at the plan's instant at the earliest.
    """
    tau, chance = plan.start_s[step.j], UNBOUNDED
    for i in range(len(facts.running)):
        end_s = facts.end_s[facts.running[i]]
        if end_s > tau:
            chance = end_s
            break
    for other in range(len(facts.jobs)):
        begin = plan.start_s[other] if step.placed[other] else tau
        end_s = begin + facts.table.estimate_s[facts.jobs[other]]
        if other != step.j and end_s > tau:
            chance = min(chance, end_s)
    return int(chance)


@subroutine
def set_instant_to_current_job(facts: CpInstance, plan: CpPlan, step: CpSearchState) -> int:
    """Set the plan's instant to the start of the current job, with its placed parts.

    Return the number of its units that have no place yet.
    """
    set_plan_instant(facts, plan, step.placed, plan.start_s[step.j])
    moment, wanted = plan.moment, facts.table.units[facts.jobs[step.j]]
    for part in range(plan.first[step.j], plan.first[step.j] + step.done):
        wanted -= plan.units[part]
        moment.older[part] = moment.newest[plan.node[part]]
        moment.newest[plan.node[part]] = part
        for r in range(moment.left.shape[1]):
            moment.left[plan.node[part], r] -= plan.dy[part, r]
    return int(wanted)


@kernel
def find_next_part_place(facts: CpInstance, plan: CpPlan, step: CpSearchState, top: int) -> int:
    """Return the highest node up to `top` with room for the job's next part, or -1.

    Write the place of this part to the plan.
    """
    wanted, slot, part = (
        set_instant_to_current_job(facts, plan, step),
        facts.jobs[step.j],
        plan.first[step.j] + step.done,
    )
    for node in range(top, -1, -1):
        room = min(wanted, units_fitting_on_node(facts.table, slot, facts.machine, plan.moment.left, node))
        if room > 0 and place_part(facts, plan, slot, part, node):
            plan.units[part] = room if facts.table.sharing[slot] & EXCLUSIVE else 1
            return node
    return -1


@kernel
def highest_gap_below(facts: CpInstance, plan: CpPlan, step: CpSearchState, below: tuple[int, int, int]) -> int:
    """Return the highest free position for the current job's next part, or -1.

    `below` contains a node, a resource, and the position below which the part must lie.
    """
    set_instant_to_current_job(facts, plan, step)
    node, r, ceiling = below
    return highest_gap(plan, node, r, ceiling, facts.table.per_unit[facts.jobs[step.j], r])
