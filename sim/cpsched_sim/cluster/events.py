"""What happens to a simulated cluster between two rounds, compiled: arrivals, ends, starts.

The state is a set of columns by slot plus one small array, the *clock*, that holds every counter. Kernels are handed it
flat, as `STATE` lists it; inside they see a `State`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cpsched._jit import FLAGS2, IN1, IN2, INT, OUT1, OUT2, kernel
from cpsched.kernels import (
    GROUPS,
    Groups,
    Jobs,
    Machine,
    compact,
    expected_end,
    regroup,
    revise_overdue,
    shift_free,
    shift_lines,
    take_starts,
)
from cpsched.model import END, ESTIMATE, NEVER, NODE_SET, PLACE_AT, PLACE_COUNT, SHARING, START, SUBMIT, UNITS, WALLTIME

Array = Any

NOW, QUEUED, RUNNING, ARRIVED, POOL, ENDED, OVER_COUNT, ROUNDS, SKIPPED, DUE, FAULT = range(11)
"""Fields of the clock: second; jobs queued; running; arrivals so far; placement entries; ended since last asked; ended
in all; rounds so far; those in which nothing could start; whether a round is due at once; the start that broke a rule,
or -1."""
CLOCK_FIELDS = 11

QUEUE, HEAP, ACTIVE_ROW, ENDED_ROW, PHASE, RUN, END_AT = range(7)
"""Rows of the simulator's own matrix: the queue in arrival order; a heap of real ends; running jobs by expected end;
ended jobs not yet asked for; by slot: phase, real run time, real end."""
OWN_ROWS = 7

WAITING, ACTIVE, OVER = 1, 2, 3
"""Phases of a job; 0 before its arrival."""

PAUSE_WHERE_NEEDED, PAUSE_ALWAYS, NO_ROUND, STAY = range(4)
"""When `step` returns: where something may start; at every round; only at its limit, which is then now, with a round
due if anything happened; at once."""
MAY_START, CANNOT_START, FAULTY = 1, 2, 3
"""What it returns of a round; 0 when there is none; `FAULTY`, and no time has passed, when a start breaks a rule."""

STATE = (
    OUT1, IN1, OUT2, OUT1, OUT2, IN2, FLAGS2, IN1, IN1, OUT2, IN2, OUT1, OUT1, *GROUPS, OUT1, OUT1, OUT1,
)  # fmt: skip
"""Clock, arrivals, own rows, total free, free, capacity, node sets, kinds (2); rows, per_unit, place_node, place_units;
groups (5), signatures by node, by group, hash table of groups."""


class State(NamedTuple):
    """All that a simulated cluster is."""

    clock: Array
    arrivals: Array
    rows: Array
    queue: Array
    heap: Array
    running: Array
    ended: Array
    phase: Array
    run_s: Array
    end_at: Array
    total_free: Array
    machine: Machine
    jobs: Jobs
    groups: Groups
    signature: Array
    known: Array
    table: Array


@kernel(makes_arrays=False)
def state_of(
    clock: Array, arrivals: Array, own: Array, total_free: Array, free: Array, capacity: Array, node_sets: Array,
    kind_of: Array, kind_node: Array, rows: Array, per_unit: Array, place_node: Array, place_units: Array,
    group_of: Array, group_columns: Array, step_at: Array, step_free: Array, group_used: Array, signature: Array,
    known: Array, table: Array,
) -> State:  # fmt: skip
    """The state whose columns are handed over flat."""
    return State(
        clock, arrivals, rows, own[QUEUE], own[HEAP], own[ACTIVE_ROW], own[ENDED_ROW], own[PHASE], own[RUN],
        own[END_AT], total_free, Machine(free, capacity, node_sets, kind_of, kind_node),
        Jobs(rows[ESTIMATE], rows[UNITS], per_unit, rows[SHARING], rows[NODE_SET], rows[END], rows[PLACE_AT],
             rows[PLACE_COUNT], place_node, place_units),
        Groups(group_of, group_columns[0], group_columns[1], group_columns[2], group_columns[3], step_at, step_free,
               group_used[:4], group_used[4:]), signature, known, table,
    )  # fmt: skip


@kernel(makes_arrays=False)
def push_end(heap: Array, end_at: Array, count: int, slot: int) -> int:
    """Add `slot` to the heap of real ends (by `end_at`, then slot); returns the new count."""
    i = count
    while i > 0:
        parent = (i - 1) // 2
        other = heap[parent]
        if end_at[other] < end_at[slot] or (end_at[other] == end_at[slot] and other < slot):
            break
        heap[i] = other
        i = parent
    heap[i] = slot
    return count + 1


@kernel(makes_arrays=False)
def pop_end(heap: Array, end_at: Array, count: int) -> Any:
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
    return top


@kernel(makes_arrays=False)
def insert_running(running: Array, end_s: Array, count: int, slot: int) -> int:
    """Put `slot` into `running[:count]`, which is sorted by (`end_s`, slot); returns its position."""
    i = count
    while i > 0 and (
        end_s[running[i - 1]] > end_s[slot] or (end_s[running[i - 1]] == end_s[slot] and running[i - 1] > slot)
    ):
        running[i] = running[i - 1]
        i -= 1
    running[i] = slot
    return i


@kernel(makes_arrays=False)
def remove_running(running: Array, end_s: Array, count: int, slot: int) -> int:
    """Take `slot` out of `running[:count]`; returns where it was."""
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
    return low


@kernel(makes_arrays=False)
def move_lines(state: State, slot: int, from_s: int, to_s: int, sign: int) -> Any:
    """Add `sign` times what a running job takes to the lines of its nodes during [from_s, to_s)."""
    first = state.jobs.place_at[slot]
    return shift_lines(
        state.groups, state.signature, state.known, state.table, state.machine, state.jobs, slot,
        state.jobs.place_node, state.jobs.place_units, first, first + state.jobs.place_count[slot], from_s, to_s, sign,
    )  # fmt: skip


@kernel(makes_arrays=False)
def end_until(state: State, to_s: int) -> int:
    """End the jobs whose real end is `to_s` or earlier, first come first; returns how many."""
    clock, jobs, machine, count = state.clock, state.jobs, state.machine, 0
    while clock[RUNNING] > 0 and state.end_at[state.heap[0]] <= to_s:
        slot = pop_end(state.heap, state.end_at, clock[RUNNING])
        remove_running(state.running, jobs.end_s, clock[RUNNING], slot)
        clock[RUNNING] -= 1
        state.phase[slot] = OVER
        state.ended[clock[ENDED]] = slot
        clock[ENDED] += 1
        clock[OVER_COUNT] += 1
        first = jobs.place_at[slot]
        shift_free(slot, first, first + jobs.place_count[slot], machine.free, state.total_free, machine.capacity,
                   jobs.place_node, jobs.place_units, jobs.per_unit, jobs.sharing, 1)  # fmt: skip
        move_lines(state, slot, -NEVER, jobs.end_s[slot], 1)
        count += 1
    return count


@kernel(makes_arrays=False)
def revise_expected(state: State, overrun: int) -> Any:
    """Move the expected ends that have passed, in the running table and in the lines; returns how many there were."""
    clock, jobs, rows, i = state.clock, state.jobs, state.rows, 0
    while i < clock[RUNNING] and jobs.end_s[state.running[i]] <= clock[NOW]:
        slot = state.running[i]
        later_s = expected_end(rows[START, slot], rows[ESTIMATE, slot], rows[WALLTIME, slot], clock[NOW], overrun)
        move_lines(state, slot, jobs.end_s[slot], later_s, -1)
        i += 1
    if i == 0:
        return 0
    return revise_overdue(state.running, rows[END], rows[START], rows[ESTIMATE], rows[WALLTIME], clock[RUNNING],
                          clock[NOW], overrun)  # fmt: skip


@kernel(makes_arrays=False)
def refresh_groups(state: State) -> Any:
    """Build the groups anew where they are marked so; leave out those without nodes where they are many."""
    if len(state.groups.of) == 0:
        return 0
    if state.groups.used[3] == 0:
        return compact(state.groups, state.known, state.table)
    groups, machine, jobs = state.groups, state.machine, state.jobs
    return regroup(groups, state.signature, state.known, state.table, machine, jobs,
                   state.running[: state.clock[RUNNING]])  # fmt: skip


@kernel(makes_arrays=False)
def something_may_start(state: State) -> bool:
    """Whether any queued job asks for no more than all that is free: if none does, no dispatcher can start one."""
    units, per_unit, total_free = state.jobs.units, state.jobs.per_unit, state.total_free
    for i in range(state.clock[QUEUED]):
        slot, fits = state.queue[i], True
        for r in range(len(total_free)):
            if units[slot] * per_unit[slot, r] > total_free[r]:
                fits = False
                break
        if fits:
            return True
    return False


@kernel(makes_arrays=False)
def pass_time(state: State, pause: int, limit_s: int, overrun: int) -> int:
    """`step` without starts, for other kernels."""
    clock, submit_s, arrivals = state.clock, state.rows[SUBMIT], state.arrivals
    while True:
        if clock[DUE] and pause != NO_ROUND:
            clock[DUE] = 0
        else:
            now_s = NEVER
            if clock[ARRIVED] < len(arrivals):
                now_s = submit_s[arrivals[clock[ARRIVED]]]
            if clock[RUNNING] > 0:
                now_s = min(now_s, state.end_at[state.heap[0]])
            if now_s > limit_s:
                if pause == NO_ROUND:
                    clock[NOW] = max(clock[NOW], limit_s)
                    revise_expected(state, overrun)
                    refresh_groups(state)
                return 0
            clock[NOW] = max(clock[NOW], now_s)
            while clock[ARRIVED] < len(arrivals) and submit_s[arrivals[clock[ARRIVED]]] <= now_s:
                slot = arrivals[clock[ARRIVED]]
                state.queue[clock[QUEUED]] = slot
                state.phase[slot] = WAITING
                clock[QUEUED] += 1
                clock[ARRIVED] += 1
            end_until(state, now_s)
            if pause == NO_ROUND:
                clock[DUE] = 1
                continue
        revise_expected(state, overrun)
        clock[ROUNDS] += 1
        if something_may_start(state):
            refresh_groups(state)
            return MAY_START
        clock[SKIPPED] += 1
        if pause == PAUSE_ALWAYS:
            return CANNOT_START


@kernel(makes_arrays=False)
def begin(state: State, starts: Array, offsets: Array, nodes: Array, node_units: Array) -> Any:
    """Let verified starts run from now on: -1, or the position of the first that breaks a rule; then none starts."""
    clock, jobs, machine, rows = state.clock, state.jobs, state.machine, state.rows
    fault = take_starts(starts, offsets, nodes, node_units, state.phase, machine.free, state.total_free,
                        machine.capacity, machine.node_sets, jobs.units, jobs.per_unit, jobs.sharing,
                        jobs.node_set)  # fmt: skip
    if fault >= 0:
        return fault
    for i in range(len(starts)):
        slot, first = starts[i], clock[POOL]
        for at in range(offsets[i], offsets[i + 1]):
            jobs.place_node[clock[POOL]] = nodes[at]
            jobs.place_units[clock[POOL]] = node_units[at]
            clock[POOL] += 1
        jobs.place_at[slot], jobs.place_count[slot] = first, clock[POOL] - first
        state.phase[slot], rows[START, slot] = ACTIVE, clock[NOW]
        jobs.end_s[slot] = clock[NOW] + jobs.estimate_s[slot]
        state.end_at[slot] = clock[NOW] + state.run_s[slot]
        push_end(state.heap, state.end_at, clock[RUNNING], slot)
        insert_running(state.running, jobs.end_s, clock[RUNNING], slot)
        clock[RUNNING] += 1
        move_lines(state, slot, -NEVER, jobs.end_s[slot], -1)
    close_queue(state)
    return -1


@kernel(makes_arrays=False)
def close_queue(state: State) -> int:
    """Close the gaps that started or cancelled jobs left in the queue; returns its new length."""
    kept = 0
    for i in range(state.clock[QUEUED]):
        if state.phase[state.queue[i]] == WAITING:
            state.queue[kept] = state.queue[i]
            kept += 1
    state.clock[QUEUED] = kept
    return kept


@kernel(INT(INT, INT, INT, IN1, IN1, IN1, IN1, *STATE), makes_arrays=False)
def step(
    pause: int,
    limit_s: int,
    overrun: int,
    starts: Array,
    offsets: Array,
    nodes: Array,
    node_units: Array,
    clock: Array,
    arrivals: Array,
    own: Array,
    total_free: Array,
    free: Array,
    capacity: Array,
    node_sets: Array,
    kind_of: Array,
    kind_node: Array,
    rows: Array,
    per_unit: Array,
    place_node: Array,
    place_units: Array,
    group_of: Array,
    group_columns: Array,
    step_at: Array,
    step_free: Array,
    group_used: Array,
    signature: Array,
    known: Array,
    table: Array,
) -> Any:
    """Verify the starts and let them run from now on, then let time pass until the next round, see `pause`.

    Where a start breaks a rule none starts, and `clock[FAULT]` is its position; else that is -1. The placement pool
    must have room for `len(nodes)` more entries. Of one second: all arrivals in order, then all ends, then one round.
    The result is 0 when no event at or before `limit_s` is left.
    """
    state = state_of(
        clock, arrivals, own, total_free, free, capacity, node_sets, kind_of, kind_node, rows, per_unit, place_node,
        place_units, group_of, group_columns, step_at, step_free, group_used, signature, known, table,
    )  # fmt: skip
    clock[FAULT] = -1
    if len(starts):
        clock[FAULT] = begin(state, starts, offsets, nodes, node_units)
        if clock[FAULT] >= 0:
            return FAULTY
    if pause == STAY:
        return 0
    return pass_time(state, pause, limit_s, overrun)
