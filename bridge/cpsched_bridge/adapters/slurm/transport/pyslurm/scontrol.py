"""Slurm's own programs, for what pyslurm cannot: clear a node list, name one task of an array, tell an AdminLevel."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from cpsched_bridge.children import kill_with_parent

SCONTROL_S = 20.0
SEARCH_S = 4.0
"""How long one call may look for the commands that scontrol complains of."""
ASKING_S = 2.5
"""How long a program may take that only tells something."""


def scontrol(commands: Sequence[str]) -> list[str]:
    """Run `commands` in one scontrol; what it complains of each of them, in their order; empty texts where of nothing.

    Few of its complaints name a job. So where it complains of a batch, both halves are run again until the culprits
    are found: commands must bear to be run twice. What is not found within `SEARCH_S` shares its batch's complaint.
    """
    return _complaints(commands, time.monotonic() + SEARCH_S)


def _complaints(commands: Sequence[str], until_s: float) -> list[str]:
    if not commands:
        return []
    complaint, may_search = _run(commands)
    if not complaint or len(commands) == 1 or not may_search or time.monotonic() > until_s:
        return [complaint] * len(commands)
    half = len(commands) // 2
    return _complaints(commands[:half], until_s) + _complaints(commands[half:], until_s)


def _run(commands: Sequence[str]) -> tuple[str, bool]:
    """What one scontrol complains of, and whether running parts of it again can tell more."""
    try:
        run = subprocess.run(
            ["scontrol"],
            input="".join(f"{command}\n" for command in commands),
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=SCONTROL_S,
            preexec_fn=kill_with_parent,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), False
    said = run.stderr if run.returncode == 0 else f"{run.stderr}\n{run.stdout.replace('scontrol: ', '')}"
    words = "; ".join(line.strip() for line in said.splitlines() if line.strip())
    return words or (f"exit status {run.returncode}" if run.returncode else ""), True


def output_of(command: list[str], timeout_s: float = ASKING_S) -> str | None:
    """What a command prints; None if it fails, or takes longer than that."""
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout if run.returncode == 0 else None
