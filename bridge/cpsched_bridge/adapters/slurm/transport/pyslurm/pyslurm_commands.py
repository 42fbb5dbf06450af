"""Execute commands for single jobs with pyslurm, for `programs.job_commands`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.translation.lease_reservation import LEASE_RESERVATION_NAME
from cpsched_bridge.adapters.slurm.transport import CommandReply
from cpsched_bridge.adapters.slurm.transport.programs import job_command_rules
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import (
    ControllerCallError,
    JobCommandRefused,
    has_lua_submit_plugin,
)
from cpsched_bridge.adapters.slurm.transport.programs.job_commands import (
    COMMANDS_PER_READING,
    SingleJobActions,
    SlurmOrderExecutor,
)
from cpsched_bridge.adapters.slurm.transport.programs.lease_commands import LeaseReservationCommands
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import ScontrolSession
from cpsched_bridge.adapters.slurm.transport.programs.slurm_program_calls import (
    SCONTROL_TIMEOUT_S,
    may_command_have_taken_effect,
    run_scontrol,
    send_or_raise,
)
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_rows import read_field_value, to_checked_record

RELEASE_PRIORITY = 0xFFFFFFFF
"""Priority INFINITE, which releases a held job. Slurm then computes the job's priority."""


class PyslurmJobActions(SingleJobActions):
    """Actions that pyslurm performs on single jobs."""

    alone_below = COMMANDS_PER_READING  # reading all jobs costs as much as ten single readings

    def __init__(self, pyslurm: Any) -> None:
        self._pyslurm = pyslurm
        self.complaints: dict[int, str] = {}
        """Slurm's reason for rejecting an order's number of nodes, by job number."""

    @override
    def has_submit_plugin(self) -> bool:
        with self._translate_rpc_errors():
            return has_lua_submit_plugin(self._pyslurm.slurmctld.Config.load().job_submit_plugins)

    @override
    def read_jobs(self, numbers: Collection[int]) -> list[Record]:
        """Read all jobs, and return the records of the requested ones."""
        with self._translate_rpc_errors():
            loaded = self._pyslurm.Jobs.load().values()
        return [to_checked_record(job) for job in loaded if job.id in numbers or job.array_id in numbers]

    @override
    def read_job(self, number: int) -> Record:
        with self._translate_rpc_errors():
            return to_checked_record(self._pyslurm.Job.load(number))

    @override
    def start(self, job: Record, order: Record) -> None:
        if complaint := self.complaints.get(order["job"]):
            raise JobCommandRefused(f"Slurm rejected the job's number of nodes: {complaint}")
        changes: Record = {"required_nodes": order["nodes"], "priority": RELEASE_PRIORITY}
        if order["tasks_per_node"]:
            changes["ntasks_per_node"] = order["tasks_per_node"]
        if "nice" in order:
            changes["nice"] = order["nice"]
        if "partition" in order:
            changes["partitions"] = order["partition"]
        self._modify_job(job, **changes)

    @override
    def hold(self, job: Record) -> None:
        self._modify_job(job, priority=0)

    @override
    def release(self, jobs: Sequence[Record]) -> list[CommandReply]:
        answers: list[CommandReply] = []
        for job in jobs:
            try:
                self._modify_job(job, priority=RELEASE_PRIORITY)
            except ControllerCallError as error:
                answers.append(CommandReply("unknown" if error.lost else "refused", str(error), error.code))
            else:
                answers.append(CommandReply("done"))
        return answers

    @override
    def requeue(self, selector: str) -> None:
        with ScontrolSession(SCONTROL_TIMEOUT_S) as session:
            send_or_raise(session, f"requeue {selector}")

    @override
    def run_scontrol(self, commands: Sequence[str]) -> list[str]:
        return run_scontrol(commands)

    def _modify_job(self, job: Record, **changes: Any) -> None:
        with self._translate_rpc_errors():
            self._pyslurm.Job(job["id"]).modify(self._pyslurm.JobSubmitDescription(**changes))

    @contextmanager
    def _translate_rpc_errors(self) -> Iterator[None]:
        try:
            yield
        except self._pyslurm.RPCError as error:
            raise ControllerCallError(str(error), lost=may_command_have_taken_effect(str(error))) from error


class PyslurmOrderExecutor(SlurmOrderExecutor):
    """An executor that sets the number of nodes with scontrol before a start.

    pyslurm cannot change the number of nodes.
    """

    def __init__(self, pyslurm: Any) -> None:
        self._own = PyslurmJobActions(pyslurm)
        super().__init__(self._own)

    @override
    def start(self, orders: Sequence[Record]) -> list[CommandReply]:
        """Set the orders' `num_nodes` with one scontrol process, then start the jobs."""
        numbers = self._find_controller_job_numbers(orders, separate=True)
        counted = [order for order in orders if order.get("num_nodes")]
        outcomes = self._run_for_each_job(
            lambda job, _: job_command_rules.require_held(job, self._guarded), counted, numbers
        )
        held = [order for order, each in zip(counted, outcomes, strict=True) if each.result == "done"]
        output = run_scontrol(
            [
                f"update JobId={slurm_job_ids.format_job_id(order['job'])} NumNodes={order['num_nodes']}"
                for order in held
            ]
        )
        self._own.complaints = {
            order["job"]: complaint for order, complaint in zip(held, output, strict=True) if complaint
        }
        return self._run_for_each_job(self._start_job, orders, numbers)


def make_lease_commands(pyslurm: Any) -> LeaseReservationCommands:
    """Return the commands for the lease reservation, which read it with pyslurm."""

    def read_lease_text() -> str | None:
        found = (each for each in pyslurm.Reservations.load().values() if each.name == LEASE_RESERVATION_NAME)
        return next((read_field_value(each, "comment") or "" for each in found), None)

    def find_any_node() -> str:
        return str(min(node.name for node in pyslurm.Nodes.load().values()))

    return LeaseReservationCommands(read_lease_text, find_any_node, run_scontrol)
