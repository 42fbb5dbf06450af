"""Read the controlling bridge's lease from a reservation.

Operators can create and change reservations, but users cannot. The reservation starts in the far future, so it blocks
no job. The reservation is identified by its name, and its comment contains the lease. slurmctld rejects a second
reservation with the same name, so only one of two bridges can create it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cpsched.slurm_text.objects import SlurmReservation
from cpsched_bridge.adapters.shared.lease_text import format_lease, parse_lease
from cpsched_bridge.ports import Lease

__all__ = [
    "LEASE_RESERVATION_NAME",
    "find_lease_comment",
    "format_lease",
    "lease_from_reservations",
    "without_lease_reservation",
]

LEASE_RESERVATION_NAME = "cpsched-bridge"
"""Name of the lease reservation."""
UNKNOWN_OWNER = "the author of the comment on reservation"


def lease_from_reservations(reservations: Iterable[SlurmReservation]) -> Lease | None:
    """Return the lease in a reading's reservations, or None if there is none.

    An unreadable comment yields a lease with an unknown owner.
    """
    comment = find_lease_comment(reservations)
    return None if comment is None else parse_lease(comment, f"{UNKNOWN_OWNER} {LEASE_RESERVATION_NAME}")


def find_lease_comment(reservations: Iterable[SlurmReservation]) -> str | None:
    """Return the lease reservation's comment, or None if there is no such reservation."""
    return next((each.comment or "" for each in reservations if each.name == LEASE_RESERVATION_NAME), None)


def without_lease_reservation(reservations: Sequence[SlurmReservation]) -> list[SlurmReservation]:
    """Return the reservations other than the lease reservation."""
    return [each for each in reservations if each.name != LEASE_RESERVATION_NAME]
