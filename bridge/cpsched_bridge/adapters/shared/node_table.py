"""The nodes of a real cluster as a `Cluster`: names, capacities, and node sets interned by their content."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from cpsched.model import BoolArray, Cluster, IntArray, NodeSetPart

CORES = 0
MEMORY = 1
FIRST_OTHER = 2
"""Columns of a machine's capacity; what else nodes have follows."""


@dataclass(slots=True)
class NodeTable:
    """The nodes as configured, for as long as a reading shows the same `key`."""

    key: object
    """The facts of the nodes' records that this was built from."""
    names: tuple[str, ...]
    index: dict[str, int]
    resources: tuple[str, ...]
    capacity: IntArray
    """int64[N, R]; the first two columns are processors and memory in MiB."""
    rows: list[BoolArray] = field(default_factory=list, kw_only=True)
    """The node sets, by row; row 0 holds all nodes."""
    _sets: dict[bytes, int] = field(default_factory=dict, kw_only=True)
    _set_parts: list[tuple[NodeSetPart, ...]] = field(default_factory=list, kw_only=True)
    _cluster: Cluster | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.node_set(np.ones(len(self.names), np.bool_), NodeSetPart("all", "all"))

    def members(self, nodes: Iterable[str]) -> BoolArray:
        """The nodes of these names as a mask; names that this cluster does not have are left out."""
        mask = np.zeros(len(self.names), np.bool_)
        for name in nodes:
            at = self.index.get(name)
            if at is not None:
                mask[at] = True
        return mask

    def node_set(self, mask: BoolArray, *parts: NodeSetPart) -> int:
        """The row of `Cluster.node_sets` with exactly these nodes, which are cut out of `parts`."""
        content = mask.tobytes()
        row = self._sets.get(content)
        if row is None:
            row = self._sets[content] = len(self.rows)
            self.rows.append(mask.copy())
            self._set_parts.append(parts)
            self._cluster = None
        return row

    def parts_of(self, row: int) -> tuple[NodeSetPart, ...]:
        """What a node set is cut out of."""
        return self._set_parts[row]

    def cluster(self) -> Cluster:
        """The cluster with all node sets seen so far; the same object until one is added."""
        if self._cluster is None:
            names = tuple(" & ".join(map(str, parts)) for parts in self._set_parts)
            self._cluster = Cluster(
                self.names,
                self.resources,
                self.capacity.copy(),
                np.array(self.rows),
                names,
                node_set_parts=tuple(self._set_parts),
            )
        return self._cluster
