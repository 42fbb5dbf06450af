"""Implement `SlurmTransport` with Slurm's own commands, without long-lived processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typing_extensions import override

from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.adapters.slurm.translation.lease_reservation import find_lease_comment
from cpsched_bridge.adapters.slurm.transport import SlurmTransport
from cpsched_bridge.adapters.slurm.transport.cli import scontrol_objects
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_commands import NODE, SlurmCliCommands
from cpsched_bridge.adapters.slurm.transport.cli.slurm_programs import SlurmPrograms
from cpsched_bridge.adapters.slurm.transport.programs.call_budget import SlurmRpcTokenBucket, count_calls
from cpsched_bridge.adapters.slurm.transport.programs.lease_commands import LeaseRefused, LeaseReservationCommands
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_calls import is_unreachable_error
from cpsched_bridge.errors import BackendUnavailable, CommandRefused

NAME = "cli"


class SlurmCliTransport(SlurmCliCommands, SlurmTransport):
    """A transport that runs Slurm's own programs.

    `history_deadline_s` applies to the accounting database, and `deadline_s` to everything else.
    """

    child_starts = 0
    starts_in_one_change = False

    def __init__(
        self,
        deadline_s: float = 10.0,
        history_deadline_s: float = 60.0,
        why: str = "",
        reading: SlurmCliReader | None = None,
        budget: SlurmRpcTokenBucket | None = None,
    ) -> None:
        self._why = why
        budget = budget or SlurmRpcTokenBucket()
        self._records = reading or SlurmCliReader(deadline_s, history_deadline_s, budget=budget)
        super().__init__(self._records, deadline_s, budget)
        self._claiming = make_lease_commands(self.run_scontrol, deadline_s, budget)

    @override
    def not_ready_reason(self) -> str | None:
        return None

    @override
    def transport_choice(self) -> tuple[str, str]:
        return NAME, self._why

    @override
    def read_config(self) -> Record:
        return self._records.read_config()

    @override
    def gather_facts(self) -> Record:
        return self._records.gather_facts()

    @override
    def read(self) -> SlurmRecords:
        return self._records.read()

    @override
    def read_accounting(self, since_s: int) -> Sequence[Record]:
        return self._records.read_accounting(since_s)

    @override
    def acquire_lease(self, words: str, instead_of: str | None) -> bool:
        try:
            return self._claiming.acquire_lease(words, instead_of)
        except LeaseRefused as error:
            raise _of_refusal(error) from error

    @override
    def release_lease(self, words: str) -> None:
        try:
            self._claiming.release_lease(words)
        except LeaseRefused as error:
            raise _of_refusal(error) from error

    @override
    def close(self) -> None:
        self._records.close()


def _of_refusal(error: LeaseRefused) -> BackendUnavailable | CommandRefused:
    words = str(error)
    return (BackendUnavailable if is_unreachable_error(words) else CommandRefused)(words)


NODES = ("sinfo", "--noheader", "--Node", "--format=%N")


def make_lease_commands(
    scontrol: Callable[[Sequence[str]], Sequence[str]], deadline_s: float, budget: SlurmRpcTokenBucket | None = None
) -> LeaseReservationCommands:
    """Return the commands for the lease reservation, each limited to `deadline_s` seconds."""
    spent = budget or SlurmRpcTokenBucket()

    def asked(command: Sequence[str]) -> str:
        spent.spend(count_calls(command))
        return SlurmPrograms({"answer": command}, deadline_s + spent.deadline_extension_s).collect_outputs()["answer"]

    def words() -> str | None:
        return find_lease_comment(scontrol_objects.parse_reservations(asked(scontrol_objects.RESERVATIONS)))

    def node() -> str:
        names = [name for name in asked(NODES).split() if NODE.fullmatch(name)]
        if not names:
            raise BackendUnavailable("sinfo: names no node")
        return min(names)

    return LeaseReservationCommands(words, node, scontrol)
