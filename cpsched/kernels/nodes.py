"""List schedulers on nodes: the same rules as on a pool, on groups of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpsched._jit import kernel
from cpsched.kernels.fit import amount_on, asks_more_than
from cpsched.kernels.groups import EVER, borrowed, grouped, occupy_nodes, put_back
from cpsched.kernels.lines import fill_units, first_slot, free_share, rank_by_latest
from cpsched.kernels.orders import (
    ALLOCATION,
    ARRIVAL,
    BACKFILL,
    BEST_FIT,
    GREEDY,
    RESERVATIONS,
    STRICT,
    WANT_PLAN,
    position_of,
    sorted_positions,
)
from cpsched.kernels.picking import pick_nodes
from cpsched.kernels.profile import insert_time
from cpsched.kernels.state import Array, Groups, Jobs, Machine, Starts
from cpsched.model import NEVER


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
