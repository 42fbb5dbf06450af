"""Translate PBS's reservations.

A partly reserved vnode counts as completely reserved. If a reservation's times are unreadable, its vnodes are always
reserved. If its list of vnodes is unreadable, the vnodes on which PBS shows the reservation are reserved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cpsched.model import BoolArray
from cpsched_bridge.adapters.pbs.pbs_objects import PbsReservationRecord, PbsVnode, make_unusable_object
from cpsched_bridge.adapters.pbs.translation.vnodes import ConfiguredVnodeTable
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, Outage, UnusableObject

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
