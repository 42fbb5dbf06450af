"""Change jobs with scontrol.

scontrol cannot pin and release in one change. It does not accept a priority of INFINITE (`parse_uint32` in Slurm's
src/common/proc_args.c, unchanged from 22.05 to 26.05), and its `release` sets nothing else. The submit plugin can: it
turns the partition `bridge:start/NODES` into a single change that pins and releases, which costs slurmctld one call
instead of four. Without the plugin, slurmctld rejects that partition and changes nothing.

A start without the plugin consists of two changes of a held job: the pin and, once the pin has succeeded, the release.
A crash between the changes leaves the job held and pinned. The job is never released without a pin.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_bridge.adapters.slurm.transport.programs import job_command_rules
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import (
    ControllerCallError,
    JobCommandRefused,
    has_lua_submit_plugin,
)
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import ScontrolSession
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import (
    may_command_have_taken_effect,
    send_and_read_error,
    send_or_raise,
)
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import Outcome, OutcomeCode, Result, StartOrder

T = TypeVar("T")
NODE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)
"""Pattern of a single node name, without list syntax, blanks, quotes, equals signs or line breaks."""
INVALID_PARTITION_ERROR = "Invalid partition name"
"""scontrol's error for a start in one change without the plugin."""
MAX_RELEASES_PER_CALL = 50
"""Maximum number of jobs in one `release`. Each job costs one slurmctld call."""


@dataclass(slots=True)
class SubmitPluginCapability:
    """A record of whether the submit plugin carries out requests that the bridge makes with a job's partition.

    A request is `bridge:ACTION:EPOCH/ARGUMENTS`, see `job_submit.lua`.
    """

    work: bool = True
    """False after the first rejection: the plugin is too old or does not accept this user as the bridge."""


class ScontrolJobActions:
    """Actions on single jobs with scontrol.

    They use one scontrol process for all changes in a batch. They raise `ControllerCallError` if the controller fails,
    and `JobCommandRefused` for an invalid order.
    """

    alone_below = 0  # a query for twenty jobs takes one process, as does a query for one job
    """Batch size below which jobs are read one by one. Other batches read `COMMANDS_PER_READING` jobs at a time."""

    def __init__(
        self,
        reader: SlurmCliReader,
        session: ScontrolSession,
        plugin: SubmitPluginCapability | None = None,
        epoch: int = 0,
    ) -> None:
        self._reader = reader
        self._session = session
        self._plugin = plugin or SubmitPluginCapability()
        self._fence = f":{epoch}" if epoch else ""
        self._guarded = False

    @property
    def _is_fenced(self) -> bool:
        """Whether changes carry the epoch."""
        return bool(self._fence) and self._guarded and self._plugin.work

    def has_submit_plugin(self) -> bool:
        """Return whether the submit plugin is loaded."""
        self._guarded = has_lua_submit_plugin(
            call_or_raise_controller_error(self._reader.read_config).job_submit_plugins
        )
        return self._guarded

    def read_jobs(self, numbers: Collection[int]) -> Sequence[SlurmJob]:
        """Return newly read records of the jobs and arrays with these numbers.

        The result may include other jobs. Jobs that slurmctld has purged are missing.
        """
        return call_or_raise_controller_error(lambda: self._reader.read_jobs(numbers))

    def read_job(self, number: int) -> SlurmJob:
        """Return a newly read record of one job.

        Raise `ControllerCallError` or `JobCommandRefused` if slurmctld has purged the job.
        """
        found = [job for job in self.read_jobs([number]) if job.id == number]
        if not found:
            raise JobCommandRefused("is unknown to slurmctld")
        return found[0]

    def start(self, job: SlurmJob, order: StartOrder) -> None:
        """Start the job with the number in the order.

        An array task is addressed by its index.
        """
        for name, _ in order.nodes:
            if not NODE_NAME_PATTERN.fullmatch(name):
                raise JobCommandRefused(f"{name!r} is not a node name")
        names, node_count = ",".join(name for name, _ in order.nodes), format_node_count(order)
        label, settings = slurm_job_ids.format_job_id(order.job_id), order.settings
        pin = [f"Partition={settings.partition}"] if settings.partition else []
        pin.append(f"ReqNodeList={names}")
        if node_count:
            pin.append(f"NumNodes={node_count}")
        others: list[str] = []
        if settings.tasks_per_node:
            others.append(f"TasksPerNode={settings.tasks_per_node}")
        if settings.cpus_per_node:
            others.append(f"MinCPUsNode={settings.cpus_per_node} NumCPUs={settings.cpus}")
        if settings.nice is not None:
            others.append(f"Nice={settings.nice}")

        wish = "/".join([f"bridge:start{self._fence}", names, node_count, settings.partition]).rstrip("/")
        if self._guarded and self._plugin.work:
            try:
                send_or_raise(self._session, " ".join([f"update JobId={label} Partition={wish}", *others]))
                return
            except ControllerCallError as error:
                if error.lost or INVALID_PARTITION_ERROR not in str(error):
                    raise
                self._plugin.work = False
        send_or_raise(self._session, " ".join([f"update JobId={label}", *pin, *others]))
        try:
            send_or_raise(self._session, f"release {label}")
        except ControllerCallError as error:
            raise ControllerCallError(f"pinned, but possibly not released: {error}", lost=True) from error

    def hold(self, job: SlurmJob) -> None:
        """Hold a pending job."""
        selector = job_command_rules.format_job_selector(job)
        if not self._is_fenced:
            send_or_raise(self._session, f"hold {selector}")
        elif text := self._update(f"update JobId={selector} Priority=0"):
            raise ControllerCallError(text, lost=may_command_have_taken_effect(text))

    def _update(self, command: str) -> str:
        """Send an update that carries the epoch, if possible. Return the error, or ""."""
        if self._is_fenced:
            text = send_and_read_error(self._session, add_request(command, f"bridge:set{self._fence}"))
            if INVALID_PARTITION_ERROR not in text:
                return text
            self._plugin.work = False
        return send_and_read_error(self._session, command)

    def release(self, jobs: Mapping[int, SlurmJob]) -> list[Outcome]:
        """Release many jobs with one command, but each array record with its own command.

        The identifiers of array records may be long.
        """
        plain = [id for id, job in jobs.items() if not job.array_id]
        parts = [plain[at : at + MAX_RELEASES_PER_CALL] for at in range(0, len(plain), MAX_RELEASES_PER_CALL)]
        parts += [[id] for id, job in jobs.items() if job.array_id]
        if self._is_fenced:
            parts = [[id] for id in jobs]
        outcomes = {id: Outcome(id, "done") for id in jobs}
        for part in parts:
            outcomes |= self._release_chunk({id: jobs[id] for id in part})
        return list(outcomes.values())

    def _release_chunk(self, jobs: Mapping[int, SlurmJob]) -> dict[int, Outcome]:
        """Release these jobs with one command, and return the outcomes of jobs that were not released.

        After an error, read which jobs are still held.
        """
        code: OutcomeCode = ""
        try:
            selector = ",".join(map(job_command_rules.format_job_selector, jobs.values()))
            text = INVALID_PARTITION_ERROR
            if self._is_fenced:
                text = self._session.send_command(f"update JobId={selector} Partition=bridge:release{self._fence}")
                self._plugin.work = INVALID_PARTITION_ERROR not in text
            if INVALID_PARTITION_ERROR in text:
                text = self._session.send_command(f"release {selector}")
            lost = may_command_have_taken_effect(text)
        except (ControllerCallError, JobCommandRefused) as error:
            text, lost, code = str(error), isinstance(error, ControllerCallError) and error.lost, error.code
        except ValueError as error:
            text, lost = str(error), False
        if not text:
            return {}
        still = {job.id for job in jobs.values()}
        if len(jobs) > 1 and code != "not_sent":
            with contextlib.suppress(ControllerCallError):
                still = {job.id for job in self.read_jobs(sorted(still)) if job.priority == 0}
        result: Result = "unknown" if lost else "refused"
        return {id: Outcome(id, result, text, code) for id, job in jobs.items() if job.id in still}

    def requeue(self, selector: str) -> None:
        """Requeue a running job."""
        send_or_raise(self._session, f"requeue {selector}")

    def run_scontrol(self, commands: Sequence[str]) -> list[str]:
        """Run scontrol commands, and return the error of each, or "" on success."""
        return [
            self._update(command)
            if command.startswith("update JobId=")
            else send_and_read_error(self._session, command)
            for command in commands
        ]


def add_request(command: str, request: str) -> str:
    """Return an update with a request to the submit plugin in front of the partition that it sets, if any."""
    changed, count = re.subn(r"(?<= Partition=)(?=\S)", f"{request}/", command)
    return changed if count else f"{command} Partition={request}"


def format_node_count(order: StartOrder) -> str:
    """Return scontrol's text for the number of nodes that a start sets, or "".

    In newer Slurm releases, a single number would also become the maximum, which cannot be removed again. The text is
    therefore a range.
    """
    count, most = len(order.nodes), order.settings.max_nodes
    if not order.settings.sets_node_count:
        return ""
    return f"{count}-{count if most is None else max(count, most)}"


def call_or_raise_controller_error(ask: Callable[[], T]) -> T:
    """Return the result of a reading. Raise `ControllerCallError` instead of a `BackendError`."""
    try:
        return ask()
    except BackendError as error:
        raise ControllerCallError(str(error), lost=True) from error
