"""What happens to a simulated cluster between two rounds, compiled: arrivals, ends, starts.

The state is a set of columns by slot plus one small array, the *clock*, that holds every counter.
"""

from __future__ import annotations

from typing import Any

from cpsched._jit import FLAGS2, IN1, IN2, INT, OUT1, OUT2, kernel
from cpsched.kernels import revise_overdue, shift_free, take_starts
from cpsched.model import NEVER

Array = Any

NOW, QUEUED, RUNNING, ARRIVED, POOL, ENDED, OVER_COUNT, ROUNDS, SKIPPED, DUE = range(10)
"""Fields of the clock: second; jobs queued; running; arrivals so far; placement entries; ended since last asked; ended
in all; rounds so far; those in which nothing could start; whether a round is due at once."""
CLOCK_FIELDS = 10

PAUSE_WHERE_NEEDED, PAUSE_ALWAYS, NO_ROUND = range(3)
"""When `next_round` returns: where something may start; at every round; only at its limit, leaving a round due."""
MAY_START, CANNOT_START = 1, 2
"""What it returns of a round; 0 when there is none."""

WAITING = 1
"""`phase` of a queued job."""
ACTIVE = 2
OVER = 3


@kernel(INT(OUT1, IN1, INT, INT))
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


@kernel(INT(OUT1, IN1, INT))
def pop_end(heap: Array, end_at: Array, count: int) -> int:
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


@kernel(INT(OUT1, IN1, INT, INT))
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


@kernel(INT(OUT1, IN1, INT, INT))
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


@kernel(INT(OUT1, OUT1, IN1))
def leave_queue(clock: Array, queue: Array, phase: Array) -> int:
    """Close the gaps that started or cancelled jobs left in the queue; returns its new length."""
    kept = 0
    for i in range(clock[QUEUED]):
        if phase[queue[i]] == WAITING:
            queue[kept] = queue[i]
            kept += 1
    clock[QUEUED] = kept
    return kept


@kernel(INT(OUT1, INT, OUT1, OUT1, OUT1, OUT1, IN1, IN1, OUT1, OUT2, IN2, IN1, IN1, IN1, IN1, IN2, IN1))
def end_jobs(
    clock: Array,
    to_s: int,
    heap: Array,
    running: Array,
    phase: Array,
    ended: Array,
    end_at: Array,
    end_s: Array,
    total_free: Array,
    free: Array,
    capacity: Array,
    place_at: Array,
    place_count: Array,
    place_node: Array,
    place_units: Array,
    per_unit: Array,
    sharing: Array,
) -> int:
    """End the jobs whose real end is `to_s` or earlier, first come first; returns how many."""
    before = clock[ENDED]
    while clock[RUNNING] > 0 and end_at[heap[0]] <= to_s:
        slot = pop_end(heap, end_at, clock[RUNNING])
        remove_running(running, end_s, clock[RUNNING], slot)
        clock[RUNNING] -= 1
        phase[slot] = OVER
        ended[clock[ENDED]] = slot
        clock[ENDED] += 1
        clock[OVER_COUNT] += 1
        shift_free(slot, place_at[slot], place_at[slot] + place_count[slot], free, total_free, capacity, place_node,
                   place_units, per_unit, sharing, 1)  # fmt: skip
    return int(clock[ENDED] - before)


@kernel(INT(OUT1, IN1, IN1, IN1, IN2))
def something_may_start(clock: Array, queue: Array, total_free: Array, units: Array, per_unit: Array) -> bool:
    """Whether any queued job asks for no more than all that is free: if none does, no dispatcher can start one."""
    for i in range(clock[QUEUED]):
        slot, fits = queue[i], True
        for r in range(len(total_free)):
            if units[slot] * per_unit[slot, r] > total_free[r]:
                fits = False
                break
        if fits:
            return True
    return False


@kernel(
    INT(
        OUT1, INT, INT, IN1, IN1, OUT1, OUT1, OUT1, OUT1, OUT1, IN1, OUT1, IN1, IN1, IN1, OUT1, OUT2, IN2,
        IN1, IN1, IN1, IN1, IN1, IN2, IN1, INT,
    )
)  # fmt: skip
def next_round(
    clock: Array,
    pause: int,
    limit_s: int,
    arrivals: Array,
    submit_s: Array,
    queue: Array,
    heap: Array,
    running: Array,
    phase: Array,
    ended: Array,
    end_at: Array,
    end_s: Array,
    start_s: Array,
    estimate_s: Array,
    walltime_s: Array,
    total_free: Array,
    free: Array,
    capacity: Array,
    place_at: Array,
    place_count: Array,
    place_node: Array,
    place_units: Array,
    units: Array,
    per_unit: Array,
    sharing: Array,
    overrun: int,
) -> int:
    """Let time pass until a round in which something may start; 0 when no event at or before `limit_s` is left.

    Of one second: all arrivals in order, then all ends, then one round. See `PAUSE_ALWAYS` for `pause`.
    """
    while True:
        if clock[DUE] and pause != NO_ROUND:
            clock[DUE] = 0
        else:
            now_s = NEVER
            if clock[ARRIVED] < len(arrivals):
                now_s = submit_s[arrivals[clock[ARRIVED]]]
            if clock[RUNNING] > 0:
                now_s = min(now_s, end_at[heap[0]])
            if now_s > limit_s:
                return 0
            clock[NOW] = max(clock[NOW], now_s)
            while clock[ARRIVED] < len(arrivals) and submit_s[arrivals[clock[ARRIVED]]] <= now_s:
                slot = arrivals[clock[ARRIVED]]
                queue[clock[QUEUED]] = slot
                phase[slot] = WAITING
                clock[QUEUED] += 1
                clock[ARRIVED] += 1
            end_jobs(clock, now_s, heap, running, phase, ended, end_at, end_s, total_free, free, capacity, place_at,
                     place_count, place_node, place_units, per_unit, sharing)  # fmt: skip
            if pause == NO_ROUND:
                clock[DUE] = 1
                continue
        revise_overdue(running, end_s, start_s, estimate_s, walltime_s, clock[RUNNING], clock[NOW], overrun)
        clock[ROUNDS] += 1
        if something_may_start(clock, queue, total_free, units, per_unit):
            return MAY_START
        clock[SKIPPED] += 1
        if pause == PAUSE_ALWAYS:
            return CANNOT_START


@kernel(
    INT(
        OUT1, IN1, IN1, IN1, IN1, OUT1, OUT1, OUT1, OUT1, OUT1, OUT1, IN1, OUT1, IN1, OUT1, OUT2, IN2, FLAGS2,
        OUT1, OUT1, OUT1, OUT1, IN1, IN2, IN1, IN1,
    )
)  # fmt: skip
def start_jobs(
    clock: Array,
    slots: Array,
    offsets: Array,
    nodes: Array,
    node_units: Array,
    queue: Array,
    heap: Array,
    running: Array,
    phase: Array,
    end_at: Array,
    end_s: Array,
    run_s: Array,
    start_s: Array,
    estimate_s: Array,
    total_free: Array,
    free: Array,
    capacity: Array,
    node_sets: Array,
    place_at: Array,
    place_count: Array,
    place_node: Array,
    place_units: Array,
    units: Array,
    per_unit: Array,
    sharing: Array,
    node_set: Array,
) -> int:
    """Verify the starts and let them run from now on: -1, or the position of the first that breaks a rule.

    Where one does, nothing starts. The placement pool must have room for `len(nodes)` more entries.
    """
    fault = take_starts(slots, offsets, nodes, node_units, phase, free, total_free, capacity, node_sets, units,
                        per_unit, sharing, node_set)  # fmt: skip
    if fault >= 0:
        return int(fault)
    for i in range(len(slots)):
        slot, first = slots[i], clock[POOL]
        for at in range(offsets[i], offsets[i + 1]):
            place_node[clock[POOL]] = nodes[at]
            place_units[clock[POOL]] = node_units[at]
            clock[POOL] += 1
        place_at[slot], place_count[slot] = first, clock[POOL] - first
        phase[slot], start_s[slot] = ACTIVE, clock[NOW]
        end_s[slot] = clock[NOW] + estimate_s[slot]
        end_at[slot] = clock[NOW] + run_s[slot]
        push_end(heap, end_at, clock[RUNNING], slot)
        insert_running(running, end_s, clock[RUNNING], slot)
        clock[RUNNING] += 1
    leave_queue(clock, queue, phase)
    return -1
