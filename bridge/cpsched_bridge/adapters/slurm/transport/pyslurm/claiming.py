"""The calls about the reservation with which a bridge claims the cluster; see `translation.claims`."""

from __future__ import annotations

from typing import Any

from cpsched_bridge.adapters.slurm.translation.claims import NAME
from cpsched_bridge.adapters.slurm.transport.pyslurm.rows import value_of
from cpsched_bridge.adapters.slurm.transport.pyslurm.scontrol import scontrol

FAR_AHEAD = "now+3650days"
"""A job without a time limit may run for a year: none of them reaches so far."""


class Refusal(Exception):
    """What scontrol complains of."""


class Claiming:
    """Makes, changes and deletes the reservation; what is refused is raised as `Refusal`."""

    def __init__(self, pyslurm: Any) -> None:
        self._pyslurm = pyslurm

    def claim(self, words: str, instead_of: str | None) -> bool:
        """See `Transport.claim`."""
        if self._words() != instead_of:
            return False
        if instead_of is not None:
            _run(f"update ReservationName={NAME} Comment={words}")
            return True
        try:
            _run(self._creation(words))
        except Refusal:
            if self._words() is None:
                raise
            return False  # another bridge was faster
        return True

    def disclaim(self, words: str) -> None:
        """See `Transport.disclaim`."""
        if self._words() == words:
            _run(f"delete ReservationName={NAME}")

    def _creation(self, words: str) -> str:
        """slurmctld wants a node for it, and a user whom accounting knows: any node, and root."""
        node = min(node.name for node in self._pyslurm.Nodes.load().values())
        when = f"StartTime={FAR_AHEAD} Duration=1 Flags=IGNORE_JOBS,OVERLAP"
        return f"create ReservationName={NAME} {when} Users=root Nodes={node} Comment={words}"

    def _words(self) -> str | None:
        """The reservation's comment; None if there is no such one."""
        found = (each for each in self._pyslurm.Reservations.load().values() if each.name == NAME)
        return next((value_of(each, "comment") or "" for each in found), None)


def _run(command: str) -> None:
    (complaint,) = scontrol([command])
    if complaint:
        raise Refusal(complaint)
