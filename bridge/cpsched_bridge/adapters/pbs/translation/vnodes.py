"""Translate PBS's vnodes to nodes: capacities, free amounts, and node sets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from cpsched.model import BoolArray, IntArray
from cpsched.model.value_bounds import MOST_AMOUNT
from cpsched_bridge.adapters.pbs.pbs_records import (
    UNREADABLE_KEY,
    PbsCustomResource,
    Record,
    UnquotedValue,
    UnreadablePbsObject,
    get_part_texts,
    get_text,
)
from cpsched_bridge.adapters.pbs.translation.pbs_units import parse_amount
from cpsched_bridge.adapters.shared.node_table import NodeTable
from cpsched_bridge.adapters.shared.not_modelled import UNREADABLE, JobNotModelled
from cpsched_bridge.ports import Outage

BUILT_IN = {"vmem": "size", "naccelerators": "long", "accelerator_memory": "size"}
"""Built-in consumable resources other than processors and memory."""
TAKES_JOBS = frozenset({"free", "job-busy", "job-exclusive", "job-sharing", "resv-exclusive"})
"""States of a usable vnode; in any other state, such as `offline`, it receives no jobs."""
FULL = frozenset({"job-exclusive", "resv-exclusive"})
"""States of a usable vnode without free amounts, regardless of the amounts that PBS shows as assigned."""

OWN = ("host", "vnode")
"""Resources that identify a vnode, which has exactly one value of each."""


@dataclass(frozen=True, slots=True)
class VnodeGroups:
    """Groups of vnodes, stored as P pairs of vnode and group."""

    names: tuple[str, ...]
    rows: IntArray
    """Row of the vnode in each pair, int64[P]."""
    groups: IntArray
    """Group in each pair, int64[P], ascending."""

    def sum_by_group(self, by_row: IntArray) -> IntArray:
        """Return the sum of `by_row` (int64[N]) over each group, int64[G]."""
        found = np.zeros(len(self.names), np.int64)
        np.add.at(found, self.groups, by_row[self.rows])
        return found

    def member_mask(self, group: int, count: int) -> BoolArray:
        """Return a mask of the vnodes in the group; `count` is the number of all vnodes."""
        mask = np.zeros(count, np.bool_)
        mask[self.rows[self.groups == group]] = True
        return mask

    def groups_of_vnode(self, row: int) -> IntArray:
        """Return the groups of a vnode."""
        found: IntArray = self.groups[self.rows == row]
        return found


@dataclass(slots=True)
class VnodeTable(NodeTable):
    """A table of the vnodes as configured; `from_records` builds one."""

    sizes: frozenset[str]
    """Resources whose amounts are sizes."""
    properties: Mapping[str, Mapping[str, str]]
    """Non-consumable resources by vnode, as text by resource."""
    hosts: tuple[str, ...]
    """Host of each vnode, by row."""
    queues: tuple[str, ...]
    """Queue to which each vnode is dedicated, by row; empty if none."""
    partitions: tuple[str, ...]
    sharing: tuple[str, ...]
    _values: dict[str, dict[str, list[int]]] = field(default_factory=dict, kw_only=True)
    _groups: dict[str, VnodeGroups] = field(default_factory=dict, kw_only=True)

    @classmethod
    def from_records(
        cls, vnodes: Mapping[str, Record], kinds: Mapping[str, PbsCustomResource], previous: VnodeTable | None = None
    ) -> VnodeTable:
        """Return a table, or `previous` if it is equal; raise `ValueError` if there are no vnodes."""
        if not vnodes:
            raise ValueError("no vnodes")
        names = tuple(sorted(vnodes))
        found = [get_part_texts(vnodes[name], "resources_available") for name in names]
        counted = {"ncpus": "long", "mem": "size", **BUILT_IN}
        counted |= {name: kind.type for name, kind in kinds.items() if kind.is_consumable}
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
        """Return whether each host has a single vnode, not counting vnodes without resources."""
        hosts = [host for row, host in enumerate(self.hosts) if self.capacity[row].any()]
        return len(set(hosts)) == len(hosts)

    def select_by_value(self, resource: str, value: str) -> BoolArray:
        """Return a mask of the vnodes with this value of a non-consumable resource or of a resource in `OWN`."""
        mask = np.zeros(len(self.names), np.bool_)
        mask[self._by_value(resource).get(value if resource in OWN else _flag(value), [])] = True
        return mask

    def _by_value(self, resource: str) -> Mapping[str, list[int]]:
        """Return the rows of vnodes by value of a non-consumable resource; results are cached."""
        found = self._values.get(resource)
        if found is None and self.has_resource(resource):
            found = self._values[resource] = {}
            own = {"host": self.hosts, "vnode": self.names}.get(resource)
            for row, name in enumerate(self.names):
                said = self.properties[name].get(resource, "").split(",")
                for value in {own[row]} if own else {_flag(each) for each in said}:
                    found.setdefault(value, []).append(row)
        return found or {}

    def group_by_resource(self, resource: str) -> VnodeGroups:
        """Return the groups of vnodes that share a value of a non-consumable resource.

        The smallest group comes first, as in PBS. A vnode with several values is in several groups. A vnode without a
        value is in no group.
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

    def has_resource(self, resource: str) -> bool:
        """Return whether any vnode has this resource, whether consumable or not."""
        if resource in OWN or resource in self.resources:
            return True
        return any(resource in each for each in self.properties.values())

    def select_by_queue(self, queue: Record, name: str) -> BoolArray:
        """Return a mask of the vnodes on which jobs in a queue may run."""
        kept = np.array([each == name for each in self.queues])
        mask = kept if kept.any() else np.array([not each for each in self.queues])
        partition = get_text(queue, "partition")
        if isinstance(partition, UnquotedValue):
            raise JobNotModelled(f"partition {partition[:40]} of queue {name} is printed as a number, and not as text")
        found: BoolArray = mask & np.array([each == partition for each in self.partitions])
        return found


def split_readable(vnodes: Mapping[str, Record]) -> tuple[dict[str, Record], list[UnreadablePbsObject]]:
    """Return the readable vnodes, and the unreadable ones with the reason."""
    found, odd = {}, []
    for name, vnode in vnodes.items():
        try:
            if UNREADABLE_KEY in vnode:
                raise ValueError(str(vnode[UNREADABLE_KEY]))
            _ways(vnode), parse_states(vnode), get_part_texts(vnode, "resources_available")
            get_part_texts(vnode, "resources_assigned")
        except UNREADABLE as error:
            odd.append(UnreadablePbsObject("vnode", name, str(error)))
        else:
            found[name] = vnode
    return found, odd


def _flag(value: str) -> str:
    """Return a boolean value in a uniform spelling, because PBS accepts several."""
    word = value.strip()
    if word.lower() in ("true", "t", "yes", "y"):
        return "True"
    return "False" if word.lower() in ("false", "f", "no", "n") else word


def _ways(vnode: Record) -> tuple[str, str, str]:
    return get_text(vnode, "queue"), get_text(vnode, "partition"), get_text(vnode, "sharing", "default_shared")


def _amounts(found: Mapping[str, str], resources: Sequence[str], sizes: frozenset[str]) -> list[int]:
    """Return the amounts in the order of `resources`; all are 0 if one is unreadable."""
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
        return parse_amount(found.get(name, "0"), name in sizes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def mask_usable_vnodes(vnodes: Mapping[str, Record], machine: VnodeTable) -> BoolArray:
    """Return a mask of the usable vnodes, bool[N]."""
    return np.array([parse_states(vnodes[name]) <= TAKES_JOBS for name in machine.names])


def parse_states(vnode: Record) -> frozenset[str]:
    """Return the states of a vnode."""
    return frozenset(each.strip() for each in get_text(vnode, "state").split(",") if each.strip())


def compute_free_amounts(vnodes: Mapping[str, Record], machine: VnodeTable) -> IntArray:
    """Return the free amounts, int64[N, R], which are 0 for unusable and full vnodes."""
    free = machine.capacity.copy()
    working = mask_usable_vnodes(vnodes, machine)
    for row, name in enumerate(machine.names):
        vnode = vnodes[name]
        if not working[row] or parse_states(vnode) & FULL:
            free[row] = 0
            continue
        assigned = get_part_texts(vnode, "resources_assigned")
        taken = _taken(assigned, machine)
        free[row] = 0 if taken is None else np.maximum(free[row] - taken, 0)
    return free


def _taken(assigned: Mapping[str, str], machine: VnodeTable) -> IntArray | None:
    try:
        row = [math.ceil(_amount(assigned, name, machine.sizes)) for name in machine.resources]
    except UNREADABLE:
        return None
    return np.array([min(each, MOST_AMOUNT) for each in row], np.int64)


def without_amounts(vnodes: Mapping[str, Record], machine: VnodeTable) -> Iterable[UnreadablePbsObject]:
    """Yield the vnodes that receive no jobs because an amount is unreadable."""
    for name in machine.names:
        try:
            _all_amounts(get_part_texts(vnodes[name], "resources_available"), machine.resources, machine.sizes)
            for resource in machine.resources:
                _amount(get_part_texts(vnodes[name], "resources_assigned"), resource, machine.sizes)
        except UNREADABLE as error:
            yield UnreadablePbsObject("vnode", name, str(error))


def list_vnode_outages(vnodes: Mapping[str, Record], machine: VnodeTable, now_s: int) -> Iterable[Outage]:
    """Yield the unusable vnodes as outages to show to users."""
    for row, name in enumerate(machine.names):
        states = parse_states(vnodes[name])
        if not states <= TAKES_JOBS:
            kind = "drained" if "offline" in states and "down" not in states else "down"
            yield Outage(kind, ",".join(sorted(states)), (row,), now_s, None)  # type: ignore[arg-type]
