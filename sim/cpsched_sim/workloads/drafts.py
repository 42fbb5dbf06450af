"""The draft of a system from whatever its owner has: Slurm itself, what Slurm printed, or a trace."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from cpsched_sim.errors import UnknownFormat, Unusable
from cpsched_sim.reading.glance import look_at
from cpsched_sim.reading.lines import lines_of
from cpsched_sim.systems import drafting, peaks
from cpsched_sim.systems.asking import printed
from cpsched_sim.systems.slurm import SCONTROL, SINFO, begins_nodes, nodes_of
from cpsched_sim.systems.system import Boundless
from cpsched_sim.traces.dialect import PLAIN, Dialect
from cpsched_sim.workloads.load import check_broken, job_of, open_trace

MAX_CHARS = 1 << 28
"""Length of what scontrol or sinfo printed; a node of scontrol takes about a thousand."""
_FIRST_LINES = 20


def draft_of(
    source: str | None, name: str, lenient: bool = False, format: str | None = None, dialect: Dialect = PLAIN
) -> tuple[drafting.SystemDraft, list[str]]:
    """The draft, and what there is to say of how it was read: `source` is a file, "-", or None to ask scontrol.

    Raises `InvalidTrace`, `InvalidValue`, `Unusable`.
    """
    if source is None:
        return drafting.of_nodes(nodes_of(printed(), SCONTROL), name, SCONTROL), []
    if source == "-":
        return drafting.of_nodes(nodes_of(_joined(sys.stdin, source), source), name, "standard input"), []
    path = Path(source)
    is_told = format is not None or dialect != PLAIN
    if not is_told and _is_of_nodes(path):
        text = _joined((line for _, line in lines_of(path)), source)
        return drafting.of_nodes(nodes_of(text, source), name, path.name), []
    try:
        reader = open_trace(path, lenient, format, dialect)
    except UnknownFormat as error:
        raise Unusable(f"{error}; nodes are read as these print them: {SCONTROL}, or: {SINFO}") from error
    anywhere = Boundless(reader.resources)
    records = [record for record in reader if job_of(record, anywhere, reader) is not None]
    check_broken(reader)
    return peaks.of_records(records, reader.resources, name), reader.tally.lines()


def _is_of_nodes(path: Path) -> bool:
    """Whether one of the first lines looks like scontrol's or sinfo's of nodes."""
    first = look_at(path).lines[:_FIRST_LINES]
    return any(map(begins_nodes, first))


def _joined(lines: Iterable[str], where: str) -> str:
    """The lines as one text. Raises `Unusable` where they are too many."""
    parts, length = list[str](), 0
    for line in lines:
        parts.append(line)
        length += len(line)
        if length > MAX_CHARS:
            raise Unusable(f"{where}: must not be longer than {MAX_CHARS:,} characters")
    return "".join(parts)
