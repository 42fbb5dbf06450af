"""Reservations: vnodes that are kept for others for a time. A vnode of which a part is reserved is left alone whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cpsched.errors import printable
from cpsched.model import BoolArray
from cpsched_bridge.adapters.pbs.records import Record, text_of
from cpsched_bridge.adapters.pbs.translation.machine import Machine
from cpsched_bridge.adapters.pbs.translation.units import duration_s, time_s
from cpsched_bridge.adapters.shared.unmodelled import UNREADABLE
from cpsched_bridge.ports import Outage

_VNODE = re.compile(r"([^()+:=\s]+):[^()+:=\s]+=")
_STANDS = ("CONFIRMED", "RUNNING", "DEGRADED", "IN_CONFLICT", "BEING_ALTERED")
"""How the states of reservations end that have, or will have, their vnodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """Vnodes that only the reservation's own jobs get from `from_s` until `to_s`."""

    name: str
    members: BoolArray
    from_s: int
    to_s: int


def vnodes_in(words: str) -> list[str]:
    """The vnodes of an `exec_vnode` or `resv_nodes`, in order, as often as they stand there."""
    return _VNODE.findall(words)


def reservations_of(
    records: Mapping[str, Record], machine: Machine, now_s: int
) -> tuple[tuple[Reservation, ...], list[str]]:
    """The reservations that are not over, and notes on those that cannot be read."""
    found, notes = [], []
    for name, record in sorted(records.items()):
        try:
            if not text_of(record, "reserve_state").endswith(_STANDS):
                continue
            begin_s = time_s(text_of(record, "reserve_start"))
            end_s = _end_s(record, begin_s)
            members = machine.members(vnodes_in(text_of(record, "resv_nodes")))
        except UNREADABLE as error:
            notes.append(f"reservation {printable(name)} cannot be read: {printable(str(error))}")
            continue
        if end_s > now_s:
            found.append(Reservation(name, members, begin_s, end_s))
    return tuple(sorted(found, key=lambda each: (each.from_s, each.name))), notes


def _end_s(record: Record, begin_s: int) -> int:
    end = text_of(record, "reserve_end")
    return time_s(end) if end else begin_s + duration_s(text_of(record, "reserve_duration"))


def in_the_way(reservations: Iterable[Reservation], now_s: int, until_s: int) -> tuple[Reservation, ...]:
    """Those that begin before `until_s`."""
    return tuple(each for each in reservations if each.from_s < until_s and each.to_s > now_s)


def outages(reservations: Iterable[Reservation]) -> Iterable[Outage]:
    """The same for people."""
    for each in reservations:
        rows = tuple(row for row, member in enumerate(each.members.tolist()) if member)
        yield Outage("reserved", each.name, rows, each.from_s, each.to_s)
