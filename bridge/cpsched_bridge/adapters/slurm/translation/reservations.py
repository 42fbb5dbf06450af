"""Slurm's reservations: nodes that are set aside for a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cpsched.model import BoolArray
from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.adapters.slurm.translation import hostlist
from cpsched_bridge.adapters.slurm.translation.machine import Machine


@dataclass(slots=True)
class Reservation:
    """Nodes that are set aside from `start_s` to `end_s`."""

    name: str
    members: BoolArray
    start_s: int
    end_s: int


def reservations_of(table: Iterable[Record], machine: Machine, now_s: int) -> tuple[Reservation, ...]:
    """Reservations of nodes that are not over, by start.

    One whose nodes cannot be read keeps no node out: Slurm itself refuses what it does not allow there.
    """
    found = [
        Reservation(r["name"], machine.members(hostlist.known(r["nodes"])), r["start_time"] or 0, r["end_time"] or 0)
        for r in table
        if r["nodes"] and (r["end_time"] or 0) > now_s
    ]
    return tuple(sorted(found, key=lambda r: (r.start_s, r.name)))


def in_the_way(reservations: Iterable[Reservation], now_s: int, end_s: int) -> tuple[Reservation, ...]:
    """The reservations that begin before `end_s`, the end of a job that starts now."""
    return tuple(r for r in reservations if now_s < r.start_s < end_s)
