"""What a job finds on the lines of groups: units now, the earliest slot, nodes that are free latest."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpsched._jit import kernel
from cpsched.kernels.groups import EVER
from cpsched.kernels.state import Array, Groups, Jobs, Machine
from cpsched.model import DISTINCT, EXCLUSIVE, NEVER


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
