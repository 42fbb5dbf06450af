"""What running jobs have on each of their nodes, by `scontrol --details`: pyslurm's own call for it crashes.

A job's layout is asked for once, when the job is first seen on its nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from cpsched_bridge.adapters.slurm.records import Layout
from cpsched_bridge.adapters.slurm.translation import states
from cpsched_bridge.adapters.slurm.transport.pyslurm.rows import row_of
from cpsched_bridge.adapters.slurm.transport.pyslurm.scontrol import output_of

SHOW = ["scontrol", "--details", "--oneliner", "show", "job"]
ONE_BY_ONE = 5
"""So many jobs are asked for one by one; above that, all jobs in one answer."""
KEY = ("num_nodes", "cpus", "start_time")
"""What changes where a job gets other nodes: it was requeued, or lost some of them."""

_NUMBER = re.compile(r"^JobId=(\d+)")
_PART = re.compile(r" Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)")
_GRES = re.compile(r"([\w.-]+(?::[\w.-]+)?):(\d+)(?:\([^)]*\))?")


class Layouts:
    """The layouts of jobs on several nodes; `show` runs a command and returns what it prints, None where it fails."""

    def __init__(self, show: Callable[[list[str]], str | None] = output_of) -> None:
        self._show = show
        self._known: dict[int, tuple[object, Layout]] = {}

    def of(self, jobs: Iterable[Any]) -> dict[int, Layout]:
        """The layouts of those of pyslurm's `jobs` that are on several nodes, by number, as far as they can be read."""
        placed = {job.id: row_of(job, KEY) for job in jobs if job.state in states.OCCUPYING}
        keys = {number: key for number, key in placed.items() if (key[0] or 0) > 1}
        self._known = {number: known for number, known in self._known.items() if keys.get(number) == known[0]}
        missing = keys.keys() - self._known.keys()
        asked = [[str(number)] for number in sorted(missing)] if len(missing) <= ONE_BY_ONE else [[]]
        for words in asked:
            shown = self._show([*SHOW, *words])
            if shown is None:
                break
            for number, layout in layouts_in(shown).items():
                if number in missing:
                    self._known[number] = (keys[number], layout)
        return {number: layout for number, (_, layout) in self._known.items()}


def layouts_in(text: str) -> dict[int, Layout]:
    """The layouts in what scontrol prints, a line for each job."""
    found: dict[int, Layout] = {}
    for line in text.splitlines():
        number, parts = _NUMBER.match(line), _PART.findall(line)
        if number and parts:
            found[int(number[1])] = [[nodes, _count(ids), int(mib), _gres(gres)] for nodes, ids, mib, gres in parts]
    return found


def _count(ids: str) -> int:
    """How many numbers "0-3,8" names."""
    ends = [piece.partition("-") for piece in ids.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def _gres(text: str) -> dict[str, int]:
    """ "gpu:a100:2(IDX:0-1)" as {"gpu:a100": 2}."""
    return {name: int(count) for name, count in _GRES.findall(text)}
