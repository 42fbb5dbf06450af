"""Implement `SlurmTransport` with a pyslurm child for jobs, nodes and changes, and Slurm's commands for the rest."""

from __future__ import annotations

from typing_extensions import override

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.programs.rpc_rate_limit import SlurmRpcTokenBucket
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import ScontrolSession
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmClient
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_commands import PyslurmJobActions
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_reader import PyslurmReader

TRANSPORT_NAME = "pyslurm"


class PyslurmTransport(SlurmCliTransport):
    """A transport that calls Slurm's library in a child process.

    `history_deadline_s` applies to the accounting database, and `deadline_s` to everything else. `why` is the reason
    for choosing this transport.
    """

    starts_in_one_change = True

    def __init__(
        self,
        deadline_s: float = 10.0,
        history_deadline_s: float = 60.0,
        why: str = "",
        reader: PyslurmReader | None = None,
        budget: SlurmRpcTokenBucket | None = None,
    ) -> None:
        budget = budget or SlurmRpcTokenBucket()
        self.reader = reader or PyslurmReader(
            PyslurmClient(), deadline_s=deadline_s, history_deadline_s=history_deadline_s, budget=budget
        )
        super().__init__(deadline_s, history_deadline_s, why, self.reader, budget)

    @property
    @override
    def child_starts(self) -> int:
        return self.reader.client.starts

    @override
    def not_ready_reason(self) -> str | None:
        return self.reader.client.not_ready_reason()

    @override
    def transport_choice(self) -> tuple[str, str]:
        return TRANSPORT_NAME, self.why

    @override
    def gather_doctor_facts(self) -> Record:
        version = self.reader.client.call("version", self._deadline_s)
        return super().gather_doctor_facts() | {"pyslurm": version}

    @override
    def close(self) -> None:
        super().close()
        self.reader.client.close()

    @override
    def _make_actions(self, session: ScontrolSession, epoch: int) -> PyslurmJobActions:
        return PyslurmJobActions(self.reader, session, self._deadline_s, self._plugin, epoch)
