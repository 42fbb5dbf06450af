"""A bridge's lease in a reservation: reading and writing it, and ignoring other reservations."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cpsched.slurm_text.objects import SlurmReservation
from cpsched_bridge.adapters.slurm.translation import lease_reservation
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.ports import Lease
from tests.unit.bridge.adapters.slurm.scenes import Scene

CLAIM = Lease("4be1c2d3", "00ff", 17, "login2:/var/lib/cpsched")


def reservation(comment: str | None, name: str = lease_reservation.LEASE_RESERVATION_NAME) -> SlurmReservation:
    times = {"start_time": 2_100_000_000, "end_time": 2_100_000_060}
    return SlurmReservation(name=name, nodes="n2", **times, users=["cpsched"], comment=comment)


@pytest.mark.parametrize("where", ["login2:/var/lib/cpsched", "a:/with blank", 'b:/"&=%', "c:/\n\x1b[2J", "d:/ü"])
def test_written_lease_is_read_and_has_only_safe_characters(where: str) -> None:
    words = lease_reservation.format_lease(dataclasses.replace(CLAIM, where=where))
    assert words.isprintable()
    assert not set(words) & set(" \"'")
    found = lease_reservation.lease_from_reservations([reservation("x", "other"), reservation(words)])
    assert found is not None
    assert (found.bridge, found.run, found.beat) == ("4be1c2d3", "00ff", 17)
    assert lease_reservation.format_lease(found) == words


@pytest.mark.parametrize("changes", [{}, {"epoch": 1_795_917_612}, {"epoch": 30, "standby": "0a1b"}])
def test_lease_of_any_release_keeps_its_text(changes: dict[str, Any]) -> None:
    """A bridge replaces exactly the text that it has read, also that of a release without epochs, or of others."""
    lease = dataclasses.replace(CLAIM, **changes)
    words = lease_reservation.format_lease(lease)
    assert ("epoch" in words, "standby" in words) == ("epoch" in changes, "standby" in changes)
    for text, expected in ((words, lease), ("words of others", None)):
        found = lease_reservation.lease_from_reservations([reservation(text)])
        assert found is not None
        assert expected is None or found == expected
        assert lease_reservation.format_lease(found) == text


def test_lease_text_matches_deadman_script() -> None:
    assert lease_reservation.format_lease(CLAIM) == "bridge=4be1c2d3&run=00ff&beat=17&on=login2:/var/lib/cpsched"


@pytest.mark.parametrize("comment", [None, "", "maintenance", "bridge=1&run=2&beat=x&on=y", "bridge=1&run=2&beat=3"])
def test_unknown_reservation_text_is_lease_of_unknown_bridge(comment: str | None) -> None:
    found = lease_reservation.lease_from_reservations([reservation(comment)])
    assert found is not None
    assert found.bridge == ""
    assert lease_reservation.UNKNOWN_OWNER in found.where


def test_no_lease_without_lease_reservation() -> None:
    assert lease_reservation.lease_from_reservations([]) is None
    assert lease_reservation.lease_from_reservations([reservation("words", "other")]) is None


def test_lease_reservation_closes_no_node() -> None:
    scene = Scene()
    without = SlurmTranslator().observe(scene.read())
    read = scene.read()
    claimed = dataclasses.replace(
        read,
        reservations=[
            *read.reservations,
            dataclasses.replace(reservation(lease_reservation.format_lease(CLAIM)), start_time=read.now_s + 5),
        ],
    )
    with_claim = SlurmTranslator().observe(claimed)
    assert with_claim.lease == CLAIM
    assert without.lease is None
    assert with_claim.outages == without.outages
    assert [each.job for each in with_claim.pending] == [each.job for each in without.pending]
