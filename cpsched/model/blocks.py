"""Define the blocks of Slurm's topology/block, and the rule by which jobs fill them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
