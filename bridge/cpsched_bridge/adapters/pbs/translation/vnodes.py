"""Translate PBS's vnodes into nodes: capacities, free amounts, node sets, and reservations.

A partly reserved vnode counts as completely reserved. If a reservation's times are unreadable, its vnodes are always
reserved. If its list of vnodes is unreadable, the vnodes on which PBS shows the reservation are reserved.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from cpsched.model import BoolArray, IntArray
from cpsched.model.value_bounds import AMOUNT_BOUND
from cpsched_bridge.adapters.pbs.pbs_objects import (
    PbsCustomResource,
    PbsQueue,
    PbsReservationRecord,
    PbsVnode,
    UnquotedValue,
    make_unusable_object,
    parse_resource_amount,
)
from cpsched_bridge.adapters.shared.adapter_errors import UNREADABLE_FIELD_ERRORS, JobNotModelled
from cpsched_bridge.adapters.shared.node_table import ConfiguredNodeTable
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, Outage, UnusableObject

BUILT_IN_CONSUMABLES = {"vmem": "size", "naccelerators": "long", "accelerator_memory": "size"}
"""Types of the built-in consumable resources other than processors and memory."""
USABLE_STATES = frozenset({"free", "job-busy", "job-exclusive", "job-sharing", "resv-exclusive"})
"""States of a usable vnode. A vnode in any other state, such as `offline`, receives no jobs."""
FULL_STATES = frozenset({"job-exclusive", "resv-exclusive"})
"""States of a usable vnode without free amounts, regardless of the amounts that PBS shows as assigned."""

IDENTIFYING_RESOURCES = ("host", "vnode")
"""Resources that identify a vnode. A vnode has exactly one value of each."""


@dataclass(frozen=True, slots=True)
class VnodeGroups:
    """Groups of vnodes, stored as P (vnode, group) pairs."""

    names: tuple[str, ...]
    rows: IntArray
    """Vnode row in each pair, int64[P]."""
    groups: IntArray
    """Group in each pair, int64[P], ascending."""

    def sum_by_group(self, by_row: IntArray) -> IntArray:
        """Return the sum of `by_row` (int64[N]) over each group, int64[G]."""
        found = np.zeros(len(self.names), np.int64)
        np.add.at(found, self.groups, by_row[self.rows])
        return found

    def member_mask(self, group: int, count: int) -> BoolArray:
        """Return a mask of the group's vnodes, bool[`count`].

        `count` is the total number of vnodes.
        """
        mask = np.zeros(count, np.bool_)
        mask[self.rows[self.groups == group]] = True
        return mask

    def groups_of_vnode(self, row: int) -> IntArray:
        """Return the groups of a vnode."""
        found: IntArray = self.groups[self.rows == row]
        return found


@dataclass(slots=True)
class ConfiguredVnodeTable(ConfiguredNodeTable):
    """A table of the vnodes as configured, built by `from_records`."""

    sizes: frozenset[str]
    """Names of resources whose PBS type is `size`."""
    properties: Mapping[str, Mapping[str, str]]
    """Values of non-consumable resources, by vnode and resource."""
    hosts: tuple[str, ...]
    """Hosts of the vnodes, by row."""
    queues: tuple[str, ...]
    """Queues to which the vnodes are dedicated, by row, or empty if there are none."""
    partitions: tuple[str, ...]
    sharing: tuple[str, ...]
    limited: BoolArray
    """Mask of the vnodes with any of `VNODE_LIMITS`, bool[N]."""
    single_host: BoolArray
    """Mask of the vnodes that only jobs on a single host may use (`no_multinode_jobs`), bool[N]."""
    booleans: frozenset[str]
    """Names of boolean resources, which are false on a vnode without a value."""
    _values: dict[str, dict[str, list[int]]] = field(default_factory=dict, kw_only=True)
    _groups: dict[str, VnodeGroups] = field(default_factory=dict, kw_only=True)
    _queue_masks: dict[tuple[str, str], BoolArray] = field(default_factory=dict, kw_only=True)

    @classmethod
    def from_records(
        cls,
        vnodes: Mapping[str, PbsVnode],
        kinds: Mapping[str, PbsCustomResource],
        previous: ConfiguredVnodeTable | None = None,
    ) -> ConfiguredVnodeTable:
        """Return the table, or `previous` if nothing changed.

        Raise `ValueError` if there are no vnodes.
        """
        if not vnodes:
            raise ValueError("no vnodes")
        names = tuple(sorted(vnodes))
        objects = [vnodes[name] for name in names]
        found = [vnode.available for vnode in objects]
        counted = {"ncpus": "long", "mem": "size", **BUILT_IN_CONSUMABLES}
        counted |= {name: kind.type for name, kind in kinds.items() if kind.is_consumable}
        here = {name for each in found for name in each}
        resources = ("ncpus", "mem", *sorted((counted.keys() & here) - {"ncpus", "mem"}))
        booleans = frozenset(name for name, kind in kinds.items() if kind.type == "boolean")
        facts = tuple((name, *_list_configured_values(vnode)) for name, vnode in zip(names, objects, strict=True))
        key = (facts, resources, tuple(sorted(counted.items())), booleans)
        if previous is not None and previous.key == key:
            return previous
        sizes = frozenset(name for name in resources if counted[name] == "size")
        return cls(
            key=key,
            names=names,
            index={name: row for row, name in enumerate(names)},
            resources=resources,
            capacity=np.array([_parse_amounts_or_zeros(each, resources, sizes) for each in found], np.int64),
            sizes=sizes,
            properties={
                name: {what: value for what, value in each.items() if what not in resources}
                for name, each in zip(names, found, strict=True)
            },
            hosts=tuple(each.get("host", name) for name, each in zip(names, found, strict=True)),
            queues=tuple(vnode.queue for vnode in objects),
            partitions=tuple(vnode.partition for vnode in objects),
            sharing=tuple(vnode.sharing for vnode in objects),
            limited=np.array([bool(vnode.limits) for vnode in objects]),
            single_host=np.array([vnode.allows_only_single_host_jobs for vnode in objects]),
            booleans=booleans,
        )

    @property
    def has_one_vnode_per_host(self) -> bool:
        """Whether each host has a single vnode, not counting vnodes without resources."""
        hosts = [host for row, host in enumerate(self.hosts) if self.capacity[row].any()]
        return len(set(hosts)) == len(hosts)

    def mask_vnodes_with_value(self, resource: str, value: str) -> BoolArray:
        """Return a mask of the vnodes with this value of a resource.

        The resource is non-consumable or in `IDENTIFYING_RESOURCES`.
        """
        mask = np.zeros(len(self.names), np.bool_)
        mask[
            self._index_by_value(resource).get(
                value if resource in IDENTIFYING_RESOURCES else _normalize_boolean(value), []
            )
        ] = True
        return mask

    def _index_by_value(self, resource: str) -> Mapping[str, list[int]]:
        """Return vnode rows by value of a non-consumable resource. Results are cached."""
        found = self._values.get(resource)
        if found is None and self.has_resource(resource):
            found = self._values[resource] = {}
            own = {"host": self.hosts, "vnode": self.names}.get(resource)
            for row, name in enumerate(self.names):
                unset = "False" if resource in self.booleans else ""
                values = self.properties[name].get(resource, unset).split(",")
                for value in {own[row]} if own else {_normalize_boolean(each) for each in values}:
                    found.setdefault(value, []).append(row)
        return found or {}

    def group_by_resource(self, resource: str) -> VnodeGroups:
        """Return the groups of vnodes that share a value of a non-consumable resource.

        The smallest group comes first, as in PBS. A vnode with several values is in several groups. A vnode without a
        value is in no group.
        """
        found = self._groups.get(resource)
        if found is None:
            known = [(value, rows) for value, rows in self._index_by_value(resource).items() if value]
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
        """Return whether any vnode has this consumable or non-consumable resource."""
        if resource in IDENTIFYING_RESOURCES or resource in self.resources or resource in self.booleans:
            return True
        return any(resource in each for each in self.properties.values())

    def mask_vnodes_of_queue(self, queue: PbsQueue) -> BoolArray:
        """Return a mask of the vnodes on which jobs in a queue may run. Results are cached."""
        partition = queue.partition
        if isinstance(partition, UnquotedValue):
            raise JobNotModelled(
                f"partition {partition[:40]} of queue {queue.name} is printed as a number instead of text"
            )
        cached = self._queue_masks.get((queue.name, partition))
        if cached is not None:
            return cached
        dedicated = np.array([each == queue.name for each in self.queues])
        mask = dedicated if dedicated.any() else np.array([not each for each in self.queues])
        members: BoolArray = mask & ~self.limited & np.array([each == partition for each in self.partitions])
        self._queue_masks[queue.name, partition] = members
        return members


def _normalize_boolean(value: str) -> str:
    """Return a boolean value in a uniform spelling, and other values unchanged.

    PBS accepts several spellings of boolean values.
    """
    word = value.strip()
    if word.lower() in ("true", "t", "yes", "y"):
        return "True"
    return "False" if word.lower() in ("false", "f", "no", "n") else word


def _list_configured_values(vnode: PbsVnode) -> tuple[Hashable, ...]:
    """Return what the table stores of a vnode."""
    available, limits = tuple(sorted(vnode.available.items())), tuple(vnode.limits)
    return available, vnode.queue, vnode.partition, vnode.sharing, limits, vnode.allows_only_single_host_jobs


def list_limited_vnodes(vnodes: Mapping[str, PbsVnode], machine: ConfiguredVnodeTable) -> Iterable[UnusableObject]:
    """Yield the vnodes that receive no jobs because of a limit on their jobs."""
    for row in np.flatnonzero(machine.limited).tolist():
        name = machine.names[row]
        limit, value = next(iter(vnodes[name].limits.items()))
        yield UnusableObject("node", name[:80], limit, "unknown", value[:200])


def _parse_amounts_or_zeros(found: Mapping[str, str], resources: Sequence[str], sizes: frozenset[str]) -> list[int]:
    """Return the amounts in the order of `resources`. All are 0 if any is unreadable."""
    try:
        return _parse_amounts(found, resources, sizes)
    except UNREADABLE_FIELD_ERRORS:
        return [0] * len(resources)


def _parse_amounts(found: Mapping[str, str], resources: Sequence[str], sizes: frozenset[str]) -> list[int]:
    row = [math.floor(_parse_resource_amount(found, name, sizes)) for name in resources]
    invalid = [name for name, each in zip(resources, row, strict=True) if each >= AMOUNT_BOUND]
    if invalid:
        raise ValueError(f"{invalid[0]}: must be below {AMOUNT_BOUND}")
    return row


def _parse_resource_amount(found: Mapping[str, str], name: str, sizes: frozenset[str]) -> Fraction:
    try:
        return parse_resource_amount(found.get(name, "0"), name in sizes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def mask_usable_vnodes(vnodes: Mapping[str, PbsVnode], machine: ConfiguredVnodeTable) -> BoolArray:
    """Return a mask of the usable vnodes, bool[N]."""
    return np.array([vnodes[name].states <= USABLE_STATES for name in machine.names])


def compute_free_amounts(vnodes: Mapping[str, PbsVnode], machine: ConfiguredVnodeTable) -> IntArray:
    """Return the free amounts, int64[N, R], with 0 for unusable and full vnodes."""
    free = machine.capacity.copy()
    working = mask_usable_vnodes(vnodes, machine)
    for row, name in enumerate(machine.names):
        vnode = vnodes[name]
        if not working[row] or vnode.states & FULL_STATES:
            free[row] = 0
            continue
        taken = _parse_assigned_amounts(vnode.assigned, machine)
        free[row] = 0 if taken is None else np.maximum(free[row] - taken, 0)
    return free


def _parse_assigned_amounts(assigned: Mapping[str, str], machine: ConfiguredVnodeTable) -> IntArray | None:
    try:
        row = [math.ceil(_parse_resource_amount(assigned, name, machine.sizes)) for name in machine.resources]
    except UNREADABLE_FIELD_ERRORS:
        return None
    return np.array([min(each, AMOUNT_BOUND) for each in row], np.int64)


def list_vnodes_with_unreadable_amounts(
    vnodes: Mapping[str, PbsVnode], machine: ConfiguredVnodeTable
) -> Iterable[UnusableObject]:
    """Yield the vnodes that receive no jobs because an amount is unreadable."""
    for name in machine.names:
        try:
            _parse_amounts(vnodes[name].available, machine.resources, machine.sizes)
            for resource in machine.resources:
                _parse_resource_amount(vnodes[name].assigned, resource, machine.sizes)
        except UNREADABLE_FIELD_ERRORS as error:
            yield make_unusable_object("node", name, str(error))


def list_vnode_outages(vnodes: Mapping[str, PbsVnode], machine: ConfiguredVnodeTable, now_s: int) -> Iterable[Outage]:
    """Yield the unusable vnodes as outages to show to users."""
    for row, name in enumerate(machine.names):
        states = vnodes[name].states
        if not states <= USABLE_STATES:
            kind = "drained" if "offline" in states and "down" not in states else "down"
            yield Outage(kind, ",".join(sorted(states)), (row,), now_s, None)  # type: ignore[arg-type]


_STATES_WITHOUT_VNODES = frozenset({
    "RESV_NONE", "RESV_UNCONFIRMED", "RESV_FINISHED", "RESV_BEING_DELETED", "RESV_DELETED", "RESV_DELETING_JOBS",
})  # fmt: skip
"""States of reservations without vnodes. Reservations in all other states have vnodes."""


@dataclass(frozen=True, slots=True, eq=False)
class PbsReservation:
    """A reservation of vnodes from `from_s` until `to_s`, in Unix seconds.

    Only the reservation's own jobs may use its vnodes.
    """

    name: str
    members: BoolArray
    from_s: int
    to_s: int


def translate_reservations(
    records: Mapping[str, PbsReservationRecord],
    vnodes: Mapping[str, PbsVnode],
    machine: ConfiguredVnodeTable,
    now_s: int,
) -> tuple[tuple[PbsReservation, ...], list[UnusableObject]]:
    """Return the reservations that have not ended, and the unreadable reservations."""
    reservations, unreadable = [], []
    for name, record in sorted(records.items()):
        if record.unreadable and record.state not in _STATES_WITHOUT_VNODES:
            unreadable.append(make_unusable_object("reservation", name, record.unreadable))
            showing = [vnode for vnode, shown in vnodes.items() if name in shown.reservations]
            members = machine.mask_of_names([*record.vnodes, *showing])
            reservations.append(PbsReservation(name, members, now_s, now_s + UNLIMITED_WALLTIME_S))
        elif record.to_s > now_s and record.state not in _STATES_WITHOUT_VNODES:
            members = machine.mask_of_names(record.vnodes)
            reservations.append(PbsReservation(name, members, record.from_s, record.to_s))
    return tuple(sorted(reservations, key=lambda each: (each.from_s, each.name))), unreadable


def find_overlapping_reservations(
    reservations: Iterable[PbsReservation], now_s: int, until_s: int
) -> tuple[PbsReservation, ...]:
    """Return the reservations that overlap the interval from `now_s` to `until_s`."""
    return tuple(each for each in reservations if each.from_s < until_s and each.to_s > now_s)


def list_reservation_outages(reservations: Iterable[PbsReservation]) -> Iterable[Outage]:
    """Yield the reservations as outages to show to users."""
    for each in reservations:
        rows = tuple(row for row, member in enumerate(each.members.tolist()) if member)
        yield Outage("reserved", each.name, rows, each.from_s, each.to_s)
