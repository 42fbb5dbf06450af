"""Fill the blocks of topology/block: the rule for jobs on several nodes, as in `topology/block/eval_nodes_block.c`.

Slurm numbers the *base blocks* in the order of its configuration. A *block* of a level consists of 1, 2, 4, ... base
blocks with successive numbers. A job, or each of its segments, must lie in one block of the lowest level that could
hold it if all its base blocks had the planned number of nodes. If Slurm knows smaller blocks than this one, the nodes
must also lie in the smallest sufficient number of *lower blocks*, which are those of the next lower level.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, FixedMatrix, Matrix
from cpsched.model import NEVER, IntArray
from cpsched.model.blocks import BLOCK_NODES, BLOCKS, CONSOLIDATE, LEVELS, SEGMENT, SPREAD

NEED, WIDTH, LOWER_WIDTH, MOST_LOWER, GROUP_WIDTH = range(5)
"""Entries of a *level*, which describes the blocks for the segments of a job:

- `NEED`: number of nodes of a segment.
- `WIDTH`, `LOWER_WIDTH`: number of base blocks in a block, and in a lower block.
- `MOST_LOWER`: maximum number of lower blocks per segment, or 0 if it is not limited.
- `GROUP_WIDTH`: number of base blocks in the block in which all segments must lie, or 0.
"""

BASE_BLOCK, WEIGHT, NODES = range(3)
"""Columns of a job's *usable nodes*. A row counts the nodes of one base block and weight."""


@scalar_subroutine
def raised_level(nodes: int, block_nodes: int) -> int:
    """Return the lowest level whose blocks have `nodes` nodes, whether Slurm knows it or not."""
    level, wanted = 0, (nodes + block_nodes - 1) // block_nodes
    while (1 << level) < wanted:
        level += 1
    return level


@scalar_subroutine
def known_block_width(level: int, levels: int, blocks: int) -> int:
    """Return the size of the blocks of the first known level from `level`, or `blocks` without one."""
    while (levels >> level) > 0:
        if (levels >> level) & 1:
            return 1 << level
        level += 1
    return blocks


@subroutine
def find_block_level(rule: FixedColumn, units: int) -> IntArray:
    """Return the level for a job of `units` nodes (`_get_block_level`)."""
    block_nodes, levels, blocks, segment = rule[BLOCK_NODES], rule[LEVELS], rule[BLOCKS], rule[SEGMENT]
    need = segment if 0 < segment < units else units
    raised = raised_level(need, block_nodes)
    width, lower = known_block_width(raised, levels, blocks), max(0, raised - 1)
    while lower > 0 and not (levels >> lower) & 1:
        lower -= 1
    lower_width = 1 << lower
    most_lower = (need + lower_width * block_nodes - 1) // (lower_width * block_nodes)
    if width == lower_width * most_lower:
        most_lower = 0
    group_width = 0
    if need < units and rule[CONSOLIDATE]:
        nodes = (need + block_nodes - 1) // block_nodes * block_nodes * (units // need) if rule[SPREAD] else units
        group_width = known_block_width(raised_level(nodes, block_nodes), levels, blocks)
    return np.array([need, width, lower_width, most_lower, group_width], np.int64)


@subroutine
def most_nodes_of_lower_blocks(on: FixedColumn, lower_width: int, most: int) -> int:
    """Return the number of nodes of the `most` fullest lower blocks of a block."""
    sums = np.zeros((len(on) + lower_width - 1) // lower_width, np.int64)
    for b in range(len(on)):
        sums[b // lower_width] += on[b]
    sums.sort()
    return int(sums[max(0, len(sums) - most) :].sum())


@subroutine
def find_best_block(level: FixedColumn, on: FixedColumn, lightest: FixedColumn) -> int:
    """Return the number of the block with the lightest and then the fewest sufficient nodes, or -1.

    `on` is the number of nodes on each base block, and `lightest` their lowest weight.
    """
    best, best_weight, best_nodes, width = -1, 0, 0, level[WIDTH]
    for i in range((len(on) + width - 1) // width):
        first, last = i * width, min((i + 1) * width, len(on))
        nodes = int(on[first:last].sum())
        held = nodes
        if level[MOST_LOWER] > 0:
            held = most_nodes_of_lower_blocks(on[first:last], level[LOWER_WIDTH], level[MOST_LOWER])
        if held < level[NEED]:
            continue
        weight = int(lightest[first:last].min())
        if best < 0 or weight < best_weight or (weight == best_weight and nodes <= best_nodes):
            best, best_weight, best_nodes = i, weight, nodes
    return int(best)


@scalar_subroutine
def is_better_number(nodes: int, than_nodes: int, need: int) -> bool:
    """Return whether a number of nodes is preferred: the lowest that suffices, else the highest."""
    if (nodes >= need) != (than_nodes >= need):
        return nodes >= need
    return nodes < than_nodes if nodes >= need else nodes > than_nodes


@subroutine
def find_best_base_block(
    level: FixedColumn, first: int, on: FixedColumn, taken: FixedColumn, used: FixedColumn, lower_on: FixedColumn,
    need: int,
) -> int:  # fmt: skip
    """Return the next base block of the block that begins at `first`, or -1 (`_choose_best_bblock`).

    `on` and `lower_on` are the nodes on base blocks that are not `taken`, and on their lower blocks. Lower blocks that
    the segment has `used` come first.
    """
    best, lower_width, limited = -1, level[LOWER_WIDTH], level[MOST_LOWER] > 0
    for b in range(first, min(first + level[WIDTH], len(on))):
        if taken[b] or on[b] == 0:
            continue
        lower, than = b // lower_width, best // lower_width
        if best < 0:
            best = b
        elif limited and used[lower] != used[than]:
            best = b if used[lower] else best
        elif limited and lower_on[lower] != lower_on[than]:
            best = b if is_better_number(lower_on[lower], lower_on[than], need) else best
        elif not is_better_number(on[best], on[b], need):
            best = b
    return int(best)


@subroutine
def find_last_weight(usable: FixedMatrix, first: int, last: int, need: int) -> int:
    """Return the lowest weight up to which the base blocks from `first` to `last` - 1 have `need` nodes."""
    at, held = -1, 0
    while held < need:
        above, at = at, NEVER
        for k in range(len(usable)):
            if first <= usable[k, BASE_BLOCK] < last and usable[k, NODES] > 0 and above < usable[k, WEIGHT] < at:
                at = usable[k, WEIGHT]
        for k in range(len(usable)):
            if first <= usable[k, BASE_BLOCK] < last and usable[k, WEIGHT] == at:
                held += usable[k, NODES]
    return int(at)


@subroutine
def fill_block(level: FixedColumn, first: int, usable: Matrix, quota: Column) -> bool:
    """Take a segment's nodes from the block that begins at base block `first`, or return False.

    Subtract the nodes from `usable`, and add them to `quota` by base block. Nodes lighter than the last weight that is
    needed come first, then the other nodes of their base blocks, and then those of the best base blocks.
    """
    need, last, lower_width = level[NEED], min(first + level[WIDTH], len(quota)), level[LOWER_WIDTH]
    at = find_last_weight(usable, first, last, need)
    on, lower_on = np.zeros(len(quota), np.int64), np.zeros(len(quota), np.int64)
    taken, used = np.zeros(len(quota), np.int64), np.zeros(len(quota), np.int64)
    for k in range(len(usable)):
        b, nodes = usable[k, BASE_BLOCK], usable[k, NODES]
        if not first <= b < last or nodes == 0 or usable[k, WEIGHT] > at:
            continue
        if usable[k, WEIGHT] == at:
            on[b] += nodes
            continue
        quota[b] += nodes
        need -= nodes
        usable[k, NODES], taken[b], used[b // lower_width] = 0, 1, 1
    for b in range(first, last):
        if not taken[b]:
            lower_on[b // lower_width] += on[b]

    begun, lower_blocks = taken.copy(), used.sum()
    while need > 0:
        best = -1
        for b in range(first, last):
            if best < 0 and begun[b] and on[b] > 0:
                best = b
        if best < 0:
            best = find_best_base_block(level, first, on, taken, used, lower_on, need)
        lower_blocks += 1 - used[best // lower_width]
        if 0 < level[MOST_LOWER] < lower_blocks:
            return False
        begun[best], taken[best], used[best // lower_width] = 0, 1, 1
        for k in range(len(usable)):
            if usable[k, BASE_BLOCK] == best and usable[k, WEIGHT] == at:
                count = min(usable[k, NODES], need)
                usable[k, NODES] -= count
                quota[best] += count
                need -= count
    return True


@subroutine
def fill_segments(rule: FixedColumn, level: FixedColumn, units: int, usable: Matrix, quota: Column) -> int:
    """Fill a job's segments one after the other, and add their nodes to `quota`.

    Return -1 if all fit, else -2, or the number of the group of blocks into which not all fit.
    """
    group, width = -2, level[GROUP_WIDTH]
    for _ in range(units // level[NEED]):
        on, lightest = np.zeros(len(quota), np.int64), np.full(len(quota), NEVER, np.int64)
        for k in range(len(usable)):
            b = usable[k, BASE_BLOCK]
            if usable[k, NODES] > 0:
                on[b] += usable[k, NODES]
                lightest[b] = min(lightest[b], usable[k, WEIGHT])
        best, before = find_best_block(level, on, lightest), quota.copy()
        first = best * level[WIDTH]
        if best >= 0 and width > 0:
            group = first // width
        if best < 0 or not fill_block(level, first, usable, quota):
            return int(group)
        for k in range(len(usable)):
            b = usable[k, BASE_BLOCK]
            outside = width > 0 and b // width != group
            if outside or (rule[SPREAD] and quota[b] > before[b]):
                usable[k, NODES] = 0
    return -1


@subroutine
def fill_blocks(rule: FixedColumn, usable: FixedMatrix, units: int) -> IntArray:
    """Return how many nodes of each base block a job takes, int64[B], which are all 0 if it does not fit.

    `rule` is a row of `Cluster.block_rules`. In each base block, the job takes the lightest nodes, and of these the
    first. Slurm fills segment after segment, and tries no other block for an earlier one. It tries each group of blocks
    in which all segments must lie.
    """
    level, left, group = find_block_level(rule, units), usable.copy(), 0
    while group >= 0 and units % level[NEED] == 0:
        quota = np.zeros(rule[BLOCKS], np.int64)
        group = fill_segments(rule, level, units, left.copy(), quota)
        if group == -1:
            return quota
        for k in range(len(left)):
            if left[k, BASE_BLOCK] // max(1, level[GROUP_WIDTH]) == group:
                left[k, NODES] = 0
    return np.zeros(rule[BLOCKS], np.int64)


@kernel
def block_quotas(rule: FixedColumn, usable: FixedMatrix, units: int) -> IntArray:
    """Return the result of `fill_blocks`."""
    return fill_blocks(rule, usable, units)
