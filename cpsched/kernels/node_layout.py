"""Arrange a plan's nodes in a row, class by class, and merge ranges of them.

The nodes in a class occupy a range of places, in index order. The run time of a layout depends on the number of runs
(nodes in one class with successive indices), not on the number of nodes. For each block of nodes, the beginnings of its
runs are cached until one of its nodes moves.
"""

from __future__ import annotations

from cpsched.jit.decorators import scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn
from cpsched.kernels.node_classes import BLOCK_NODES, find_class_boundaries
from cpsched.kernels.scheduling_state import NodeRangeHeap, PlanWorkspace, grow_columns

# ------------------------------------------------------------------------------------------ the layout


@subroutine
def lay_out_classes(trial: PlanWorkspace) -> None:
    """Begin a plan, and assign a range of places to each class."""
    groups, layout, count, place = trial.groups, trial.layout, trial.groups.count, 0
    grow_columns(layout, "first asked ahead next", 0, count)
    first, asked, begin, size = layout.first, layout.asked, groups.begin, groups.size
    for g in range(count):
        first[g] = begin[g] = place
        asked[g] = 0
        place += size[g]
    layout.groups, layout.times, layout.runs = count, 0, 0


@subroutine
def ensure_class_runs(trial: PlanWorkspace, count: int) -> None:
    """Compute the runs of each class that contains one of the first `count` ranges.

    Many plans need the nodes of only a few classes. So the first call computes only these classes, and the second call
    computes all.
    """
    heads, layout, missing = trial.heads, trial.layout, False
    for i in range(count):
        g = last_not_above(layout.first, layout.groups, heads.place[heads.heap[i]])
        missing = missing or not layout.asked[g]
        layout.asked[g] = 1
    if missing:
        layout.times += 1
        if layout.times == 2:
            request_all_runs(trial)
        else:
            build_class_runs(trial)


@subroutine
def request_all_runs(trial: PlanWorkspace) -> None:
    """Compute the runs of all classes."""
    layout = trial.layout
    for g in range(layout.groups):
        layout.asked[g] = 1
    layout.times = 2
    build_class_runs(trial)


@subroutine
def build_class_runs(trial: PlanWorkspace) -> None:
    """Find the runs of the requested classes with a counting sort of all runs."""
    groups, layout = trial.groups, trial.layout
    of, edged, edge, nodes, count = groups.of, groups.edged, groups.edge, len(groups.of), layout.groups
    grow_columns(layout, "node at since until", 0, nodes)
    since, until, first, asked, ahead, next_ = (
        layout.since, layout.until, layout.first, layout.asked, layout.ahead, layout.next,
    )  # fmt: skip

    # List the runs in index order, and count them by class.
    runs, goes_on = 0, 0
    for g in range(count):
        ahead[g] = 0
    for block in range(len(edged)):
        if edged[block] < 0:
            find_class_boundaries(of, edged, edge, block)
        for i in range(block * BLOCK_NODES, block * BLOCK_NODES + edged[block]):
            if goes_on:
                until[runs - 1] = edge[i]
            goes_on = asked[of[edge[i]]]
            if goes_on:
                since[runs] = edge[i]
                ahead[of[edge[i]]] += 1
                runs += 1
    if goes_on:
        until[runs - 1] = nodes

    # Place each run after the earlier runs of its class.
    before = 0
    for g in range(count):
        next_[g], ahead[g], before = first[g], before, before + ahead[g]
    node, at = layout.node, layout.at
    for r in range(runs):
        g = of[since[r]]
        node[ahead[g]], at[ahead[g]] = since[r], next_[g]
        ahead[g] += 1
        next_[g] += until[r] - since[r]
    layout.runs = runs


@scalar_subroutine
def last_not_above(rising: FixedColumn, count: int, value: int) -> int:
    """Return the last index below `count` whose value is at most `value`, else 0.

    The column is ascending.
    """
    low, high = 0, count
    while low + 1 < high:
        middle = (low + high) // 2
        if rising[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@scalar_subroutine
def first_place_from_node(
    node: FixedColumn, at: FixedColumn, runs: int, run: int, last: int, below: int
) -> tuple[int, int]:
    """Return the first place whose node is at least `below`, and the place's run.

    The place is at most `last`. The search begins in `run`, whose first node has a lower index than `below`. All places
    up to `last` belong to one class.
    """
    low, high, stride = run, run + 1, 1
    while high < runs and at[high] < last and node[high] < below:
        low, stride = high, 2 * stride
        high = min(high + stride, runs)
    while low + 1 < high:
        middle = (low + high) // 2
        if at[middle] < last and node[middle] < below:
            low = middle
        else:
            high = middle

    # The rest of this run belongs to one class, so no other range has a node between its nodes.
    if low + 1 == runs or last < at[low + 1]:
        return last, low
    return at[low + 1], low + 1


# ------------------------------------------------------------------------------------------ merging ranges


@subroutine
def allocate_range_heap(heads: NodeRangeHeap, count: int) -> None:
    """Allocate space for `count` ranges. The old contents may be lost."""
    if count > len(heads.heap):
        grow_columns(heads, "heap key group run place last", 0, count)


@scalar_subroutine
def sift_down(heap: Column, key: FixedColumn, count: int, at: int) -> None:
    """Restore a heap in which only the entry at `at` can be too high."""
    entry = heap[at]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[heap[child]] >= key[entry]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = entry


@scalar_subroutine
def make_heap(heap: Column, key: FixedColumn, count: int) -> None:
    """Make a heap of the first `count` entries."""
    for at in range(count // 2 - 1, -1, -1):
        sift_down(heap, key, count, at)


@scalar_subroutine
def pop_to_end(heap: Column, key: FixedColumn, count: int) -> int:
    """Move the first entry behind the heap of the other entries. Return `count` - 1."""
    heap[0], heap[count - 1] = heap[count - 1], heap[0]
    sift_down(heap, key, count - 1, 0)
    return count - 1


@scalar_subroutine
def second_smallest_key(heap: FixedColumn, key: FixedColumn, count: int, none: int) -> int:
    """Return the second smallest key of a heap, or `none` if the heap has one entry."""
    found = key[heap[1]] if count > 1 else none
    return min(found, key[heap[2]]) if count > 2 else found


@subroutine
def begin_range_merge(trial: PlanWorkspace, count: int) -> None:
    """Begin to merge, by node index, the ranges of the first `count` heap entries.

    Each range begins at its `place`.
    """
    heads, layout = trial.heads, trial.layout
    if layout.times < 2:
        ensure_class_runs(trial, count)
    heap, key, place, run, node, at = heads.heap, heads.key, heads.place, heads.run, layout.node, layout.at
    for i in range(count):
        h = heap[i]
        run[h] = last_not_above(at, layout.runs, place[h])
        key[h] = node[run[h]] + place[h] - at[run[h]]
    make_heap(heap, key, count)


@subroutine
def advance_first_range(trial: PlanWorkspace, count: int, most: int) -> int:
    """Advance the first range of the heap. Return the number of unfinished ranges.

    Advance it by at most `most` places, until the next node in another range is lower.
    """
    heads, layout, h = trial.heads, trial.layout, trial.heads.heap[0]
    heap, key, place, last, run, node, at = (
        heads.heap, heads.key, heads.place, heads.last, heads.run, layout.node, layout.at,
    )  # fmt: skip
    below = second_smallest_key(heap, key, count, len(trial.groups.of))
    to, r = first_place_from_node(node, at, layout.runs, run[h], min(last[h], place[h] + most), below)
    place[h], run[h] = to, r
    if to == last[h]:
        return pop_to_end(heap, key, count)
    key[h] = node[r] + to - at[r]
    sift_down(heap, key, count, 0)
    return count
