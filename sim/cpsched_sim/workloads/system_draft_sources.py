"""Draft a system file from a running Slurm, saved Slurm output, or a trace."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from cpsched_sim.errors import InputError, UnknownFormat
from cpsched_sim.input.file_type_guess import sniff_file
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.program_runner import run_slurm_command
from cpsched_sim.systems import system_draft
from cpsched_sim.systems.slurm_node_parsing import (
    SCONTROL_COMMAND,
    SINFO_COMMAND,
    looks_like_node_output,
    parse_slurm_nodes,
)
from cpsched_sim.systems.system_file import InfiniteCapacitySystem
from cpsched_sim.traces.trace_record import DEFAULT_DIALECT, TraceDialect
from cpsched_sim.workloads.workload_loader import job_from_record, open_trace, require_few_invalid_lines

MAX_CHARS = 1 << 28
"""Maximum number of characters in the output of scontrol or sinfo. scontrol prints about a thousand per node."""
_MAX_EXAMINED_LINES = 20


def draft_system(
    source: str | None,
    name: str,
    lenient: bool = False,
    format: str | None = None,
    dialect: TraceDialect = DEFAULT_DIALECT,
) -> tuple[system_draft.SystemDraft, list[str]]:
    """Return a draft of a system file, and notes on the input.

    `source` is a file, "-" for standard input, or None to run scontrol.

    Raise `InvalidTrace`, `InvalidValue` or `InputError`.
    """
    if source is None:
        return system_draft.draft_system_from_nodes(
            parse_slurm_nodes(run_slurm_command(SCONTROL_COMMAND), SCONTROL_COMMAND), name, SCONTROL_COMMAND
        ), []
    if source == "-":
        return system_draft.draft_system_from_nodes(
            parse_slurm_nodes(_join_lines(sys.stdin, source), source), name, "standard input"
        ), []
    path = Path(source)
    is_declared = format is not None or dialect != DEFAULT_DIALECT
    if not is_declared and _is_node_output(path):
        text = _join_lines((line for _, line in read_text_lines(path)), source)
        return system_draft.draft_system_from_nodes(parse_slurm_nodes(text, source), name, path.name), []
    try:
        reader = open_trace(path, lenient, format, dialect)
    except UnknownFormat as error:
        raise InputError(
            f"{error}; to describe nodes, pass the output of `{SCONTROL_COMMAND}` or `{SINFO_COMMAND}`"
        ) from error
    anywhere = InfiniteCapacitySystem(reader.resources)
    records = [record for record in reader if job_from_record(record, anywhere, reader) is not None]
    require_few_invalid_lines(reader)
    return system_draft.draft_system_from_records(records, reader.resources, name), reader.tally.to_sentences()


def _is_node_output(path: Path) -> bool:
    """Return whether one of the first lines looks like nodes in scontrol or sinfo."""
    first = sniff_file(path).lines[:_MAX_EXAMINED_LINES]
    return any(map(looks_like_node_output, first))


def _join_lines(lines: Iterable[str], where: str) -> str:
    """Join the lines. Raise `InputError` if the result is too long."""
    parts, length = list[str](), 0
    for line in lines:
        parts.append(line)
        length += len(line)
        if length > MAX_CHARS:
            raise InputError(f"{where}: must not be longer than {MAX_CHARS:,} characters")
    return "".join(parts)
