"""The claim of a bridge in control, as a reservation: operators make and change one, users can do neither.

The reservation lies ten years ahead, so that it keeps no job from any node. It is known by its name; its comment is
the claim. slurmctld refuses a second reservation of one name, so that of two bridges only one can make it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cpsched_bridge.adapters.shared.lease_text import format_lease, parse_lease
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.ports import Lease

__all__ = ["NAME", "comment_in", "format_lease", "lease_of", "others"]

NAME = "cpsched-bridge"
"""The reservation's."""
UNKNOWN = "whoever wrote the comment of the reservation"


def lease_of(reservations: Iterable[Record]) -> Lease | None:
    """The claim among a reading's reservations; one with odd words is a claim of somebody unknown."""
    comment = comment_in(reservations)
    return None if comment is None else parse_lease(comment, f"{UNKNOWN} {NAME}")


def comment_in(reservations: Iterable[Record]) -> str | None:
    """The claim as it stands there; None where there is none."""
    return next((each.get("comment") or "" for each in reservations if each["name"] == NAME), None)


def others(reservations: Sequence[Record]) -> list[Record]:
    """The reservations that set nodes aside."""
    return [each for each in reservations if each["name"] != NAME]
