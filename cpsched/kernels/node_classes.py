"""Group nodes with the same availability profile into node classes.

The *profile* of a node is its free amounts from now: steps with a time (s) and amounts [R]. The first step is
open-ended. Example: a node with 2 of 8 cores free, whose only job ends at second 900, has the profile (open, 2),
(900, 8). Nodes of the same kind with the same profile form a *class*.

A profile never changes. A node on which a job starts or ends moves to another class, whose profile is a copy with one
change. In a plan, ranges of nodes move (see `cpsched.kernels.node_class_moves`).

Choices depend on profiles and node indices, never on class numbers. Therefore, carried classes and rebuilt
classes give the same decision.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn
from cpsched.kernels.fit_rules import amount_taken, amount_taken_on_node
from cpsched.kernels.scheduling_state import NodeClasses, NodeResourceState, grow_columns
from cpsched.model import NEVER, IntArray, JobTable

OPEN_ENDED = -NEVER
"""The time of a profile's first step."""

# ------------------------------------------------------------------------------------------ edges of classes

BLOCK_NODES = 64
"""Number of nodes in a block."""


@scalar_subroutine
def count_node_blocks(nodes: int) -> int:
    """Return the number of blocks of `nodes` nodes."""
    return (nodes + BLOCK_NODES - 1) // BLOCK_NODES


@scalar_subroutine
def move_node(of: Column, edged: Column, node: int, g: int) -> None:
    """Assign a node to class `g`. The caller updates the sizes."""
    of[node] = g
    edged[node // BLOCK_NODES] = edged[min(node + 1, len(of) - 1) // BLOCK_NODES] = -1


@scalar_subroutine
def find_class_boundaries(of: FixedColumn, edged: Column, edge: Column, block: int) -> None:
    """Find a block's edges: nodes whose class differs from the previous node's."""
    count, last = 0, of[block * BLOCK_NODES - 1] if block > 0 else -1
    for node in range(block * BLOCK_NODES, min((block + 1) * BLOCK_NODES, len(of))):
        if of[node] != last:
            last = of[node]
            edge[block * BLOCK_NODES + count] = node
            count += 1
    edged[block] = count


# ------------------------------------------------------------------------------------------ signatures


@scalar_subroutine
def hash64(value: int) -> int:
    """Return a 64-bit hash of `value` (the finaliser of splitmix64)."""
    x = np.uint64(value) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(x ^ (x >> np.uint64(31)))  # type: ignore[return-value]


@scalar_subroutine
def step_hash_weight(at_s: int, r: int) -> int:
    """Return the weight in a signature of one unit of `r` that becomes free at `at_s`."""
    return hash64(r) if at_s == OPEN_ENDED else hash64(hash64(at_s) + r)


@subroutine
def node_signatures(machine: NodeResourceState, jobs: JobTable, running: FixedColumn) -> IntArray:
    """Return a 64-bit hash per node, equal for nodes of equal kind and profile."""
    nodes, resources = machine.free.shape
    free, kind_of = machine.free, machine.kind_of
    found = np.empty(nodes, np.int64)
    now, later = np.empty(resources, np.int64), np.empty(resources, np.int64)
    for r in range(resources):
        now[r] = step_hash_weight(OPEN_ENDED, r)
    for node in range(nodes):
        total = hash64(-1 - kind_of[node])
        for r in range(resources):
            total += free[node, r] * now[r]
        found[node] = total

    # Add the amounts that each running job will release.
    place_node, place_units = jobs.places.node, jobs.places.units
    for slot in running:
        for r in range(resources):
            later[r] = step_hash_weight(jobs.end_s[slot], r)
        for at in range(jobs.place_at[slot], jobs.place_at[slot] + jobs.place_count[slot]):
            node = place_node[at]
            for r in range(resources):
                found[node] += amount_taken_on_node(jobs, slot, machine, node, place_units[at], r) * later[r]
    return found


# ------------------------------------------------------------------------------------------ building classes


@subroutine
def allocate_class_space(groups: NodeClasses, more_groups: int, more_steps: int) -> None:
    """Allocate space for `more_groups` more classes and `more_steps` more steps."""
    count, steps = groups.count, groups.steps
    if count + more_groups > len(groups.kind):
        room = count + more_groups
        grow_columns(groups, "kind size first length begin", count, room)
    if steps + more_steps > len(groups.at):
        grow_columns(groups, "at", steps, steps + more_steps)
        free = np.empty((len(groups.at), groups.free.shape[1]), np.int64)
        for step in range(steps):
            for r in range(free.shape[1]):
                free[step, r] = groups.free[step, r]
        groups.free = free


@subroutine
def build_node_classes(
    groups: NodeClasses, machine: NodeResourceState, jobs: JobTable, running: FixedColumn
) -> IntArray:
    """Build the classes of a machine. Return the nodes' signatures, int64[N].

    `running` is sorted by expected end.
    """
    nodes, resources = machine.free.shape
    found = node_signatures(machine, jobs, running)

    # Number the classes with a hash table of signatures. The first node in a class is its leader:
    # `leader[node]` is that class, or -1 for other nodes.
    mask = 1
    while mask < 2 * nodes:
        mask *= 2
    table, leader = np.full(mask, -1, np.int64), np.full(nodes, -1, np.int64)
    of, leads = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    n = 0
    for node in range(nodes):
        at = hash64(found[node]) & (mask - 1)
        while table[at] >= 0 and found[leads[table[at]]] != found[node]:
            at = (at + 1) & (mask - 1)
        if table[at] < 0:
            table[at] = n
            leads[n] = node
            leader[node] = n
            n += 1
        of[node] = table[at]

    # A profile has at most one step plus one for each job that runs on its leader.
    place_node, place_units = jobs.places.node, jobs.places.units
    most = np.ones(n, np.int64)
    for slot in running:
        for at in range(jobs.place_at[slot], jobs.place_at[slot] + jobs.place_count[slot]):
            if leader[place_node[at]] >= 0:
                most[leader[place_node[at]]] += 1

    # Store the profiles in sequence. The first step of each profile contains the amounts that are free now.
    groups.count = groups.steps = 0
    allocate_class_space(groups, n, int(most.sum()))
    kind, size, first, length = groups.kind, groups.size, groups.first, groups.length
    at_s, free = groups.at, groups.free
    step = 0
    for g in range(n):
        kind[g], size[g], first[g], length[g] = machine.kind_of[leads[g]], 0, step, 1
        at_s[step] = OPEN_ENDED
        for r in range(resources):
            free[step, r] = machine.free[leads[g], r]
        step += most[g]
    for node in range(nodes):
        size[of[node]] += 1

    # Add the amounts that running jobs release, in the order of their ends.
    for slot in running:
        for at in range(jobs.place_at[slot], jobs.place_at[slot] + jobs.place_count[slot]):
            node = place_node[at]
            g = leader[node]
            if g < 0:
                continue
            last = first[g] + length[g] - 1
            if at_s[last] < jobs.end_s[slot]:
                length[g] += 1
                at_s[last + 1] = jobs.end_s[slot]
                for r in range(resources):
                    free[last + 1, r] = free[last, r]
                last += 1
            for r in range(resources):
                free[last, r] += amount_taken_on_node(jobs, slot, machine, node, place_units[at], r)
    groups.count, groups.steps, groups.peopled = n, step, n
    groups.of, groups.edged = of, np.full(count_node_blocks(nodes), -1, np.int64)
    groups.edge = np.empty(nodes, np.int64)
    return found


@subroutine
def copy_classes_for_plan(own: NodeClasses, carried: NodeClasses) -> None:
    """Begin a plan on carried classes: copy their numbers, and share their profiles.

    `of` and its edges are also shared, because a plan does not write to them. The plan adds classes and steps after
    those in use.
    """
    n = carried.count
    own.count = own.steps = 0
    allocate_class_space(own, n + 8, 0)
    kind, size, first, length = own.kind, own.size, own.first, own.length
    from_kind, from_size, from_first, from_length = carried.kind, carried.size, carried.first, carried.length
    for g in range(n):
        kind[g], size[g], first[g], length[g] = from_kind[g], from_size[g], from_first[g], from_length[g]
    own.of, own.edged, own.edge, own.at, own.free = carried.of, carried.edged, carried.edge, carried.at, carried.free
    own.count, own.steps = n, carried.steps


# ------------------------------------------------------------------------------------------ moving nodes


@subroutine
def copy_class(groups: NodeClasses, g: int) -> int:
    """Add a class without nodes that has the profile of class `g`. Return its number."""
    allocate_class_space(groups, 1, 0)
    new = groups.count
    groups.kind[new], groups.first[new], groups.length[new] = groups.kind[g], groups.first[g], groups.length[g]
    groups.count = new + 1
    return new


@subroutine
def add_edited_class(
    groups: NodeClasses, machine: NodeResourceState, jobs: JobTable, slot: int, g: int, units: int, start_s: int, end_s: int,  # noqa: E501
    sign: int, whole: int,
) -> int:  # fmt: skip
    """Add a class without nodes. Return its number.

    Its profile is that of class `g` plus `sign` times the amounts that a job takes during [start_s, end_s): `units`
    units or, if `whole`, the whole node. Steps equal to the previous step are dropped.
    """
    node = machine.kind_node[groups.kind[g]]
    allocate_class_space(groups, 1, groups.length[g] + 2)
    at, free, resources = groups.at, groups.free, groups.free.shape[1]
    new, begin, first, n = groups.count, groups.steps, groups.first[g], groups.length[g]
    to = begin
    for i in range(n):
        since_s = at[first + i]
        until_s = at[first + i + 1] if i + 1 < n else NEVER

        # A step in the old profile becomes up to three steps: itself, and one more for each end of the change within
        # it.
        for part in range(3):
            at_s = since_s if part == 0 else (start_s if part == 1 else end_s)
            if part > 0 and not since_s < at_s < until_s:
                continue
            inside = sign if start_s <= at_s < end_s else 0
            same = to > begin
            for r in range(resources):
                free[to, r] = free[first + i, r]
                if inside:
                    free[to, r] += inside * amount_taken(
                        units, jobs.per_unit[slot, r], whole, machine.capacity[node, r]
                    )
                same = same and free[to, r] == free[to - 1, r]
            if not same:
                at[to] = at_s
                to += 1
    groups.kind[new], groups.size[new] = groups.kind[g], 0
    groups.first[new], groups.length[new] = begin, to - begin
    groups.count, groups.steps = new + 1, to
    return new


@subroutine
def drop_empty_classes(groups: NodeClasses) -> None:
    """Drop the classes without nodes from a plan. Renumber the other classes in order."""
    kind, size, first, length = groups.kind, groups.size, groups.first, groups.length
    begin = groups.begin
    old_at, old_free, resources = groups.at, groups.free, groups.free.shape[1]
    steps, n, to = 0, 0, 0
    for g in range(groups.count):
        steps += length[g] if size[g] > 0 else 0
    at, free = np.empty(2 * steps, np.int64), np.empty((2 * steps, resources), np.int64)
    for g in range(groups.count):
        if size[g] == 0:
            continue
        since = first[g]
        kind[n], size[n], first[n], length[n], begin[n] = kind[g], size[g], to, length[g], begin[g]
        for i in range(length[n]):
            at[to] = old_at[since + i]
            for r in range(resources):
                free[to, r] = old_free[since + i, r]
            to += 1
        n += 1
    groups.at, groups.free, groups.count, groups.steps = at, free, n, to
