"""Which nodes of the groups a job gets."""

from __future__ import annotations

import numpy as np

from cpsched.kernels.groups import BLOCK, mark, mark_block
from cpsched.kernels.jit import inner
from cpsched.kernels.state import Site


@inner
def pick_nodes(site: Site, need: int, ranked: bool) -> int:
    """Choose nodes for `need` units: highest rank of the group first, then in index order; returns how many.

    `trial.found[g]` is what a node of group `g` holds; `trial.nodes` and `trial.units` are filled in index order.
    """
    trial = site.trial
    groups, found, rank = trial.groups, trial.found, trial.rank
    level, at_level = 0, need
    if ranked:
        # The rank at which the choice ends; nodes of higher ranks are all taken.
        able, n = np.empty(groups.count, np.int64), 0
        for g in range(groups.count):
            if found[g] > 0:
                able[n] = g
                n += 1
        order = np.argsort(-rank[able[:n]])
        gathered, k = 0, 0
        while gathered < need:
            level, at_level = rank[able[order[k]]], need - gathered
            while k < n and rank[able[order[k]]] == level:
                gathered += groups.size[able[order[k]]] * found[able[order[k]]]
                k += 1
    return take_nodes(site, need, ranked, level, at_level)


@inner
def take_nodes(site: Site, need: int, ranked: bool, level: int, at_level: int) -> int:
    """`pick_nodes`, once it is known at which `level` of rank the choice ends: there, `at_level` units are wanted.

    Blocks of nodes without a node of the groups wanted are passed over.
    """
    trial = site.trial
    groups, found, rank, nodes, units = trial.groups, trial.found, trial.rank, trial.nodes, trial.units
    of, near, size = groups.of, groups.near, groups.size
    wanted = np.int64(0)
    for g in range(groups.count):
        if found[g] > 0 and size[g] > 0 and not (ranked and rank[g] < level):
            wanted |= mark(g)
    count, left = 0, need
    for block in range(len(near)):
        if near[block] & wanted == 0:
            continue
        before = count
        for node in range(block * BLOCK, min((block + 1) * BLOCK, len(of))):
            g = of[node]
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

        # The marks promised nodes that are no longer here.
        if count == before:
            mark_block(of, near, block)
    return count
