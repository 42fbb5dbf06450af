"""Move a job's nodes to other node classes when the job starts or ends."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import scalar_subroutine, subroutine
from cpsched.jit.shared_structs import FixedColumn
from cpsched.kernels.fit_rules import amount_taken_on_node
from cpsched.kernels.node_classes import add_edited_class, build_node_classes, hash64, move_node, step_hash_weight
from cpsched.kernels.scheduling_state import IncrementalNodeClasses, SchedulingState, grow_columns
from cpsched.model import EXCLUSIVE


@scalar_subroutine
def find_class_hash_index(table: FixedColumn, known: FixedColumn, signature: int) -> int:
    """Return the hash table's index of the class with this signature.

    Without such a class, return the index at which to insert it.
    """
    mask = len(table) - 1
    place = hash64(signature) & mask
    while table[place] >= 0 and known[table[place]] != signature:
        place = (place + 1) & mask
    return place


@subroutine
def index_node_classes(carried: IncrementalNodeClasses, count: int) -> None:
    """Insert the first `count` classes into a hash table, filled to at most a quarter."""
    room = 64
    while room < 4 * count:
        room *= 2
    grow_columns(carried, "table", 0, room)
    table, known = carried.table, carried.known
    for place in range(len(table)):
        table[place] = -1
    for g in range(count):
        table[find_class_hash_index(table, known, known[g])] = g


@subroutine
def shift_profiles(
    carried: IncrementalNodeClasses, site: SchedulingState, slot: int, from_s: int, to_s: int, sign: int
) -> None:
    """Add `sign` times a running job's amounts to its nodes' profiles.

    The amounts apply to the seconds [from_s, to_s).

    Move each node to the class with its new profile, found by signature, or to a new class. `sign` is 1 or -1. Stale
    classes remain stale.
    """
    groups, machine, jobs, signature = carried.groups, site.machine, site.jobs, carried.signature
    of, edged, size = groups.of, groups.edged, groups.size
    nodes, units, first = jobs.places.node, jobs.places.units, jobs.place_at[slot]
    resources, whole = machine.free.shape[1], jobs.sharing[slot] & EXCLUSIVE
    last_group, last_units, target, change = -1, 0, 0, 0
    for at in range(first, first + jobs.place_count[slot]):
        node, g = nodes[at], of[nodes[at]]

        # Nodes of one class with equal units move to one new class.
        if g != last_group or units[at] != last_units:
            last_group, last_units, change = g, units[at], 0
            for r in range(resources):
                weight = sign * (step_hash_weight(from_s, r) - step_hash_weight(to_s, r))
                change += amount_taken_on_node(jobs, slot, machine, node, units[at], r) * weight
            wanted = signature[node] + change
            place = find_class_hash_index(carried.table, carried.known, wanted)
            target = carried.table[place]
            if target < 0:
                target = add_edited_class(groups, machine, jobs, slot, g, units[at], from_s, to_s, sign, whole)
                size = groups.size
                grow_columns(carried, "known", target, len(size))
                carried.known[target], carried.table[place] = wanted, target
                if 2 * groups.count > len(carried.table):
                    index_node_classes(carried, groups.count)
        signature[node] += change
        move_node(of, edged, node, target)
        size[g] -= 1
        groups.peopled -= size[g] == 0
        groups.peopled += size[target] == 0
        size[target] += 1


@subroutine
def drop_empty_classes(carried: IncrementalNodeClasses) -> None:
    """Remove classes without nodes if there are many.

    The remaining classes retain their order and profiles, so plans do not change.
    """
    groups, known = carried.groups, carried.known
    if groups.count <= 2 * groups.peopled + 64 + len(groups.of) // 256:
        return
    kind, size, first, length, at, free = groups.kind, groups.size, groups.first, groups.length, groups.at, groups.free
    renamed, n, step = np.empty(groups.count, np.int64), 0, 0
    for g in range(groups.count):
        if size[g] == 0:
            continue
        begin, renamed[g] = first[g], n
        kind[n], size[n], first[n], length[n], known[n] = kind[g], size[g], step, length[g], known[g]
        for i in range(length[n]):
            at[step] = at[begin + i]
            for r in range(free.shape[1]):
                free[step, r] = free[begin + i, r]
            step += 1
        n += 1
    of = groups.of
    for node in range(len(of)):
        of[node] = renamed[of[node]]
    groups.count, groups.steps, groups.peopled = n, step, n
    index_node_classes(carried, n)


@subroutine
def rebuild_classes(carried: IncrementalNodeClasses, site: SchedulingState) -> None:
    """Rebuild stale classes from the machine and the running jobs."""
    groups = carried.groups
    carried.signature = build_node_classes(groups, site.machine, site.jobs, site.running[: site.active])
    grow_columns(carried, "known", 0, len(groups.kind))
    of, known, signature = groups.of, carried.known, carried.signature
    for node in range(len(of)):
        known[of[node]] = signature[node]
    index_node_classes(carried, groups.count)
    groups.stale = 0
