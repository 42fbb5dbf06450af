"""Draft a system file from a running Slurm, from saved Slurm output, or from a trace."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from cpsched_sim.errors import InputError, UnknownFormat
from cpsched_sim.input.sniff import sniff_file
from cpsched_sim.input.text_lines import lines_of
from cpsched_sim.systems import accounting_peaks, system_draft
from cpsched_sim.systems.slurm_node_parsing import SCONTROL, SINFO, begins_nodes, parse_nodes
from cpsched_sim.systems.slurm_queries import command_output
from cpsched_sim.systems.system_file import UnlimitedSystem
from cpsched_sim.traces.trace_dialect import DEFAULT_DIALECT, TraceDialect
from cpsched_sim.workloads.load import check_broken, job_from_record, open_trace

MAX_CHARS = 1 << 28
"""Maximum characters of scontrol's or sinfo's output; one node takes about a thousand in scontrol's."""
_FIRST_LINES = 20


def draft_of(
    source: str | None,
    name: str,
    lenient: bool = False,
    format: str | None = None,
    dialect: TraceDialect = DEFAULT_DIALECT,
) -> tuple[system_draft.SystemDraft, list[str]]:
    """Return a draft and notes on the input: `source` is a file, "-" for stdin, or None to run scontrol.

    Raise `InvalidTrace`, `InvalidValue` or `InputError`.
    """
    if source is None:
        return system_draft.draft_from_nodes(parse_nodes(command_output(), SCONTROL), name, SCONTROL), []
    if source == "-":
        return system_draft.draft_from_nodes(
            parse_nodes(_joined(sys.stdin, source), source), name, "standard input"
        ), []
    path = Path(source)
    is_declared = format is not None or dialect != DEFAULT_DIALECT
    if not is_declared and _is_of_nodes(path):
        text = _joined((line for _, line in lines_of(path)), source)
        return system_draft.draft_from_nodes(parse_nodes(text, source), name, path.name), []
    try:
        reader = open_trace(path, lenient, format, dialect)
    except UnknownFormat as error:
        raise InputError(f"{error}; for nodes, pass the output of: {SCONTROL}, or: {SINFO}") from error
    anywhere = UnlimitedSystem(reader.resources)
    records = [record for record in reader if job_from_record(record, anywhere, reader) is not None]
    check_broken(reader)
    return accounting_peaks.draft_from_records(records, reader.resources, name), reader.tally.lines()


def _is_of_nodes(path: Path) -> bool:
    """Return whether one of the first lines looks like a description of nodes by scontrol or sinfo."""
    first = sniff_file(path).lines[:_FIRST_LINES]
    return any(map(begins_nodes, first))


def _joined(lines: Iterable[str], where: str) -> str:
    """Join the lines. Raise `InputError` if the result is too long."""
    parts, length = list[str](), 0
    for line in lines:
        parts.append(line)
        length += len(line)
        if length > MAX_CHARS:
            raise InputError(f"{where}: must not be longer than {MAX_CHARS:,} characters")
    return "".join(parts)
