"""Define the blocks of Slurm's topology/block, and the rule by which jobs fill them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cpsched.errors import require

BLOCK_RULE_COLUMNS = 7
TOPOLOGY, BLOCK_NODES, LEVELS, BLOCKS, SEGMENT, SPREAD, CONSOLIDATE = range(BLOCK_RULE_COLUMNS)
"""Columns of `Cluster.block_rules`.

`TOPOLOGY` is the row of `Cluster.block_of`, or -1 without a rule. The others are the fields of `BlockTopology` and
`BlockRule`.
"""


@dataclass(frozen=True, slots=True)
class BlockTopology:
    """Base blocks, and the levels of blocks of several base blocks.

    - `blocks`: base block of each node, or -1. The numbers are the positions in Slurm's configuration.
    - `block_nodes`: planned number of nodes of a base block (the first of `BlockSizes`).
    - `levels`: bit l is set if blocks of 2^l base blocks exist.
    - `count`: number of base blocks, some of which may have no nodes.
    """

    blocks: tuple[int, ...]
    block_nodes: int
    levels: int
    count: int

    def __post_init__(self) -> None:
        require(self.block_nodes > 0, "block_nodes", self.block_nodes, "must be positive")
        require(self.levels & 1 == 1, "levels", self.levels, "must contain level 0")
        highest = max(self.blocks, default=-1)
        require(highest < self.count, "blocks", highest, f"must be below {self.count}")


class BlockRule(NamedTuple):
    """How jobs of several nodes fill blocks.

    - `topology`: position in `Cluster.block_topologies`.
    - `segment`: number of nodes of each segment (`--segment`), or 0.
    - `spread`: each segment has its own base blocks. `consolidate`: all segments share the smallest sufficient block.
    """

    topology: int
    segment: int = 0
    spread: bool = False
    consolidate: bool = False

    def to_row(self, topology: BlockTopology) -> tuple[int, ...]:
        """Return the row of `Cluster.block_rules` for this rule in its topology."""
        return self.topology, topology.block_nodes, topology.levels, topology.count, *map(int, self[1:])


def tabulate_blocks(topologies: Sequence[BlockTopology], nodes: int) -> npt.NDArray[np.int64]:
    """Check the topologies of a cluster with this number of nodes, and return them as `Cluster.block_of`."""
    for at, topology in enumerate(topologies):
        count = len(topology.blocks)
        require(count == nodes, f"block_topologies[{at}].blocks", count, "must have one entry per node")
    return np.array([topology.blocks for topology in topologies], np.int64).reshape(len(topologies), nodes)


def tabulate_block_rules(
    rules: Sequence[BlockRule | None], topologies: Sequence[BlockTopology], node_sets: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Check the rules of all node sets, and return them as `Cluster.block_rules`. () means no rule for any."""
    rules = rules or (None,) * len(node_sets)
    require(len(rules) == len(node_sets), "node_set_blocks", len(rules), "must have one entry per node set")
    rows = np.full((len(rules), BLOCK_RULE_COLUMNS), -1, np.int64)
    for at, rule in enumerate(rules):
        if rule is None:
            continue
        name = f"node_set_blocks[{at}]"
        require(0 <= rule.topology < len(topologies), name, rule, "must name a topology")
        topology = topologies[rule.topology]
        outside = (np.array(topology.blocks)[node_sets[at]] < 0).any()
        require(not outside, name, rule, "must have only nodes in blocks")
        rows[at] = rule.to_row(topology)
    return rows
