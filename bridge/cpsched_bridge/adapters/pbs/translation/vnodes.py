"""PBS's vnodes as nodes: what they have, what is free on them, and which of them a job may use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from cpsched.model import BoolArray, IntArray
from cpsched.model.value_bounds import MOST_AMOUNT
from cpsched_bridge.adapters.pbs.pbs_records import UNREADABLE as BROKEN
from cpsched_bridge.adapters.pbs.pbs_records import Record, ResourceKind, Unquoted, Unreadable, text_of, texts_of
from cpsched_bridge.adapters.pbs.translation.pbs_units import amount
from cpsched_bridge.adapters.shared.node_table import NodeTable
from cpsched_bridge.adapters.shared.not_modelled import UNREADABLE, NotModelled
from cpsched_bridge.ports import Outage

BUILT_IN = {"vmem": "size", "naccelerators": "long", "accelerator_memory": "size"}
"""What vnodes have and jobs use up without anybody having made it, beside processors and memory."""
TAKES_JOBS = frozenset({"free", "job-busy", "job-exclusive", "job-sharing", "resv-exclusive"})
"""States in which a vnode works. Any other, such as `offline`, and it is given no job."""
FULL = frozenset({"job-exclusive", "resv-exclusive"})
"""States in which a vnode works and has nothing to give, whatever the amounts say."""

OWN = ("host", "vnode")
"""What a vnode is, and so has one value of; no resource of the site's."""


@dataclass(frozen=True, slots=True)
class VnodeGroups:
    """Groups of vnodes; P pairs say which vnode is in which group."""

    names: tuple[str, ...]
    rows: IntArray
    """int64[P]: the vnode of each pair."""
    groups: IntArray
    """int64[P]: its group, rising."""

    def sums(self, by_row: IntArray) -> IntArray:
        """What the vnodes (int64[N]) of each group come to, int64[G]."""
        found = np.zeros(len(self.names), np.int64)
        np.add.at(found, self.groups, by_row[self.rows])
        return found

    def members(self, group: int, count: int) -> BoolArray:
        """Which of the `count` vnodes are in the group."""
        mask = np.zeros(count, np.bool_)
        mask[self.rows[self.groups == group]] = True
        return mask

    def around(self, row: int) -> IntArray:
        """The groups that the vnode is in."""
        found: IntArray = self.groups[self.rows == row]
        return found


@dataclass(slots=True)
class VnodeTable(NodeTable):
    """The vnodes as configured; `of` builds one."""

    sizes: frozenset[str]
    """Resources whose amounts are sizes."""
    properties: Mapping[str, Mapping[str, str]]
    """By vnode, what it has that nobody uses up: text, by resource."""
    hosts: tuple[str, ...]
    """By row, the vnode's host."""
    queues: tuple[str, ...]
    """By row, the queue that the vnode is kept for; empty: for none."""
    partitions: tuple[str, ...]
    sharing: tuple[str, ...]
    _values: dict[str, dict[str, list[int]]] = field(default_factory=dict, kw_only=True)
    _groups: dict[str, VnodeGroups] = field(default_factory=dict, kw_only=True)

    @classmethod
    def of(
        cls, vnodes: Mapping[str, Record], kinds: Mapping[str, ResourceKind], previous: VnodeTable | None = None
    ) -> VnodeTable:
        """`previous` itself where everything is still the same, else a new one. Raises `ValueError` without vnodes."""
        if not vnodes:
            raise ValueError("no vnodes")
        names = tuple(sorted(vnodes))
        found = [texts_of(vnodes[name], "resources_available") for name in names]
        counted = {"ncpus": "long", "mem": "size", **BUILT_IN}
        counted |= {name: kind.type for name, kind in kinds.items() if kind.counted_by_vnode}
        here = {name for each in found for name in each}
        resources = ("ncpus", "mem", *sorted((counted.keys() & here) - {"ncpus", "mem"}))
        facts = tuple(
            (name, tuple(sorted(each.items())), _ways(vnodes[name])) for name, each in zip(names, found, strict=True)
        )
        key = (facts, resources, tuple(sorted(counted.items())))
        if previous is not None and previous.key == key:
            return previous
        sizes = frozenset(name for name in resources if counted[name] == "size")
        ways = [_ways(vnodes[name]) for name in names]
        return cls(
            key=key,
            names=names,
            index={name: row for row, name in enumerate(names)},
            resources=resources,
            capacity=np.array([_amounts(each, resources, sizes) for each in found], np.int64),
            sizes=sizes,
            properties={
                name: {what: value for what, value in each.items() if what not in resources}
                for name, each in zip(names, found, strict=True)
            },
            hosts=tuple(each.get("host", name) for name, each in zip(names, found, strict=True)),
            queues=tuple(queue for queue, _, _ in ways),
            partitions=tuple(partition for _, partition, _ in ways),
            sharing=tuple(sharing for _, _, sharing in ways),
        )

    @property
    def one_vnode_per_host(self) -> bool:
        """Whether hosts and vnodes are the same thing; a vnode that has nothing, such as a natural one, is none."""
        hosts = [host for row, host in enumerate(self.hosts) if self.capacity[row].any()]
        return len(set(hosts)) == len(hosts)

    def having(self, resource: str, value: str) -> BoolArray:
        """The vnodes that have this value of a resource that nobody uses up; `host` and `vnode` are such."""
        mask = np.zeros(len(self.names), np.bool_)
        mask[self._by_value(resource).get(value if resource in OWN else _flag(value), [])] = True
        return mask

    def _by_value(self, resource: str) -> Mapping[str, list[int]]:
        """The vnodes by each value of such a resource: gone through once, however many jobs ask."""
        found = self._values.get(resource)
        if found is None and self.knows(resource):
            found = self._values[resource] = {}
            own = {"host": self.hosts, "vnode": self.names}.get(resource)
            for row, name in enumerate(self.names):
                said = self.properties[name].get(resource, "").split(",")
                for value in {own[row]} if own else {_flag(each) for each in said}:
                    found.setdefault(value, []).append(row)
        return found or {}

    def groups(self, resource: str) -> VnodeGroups:
        """The vnodes by each value of a resource that nobody uses up; one that has several values is in several groups.

        The smallest group comes first, as PBS tries them. Vnodes without a value are in none.
        """
        found = self._groups.get(resource)
        if found is None:
            known = [(value, rows) for value, rows in self._by_value(resource).items() if value]
            known.sort(key=lambda each: (len(each[1]), each[0]))
            found = VnodeGroups(
                tuple(value for value, _ in known),
                np.array([row for _, rows in known for row in rows], np.int64),
                np.repeat(np.arange(len(known)), [len(rows) for _, rows in known]),
            )
            if known:
                self._groups[resource] = found
        return found

    def knows(self, resource: str) -> bool:
        """Whether any vnode has this resource, used up or not."""
        if resource in OWN or resource in self.resources:
            return True
        return any(resource in each for each in self.properties.values())

    def of_queue(self, queue: Record, name: str) -> BoolArray:
        """The vnodes on which jobs of a queue may run."""
        kept = np.array([each == name for each in self.queues])
        mask = kept if kept.any() else np.array([not each for each in self.queues])
        partition = text_of(queue, "partition")
        if isinstance(partition, Unquoted):
            raise NotModelled(f"partition {partition[:40]} of queue {name} is printed as a number, and not as text")
        found: BoolArray = mask & np.array([each == partition for each in self.partitions])
        return found


def split_readable(vnodes: Mapping[str, Record]) -> tuple[dict[str, Record], list[Unreadable]]:
    """The vnodes of which everything that is asked here can be answered, and the others with the reason."""
    found, odd = {}, []
    for name, vnode in vnodes.items():
        try:
            if BROKEN in vnode:
                raise ValueError(str(vnode[BROKEN]))
            _ways(vnode), states_of(vnode), texts_of(vnode, "resources_available")
            texts_of(vnode, "resources_assigned")
        except UNREADABLE as error:
            odd.append(Unreadable("vnode", name, str(error)))
        else:
            found[name] = vnode
    return found, odd


def _flag(value: str) -> str:
    """Truth values are written in many ways."""
    word = value.strip()
    if word.lower() in ("true", "t", "yes", "y"):
        return "True"
    return "False" if word.lower() in ("false", "f", "no", "n") else word


def _ways(vnode: Record) -> tuple[str, str, str]:
    return text_of(vnode, "queue"), text_of(vnode, "partition"), text_of(vnode, "sharing", "default_shared")


def _amounts(found: Mapping[str, str], resources: Sequence[str], sizes: frozenset[str]) -> list[int]:
    """Amounts in the order of `resources`; all 0 where one of them cannot be any vnode's."""
    try:
        return _all_amounts(found, resources, sizes)
    except UNREADABLE:
        return [0] * len(resources)


def _all_amounts(found: Mapping[str, str], resources: Sequence[str], sizes: frozenset[str]) -> list[int]:
    row = [math.floor(_amount(found, name, sizes)) for name in resources]
    odd = [name for name, each in zip(resources, row, strict=True) if each >= MOST_AMOUNT]
    if odd:
        raise ValueError(f"{odd[0]} is more than any vnode has")
    return row


def _amount(found: Mapping[str, str], name: str, sizes: frozenset[str]) -> Fraction:
    try:
        return amount(found.get(name, "0"), name in sizes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def usable(vnodes: Mapping[str, Record], machine: VnodeTable) -> BoolArray:
    """The vnodes that work."""
    return np.array([states_of(vnodes[name]) <= TAKES_JOBS for name in machine.names])


def states_of(vnode: Record) -> frozenset[str]:
    """The states of a vnode."""
    return frozenset(each.strip() for each in text_of(vnode, "state").split(",") if each.strip())


def free_on(vnodes: Mapping[str, Record], machine: VnodeTable) -> IntArray:
    """What is free, int64[N, R], by what PBS has assigned; rows of vnodes that do not work, or are full, are 0."""
    free = machine.capacity.copy()
    working = usable(vnodes, machine)
    for row, name in enumerate(machine.names):
        vnode = vnodes[name]
        if not working[row] or states_of(vnode) & FULL:
            free[row] = 0
            continue
        assigned = texts_of(vnode, "resources_assigned")
        taken = _taken(assigned, machine)
        free[row] = 0 if taken is None else np.maximum(free[row] - taken, 0)
    return free


def _taken(assigned: Mapping[str, str], machine: VnodeTable) -> IntArray | None:
    try:
        row = [math.ceil(_amount(assigned, name, machine.sizes)) for name in machine.resources]
    except UNREADABLE:
        return None
    return np.array([min(each, MOST_AMOUNT) for each in row], np.int64)


def without_amounts(vnodes: Mapping[str, Record], machine: VnodeTable) -> Iterable[Unreadable]:
    """Vnodes that get no jobs because an amount there cannot be read."""
    for name in machine.names:
        try:
            _all_amounts(texts_of(vnodes[name], "resources_available"), machine.resources, machine.sizes)
            for resource in machine.resources:
                _amount(texts_of(vnodes[name], "resources_assigned"), resource, machine.sizes)
        except UNREADABLE as error:
            yield Unreadable("vnode", name, str(error))


def outages(vnodes: Mapping[str, Record], machine: VnodeTable, now_s: int) -> Iterable[Outage]:
    """Vnodes that take no jobs now, for people."""
    for row, name in enumerate(machine.names):
        states = states_of(vnodes[name])
        if not states <= TAKES_JOBS:
            kind = "drained" if "offline" in states and "down" not in states else "down"
            yield Outage(kind, ",".join(sorted(states)), (row,), now_s, None)  # type: ignore[arg-type]
