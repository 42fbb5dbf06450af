"""Why and until when nodes take no jobs: reservations, active or to come, and nodes that are drained or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.adapters.slurm.translation import states
from cpsched_bridge.adapters.slurm.translation.reservations import Reservation
from cpsched_bridge.ports import Outage


def outages_of(nodes: Sequence[Record], reservations: Sequence[Reservation], now_s: int) -> tuple[Outage, ...]:
    """Reservations of whole nodes by start, then nodes that take no jobs now, one outage for each of their states.

    Slurm marks the nodes of an active maintenance in their state, too: those are told once, as reserved.
    """
    found = [
        Outage("reserved", r.name, tuple(r.members.nonzero()[0].tolist()), r.start_s, r.end_s) for r in reservations
    ]
    reserved = {node for outage in found if outage.from_s <= now_s for node in outage.nodes}
    parts = {row for r in reservations if r.start_s <= now_s for row in r.parts.nonzero()[0].tolist()}
    by_state: dict[str, list[int]] = {}
    for row, node in enumerate(nodes):
        state = states.unreserved(node["state"]) if row in parts else node["state"]
        if row not in reserved and not states.node_takes_jobs(state):
            by_state.setdefault(state.upper(), []).append(row)
    found += [Outage(_kind(state), state, tuple(rows), now_s, None) for state, rows in sorted(by_state.items())]
    return tuple(outage for outage in found if outage.nodes)


def _kind(state: str) -> Literal["drained", "down"]:
    """A drained node is in order but for what somebody wants to do there; every other one is out of reach."""
    base, *flags = state.split("+")
    return "drained" if base in states.USABLE_NODE_STATES and "DRAIN" in flags else "down"
