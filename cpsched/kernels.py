"""The compiled loops over queue, nodes and running jobs; all in one module, so that Numba's cache sees every callee.

Columns are those of `cpsched.model.JobTable`, indexed by slot. Kernels decide on values alone (times, amounts, node
indices), never on the order in which something happens to be stored: the same instant gives the same decision, whether
its state was carried along or built anew. `.py_func` of each is its plain-Python twin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpsched._jit import FLAGS2, IN1, IN2, INT, OUT1, OUT2, PLAN, kernel
from cpsched.model import DISTINCT, EXCLUSIVE, NEVER

Array = Any
"""Kernels see arrays of explicit types, given in their signatures."""

STRICT, GREEDY = -1, 0
"""Numbers of reservations with a meaning of their own: stop at the first job that does not fit; pass over it."""
FIRST_FIT, BEST_FIT = 0, 1


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


@kernel(INT(INT, INT, INT, INT, INT))
def expected_end(start_s: int, estimate_s: int, walltime_s: int, now_s: int, overrun: int) -> int:
    """`cpsched.predictors.base.expected_end_s`, compiled."""
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


@kernel(INT(OUT1, OUT1, IN1, IN1, IN1, INT, INT, INT))
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


@kernel(INT(INT, INT, INT, OUT2, OUT1, IN2, IN1, IN1, IN2, IN1, INT))
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


@kernel(INT(INT, INT, INT, IN2, IN2, FLAGS2, IN1, IN1, IN1, IN2, IN1, IN1))
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
    """Whether one placement obeys every rule of `cpsched.feasibility.verify`."""
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


@kernel(INT(IN1, IN1, IN1, IN1, OUT1, OUT2, OUT1, IN2, FLAGS2, IN1, IN2, IN1, IN1))
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


# ---------------------------------------------------------------------------------------------- one counted pool
#
# A pool is a cluster of one resource whose units need not be placed: one node, or nodes of one unit each. Slots on
# such nodes are counted: a set of intervals that never exceeds the count can always be placed (interval graphs are
# perfect), with the running jobs where they are.


@kernel()
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


@kernel()
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


@kernel()
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


@kernel()
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
    backfill: Array
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


@kernel()
def amount_of(pool: Pool, jobs: Jobs, slot: int) -> int:
    """What a queued job takes of a pool; NEVER where it cannot be held at all."""
    amount = jobs.units[slot] * jobs.per_unit[slot, 0]
    if pool.nodes > 1:
        return amount if jobs.per_unit[slot, 0] == 1 else NEVER
    if jobs.sharing[slot] & DISTINCT and jobs.units[slot] > 1:
        return NEVER
    if jobs.sharing[slot] & EXCLUSIVE:
        return pool.capacity if amount <= pool.capacity else NEVER
    return amount


@kernel()
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


@kernel()
def position_of(order: Array, i: int) -> int:
    """The queue position of the i-th in an order; an empty one is that of the queue."""
    return int(order[i]) if len(order) else i


@kernel()
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


@kernel()
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


@kernel()
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


@kernel()
def pool_easy(pool: Pool, jobs: Jobs, free: int, started: int, first: int) -> int:
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
    own_order = len(pool.backfill) > 0
    for k in range(0 if own_order else first + 1, len(pool.queue)):
        if free == 0:
            break
        position = pool.backfill[k] if own_order else position_of(pool.order, k)
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


@kernel()
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


@kernel()
def place_in_pool(pool: Pool, jobs: Jobs, started: int, free: Array) -> Any:
    """The starts with their placements: the one node, or the first free ones."""
    slots = pool.picked[:started].copy()
    offsets = np.zeros(started + 1, np.int64)
    for i in range(started):
        offsets[i + 1] = offsets[i] + (jobs.units[slots[i]] if pool.nodes > 1 else 1)
    nodes, units = np.zeros(offsets[started], np.int64), np.ones(offsets[started], np.int64)
    node = 0
    for i in range(started):
        if pool.nodes == 1:
            units[i] = jobs.units[slots[i]]
            continue
        for at in range(offsets[i], offsets[i + 1]):
            while free[node, 0] < 1:
                node += 1
            nodes[at] = node
            node += 1
    return slots, offsets, nodes, units, pool.plan


@kernel(PLAN(INT, IN2, IN2, IN1, IN1, IN1, IN1, IN1, IN1, IN2, IN1, IN1, IN1, IN1, IN1, IN1, IN1, INT, INT))
def plan_pool(
    now_s: int,
    free: Array,
    capacity: Array,
    queue: Array,
    order: Array,
    backfill: Array,
    running: Array,
    estimate_s: Array,
    units: Array,
    per_unit: Array,
    sharing: Array,
    node_set: Array,
    end_s: Array,
    place_at: Array,
    place_count: Array,
    place_node: Array,
    place_units: Array,
    reservations: int,
    want_plan: int,
) -> Any:
    """Plan a queue on one counted pool: (slots, offsets, nodes, units of the starts; plan by queue position).

    Jobs are taken in `order` (positions in the queue; empty: as they come). Those that fit start; the first
    `reservations` that do not reserve their earliest slot; later ones start iff they fit beside what is reserved. With
    one reservation they are tried in the order `backfill` where that is not empty. A job that the pool could not hold
    even after all ends is passed over. Without `want_plan` the plan is cut as soon as nothing more can start.
    """
    jobs = Jobs(estimate_s, units, per_unit, sharing, node_set, end_s, place_at, place_count, place_node, place_units)
    n = len(queue)
    scratch = np.empty((3, n), np.int64)
    pool = Pool(now_s, len(free), capacity.sum(), queue, order, backfill, running, np.empty(len(running), np.int64),
                np.full(n, NEVER, np.int64), scratch[0], scratch[1], scratch[2])  # fmt: skip
    at_first = free.sum()
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
            started = pool_easy(pool, jobs, available, started, blocked)
        elif reservations > 1:
            started = pool_backfill(pool, jobs, available, started, blocked, eventually, reservations, want_plan)
    return place_in_pool(pool, jobs, started, free)
