"""Which nodes of the groups a job gets."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpsched._jit import kernel
from cpsched.kernels.groups import BLOCK, mark, mark_block
from cpsched.kernels.state import Array, Groups


@kernel()
def pick_nodes(groups: Groups, need: int, found: Array, rank: Array, ranked: bool, nodes: Array, units: Array) -> Any:
    """Choose nodes for `need` units: highest `rank` of the group first, then in index order; returns how many.

    `found[g]` is what a node of group `g` holds; `nodes` and `units` are filled in index order. Blocks of nodes without
    one of those groups are passed over.
    """
    level, at_level = 0, need
    if ranked:
        order = np.argsort(-rank[: groups.used[0]])
        gathered, k = 0, 0
        while gathered < need:
            level, at_level = rank[order[k]], need - gathered
            while k < len(order) and rank[order[k]] == level:
                gathered += groups.size[order[k]] * found[order[k]]
                k += 1
    return take_nodes(groups, need, found, rank, ranked, level, at_level, nodes, units)


@kernel(makes_arrays=False)
def take_nodes(
    groups: Groups, need: int, found: Array, rank: Array, ranked: bool, level: int, at_level: int, nodes: Array,
    units: Array,
) -> Any:  # fmt: skip
    """`pick_nodes`, once it is known at which `level` of `rank` the choice ends: there, `at_level` units are wanted."""
    wanted = 0
    for g in range(groups.used[0]):
        if found[g] > 0 and groups.size[g] > 0 and not (ranked and rank[g] < level):
            wanted |= mark(g)
    count, left = 0, need
    for block in range(len(groups.near)):
        if groups.near[block] & wanted == 0:
            continue
        before = count
        for node in range(block * BLOCK, min((block + 1) * BLOCK, len(groups.of))):
            g = groups.of[node]
            take = found[g]
            if take == 0 or (ranked and rank[g] < level):
                continue
            if not ranked or rank[g] == level:
                take = min(take, at_level)
                at_level -= take
                if take == 0:
                    continue
            nodes[count], units[count] = node, take
            count += 1
            left -= take
            if left == 0:
                return count
        if count == before:
            mark_block(groups, block)
    return count
