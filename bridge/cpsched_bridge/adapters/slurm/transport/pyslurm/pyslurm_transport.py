"""Connect to Slurm with a pyslurm child for jobs, nodes and changes, and Slurm's commands for the rest.

A trial chooses between Slurm's commands and pyslurm by one reading with each. The figure is the wall time of a whole
reading on this cluster. The first reading with a transport does not count, because it also reads what later readings
use again. Until the trial ends, Slurm's commands are used. They are also used if pyslurm fails, is not ready in time,
or is not faster.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.cli.job_commands import COMMANDS_PER_READING
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_commands import (
    INVALID_PARTITION_ERROR,
    ScontrolJobActions,
    SubmitPluginCapability,
    call_or_raise_controller_error,
    format_node_count,
)
from cpsched_bridge.adapters.slurm.transport.programs.call_limits import SlurmRpcTokenBucket
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import (
    ControllerCallError,
    JobCommandRefused,
    make_not_sent_error,
)
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import ScontrolSession
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import may_command_have_taken_effect
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmClient
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_reader import PyslurmReader
from cpsched_bridge.errors import BackendError, BackendStarting, BackendTimeout, CommandRefused
from cpsched_bridge.ports import Outcome, StartOrder


class PyslurmTransport(SlurmCliTransport):
    """A transport that calls Slurm's library in a child process.

    `history_deadline_s` applies to the accounting database, and `deadline_s` to everything else. `why` is the reason
    for choosing this transport.
    """

    name = "pyslurm"
    starts_in_one_change = True
    reader: PyslurmReader

    def __init__(
        self,
        deadline_s: float = 10.0,
        history_deadline_s: float = 60.0,
        why: str = "",
        reader: PyslurmReader | None = None,
        budget: SlurmRpcTokenBucket | None = None,
    ) -> None:
        budget = budget or SlurmRpcTokenBucket()
        reader = reader or PyslurmReader(
            PyslurmClient(), deadline_s=deadline_s, history_deadline_s=history_deadline_s, budget=budget
        )
        super().__init__(deadline_s, history_deadline_s, why, reader, budget)

    @property
    @override
    def child_starts(self) -> int:
        return self.reader.client.starts

    @override
    def not_ready_reason(self) -> str | None:
        return self.reader.client.not_ready_reason()

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


RELEASE_PRIORITY = 0xFFFFFFFF
"""Priority INFINITE, which releases a held job. Slurm then computes the job's priority."""


class PyslurmJobActions(ScontrolJobActions):
    """Actions on single jobs with a pyslurm child. scontrol does what pyslurm cannot.

    After a change without an answer, no further change is sent in the same batch.
    """

    alone_below = COMMANDS_PER_READING  # reading all jobs costs as much as ten single readings
    _reader: PyslurmReader

    def __init__(
        self,
        reader: PyslurmReader,
        session: ScontrolSession,
        deadline_s: float,
        plugin: SubmitPluginCapability | None = None,
        epoch: int = 0,
    ) -> None:
        super().__init__(reader, session, plugin, epoch)
        self._deadline_s = deadline_s
        self._over = ""

    @override
    def read_job(self, number: int) -> SlurmJob:
        try:
            return call_or_raise_controller_error(lambda: self._reader.read_job(number))
        except ControllerCallError as error:
            if isinstance(error.__cause__, CommandRefused):
                raise JobCommandRefused(str(error)) from error
            raise

    @override
    def start(self, job: SlurmJob, order: StartOrder) -> None:
        """Start the job. pyslurm cannot change the number of nodes, so scontrol sets it before the release."""
        settings, node_count = order.settings, format_node_count(order)
        if node_count:
            label = slurm_job_ids.format_job_id(order.job_id)
            if text := self._update(f"update JobId={label} NumNodes={node_count}"):
                raise ControllerCallError(text, lost=may_command_have_taken_effect(text))
        changes: dict[str, Any] = {"required_nodes": [name for name, _ in order.nodes], "priority": RELEASE_PRIORITY}
        if settings.tasks_per_node:
            changes["ntasks_per_node"] = settings.tasks_per_node
        if settings.nice is not None:
            changes["nice"] = settings.nice
        if settings.partition:
            changes["partitions"] = settings.partition
        try:
            self._modify(job, **changes)
        except ControllerCallError as error:
            if not node_count or error.lost:
                raise
            raise ControllerCallError(f"not pinned, but NumNodes={node_count} is set: {error}", lost=True) from error

    @override
    def hold(self, job: SlurmJob) -> None:
        self._modify(job, priority=0)

    @override
    def release(self, jobs: Mapping[int, SlurmJob]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for id, job in jobs.items():
            try:
                self._modify(job, priority=RELEASE_PRIORITY)
            except ControllerCallError as error:
                outcomes.append(Outcome(id, "unknown" if error.lost else "refused", str(error), error.code))
            else:
                outcomes.append(Outcome(id, "done"))
        return outcomes

    def _modify(self, job: SlurmJob, **changes: Any) -> None:
        if self._over:
            raise make_not_sent_error(self._over)
        if self._is_fenced:
            request = f"bridge:set{self._fence}"
            fenced = {**changes, "partitions": "/".join([request, changes.get("partitions", "")]).rstrip("/")}
            try:
                self._send_changes(job, fenced)
            except ControllerCallError as error:
                if error.lost or INVALID_PARTITION_ERROR not in str(error):
                    raise
                self._plugin.work = False
            else:
                return
        self._send_changes(job, changes)

    def _send_changes(self, job: SlurmJob, changes: dict[str, Any]) -> None:
        try:
            self._reader.client.call("modify", self._deadline_s, number=job.id, changes=changes)
        except BackendStarting as error:
            raise make_not_sent_error(str(error)) from error
        except CommandRefused as error:
            raise ControllerCallError(str(error), lost=False) from error
        except BackendError as error:
            if isinstance(error, BackendTimeout):
                self._over = str(error)
            raise ControllerCallError(str(error), lost=True) from error


MIN_JOBS = 1_000
"""Minimum number of jobs for a trial. A reading of fewer jobs is cheap with either transport."""
START_LIMIT_S = 120.0
"""Seconds in which pyslurm's process must become ready. Cycles do not wait for it."""


def is_pyslurm_installed() -> bool:
    """Return whether pyslurm can be found, without importing it."""
    return importlib.util.find_spec("pyslurm") is not None


@dataclass(slots=True)
class TransportTrial:
    """A trial of pyslurm beside Slurm's commands."""

    commands: SlurmCliTransport
    pyslurm: PyslurmTransport
    clock: Callable[[], float] = time.monotonic
    """A function that returns a monotonic time in seconds."""
    _until_s: float | None = None
    _is_pyslurm_warm: bool = False

    def choose_transport(self, jobs: int) -> SlurmCliTransport | None:
        """Return the transport to use, or None until both can be compared. The other transport is closed.

        A reading of this number of jobs with Slurm's commands has just ended.
        """
        if jobs < MIN_JOBS:
            return self._choose_commands(f"{jobs:,} jobs; pyslurm is tried for at least {MIN_JOBS:,}")
        if self._until_s is None:
            self._until_s = self.clock() + START_LIMIT_S
        try:
            is_ready = self.pyslurm.not_ready_reason() is None
            if is_ready:
                self.pyslurm.read()
        except BackendError as error:
            return self._choose_commands(f"pyslurm failed: {error}")
        if not is_ready and self.clock() >= self._until_s:
            return self._choose_commands(f"pyslurm was not ready within {START_LIMIT_S:g} s")
        if not self._is_pyslurm_warm:
            self._is_pyslurm_warm = is_ready
            return None

        commands_s, pyslurm_s = self.commands.reading_s, self.pyslurm.reading_s
        figures = f"one reading of {jobs:,} jobs took {commands_s:.2f} s with cli and {pyslurm_s:.2f} s with pyslurm"
        if commands_s <= pyslurm_s:
            return self._choose_commands(figures)
        self.commands.close()
        self.pyslurm.why = f"auto: {figures}"
        return self.pyslurm

    def _choose_commands(self, why: str) -> SlurmCliTransport:
        self.pyslurm.close()
        self.commands.why = f"auto: {why}"
        return self.commands
