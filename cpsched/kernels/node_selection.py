"""Select a job's nodes: the first nodes of the chosen classes, recorded as moves."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn
from cpsched.kernels.node_class_availability import block_quotas_of_classes
from cpsched.kernels.node_class_moves import record_node_move
from cpsched.kernels.node_layout import (
    advance_first_range,
    allocate_range_heap,
    begin_range_merge,
    last_not_above,
    make_heap,
    pop_to_end,
    request_all_runs,
)
from cpsched.kernels.scheduling_state import PlanWorkspace, SchedulingState
from cpsched.model import IntArray
from cpsched.model.blocks import TOPOLOGY


@subroutine
def select_nodes(site: SchedulingState, slot: int, ranked: bool) -> None:
    """Record moves that place a job by blocks, weight, rank (if `ranked`) and index.

    Unless `ranked`, leaf switches precede node indices. The lowest weight and the highest rank come first. A node in
    class `g` holds `trial.found[g]` units. All nodes together hold the job. Slurm also tries the nodes weight by weight
    (`_build_node_weight_list` in topology/common/eval_nodes.c). A single unit ignores leaf switches (`_get_one_res` in
    cons_tres/job_test.c since 26.05).
    """
    units, rule = site.jobs.units[slot], site.machine.block_rules[site.jobs.node_set[slot]]
    if rule[TOPOLOGY] < 0:
        select_nodes_of_classes(site, units, ranked, -1, -1)
        return
    quotas = block_quotas_of_classes(site, slot)
    for block in range(len(quotas)):
        if quotas[block] > 0:
            select_nodes_of_classes(site, quotas[block], False, rule[TOPOLOGY], block)


@subroutine
def select_nodes_of_classes(site: SchedulingState, need: int, ranked: bool, topology: int, block: int) -> None:
    """Record moves that place `need` units, on nodes of one base block unless `topology` is -1."""
    trial, block_of, kind_node = site.trial, site.machine.block_of, site.machine.kind_node
    groups, heads, found, rank = trial.groups, trial.heads, trial.found, trial.rank
    allocate_range_heap(heads, groups.count)
    heap, key, group, size, n = heads.heap, heads.key, heads.group, groups.size, 0
    weights, kind, first, units = site.machine.kind_weight, groups.kind, trial.moves, need
    for g in range(groups.count):
        if topology >= 0 and block_of[topology, kind_node[kind[g]]] != block:
            continue
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
    elif topology < 0 and len(site.machine.leaf_of) > 0 and units > 1 and need > 0:
        select_leaves(site, n, need, first)
        return
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
            record_node_move(trial, g, size[g], found[g], 0)
        need -= held
    return 0, need


@scalar_subroutine
def is_better_leaf(
    is_used: int, nodes: int, units: int, than_used: int, than_nodes: int, than_units: int, need: int
) -> bool:
    """Return whether Slurm prefers a leaf switch to another that precedes it.

    The first leaf switch that the job already uses comes first. Then comes the one with the fewest nodes of those that
    hold `need` units, else the one with the most nodes (`_eval_nodes_topo` and `_topo_compare_switches` in
    topology/tree/eval_nodes_tree.c). Higher switches are not compared.
    """
    if is_used or than_used:
        return is_used > than_used
    if (units >= need) != (than_units >= need):
        return units >= need
    return nodes < than_nodes if units >= need else nodes > than_nodes


@subroutine
def list_units_and_used_leaves(trial: PlanWorkspace, n: int, used: Column, leaf: FixedColumn, first: int) -> IntArray:
    """Return the units that fit on each node of the `n` classes in `heads`.

    Set `used` to 1 for the leaf switches that the job already uses.
    """
    groups, heads, layout, units = trial.groups, trial.heads, trial.layout, np.zeros(len(leaf), np.int64)
    if layout.times < 2:
        request_all_runs(trial)
    for i in range(n + trial.moves - first):
        g = heads.group[heads.heap[i]] if i < n else trial.moved[first + i - n]
        place, last = groups.begin[g], groups.begin[g] + groups.size[g]
        r = last_not_above(layout.at, layout.runs, place)
        while place < last:
            stop = min(last, layout.at[r + 1]) if r + 1 < layout.runs else last
            for node in range(layout.node[r] + place - layout.at[r], layout.node[r] + stop - layout.at[r]):
                if i < n:
                    units[node] = trial.found[g]
                else:
                    used[leaf[node]] = 1
            place, r = stop, r + 1
    return units


@subroutine
def select_leaves(site: SchedulingState, n: int, need: int, first: int) -> None:
    """Select whole leaf switches, best first, until one has enough nodes for the rest.

    `heads` contains `n` classes. The job's moves begin at `first`.
    """
    trial, leaf = site.trial, site.machine.leaf_of
    leaves = 1 + leaf.max()
    used, nodes, room = np.zeros(leaves, np.int64), np.zeros(leaves, np.int64), np.zeros(leaves, np.int64)
    units = list_units_and_used_leaves(trial, n, used, leaf, first)
    for node in range(len(units)):
        if units[node] > 0:
            nodes[leaf[node]] += 1
            room[leaf[node]] += units[node]

    # Selected leaf switches have -1 nodes, and the last one contributes `need` units.
    best = -1
    while need > 0:
        best = -1
        for each in range(leaves):
            if nodes[each] > 0 and (
                best < 0
                or is_better_leaf(used[each], nodes[each], room[each], used[best], nodes[best], room[best], need)
            ):
                best = each
        nodes[best] = -1
        if room[best] >= need:
            break
        need -= room[best]
    for node in range(len(units)):
        if nodes[leaf[node]] >= 0:
            units[node] = 0
        elif leaf[node] == best:
            units[node] = min(units[node], need)
            need -= units[node]
    record_moves(trial, n, units)


@subroutine
def record_moves(trial: PlanWorkspace, n: int, units: FixedColumn) -> None:
    """Record moves of the nodes of `n` classes, with `units` (int64[N]) on each."""
    groups, layout = trial.groups, trial.layout
    for i in range(n):
        g = trial.heads.group[trial.heads.heap[i]]
        place, last, done = groups.begin[g], groups.begin[g] + groups.size[g], groups.begin[g]
        r, begin, each = last_not_above(layout.at, layout.runs, place), place, 0
        while place < last:
            while r + 1 < layout.runs and layout.at[r + 1] <= place:
                r += 1
            now = units[layout.node[r] + place - layout.at[r]]
            if now != each:
                if each > 0:
                    record_node_move(trial, g, place - begin, each, begin - done)
                    done = place
                begin, each = place, now
            place += 1
        if each > 0:
            record_node_move(trial, g, last - begin, each, begin - done)


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
            record_node_move(trial, g, whole, found[g], 0)
        if whole < count:
            record_node_move(trial, g, 1, found[g] + wanted, 0)
