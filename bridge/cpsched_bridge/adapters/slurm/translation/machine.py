"""Slurm's nodes, partitions and reservations as a `Cluster`: capacities, and node sets interned by their content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.model import BoolArray, Cluster, IntArray
from cpsched_bridge.adapters.slurm.translation import hostlist, states
from cpsched_bridge.adapters.slurm.transport.rows import Record

CORES = 0
MEMORY = 1
FIRST_GRES = 2
UNLIMITED = "UNLIMITED"

Amounts = dict[str, int]
"""Generic resources by name: {"gpu": 2, "gpu:a100": 2}. A typed one counts under its name too."""


def gres_amounts(items: Mapping[str, int]) -> Amounts:
    """Counts by name and by name:type, from "gres/gpu:a100", "gpu:a100" or "gres:gpu" keys."""
    found: Amounts = {}
    for key, count in items.items():
        name = key.removeprefix("gres/").removeprefix("gres:")
        found[name] = found.get(name, 0) + int(count)
    for name in [name for name in found if ":" in name]:
        general = name.split(":")[0]
        typed = sum(count for other, count in found.items() if other.startswith(f"{general}:"))
        found[general] = max(found.get(general, 0), typed)
    return found


def tres_gres(tres: Mapping[str, int] | None) -> Amounts:
    """The generic resources of a trackable resources' dict."""
    return gres_amounts({key: count for key, count in (tres or {}).items() if key.startswith("gres/")})


@dataclass(slots=True)
class Partition:
    """What a partition allows; None where it sets no limit."""

    name: str
    state: str
    members: BoolArray
    max_time_min: int | None
    default_time_min: int | None
    max_nodes: int | None
    min_nodes: int
    exclusive: bool
    unmodelled: str | None
    """Why jobs of this partition are left to Slurm."""
    allowed_accounts: frozenset[str] | None
    denied_accounts: frozenset[str]


@dataclass(slots=True)
class Reservation:
    """Nodes that are set aside from `start_s` to `end_s`."""

    name: str
    members: BoolArray
    start_s: int
    end_s: int


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


@dataclass(slots=True)
class Machine:
    """The cluster as configured, and its state at this reading. `of` builds one; a later reading may reuse it.

    `cores` are Slurm's CPUs; requests are rounded up to whole cores (`threads` CPUs each).
    """

    key: object
    names: tuple[str, ...]
    index: dict[str, int]
    resources: tuple[str, ...]
    capacity: IntArray
    threads: int
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
        key = tuple(
            (
                node["name"],
                node["effective_cpus"],
                node["threads_per_core"],
                node["real_memory"],
                node["memory_reserved_for_system"],
                tuple(sorted((node["configured_gres"] or {}).items())),
                tuple(node["active_features"] or ()),
            )
            for node in nodes
        )
        if previous is not None and previous.key == key:
            return previous
        gres = [gres_amounts(node["configured_gres"] or {}) for node in nodes]
        resources = ("cores", "memory_mib", *sorted({name for amounts in gres for name in amounts}))
        capacity = np.zeros((len(nodes), len(resources)), np.int64)
        for row, (node, amounts) in enumerate(zip(nodes, gres, strict=True)):
            capacity[row, CORES] = node["effective_cpus"] or 0
            if counts_memory:
                capacity[row, MEMORY] = (node["real_memory"] or 0) - (node["memory_reserved_for_system"] or 0)
            for name, count in amounts.items():
                capacity[row, resources.index(name)] = count
        names = tuple(node["name"] for node in nodes)
        features: dict[str, BoolArray] = {}
        for row, node in enumerate(nodes):
            for feature in node["active_features"] or ():
                features.setdefault(feature, np.zeros(len(nodes), np.bool_))[row] = True
        threads = max((node["threads_per_core"] or 1 for node in nodes), default=1)
        index = {name: row for row, name in enumerate(names)}
        machine = cls(key, names, index, resources, capacity, threads, features, counts_memory)
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
        cores = -(-cpus // self.threads) * self.threads
        return (cores, memory_mib, *(gres.get(name, 0) for name in self.resources[FIRST_GRES:]))

    def partition(self, record: Record) -> Partition:
        """A partition of this cluster."""
        sharing = str(record["oversubscribe"] or "NO").upper()
        per_node = [record[f] for f in ("max_cpus_per_node", "max_cpus_per_socket", "max_memory_per_node")]
        unmodelled = None
        if sharing not in ("NO", "EXCLUSIVE"):
            unmodelled = f"oversubscribed nodes ({sharing})"
        elif any(_number(limit) for limit in (*per_node, record["max_memory_per_cpu"])):
            unmodelled = "limits per node"
        elif record["is_user_exclusive"]:
            unmodelled = "nodes exclusive to a user"
        elif record["requires_reservation"] or record["is_root_only"]:
            unmodelled = "closed to ordinary jobs"
        accounts = record["allowed_accounts"] or ["ALL"]
        denied = [name for name in record["denied_accounts"] or () if name != "ALL"]
        return Partition(
            name=record["name"],
            state=str(record["state"]),
            members=self.members(hostlist.expand(record["nodes"])),
            max_time_min=_number(record["max_time"]),
            default_time_min=_number(record["default_time"]),
            max_nodes=_number(record["max_nodes"]),
            min_nodes=_number(record["min_nodes"]) or 0,
            exclusive=sharing == "EXCLUSIVE",
            unmodelled=unmodelled,
            allowed_accounts=None if "ALL" in accounts else frozenset(accounts),
            denied_accounts=frozenset(denied),
        )

    def reservations(self, table: Iterable[Record], now_s: int) -> tuple[Reservation, ...]:
        """Reservations of nodes that are not over, by start."""
        found = [
            Reservation(r["name"], self.members(hostlist.expand(r["nodes"])), r["start_time"] or 0, r["end_time"] or 0)
            for r in table
            if r["nodes"] and (r["end_time"] or 0) > now_s
        ]
        return tuple(sorted(found, key=lambda r: (r.start_s, r.name)))

    def available(self, nodes: Sequence[Record], reservations: Iterable[Reservation], now_s: int) -> BoolArray:
        """Nodes that may be given a job now: up, responding, not drained, not under an active reservation."""
        mask = np.fromiter((states.node_takes_jobs(node["state"]) for node in nodes), np.bool_, len(nodes))
        for reservation in reservations:
            if reservation.start_s <= now_s:
                mask &= ~reservation.members
        return mask

    def in_use(self, nodes: Sequence[Record]) -> IntArray:
        """What the node records say is allocated, int64[N, R]; generic resources only where accounting tracks them."""
        used = np.zeros_like(self.capacity)
        used[:, CORES] = [node["allocated_cpus"] or 0 for node in nodes]
        if self.counts_memory:
            used[:, MEMORY] = [node["allocated_memory"] or 0 for node in nodes]
        for row, node in enumerate(nodes):
            for name, count in tres_gres(_counts(node["allocated_tres"])).items():
                if name in self.resources:
                    used[row, self.resources.index(name)] = count
        return used


def _counts(tres: Mapping[str, object] | None) -> dict[str, int]:
    """The entries of an allocated_tres dict that are numbers ("mem" may read "4G")."""
    return {key: value for key, value in (tres or {}).items() if isinstance(value, int)}
