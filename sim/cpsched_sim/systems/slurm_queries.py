"""Asks the Slurm of this machine for its nodes; nothing else of the simulator starts a program."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.systems.slurm_node_parsing import SCONTROL

LIMIT_S = 120
"""How long Slurm may take to answer."""
INTO_A_FILE = "run `{command} > nodes.txt` where Slurm is, and name that file"


def command_output(
    command: str = SCONTROL,
    environment: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
    elsewhere: str = INTO_A_FILE,
) -> str:
    """What a command of Slurm prints, with some more of an environment.

    Raises `InputError` where there is no such command, with what to do `elsewhere`, where it fails, or where it takes
    longer than `limit_s`.
    """
    try:
        done = subprocess.run(
            command.split(), capture_output=True, timeout=limit_s, encoding="utf-8", errors="replace", check=False,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    except FileNotFoundError as error:
        raise InputError(f"{error.filename} is not on this machine: {elsewhere.format(command=command)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{command}: {error}") from error
    if done.returncode:
        raise InputError(f"{command}: exit code {done.returncode}: {quote_value(done.stderr.strip(), 500)}")
    return done.stdout
