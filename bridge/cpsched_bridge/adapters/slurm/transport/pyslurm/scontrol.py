"""Slurm's own programs, for what pyslurm cannot: clear a node list, name one task of an array, tell an AdminLevel."""

from __future__ import annotations

import ctypes
import signal
import subprocess

SCONTROL_S = 20.0
_SET_PARENT_DEATH_SIGNAL = 1


def kill_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def scontrol(commands: list[str]) -> dict[int, str]:
    """Run `commands`, if any, in one scontrol; its complaints by job number, -1 where that cannot be told."""
    if not commands:
        return {}
    try:
        run = subprocess.run(
            ["scontrol"],
            input="".join(f"{command}\n" for command in commands),
            capture_output=True,
            text=True,
            timeout=SCONTROL_S,
            preexec_fn=kill_with_parent,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {-1: str(error)}
    complaints: dict[int, str] = {}
    for line in run.stderr.splitlines():
        number = line.rsplit(" job ", 1)[-1].split(":")[0].split("_")[0].strip()
        complaints[int(number) if number.isdigit() else -1] = line.strip()
    return complaints


def output_of(command: list[str]) -> str:
    """What a command prints; an empty text if it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SCONTROL_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout if run.returncode == 0 else ""
