"""Record start estimates from `squeue --start` (`cpsched record-slurm-estimates`)."""

from __future__ import annotations

import gzip
import math
import re
import time
from pathlib import Path

from cpsched.formatting import format_count
from cpsched_sim.command_conventions import print_message
from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.program_runner import run_slurm_command
from cpsched_sim.start_time_accuracy import HEADING, read_slurm_start_estimates

SQUEUE = "squeue --start --local --all --array --noheader --format=%i,%S"
_ELSEWHERE = "run record-slurm-estimates on a host with Slurm, such as a login node"
_ROW = re.compile(r"(\d+(?:[_+]\d+)?),(?:(\d+)|N/A|Unknown)", re.ASCII)


def record_slurm_start_estimates(out: Path, every_s: float, for_s: float | None) -> None:
    """Append the current estimates to `out` every `every_s` seconds.

    Stop after `for_s` seconds, or never if it is None. The file is complete after each call to squeue. Raise
    `InputError` if the first call fails. Later failures are warnings, because slurmctld may restart.
    """
    if out.exists() and out.stat().st_size:
        next(read_slurm_start_estimates(out), None)  # raises an error unless it is a recording
    next_s = begun_s = time.monotonic()
    has_warned = False
    while for_s is None or next_s <= begun_s + for_s:
        time.sleep(max(0.0, next_s - time.monotonic()))
        try:
            rows = query_slurm_start_estimates()
            _append_estimate_rows(out, rows)
            if not has_warned and (warning := _describe_missing_estimates(rows)):
                print_message("warning", warning)
                has_warned = True
        except InputError as error:
            if next_s == begun_s:
                raise
            print_message("warning", error)
        next_s += every_s * max(1, math.ceil((time.monotonic() - next_s) / every_s))


def query_slurm_start_estimates() -> list[str]:
    """Return one row per pending job. Raise `InputError` if squeue fails."""
    at_s, rows = int(time.time()), list[str]()
    for line in run_slurm_command(SQUEUE, elsewhere=_ELSEWHERE).splitlines():
        match = _ROW.fullmatch(line.strip())
        if match is None:
            raise InputError(f"{SQUEUE}: {quote_value(line)}: must be a job id and a Unix time in seconds")
        rows.append(f"{at_s},{match[1]},{match[2] or ''}")
    return rows


def _describe_missing_estimates(rows: list[str]) -> str:
    """Return a warning if most pending jobs have no estimate, or ""."""
    missing = sum(row.endswith(",") for row in rows)
    if 2 * missing <= len(rows):
        return ""
    return (
        f"squeue gives no start for {missing} of {format_count(len(rows), 'pending job')}: Slurm estimates no start "
        "of a held job, such as one that waits for a bridge in control mode; record in shadow or advise mode"
    )


def _append_estimate_rows(path: Path, rows: list[str]) -> None:
    """Append the rows, as a gzip member if the file is compressed.

    On failure, raise `InputError` and leave the file unchanged.
    """
    try:
        with path.open("ab", buffering=0) as file:
            end = file.tell()
            content = "".join(f"{row}\n" for row in (rows if end else [HEADING, *rows])).encode()
            content = gzip.compress(content, 6, mtime=0) if path.suffix == ".gz" and content else content
            if file.write(content) != len(content):
                file.truncate(end)
                raise InputError(f"{path}: cannot be written: the disk is full")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
