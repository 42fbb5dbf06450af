"""What happens to a simulated cluster between two rounds, compiled: arrivals, ends, starts."""

from __future__ import annotations

from cpsched.jit.decorators import kernel, scalar_subroutine, subroutine
from cpsched.jit.handles import Column, FixedColumn, Handle, Matrix
from cpsched.kernels.fit_rules import QUEUED, STARTED, Starting, add_to_free, exceeds_free, verify_and_take_starts
from cpsched.kernels.node_classes import OPEN_ENDED
from cpsched.kernels.scheduling_state import IncrementalClasses, SchedulingState, grow_columns
from cpsched.model import NEVER
from cpsched.model.overrun import expected_end
from cpsched_sim.cluster.incremental_classes import drop_empty_classes, rebuild_classes, shift_lines

WAITING, ACTIVE, OVER = QUEUED, STARTED, 3
"""Phases of a job; 0 before its arrival."""

PAUSE_WHERE_NEEDED, PAUSE_ALWAYS, NO_ROUND, ASK_ALWAYS = range(4)
"""When time stops: where something may start; at every round; only at its limit, which is then now, with a round due if
anything happened; at every round, of which each with a queue is said to be one in which something may start."""

NOTHING_LEFT, MAY_START, CANNOT_START, FAULTY = range(4)
"""What is said of the moment at which time stopped: no event at or before the limit is left; a round in which something
may start, or nothing can; no time has passed, because a start breaks a rule."""


class SimulatedState(Handle):
    """All that a simulated cluster is."""

    arrived: int
    """Arrivals so far."""
    ended_count: int
    """Entries of `ended` in use."""
    over: int
    """Jobs ended in all."""
    rounds: int
    skipped: int
    """Rounds in which nothing could start, so that nobody was asked."""
    due: int
    """Whether a round is due at once."""
    again_s: int
    """The second of a round that the dispatcher asked for; NEVER where it asked for none."""
    fault: int
    """The position of the start that broke a rule, -1 when none did."""
    overrun: int
    """What a running job is assumed to do when it outlives its estimate."""
    on_nodes: int
    """Whether groups of nodes are carried along; not where the cluster is a counted pool."""
    site: SchedulingState
    carried: IncrementalClasses
    free: Matrix
    """int64[N, R]: what `site.machine` shows to a plan."""
    total_free: Column
    """int64[R]"""
    arrivals: Column
    """Slots in order of arrival."""
    heap: Column
    """Running jobs, a heap by real end, then slot."""
    ended: Column
    """Ended jobs nobody asked for yet, in order of their ends."""
    phase: Column
    run_s: Column
    """Real run time."""
    end_at: Column
    """Real end."""


# ---------------------------------------------------------------------------------------------- who runs


@scalar_subroutine
def push_end(heap: Column, end_at: FixedColumn, count: int, slot: int) -> None:
    """Add `slot` to a heap of `count` real ends."""
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
    """Take the slot that ends first off a heap of `count`."""
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
def insert_running(running: Column, end_s: FixedColumn, count: int, slot: int) -> None:
    """Put `slot` into `running[:count]`, which is sorted by (`end_s`, slot)."""
    i = count
    while i > 0 and (
        end_s[running[i - 1]] > end_s[slot] or (end_s[running[i - 1]] == end_s[slot] and running[i - 1] > slot)
    ):
        running[i] = running[i - 1]
        i -= 1
    running[i] = slot


@scalar_subroutine
def remove_running(running: Column, end_s: FixedColumn, count: int, slot: int) -> None:
    """Take `slot` out of `running[:count]`."""
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
def end_until(state: SimulatedState, to_s: int) -> None:
    """End the jobs whose real end is `to_s` or earlier, first come first."""
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
            shift_lines(state.carried, site, slot, OPEN_ENDED, jobs.end_s[slot], 1)


@subroutine
def revise_overdue(site: SchedulingState, overrun: int) -> int:
    """Move the running jobs that outlived their expected end to a later one; returns how many there were.

    The running jobs are sorted by (`end_s`, slot) before and after.
    """
    jobs, running, count, now_s = site.jobs, site.running, site.active, site.now_s
    end_s, start_s, estimate_s, walltime_s = jobs.end_s, jobs.start_s, jobs.estimate_s, jobs.walltime_s
    overdue = 0
    while overdue < count and end_s[running[overdue]] <= now_s:
        slot = running[overdue]
        end_s[slot] = expected_end(start_s[slot], estimate_s[slot], walltime_s[slot], now_s, overrun)
        overdue += 1

    # From the last of them to the first, each moves up to where its new end belongs.
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
def revise_expected(state: SimulatedState) -> None:
    """Move the expected ends that have passed, in the running table and in the lines."""
    site = state.site
    jobs, running, now_s = site.jobs, site.running, site.now_s
    if site.active == 0 or jobs.end_s[running[0]] > now_s:
        return
    if state.on_nodes and not site.groups.stale:
        i = 0
        while i < site.active and jobs.end_s[running[i]] <= now_s:
            slot = running[i]
            start_s, estimate_s, walltime_s = jobs.start_s[slot], jobs.estimate_s[slot], jobs.walltime_s[slot]
            later_s = expected_end(start_s, estimate_s, walltime_s, now_s, state.overrun)
            shift_lines(state.carried, site, slot, jobs.end_s[slot], later_s, -1)
            i += 1
    revise_overdue(site, state.overrun)


@subroutine
def refresh_classes(state: SimulatedState) -> None:
    """Build the groups anew where they are stale; leave out those without nodes where they are many."""
    if not state.on_nodes:
        return
    if state.site.groups.stale:
        rebuild_classes(state.carried, state.site)
    else:
        drop_empty_classes(state.carried)


# ---------------------------------------------------------------------------------------------- time


@subroutine
def something_may_start(state: SimulatedState) -> bool:
    """Whether any queued job asks for no more than all that is free: if none does, no dispatcher can start one."""
    site = state.site
    jobs, queue, total_free = site.jobs, site.queue, state.total_free
    for i in range(site.queued):  # noqa: SIM110  (a loop compiles, a generator does not)
        if not exceeds_free(jobs, queue[i], total_free):
            return True
    return False


@subroutine
def arrive_until(state: SimulatedState, to_s: int) -> None:
    """Queue the jobs that are submitted at `to_s` or earlier."""
    site, arrivals, submit_s = state.site, state.arrivals, state.site.jobs.submit_s
    while state.arrived < len(arrivals) and submit_s[arrivals[state.arrived]] <= to_s:
        slot = arrivals[state.arrived]
        site.queue[site.queued] = slot
        state.phase[slot] = WAITING
        site.queued += 1
        state.arrived += 1


@subroutine
def next_event(state: SimulatedState) -> int:
    """When the next job arrives or ends; NEVER where neither is left to happen."""
    site, arrivals, next_s = state.site, state.arrivals, NEVER
    if state.arrived < len(arrivals):
        next_s = site.jobs.submit_s[arrivals[state.arrived]]
    if site.active > 0:
        next_s = min(next_s, state.end_at[state.heap[0]])
    return next_s


@subroutine
def advance_to_next_round(state: SimulatedState, pause: int, limit_s: int) -> int:
    """Let time pass until the next round, see `pause`, or until `limit_s`; returns what is said of that moment.

    A round is due when something happens, and at `again_s`. Of one second: all arrivals in order, then all ends, then
    one round.
    """
    site = state.site
    while True:
        if state.due and pause != NO_ROUND:
            state.due = 0
        else:
            now_s = next_event(state)
            if pause != NO_ROUND:
                now_s = min(now_s, state.again_s)
            if now_s > limit_s:
                if pause == NO_ROUND:
                    site.now_s = max(site.now_s, limit_s)
                    revise_expected(state)
                    refresh_classes(state)
                return NOTHING_LEFT
            site.now_s = max(site.now_s, now_s)
            if state.again_s <= now_s:
                state.again_s = NEVER
            arrive_until(state, now_s)
            end_until(state, now_s)
            if pause == NO_ROUND:
                state.due = 1
                continue
        revise_expected(state)
        state.rounds += 1
        if (pause == ASK_ALWAYS and site.queued > 0) or something_may_start(state):
            refresh_classes(state)
            return MAY_START
        state.skipped += 1
        if pause in (PAUSE_ALWAYS, ASK_ALWAYS):
            return CANNOT_START


# ---------------------------------------------------------------------------------------------- starts


@subroutine
def start_jobs(
    state: SimulatedState, slots: FixedColumn, offsets: FixedColumn, nodes: FixedColumn, units: FixedColumn
) -> int:
    """Verify starts and let them run from now on; returns -1.

    Where one breaks a rule none runs, and its position is returned.
    """
    site = state.site
    jobs, machine, now_s = site.jobs, site.machine, site.now_s
    fault = verify_and_take_starts(
        slots, offsets, nodes, units, state.phase, state.free, state.total_free, machine, jobs
    )
    if fault >= 0:
        return fault

    # Their entries go behind those in use.
    places, first, last = jobs.places, offsets[0], offsets[len(slots)]
    used = places.used
    grow_columns(places, "node units", used, used + last - first)
    place_node, place_units = places.node, places.units
    for at in range(first, last):
        place_node[used + at - first], place_units[used + at - first] = nodes[at], units[at]
    places.used = used + last - first

    # Each gets its ends, and its place among the running jobs.
    end_s, end_at = jobs.end_s, state.end_at
    for i in range(len(slots)):
        slot = slots[i]
        jobs.place_at[slot], jobs.place_count[slot] = used + offsets[i] - first, offsets[i + 1] - offsets[i]
        jobs.start_s[slot] = now_s
        end_s[slot] = now_s + jobs.estimate_s[slot]
        end_at[slot] = now_s + state.run_s[slot]
        push_end(state.heap, end_at, site.active, slot)
        insert_running(site.running, end_s, site.active, slot)
        site.active += 1
        if state.on_nodes and not site.groups.stale:
            shift_lines(state.carried, site, slot, OPEN_ENDED, end_s[slot], -1)
    close_queue(state)
    return -1


@subroutine
def close_queue(state: SimulatedState) -> None:
    """Close the gaps that started or cancelled jobs left in the queue."""
    site, kept = state.site, 0
    queue, phase = site.queue, state.phase
    for i in range(site.queued):
        if phase[queue[i]] == WAITING:
            queue[kept] = queue[i]
            kept += 1
    site.queued = kept


# ---------------------------------------------------------------------------------------------- doors


@kernel
def advance(state: SimulatedState, pause: int, limit_s: int) -> int:
    """`advance_to_next_round`, for Python."""
    return advance_to_next_round(state, pause, limit_s)


@kernel
def start(state: SimulatedState, starts: Starting) -> int:
    """See `start_jobs`."""
    slots, offsets, nodes, units = starts
    return start_jobs(state, slots, offsets, nodes, units)


@kernel
def step(state: SimulatedState, starts: Starting, pause: int) -> int:
    """`start` and `advance` in one: FAULTY, and `simulated_cluster.fault`, where a start breaks a rule."""
    slots, offsets, nodes, units = starts
    state.fault = start_jobs(state, slots, offsets, nodes, units) if len(slots) else -1
    return FAULTY if state.fault >= 0 else advance_to_next_round(state, pause, NEVER - 1)


@kernel
def cancel(state: SimulatedState, slot: int) -> int:
    """Take a queued job out of the queue; returns the length of the queue."""
    state.phase[slot] = OVER
    close_queue(state)
    return state.site.queued
