"""Implement `SlurmTransport` with calls to the pyslurm child process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.adapters.slurm.transport import CommandReply, OrderKind, SlurmTransport
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import MAX_BATCH_TIME_FACTOR
from cpsched_bridge.adapters.slurm.transport.programs.slurm_privilege import query_admin_level
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmClient
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_rows import (
    parse_cluster_records,
    table_to_records,
    to_config,
)
from cpsched_bridge.errors import BackendTimeout

TRANSPORT_NAME = "pyslurm"


class PyslurmTransport(SlurmTransport):
    """A transport that uses pyslurm in a child process.

    `history_deadline_s` applies to the accounting database, and `deadline_s` to everything else. `why` is the reason
    for choosing this transport. A second child calls the accounting database: pyslurm keeps retrying an unreachable
    database, which would block the child that calls the controller.
    """

    starts_in_one_change = True

    def __init__(
        self,
        deadline_s: float = 10.0,
        history_deadline_s: float = 60.0,
        client: PyslurmClient | None = None,
        accounting: PyslurmClient | None = None,
        why: str = "",
    ) -> None:
        self._why = why
        self._deadline_s = deadline_s
        self._history_deadline_s = history_deadline_s
        self.client = client or PyslurmClient()
        self.accounting = accounting or PyslurmClient()
        self._past_wait_s = deadline_s
        self._past_asked = False

    @property
    def child_starts(self) -> int:
        """Return the number of child processes started so far for calls to the controller."""
        return self.client.starts

    def not_ready_reason(self) -> str | None:
        """Return what must happen before the first call, or None if ready."""
        return self.client.not_ready_reason()

    @override
    def transport_choice(self) -> tuple[str, str]:
        return TRANSPORT_NAME, self._why

    def hello(self) -> Record:
        """Return the child's answer to `hello`.

        It contains the controller's configuration in "config", pyslurm's version in "pyslurm", and "rate_limit" as in
        `gather_doctor_facts`.
        """
        reply: Record = self._call("hello")
        return reply

    @override
    def read_config(self) -> SlurmConfig:
        return to_config(self.hello()["config"])

    @override
    def gather_doctor_facts(self) -> Record:
        facts: Record = self._call("facts")
        facts = query_admin_level(facts["user"]) | facts | {"config": to_config(facts["config"])}
        if not facts["accounting_answers"]:
            self._past_wait_s = 0.0
        return facts

    @override
    def read(self) -> SlurmRecords:
        return parse_cluster_records(self._call("snapshot"))

    @override
    def read_accounting(self, since_s: int) -> Sequence[Record]:
        """Return ended jobs. Only the first call waits, for at most `deadline_s` seconds.

        If `gather_doctor_facts` found that accounting does not answer, the first call does not wait either.
        """
        wait_s, self._past_wait_s = self._past_wait_s, 0.0
        if not self._past_asked:
            if not self.accounting.wait_until_ready(wait_s):
                raise BackendTimeout(
                    f"ended jobs: no response yet after {wait_s:g} s: {self.accounting.not_ready_reason()}"
                )
            self.accounting.send_call("past", self._history_deadline_s, since_s=since_s)
            self._past_asked = True
        if not self.accounting.wait_for_answer(wait_s):
            raise BackendTimeout(f"ended jobs: no response yet after {wait_s:g} s")
        self._past_asked = False
        found = self.accounting.receive_answer()
        self.accounting.close()  # this child is used only once
        return table_to_records(found)

    @override
    def send(self, kind: OrderKind, orders: Sequence[Record]) -> Sequence[CommandReply]:
        deadline_s = self._deadline_s * max(1, min(len(orders), MAX_BATCH_TIME_FACTOR))
        return [CommandReply(*each) for each in self.client.call(kind, deadline_s, orders=list(orders))]

    @override
    def acquire_lease(self, text: str, expected: str | None) -> bool:
        taken: bool = self._call("acquire_lease", text=text, expected=expected)
        return taken

    @override
    def release_lease(self, text: str) -> None:
        self._call("release_lease", text=text)

    @override
    def close(self) -> None:
        self.client.close()
        self.accounting.close()

    def _call(self, name: str, **arguments: Any) -> Any:
        return self.client.call(name, self._deadline_s, **arguments)
