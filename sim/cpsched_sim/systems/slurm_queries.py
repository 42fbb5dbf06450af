"""Run a command of the local Slurm."""

from __future__ import annotations

import subprocess

from cpsched_sim.errors import InputError, quote_value
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
    try:
        done = subprocess.run(
            command.split(), capture_output=True, timeout=limit_s, encoding="utf-8", errors="replace", check=False,
            env=build_slurm_environment() | {"SLURM_TIME_FORMAT": time_format},
        )  # fmt: skip
    except FileNotFoundError as error:
        raise InputError(
            f"{error.filename} is not installed on this machine: {elsewhere.format(command=command)}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{command}: {error}") from error
    if done.returncode:
        raise InputError(f"{command}: exit code {done.returncode}: {quote_value(done.stderr.strip(), 500)}")
    return done.stdout
