"""Query the Slurm of this machine for its nodes. Only this module of the simulator starts a program."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.systems.slurm_node_parsing import SCONTROL

LIMIT_S = 120
"""Time limit in seconds for a Slurm command."""
INTO_A_FILE = "run `{command} > nodes.txt` on a host with Slurm, and pass that file"


def command_output(
    command: str = SCONTROL,
    environment: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
    elsewhere: str = INTO_A_FILE,
) -> str:
    """Return the output of a Slurm command, run with additional environment variables.

    Raise `InputError` if the command is missing (with the advice `elsewhere`), fails, or exceeds `limit_s`.
    """
    try:
        done = subprocess.run(
            command.split(), capture_output=True, timeout=limit_s, encoding="utf-8", errors="replace", check=False,
            env={**os.environ, **(environment or {})},
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
