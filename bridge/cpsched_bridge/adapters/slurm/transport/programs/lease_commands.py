"""The calls about the reservation with which a bridge claims the cluster; see `translation.lease_reservation`.

Reservations of 22.05 have no comment. There the claim stands in their burst buffer, a text that slurmctld shows as it
was told, and which only a burst buffer plugin reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cpsched_bridge.adapters.slurm.translation.lease_reservation import NAME

FAR_AHEAD = "now+3650days"
"""A job without a time limit may run for a year: none of them reaches so far."""


NO_COMMENT = "Unknown parameter Comment"
"""What scontrol complains of where reservations have no comment."""


class LeaseRefused(Exception):
    """What scontrol complains of."""


@dataclass(frozen=True, slots=True)
class LeaseCommands:
    """Makes, changes and deletes the reservation; what is refused is raised as `LeaseRefused`."""

    words: Callable[[], str | None]
    """Reads the reservation's comment; None if there is no such one."""
    node: Callable[[], str]
    """Names a node of the cluster."""
    scontrol: Callable[[Sequence[str]], Sequence[str]]
    """Runs commands, and tells what is complained of each."""

    def claim(self, words: str, instead_of: str | None) -> bool:
        """Write the words into the reservation, if it has those of `instead_of`."""
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

    def disclaim(self, words: str) -> None:
        """Delete the reservation, if it has these words."""
        if self.words() == words:
            self._run(f"delete ReservationName={NAME}")

    def _tell(self, command: str, words: str) -> None:
        """A command with a claim, in the field that this release has for it."""
        try:
            self._run(f"{command} Comment={words}")
        except LeaseRefused as refusal:
            if NO_COMMENT not in str(refusal):
                raise
            self._run(f"{command} BurstBuffer={words}")

    def _creation(self) -> str:
        """slurmctld wants a node for it, and a user whom accounting knows: any node, and root."""
        when = f"StartTime={FAR_AHEAD} Duration=1 Flags=IGNORE_JOBS,OVERLAP"
        return f"create ReservationName={NAME} {when} Users=root Nodes={self.node()}"

    def _run(self, command: str) -> None:
        (complaint,) = self.scontrol([command])
        if complaint:
            raise LeaseRefused(complaint)
