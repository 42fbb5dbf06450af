"""Read and write the lease reservation. See `translation.lease_reservation`.

Reservations in Slurm 22.05 have no comment. In that release, the `BurstBuffer` field holds the lease: slurmctld reports
its text unchanged, and only a burst buffer plugin reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cpsched_bridge.adapters.slurm.translation.lease_reservation import LEASE_RESERVATION_NAME

LEASE_START = "now+3650days"
"""Start of the reservation, later than the end of any job. Slurm counts a job without a limit as one year long."""

UNKNOWN_COMMENT_ERROR = "Unknown parameter Comment"
"""scontrol's error in releases whose reservations have no comment."""


class LeaseCommandRefused(Exception):
    """An error that scontrol printed when it rejected a command."""


@dataclass(frozen=True, slots=True)
class LeaseReservationCommands:
    """Commands that create, change and delete the lease reservation.

    They raise `LeaseCommandRefused` if scontrol rejects a command.
    """

    words: Callable[[], str | None]
    """Returns the reservation's comment, or None if there is no reservation."""
    node: Callable[[], str]
    """Returns the name of an arbitrary node in the cluster."""
    scontrol: Callable[[Sequence[str]], Sequence[str]]
    """Runs commands and returns scontrol's error for each."""

    def acquire_lease(self, text: str, expected: str | None) -> bool:
        """Replace the reservation's text, and return whether that succeeded.

        The present text must be `expected`, and the new text is `text`.
        """
        if self.words() != expected:
            return False
        if expected is not None:
            self._update_lease_field(f"update ReservationName={LEASE_RESERVATION_NAME}", text)
            return True
        try:
            self._update_lease_field(self._make_create_command(), text)
        except LeaseCommandRefused:
            if self.words() is None:
                raise
            return False  # another bridge created it first
        return True

    def _update_lease_field(self, command: str, text: str) -> None:
        """Run `command` with the lease text in the field that this release provides."""
        try:
            self._run_command(f"{command} Comment={text}")
        except LeaseCommandRefused as refusal:
            if UNKNOWN_COMMENT_ERROR not in str(refusal):
                raise
            self._run_command(f"{command} BurstBuffer={text}")

    def _make_create_command(self) -> str:
        """Return the command that creates the reservation for root, on an arbitrary node.

        slurmctld requires a node and a user known to accounting.
        """
        when = f"StartTime={LEASE_START} Duration=1 Flags=IGNORE_JOBS,OVERLAP"
        return f"create ReservationName={LEASE_RESERVATION_NAME} {when} Users=root Nodes={self.node()}"

    def _run_command(self, command: str) -> None:
        (complaint,) = self.scontrol([command])
        if complaint:
            raise LeaseCommandRefused(complaint)
