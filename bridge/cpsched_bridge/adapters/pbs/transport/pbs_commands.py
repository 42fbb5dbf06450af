"""The commands: a start, the opening and closing of a queue, a move into another one, the claim, points of advice.

All words are checked before they are sent: nothing that a user chose becomes more than one word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cpsched_bridge.adapters.pbs.transport.pbs_programs import Programs
from cpsched_bridge.adapters.pbs.transport.pbs_reader import JOB
from cpsched_bridge.errors import CommandRefused

QUEUE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
PLACED = re.compile(r"\([A-Za-z0-9\[\]._,-]+(?::[A-Za-z][\w-]*=[\w.]+)+\)(?:\+\([^()\s;|&'\"`$\\]+\))*", re.ASCII)
RESOURCE = re.compile(r"[a-z_]{1,64}", re.ASCII)
CLAIM = re.compile(r"[0-9a-f]{1,2000}", re.ASCII)


class PbsCommands:
    """Sends commands; each raises `CommandRefused` where PBS refused it, `BackendTimeout` where nobody can tell."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs

    def run(self, job: str, placed: str, within_s: float) -> None:
        """Run a job on these vnodes now. PBS checks nothing of it: whoever calls this has."""
        self._programs.command(["qrun", "-H", _checked(PLACED, placed), _checked(JOB, job)], within_s)

    def set_started(self, queue: str, started: bool) -> None:
        """Let PBS's own scheduler start the jobs of a queue, or not."""
        self._programs.command(["qmgr", "-c", f"set queue {_checked(QUEUE, queue)} started = {started}"])

    def look(self) -> None:
        """Have PBS's own scheduler look at its queues now. A server that did not schedule would begin to."""
        self._programs.command(["qmgr", "-c", "set server scheduling = True"])

    def move(self, job: str, queue: str) -> None:
        """Move a waiting job to another queue."""
        self._programs.command(["qmove", _checked(QUEUE, queue), _checked(JOB, job)])

    def points(self, jobs: Sequence[str], resource: str, points: int, within_s: float) -> None:
        """Let waiting jobs, or whole arrays, have so many points. PBS has no way to take the resource itself off."""
        wish = f"{_checked(RESOURCE, resource)}={int(points)}"
        self._programs.command(["qalter", "-l", wish, *(_checked(JOB, job) for job in jobs)], within_s)

    def walltime(self, job: str, seconds: int, within_s: float) -> None:
        """Give a waiting job this walltime, as PBS's own scheduler does right before it starts a job that shrinks."""
        self._programs.command(["qalter", "-l", f"walltime={int(seconds)}", _checked(JOB, job)], within_s)

    def claim(self, resource: str, words: str) -> None:
        """Write the claim at the server."""
        self._programs.command(
            ["qmgr", "-c", f'set server resources_available.{resource} = "{_checked(CLAIM, words)}"']
        )

    def disclaim(self, resource: str) -> None:
        """Take it off."""
        self._programs.command(["qmgr", "-c", f"unset server resources_available.{resource}"])


def _checked(rule: re.Pattern[str], words: str) -> str:
    if not rule.fullmatch(words):
        raise CommandRefused(f"cannot be sent to PBS: {words[:80]!r}")
    return words
