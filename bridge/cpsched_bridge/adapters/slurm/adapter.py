"""The backend of a real Slurm cluster: a transport that asks and tells, and the translation of its records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import structlog

from cpsched.model import EndedJob
from cpsched_bridge.adapters.slurm.doctor import checks_of
from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.adapters.slurm.translation.observation import Translator
from cpsched_bridge.adapters.slurm.transport import Answer, Transport
from cpsched_bridge.errors import BackendError, BackendTimeout
from cpsched_bridge.ports import Check, Observation, Outcome, StartOrder

CLEAR = "ReqNodeList="
"""scontrol's word for no node list; an empty list sent by pyslurm would change nothing."""
Command = Callable[[Sequence[Record]], Sequence[Answer]]

BATCH = 100
"""Orders in one call to the transport, so that one deadline covers a bounded amount of work."""


class SlurmBackend:
    """See `cpsched_bridge.ports.Backend`.

    A start pins a job with a list of nodes and, where Slurm would split its tasks otherwise, with a number of tasks per
    node. That number also fixes the number of nodes. What it changes in the record is given back when the pin is
    cleared.
    """

    def __init__(self, transport: Transport, history_days: float = 7.0) -> None:
        self._transport = transport
        self._history_days = history_days
        self._translator: Translator | None = None
        self._config: Record = {}
        self._restores: dict[int, str] = {}
        """Our pins: job number -> scontrol settings that give the record back what the pin changed."""

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        """See `Backend.observe`."""
        translator = self._ready()
        for job_id in pinned:
            self._restores.setdefault(job_id, "")
        observation = translator.observe(self._transport.read(), self._restores.keys() | set(pinned))
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
        seen = self._transport.read()
        if not self._config.get("accounting_storage_type"):
            return translator.remembered(seen)
        try:
            past = self._transport.past(int(seen.now_s - self._history_days * 86400))
        except BackendError as error:
            # Learning from less is better than not working at all.
            structlog.get_logger("slurm").warning("no_history", detail=str(error))
            return translator.remembered(seen)
        return translator.past(past, seen)

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        """See `Backend.start`."""
        translator = self._ready()
        sent: list[Record] = []
        for order in orders:
            asked = translator.queue.asked.get(order.job.id)
            tasks_per_node = asked.tasks_per_node if asked else 0
            self._restores[order.job.id] = asked.restore if asked else ""
            nodes = [name for name, _ in order.nodes]
            sent.append({"job": order.job.id, "nodes": nodes, "tasks_per_node": tasks_per_node})
        return self._send(self._transport.start, sent)

    def hold(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """See `Backend.hold`."""
        return self._without_pins(self._transport.hold, job_ids)

    def hand_back(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """See `Backend.hand_back`. Without an observation every node list of these jobs counts as a pin."""
        if self._translator is None:
            self._restores.update(dict.fromkeys(job_ids, ""))
        return self._without_pins(self._transport.hand_back, job_ids)

    def checks(self) -> Sequence[Check]:
        """See `Backend.checks`."""
        try:
            facts = self._transport.facts()
        except BackendError as error:
            return [
                Check("controller", False, str(error), "start slurmctld, or mend slurm.conf and munge on this host")
            ]
        return checks_of(facts)

    def close(self) -> None:
        """See `Backend.close`."""
        self._transport.close()

    def _ready(self) -> Translator:
        """The translator, made for the controller's configuration when that is first reached."""
        if self._translator is None:
            self._config = self._transport.config()
            words = " ".join(self._config["select_type_parameters"] or ()).upper()
            self._translator = Translator(counts_memory="MEMORY" in words)
        return self._translator

    def _without_pins(self, command: Command, job_ids: Sequence[int]) -> list[Outcome]:
        """Send a command that takes our pins off the jobs."""
        outcomes = self._send(command, [{"job": job_id, "clear": self._clear(job_id)} for job_id in job_ids])
        for outcome in outcomes:
            if outcome.result == "done":
                self._restores.pop(outcome.job_id, None)
        return outcomes

    def _clear(self, job_id: int) -> str:
        """scontrol settings that take our pin off a job; empty where there is none of ours."""
        if job_id not in self._restores:
            return ""
        return f"{CLEAR} {self._restores[job_id]}".rstrip()

    def _send(self, command: Command, orders: Sequence[Record]) -> list[Outcome]:
        """Outcomes of orders, part by part. Raises what a first part raises; later failures become outcomes."""
        outcomes: list[Outcome] = []
        for at in range(0, len(orders), BATCH):
            part = orders[at : at + BATCH]
            try:
                answers = command(part)
            except BackendError as error:
                if not outcomes:
                    raise
                lost = isinstance(error, BackendTimeout)
                outcomes += [Outcome(order["job"], "unknown" if lost else "refused", str(error)) for order in part]
                outcomes += [Outcome(order["job"], "refused", "not sent") for order in orders[at + BATCH :]]
                break
            outcomes += [Outcome(order["job"], *answer) for order, answer in zip(part, answers, strict=True)]
        return outcomes
