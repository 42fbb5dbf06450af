"""Run Slurm's programs in the bridge's environment.

The result is either the answers of all programs or a `BackendError`. An answer counts only if its program exited
with status 0 and did not report that it could not reach the controller.
"""

from __future__ import annotations

import re

from cpsched_bridge.adapters.shared.program_errors import make_failure_error
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_sim.program_runner import CallBudget, ProgramResult, ProgramRunner
from cpsched_sim.slurm_environment import build_slurm_environment

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
