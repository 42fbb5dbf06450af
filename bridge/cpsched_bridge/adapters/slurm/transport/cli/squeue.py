"""Jobs as `squeue` prints them, in a form that no job's texts can break.

`squeue -O FIELD:WORD` prints a field in full and WORD after it, where WORD does not begin with a digit
(`_parse_long_token` and `_print_str` of Slurm's src/squeue, the same from 22.05 to 26.05). The word is drawn anew for
each answer, so nobody can have written it into a name: fields and records are cut at it, whatever is between, line
breaks too.

squeue shows the waiting tasks of an array that have a record of their own together with the common one, as if there
were one record (`_combine_pending_array_tasks`). `details` tells which records there are; those that squeue hides are
asked for by their numbers.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence

from cpsched_bridge.errors import AnswerNotUnderstood

Row = dict[str, str]
"""What squeue prints of a job, by the names of `-O`."""

ALWAYS = (
    "JobID", "JobArrayID", "State", "Reason", "PriorityLong", "Name", "UserID", "Account", "Partition", "QOS",
    "SubmitTime", "EligibleTime", "StartTime", "EndTime", "NumNodes", "MaxNodes", "NumCPUs", "NTPerNode", "CPUsPerTask",
    "cpus-per-tres", "MinCPUs", "OverSubscribe", "tres-per-node", "tres-per-task", "HetJobID", "admin_comment",
    "Comment", "RestartCnt", "TimeLimit", "Reservation",
)  # fmt: skip
WHILE_PENDING = (
    "ReqNodes", "Dependency", "Feature", "Prefer", "ClusterFeature", "Licenses", "BurstBuffer", "Network",
    "Deadline", "Contiguous", "Reboot", "ReqSwitch", "CoreSpec", "BoardsPerNode", "SPerBoard", "Sockets", "Cores",
    "Threads", "NTPerBoard", "NTPerSocket", "NTPerCore", "tres-per-socket", "MinTmpDisk", "MCSLabel", "Nice",
    "AccrueTime",
)  # fmt: skip
WHILE_PLACED = ("NodeList", "tres-alloc")
ALL = (*ALWAYS, *WHILE_PENDING, *WHILE_PLACED)
SINCE_26_05 = ("Exclusive",)
"""Whole nodes, which are a value of `OverSubscribe` before."""
PASSING = frozenset({"Reason", "PriorityLong", "StartTime", "EndTime", "AccrueTime", "EligibleTime"})
"""What Slurm changes of waiting jobs by itself, and often; nothing that only scontrol tells changes with it."""
LOOKED_AT = (
    "JobID", "JobArrayID", "State", "Reason", "PriorityLong", "Name", "NumNodes", "admin_comment", "Comment",
    "RestartCnt",
)  # fmt: skip
"""What is looked at again before a job is touched."""
_STOP = "\0"
"""Stands for the word, which is another one in each answer: no text of Slurm's holds this byte."""
MOST_NAMED = 2000
"""Jobs that one squeue is asked for by number: it compares each job with all of them."""


def word() -> str:
    """A word that nobody has written before; 64 bits of it are drawn."""
    return f"~{secrets.token_urlsafe(8)}"


def fields_for(version: tuple[int, int]) -> tuple[str, ...]:
    """The fields of a job that a release's squeue is asked for."""
    return (*ALL, *SINCE_26_05) if version >= (26, 5) else ALL


def command(fields: Sequence[str], end: str, numbers: Collection[int] = ()) -> list[str]:
    """squeue for these fields of all jobs, or of those with these numbers; each field ends with `end`."""
    named = ["--jobs", ",".join(map(str, sorted(numbers)))] if numbers else []
    form = ",".join(f"{field}:{end}" for field in fields)
    return ["squeue", "--local", "--all", "--states=all", "--noheader", "--noconvert", *named, "--Format", form]


class JobRecords:
    """Jobs of squeue's answers with these fields; a job that is printed as in the answer before is the same object."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = tuple(fields)
        self._before: dict[str, Row] = {}

    def read(self, printed: str, end: str) -> list[Row]:
        """The jobs of an answer.

        Raises `AnswerNotUnderstood` where the answer does not end as it should, or a field is missing.
        """
        if _STOP in printed:
            raise AnswerNotUnderstood("squeue: its answer is not in the form that was asked for")
        *lines, last = printed.replace(end, _STOP).split(f"{_STOP}\n")
        if last if lines else last.strip():
            raise AnswerNotUnderstood(f"squeue: its answer of {len(printed)} signs ends early")
        found: list[Row] = []
        known: dict[str, Row] = {}
        begun = ""
        for line in lines:
            text = begun + line
            row = self._before.get(text)
            if row is None:
                values = text.split(_STOP)
                if len(values) < len(self._fields):  # the next field begins with a line break
                    begun = f"{text}{_STOP}\n"
                    continue
                if len(values) > len(self._fields):
                    raise AnswerNotUnderstood("squeue: its answer is not in the form that was asked for")
                row = dict(zip(self._fields, values, strict=True))
            begun, known[text] = "", row
            found.append(row)
        if begun:
            raise AnswerNotUnderstood(f"squeue: its answer of {len(printed)} signs ends early")
        self._before = known
        return found


def by_number(found: Sequence[Row]) -> dict[int, Row]:
    """The jobs by Slurm's own number. Raises `AnswerNotUnderstood` where that is none, or stands there twice."""
    try:
        numbered = {int(row["JobID"]): row for row in found}
    except ValueError as error:
        raise AnswerNotUnderstood(f"squeue: a job without a number: {error}") from error
    if len(numbered) != len(found):
        raise AnswerNotUnderstood("squeue: shows a job twice")
    return numbered


def stayed(before: Row | None, now: Row) -> bool:
    """Whether a job is as before, but for what is `PASSING` while it waits."""
    if before is now or before is None:
        return before is now
    if before["State"] != "PENDING":
        return before == now
    return all(before.get(name) == value for name, value in now.items() if name not in PASSING)


def chunks(numbers: Collection[int]) -> list[list[int]]:
    """Numbers of jobs in as many parts as they need questions."""
    ordered = sorted(numbers)
    return [ordered[at : at + MOST_NAMED] for at in range(0, len(ordered), MOST_NAMED)]


def arrays_in(found: Mapping[int, Row]) -> bool:
    """Whether there are common records of waiting tasks, which may hide others."""
    return any("_[" in row["JobArrayID"] for row in found.values())


def arrays_wait(found: Mapping[int, Row]) -> bool:
    """Whether a common record of `arrays_in` waits: those that have ended hide nothing any more."""
    return any("_[" in row["JobArrayID"] and row["State"] == "PENDING" for row in found.values())
