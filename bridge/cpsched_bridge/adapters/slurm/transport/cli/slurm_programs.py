"""Run several of Slurm's programs in parallel under one deadline.

The result is either the answers of all programs or a `BackendError`. An answer counts only if its program exited
with status 0 and did not report that it could not reach the controller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cpsched_bridge.adapters.shared import parallel_commands
from cpsched_bridge.adapters.shared.parallel_commands import format_error_output
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_sim.slurm_environment import build_slurm_environment

_UNREACHABLE_ERRORS = re.compile(
    r"unable to contact|unable to establish|connection refused|zero bytes|socket timed out|_load_\w+ error|\berror:",
    re.IGNORECASE,
)
_REFUSED_ERRORS = re.compile(
    r"incompatible version|access/permission denied|protocol authentication|invalid .*option", re.I
)


class ParallelSlurmPrograms(parallel_commands.ParallelCommands):
    """A set of Slurm programs in their own environment, with checked error output."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        deadline_s: float,
        typed: Mapping[str, str] | None = None,
        most_s: float = 0.0,
    ) -> None:
        super().__init__(commands, deadline_s, build_slurm_environment(), interpret_exit, typed, most_s)


def interpret_exit(command: str, status: int, complaint: str) -> BackendError | None:
    """Return the error that an exit status and error output indicate.

    Return None on success. A program that reports that it could not reach the controller has failed, regardless of its
    exit status.
    """
    if status == 0 and not _UNREACHABLE_ERRORS.search(complaint):
        return None
    text = format_error_output(complaint, status)
    if _REFUSED_ERRORS.search(complaint):
        return CommandRefused(f"{command}: {text}")
    if "timed out" in complaint.lower():
        return BackendTimeout(f"{command}: {text}")
    return BackendUnavailable(f"{command}: {text}")
