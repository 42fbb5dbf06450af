"""Query the layouts of running jobs with scontrol, because pyslurm's own call crashes.

`scontrol --details` shows a job's layout, that is, its resources on each node. The layout is queried once, when the job
is first seen on its nodes.

scontrol prints names and comments of users unchanged. Only lines that a name cannot imitate without a line break are
parsed, and only if they are unambiguous: one record of the job, whose parts name each of its nodes once. If another job
imitates a job's record, the job is queried alone. A job with an inconsistent record has no layout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from cpsched.parsing.gres import parse_gres
from cpsched_bridge.adapters.slurm.slurm_records import Layout, Record
from cpsched_bridge.adapters.slurm.translation import slurm_states, task_ranges
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_calls import read_output

SHOW = ["scontrol", "--details", "show", "job"]
ONE_BY_ONE = 5
"""Maximum number of jobs that are queried one by one; more jobs share one query."""
KEY = ("num_nodes", "cpus", "start_time")
"""Fields that change if a job's nodes change because it was requeued or lost nodes."""

_RECORD = re.compile(r"^JobId=(\d{1,12}) ", re.MULTILINE)
_SPAN = r"\d{1,6}(?:-\d{1,6})?"
_PART = re.compile(
    rf"^ +Nodes=(\S+) CPU_IDs=({_SPAN}(?:,{_SPAN})*) Mem=(\d{{1,15}}) GRES=(\S*) *$", re.MULTILINE | re.ASCII
)


class JobLayoutReader:
    """A cache of the layouts of multi-node jobs.

    `show` runs a command and returns its output, or None if the command fails.
    """

    def __init__(self, show: Callable[[list[str]], str | None] = read_output) -> None:
        self._show = show
        self._known: dict[int, tuple[object, Layout | None]] = {}

    def read(self, jobs: Iterable[Record]) -> dict[int, Layout]:
        """Return the readable layouts of the multi-node jobs among `jobs`, by job number."""
        placed = {job["id"]: [job[name] for name in KEY] for job in jobs if job["state"] in slurm_states.OCCUPYING}
        keys = {number: key for number, key in placed.items() if (key[0] or 0) > 1}
        self._known = {number: known for number, known in self._known.items() if keys.get(number) == known[0]}
        missing = keys.keys() - self._known.keys()
        if len(missing) > ONE_BY_ONE and (shown := self._show(SHOW)) is not None:
            found = parse_layouts(shown, {number: keys[number][0] for number in missing})
            self._known |= {number: (keys[number], layout) for number, layout in found.items()}
        for number in sorted(keys.keys() - self._known.keys())[:ONE_BY_ONE]:
            shown = self._show([*SHOW, str(number)])
            if shown is None:
                break
            self._known[number] = (keys[number], parse_layouts(shown, {number: keys[number][0]}).get(number))
        return {number: layout for number, (_, layout) in self._known.items() if layout is not None}


def parse_layouts(text: str, nodes: Mapping[int, int]) -> dict[int, Layout]:
    """Return the unambiguous layouts in scontrol's output, by job number.

    `nodes` maps each job number to its number of nodes.
    """
    _, *pieces = _RECORD.split(text)
    found: dict[int, Layout | None] = {}
    for words, record in zip(pieces[::2], pieces[1::2], strict=True):
        number = int(words)
        if number in nodes:
            found[number] = None if number in found else _layout(record, nodes[number])
    return {number: layout for number, layout in found.items() if layout is not None}


def _layout(record: str, count: int) -> Layout | None:
    """Return the parts of one record; None unless they name `count` nodes, each once."""
    try:
        parts = [[n, _count(ids), int(mib), _gres(gres)] for n, ids, mib, gres in _PART.findall(record)]
        names = [name for part in parts for name in task_ranges.expand_hostlist(part[0])]
    except ValueError:
        return None
    return parts if len(names) == len(set(names)) == count else None


def _count(ids: str) -> int:
    """Return the number of ids in a list such as "0-3,8"."""
    ends = [piece.partition("-") for piece in ids.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def _gres(text: str) -> dict[str, int]:
    """Return the counts of generic resources: "gpu:a100:2(IDX:0-1)" becomes {"gpu:a100": 2}."""
    found: dict[str, int] = {}
    for each in parse_gres(text):
        found[each.key] = found.get(each.key, 0) + each.count
    return found
