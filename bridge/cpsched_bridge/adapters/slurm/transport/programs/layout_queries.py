"""Query running jobs' layouts with scontrol, because pyslurm's own call crashes.

`scontrol --details` shows a job's layout, that is, its resources on each node. The layout is queried once, when the job
is first seen on its nodes.

scontrol prints job names and comments unchanged. The parsed lines are those that users cannot imitate without a line
break. A layout is valid only if the job has exactly one record, whose parts list each of the job's nodes once. If
another job imitates a job's record, the job is queried alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from cpsched.slurm_text.gres import parse_gres
from cpsched.slurm_text.hostlist import expand_hostlist
from cpsched.slurm_text.jobs import NodeShare, SlurmJob
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.transport.programs.slurm_program_calls import run_and_read_output

SHOW_JOB_COMMAND = ["scontrol", "--details", "show", "job"]
MAX_SINGLE_QUERIES = 5
"""Maximum number of jobs that are queried one by one. For a larger number, one query for all jobs comes first."""

Layout = tuple[NodeShare, ...]
_RECORD = re.compile(r"^JobId=(\d{1,12}) ", re.MULTILINE)
_SPAN = r"\d{1,6}(?:-\d{1,6})?"
_PART = re.compile(
    rf"^ +Nodes=(\S+) CPU_IDs=({_SPAN}(?:,{_SPAN})*) Mem=(\d{{1,15}}) GRES=(\S*) *$", re.MULTILINE | re.ASCII
)


class CachingJobLayoutReader:
    """A cache of the layouts of multi-node jobs.

    `show` runs a command and returns its output, or None if the command fails.
    """

    def __init__(self, show: Callable[[list[str]], str | None] = run_and_read_output) -> None:
        self._show = show
        self._known: dict[int, tuple[object, Layout | None]] = {}

    def read(self, jobs: Iterable[SlurmJob]) -> dict[int, Layout]:
        """Return the readable layouts of the multi-node jobs among `jobs`, by job number."""
        keys = {  # the values change after a requeue or the loss of a node
            job.id: (job.num_nodes, job.cpus, job.start_time)
            for job in jobs
            if job.state in slurm_states.OCCUPYING_STATES and job.num_nodes > 1
        }
        self._known = {number: known for number, known in self._known.items() if keys.get(number) == known[0]}
        missing = keys.keys() - self._known.keys()
        if len(missing) > MAX_SINGLE_QUERIES and (shown := self._show(SHOW_JOB_COMMAND)) is not None:
            found = parse_layouts(shown, {number: keys[number][0] for number in missing})
            self._known |= {number: (keys[number], layout) for number, layout in found.items()}
        for number in sorted(keys.keys() - self._known.keys())[:MAX_SINGLE_QUERIES]:
            shown = self._show([*SHOW_JOB_COMMAND, str(number)])
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
            found[number] = None if number in found else _parse_layout_parts(record, nodes[number])
    return {number: layout for number, layout in found.items() if layout is not None}


def _parse_layout_parts(record: str, count: int) -> Layout | None:
    """Return the parts of one record.

    Return None unless they list `count` different nodes.
    """
    try:
        parts = tuple(
            NodeShare(nodes, _count_ids(ids), int(mib), _parse_gres_text(gres))
            for nodes, ids, mib, gres in _PART.findall(record)
        )
        names = [name for part in parts for name in expand_hostlist(part.nodes)]
    except ValueError:
        return None
    return parts if len(names) == len(set(names)) == count else None


def _count_ids(ids: str) -> int:
    """Return the number of ids in a list such as "0-3,8"."""
    ends = [piece.partition("-") for piece in ids.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def _parse_gres_text(text: str) -> dict[str, int]:
    """Return the counts of generic resources.

    Example: "gpu:a100:2(IDX:0-1)" becomes {"gpu:a100": 2}.
    """
    found: dict[str, int] = {}
    for each in parse_gres(text):
        found[each.key] = found.get(each.key, 0) + each.count
    return found
