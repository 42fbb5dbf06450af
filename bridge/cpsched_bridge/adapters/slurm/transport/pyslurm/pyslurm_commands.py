"""Change single jobs with pyslurm, in one change for a start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_commands import (
    INVALID_PARTITION_ERROR,
    ScontrolJobActions,
    SubmitPluginCapability,
    call_or_raise_controller_error,
    format_node_count,
)
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import (
    ControllerCallError,
    JobCommandRefused,
    make_not_sent_error,
)
from cpsched_bridge.adapters.slurm.transport.programs.job_commands import COMMANDS_PER_READING
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import ScontrolSession
from cpsched_bridge.adapters.slurm.transport.programs.slurm_program_calls import may_command_have_taken_effect
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_reader import PyslurmReader
from cpsched_bridge.errors import BackendError, BackendStarting, BackendTimeout, CommandRefused
from cpsched_bridge.ports import Outcome, StartOrder

RELEASE_PRIORITY = 0xFFFFFFFF
"""Priority INFINITE, which releases a held job. Slurm then computes the job's priority."""


class PyslurmJobActions(ScontrolJobActions):
    """Actions on single jobs with a pyslurm child. scontrol does what pyslurm cannot.

    After a change without an answer, no further change is sent in the same batch.
    """

    alone_below = COMMANDS_PER_READING  # reading all jobs costs as much as ten single readings

    def __init__(
        self,
        reader: PyslurmReader,
        session: ScontrolSession,
        deadline_s: float,
        plugin: SubmitPluginCapability | None = None,
        epoch: int = 0,
    ) -> None:
        super().__init__(reader, session, plugin, epoch)
        self._reader, self._deadline_s = reader, deadline_s
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
