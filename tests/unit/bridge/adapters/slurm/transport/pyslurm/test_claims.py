"""What the claim's reservation is made from, read through a stand-in for pyslurm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cpsched_bridge.adapters.slurm.translation.lease_reservation import NAME
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_commands import make_lease_commands


def loads(*found: Any) -> SimpleNamespace:
    return SimpleNamespace(load=lambda: {each.name: each for each in found})


def test_the_words_are_those_of_the_bridges_reservation_alone() -> None:
    other, ours = SimpleNamespace(name="maintenance", comment="theirs"), SimpleNamespace(name=NAME, comment="a&1")
    assert make_lease_commands(SimpleNamespace(Reservations=loads(other))).words() is None
    assert make_lease_commands(SimpleNamespace(Reservations=loads(other, ours))).words() == "a&1"
    assert (
        make_lease_commands(SimpleNamespace(Reservations=loads(SimpleNamespace(name=NAME, comment=None)))).words() == ""
    )


def test_it_is_made_on_the_first_of_the_nodes() -> None:
    nodes = loads(SimpleNamespace(name="n2"), SimpleNamespace(name="n1"))
    assert make_lease_commands(SimpleNamespace(Nodes=nodes)).node() == "n1"
