"""List schedulers on one counted pool: strict, greedy, EASY with its shadow time, several reservations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpsched._jit import kernel
from cpsched.kernels.orders import ARRIVAL, BACKFILL, GREEDY, RESERVATIONS, WANT_PLAN, position_of, sorted_positions
from cpsched.kernels.profile import earliest, occupy, starts_now
from cpsched.kernels.state import Array, Jobs, Starts
from cpsched.model import DISTINCT, EXCLUSIVE, NEVER

# ---------------------------------------------------------------------------------------------- one counted pool
#
# A pool is a cluster of one resource whose units need not be placed: one node, or nodes of one unit each. Slots on
# such nodes are counted: a set of intervals that never exceeds the count can always be placed (interval graphs are
# perfect), with the running jobs where they are.


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
