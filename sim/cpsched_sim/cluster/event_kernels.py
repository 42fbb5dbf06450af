"""Process a simulated cluster's arrivals, ends and starts in compiled code."""

from __future__ import annotations

from cpsched.jit.decorators import kernel, scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, Matrix, SharedStruct
from cpsched.kernels.fit_rules import QUEUED, STARTED, Starting, add_to_free, exceeds_free, verify_and_take_starts
from cpsched.kernels.node_classes import OPEN_ENDED
from cpsched.kernels.scheduling_state import IncrementalNodeClasses, SchedulingState, grow_columns
from cpsched.model import NEVER
from cpsched.model.overrun import expected_end_by_code
from cpsched_sim.cluster.incremental_node_classes import drop_empty_classes, rebuild_classes, shift_profiles

WAITING, ACTIVE, OVER = QUEUED, STARTED, 3
"""Phases of a job. Before its arrival, the phase is 0."""

PAUSE_WHERE_NEEDED, PAUSE_ALWAYS, NO_ROUND, ASK_ALWAYS = range(4)
"""Where `advance_to_next_round_from_python` stops.

- PAUSE_WHERE_NEEDED: at a round in which a job may start.
- PAUSE_ALWAYS: at every round.
- NO_ROUND: only at its limit, which becomes the current time. After any event, a round is due.
- ASK_ALWAYS: at every round. Each round with a non-empty queue is reported as one in which a job may start.
"""

NOTHING_LEFT, MAY_START, CANNOT_START, FAULTY = range(4)
"""The reason why `advance_to_next_round_from_python` stopped.

- NOTHING_LEFT: no events remain at or before the limit.
- MAY_START: at a round in which a job may start.
- CANNOT_START: at a round in which no job can start.
- FAULTY: a start breaks a rule, so time has not advanced.
"""


class SimulatedClusterState(SharedStruct):
    """The state of a simulated cluster."""

    arrived: int
    """Number of jobs that have arrived."""
    ended_count: int
    """Number of entries in use in `ended`."""
    over: int
    """Total number of jobs that have ended."""
    rounds: int
    skipped: int
    """Number of rounds in which the dispatcher was not called, because no job could start."""
    due: int
    """Whether a round is due now."""
    again_s: int
    """The time of the round that the dispatcher requested, or NEVER if it requested none."""
    fault: int
    """Position of the start that broke a rule, or -1 if no start did."""
    overrun: int
    """The rule for revising a running job's expected end once the job exceeds its estimate."""
    on_nodes: int
    """Whether node classes are maintained. A counted pool does not need them."""
    site: SchedulingState
    carried: IncrementalNodeClasses
    free: Matrix
    """int64[N, R]: free resources by node. During a plan, `site.machine` contains these values."""
    total_free: Column
    """int64[R]: total free resources."""
    arrivals: Column
    """Slots in order of arrival."""
    heap: Column
    """Slots of running jobs, as a heap ordered by real end, then slot."""
    ended: Column
    """Slots of ended jobs that have not been collected, in order of their ends."""
    phase: Column
    run_s: Column
    """Real run time in seconds."""
    end_at: Column
    """Real end time in seconds."""


# ---------------------------------------------------------------------------------------------- running jobs


@scalar_subroutine
def push_end(heap: Column, end_at: FixedColumn, count: int, slot: int) -> None:
    """Add `slot` to a heap of `count` entries, ordered by real end."""
    i = count
    while i > 0:
        parent = (i - 1) // 2
        other = heap[parent]
        if end_at[other] < end_at[slot] or (end_at[other] == end_at[slot] and other < slot):
            break
        heap[i] = other
        i = parent
    heap[i] = slot


@scalar_subroutine
def pop_end(heap: Column, end_at: FixedColumn, count: int) -> int:
    """Remove and return the slot that ends first from a heap of `count` entries."""
    top, last = heap[0], heap[count - 1]
    count -= 1
    i = 0
    while True:
        child = 2 * i + 1
        if child >= count:
            break
        a, b = heap[child], heap[min(child + 1, count - 1)]
        if end_at[b] < end_at[a] or (end_at[b] == end_at[a] and b < a):
            a, child = b, child + 1
        if end_at[last] < end_at[a] or (end_at[last] == end_at[a] and last < a):
            break
        heap[i] = a
        i = child
    heap[i] = last
    return int(top)


@scalar_subroutine
def insert_sorted(slots: Column, key_s: FixedColumn, count: int, slot: int) -> None:
    """Insert `slot` into `slots[:count]`, which is sorted by (`key_s`, slot)."""
    i = count
    while i > 0 and (key_s[slots[i - 1]] > key_s[slot] or (key_s[slots[i - 1]] == key_s[slot] and slots[i - 1] > slot)):
        slots[i] = slots[i - 1]
        i -= 1
    slots[i] = slot


@scalar_subroutine
def remove_running(running: Column, end_s: FixedColumn, count: int, slot: int) -> None:
    """Remove `slot` from `running[:count]`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        other = running[middle]
        if end_s[other] < end_s[slot] or (end_s[other] == end_s[slot] and other < slot):
            low = middle + 1
        else:
            high = middle
    for i in range(low, count - 1):
        running[i] = running[i + 1]


# ---------------------------------------------------------------------------------------------- ends


@subroutine
def end_jobs_until(state: SimulatedClusterState, to_s: int) -> None:
    """End the jobs whose real end is at or before `to_s`, in order of their ends."""
    site, heap, end_at = state.site, state.heap, state.end_at
    if site.active == 0 or end_at[heap[0]] > to_s:
        return
    jobs, running = site.jobs, site.running
    places = jobs.places
    while site.active > 0 and end_at[heap[0]] <= to_s:
        slot = pop_end(heap, end_at, site.active)
        remove_running(running, jobs.end_s, site.active, slot)
        site.active -= 1
        state.phase[slot] = OVER
        state.ended[state.ended_count] = slot
        state.ended_count += 1
        state.over += 1
        a, b = jobs.place_at[slot], jobs.place_at[slot] + jobs.place_count[slot]
        add_to_free(jobs, slot, site.machine, places.node[a:b], places.units[a:b], state.free, state.total_free, 1)
        if state.on_nodes and not site.groups.stale:
            shift_profiles(state.carried, site, slot, OPEN_ENDED, jobs.end_s[slot], 1)


@subroutine
def revise_overdue_ends(site: SchedulingState, overrun: int) -> int:
    """Postpone the expected ends that have passed. Return the number of these jobs.

    Before and after the call, the running jobs are sorted by (`end_s`, slot).
    """
    jobs, running, count, now_s = site.jobs, site.running, site.active, site.now_s
    end_s, start_s, estimate_s, walltime_s = jobs.end_s, jobs.start_s, jobs.estimate_s, jobs.walltime_s
    overdue = 0
    while overdue < count and end_s[running[overdue]] <= now_s:
        slot = running[overdue]
        end_s[slot] = expected_end_by_code(start_s[slot], estimate_s[slot], walltime_s[slot], now_s, overrun)
        overdue += 1

    # Process the overdue jobs from last to first; each moves to the position of its new end.
    for i in range(overdue - 1, -1, -1):
        slot, j = running[i], i
        while j + 1 < count and (
            end_s[running[j + 1]] < end_s[slot] or (end_s[running[j + 1]] == end_s[slot] and running[j + 1] < slot)
        ):
            running[j] = running[j + 1]
            j += 1
        running[j] = slot
    return overdue


@subroutine
def revise_expected_ends(state: SimulatedClusterState) -> None:
    """Postpone the expected ends that have passed, also in availability profiles."""
    site = state.site
    jobs, running, now_s = site.jobs, site.running, site.now_s
    if site.active == 0 or jobs.end_s[running[0]] > now_s:
        return
    if state.on_nodes and not site.groups.stale:
        i = 0
        while i < site.active and jobs.end_s[running[i]] <= now_s:
            slot = running[i]
            start_s, estimate_s, walltime_s = jobs.start_s[slot], jobs.estimate_s[slot], jobs.walltime_s[slot]
            later_s = expected_end_by_code(start_s, estimate_s, walltime_s, now_s, state.overrun)
            shift_profiles(state.carried, site, slot, jobs.end_s[slot], later_s, -1)
            i += 1
    revise_overdue_ends(site, state.overrun)


@subroutine
def refresh_node_classes(state: SimulatedClusterState) -> None:
    """Rebuild the node classes if they are stale, or remove many empty classes."""
    if not state.on_nodes:
        return
    if state.site.groups.stale:
        rebuild_classes(state.carried, state.site)
    else:
        drop_empty_classes(state.carried)


# ---------------------------------------------------------------------------------------------- time


@subroutine
def can_any_job_start(state: SimulatedClusterState) -> bool:
    """Return whether any queued job fits in the total free resources."""
    site = state.site
    jobs, queue, total_free = site.jobs, site.queue, state.total_free
    for i in range(site.queued):  # noqa: SIM110  (a loop compiles, a generator does not)
        if not exceeds_free(jobs, queue[i], total_free):
            return True
    return False


@subroutine
def submit_jobs_until(state: SimulatedClusterState, to_s: int) -> None:
    """Queue the jobs submitted at or before `to_s`."""
    site, arrivals, submit_s = state.site, state.arrivals, state.site.jobs.submit_s
    while state.arrived < len(arrivals) and submit_s[arrivals[state.arrived]] <= to_s:
        slot = arrivals[state.arrived]
        site.queue[site.queued] = slot
        state.phase[slot] = WAITING
        site.queued += 1
        state.arrived += 1


@subroutine
def find_next_event_s(state: SimulatedClusterState) -> int:
    """Return the time of the next arrival or end, or NEVER if there is none."""
    site, arrivals, next_s = state.site, state.arrivals, NEVER
    if state.arrived < len(arrivals):
        next_s = site.jobs.submit_s[arrivals[state.arrived]]
    if site.active > 0:
        next_s = min(next_s, state.end_at[state.heap[0]])
    return next_s


@subroutine
def advance_to_next_round(state: SimulatedClusterState, pause: int, limit_s: int) -> int:
    """Advance to the next round or to `limit_s`. Return why the clock stopped.

    `pause` states which rounds stop the clock (see `PAUSE_WHERE_NEEDED`). A round is due after any event and at
    `again_s`. Events within one second are processed in this order: all arrivals, all ends, then one round.
    """
    site = state.site
    while True:
        if state.due and pause != NO_ROUND:
            state.due = 0
        else:
            now_s = find_next_event_s(state)
            if pause != NO_ROUND:
                now_s = min(now_s, state.again_s)
            if now_s > limit_s:
                if pause == NO_ROUND:
                    site.now_s = max(site.now_s, limit_s)
                    revise_expected_ends(state)
                    refresh_node_classes(state)
                return NOTHING_LEFT
            site.now_s = max(site.now_s, now_s)
            if state.again_s <= now_s:
                state.again_s = NEVER
            submit_jobs_until(state, now_s)
            end_jobs_until(state, now_s)
            if pause == NO_ROUND:
                state.due = 1
                continue
        revise_expected_ends(state)
        state.rounds += 1
        if (pause == ASK_ALWAYS and site.queued > 0) or can_any_job_start(state):
            refresh_node_classes(state)
            return MAY_START
        state.skipped += 1
        if pause in (PAUSE_ALWAYS, ASK_ALWAYS):
            return CANNOT_START


# ---------------------------------------------------------------------------------------------- starts


@subroutine
def start_jobs(
    state: SimulatedClusterState, slots: FixedColumn, offsets: FixedColumn, nodes: FixedColumn, units: FixedColumn
) -> int:
    """Verify starts, run the jobs from the current time, and return -1.

    If a start breaks a rule, start no job and return the position of that start.
    """
    site = state.site
    jobs, machine, now_s = site.jobs, site.machine, site.now_s
    fault = verify_and_take_starts(
        slots, offsets, nodes, units, state.phase, state.free, state.total_free, machine, jobs
    )
    if fault >= 0:
        return fault

    # Append new placements to the entries in use.
    places, first, last = jobs.places, offsets[0], offsets[len(slots)]
    used = places.used
    grow_columns(places, "node units", used, used + last - first)
    place_node, place_units = places.node, places.units
    for at in range(first, last):
        place_node[used + at - first], place_units[used + at - first] = nodes[at], units[at]
    places.used = used + last - first

    # Set the ends of each job, and insert it among the running jobs.
    end_s, end_at = jobs.end_s, state.end_at
    for i in range(len(slots)):
        slot = slots[i]
        jobs.place_at[slot], jobs.place_count[slot] = used + offsets[i] - first, offsets[i + 1] - offsets[i]
        jobs.start_s[slot] = now_s
        end_s[slot] = now_s + jobs.estimate_s[slot]
        end_at[slot] = now_s + state.run_s[slot]
        push_end(state.heap, end_at, site.active, slot)
        insert_sorted(site.running, end_s, site.active, slot)
        site.active += 1
        if state.on_nodes and not site.groups.stale:
            shift_profiles(state.carried, site, slot, OPEN_ENDED, end_s[slot], -1)
    compact_queue(state)
    return -1


@subroutine
def compact_queue(state: SimulatedClusterState) -> None:
    """Remove started and cancelled jobs from the queue."""
    site, kept = state.site, 0
    queue, phase = site.queue, state.phase
    for i in range(site.queued):
        if phase[queue[i]] == WAITING:
            queue[kept] = queue[i]
            kept += 1
    site.queued = kept


# ---------------------------------------------------------------------------------------------- API


@kernel
def advance_to_next_round_from_python(state: SimulatedClusterState, pause: int, limit_s: int) -> int:
    """Call `advance_to_next_round` from Python."""
    return advance_to_next_round(state, pause, limit_s)


@kernel
def start_jobs_from_python(state: SimulatedClusterState, starts: Starting) -> int:
    """Call `start_jobs` from Python."""
    slots, offsets, nodes, units = starts
    return start_jobs(state, slots, offsets, nodes, units)


@kernel
def start_jobs_and_advance(state: SimulatedClusterState, starts: Starting, pause: int) -> int:
    """Call `start_jobs` and `advance_to_next_round` from Python.

    If a start breaks a rule, return FAULTY and set `fault` in the state.
    """
    slots, offsets, nodes, units = starts
    state.fault = start_jobs(state, slots, offsets, nodes, units) if len(slots) else -1
    return FAULTY if state.fault >= 0 else advance_to_next_round(state, pause, NEVER - 1)


@kernel
def stop_running_job(state: SimulatedClusterState, slot: int, requeue: int) -> int:
    """End a running job now. Return the number of running jobs.

    With `requeue`, return the job to the queue.
    """
    site, heap, at = state.site, state.heap, 0
    while heap[at] != slot:
        at += 1
    state.end_at[slot] = site.now_s
    push_end(heap, state.end_at, at, slot)
    end_jobs_until(state, site.now_s)
    if requeue:
        state.ended_count -= 1
        state.over -= 1
        state.phase[slot] = WAITING
        site.jobs.start_s[slot] = NEVER
        insert_sorted(site.queue, site.jobs.submit_s, site.queued, slot)
        site.queued += 1
    return site.active


@kernel
def rebuild_node_classes(state: SimulatedClusterState) -> int:
    """Rebuild the node classes after another change of the free amounts. Return the number of running jobs."""
    state.site.groups.stale = 1
    refresh_node_classes(state)
    return state.site.active


@kernel
def cancel_queued_job(state: SimulatedClusterState, slot: int) -> int:
    """Remove a job from the queue. Return the new length of the queue."""
    state.phase[slot] = OVER
    compact_queue(state)
    return state.site.queued
