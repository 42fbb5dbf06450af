"""Parse jobs from `squeue` output, in a format that no job's text can break.

`squeue -O FIELD:WORD` prints a field in full, followed by WORD, if WORD does not begin with a digit. Source:
`_parse_long_token` and `_print_str` in Slurm's src/squeue, unchanged from 22.05 to 26.05. The word is random for each
answer, so no user can have written it into a name. It separates fields and records even if they contain line breaks.

If waiting tasks of an array have their own records, squeue merges those records into the array's common record
(`_combine_pending_array_tasks`). `scontrol_job_parsing` finds the merged records in scontrol's output. They are then
queried by number.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence

from cpsched_bridge.errors import AnswerNotUnderstood

Row = dict[str, str]
"""A job's fields as squeue prints them, by the field names that `-O` accepts."""

COMMON_COLUMNS = (
    "JobID", "JobArrayID", "State", "Reason", "PriorityLong", "Name", "UserID", "Account", "Partition", "QOS",
    "SubmitTime", "EligibleTime", "StartTime", "EndTime", "NumNodes", "MaxNodes", "NumCPUs", "NTPerNode", "CPUsPerTask",
    "cpus-per-tres", "MinCPUs", "OverSubscribe", "tres-per-node", "tres-per-task", "HetJobID", "admin_comment",
    "Comment", "RestartCnt", "TimeLimit", "Reservation", "Licenses",
)  # fmt: skip
PENDING_COLUMNS = (
    "ReqNodes", "Dependency", "Feature", "Prefer", "ClusterFeature", "BurstBuffer", "Network",
    "Deadline", "Contiguous", "Reboot", "ReqSwitch", "CoreSpec", "BoardsPerNode", "SPerBoard", "Sockets", "Cores",
    "Threads", "NTPerBoard", "NTPerSocket", "NTPerCore", "tres-per-socket", "MinTmpDisk", "MCSLabel", "Nice",
    "AccrueTime",
)  # fmt: skip
PLACED_COLUMNS = ("NodeList", "tres-alloc", "Requeue", "BatchFlag")
ALL_COLUMNS = (*COMMON_COLUMNS, *PENDING_COLUMNS, *PLACED_COLUMNS)
COLUMNS_SINCE_26_05 = ("Exclusive", "LicensesAlloc")
"""Columns that 26.05 has.

Earlier releases show exclusive use of whole nodes as a value of `OverSubscribe`.
"""
VOLATILE_COLUMNS = frozenset({"Reason", "PriorityLong", "StartTime", "EndTime", "AccrueTime", "EligibleTime"})
"""Fields of waiting jobs that Slurm itself often changes, without a change of any field that only scontrol shows."""
_FIELD_SEPARATOR = "\0"
"""Replacement for the random word. No text from Slurm contains this byte."""
MAX_JOBS_PER_QUERY = 2000
"""Maximum number of jobs that one squeue queries by number, because it compares each job with all of these numbers."""


def make_field_terminator() -> str:
    """Return a new word with 64 random bits."""
    return f"~{secrets.token_urlsafe(8)}"


def select_squeue_fields(version: tuple[int, int]) -> tuple[str, ...]:
    """Return the job fields that squeue provides in a given release."""
    return (*ALL_COLUMNS, *COLUMNS_SINCE_26_05) if version >= (26, 5) else ALL_COLUMNS


def build_squeue_command(fields: Sequence[str], end: str, numbers: Collection[int] = ()) -> list[str]:
    """Return the squeue command that prints these fields, each followed by `end`.

    The command lists all jobs, or only those with the given numbers.
    """
    named = ["--jobs", ",".join(map(str, sorted(numbers)))] if numbers else []
    form = ",".join(f"{field}:{end}" for field in fields)
    return ["squeue", "--local", "--all", "--states=all", "--noheader", "--noconvert", *named, "--Format", form]


class CachingSqueueParser:
    """A parser of squeue output, which reuses the rows of unchanged jobs."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = tuple(fields)
        self._before: dict[str, Row] = {}

    def read(self, printed: str, end: str) -> list[Row]:
        """Return the jobs in an answer.

        Raise `AnswerNotUnderstood` if the answer is incomplete or a field is missing.
        """
        if _FIELD_SEPARATOR in printed:
            raise AnswerNotUnderstood("squeue: the output does not have the requested format")
        *lines, last = printed.replace(end, _FIELD_SEPARATOR).split(f"{_FIELD_SEPARATOR}\n")
        if last if lines else last.strip():
            raise AnswerNotUnderstood(f"squeue: the output ({len(printed)} characters) is truncated")
        found: list[Row] = []
        known: dict[str, Row] = {}
        begun = ""
        for line in lines:
            text = begun + line
            row = self._before.get(text)
            if row is None:
                values = text.split(_FIELD_SEPARATOR)
                if len(values) < len(self._fields):  # the next field begins with a line break
                    begun = f"{text}{_FIELD_SEPARATOR}\n"
                    continue
                if len(values) > len(self._fields):
                    raise AnswerNotUnderstood("squeue: the output does not have the requested format")
                row = dict(zip(self._fields, values, strict=True))
            begun, known[text] = "", row
            found.append(row)
        if begun:
            raise AnswerNotUnderstood(f"squeue: the output ({len(printed)} characters) is truncated")
        self._before = known
        return found


def index_rows_by_job_number(found: Sequence[Row]) -> dict[int, Row]:
    """Return the jobs, keyed by Slurm's `JobID`.

    Raise `AnswerNotUnderstood` if a number is missing or repeated.
    """
    try:
        numbered = {int(row["JobID"]): row for row in found}
    except ValueError as error:
        raise AnswerNotUnderstood(f"squeue: a job has no valid number: {error}") from error
    if len(numbered) != len(found):
        raise AnswerNotUnderstood("squeue: a job is listed twice")
    return numbered


def is_job_row_unchanged(before: Row | None, now: Row) -> bool:
    """Return whether a job is unchanged.

    Ignore the fields in `VOLATILE_COLUMNS` while the job waits.
    """
    if before is now or before is None:
        return before is now
    if before["State"] != "PENDING":
        return before == now
    return all(before.get(name) == value for name, value in now.items() if name not in VOLATILE_COLUMNS)


def split_into_query_chunks(numbers: Collection[int]) -> list[list[int]]:
    """Return the job numbers in chunks that one squeue accepts."""
    ordered = sorted(numbers)
    return [ordered[at : at + MAX_JOBS_PER_QUERY] for at in range(0, len(ordered), MAX_JOBS_PER_QUERY)]


def has_array_records(found: Mapping[int, Row]) -> bool:
    """Return whether any row is an array's common record.

    Such a record may hide other records.
    """
    return any("_[" in row["JobArrayID"] for row in found.values())


def has_pending_arrays(found: Mapping[int, Row]) -> bool:
    """Return whether any array's common record is pending.

    The common records of ended tasks hide no other records.
    """
    return any("_[" in row["JobArrayID"] and row["State"] == "PENDING" for row in found.values())
