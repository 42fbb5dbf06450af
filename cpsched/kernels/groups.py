"""Nodes with the same free-over-time line, kept as groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpsched._jit import kernel
from cpsched.kernels.fit import amount_on
from cpsched.kernels.state import Array, Groups, Jobs, Machine
from cpsched.model import NEVER

# ---------------------------------------------------------------------------------------------- nodes, in groups
#
# The *line* of a node is what it has free, from now on: steps (second, amounts [R]), the first one from ever. Nodes of
# the same kind with the same line form a group. Lines are never changed: a node that gives or takes moves to another
# group, whose line is a copy with one edit. All choices are made by line or by node index.

EVER = -NEVER
"""The second of a line's first step."""


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
