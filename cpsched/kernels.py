"""The compiled loops over queue, nodes and running jobs; all in one module, so that Numba's cache sees every callee.

Columns are those of `cpsched.model.JobTable`, indexed by slot. Kernels decide on values alone (times, amounts, node
indices), never on the order in which something happens to be stored: the same instant gives the same decision, whether
its state was carried along or built anew. `.py_func` of each is its plain-Python twin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpsched._jit import FLAGS2, IN1, IN2, INT, OUT1, OUT2, kernel
from cpsched.model import (
    DISTINCT,
    END,
    ESTIMATE,
    EXCLUSIVE,
    NEVER,
    NODE_SET,
    PLACE_AT,
    PLACE_COUNT,
    SHARING,
    UNITS,
)

Array = Any
"""Kernels see arrays of explicit types, given in their signatures."""

STRICT, GREEDY = -1, 0
"""Numbers of reservations with a meaning of their own: stop at the first job that does not fit; pass over it."""
FIRST_FIT, BEST_FIT = 0, 1

ORDER, BACKFILL, RESERVATIONS, ALLOCATION, COUNTED, WANT_PLAN = range(6)
"""Fields of a rule (int64[6]), the whole of what makes one list scheduler differ from another: the order of the queue;
the order after a single reservation (`ARRIVAL`: the same); how many reservations; which nodes a start gets; whether the
cluster is a counted pool; whether the whole plan is wanted."""

ARRIVAL, SHORTEST, LONGEST, SJF, LJF, SAF, LAF, SPF, GIVEN = range(9)
"""Orders; `GIVEN`: by positions from outside."""


class Jobs(NamedTuple):
    """The columns that a plan reads, by slot."""

    estimate_s: Array
    units: Array
    per_unit: Array
    sharing: Array
    node_set: Array
    end_s: Array
    place_at: Array
    place_count: Array
    place_node: Array
    place_units: Array


# ---------------------------------------------------------------------------------------------- expected ends

OVERRUN_CODES = {"one-second": 0, "double": 1, "walltime": 2}


@kernel(INT(INT, INT, INT, INT, INT), makes_arrays=False)
def expected_end(start_s: int, estimate_s: int, walltime_s: int, now_s: int, overrun: int) -> int:
    """`cpsched.overrun.expected_end_s`, compiled."""
    end_s = start_s + estimate_s
    if end_s > now_s:
        return end_s
    if overrun == 1:
        while end_s <= now_s:
            estimate_s *= 2
            end_s = start_s + estimate_s
        return end_s
    if overrun == 2:
        end_s = start_s + walltime_s
    return max(end_s, now_s + 1)


@kernel(INT(OUT1, OUT1, IN1, IN1, IN1, INT, INT, INT), makes_arrays=False)
def revise_overdue(
    running: Array,
    end_s: Array,
    start_s: Array,
    estimate_s: Array,
    walltime_s: Array,
    count: int,
    now_s: int,
    overrun: int,
) -> int:
    """Move the running jobs that outlived their expected end to a later one; returns how many there were.

    `running[:count]` is sorted by (`end_s`, slot) before and after.
    """
    overdue = 0
    while overdue < count and end_s[running[overdue]] <= now_s:
        slot = running[overdue]
        end_s[slot] = expected_end(start_s[slot], estimate_s[slot], walltime_s[slot], now_s, overrun)
        overdue += 1
    for i in range(overdue - 1, -1, -1):
        slot, j = running[i], i
        while j + 1 < count and (
            end_s[running[j + 1]] < end_s[slot] or (end_s[running[j + 1]] == end_s[slot] and running[j + 1] < slot)
        ):
            running[j] = running[j + 1]
            j += 1
        running[j] = slot
    return overdue


# ---------------------------------------------------------------------------------------------- the fit rule


@kernel(INT(INT, INT, INT, OUT2, OUT1, IN2, IN1, IN1, IN2, IN1, INT), makes_arrays=False)
def shift_free(
    slot: int,
    first: int,
    last: int,
    free: Array,
    total_free: Array,
    capacity: Array,
    nodes: Array,
    node_units: Array,
    per_unit: Array,
    sharing: Array,
    sign: int,
) -> int:
    """Add `sign` times what a job takes on entries [first, last) of its placement to `free` and to its sum."""
    whole = sharing[slot] & EXCLUSIVE
    for at in range(first, last):
        node = nodes[at]
        for r in range(free.shape[1]):
            amount = capacity[node, r] if whole else node_units[at] * per_unit[slot, r]
            free[node, r] += sign * amount
            total_free[r] += sign * amount
    return last - first


@kernel(INT(INT, INT, INT, IN2, IN2, FLAGS2, IN1, IN1, IN1, IN2, IN1, IN1), makes_arrays=False)
def placement_fits(
    slot: int,
    first: int,
    last: int,
    free: Array,
    capacity: Array,
    node_sets: Array,
    nodes: Array,
    node_units: Array,
    units: Array,
    per_unit: Array,
    sharing: Array,
    node_set: Array,
) -> bool:
    """Whether one placement obeys every rule of `cpsched.fit.verify`."""
    placed, previous = 0, -1
    for at in range(first, last):
        node, on_node = nodes[at], node_units[at]
        if node <= previous or node >= free.shape[0] or on_node < 1:
            return False
        if sharing[slot] & DISTINCT and on_node > 1:
            return False
        if not node_sets[node_set[slot], node]:
            return False
        for r in range(free.shape[1]):
            if on_node * per_unit[slot, r] > free[node, r]:
                return False
            if sharing[slot] & EXCLUSIVE and free[node, r] != capacity[node, r]:
                return False
        placed += on_node
        previous = node
    return bool(placed == units[slot])


@kernel(INT(IN1, IN1, IN1, IN1, OUT1, OUT2, OUT1, IN2, FLAGS2, IN1, IN2, IN1, IN1), makes_arrays=False)
def take_starts(
    slots: Array,
    offsets: Array,
    nodes: Array,
    node_units: Array,
    queued: Array,
    free: Array,
    total_free: Array,
    capacity: Array,
    node_sets: Array,
    units: Array,
    per_unit: Array,
    sharing: Array,
    node_set: Array,
) -> int:
    """The compiled twin of `verify`: -1 when all starts fit, and then `free`, its sum and `queued` are without them.

    Otherwise the position of the first start that breaks a rule, and all are as they were. `queued[slot]` is 1 for
    jobs in the queue.
    """
    for i in range(len(slots)):
        slot = slots[i]
        known = 0 <= slot < len(queued)
        if not known or queued[slot] != 1 or not placement_fits(
            slot, offsets[i], offsets[i + 1], free, capacity, node_sets, nodes, node_units, units, per_unit, sharing,
            node_set,
        ):  # fmt: skip
            for j in range(i):
                queued[slots[j]] = 1
                shift_free(slots[j], offsets[j], offsets[j + 1], free, total_free, capacity, nodes, node_units,
                           per_unit, sharing, 1)  # fmt: skip
            return i
        queued[slot] = 0
        shift_free(slot, offsets[i], offsets[i + 1], free, total_free, capacity, nodes, node_units, per_unit, sharing,
                   -1)  # fmt: skip
    return -1


class Starts(NamedTuple):
    """Room for the starts of a plan, laid out as in `cpsched.model.Starts`."""

    slots: Array
    offsets: Array
    nodes: Array
    units: Array


# ---------------------------------------------------------------------------------------------- orders of the queue


@kernel(makes_arrays=False)
def first_key(code: int, estimate_s: int, processors: int) -> int:
    """What an order sorts by first: E is the estimate, r the processors (debs24 section 3)."""
    if code in (SHORTEST, SJF):
        return estimate_s
    if code in (LONGEST, LJF):
        return -estimate_s
    if code == SAF:
        return processors * estimate_s
    if code == LAF:
        return -processors * estimate_s
    if code == SPF:
        return processors * estimate_s * estimate_s
    return 0


@kernel(makes_arrays=False)
def second_key(code: int, estimate_s: int, processors: int) -> int:
    """What it sorts by next; remaining ties keep the order of arrival."""
    if code in (SJF, LJF):
        return processors
    if code == SPF:
        return processors * estimate_s
    return 0


@kernel()
def sorted_positions(code: int, queue: Array, jobs: Jobs) -> Array:
    """The positions of a queue in order `code`: a merge sort, stable."""
    n = len(queue)
    first, second = np.empty(n, np.int64), np.empty(n, np.int64)
    order, merged = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        slot = queue[i]
        processors = jobs.units[slot] * jobs.per_unit[slot, 0]
        first[i] = first_key(code, jobs.estimate_s[slot], processors)
        second[i] = second_key(code, jobs.estimate_s[slot], processors)
        order[i] = i
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            i, j = low, middle
            for k in range(low, high):
                take_left = i < middle
                if take_left and j < high:
                    a, b = order[i], order[j]
                    take_left = first[a] < first[b] or (first[a] == first[b] and second[a] <= second[b])
                if take_left:
                    merged[k] = order[i]
                    i += 1
                else:
                    merged[k] = order[j]
                    j += 1
        order, merged = merged, order
        width *= 2
    return order


# ---------------------------------------------------------------------------------------------- one counted pool
#
# A pool is a cluster of one resource whose units need not be placed: one node, or nodes of one unit each. Slots on
# such nodes are counted: a set of intervals that never exceeds the count can always be placed (interval graphs are
# perfect), with the running jobs where they are.


@kernel(makes_arrays=False)
def lower_bound(times: Array, count: int, at_s: int) -> int:
    """The first index of the sorted `times[:count]` that holds `at_s` or more."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if times[middle] < at_s:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(makes_arrays=False)
def occupy(times: Array, level: Array, count: int, start_s: int, end_s: int, amount: int) -> int:
    """Take `amount` off a line during [start_s, end_s); returns its new number of breakpoints."""
    first = lower_bound(times, count, start_s)
    if first == count or times[first] != start_s:
        for k in range(count, first, -1):
            times[k], level[k] = times[k - 1], level[k - 1]
        times[first], level[first] = start_s, level[first - 1]
        count += 1
    last = lower_bound(times, count, end_s)
    if last == count or times[last] != end_s:
        for k in range(count, last, -1):
            times[k], level[k] = times[k - 1], level[k - 1]
        times[last], level[last] = end_s, level[last - 1]
        count += 1
    for k in range(first, last):
        level[k] -= amount
    return count


@kernel(makes_arrays=False)
def earliest(times: Array, level: Array, count: int, duration_s: int, amount: int) -> int:
    """The index of the first breakpoint from which `amount` is there for `duration_s`; -1 where there is none."""
    k = 0
    while k < count:
        if level[k] < amount:
            k += 1
            continue
        end_s, j = times[k] + duration_s, k + 1
        while j < count and times[j] < end_s and level[j] >= amount:
            j += 1
        if j == count or times[j] >= end_s:
            return k
        k = j + 1
    return -1


@kernel(makes_arrays=False)
def starts_now(times: Array, level: Array, count: int, duration_s: int, amount: int) -> bool:
    """Whether `amount` is there from the line's first second on, for `duration_s`."""
    end_s, k = times[0] + duration_s, 0
    while k < count and times[k] < end_s:
        if level[k] < amount:
            return False
        k += 1
    return True


class Pool(NamedTuple):
    """One plan of a pool in the making."""

    now_s: int
    nodes: int
    capacity: int
    queue: Array
    order: Array
    running: Array
    held: Array
    """What each running job gives back."""
    plan: Array
    """Start by queue position."""
    picked: Array
    """Slots that start now, in the order in which they were chosen."""
    taken: Array
    """Amounts of those, by their ends."""
    ends: Array


@kernel(makes_arrays=False)
def amount_of(pool: Pool, jobs: Jobs, slot: int) -> Any:
    """What a queued job takes of a pool; NEVER where it cannot be held at all."""
    amount = jobs.units[slot] * jobs.per_unit[slot, 0]
    if pool.nodes > 1:
        return amount if jobs.per_unit[slot, 0] == 1 else NEVER
    if jobs.sharing[slot] & DISTINCT and jobs.units[slot] > 1:
        return NEVER
    if jobs.sharing[slot] & EXCLUSIVE:
        return pool.capacity if amount <= pool.capacity else NEVER
    return amount


@kernel(makes_arrays=False)
def fill_held(pool: Pool, jobs: Jobs) -> int:
    """Note what every running job gives back when it ends; returns the sum."""
    total = 0
    for i in range(len(pool.running)):
        slot = pool.running[i]
        amount = 0
        if pool.nodes > 1:
            amount = jobs.place_count[slot]
        elif jobs.place_count[slot] > 0:
            amount = jobs.place_units[jobs.place_at[slot]] * jobs.per_unit[slot, 0]
            if jobs.sharing[slot] & EXCLUSIVE:
                amount = pool.capacity
        pool.held[i] = amount
        total += amount
    return total


@kernel(makes_arrays=False)
def position_of(order: Array, i: int) -> Any:
    """The queue position of the i-th in an order; an empty one is that of the queue."""
    return order[i] if len(order) else i


@kernel(makes_arrays=False)
def start_now(pool: Pool, jobs: Jobs, started: int, position: int, amount: int) -> int:
    """Note a start; returns how many there are now."""
    slot = pool.queue[position]
    pool.plan[position] = pool.now_s
    pool.picked[started] = slot
    end_s, i = pool.now_s + jobs.estimate_s[slot], started
    while i > 0 and pool.ends[i - 1] > end_s:
        pool.ends[i], pool.taken[i] = pool.ends[i - 1], pool.taken[i - 1]
        i -= 1
    pool.ends[i], pool.taken[i] = end_s, amount
    return started + 1


@kernel(makes_arrays=False)
def pool_line(pool: Pool, jobs: Jobs, free: int, started: int, times: Array, level: Array) -> int:
    """The line of what is free from now on, with running and started jobs; returns its number of breakpoints."""
    times[0], level[0] = pool.now_s, free
    count, i, j, n = 1, 0, 0, len(pool.running)
    while i < n or j < started:
        if j == started or (i < n and jobs.end_s[pool.running[i]] <= pool.ends[j]):
            at_s, amount = jobs.end_s[pool.running[i]], pool.held[i]
            i += 1
        else:
            at_s, amount = pool.ends[j], pool.taken[j]
            j += 1
        if at_s <= times[count - 1]:
            level[count - 1] += amount
        else:
            times[count], level[count] = at_s, level[count - 1] + amount
            count += 1
    return count


@kernel(makes_arrays=False)
def pool_greedy(pool: Pool, jobs: Jobs, free: int, started: int, first: int) -> int:
    """Start whatever fits, from the `first` in order on; returns how many start."""
    for i in range(first, len(pool.queue)):
        if free == 0:
            break
        position = position_of(pool.order, i)
        amount = amount_of(pool, jobs, pool.queue[position])
        if amount <= free:
            free -= amount
            started = start_now(pool, jobs, started, position, amount)
    return started


@kernel(makes_arrays=False)
def pool_easy(pool: Pool, jobs: Jobs, free: int, started: int, first: int, backfill: Array) -> int:
    """One reservation, for the `first` in order; others start iff they end before it or fit beside it.

    `shadow_s` is when the reservation starts, `extra` what is free beside it from then on.
    """
    head = position_of(pool.order, first)
    need = amount_of(pool, jobs, pool.queue[head])
    shadow_s, then_free, i, j = pool.now_s, free, 0, 0
    while i < len(pool.running) or j < started:
        if j == started or (i < len(pool.running) and jobs.end_s[pool.running[i]] <= pool.ends[j]):
            at_s, amount = jobs.end_s[pool.running[i]], pool.held[i]
            i += 1
        else:
            at_s, amount = pool.ends[j], pool.taken[j]
            j += 1
        if at_s > shadow_s and then_free >= need:
            break
        shadow_s = at_s
        then_free += amount
    extra = then_free - need
    pool.plan[head] = shadow_s
    own_order = len(backfill) > 0
    for k in range(0 if own_order else first + 1, len(pool.queue)):
        if free == 0:
            break
        position = backfill[k] if own_order else position_of(pool.order, k)
        if pool.plan[position] != NEVER:
            continue
        slot = pool.queue[position]
        amount = amount_of(pool, jobs, slot)
        if amount > free:
            continue
        if pool.now_s + jobs.estimate_s[slot] > shadow_s:
            if amount > extra:
                continue
            extra -= amount
        free -= amount
        started = start_now(pool, jobs, started, position, amount)
    return started


@kernel(makes_arrays=False)
def last_startable(
    pool: Pool, jobs: Jobs, free: int, first: int, last: int, times: Array, level: Array, count: int
) -> int:
    """The last in order, at most `last`, that could start now; `first` - 1 where none can."""
    while last >= first:
        slot = pool.queue[position_of(pool.order, last)]
        amount = amount_of(pool, jobs, slot)
        if amount <= free and starts_now(times, level, count, jobs.estimate_s[slot], amount):
            break
        last -= 1
    return last


@kernel()
def pool_backfill(
    pool: Pool, jobs: Jobs, free: int, started: int, first: int, eventually: int, reservations: int, want_plan: int
) -> int:
    """Up to `reservations` jobs reserve their earliest slot; the others start iff that delays none of them."""
    n = len(pool.queue)
    room = len(pool.running) + started + 2 * (n - first) + 2
    times, level = np.empty(room, np.int64), np.empty(room, np.int64)
    count = pool_line(pool, jobs, free, started, times, level)
    last = n - 1 if want_plan else last_startable(pool, jobs, free, first, n - 1, times, level, count)
    i = first
    while i <= last:
        position = position_of(pool.order, i)
        slot = pool.queue[position]
        amount, duration_s = amount_of(pool, jobs, slot), jobs.estimate_s[slot]
        i += 1
        if amount > eventually:
            continue
        if amount <= free and starts_now(times, level, count, duration_s, amount):
            free -= amount
            started = start_now(pool, jobs, started, position, amount)
            count = occupy(times, level, count, pool.now_s, pool.now_s + duration_s, amount)
        elif reservations > 0:
            reservations -= 1
            start_s = times[earliest(times, level, count, duration_s, amount)]
            pool.plan[position] = start_s
            count = occupy(times, level, count, start_s, start_s + duration_s, amount)
        if not want_plan:
            last = last_startable(pool, jobs, free, i, last, times, level, count)
    return started


@kernel(makes_arrays=False)
def place_in_pool(pool: Pool, jobs: Jobs, started: int, free: Array, starts: Starts) -> Any:
    """Write the placements of the starts: the one node, or the first free ones. See `plan_placed` for the result."""
    starts.offsets[0] = 0
    for i in range(started):
        starts.offsets[i + 1] = starts.offsets[i] + (jobs.units[pool.picked[i]] if pool.nodes > 1 else 1)
    if starts.offsets[started] > len(starts.nodes):
        return -starts.offsets[started]
    node = 0
    for i in range(started):
        if pool.nodes == 1:
            starts.nodes[i] = 0
            starts.units[i] = jobs.units[pool.picked[i]]
            continue
        for at in range(starts.offsets[i], starts.offsets[i + 1]):
            while free[node, 0] < 1:
                node += 1
            starts.nodes[at] = node
            starts.units[at] = 1
            node += 1
    return started


@kernel()
def plan_pool(
    now_s: int, free: Array, capacity: Array, queue: Array, order: Array, running: Array, jobs: Jobs, rule: Array,
    plan: Array, starts: Starts,
) -> Any:  # fmt: skip
    """`plan_placed` on one counted pool."""
    n, reservations, want_plan = len(queue), rule[RESERVATIONS], rule[WANT_PLAN]
    at_first, total = 0, 0
    for node in range(len(free)):
        at_first += free[node, 0]
        total += capacity[node, 0]
    pool = Pool(now_s, len(free), total, queue, order, running, np.empty(len(running), np.int64), plan,
                starts.slots, np.empty(n, np.int64), np.empty(n, np.int64))  # fmt: skip
    available, started, eventually, blocked = at_first, 0, -1, n
    for i in range(n):
        position = position_of(order, i)
        amount = amount_of(pool, jobs, queue[position])
        if amount > available:
            if eventually < 0:
                eventually = at_first + fill_held(pool, jobs)
            if amount > eventually:
                continue
            blocked = i
            break
        available -= amount
        started = start_now(pool, jobs, started, position, amount)
    if blocked < n and (available > 0 or want_plan):
        if reservations == GREEDY:
            started = pool_greedy(pool, jobs, available, started, blocked)
        elif reservations == 1:
            backfill = order[:0] if rule[BACKFILL] == ARRIVAL else sorted_positions(rule[BACKFILL], queue, jobs)
            started = pool_easy(pool, jobs, available, started, blocked, backfill)
        elif reservations > 1:
            started = pool_backfill(pool, jobs, available, started, blocked, eventually, reservations, want_plan)
    return place_in_pool(pool, jobs, started, free, starts)


# ---------------------------------------------------------------------------------------------- nodes, in groups
#
# The *line* of a node is what it has free, from now on: steps (second, amounts [R]), the first one from ever. Nodes of
# the same kind with the same line form a group. Lines are never changed: a node that gives or takes moves to another
# group, whose line is a copy with one edit. All choices are made by line or by node index.

EVER = -NEVER
"""The second of a line's first step."""


class Machine(NamedTuple):
    """The nodes as they are now."""

    free: Array
    capacity: Array
    node_sets: Array
    kind_of: Array
    """int64[N]: nodes of one kind have the same capacity and are in the same node sets"""
    kind_node: Array
    """A node of each kind."""


class Groups(NamedTuple):
    """Groups of nodes, each with its line: steps `first[g]` .. `first[g] + length[g]` of `at` and `free`."""

    of: Array
    """int64[N]: the group of each node"""
    kind: Array
    size: Array
    first: Array
    length: Array
    at: Array
    free: Array
    """int64[steps, R]"""
    used: Array
    """int64[4]: groups and steps in use; groups with nodes; whether the rest must be built anew"""
    near: Array
    """int64[blocks of nodes]: the marks (see `mark`) of all groups that have a node in the block, and maybe of more"""


BLOCK = 64
"""Nodes of a block."""


@kernel(makes_arrays=False)
def mark(g: int) -> Any:
    """One bit for a group, which it may share with others."""
    return np.int64(1) << (g & 63)


@kernel(makes_arrays=False)
def blocks_of(nodes: int) -> int:
    """The number of blocks of so many nodes."""
    return (nodes + BLOCK - 1) // BLOCK


@kernel(makes_arrays=False)
def mark_block(groups: Groups, block: int) -> Any:
    """Let `near` of a block say no more than what is so."""
    marks = 0
    for node in range(block * BLOCK, min((block + 1) * BLOCK, len(groups.of))):
        marks |= mark(groups.of[node])
    groups.near[block] = marks
    return marks


@kernel(makes_arrays=False)
def mark_blocks(groups: Groups) -> int:
    """`mark_block` of all; returns how many there are."""
    for block in range(len(groups.near)):
        mark_block(groups, block)
    return len(groups.near)


@kernel(makes_arrays=False)
def move_node(groups: Groups, node: int, g: int) -> int:
    """Note that a node belongs to group `g` now; sizes are left to the caller."""
    groups.of[node] = g
    groups.near[node // BLOCK] |= mark(g)
    return g


@kernel(makes_arrays=False)
def mixed(value: int) -> Any:
    """A 64-bit hash of `value` (the finaliser of splitmix64)."""
    x = np.uint64(value) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(x ^ (x >> np.uint64(31)))


@kernel(makes_arrays=False)
def amount_on(machine: Machine, jobs: Jobs, slot: int, node: int, units: int, r: int) -> Any:
    """What `units` units of a job take of resource `r` on a node."""
    if jobs.sharing[slot] & EXCLUSIVE:
        return machine.capacity[node, r]
    return units * jobs.per_unit[slot, r]


@kernel(makes_arrays=False)
def line_key(at_s: int, r: int) -> Any:
    """The weight in a signature of one unit of resource `r` that a line gains at second `at_s`."""
    return mixed(r) if at_s == EVER else mixed(mixed(at_s) + r)


@kernel()
def signatures(machine: Machine, jobs: Jobs, running: Array) -> Any:
    """A 64-bit number per node that is the same for nodes of the same kind and line: a sum over what is in the line."""
    nodes, resources = machine.free.shape
    found = np.empty(nodes, np.int64)
    now, later = np.empty(resources, np.int64), np.empty(resources, np.int64)
    for r in range(resources):
        now[r] = line_key(EVER, r)
    for node in range(nodes):
        total = mixed(-1 - machine.kind_of[node])
        for r in range(resources):
            total += machine.free[node, r] * now[r]
        found[node] = total
    for i in range(len(running)):
        slot = running[i]
        for r in range(resources):
            later[r] = line_key(jobs.end_s[slot], r)
        for at in range(jobs.place_at[slot], jobs.place_at[slot] + jobs.place_count[slot]):
            node = jobs.place_node[at]
            for r in range(resources):
                found[node] += amount_on(machine, jobs, slot, node, jobs.place_units[at], r) * later[r]
    return found


@kernel()
def new_groups(machine: Machine, groups_room: int, steps_room: int) -> Groups:
    """No group yet, room for some."""
    nodes, resources = machine.free.shape
    return Groups(
        np.empty(nodes, np.int64), np.empty(groups_room, np.int64), np.zeros(groups_room, np.int64),
        np.empty(groups_room, np.int64), np.zeros(groups_room, np.int64), np.empty(steps_room, np.int64),
        np.empty((steps_room, resources), np.int64), np.zeros(4, np.int64), np.zeros(blocks_of(nodes), np.int64),
    )  # fmt: skip


@kernel()
def with_room(groups: Groups, more_groups: int, more_steps: int) -> Groups:
    """The same groups with room for more of both."""
    kind, size, first, length, at, free = groups.kind, groups.size, groups.first, groups.length, groups.at, groups.free
    g, e = groups.used[0], groups.used[1]
    if g + more_groups > len(kind):
        n = max(g + more_groups, 2 * len(kind))
        kind, size, first, length = (
            np.empty(n, np.int64), np.zeros(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64),
        )  # fmt: skip
        kind[:g], size[:g], first[:g], length[:g] = (
            groups.kind[:g], groups.size[:g], groups.first[:g], groups.length[:g],
        )  # fmt: skip
    if e + more_steps > len(at):
        n = max(e + more_steps, 2 * len(at))
        at, free = np.empty(n, np.int64), np.empty((n, free.shape[1]), np.int64)
        at[:e], free[:e] = groups.at[:e], groups.free[:e]
    return Groups(groups.of, kind, size, first, length, at, free, groups.used, groups.near)


@kernel()
def grouped(machine: Machine, jobs: Jobs, running: Array) -> Groups:
    """The groups of the cluster as it is, from values alone. `running` is sorted by expected end."""
    nodes, resources = machine.free.shape
    found = signatures(machine, jobs, running)
    steps = nodes
    for i in range(len(running)):
        steps += jobs.place_count[running[i]]
    mask = 1
    while mask < 2 * nodes:
        mask *= 2
    table = np.full(mask, -1, np.int64)
    leader = np.full(nodes, -1, np.int64)
    of = np.empty(nodes, np.int64)
    leads = np.empty(nodes, np.int64)
    n = 0
    for node in range(nodes):
        at = mixed(found[node]) & (mask - 1)
        while table[at] >= 0 and found[leads[table[at]]] != found[node]:
            at = (at + 1) & (mask - 1)
        if table[at] < 0:
            table[at] = n
            leads[n] = node
            leader[node] = n
            n += 1
        of[node] = table[at]
    # How long each line will be, then the lines of the leaders.
    length = np.ones(n, np.int64)
    for i in range(len(running)):
        slot = running[i]
        for at in range(jobs.place_at[slot], jobs.place_at[slot] + jobs.place_count[slot]):
            if leader[jobs.place_node[at]] >= 0:
                length[leader[jobs.place_node[at]]] += 1
    groups = new_groups(machine, 2 * n + 8, 2 * length.sum() + 32)
    groups.of[:] = of
    mark_blocks(groups)
    step = 0
    for g in range(n):
        groups.kind[g] = machine.kind_of[leads[g]]
        groups.first[g] = step
        groups.length[g] = 1
        groups.at[step] = EVER
        for r in range(resources):
            groups.free[step, r] = machine.free[leads[g], r]
        step += length[g]
    for node in range(nodes):
        groups.size[of[node]] += 1
    for i in range(len(running)):
        slot = running[i]
        for at in range(jobs.place_at[slot], jobs.place_at[slot] + jobs.place_count[slot]):
            node = jobs.place_node[at]
            g = leader[node]
            if g < 0:
                continue
            last = groups.first[g] + groups.length[g] - 1
            if groups.at[last] < jobs.end_s[slot]:
                groups.length[g] += 1
                groups.at[last + 1] = jobs.end_s[slot]
                for r in range(resources):
                    groups.free[last + 1, r] = groups.free[last, r]
                last += 1
            for r in range(resources):
                groups.free[last, r] += amount_on(machine, jobs, slot, node, jobs.place_units[at], r)
    groups.used[0], groups.used[1] = n, step
    return groups


@kernel(makes_arrays=False)
def fill_units(groups: Groups, machine: Machine, jobs: Jobs, slot: int, start_s: int, end_s: int, found: Array) -> Any:
    """`found[g]` = units of a job that a node of group `g` holds throughout [start_s, end_s); returns their sum.

    Written out as one loop over plain arrays: this is where the time of a round goes.
    """
    kind, size, first, length, at, free = groups.kind, groups.size, groups.first, groups.length, groups.at, groups.free
    per_unit, capacity, node_sets, kind_node = jobs.per_unit, machine.capacity, machine.node_sets, machine.kind_node
    whole, node_set, resources = jobs.sharing[slot] & EXCLUSIVE, jobs.node_set[slot], free.shape[1]
    units = 1 if jobs.sharing[slot] & DISTINCT else jobs.units[slot]
    total = 0
    for g in range(groups.used[0]):
        found[g] = 0
        if size[g] == 0:
            continue
        node = kind_node[kind[g]]
        if node_set > 0 and not node_sets[node_set, node]:
            continue
        least, step, last = units, first[g], first[g] + length[g]
        while step + 1 < last and at[step + 1] <= start_s:
            step += 1
        while step < last and at[step] < end_s and least > 0:
            for r in range(resources):
                amount = per_unit[slot, r]
                if whole and free[step, r] != capacity[node, r]:
                    least = 0
                elif amount * least > free[step, r]:
                    least = max(0, free[step, r] // amount)
            step += 1
        found[g] = least
        total += size[g] * least
    return total


@kernel(makes_arrays=False)
def fill_line(groups: Groups, machine: Machine, jobs: Jobs, slot: int, g: int, held: Array) -> Any:
    """`held[i]` = units of a job that a node of group `g` holds at step i of its line; returns the number of steps.

    None where no node of the group is for this job.
    """
    free, per_unit, capacity = groups.free, jobs.per_unit, machine.capacity
    node, node_set, first = machine.kind_node[groups.kind[g]], jobs.node_set[slot], groups.first[g]
    if groups.size[g] == 0 or (node_set > 0 and not machine.node_sets[node_set, node]):
        return 0
    whole, resources = jobs.sharing[slot] & EXCLUSIVE, free.shape[1]
    units = 1 if jobs.sharing[slot] & DISTINCT else jobs.units[slot]
    for i in range(groups.length[g]):
        least = units
        for r in range(resources):
            amount = per_unit[slot, r]
            if whole and free[first + i, r] != capacity[node, r]:
                least = 0
            elif amount * least > free[first + i, r]:
                least = max(0, free[first + i, r] // amount)
        held[i] = least
    return groups.length[g]


@kernel()
def first_slot(groups: Groups, machine: Machine, jobs: Jobs, slot: int, now_s: int, times: Array, count: int) -> Any:
    """The index in `times[:count]` of the earliest second from which a job finds its units for its whole duration.

    `times` holds every second after now at which a line changes; -1 where there is none. Each group adds its change in
    units to a line of sums, then the sums are scanned: the cost follows the steps of all lines, not the nodes.
    """
    duration_s, need = jobs.estimate_s[slot], jobs.units[slot]
    change = np.zeros(count + 1, np.int64)
    base, room = 0, 0
    all_at, first, size = groups.at, groups.first, groups.size
    for g in range(groups.used[0]):
        room = max(room, groups.length[g])
    held = np.empty(room, np.int64)
    for g in range(groups.used[0]):
        n = fill_line(groups, machine, jobs, slot, g, held)
        start, current = first[g], 0
        for i in range(n):
            pos_s = max(all_at[start + i], now_s)
            until_s = all_at[start + i + 1] if i + 1 < n else NEVER
            if until_s <= now_s:
                continue
            least, j = held[i], i + 1
            while True:
                while j < n and all_at[start + j] < pos_s + duration_s:
                    least = min(least, held[j])
                    j += 1
                if least != current:
                    more = size[g] * (least - current)
                    if pos_s <= now_s:
                        base += more
                    else:
                        low, high = 0, count
                        while low < high:
                            middle = (low + high) // 2
                            if times[middle] < pos_s:
                                low = middle + 1
                            else:
                                high = middle
                        change[low] += more
                    current = least
                while j < n and held[j] >= least:
                    j += 1
                if least == 0 or j == n or all_at[start + j] - duration_s + 1 >= until_s:
                    break
                pos_s = all_at[start + j] - duration_s + 1
    for k in range(count):
        base += change[k]
        if base >= need:
            return k
    return -1


@kernel(makes_arrays=False)
def free_share(groups: Groups, machine: Machine, most: Array, g: int) -> Any:
    """How much a node of group `g` has free now, in millionths of the largest node, summed over resources."""
    share = 0
    for r in range(groups.free.shape[1]):
        if most[r] > 0:
            share += groups.free[groups.first[g], r] * 1_000_000 // most[r]
    return share


@kernel()
def rank_by_latest(
    groups: Groups, machine: Machine, jobs: Jobs, slot: int, start_s: int, found: Array, rank: Array
) -> int:
    """`rank[g]` = since when a node of group `g` holds its `found[g]` units without a break until `start_s`."""
    room = 0
    for g in range(groups.used[0]):
        room = max(room, groups.length[g])
    held = np.empty(room, np.int64)
    for g in range(groups.used[0]):
        rank[g] = EVER
        if found[g] == 0:
            continue
        since = EVER
        for i in range(fill_line(groups, machine, jobs, slot, g, held)):
            at_s = groups.at[groups.first[g] + i]
            if at_s > start_s:
                break
            if held[i] < found[g]:
                since = NEVER
            elif since == NEVER:
                since = at_s
        rank[g] = since
    return 0


@kernel()
def pick_nodes(groups: Groups, need: int, found: Array, rank: Array, ranked: bool, nodes: Array, units: Array) -> Any:
    """Choose nodes for `need` units: highest `rank` of the group first, then in index order; returns how many.

    `found[g]` is what a node of group `g` holds; `nodes` and `units` are filled in index order. Blocks of nodes without
    one of those groups are passed over.
    """
    level, at_level = 0, need
    if ranked:
        order = np.argsort(-rank[: groups.used[0]])
        gathered, k = 0, 0
        while gathered < need:
            level, at_level = rank[order[k]], need - gathered
            while k < len(order) and rank[order[k]] == level:
                gathered += groups.size[order[k]] * found[order[k]]
                k += 1
    return take_nodes(groups, need, found, rank, ranked, level, at_level, nodes, units)


@kernel(makes_arrays=False)
def take_nodes(
    groups: Groups, need: int, found: Array, rank: Array, ranked: bool, level: int, at_level: int, nodes: Array,
    units: Array,
) -> Any:  # fmt: skip
    """`pick_nodes`, once it is known at which `level` of `rank` the choice ends: there, `at_level` units are wanted."""
    wanted = 0
    for g in range(groups.used[0]):
        if found[g] > 0 and groups.size[g] > 0 and not (ranked and rank[g] < level):
            wanted |= mark(g)
    count, left = 0, need
    for block in range(len(groups.near)):
        if groups.near[block] & wanted == 0:
            continue
        before = count
        for node in range(block * BLOCK, min((block + 1) * BLOCK, len(groups.of))):
            g = groups.of[node]
            take = found[g]
            if take == 0 or (ranked and rank[g] < level):
                continue
            if not ranked or rank[g] == level:
                take = min(take, at_level)
                at_level -= take
                if take == 0:
                    continue
            nodes[count], units[count] = node, take
            count += 1
            left -= take
            if left == 0:
                return count
        if count == before:
            mark_block(groups, block)
    return count


@kernel(makes_arrays=False)
def add_edited(
    groups: Groups, machine: Machine, jobs: Jobs, slot: int, node: int, units: int, start_s: int, end_s: int, sign: int
) -> Any:
    """One more group, with the line of `node` and `sign` times what a job takes added to it during [start_s, end_s).

    There must be room for one group and for two steps more than the line has. Steps that change nothing are left out.
    Returns the new group.
    """
    g, at, free = groups.of[node], groups.at, groups.free
    new, to, resources = groups.used[0], groups.used[1], free.shape[1]
    first, n = groups.first[g], groups.length[g]
    groups.kind[new], groups.size[new], groups.first[new] = groups.kind[g], 0, to
    for i in range(n):
        since_s = at[first + i]
        until_s = at[first + i + 1] if i + 1 < n else NEVER
        for part in range(3):
            at_s = since_s if part == 0 else (start_s if part == 1 else end_s)
            if part > 0 and not since_s < at_s < until_s:
                continue
            inside = sign if start_s <= at_s < end_s else 0
            same = to > groups.first[new]
            for r in range(resources):
                free[to, r] = free[first + i, r]
                if inside:
                    free[to, r] += inside * amount_on(machine, jobs, slot, node, units, r)
                same = same and free[to, r] == free[to - 1, r]
            if not same:
                at[to] = at_s
                to += 1
    groups.length[new] = to - groups.first[new]
    groups.used[0], groups.used[1] = new + 1, to
    return new


@kernel()
def occupy_nodes(
    groups: Groups, machine: Machine, jobs: Jobs, slot: int, nodes: Array, units: Array, count: int, start_s: int,
    end_s: int,
) -> Groups:  # fmt: skip
    """Take a placement off the lines of its nodes during [start_s, end_s): they move to new groups."""
    before, i = groups.used[0], 0
    target, taken = np.full(before, -1, np.int64), np.zeros(before, np.int64)
    while i < count:
        groups = with_room(groups, 1, groups.length[groups.of[nodes[i]]] + 2)
        i = occupy_while_room(groups, machine, jobs, slot, nodes, units, i, count, start_s, end_s, target, taken)
    return groups


@kernel(makes_arrays=False)
def occupy_while_room(
    groups: Groups, machine: Machine, jobs: Jobs, slot: int, nodes: Array, units: Array, i: int, count: int,
    start_s: int, end_s: int, target: Array, taken: Array,
) -> Any:  # fmt: skip
    """`occupy_nodes` from entry `i` on; returns the first entry for whose new group there is no room, or `count`.

    `target[g]` is where nodes of group `g` go that give `taken[g]` units; -1 for none yet.
    """
    while i < count:
        node = nodes[i]
        g = groups.of[node]
        if target[g] < 0 or taken[g] != units[i]:
            steps = groups.used[1] + groups.length[g] + 2
            if groups.used[0] == len(groups.kind) or steps > len(groups.at):
                return i
            target[g], taken[g] = add_edited(groups, machine, jobs, slot, node, units[i], start_s, end_s, -1), units[i]
        move_node(groups, node, target[g])
        groups.size[g] -= 1
        groups.size[target[g]] += 1
        i += 1
    return count


@kernel(makes_arrays=False)
def put_back(groups: Groups, moved: Array, moved_from: Array, count: int) -> int:
    """Let nodes belong to the groups that they were moved from, the last move first; returns `count`."""
    for k in range(count - 1, -1, -1):
        move_node(groups, moved[k], moved_from[k])
    return count


@kernel(makes_arrays=False)
def note_start(
    starts: Starts, to: int, machine: Machine, jobs: Jobs, slot: int, nodes: Array, units: Array, count: int,
    available: Array,
) -> int:  # fmt: skip
    """Write a placement to entries `to` on, and take it off what is `available`; returns where the next one goes."""
    for at in range(count):
        starts.nodes[to + at], starts.units[to + at] = nodes[at], units[at]
        for r in range(len(available)):
            available[r] -= amount_on(machine, jobs, slot, nodes[at], units[at], r)
    return to + count


@kernel(makes_arrays=False)
def insert_time(times: Array, count: int, at_s: int) -> int:
    """Add a second to the sorted `times[:count]` unless it is there; returns the new count."""
    at = lower_bound(times, count, at_s)
    if at < count and times[at] == at_s:
        return count
    for k in range(count, at, -1):
        times[k] = times[k - 1]
    times[at] = at_s
    return count + 1


@kernel(makes_arrays=False)
def asks_more_than(jobs: Jobs, slot: int, available: Array) -> bool:
    """Whether a job asks for more of some resource than all nodes together have free."""
    for r in range(len(available)):  # noqa: SIM110  (a loop compiles to better code than a generator)
        if jobs.units[slot] * jobs.per_unit[slot, r] > available[r]:
            return True
    return False


@kernel(makes_arrays=False)
def dominated(jobs: Jobs, slot: int, failed: Array, count: int) -> bool:
    """Whether a job asks for no less, and no shorter, than one of `failed[:count]`, which could not start."""
    for i in range(count):
        other = failed[i]
        less = (
            jobs.units[slot] < jobs.units[other]
            or jobs.estimate_s[slot] < jobs.estimate_s[other]
            or jobs.sharing[slot] != jobs.sharing[other]
            or jobs.node_set[slot] != jobs.node_set[other]
        )
        for r in range(jobs.per_unit.shape[1]):
            less = less or jobs.per_unit[slot, r] < jobs.per_unit[other, r]
        if not less:
            return True
    return False


REMEMBERED = 16
"""How many requests that could not start a plan remembers, so as not to try the like again."""


@kernel()
def appended(column: Array, used: int, values: Array, count: int) -> Array:
    """`column` with `values[:count]` after its first `used` entries, in a longer array where it must grow."""
    if used + count > len(column):
        longer = np.empty(max(used + count, 2 * len(column)), np.int64)
        longer[:used] = column[:used]
        column = longer
    column[used : used + count] = values[:count]
    return column


@kernel()
def borrowed(groups: Groups) -> Groups:
    """Groups to plan on: what belongs to `groups` stays as it is, but for `of` and `near`; `of` must be put back."""
    n = groups.used[0]
    room = n + 32
    kind, size, first, length = (
        np.empty(room, np.int64), np.zeros(room, np.int64), np.empty(room, np.int64), np.zeros(room, np.int64),
    )  # fmt: skip
    kind[:n], size[:n], first[:n], length[:n] = groups.kind[:n], groups.size[:n], groups.first[:n], groups.length[:n]
    return Groups(groups.of, kind, size, first, length, groups.at, groups.free, groups.used.copy(), groups.near)


@kernel(makes_arrays=False)
def last_candidate(
    groups: Groups, machine: Machine, jobs: Jobs, queue: Array, sequence: Array, i: int, last: int, available: Array,
    failed: Array, n_failed: int, found: Array, now_s: int, look: bool,
) -> Any:  # fmt: skip
    """The last position, in [i, last] of a sequence, whose job might still start now; i - 1 where there is none.

    With `look` the nodes are asked, too.
    """
    while last >= i:
        slot = queue[position_of(sequence, last)]
        if not asks_more_than(jobs, slot, available) and not dominated(jobs, slot, failed, n_failed):
            end_s = now_s + jobs.estimate_s[slot]
            if not look or fill_units(groups, machine, jobs, slot, now_s, end_s, found) >= jobs.units[slot]:
                break
        last -= 1
    return last


@kernel()
def plan_nodes(
    now_s: int, machine: Machine, carried: Groups, queue: Array, order: Array, running: Array, jobs: Jobs,
    rule: Array, plan: Array, starts: Starts,
) -> int:  # fmt: skip
    """`plan_placed` on the groups carried along, or built here.

    Reservations take those nodes first that hold their units latest, so that nodes free now stay so for others.
    """
    n, resources, reservations, want_plan = len(queue), machine.free.shape[1], rule[RESERVATIONS], rule[WANT_PLAN]
    if len(carried.of) and not carried.used[3]:
        groups = borrowed(carried)
    else:
        groups = grouped(machine, jobs, running if reservations != GREEDY else running[:0])
    available, most = np.zeros(resources, np.int64), np.zeros(resources, np.int64)
    for g in range(groups.used[0]):
        for r in range(resources):
            available[r] += groups.size[g] * groups.free[groups.first[g], r]
            most[r] = max(most[r], machine.capacity[machine.kind_node[groups.kind[g]], r])
    started, reserved, count, n_failed, n_times, n_moved = 0, 0, 0, 0, 0, 0
    starts.offsets[0] = 0
    nodes, node_units = np.empty(64, np.int64), np.empty(64, np.int64)
    moved, moved_from = np.empty(64, np.int64), np.empty(64, np.int64)
    found, rank = np.empty(0, np.int64), np.empty(0, np.int64)
    times, failed = np.empty(0, np.int64), np.empty(REMEMBERED, np.int64)
    sequence, i, last, short = order, 0, n - 1, 0
    while i <= last:
        position = position_of(sequence, i)
        i += 1
        if plan[position] != NEVER:
            continue
        slot = queue[position]
        duration_s, start_s = jobs.estimate_s[slot], NEVER
        if len(found) < groups.used[0]:
            found, rank = np.empty(len(groups.kind), np.int64), np.empty(len(groups.kind), np.int64)
        if not asks_more_than(jobs, slot, available) and not dominated(jobs, slot, failed, n_failed):
            if fill_units(groups, machine, jobs, slot, now_s, now_s + duration_s, found) >= jobs.units[slot]:
                start_s = now_s
            elif n_failed < REMEMBERED:
                failed[n_failed] = slot
                n_failed += 1
        if start_s == now_s:
            if rule[ALLOCATION] == BEST_FIT:
                for g in range(groups.used[0]):
                    rank[g] = -free_share(groups, machine, most, g) if found[g] else EVER
        elif reservations == STRICT:
            if fill_units(groups, machine, jobs, slot, NEVER - 1, NEVER, found) >= jobs.units[slot]:
                break
            continue
        elif reserved < reservations:
            if len(times) == 0:
                times = np.empty(len(running) + 3 * n + 2, np.int64)
                for k in range(len(running)):
                    n_times = insert_time(times, n_times, jobs.end_s[running[k]])
                for k in range(started):
                    n_times = insert_time(times, n_times, now_s + jobs.estimate_s[starts.slots[k]])
            k = first_slot(groups, machine, jobs, slot, now_s, times, n_times)
            if k < 0:
                continue
            start_s = times[k]
            fill_units(groups, machine, jobs, slot, start_s, start_s + duration_s, found)
            rank_by_latest(groups, machine, jobs, slot, start_s, found, rank)
        else:
            continue
        ranked = start_s > now_s or rule[ALLOCATION] == BEST_FIT
        most_nodes = min(jobs.units[slot], len(machine.free))
        if most_nodes > len(nodes):
            nodes, node_units = np.empty(2 * most_nodes, np.int64), np.empty(2 * most_nodes, np.int64)
        count = pick_nodes(groups, jobs.units[slot], found, rank, ranked, nodes, node_units)
        moved, moved_from = appended(moved, n_moved, nodes, count), appended(moved_from, n_moved, nodes, count)
        of = groups.of
        for k in range(n_moved, n_moved + count):
            moved_from[k] = of[moved[k]]
        n_moved += count
        groups = occupy_nodes(groups, machine, jobs, slot, nodes, node_units, count,
                              EVER if start_s == now_s else start_s, start_s + duration_s)  # fmt: skip
        plan[position] = start_s
        if len(times):
            n_times = insert_time(times, n_times, start_s + duration_s)
        if start_s == now_s:
            to = starts.offsets[started]
            starts.slots[started] = slot
            started += 1
            starts.offsets[started] = to + count
            if to + count > len(starts.nodes):
                short = 2 * (to + count)
                break
            note_start(starts, to, machine, jobs, slot, nodes, node_units, count, available)
        else:
            reserved += 1
            if reserved == 1 and reservations == 1 and rule[BACKFILL] != ARRIVAL:
                sequence, i = sorted_positions(rule[BACKFILL], queue, jobs), 0
        if reserved > 0 and not want_plan:
            if len(found) < groups.used[0]:
                found, rank = np.empty(len(groups.kind), np.int64), np.empty(len(groups.kind), np.int64)
            last = last_candidate(
                groups, machine, jobs, queue, sequence, i, last, available, failed, n_failed, found, now_s,
                reservations > 1,
            )  # fmt: skip
    put_back(groups, moved, moved_from, n_moved)
    return -short if short else started


@kernel(makes_arrays=False)
def shift_lines(
    groups: Groups, signature: Array, known: Array, table: Array, machine: Machine, jobs: Jobs, slot: int,
    nodes: Array, units: Array, first: int, last: int, from_s: int, to_s: int, sign: int,
) -> Any:  # fmt: skip
    """Add `sign` times what a job takes on entries [first, last) of its placement to the lines of its nodes.

    That is for the seconds [from_s, to_s). A node moves to the group that has its new line, found by its signature
    (`known` by group, `table` the hash table of groups), or to a new one. Where there is no room for one the groups are
    marked as to be built anew. Without groups nothing happens.
    """
    used = groups.used
    if len(groups.of) == 0 or used[3]:
        return 0
    resources, mask = machine.free.shape[1], len(table) - 1
    last_group, last_units, target, change = -1, 0, 0, 0
    for at in range(first, last):
        node, g = nodes[at], groups.of[nodes[at]]
        if g != last_group or units[at] != last_units:
            last_group, last_units, change = g, units[at], 0
            for r in range(resources):
                weight = sign * (line_key(from_s, r) - line_key(to_s, r))
                change += amount_on(machine, jobs, slot, node, units[at], r) * weight
            wanted = signature[node] + change
            place = mixed(wanted) & mask
            while table[place] >= 0 and known[table[place]] != wanted:
                place = (place + 1) & mask
            target = table[place]
            if target < 0:
                full = used[0] == len(groups.kind) or used[1] + groups.length[g] + 2 > len(groups.at)
                if full or 2 * used[0] >= len(table):
                    used[3] = 1
                    return 0
                target = add_edited(groups, machine, jobs, slot, node, units[at], from_s, to_s, sign)
                known[target], table[place] = wanted, target
        signature[node] += change
        move_node(groups, node, target)
        groups.size[g] -= 1
        used[2] -= groups.size[g] == 0
        used[2] += groups.size[target] == 0
        groups.size[target] += 1
    return last - first


@kernel()
def compact(groups: Groups, known: Array, table: Array) -> Any:
    """Leave out the groups without nodes, where they are many; returns how many groups there are.

    The others move up in order, with their lines: what a plan sees of them stays the same.
    """
    used, mask, n, step = groups.used, len(table) - 1, 0, 0
    if used[3] or used[0] <= 2 * used[2] + 64 + len(groups.of) // 256:
        return used[0]
    renamed = np.empty(used[0], np.int64)
    for g in range(used[0]):
        place = mixed(known[g]) & mask
        while table[place] >= 0:
            table[place] = -1
            place = (place + 1) & mask
    for g in range(used[0]):
        if groups.size[g] == 0:
            continue
        first, renamed[g] = groups.first[g], n
        groups.kind[n], groups.size[n], groups.first[n] = groups.kind[g], groups.size[g], step
        groups.length[n], known[n] = groups.length[g], known[g]
        for i in range(groups.length[n]):
            groups.at[step] = groups.at[first + i]
            for r in range(groups.free.shape[1]):
                groups.free[step, r] = groups.free[first + i, r]
            step += 1
        place = mixed(known[n]) & mask
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = n
        n += 1
    for node in range(len(groups.of)):
        groups.of[node] = renamed[groups.of[node]]
    mark_blocks(groups)
    used[0], used[1], used[2] = n, step, n
    return n


@kernel()
def regroup(
    groups: Groups, signature: Array, known: Array, table: Array, machine: Machine, jobs: Jobs, running: Array
) -> Any:
    """Build carried groups anew from values; returns how many there are. Without room they stay marked as unusable."""
    fresh = grouped(machine, jobs, running)
    n, steps = fresh.used[0], fresh.used[1]
    groups.used[3] = 1
    if n > len(groups.kind) or steps > len(groups.at) or 2 * n > len(table):
        return n
    groups.of[:], groups.near[:] = fresh.of, fresh.near
    for g in range(n):
        groups.kind[g], groups.size[g], groups.first[g] = fresh.kind[g], fresh.size[g], fresh.first[g]
        groups.length[g] = fresh.length[g]
    groups.at[:steps], groups.free[:steps] = fresh.at[:steps], fresh.free[:steps]
    groups.used[0], groups.used[1], groups.used[2], groups.used[3] = n, steps, n, 0
    signature[:] = signatures(machine, jobs, running)
    table[:] = -1
    for node in range(len(signature)):
        known[groups.of[node]] = signature[node]
    for g in range(n):
        place = mixed(known[g]) & (len(table) - 1)
        while table[place] >= 0:
            place = (place + 1) & (len(table) - 1)
        table[place] = g
    return n


# ---------------------------------------------------------------------------------------------- both

TABLE = (IN2, IN2, IN1, IN1)
"""Of a `JobTable`: rows, per_unit, place_node, place_units."""
NODES = (IN2, IN2, FLAGS2, IN1, IN1)
"""Of the nodes: free, capacity, node_sets, kind_of, kind_node."""
GROUPS = (OUT1, OUT2, OUT1, OUT2, OUT1)
"""Of the groups: of; kind, size, first and length as rows; at; free; used and near as one."""


@kernel()
def jobs_of(rows: Array, per_unit: Array, place_node: Array, place_units: Array) -> Jobs:
    """The columns of a table."""
    return Jobs(rows[ESTIMATE], rows[UNITS], per_unit, rows[SHARING], rows[NODE_SET], rows[END], rows[PLACE_AT],
                rows[PLACE_COUNT], place_node, place_units)  # fmt: skip


@kernel()
def groups_of(of: Array, columns: Array, at: Array, free: Array, used: Array) -> Groups:
    """Groups whose columns are the rows of one matrix."""
    return Groups(of, columns[0], columns[1], columns[2], columns[3], at, free, used[:4], used[4:])


@kernel()
def positions_in(rule: Array, given: Array, queue: Array, jobs: Jobs) -> Any:
    """The queue positions in the order of a rule; empty where that is the queue's."""
    if rule[ORDER] == ARRIVAL:
        return np.empty(0, np.int64)
    if rule[ORDER] == GIVEN:
        return given.copy()
    return sorted_positions(rule[ORDER], queue, jobs)


@kernel()
def starts_in(out: Array, n: int) -> Starts:
    """The parts of `out` that hold the starts of a queue of n; see `plan_placed`."""
    half = (len(out) - 3 * n - 1) // 2
    return Starts(out[n : 2 * n], out[2 * n : 3 * n + 1], out[3 * n + 1 : 3 * n + 1 + half], out[3 * n + 1 + half :])


@kernel(INT(*NODES, IN1, *TABLE, *GROUPS, OUT1, OUT1, OUT1))
def build_groups(
    free: Array,
    capacity: Array,
    node_sets: Array,
    kind_of: Array,
    kind_node: Array,
    running: Array,
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
    """`regroup`, of plain columns."""
    machine = Machine(free, capacity, node_sets, kind_of, kind_node)
    groups = groups_of(group_of, group_columns, step_at, step_free, group_used)
    return regroup(groups, signature, known, table, machine, jobs_of(rows, per_unit, place_node, place_units), running)


@kernel(INT(INT, IN2, IN2, IN1, IN1, IN1, IN2, IN2, IN1, IN1, OUT1))
def plan_counted(
    now_s: int,
    free: Array,
    capacity: Array,
    queue: Array,
    order: Array,
    running: Array,
    rows: Array,
    per_unit: Array,
    place_units: Array,
    rule: Array,
    out: Array,
) -> Any:
    """`plan_placed` for a cluster that is one counted pool."""
    jobs = jobs_of(rows, per_unit, place_units, place_units)
    plan = out[: len(queue)]
    plan[:] = NEVER
    positions = positions_in(rule, order, queue, jobs)
    return plan_pool(now_s, free, capacity, queue, positions, running, jobs, rule, plan, starts_in(out, len(queue)))


@kernel(INT(INT, *NODES, IN1, IN1, IN1, *TABLE, *GROUPS, IN1, OUT1))
def plan_placed(
    now_s: int,
    free: Array,
    capacity: Array,
    node_sets: Array,
    kind_of: Array,
    kind_node: Array,
    queue: Array,
    order: Array,
    running: Array,
    rows: Array,
    per_unit: Array,
    place_node: Array,
    place_units: Array,
    group_of: Array,
    group_columns: Array,
    step_at: Array,
    step_free: Array,
    group_used: Array,
    rule: Array,
    out: Array,
) -> Any:
    """Plan a queue on nodes: how many jobs start now; the rest of the answer is in `out`, part after part.

    With n the length of the queue: the planned start by queue position (n); the slots that start (n); the offsets of
    their placements (n + 1); and, in two halves of what is left, nodes and units. A negative result -k says that a half
    must hold k entries.

    Jobs are taken in the order of the `rule`. Those that fit start; the first so many that do not, as many as the rule
    says, reserve their earliest slot; later ones start iff they fit beside what is reserved. A job that the cluster
    could not hold even after all ends is passed over. Unless the whole plan is wanted, it is cut as soon as nothing
    more can start. Without groups (`group_of` empty, or `group_used[3]`) they are built from the other columns.
    """
    machine = Machine(free, capacity, node_sets, kind_of, kind_node)
    groups = groups_of(group_of, group_columns, step_at, step_free, group_used)
    jobs = jobs_of(rows, per_unit, place_node, place_units)
    plan = out[: len(queue)]
    plan[:] = NEVER
    positions = positions_in(rule, order, queue, jobs)
    return plan_nodes(now_s, machine, groups, queue, positions, running, jobs, rule, plan, starts_in(out, len(queue)))
