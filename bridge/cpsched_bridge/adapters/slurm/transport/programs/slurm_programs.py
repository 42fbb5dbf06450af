"""Run scontrol and scancel for changes, and any Slurm program for queries.

The result of a reading is either the answers of all programs or a `BackendError`. An answer counts only if its program
exited with status 0 and did not report that it could not reach the controller.
"""

from __future__ import annotations

import re

from cpsched_bridge.adapters.shared.adapter_errors import make_failure_error
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import (
    ControllerCallError,
    JobCommandRefused,
    make_not_sent_error,
)
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import ScontrolSession
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_sim.program_runner import CallBudget, ProgramFailure, ProgramResult, ProgramRunner, build_slurm_environment

SCONTROL_TIMEOUT_S = 20.0
"""Time limit of `run_scancel` in seconds."""
QUERY_TIMEOUT_S = 2.5
"""Time limit of a query in seconds."""
_RUNNER = ProgramRunner(build_slurm_environment)


def send_and_read_error(session: ScontrolSession, command: str) -> str:
    """Send a command. Return the error, or "" on success.

    The error is scontrol's, or the reason for a missing answer.
    """
    try:
        return session.send_command(command)
    except (ControllerCallError, JobCommandRefused) as error:
        return str(error)


def send_or_raise(session: ScontrolSession, command: str) -> None:
    """Send a command to scontrol.

    Raise `ControllerCallError` if it fails, or if there is no answer.
    """
    if text := session.send_command(command):
        raise ControllerCallError(text, lost=may_command_have_taken_effect(text))


def may_command_have_taken_effect(text: str) -> bool:
    """Return whether the command may have taken effect despite this error.

    Only the job's state then shows whether it did.
    """
    text = text.lower()
    return any(word in text for word in ("contact", "connect", "timed out", "zero bytes", "communication", "socket"))


def run_scancel(selector: str) -> None:
    """Cancel a job. Raise `ControllerCallError` if scancel fails or does not answer."""
    result = _RUNNER.run(["scancel", selector], SCONTROL_TIMEOUT_S)
    if result.failure in (ProgramFailure.NOT_FOUND, ProgramFailure.CANNOT_RUN):
        raise make_not_sent_error(f"scancel: {result.complaint}")
    if result.failure is not None:
        raise ControllerCallError(f"scancel: {result.complaint}", lost=True)
    if result.status:
        raise ControllerCallError(result.error, lost=may_command_have_taken_effect(result.complaint))


def run_and_read_output(command: list[str], timeout_s: float = QUERY_TIMEOUT_S) -> str | None:
    """Return a command's output, or None if it fails or exceeds the time limit."""
    result = _RUNNER.run(command, timeout_s)
    return result.output if result.has_succeeded else None


_UNREACHABLE_ERRORS = re.compile(
    r"unable to contact|unable to establish|connection refused|zero bytes|socket timed out|_load_\w+ error|\berror:",
    re.IGNORECASE,
)
_REFUSED_ERRORS = re.compile(
    r"incompatible version|access/permission denied|protocol authentication|invalid .*option", re.I
)


def make_slurm_runner(budget: CallBudget | None = None) -> ProgramRunner:
    """Return the runner of queries, whose errors are `BackendError`. `budget` counts the calls of slurmctld."""
    return ProgramRunner(build_slurm_environment, interpret_result, budget)


def interpret_result(result: ProgramResult) -> BackendError | None:
    """Return the error that a query's result indicates.

    Return None on success. A program that reports that it could not reach the controller has failed, regardless of its
    exit status.
    """
    if result.has_succeeded and not _UNREACHABLE_ERRORS.search(result.complaint):
        return None
    if result.failure is not None:
        return make_failure_error(result)
    text = f"{result.command}: {result.error}"
    if _REFUSED_ERRORS.search(result.complaint):
        return CommandRefused(text)
    if "timed out" in result.complaint.lower():
        return BackendTimeout(text)
    return BackendUnavailable(text)
