"""Slurm's own programs: scontrol told one change after the other, and programs that only tell something."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from cpsched_bridge.adapters.slurm.transport.programs.command_rules import CallError, RefusedCommand
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import ScontrolSession
from cpsched_bridge.adapters.slurm.transport.programs.slurm_environment import environment

SCONTROL_S = 20.0
"""How long one call to `scontrol` may take, for all of its commands together."""
QUERY_TIMEOUT_S = 2.5
"""How long a program may take that only tells something."""


def scontrol(commands: Sequence[str]) -> list[str]:
    """Run `commands` in one scontrol; what it complains of each, in their order; empty texts where of nothing."""
    with ScontrolSession(SCONTROL_S) as dialogue:
        return [complaint(dialogue, command) for command in commands]


def complaint(dialogue: ScontrolSession, command: str) -> str:
    """What scontrol complains of a command, or why it was not told, or did not answer; empty if nothing is wrong."""
    try:
        return dialogue.tell(command)
    except (CallError, RefusedCommand) as error:
        return str(error)


def unreachable(words: str) -> bool:
    """Whether a complaint means that the command may have been lost on its way: state must tell what became of it."""
    words = words.lower()
    return any(word in words for word in ("contact", "connect", "timed out", "zero bytes", "communication", "socket"))


def output_of(command: list[str], timeout_s: float = QUERY_TIMEOUT_S) -> str | None:
    """What a command prints; None if it fails, or takes longer than that."""
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout if run.returncode == 0 else None
