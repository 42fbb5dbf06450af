"""Store a plan's classes as ranges of one layout (see `kernels.node_layout`).

A job takes the nodes with the lowest indices in each class, unless leaf switches differ. A class is the range
[begin, begin + size), and the taken places become a new class. The run time of a placement depends on the number of
classes, not on that of nodes. Each range that a job takes is a *move*. Moves are undone in reverse order. At the end,
the moves of the jobs that start now are converted to nodes.
"""

from __future__ import annotations

from cpsched.jit.decorators import subroutine
from cpsched.kernels.fit_rules import amount_taken_on_node
from cpsched.kernels.node_classes import add_edited_class, copy_class, hash64
from cpsched.kernels.node_layout import advance_first_range, allocate_range_heap, begin_range_merge
from cpsched.kernels.scheduling_state import PlanWorkspace, SchedulingState, grow_columns
from cpsched.model import EXCLUSIVE


@subroutine
def record_node_move(trial: PlanWorkspace, g: int, count: int, units: int, skip: int) -> None:
    """Record that a job takes `units` units on each of `count` nodes of a class.

    The nodes follow the first `skip` nodes of the class.
    """
    m = trial.moves
    if m == len(trial.moved):
        grow_columns(trial, "moved moved_count moved_units moved_skip moved_begin", m, m + 8)
    trial.moved[m], trial.moved_count[m], trial.moved_units[m], trial.moved_skip[m] = g, count, units, skip
    trial.moves = m + 1


@subroutine
def apply_node_move(site: SchedulingState, m: int, slot: int, start_s: int, end_s: int) -> None:
    """Create a move's class, in which the job occupies units in [start_s, end_s)."""
    apply_scaled_node_move(site, m, slot, start_s, end_s, site.jobs.sharing[slot] & EXCLUSIVE, 1)


@subroutine
def apply_scaled_node_move(
    site: SchedulingState, m: int, slot: int, start_s: int, end_s: int, whole: int, times: int
) -> None:
    """Apply a move whose job takes `times` times its amounts, or whole nodes."""
    trial, groups = site.trial, site.trial.groups
    g, count, skip = trial.moved[m], trial.moved_count[m], trial.moved_skip[m]
    if skip > 0:
        front = copy_class(groups, g)
        groups.begin[front], groups.size[front] = groups.begin[g], skip
        groups.begin[g] += skip
        groups.size[g] -= skip
    new = add_edited_class(
        groups, site.machine, site.jobs, slot, g, trial.moved_units[m], start_s, end_s, -times, whole
    )
    size, begin = groups.size, groups.begin
    trial.moved_begin[m] = begin[new] = begin[g]
    size[new] = count
    size[g] -= count
    begin[g] += count


@subroutine
def undo_node_moves(trial: PlanWorkspace, first: int) -> None:
    """Undo the moves from `first`, in reverse order.

    The caller drops the classes that these moves created.
    """
    moved, count, skip, at, size, begin = (
        trial.moved, trial.moved_count, trial.moved_skip, trial.moved_begin, trial.groups.size, trial.groups.begin,
    )  # fmt: skip
    for m in range(trial.moves - 1, first - 1, -1):
        g = moved[m]
        size[g] += count[m] + skip[m]
        begin[g] = at[m] - skip[m]
    trial.moves = first


@subroutine
def amount_taken_by_node_moves(site: SchedulingState, first: int, slot: int, r: int) -> int:
    """Return the amount of resource `r` that a job takes in its moves from `first`."""
    trial, kind_node, found = site.trial, site.machine.kind_node, 0
    for m in range(first, trial.moves):
        node = kind_node[trial.groups.kind[trial.moved[m]]]
        found += trial.moved_count[m] * amount_taken_on_node(
            site.jobs, slot, site.machine, node, trial.moved_units[m], r
        )
    return found


@subroutine
def placement_hash(trial: PlanWorkspace, first: int) -> int:
    """Return a hash of places and units in the moves from `first`.

    The hash does not depend on how the places are divided into moves.
    """
    at, count, units, found = trial.moved_begin, trial.moved_count, trial.moved_units, 0
    for m in range(first, trial.moves):
        found += units[m] * (hash64(at[m] + count[m]) - hash64(at[m]))
    return found


@subroutine
def write_starts(site: SchedulingState) -> None:
    """Write the nodes and units of each start to the plan result, by node index."""
    draft, trial = site.draft, site.trial
    heads, layout, counts = trial.heads, trial.layout, trial.moved_count
    to = 0
    for i in range(draft.started):
        first, n, used = trial.start_first[i], trial.start_last[i] - trial.start_first[i], to
        for m in range(first, first + n):
            used += counts[m]
        grow_columns(draft, "nodes units", to, used)
        allocate_range_heap(heads, n)
        for h in range(n):
            heads.heap[h], heads.place[h] = h, trial.moved_begin[first + h]
            heads.last[h] = heads.place[h] + counts[first + h]
        begin_range_merge(trial, n)
        nodes, units, node, at = draft.nodes, draft.units, layout.node, layout.at
        while n > 0:
            h = heads.heap[0]
            place, r, each = heads.place[h], heads.run[h], trial.moved_units[first + h]
            n = advance_first_range(trial, n, counts[first + h])
            while place < heads.place[h]:
                stop = min(heads.place[h], at[r + 1]) if r + 1 < layout.runs else heads.place[h]
                for p in range(place, stop):
                    nodes[to], units[to] = node[r] + p - at[r], each
                    to += 1
                place, r = stop, r + 1
        draft.offsets[i + 1] = to
