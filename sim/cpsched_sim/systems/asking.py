"""Asks the Slurm of this machine for its nodes; nothing else of the simulator starts a program."""

from __future__ import annotations

import subprocess

from cpsched_sim.errors import Unusable, shown
from cpsched_sim.systems.slurm import SCONTROL

LIMIT_S = 120
"""How long Slurm may take to answer."""


def printed(command: str = SCONTROL) -> str:
    """What a command of Slurm prints. Raises `Unusable` where there is none, or where it fails."""
    try:
        done = subprocess.run(
            command.split(), capture_output=True, timeout=LIMIT_S, encoding="utf-8", errors="replace", check=False
        )
    except FileNotFoundError as error:
        hint = f"run `{command} > nodes.txt` where Slurm is, and name that file"
        raise Unusable(f"{error.filename} is not on this machine: {hint}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unusable(f"{command}: {error}") from error
    if done.returncode:
        raise Unusable(f"{command}: exit code {done.returncode}: {shown(done.stderr.strip(), 500)}")
    return done.stdout
