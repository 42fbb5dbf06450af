"""Slurm through its own commands, as a `Transport`: nothing is imported but this package, and no process stays."""

from __future__ import annotations

from collections.abc import Sequence

from cpsched_bridge.adapters.slurm.records import ClusterRecords, Record
from cpsched_bridge.adapters.slurm.transport import Answer
from cpsched_bridge.adapters.slurm.transport.cli.claims import claiming
from cpsched_bridge.adapters.slurm.transport.cli.commands import CliCommands
from cpsched_bridge.adapters.slurm.transport.cli.reading import Reading
from cpsched_bridge.adapters.slurm.transport.programs.call_budget import CallBudget
from cpsched_bridge.adapters.slurm.transport.programs.claiming import Refusal
from cpsched_bridge.adapters.slurm.transport.programs.scontrol import unreachable
from cpsched_bridge.errors import BackendUnavailable, CommandRefused

NAME = "cli"


class CliTransport:
    """See `Transport`. `history_deadline_s` is for the accounting database, `deadline_s` for everything else."""

    child_starts = 0
    starts_in_one_change = False

    def __init__(
        self,
        deadline_s: float = 10.0,
        history_deadline_s: float = 60.0,
        why: str = "",
        reading: Reading | None = None,
    ) -> None:
        self._why = why
        budget = CallBudget()
        self._reading = reading or Reading(deadline_s, history_deadline_s, budget=budget)
        self._commands = CliCommands(self._reading, deadline_s, budget)
        self._claiming = claiming(self._commands.scontrol, deadline_s, budget)

    def waits_for(self) -> str | None:
        """See `Transport.waits_for`: commands need no beginning."""
        return None

    def chosen(self) -> tuple[str, str]:
        """See `Transport.chosen`."""
        return NAME, self._why

    def config(self) -> Record:
        """See `Transport.config`."""
        return self._reading.config()

    def facts(self) -> Record:
        """See `Transport.facts`."""
        return self._reading.facts()

    def read(self) -> ClusterRecords:
        """See `Transport.read`."""
        return self._reading.read()

    def past(self, since_s: int) -> Sequence[Record]:
        """See `Transport.past`."""
        return self._reading.past(since_s)

    def start(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """See `Transport.start`."""
        return self._commands.start(orders)

    def hold(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """See `Transport.hold`."""
        return self._commands.hold(orders)

    def hand_back(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """See `Transport.hand_back`."""
        return self._commands.hand_back(orders)

    def unpin(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """See `Transport.unpin`."""
        return self._commands.unpin(orders)

    def claim(self, words: str, instead_of: str | None) -> bool:
        """See `Transport.claim`."""
        try:
            return self._claiming.claim(words, instead_of)
        except Refusal as error:
            raise _of_refusal(error) from error

    def disclaim(self, words: str) -> None:
        """See `Transport.disclaim`."""
        try:
            self._claiming.disclaim(words)
        except Refusal as error:
            raise _of_refusal(error) from error

    def close(self) -> None:
        """See `Transport.close`."""
        self._reading.close()


def _of_refusal(error: Refusal) -> BackendUnavailable | CommandRefused:
    words = str(error)
    return (BackendUnavailable if unreachable(words) else CommandRefused)(words)
