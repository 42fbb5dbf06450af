"""Slurm through the pyslurm child, as a `Transport`: names of calls, deadlines, tables into records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpsched_bridge.adapters.slurm.records import ClusterRecords, Record
from cpsched_bridge.adapters.slurm.transport import Answer
from cpsched_bridge.adapters.slurm.transport.pyslurm.client import Client
from cpsched_bridge.adapters.slurm.transport.pyslurm.rows import cluster_records, records


class PyslurmTransport:
    """See `Transport`. `history_deadline_s` is for the accounting database, `deadline_s` for everything else."""

    def __init__(
        self, deadline_s: float = 10.0, history_deadline_s: float = 60.0, client: Client | None = None
    ) -> None:
        self._deadline_s = deadline_s
        self._history_deadline_s = history_deadline_s
        self.client = client or Client()

    @property
    def child_starts(self) -> int:
        """Child processes started so far."""
        return self.client.starts

    def config(self) -> Record:
        """See `Transport.config`."""
        config: Record = self._call("hello")["config"]
        return config

    def facts(self) -> Record:
        """See `Transport.facts`."""
        facts: Record = self._call("facts")
        return facts

    def read(self) -> ClusterRecords:
        """See `Transport.read`: one call."""
        return cluster_records(self._call("snapshot"))

    def past(self, since_s: int) -> Sequence[Record]:
        """See `Transport.past`."""
        return records(self.client.call("past", self._history_deadline_s, since_s=since_s))

    def start(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """See `Transport.start`."""
        return self._command("start", orders)

    def hold(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """See `Transport.hold`."""
        return self._command("hold", orders)

    def hand_back(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """See `Transport.hand_back`."""
        return self._command("hand_back", orders)

    def close(self) -> None:
        """See `Transport.close`."""
        self.client.close()

    def _command(self, name: str, orders: Sequence[Record]) -> list[Answer]:
        return [(result, detail) for result, detail in self._call(name, orders=list(orders))]

    def _call(self, name: str, **arguments: Any) -> Any:
        return self.client.call(name, self._deadline_s, **arguments)
