"""Groups carried along from round to round by a simulated cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpsched._jit import IN1, INT, OUT1, kernel
from cpsched.kernels.fit import amount_on
from cpsched.kernels.groups import add_edited, grouped, line_key, mark_blocks, mixed, move_node, signatures
from cpsched.kernels.state import GROUPS, NODES, TABLE, Array, Groups, Jobs, Machine, groups_of, jobs_of


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
