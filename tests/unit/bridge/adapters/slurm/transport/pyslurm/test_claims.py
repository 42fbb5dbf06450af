"""The data from which the lease's reservation is created, read through a stand-in for pyslurm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cpsched_bridge.adapters.slurm.translation.lease_reservation import LEASE_RESERVATION_NAME
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_commands import make_lease_commands


def loads(*found: Any) -> SimpleNamespace:
    return SimpleNamespace(load=lambda: {each.name: each for each in found})


def test_reads_text_of_own_lease_reservation_only() -> None:
    other, ours = (
        SimpleNamespace(name="maintenance", comment="theirs"),
        SimpleNamespace(name=LEASE_RESERVATION_NAME, comment="a&1"),
    )
    assert make_lease_commands(SimpleNamespace(Reservations=loads(other))).words() is None
    assert make_lease_commands(SimpleNamespace(Reservations=loads(other, ours))).words() == "a&1"
    assert (
        make_lease_commands(
            SimpleNamespace(Reservations=loads(SimpleNamespace(name=LEASE_RESERVATION_NAME, comment=None)))
        ).words()
        == ""
    )


def test_lease_reservation_uses_first_node() -> None:
    nodes = loads(SimpleNamespace(name="n2"), SimpleNamespace(name="n1"))
    assert make_lease_commands(SimpleNamespace(Nodes=nodes)).node() == "n1"
