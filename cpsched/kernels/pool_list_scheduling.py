"""List schedulers on a counted pool: strict, greedy, EASY and reservations.

A *pool* is a cluster with one resource in which the node of a unit does not matter: a single node, or nodes with one
unit each. Counting units suffices, because jobs that never exceed the count can always be placed together with the
running jobs (interval graphs are perfect). `cpsched.kernels.node_list_scheduling` contains the same schedulers for
nodes, which take six times as long.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn
from cpsched.kernels.pool_profile import earliest_fit_breakpoint, fits_at_first_breakpoint, subtract_amount
from cpsched.kernels.queue_orders import ARRIVAL, GREEDY, queue_position_at, queue_positions, sorted_queue_positions
from cpsched.kernels.scheduling_state import ListSchedulerParameters, PlanResult, SchedulingState, grow_columns
from cpsched.model import DISTINCT, EXCLUSIVE, NEVER

MIN_PLANNED_JOBS = 2000
"""Minimum number of jobs in a whole plan. More jobs are planned if a later job can start."""

CHECK_INTERVAL_JOBS = 250
"""Number of jobs to plan between two checks of whether a later job can start now."""


@subroutine
def pool_demand(site: SchedulingState, slot: int) -> int:
    """Return the amount of the pool that a job takes, or NEVER if it never fits."""
    jobs, machine = site.jobs, site.machine
    each, units = int(jobs.per_unit[slot, 0]), int(jobs.units[slot])
    if machine.free.shape[0] > 1:
        return units * each if each == 1 else NEVER
    if jobs.sharing[slot] & DISTINCT and units > 1:
        return NEVER
    if jobs.sharing[slot] & EXCLUSIVE:
        return machine.pool if units * each <= machine.pool else NEVER
    return units * each


@subroutine
def free_pool_units(site: SchedulingState) -> int:
    """Return the number of units of the pool that are free now."""
    free, found = site.machine.free, 0
    for node in range(len(free)):
        found += free[node, 0]
    return found


@subroutine
def collect_releases(site: SchedulingState) -> int:
    """Record the amount that each running job releases when it ends. Return the sum."""
    jobs, machine, running, draft = site.jobs, site.machine, site.running, site.draft
    grow_columns(draft, "held", 0, site.active)
    held, place_units, total = draft.held, jobs.places.units, 0
    for i in range(site.active):
        slot = running[i]
        amount = 0
        if machine.free.shape[0] > 1:
            amount = jobs.place_count[slot]
        elif jobs.place_count[slot] > 0:
            amount = place_units[jobs.place_at[slot]] * jobs.per_unit[slot, 0]
            if jobs.sharing[slot] & EXCLUSIVE:
                amount = machine.pool
        held[i] = amount
        total += amount
    return total


@subroutine
def start_on_pool(site: SchedulingState, position: int, amount: int) -> None:
    """Record the start of the job at a queue position. Keep the ends sorted."""
    draft, slot = site.draft, site.queue[position]
    ends, taken, started = draft.ends, draft.taken, draft.started
    draft.plan_s[position] = site.now_s
    draft.slots[started] = slot
    end_s, i = site.now_s + site.jobs.estimate_s[slot], started
    while i > 0 and ends[i - 1] > end_s:
        ends[i], taken[i] = ends[i - 1], taken[i - 1]
        i -= 1
    ends[i], taken[i] = end_s, amount
    draft.started = started + 1


@subroutine
def write_pool_profile(site: SchedulingState, free: int, times: Column, level: Column) -> int:
    """Write the profile from now, given running and started jobs. Return its length."""
    jobs_end_s, running, draft = site.jobs.end_s, site.running, site.draft
    held, ends, taken, started = draft.held, draft.ends, draft.taken, draft.started
    times[0], level[0] = site.now_s, free
    count, i, j, n = 1, 0, 0, site.active
    while i < n or j < started:
        if j == started or (i < n and jobs_end_s[running[i]] <= ends[j]):
            at_s, amount = jobs_end_s[running[i]], held[i]
            i += 1
        else:
            at_s, amount = ends[j], taken[j]
            j += 1
        if at_s <= times[count - 1]:
            level[count - 1] += amount
        else:
            times[count], level[count] = at_s, level[count - 1] + amount
            count += 1
    return count


@subroutine
def start_fitting_jobs(site: SchedulingState, free: int, first: int) -> None:
    """Start each job that fits, beginning at index `first` in the order."""
    order, queue = site.draft.order, site.queue
    for i in range(first, site.queued):
        if free == 0:
            break
        position = queue_position_at(order, i)
        amount = pool_demand(site, queue[position])
        if amount <= free:
            free -= amount
            start_on_pool(site, position, amount)


@subroutine
def shadow_time_on_pool(site: SchedulingState, free: int, need: int) -> tuple[int, int]:
    """Return EASY's shadow time for `need` units, and the units free at that time.

    Running and started jobs release their units, in the order of their ends, until `need` units are free.
    """
    jobs_end_s, running, draft = site.jobs.end_s, site.running, site.draft
    held, ends, taken, started = draft.held, draft.ends, draft.taken, draft.started
    shadow_s, then_free, i, j, n = site.now_s, free, 0, 0, site.active
    while i < n or j < started:
        if j == started or (i < n and jobs_end_s[running[i]] <= ends[j]):
            at_s, amount = jobs_end_s[running[i]], held[i]
            i += 1
        else:
            at_s, amount = ends[j], taken[j]
            j += 1
        if at_s > shadow_s and then_free >= need:
            break
        shadow_s = at_s
        then_free += amount
    return shadow_s, then_free


@subroutine
def backfill_easy(site: SchedulingState, free: int, first: int, backfill: FixedColumn) -> None:
    """Reserve a start for the job at index `first`. Start jobs that do not delay it.

    `backfill` is the order of the other jobs. If it is empty, they are in the plan's order.
    """
    draft, queue, estimate_s, now_s = site.draft, site.queue, site.jobs.estimate_s, site.now_s
    order, plan_s = draft.order, draft.plan_s
    head = queue_position_at(order, first)
    need = pool_demand(site, queue[head])
    shadow_s, then_free = shadow_time_on_pool(site, free, need)
    extra = then_free - need
    plan_s[head] = shadow_s

    # A job that ends before the shadow time needs free units now. A longer job must also fit next to the reservation.
    other = len(backfill) > 0
    for k in range(0 if other else first + 1, site.queued):
        if free == 0:
            break
        position = backfill[k] if other else queue_position_at(order, k)
        if plan_s[position] != NEVER:
            continue
        slot = queue[position]
        amount = pool_demand(site, slot)
        if amount > free:
            continue
        if now_s + estimate_s[slot] > shadow_s:
            if amount > extra:
                continue
            extra -= amount
        free -= amount
        start_on_pool(site, position, amount)


@subroutine
def last_startable_on_pool(
    site: SchedulingState, free: int, first: int, last: int, times: FixedColumn, level: FixedColumn, count: int
) -> int:
    """Return the last index in [first, last] whose job can start, or `first` - 1."""
    order, queue, estimate_s = site.draft.order, site.queue, site.jobs.estimate_s
    while last >= first:
        slot = queue[queue_position_at(order, last)]
        amount = pool_demand(site, slot)
        if amount <= free and fits_at_first_breakpoint(times, level, count, estimate_s[slot], amount):
            break
        last -= 1
    return last


@subroutine
def backfill_with_reservations(
    site: SchedulingState, free: int, first: int, eventually: int, method: ListSchedulerParameters
) -> None:
    """Reserve the earliest starts of several jobs, and start jobs that delay none.

    `eventually` is the amount that is free after all jobs have ended. A job that requests more is skipped.
    """
    draft, queue, estimate_s, now_s = site.draft, site.queue, site.jobs.estimate_s, site.now_s
    order, n, left, whole = draft.order, site.queued, method.reservations, method.whole
    room = site.active + draft.started + 2 * (n - first) + 2
    times, level = np.empty(room, np.int64), np.empty(room, np.int64)
    count = write_pool_profile(site, free, times, level)
    last = n - 1 if whole else last_startable_on_pool(site, free, first, n - 1, times, level, count)
    i = first
    while i <= last:
        position = queue_position_at(order, i)
        slot = queue[position]
        amount, duration_s = pool_demand(site, slot), estimate_s[slot]
        i += 1
        if amount > eventually:
            continue
        if amount <= free and fits_at_first_breakpoint(times, level, count, duration_s, amount):
            free -= amount
            start_on_pool(site, position, amount)
            count = subtract_amount(times, level, count, now_s, now_s + duration_s, amount)
        elif left > 0:
            left -= 1
            start_s = times[earliest_fit_breakpoint(times, level, count, duration_s, amount)]
            draft.plan_s[position] = start_s
            count = subtract_amount(times, level, count, start_s, start_s + duration_s, amount)
        if not whole:
            last = last_startable_on_pool(site, free, i, last, times, level, count)
        elif i - first >= MIN_PLANNED_JOBS and (i - first) % CHECK_INTERVAL_JOBS == 0:
            none_starts = last_startable_on_pool(site, free, i, last, times, level, count) < i
            last = i - 1 if none_starts else last


@subroutine
def write_pool_placements(site: SchedulingState) -> None:
    """Write the placements of the starts, on the single node or the first free nodes."""
    draft, units, free = site.draft, site.jobs.units, site.machine.free
    slots, offsets, started, single = draft.slots, draft.offsets, draft.started, len(free) == 1
    offsets[0] = 0
    for i in range(started):
        offsets[i + 1] = offsets[i] + (1 if single else units[slots[i]])
    grow_columns(draft, "nodes units", 0, offsets[started])
    to_nodes, to_units, node = draft.nodes, draft.units, 0
    for i in range(started):
        if single:
            to_nodes[i], to_units[i] = 0, units[slots[i]]
            continue
        for at in range(offsets[i], offsets[i + 1]):
            while free[node, 0] < 1:
                node += 1
            to_nodes[at], to_units[at] = node, 1
            node += 1


@subroutine
def init_plan_result(draft: PlanResult, count: int) -> None:
    """Begin a plan for `count` queued jobs, initially without starts."""
    draft.started = 0
    if len(draft.plan_s) < count:
        grow_columns(draft, "plan_s slots ends taken", 0, count)
    grow_columns(draft, "offsets", 0, count + 1)
    plan_s = draft.plan_s
    for position in range(count):
        plan_s[position] = NEVER


@kernel
def plan_on_pool(site: SchedulingState, method: ListSchedulerParameters, given: FixedColumn) -> int:
    """Write the queue's plan on a pool to `site.draft`. Return the number of starts.

    Jobs are processed in the method's order, or for `GIVEN` in the order of `given` (queue positions). They start
    until a job does not fit. The number of reservations determines which later jobs start. A job that does not fit even
    after all jobs have ended is skipped.
    """
    draft, queue, n = site.draft, site.queue, site.queued
    init_plan_result(draft, n)
    draft.order = queue_positions(method, given, site)
    order, available = draft.order, free_pool_units(site)

    # Start jobs in order until a job does not fit.
    at_first, eventually, blocked = available, -1, n
    for i in range(n):
        position = queue_position_at(order, i)
        amount = pool_demand(site, queue[position])
        if amount > available:
            if eventually < 0:
                eventually = at_first + collect_releases(site)
            if amount > eventually:
                continue
            blocked = i
            break
        available -= amount
        start_on_pool(site, position, amount)

    # The method determines which jobs after the blocked job start.
    if blocked < n and (available > 0 or method.whole):
        if method.reservations == GREEDY:
            start_fitting_jobs(site, available, blocked)
        elif method.reservations == 1:
            backfill = order[:0] if method.backfill == ARRIVAL else sorted_queue_positions(method.backfill, site)
            backfill_easy(site, available, blocked, backfill)
        elif method.reservations > 1:
            backfill_with_reservations(site, available, blocked, eventually, method)
    write_pool_placements(site)
    return draft.started
