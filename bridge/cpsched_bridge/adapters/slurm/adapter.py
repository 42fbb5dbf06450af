"""The backend of a real Slurm cluster: observes, starts, holds and hands back through the pyslurm child."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import structlog

from cpsched.model import EndedJob
from cpsched_bridge.adapters.slurm.doctor import checks_of
from cpsched_bridge.adapters.slurm.translation import history
from cpsched_bridge.adapters.slurm.translation.cluster import Translator
from cpsched_bridge.adapters.slurm.transport.client import Client
from cpsched_bridge.adapters.slurm.transport.rows import Record, records
from cpsched_bridge.errors import BackendError, BackendTimeout
from cpsched_bridge.ports import Check, Observation, Outcome, StartOrder

CLEAR = "ReqNodeList="
"""scontrol's word for no node list; an empty list sent by pyslurm would change nothing."""
BATCH = 100
"""Commands in one call to the child, so that one deadline covers a bounded amount of work."""


class SlurmBackend:
    """See `cpsched_bridge.ports.Backend`. One snapshot is one call; commands go in batches.

    A start pins with `required_nodes` and, where Slurm would split tasks otherwise, with a number of tasks per node,
    which also fixes the number of nodes; what that changes in the record is given back when the pin is cleared.
    """

    def __init__(
        self,
        *,
        deadline_s: float = 10.0,
        history_deadline_s: float = 60.0,
        history_days: float = 7.0,
        client: Client | None = None,
    ) -> None:
        self._deadline_s = deadline_s
        self._history_deadline_s = history_deadline_s
        self._history_days = history_days
        self._client = client or Client()
        self._translator: Translator | None = None
        self._config: Record = {}
        self._restores: dict[int, str] = {}
        """Our pins: job number -> scontrol settings that give the record back what the pin changed."""

    @property
    def child_pid(self) -> int | None:
        """Process id of the pyslurm child, if it runs."""
        return self._client.pid

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        """See `Backend.observe`."""
        translator = self._ready()
        for job_id in pinned:
            self._restores.setdefault(job_id, "")
        observation = translator.observe(self._call("snapshot"), self._restores.keys() | set(pinned))
        for pending in observation.pending:
            if pending.pinned:
                self._restores.setdefault(pending.job.id, "")
        waiting = {pending.job.id for pending in observation.pending}
        known = waiting | set(pinned)
        self._restores = {job_id: settings for job_id, settings in self._restores.items() if job_id in known}
        return observation

    def history(self) -> Sequence[EndedJob]:
        """See `Backend.history`: the accounting database if it is there and answers, else the controller's memory."""
        translator = self._ready()
        snapshot = self._call("snapshot")
        if not self._config.get("accounting_storage_type"):
            return translator.all_ended(snapshot)
        machine = translator.read_machine(snapshot)
        since_s = int(snapshot["now_s"] - self._history_days * 86400)
        try:
            past = self._client.call("past", self._history_deadline_s, since_s=since_s)
        except BackendError as error:
            # Learning from less is better than not working at all.
            structlog.get_logger("slurm").warning("no_history", detail=str(error))
            return translator.all_ended(snapshot)
        return history.ended_jobs(records(past), machine)

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        """See `Backend.start`."""
        translator = self._ready()
        sent: list[Record] = []
        for order in orders:
            asked = translator.asked.get(order.job.id)
            tasks_per_node = asked.tasks_per_node if asked else 0
            self._restores[order.job.id] = asked.restore if asked else ""
            nodes = [name for name, _ in order.nodes]
            sent.append({"job": order.job.id, "nodes": nodes, "tasks_per_node": tasks_per_node})
        return self._command("start", sent)

    def hold(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """See `Backend.hold`."""
        return self._command("hold", [{"job": job_id, "clear": self._clear(job_id)} for job_id in job_ids])

    def hand_back(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """See `Backend.hand_back`. Without an observation every node list of these jobs counts as a pin."""
        if self._translator is None:
            self._restores.update(dict.fromkeys(job_ids, ""))
        return self._command("hand_back", [{"job": job_id, "clear": self._clear(job_id)} for job_id in job_ids])

    def checks(self) -> Sequence[Check]:
        """See `Backend.checks`."""
        try:
            facts = self._call("facts")
        except BackendError as error:
            return [
                Check("controller", False, str(error), "start slurmctld, or mend slurm.conf and munge on this host")
            ]
        return checks_of(facts)

    def close(self) -> None:
        """See `Backend.close`."""
        self._client.close()

    def _clear(self, job_id: int) -> str:
        """scontrol settings that take our pin off a job; empty where there is none of ours."""
        if job_id not in self._restores:
            return ""
        return f"{CLEAR} {self._restores[job_id]}".rstrip()

    def _ready(self) -> Translator:
        """The translator, made for the controller's configuration when that is first reached."""
        if self._translator is None:
            self._config = self._call("hello")["config"]
            words = " ".join(self._config["select_type_parameters"] or ()).upper()
            self._translator = Translator(counts_memory="MEMORY" in words)
        return self._translator

    def _call(self, name: str, **arguments: Any) -> Any:
        return self._client.call(name, self._deadline_s, **arguments)

    def _command(self, name: str, sent: Sequence[Record]) -> list[Outcome]:
        """Outcomes of a batch, part by part. Raises what a first part raises; later ones become outcomes."""
        outcomes: list[Outcome] = []
        for at in range(0, len(sent), BATCH):
            part = sent[at : at + BATCH]
            try:
                answers = self._call(name, orders=list(part))
            except BackendError as error:
                if not outcomes:
                    raise
                lost = isinstance(error, BackendTimeout)
                outcomes += [Outcome(order["job"], "unknown" if lost else "refused", str(error)) for order in part]
                outcomes += [Outcome(order["job"], "refused", "not sent") for order in sent[at + BATCH :]]
                break
            outcomes += [Outcome(order["job"], *answer) for order, answer in zip(part, answers, strict=True)]
        for outcome in outcomes:
            if name in ("hold", "hand_back") and outcome.result == "done":
                self._restores.pop(outcome.job_id, None)
        return outcomes
