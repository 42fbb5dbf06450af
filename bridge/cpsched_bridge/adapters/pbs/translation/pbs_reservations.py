"""Translate PBS's reservations.

A partly reserved vnode counts as completely reserved. If a reservation's times are unreadable, its vnodes are always
reserved. If its list of vnodes is unreadable, the vnodes on which PBS shows the reservation are reserved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cpsched.model import BoolArray
from cpsched.parsing.pbs_select import parse_duration_s
from cpsched_bridge.adapters.pbs.pbs_records import (
    UNREADABLE_KEY,
    Record,
    UnreadablePbsObject,
    get_text_attribute,
    list_text_values,
)
from cpsched_bridge.adapters.pbs.translation.pbs_units import parse_unix_time_s
from cpsched_bridge.adapters.pbs.translation.vnodes import ConfiguredVnodeTable
from cpsched_bridge.adapters.shared.job_not_modelled import UNREADABLE_FIELD_ERRORS
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, Outage

_VNODE = re.compile(r"([^()+:=\s]+):[^()+:=\s]+=")
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


def parse_vnode_names(text: str) -> list[str]:
    """Return the vnode names in an `exec_vnode` or `resv_nodes` value.

    The names are in order and may repeat.
    """
    return _VNODE.findall(text)


def translate_reservations(
    records: Mapping[str, Record], vnodes: Mapping[str, Record], machine: ConfiguredVnodeTable, now_s: int
) -> tuple[tuple[PbsReservation, ...], list[UnreadablePbsObject]]:
    """Return the reservations that have not ended, and the unreadable reservations."""
    found, odd = [], []
    for name, record in sorted(records.items()):
        try:
            if UNREADABLE_KEY in record:
                raise ValueError(str(record[UNREADABLE_KEY]))
            if get_text_attribute(record, "reserve_state") in _STATES_WITHOUT_VNODES:
                continue
            begin_s = parse_unix_time_s(get_text_attribute(record, "reserve_start"))
            end_s = _compute_reservation_end_s(record, begin_s)
            members = machine.mask_of_names(parse_vnode_names(get_text_attribute(record, "resv_nodes")))
        except UNREADABLE_FIELD_ERRORS as error:
            odd.append(UnreadablePbsObject("reservation", name, str(error)))
            members = machine.mask_of_names(
                [*_list_vnodes_in_unreadable_reservation(record), *_find_vnodes_showing_reservation(name, vnodes)]
            )
            found.append(PbsReservation(name, members, now_s, now_s + UNLIMITED_WALLTIME_S))
            continue
        if end_s > now_s:
            found.append(PbsReservation(name, members, begin_s, end_s))
    return tuple(sorted(found, key=lambda each: (each.from_s, each.name))), odd


def _list_vnodes_in_unreadable_reservation(record: Record) -> list[str]:
    """Return the vnodes listed in an unreadable reservation."""
    return [name for words in list_text_values(record.get("resv_nodes")) for name in parse_vnode_names(words)]


def _find_vnodes_showing_reservation(name: str, vnodes: Mapping[str, Record]) -> list[str]:
    """Return the vnodes on which PBS shows a reservation."""

    def list_reservation_names_on_vnode(vnode: Record) -> list[str]:
        return [each.strip() for words in list_text_values(vnode.get("resv")) for each in words.split(",")]

    return [each for each, vnode in vnodes.items() if name in list_reservation_names_on_vnode(vnode)]


def _compute_reservation_end_s(record: Record, begin_s: int) -> int:
    end = get_text_attribute(record, "reserve_end")
    return parse_unix_time_s(end) if end else begin_s + parse_duration_s(get_text_attribute(record, "reserve_duration"))


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
