"""Translate nodes into a `Cluster` in which equal node sets share one row, and allocations on these nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cpsched.formatting import format_count
from cpsched.model import BlockRule, BlockTopology, BoolArray, Cluster, IntArray, NodeSetCondition, Placement, Request

CORES = 0
MEMORY = 1
FIRST_OTHER_RESOURCE = 2
"""Columns of a node table's capacity. Other resources begin at `FIRST_OTHER_RESOURCE`."""


@dataclass(slots=True)
class ConfiguredNodeTable:
    """A table of the nodes as configured, valid while readings have the same `key`."""

    key: object
    """The facts from the node records that this table was built from."""
    names: tuple[str, ...]
    index: dict[str, int]
    resources: tuple[str, ...]
    capacity: IntArray
    """Capacity, int64[N, R]. The first two columns are processors and memory in MiB."""
    rows: list[BoolArray] = field(default_factory=list, kw_only=True)
    """Node sets by row, bool[N] each. Row 0 contains all nodes."""
    weights: IntArray | None = field(default=None, kw_only=True)
    """Weight of each node, int64[N], or None if nodes have no weights."""
    leaf_switches: IntArray | None = field(default=None, kw_only=True)
    """Leaf switch of each node, int64[N], or None if unknown."""
    block_topologies: tuple[BlockTopology, ...] = field(default=(), kw_only=True)
    node_set_blocks: list[BlockRule | None] = field(default_factory=list, kw_only=True)
    """The rule by which jobs on each node set fill blocks, by row."""
    _sets: dict[tuple[bytes, BlockRule | None], int] = field(default_factory=dict, kw_only=True)
    _set_parts: list[tuple[NodeSetCondition, ...]] = field(default_factory=list, kw_only=True)
    _cluster: Cluster | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.intern_node_set(np.ones(len(self.names), np.bool_), NodeSetCondition("all", "all"))

    def mask_of_names(self, nodes: Iterable[str]) -> BoolArray:
        """Return a mask of these nodes, bool[N]. Unknown names are ignored."""
        mask = np.zeros(len(self.names), np.bool_)
        for name in nodes:
            at = self.index.get(name)
            if at is not None:
                mask[at] = True
        return mask

    def intern_node_set(self, mask: BoolArray, *parts: NodeSetCondition, blocks: BlockRule | None = None) -> int:
        """Return the row of `mask`, the intersection of `parts`, and add it if it is new.

        Jobs on these nodes fill blocks by the rule `blocks`.
        """
        content = mask.tobytes(), blocks
        row = self._sets.get(content)
        if row is None:
            row = self._sets[content] = len(self.rows)
            self.rows.append(mask.copy())
            self._set_parts.append(parts)
            self.node_set_blocks.append(blocks)
            self._cluster = None
        return row

    def get_node_set_conditions(self, row: int) -> tuple[NodeSetCondition, ...]:
        """Return the parts whose intersection is the node set in `row`."""
        return self._set_parts[row]

    def build_cluster(self) -> Cluster:
        """Return the cluster, which is the same object until the table changes."""
        if self._cluster is None:
            names = tuple(" & ".join(map(str, parts)) for parts in self._set_parts)
            self._cluster = Cluster(
                self.names,
                self.resources,
                self.capacity.copy(),
                np.array(self.rows),
                names,
                node_set_parts=tuple(self._set_parts),
                weights=self.weights,
                leaf_switches=self.leaf_switches,
                block_topologies=self.block_topologies,
                node_set_blocks=tuple(self.node_set_blocks),
            )
        return self._cluster


Amounts = dict[int, tuple[int, ...]]
"""A job's amounts by node, in the order of the cluster's resources."""


def request_from_allocation(amounts: Amounts, exclusive: bool) -> tuple[Request, Placement]:
    """Return an allocation as a request and a placement.

    If equal units cannot add up to the allocation, each node counts with the job's smallest amounts of processors and
    memory on any node. A plan then never overestimates what the job will release. Other resources count with their
    largest amounts, because node records may not show that they are in use.
    """
    nodes, table = sorted(amounts), np.array([amounts[node] for node in sorted(amounts)])
    cores = table[:, CORES]
    if (table == table[0]).all() or not cores.all():
        return _request_one_unit_per_node(nodes, table, exclusive)
    units = cores // math.gcd(*cores.tolist())
    if (table % units[:, None]).any() or (table // units[:, None] != table[0] // units[0]).any():
        return _request_one_unit_per_node(nodes, table, exclusive)
    request = Request(int(units.sum()), tuple((table[0] // units[0]).tolist()), exclusive=exclusive)
    return request, tuple(zip(nodes, units.tolist(), strict=True))


def _request_one_unit_per_node(nodes: list[int], table: np.ndarray, exclusive: bool) -> tuple[Request, Placement]:
    least = np.concatenate((table[:, :FIRST_OTHER_RESOURCE].min(axis=0), table[:, FIRST_OTHER_RESOURCE:].max(axis=0)))
    request = Request(len(nodes), tuple(least.tolist()), len(nodes) > 1, exclusive)
    return request, tuple((node, 1) for node in nodes)


def describe_allocation(amounts: Mapping[int, tuple[int, ...]], machine: ConfiguredNodeTable) -> str:
    """Return a job's amounts on each node as text."""
    parts = []
    for node in sorted(amounts):
        cores, memory_mib = amounts[node][CORES], amounts[node][MEMORY]
        named = zip(machine.resources[FIRST_OTHER_RESOURCE:], amounts[node][FIRST_OTHER_RESOURCE:], strict=True)
        gres = "".join(f", {count} {name}" for name, count in named if count)
        parts.append(f"{machine.names[node]}: {format_count(cores, 'core')}, {memory_mib} MiB{gres}")
    return "; ".join(parts)
