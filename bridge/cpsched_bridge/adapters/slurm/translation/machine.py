"""Slurm's nodes as a `Cluster`: names, capacities, features, and node sets interned by their content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.model import BoolArray, Cluster, IntArray
from cpsched.model.bounds import MOST_AMOUNT
from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.adapters.slurm.translation.gres import gres_amounts

CORES = 0
MEMORY = 1
FIRST_GRES = 2
"""Columns of a machine's capacity; the generic resources follow."""


@dataclass(slots=True)
class Machine:
    """The cluster as configured. `of` builds one; a later reading of the same configuration reuses it."""

    key: object
    """The node records' facts that the machine was built from."""
    names: tuple[str, ...]
    index: dict[str, int]
    resources: tuple[str, ...]
    capacity: IntArray
    """int64[N, R]; cores are Slurm's CPUs."""
    threads: int
    """CPUs of a core: requests are rounded up to whole cores."""
    features: dict[str, BoolArray]
    counts_memory: bool
    """Whether Slurm allocates memory at all (CR_*_Memory)."""
    rows: list[BoolArray] = field(default_factory=list)
    """The node sets, by row."""
    _sets: dict[bytes, int] = field(default_factory=dict)
    _set_names: list[str] = field(default_factory=list)
    _cluster: Cluster | None = None

    @classmethod
    def of(cls, nodes: Sequence[Record], counts_memory: bool = True, previous: Machine | None = None) -> Machine:
        """`previous` itself where names, capacities and features are still the same, else a new one."""
        key = tuple(map(_facts, nodes))
        if previous is not None and previous.key == key:
            return previous
        names = tuple(node["name"] for node in nodes)
        resources, capacity = _capacities(nodes, counts_memory)
        machine = cls(
            key=key,
            names=names,
            index={name: row for row, name in enumerate(names)},
            resources=resources,
            capacity=capacity,
            threads=max((node["threads_per_core"] or 1 for node in nodes), default=1),
            features=_features(nodes),
            counts_memory=counts_memory,
        )
        machine.node_set(np.ones(len(nodes), np.bool_), "all")
        return machine

    def members(self, nodes: Iterable[str]) -> BoolArray:
        """The nodes of these names as a mask; names that this cluster does not have are left out."""
        mask = np.zeros(len(self.names), np.bool_)
        for name in nodes:
            at = self.index.get(name)
            if at is not None:
                mask[at] = True
        return mask

    def node_set(self, mask: BoolArray, name: str) -> int:
        """The row of `Cluster.node_sets` with exactly these nodes."""
        content = mask.tobytes()
        row = self._sets.get(content)
        if row is None:
            row = self._sets[content] = len(self.rows)
            self.rows.append(mask.copy())
            self._set_names.append(name)
            self._cluster = None
        return row

    def cluster(self) -> Cluster:
        """The cluster with all node sets seen so far; the same object until one is added."""
        if self._cluster is None:
            self._cluster = Cluster(
                self.names, self.resources, self.capacity.copy(), np.array(self.rows), tuple(self._set_names)
            )
        return self._cluster

    def vector(self, cpus: int, memory_mib: int, gres: Mapping[str, int]) -> tuple[int, ...] | None:
        """Amounts in the order of `resources`; None where a generic resource is unknown here."""
        if any(name not in self.resources for name in gres):
            return None
        memory_mib = memory_mib if self.counts_memory else 0
        return (self.whole_cores(cpus), memory_mib, *(gres.get(name, 0) for name in self.resources[FIRST_GRES:]))

    def whole_cores(self, cpus: int) -> int:
        """`cpus` rounded up to the CPUs of whole cores, as Slurm allocates them."""
        return -(-cpus // self.threads) * self.threads


def _facts(node: Record) -> tuple[object, ...]:
    return (
        node["name"],
        node["effective_cpus"],
        node["threads_per_core"],
        node["real_memory"],
        node["memory_reserved_for_system"],
        tuple(sorted((node["configured_gres"] or {}).items())),
        tuple(node["active_features"] or ()),
    )


def _capacities(nodes: Sequence[Record], counts_memory: bool) -> tuple[tuple[str, ...], IntArray]:
    """The names of the resources, and their amounts by node, int64[N, R].

    A node with an amount that no node can have (more memory reserved than there is, a number beyond all bounds) has
    nothing to give.
    """
    gres = [gres_amounts(node["configured_gres"] or {}) for node in nodes]
    resources = ("cores", "memory_mib", *sorted({name for amounts in gres for name in amounts}))
    capacity = np.zeros((len(nodes), len(resources)), np.int64)
    for row, (node, amounts) in enumerate(zip(nodes, gres, strict=True)):
        memory_mib = (node["real_memory"] or 0) - (node["memory_reserved_for_system"] or 0)
        found = {"cores": node["effective_cpus"] or 0, "memory_mib": memory_mib if counts_memory else 0, **amounts}
        if all(0 <= amount < MOST_AMOUNT for amount in found.values()):
            capacity[row] = [found.get(name, 0) for name in resources]
    return resources, capacity


def _features(nodes: Sequence[Record]) -> dict[str, BoolArray]:
    """The nodes that have a feature, by feature."""
    features: dict[str, BoolArray] = {}
    for row, node in enumerate(nodes):
        for feature in node["active_features"] or ():
            features.setdefault(feature, np.zeros(len(nodes), np.bool_))[row] = True
    return features
