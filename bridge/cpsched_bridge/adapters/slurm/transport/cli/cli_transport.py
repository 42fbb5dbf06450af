"""Implement `SlurmTransport` with Slurm's commands, without lasting processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typing_extensions import override

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.object_parsing import RESERVATIONS_COMMAND, parse_reservations
from cpsched_bridge.adapters.slurm.slurm_programs import make_slurm_runner
from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.adapters.slurm.translation.lease_reservation import find_lease_comment
from cpsched_bridge.adapters.slurm.transport import SlurmTransport
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader, translate_unreadable_output
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_commands import NODE_NAME_PATTERN, SlurmCliOrderExecutor
from cpsched_bridge.adapters.slurm.transport.programs.lease_commands import (
    LeaseCommandRefused,
    LeaseReservationCommands,
)
from cpsched_bridge.adapters.slurm.transport.programs.rpc_rate_limit import SlurmRpcTokenBucket
from cpsched_bridge.adapters.slurm.transport.programs.slurm_program_calls import may_command_have_taken_effect
from cpsched_bridge.errors import BackendUnavailable, CommandRefused

TRANSPORT_NAME = "cli"


class SlurmCliTransport(SlurmCliOrderExecutor, SlurmTransport):
    """A transport that runs Slurm's own programs.

    `history_deadline_s` applies to the accounting database, and `deadline_s` to everything else.
    """

    starts_in_one_change = False

    def __init__(
        self,
        deadline_s: float = 10.0,
        history_deadline_s: float = 60.0,
        why: str = "",
        reading: SlurmCliReader | None = None,
        budget: SlurmRpcTokenBucket | None = None,
    ) -> None:
        self.why = why
        """The reason for choosing this transport."""
        budget = budget or SlurmRpcTokenBucket()
        self._records = reading or SlurmCliReader(deadline_s, history_deadline_s, budget=budget)
        super().__init__(self._records, deadline_s, budget)
        self._claiming = make_lease_commands(self.run_scontrol, deadline_s, budget)

    @property
    def reading_s(self) -> float:
        """Return the wall time of the last reading in seconds."""
        return self._records.reading_s

    @override
    def transport_choice(self) -> tuple[str, str]:
        return TRANSPORT_NAME, self.why

    @override
    def read_config(self) -> SlurmConfig:
        return self._records.read_config()

    @override
    def gather_doctor_facts(self) -> Record:
        return self._records.gather_doctor_facts()

    @override
    def read(self) -> SlurmRecords:
        return self._records.read()

    @override
    def read_accounting(self, since_s: int) -> Sequence[SlurmJob]:
        return self._records.read_accounting(since_s)

    @override
    def acquire_lease(self, text: str, expected: str | None) -> bool:
        try:
            return self._claiming.acquire_lease(text, expected)
        except LeaseCommandRefused as error:
            raise _make_backend_error_for_refusal(error) from error

    @override
    def close(self) -> None:
        self._records.close()


def _make_backend_error_for_refusal(error: LeaseCommandRefused) -> BackendUnavailable | CommandRefused:
    text = str(error)
    return (BackendUnavailable if may_command_have_taken_effect(text) else CommandRefused)(text)


NODES_COMMAND = ("sinfo", "--noheader", "--Node", "--format=%N")


def make_lease_commands(
    scontrol: Callable[[Sequence[str]], Sequence[str]], deadline_s: float, budget: SlurmRpcTokenBucket | None = None
) -> LeaseReservationCommands:
    """Return the lease reservation's commands, with a deadline for each."""
    runner = make_slurm_runner(budget)

    def run_query(command: Sequence[str]) -> str:
        return runner.run(command, deadline_s).output

    def read_lease_text() -> str | None:
        with translate_unreadable_output():
            return find_lease_comment(parse_reservations(run_query(RESERVATIONS_COMMAND)))

    def find_any_node() -> str:
        names = [name for name in run_query(NODES_COMMAND).split() if NODE_NAME_PATTERN.fullmatch(name)]
        if not names:
            raise BackendUnavailable("sinfo: the output contains no node name")
        return min(names)

    return LeaseReservationCommands(read_lease_text, find_any_node, scontrol)
