"""Read and write the lease reservation; see `translation.lease_reservation`.

Reservations in Slurm 22.05 have no comment. In that release the `BurstBuffer` field holds the lease: slurmctld reports
its text unchanged, and only a burst buffer plugin reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cpsched_bridge.adapters.slurm.translation.lease_reservation import NAME

FAR_AHEAD = "now+3650days"
"""Start of the reservation: a job without a time limit may run for a year, and does not reach it."""


NO_COMMENT = "Unknown parameter Comment"
"""scontrol's error in releases whose reservations have no comment."""


class LeaseRefused(Exception):
    """An error that scontrol printed when it rejected a command."""


@dataclass(frozen=True, slots=True)
class LeaseReservationCommands:
    """Commands that create, change and delete the lease reservation.

    Raise `LeaseRefused` if scontrol rejects a command.
    """

    words: Callable[[], str | None]
    """Returns the reservation's comment, or None if there is no reservation."""
    node: Callable[[], str]
    """Returns the name of any node in the cluster."""
    scontrol: Callable[[Sequence[str]], Sequence[str]]
    """Runs commands and returns scontrol's error for each."""

    def acquire_lease(self, words: str, instead_of: str | None) -> bool:
        """Write `words` into the reservation if its text equals `instead_of`; return whether that succeeded."""
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
            return False  # another bridge created it first
        return True

    def release_lease(self, words: str) -> None:
        """Delete the reservation if its text equals `words`."""
        if self.words() == words:
            self._run(f"delete ReservationName={NAME}")

    def _tell(self, command: str, words: str) -> None:
        """Run a command with the lease text in the field that this Slurm release provides."""
        try:
            self._run(f"{command} Comment={words}")
        except LeaseRefused as refusal:
            if NO_COMMENT not in str(refusal):
                raise
            self._run(f"{command} BurstBuffer={words}")

    def _creation(self) -> str:
        """Return the command that creates the reservation for root, on any node.

        slurmctld requires a node and a user known to accounting.
        """
        when = f"StartTime={FAR_AHEAD} Duration=1 Flags=IGNORE_JOBS,OVERLAP"
        return f"create ReservationName={NAME} {when} Users=root Nodes={self.node()}"

    def _run(self, command: str) -> None:
        (complaint,) = self.scontrol([command])
        if complaint:
            raise LeaseRefused(complaint)
