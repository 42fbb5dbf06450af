"""Run a command of the local Slurm."""

from __future__ import annotations

from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.program_runner import ProgramFailure, ProgramRunner
from cpsched_sim.slurm_environment import UNIX_TIME_FORMAT, build_slurm_environment
from cpsched_sim.systems.slurm_node_parsing import SCONTROL_COMMAND

COMMAND_TIMEOUT_S = 120
"""Time limit in seconds for a Slurm command."""
USE_FILE_HINT = "run `{command} > nodes.txt` on a host with Slurm, and pass that file"


def run_slurm_command(
    command: str = SCONTROL_COMMAND,
    time_format: str = UNIX_TIME_FORMAT,
    limit_s: float = COMMAND_TIMEOUT_S,
    elsewhere: str = USE_FILE_HINT,
) -> str:
    """Return the output of a Slurm command, by default of `scontrol show node`.

    The caller's Slurm settings, locale and time zone do not reach the command, which prints times in `time_format`.

    Raise `InputError` if the command is missing (with the advice `elsewhere`), fails, or exceeds `limit_s`.
    """
    runner = ProgramRunner(lambda: build_slurm_environment() | {"SLURM_TIME_FORMAT": time_format})
    result = runner.run(command.split(), limit_s)
    if result.failure is ProgramFailure.NOT_FOUND:
        raise InputError(f"{result.command} is not installed on this machine: {elsewhere.format(command=command)}")
    if result.failure is not None:
        raise InputError(f"{command}: {result.complaint}")
    if result.status:
        raise InputError(f"{command}: exit code {result.status}: {quote_value(result.complaint, 500)}")
    return result.output
