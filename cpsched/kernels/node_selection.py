"""Select a job's nodes: the first nodes of the chosen classes, recorded as moves."""

from __future__ import annotations

from cpsched.jit.decorators import subroutine
from cpsched.kernels.node_class_moves import record_node_move
from cpsched.kernels.node_layout import (
    advance_first_range,
    allocate_range_heap,
    begin_range_merge,
    make_heap,
    pop_to_end,
)
from cpsched.kernels.scheduling_state import SchedulingState


@subroutine
def select_nodes(site: SchedulingState, need: int, ranked: bool) -> None:
    """Record moves that place `need` units by weight, rank (if `ranked`) and index.

    The lowest weight and the highest rank come first. A node in class `g` holds `trial.found[g]` units. All nodes
    together hold at least `need` units. Slurm also tries the nodes weight by weight (`_build_node_weight_list` in
    topology/common/eval_nodes.c).
    """
    trial = site.trial
    groups, heads, found, rank = trial.groups, trial.heads, trial.found, trial.rank
    allocate_range_heap(heads, groups.count)
    heap, key, group, size, n = heads.heap, heads.key, heads.group, groups.size, 0
    weights, kind = site.machine.kind_weight, groups.kind
    for g in range(groups.count):
        if found[g] > 0 and size[g] > 0:
            heap[n], group[n] = n, g
            key[n] = weights[kind[g]] if len(weights) > 0 else 0
            n += 1
    if len(weights) > 0:
        n, need = select_classes_by_lowest_key(site, n, need)
    if ranked:
        for i in range(n):
            key[heap[i]] = -rank[group[heap[i]]]
        n, need = select_classes_by_lowest_key(site, n, need)
    select_nodes_by_lowest_index(site, n, need)


@subroutine
def select_classes_by_lowest_key(site: SchedulingState, n: int, need: int) -> tuple[int, int]:
    """Select nodes, lowest key first, until the next key has more units than needed.

    `heads` contains `n` classes with keys. Return the number of classes with the next key, and the number of units that
    they must contribute. These classes are at the front of the heap. Both numbers are 0 if the need is met.
    """
    trial = site.trial
    heads, size, found = trial.heads, trial.groups.size, trial.found
    heap, key, group = heads.heap, heads.key, heads.group
    make_heap(heap, key, n)
    while n > 0 and need > 0:
        # Move the classes with the lowest key to the end.
        best, behind, held = key[heap[0]], n, 0
        while n > 0 and key[heap[0]] == best:
            g = group[heap[0]]
            held += size[g] * found[g]
            n = pop_to_end(heap, key, n)
        if held > need:
            for i in range(n, behind):
                heap[i - n] = heap[i]
            return behind - n, need
        for i in range(n, behind):
            g = group[heap[i]]
            record_node_move(trial, g, size[g], found[g])
        need -= held
    return 0, need


@subroutine
def select_nodes_by_lowest_index(site: SchedulingState, n: int, need: int) -> None:
    """Select the nodes with the lowest indices from the `n` classes in `heads`.

    The last node may contribute fewer units than it holds.
    """
    trial = site.trial
    groups, heads, found = trial.groups, trial.heads, trial.found
    heap, group, place = heads.heap, heads.group, heads.place
    for i in range(n):
        h, g = heap[i], group[heap[i]]
        place[h], heads.last[h] = groups.begin[g], groups.begin[g] + groups.size[g]

    # A single class contributes its first places, so its nodes need not be examined.
    wanted, final, left = need, heap[0], n
    if n == 1:
        each = found[group[final]]
        count = min(groups.size[group[final]], (need + each - 1) // each)
        place[final], wanted, left = place[final] + count, need - each * count, 0
    else:
        begin_range_merge(trial, n)
    while left > 0 and wanted > 0:
        final = heap[0]
        each, before = found[group[final]], place[final]
        left = advance_first_range(trial, left, (wanted + each - 1) // each)
        wanted -= each * (place[final] - before)

    # The last node contributes only the remaining need.
    for i in range(n):
        h, g = heap[i], group[heap[i]]
        count = place[h] - groups.begin[g]
        whole = count - 1 if h == final and wanted < 0 else count
        if whole > 0:
            record_node_move(trial, g, whole, found[g])
        if whole < count:
            record_node_move(trial, g, 1, found[g] + wanted)
