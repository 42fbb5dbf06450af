"""Which waiting jobs have `singleton` among their dependencies, by squeue: pyslurm loses the word until it is met.

A job is asked for once, and again when its dependencies change. squeue prints no text of a user here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.adapters.slurm.translation import states
from cpsched_bridge.adapters.slurm.transport.programs.scontrol import output_of

SHOW = ["squeue", "--noheader", "--all", "--states=PENDING", "--format=%A %E"]
_SINGLE = re.compile(r"(?:^|[,?])singleton(?:$|[(,?])")


class Singletons:
    """What squeue told of jobs with dependencies; `show` runs a command: what it prints, None where it fails."""

    def __init__(self, show: Callable[[list[str]], str | None] = output_of) -> None:
        self._show = show
        self._known: dict[int, tuple[str, bool]] = {}

    def of(self, jobs: Iterable[Record]) -> dict[int, bool]:
        """Whether `singleton` is among the dependencies, by number; without the jobs of which squeue did not tell."""
        keys = {
            job["id"]: str(job["dependencies"])
            for job in jobs
            if job["state"] == states.PENDING and job["dependencies"]
        }
        self._known = {number: known for number, known in self._known.items() if keys.get(number) == known[0]}
        if keys.keys() - self._known.keys() and (shown := self._show(SHOW)) is not None:
            told = dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)
            self._known |= {
                number: (key, _SINGLE.search(told[str(number)].strip()) is not None)
                for number, key in keys.items()
                if str(number) in told
            }
        return {number: single for number, (_, single) in self._known.items()}
