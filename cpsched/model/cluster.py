"""Define a cluster's static facts: nodes, resources, capacities, node sets and the power cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cpsched.errors import require
from cpsched.formatting import abbreviated_repr
from cpsched.model.blocks import BlockRule, BlockTopology, tabulate_block_rules, tabulate_blocks
from cpsched.model.job import Request
from cpsched.model.typical_requests import TypicalRequests
from cpsched.model.value_bounds import require_amount, require_total_amount

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def frozen_array(values: npt.ArrayLike) -> IntArray:
    """Return a read-only copy of `values` as C-contiguous int64."""
    array = np.array(values, dtype=np.int64, order="C")
    array.setflags(write=False)
    return array


class NodeSetCondition(NamedTuple):
    """A condition on a node set's nodes. "reservation" excludes a reservation's nodes, "blocks" those in no block."""

    kind: Literal["all", "partition", "feature", "resource", "excluded", "reservation", "blocks"]
    name: str

    def __str__(self) -> str:
        return f"not {self.name}" if self.kind == "reservation" else self.name


@dataclass(frozen=True, slots=True)
class PowerCap:
    """A limit of `cap_w` watts on running jobs' total draw, which `verify` checks.

    `watts` contains (resource name, watts per unit of the requested amount) pairs. The constructor raises
    `InvalidValue` for a cap that is not positive, and for watts that are negative or missing.
    """

    cap_w: int
    watts: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        require(self.cap_w > 0, "power.cap_w", self.cap_w, "must be positive")
        require(bool(self.watts), "power.watts", "", "must contain at least one resource")
        for name, each in self.watts:
            require(each >= 0, f"power.watts.{name}", each, "must not be negative")

    def check_resources(self, resources: Sequence[str]) -> None:
        """Raise `InvalidValue` unless all watts are for these resources."""
        for name, _ in self.watts:
            require(name in resources, "power.watts", name, f"must be one of {', '.join(resources)}")

    @classmethod
    def of(cls, cap_w: int, watts: Mapping[str, int]) -> PowerCap:
        """Return a cap from watts by resource name."""
        return cls(cap_w, tuple(watts.items()))

    def draw_w(self, request: Request, resources: Sequence[str]) -> int:
        """Return the power draw in watts of a job with this request."""
        watts = dict(self.watts)
        each = sum(amount * watts.get(name, 0) for name, amount in zip(resources, request.per_unit, strict=True))
        return request.units * each


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Facts about nodes, resources and node sets that do not change between rounds.

    - `capacity`: int64[N, R], the amounts of R resources on N nodes.
    - `node_sets`: bool[M, N]. Row 0 contains all nodes. Every other row is a partition, feature or node list.
    - `node_set_names`: the names of the M node sets.
    - `power`: the power cap, or None.
    - `node_set_parts`: the conditions that define each node set, or () if each is a partition (see `parts_of`).
    - `weights`: int64[N], the weight of each node, or None if all are equal. Like Slurm, every dispatcher gives a job
      the nodes with the lowest weight on which it fits (`Weight` in slurm.conf(5)).
    - `leaf_switches`: int64[N], the leaf switch of each node, or None if all nodes have the same. Jobs of several units
      use those that Slurm would use (see `cpsched.kernels.node_selection`).
    - `block_topologies`, `node_set_blocks`: topologies of blocks, and the rule by which jobs on each node set fill them
      (None if they fill none), or (). Such jobs have one unit per node. See `cpsched.kernels.block_selection`.
    - `typical`: the site's typical requests for GPUs, or None. With them, dispatchers prefer, among nodes of equal
      weight and leaf switch, those on which fewest GPUs become stranded (see `cpsched.kernels.fragmentation`).
    - `epoch_s`: Unix time at second 0 on the jobs' clock, from a trace's UnixStartTime.

    The constructor raises `InvalidValue` for wrong shapes or values.

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
    node_set_parts: tuple[tuple[NodeSetCondition, ...], ...] = ()
    epoch_s: int = 0
    weights: IntArray | None = None
    leaf_switches: IntArray | None = None
    block_topologies: tuple[BlockTopology, ...] = ()
    node_set_blocks: tuple[BlockRule | None, ...] = ()
    typical: TypicalRequests | None = None
    counted: bool = field(init=False)
    """Whether counting units suffices: one resource, one node set, equal weights, one node or at most one unit each."""
    kind_of: IntArray = field(init=False)
    """Kind of each node, int64[N]. Nodes of one kind have equal capacities, weights, node sets and blocks."""
    kind_node: IntArray = field(init=False)
    """First node of each kind, int64[K]."""
    block_of: IntArray = field(init=False)
    """Base block of each node in each of T topologies of blocks, or -1, int64[T, N]."""
    block_rules: IntArray = field(init=False)
    """The rule of each node set in the columns of `cpsched.model.blocks`, int64[M, 7]."""

    __repr__ = abbreviated_repr

    def __post_init__(self) -> None:
        nodes, resources = len(self.node_names), len(self.resources)
        shape = (nodes, resources)
        require(self.capacity.shape == shape, "capacity.shape", self.capacity.shape, f"must be {shape}")
        require(nodes > 0 and resources > 0, "capacity.shape", shape, "must have nodes and resources")
        require_amount("capacity", int(self.capacity.min()))
        require_amount("capacity", int(self.capacity.max()))
        require_total_amount("capacity", int(self.capacity.sum(axis=0).max()))
        self.capacity.setflags(write=False)

        sets = (len(self.node_set_names), nodes)
        require(self.node_sets.shape == sets, "node_sets.shape", self.node_sets.shape, f"must be {sets}")
        require(len(self.node_set_parts) in (0, sets[0]), "node_set_parts", "", "must have one entry per node set")
        require(sets[0] > 0 and bool(self.node_sets[0].all()), "node_sets[0]", "", "must contain every node")
        self.node_sets.setflags(write=False)

        if self.power is not None:
            self.power.check_resources(self.resources)
        if self.typical is not None:
            wide = self.typical.amounts.shape[1]
            require(wide == resources, "typical.amounts", wide, f"must have {resources} resources")

        weights = self._keep_if_different("weights")
        self._keep_if_different("leaf_switches")
        equal, one_unit_each = weights is None and not self.has_topology, nodes == 1 or int(self.capacity.max()) <= 1
        object.__setattr__(self, "counted", resources == 1 and sets[0] == 1 and one_unit_each and equal)
        block_of = tabulate_blocks(self.block_topologies, nodes)
        block_rules = tabulate_block_rules(self.node_set_blocks, self.block_topologies, self.node_sets)
        object.__setattr__(self, "block_of", frozen_array(block_of))
        object.__setattr__(self, "block_rules", frozen_array(block_rules))

        weight = np.empty((nodes, 0), np.int64) if weights is None else weights[:, None]
        facts = np.concatenate((self.capacity, np.packbits(self.node_sets, axis=0).T, weight, block_of.T), axis=1)
        _, first, kinds = np.unique(facts, axis=0, return_index=True, return_inverse=True)
        object.__setattr__(self, "kind_of", frozen_array(kinds.reshape(-1)))
        object.__setattr__(self, "kind_node", frozen_array(first))

    def __reduce__(self) -> tuple[type[Cluster], tuple[object, ...]]:
        """Pickle the fields that the constructor takes. It computes the others again."""
        return Cluster, tuple(getattr(self, each.name) for each in fields(self) if each.init)

    def _keep_if_different(self, name: str) -> IntArray | None:
        """Check and freeze a column with a value per node; return None if all are equal."""
        values: IntArray | None = getattr(self, name)
        if values is None:
            return None
        shape = (len(self.node_names),)
        require(values.shape == shape, f"{name}.shape", values.shape, f"must be {shape}")
        require_amount(name, int(values.min()))
        require_amount(name, int(values.max()))
        kept = None if (values == values[0]).all() else frozen_array(values)
        object.__setattr__(self, name, kept)
        return kept

    @classmethod
    def of(
        cls,
        capacity: npt.ArrayLike,
        resources: Sequence[str],
        node_names: Sequence[str] | None = None,
        node_sets: Mapping[str, Sequence[int]] | None = None,
        weights: npt.ArrayLike | None = None,
        leaf_switches: npt.ArrayLike | None = None,
    ) -> Cluster:
        """Return a cluster from [N, R] capacities and node indices by node set name."""
        rows = np.array(capacity, dtype=np.int64, ndmin=2)
        names = tuple(node_names) if node_names is not None else tuple(f"n{i}" for i in range(len(rows)))
        sets = np.zeros((1 + len(node_sets or {}), len(rows)), dtype=np.bool_)
        sets[0] = True
        for row, members in enumerate((node_sets or {}).values(), start=1):
            sets[row, list(members)] = True
        heavy, leaves = (None if each is None else np.array(each, np.int64) for each in (weights, leaf_switches))
        set_names = ("all", *(node_sets or {}))
        return cls(names, tuple(resources), rows, sets, set_names, weights=heavy, leaf_switches=leaves)

    def conditions_of_node_set(self, node_set: int) -> tuple[NodeSetCondition, ...]:
        """Return the conditions that define a node set."""
        if self.node_set_parts:
            return self.node_set_parts[node_set]
        return (NodeSetCondition("partition" if node_set else "all", self.node_set_names[node_set]),)

    @property
    def has_topology(self) -> bool:
        """Whether leaf switches or blocks matter to jobs of several nodes."""
        return self.leaf_switches is not None or bool(self.block_topologies)

    @property
    def size(self) -> int:
        """Number of nodes N."""
        return len(self.node_names)
