"""Read and write the lease reservation; see `translation.lease_reservation`.

Reservations of 22.05 have no comment. There the burst buffer holds the lease: slurmctld shows that text unchanged, and
only a burst buffer plugin reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cpsched_bridge.adapters.slurm.translation.lease_reservation import NAME

FAR_AHEAD = "now+3650days"
"""The start of the reservation. A job without a time limit may run for a year, and does not reach it."""


NO_COMMENT = "Unknown parameter Comment"
"""scontrol's error if reservations have no comment."""


class LeaseRefused(Exception):
    """scontrol rejected a command, with its error."""


@dataclass(frozen=True, slots=True)
class LeaseReservationCommands:
    """Create, change and delete the reservation.

    Raise `LeaseRefused` if scontrol rejects a command.
    """

    words: Callable[[], str | None]
    """Reads the reservation's comment; None without a reservation."""
    node: Callable[[], str]
    """Returns the name of a node of the cluster."""
    scontrol: Callable[[Sequence[str]], Sequence[str]]
    """Runs commands, and returns scontrol's error for each."""

    def acquire_lease(self, words: str, instead_of: str | None) -> bool:
        """Write the words into the reservation if it has those of `instead_of`."""
        if self.words() != instead_of:
            return False
        if instead_of is not None:
            self._tell(f"update ReservationName={NAME}", words)
            return True
        try:
            self._tell(self._creation(), words)
        except LeaseRefused:
            if self.words() is None:
                raise
            return False  # another bridge was faster
        return True

    def release_lease(self, words: str) -> None:
        """Delete the reservation if it has these words."""
        if self.words() == words:
            self._run(f"delete ReservationName={NAME}")

    def _tell(self, command: str, words: str) -> None:
        """Run a command with the lease in the field that this release has for it."""
        try:
            self._run(f"{command} Comment={words}")
        except LeaseRefused as refusal:
            if NO_COMMENT not in str(refusal):
                raise
            self._run(f"{command} BurstBuffer={words}")

    def _creation(self) -> str:
        """Return the command that creates the reservation, with any node and root.

        slurmctld requires a node, and a user that accounting has.
        """
        when = f"StartTime={FAR_AHEAD} Duration=1 Flags=IGNORE_JOBS,OVERLAP"
        return f"create ReservationName={NAME} {when} Users=root Nodes={self.node()}"

    def _run(self, command: str) -> None:
        (complaint,) = self.scontrol([command])
        if complaint:
            raise LeaseRefused(complaint)
