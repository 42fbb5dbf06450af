"""What does not change between rounds: nodes, resources, capacities, and which nodes a job may ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cpsched.errors import require
from cpsched.model.power import PowerCap
from cpsched.model.value_bounds import require_amount, require_total

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def frozen_array(values: npt.ArrayLike) -> IntArray:
    """A read-only copy of `values` as C-contiguous int64."""
    array = np.array(values, dtype=np.int64, order="C")
    array.setflags(write=False)
    return array


class NodeSetPart(NamedTuple):
    """One of the conditions that nodes of a node set meet; "reservation" means that its nodes are left out."""

    kind: Literal["all", "partition", "feature", "resource", "excluded", "reservation"]
    name: str

    def __str__(self) -> str:
        return f"not {self.name}" if self.kind == "reservation" else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """What does not change between rounds: nodes, resources, capacities, and which nodes a job may ask for.

    - `capacity`: int64[N, R], what each of the N nodes has of each of the R resources.
    - `node_sets`: bool[M, N]. Row 0 holds all nodes; every other row is one partition, feature or node list.
    - `node_set_names`: the M names of those rows.
    - `power`: the cap of power, where there is one.
    - `node_set_parts`: what each node set is cut out of; empty where each is a partition. See `parts_of`.
    - `epoch_s`: the second since 1970 at which the times of its jobs begin, as a trace's UnixStartTime says.

    Raises `InvalidValue` where shapes or signs are wrong.

    >>> cluster = Cluster.of([[4, 0], [4, 2]], ["cores", "gpus"], node_sets={"gpu": [1]})
    >>> cluster.size, cluster.node_set_names
    (2, ('all', 'gpu'))
    """

    node_names: tuple[str, ...]
    resources: tuple[str, ...]
    capacity: IntArray
    node_sets: BoolArray
    node_set_names: tuple[str, ...]
    power: PowerCap | None = None
    node_set_parts: tuple[tuple[NodeSetPart, ...], ...] = ()
    epoch_s: int = 0
    counted: bool = field(init=False)
    """Whether units need no place: one resource, and one node or no more than one unit a node."""
    kind_of: IntArray = field(init=False)
    """int64[N]: nodes of the same kind have the same capacity and are in the same node sets."""
    kind_node: IntArray = field(init=False)
    """The first node of each kind."""

    def __post_init__(self) -> None:
        shape = (len(self.node_names), len(self.resources))
        require(self.capacity.shape == shape, "capacity.shape", self.capacity.shape, f"must be {shape}")
        require(shape[0] > 0 and shape[1] > 0, "capacity.shape", shape, "must have nodes and resources")
        require_amount("capacity", int(self.capacity.min()))
        require_amount("capacity", int(self.capacity.max()))
        require_total("capacity", int(self.capacity.sum(axis=0).max()))
        sets = (len(self.node_set_names), shape[0])
        require(self.node_sets.shape == sets, "node_sets.shape", self.node_sets.shape, f"must be {sets}")
        require(len(self.node_set_parts) in (0, sets[0]), "node_set_parts", "", "must be one for each node set")
        require(sets[0] > 0 and bool(self.node_sets[0].all()), "node_sets[0]", "", "must hold every node")
        for name, _ in () if self.power is None else self.power.watts:
            require(name in self.resources, "power.watts", name, f"must be one of {', '.join(self.resources)}")
        self.capacity.setflags(write=False)
        self.node_sets.setflags(write=False)
        one_unit_each = shape[0] == 1 or int(self.capacity.max()) <= 1
        object.__setattr__(self, "counted", shape[1] == 1 and sets[0] == 1 and one_unit_each)
        facts = np.concatenate((self.capacity, np.packbits(self.node_sets, axis=0).T), axis=1)
        _, first, kinds = np.unique(facts, axis=0, return_index=True, return_inverse=True)
        object.__setattr__(self, "kind_of", frozen_array(kinds.reshape(-1)))
        object.__setattr__(self, "kind_node", frozen_array(first))

    @classmethod
    def of(
        cls,
        capacity: npt.ArrayLike,
        resources: Sequence[str],
        node_names: Sequence[str] | None = None,
        node_sets: Mapping[str, Sequence[int]] | None = None,
    ) -> Cluster:
        """A cluster from its capacity rows [N, R]; `node_sets` maps a name to node indices."""
        rows = np.array(capacity, dtype=np.int64, ndmin=2)
        names = tuple(node_names) if node_names is not None else tuple(f"n{i}" for i in range(len(rows)))
        sets = np.zeros((1 + len(node_sets or {}), len(rows)), dtype=np.bool_)
        sets[0] = True
        for row, members in enumerate((node_sets or {}).values(), start=1):
            sets[row, list(members)] = True
        return cls(names, tuple(resources), rows, sets, ("all", *(node_sets or {})))

    def parts_of(self, node_set: int) -> tuple[NodeSetPart, ...]:
        """Return what a node set is cut out of."""
        if self.node_set_parts:
            return self.node_set_parts[node_set]
        return (NodeSetPart("partition" if node_set else "all", self.node_set_names[node_set]),)

    @property
    def size(self) -> int:
        """Number of nodes N."""
        return len(self.node_names)
