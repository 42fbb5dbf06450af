"""Which column of an accounting file holds what: from its header line, or from what its owner says of it.

A header line names the columns as sacct does, in any order. Where names differ, or where there is no header line, the
owner of the file tells (`--columns`), in one of two ways:

- `Submit=submitted,User=owner`: sacct's name, then the name in the header line, or the number of the column from 1 on.
- `JobIDRaw,User,-,Submit,...`: the names of all columns in their order, `-` for one that is not needed.

In a file without a header line, a first line that has no digit in it is taken for one and passed over.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence

from cpsched.errors import InvalidValue, did_you_mean, require
from cpsched_sim.input.input_limits import MAX_LINE_CHARS

XDMOD_COLUMNS = (
    "JobID|JobIDRaw|Cluster|Partition|QOS|Account|Group|GID|User|UID|Submit|Eligible|Start|End|Elapsed|ExitCode|State|"
    "NNodes|NCPUS|ReqCPUS|ReqMem|ReqTRES|AllocTRES|Timelimit|NodeList|JobName"
)
"""What Open XDMoD asks sacct for: the columns of a file without a header line, unless told otherwise."""
COLUMN_ALIASES: Mapping[str, tuple[str, ...]] = {
    "jobidraw": ("jobid",),
    "ncpus": ("alloccpus", "reqcpus"),
    "nnodes": ("allocnodes", "reqnodes"),
    "timelimit": ("timelimitraw",),
    "elapsed": ("elapsedraw", "runtime"),
    "submit": ("submittime",),
    "eligible": ("eligibletime",),
    "start": ("starttime",),
    "end": ("endtime",),
    "wait": ("waittime",),
}
"""Columns of sacct that tell the same, or that stand in where the first one is not there."""
COLUMNS_READ = (
    "JobIDRaw", "JobID", "Partition", "Account", "User", "Submit", "Eligible", "Start", "End", "Elapsed", "ElapsedRaw",
    "State", "NNodes", "AllocNodes", "ReqNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "ReqTRES", "AllocTRES", "Timelimit",
    "TimelimitRaw", "NodeList", "JobName", "QOS", "Reservation", "Cluster", "Wait",
)  # fmt: skip
"""The columns that are read; others may be there."""
REQUIRED_COLUMNS = ("JobIDRaw", "Submit", "Start", "End", "Timelimit")
"""The columns without which nothing can be replayed. `Wait`, in seconds, may tell of Start, and `Elapsed` of End."""
AMOUNTS = ("NNodes", "NCPUS")
"""Needed, too, unless AllocTRES or ReqTRES tells the same."""
NONE = "-"
_SEPARATORS = "|,;\t^~"
_LOOKS_LIKE_A_JOB = re.compile(r"\d+(?:[_+.][^|,;\t^~]*)?[|,;\t^~]", re.ASCII)
_KNOWN = {name.lower() for name in (*XDMOD_COLUMNS.split("|"), *COLUMNS_READ)}


def separator_of(line: str) -> str:
    """What separates the columns of a header line of sacct; "" where the line is none."""
    for separator in _SEPARATORS:
        names = {name.strip(' "\r\n').lower() for name in line.split(separator)}
        if names & {"jobid", "jobidraw"} and len(names & _KNOWN) > 1:
            return separator
    return ""


def is_aligned(line: str) -> bool:
    """Whether a line names columns of sacct between blanks, as without `--parsable2`: values are cut off then."""
    names = line.lower().split()
    return bool({"jobid", "jobidraw"} & set(names)) and len(_KNOWN & set(names)) > 1 and not separator_of(line)


class AccountingColumns:
    """Where each field of a line stands. `header` is the text of the header line, "" where the file has none."""

    def __init__(self, separator: str, names: Sequence[str], header: str = "", by_place: bool = False) -> None:
        self.separator, self.header, self.by_place = separator, header, by_place
        self.count = len(names)
        self.at = {name.strip().lower(): at for at, name in enumerate(names)}
        self.name_comes_last = names[-1].strip().lower() == "jobname"
        self._names = {name.strip(' "').lower() for name in header.split(separator)} if header else set[str]()

    @classmethod
    def of(cls, first: str, words: str = "") -> AccountingColumns:
        """The columns of a file whose first line is `first`, with `words` of its owner. Raises `InvalidValue`."""
        first = first.strip("\r\n")
        if words:
            return _told(first, words)
        if separator := separator_of(first):
            return cls(separator, _cells(first, separator), first)
        return cls("|", XDMOD_COLUMNS.split("|"))

    def where(self, name: str) -> int | None:
        """The place of a column, or of the one that stands in for it; None where there is neither."""
        low = name.lower()
        return next((at for each in (low, *COLUMN_ALIASES.get(low, ())) if (at := self.at.get(each)) is not None), None)

    def missing(self) -> list[str]:
        """The needed columns that are not there."""
        told = bool({"alloctres", "reqtres"} & self.at.keys())
        instead = {"Start": "Wait", "End": "Elapsed"}
        needed = (*REQUIRED_COLUMNS, *(() if told else AMOUNTS))
        return [name for name in needed if self.where(name) is self.where(instead.get(name, name)) is None]

    def is_header(self, text: str) -> bool:
        """Whether a line names columns: those of this file in whatever order, or those of sacct.

        A line of a job has its number and its times, a header line has no field that begins with a digit.
        """
        text = text.strip("\r\n")
        if text == self.header or text[:1].isdigit():
            return text == self.header
        cells = [name.lower() for name in _cells(text, self.separator)]
        if any(cell[:1].isdigit() for cell in cells):
            return False
        return (bool(self._names) and self._names == set(cells)) or (bool(separator_of(text)) and _has_times(text))

    def goes_on(self, before: str, text: str) -> bool:
        """Whether a line is the rest of the job of the line before: the job's name holds a line end."""
        between = text.count(self.separator)
        if between >= self.count - 1 or len(before) > MAX_LINE_CHARS or _LOOKS_LIKE_A_JOB.match(text):
            return False
        if self.is_header(before) or self.is_header(text):
            return False
        there = before.count(self.separator)
        return there >= self.count - 1 if self.name_comes_last else there < self.count - 1 and there + between > 0

    def is_other(self, header: str) -> bool:
        """Whether a further header line has these columns in other places, where they are told by their place."""
        theirs = AccountingColumns.of(header).at
        return any(theirs.get(name) != at for name, at in self.at.items() if name != NONE)

    def split(self, text: str) -> list[str]:
        """The fields of a line; raises `InvalidValue`.

        The separator may also end the line, and stand in a job name that comes last.
        """
        fields = text.rstrip("\r\n").split(self.separator)
        if '"' in text and self.separator != "|" and len(quoted := self._quoted(text)) == self.count:
            return quoted
        if len(fields) != self.count and '"' in text:
            fields = self._quoted(text)
        if len(fields) == self.count + 1 and not fields[-1]:
            del fields[-1]
        if len(fields) > self.count and self.name_comes_last:
            fields[self.count - 1 :] = [self.separator.join(fields[self.count - 1 :])]
        if len(fields) != self.count:
            raise InvalidValue("fields", len(fields), f"must be {self.count}; ask sacct for JobName as the last column")
        return fields

    def _quoted(self, text: str) -> list[str]:
        try:
            return next(csv.reader([text], delimiter=self.separator), [])
        except csv.Error as error:
            raise InvalidValue("line", text.strip(), f"must be readable as CSV: {error}") from error


def _has_times(line: str) -> bool:
    """Whether a header line names the times of jobs."""
    return {"submit", "start", "end"} <= {name.lower() for name in _cells(line, separator_of(line))}


def _told(first: str, words: str) -> AccountingColumns:
    """The columns as the owner of the file tells them."""
    parts = [part.strip() for part in words.split(",")]
    if not any("=" in part for part in parts):
        return _in_order(first, parts)
    theirs = dict(_pair(part) for part in parts if part)
    if all(name.isdecimal() for name in theirs.values()):
        return _by_number(first, {name: int(number) for name, number in theirs.items()})
    return _renamed(first, theirs)


def _pair(part: str) -> tuple[str, str]:
    name, equals, theirs = (text.strip() for text in part.partition("="))
    require(bool(equals and theirs), "--columns", part, "must be NAME=COLUMN, as are the others")
    return _checked(name), theirs


def _checked(name: str) -> str:
    """One of the names that are read, as it is spelled there."""
    known = {each.lower(): each for each in COLUMNS_READ}
    meant = did_you_mean(name, COLUMNS_READ)
    require(name.lower() in known, "--columns", name, f"is no column that is read: {', '.join(COLUMNS_READ)}{meant}")
    return known[name.lower()]


def _in_order(first: str, names: Sequence[str]) -> AccountingColumns:
    names = [NONE if name in ("", NONE) else _checked(name) for name in names]
    counts = {each: {len(text.split(each)) for text in (first, first.rstrip(each))} for each in _SEPARATORS}
    separator = next((each for each in _SEPARATORS if len(names) in counts[each]), "")
    if not separator:
        best = max(_SEPARATORS, key=first.count)
        rule = f"must name every column: the first line has {len(first.split(best))} fields between {best!r}"
        raise InvalidValue("--columns", f"{len(names)} names", rule)
    return AccountingColumns(separator, names, _if_header(first), by_place=True)


def _by_number(first: str, numbers: Mapping[str, int]) -> AccountingColumns:
    separator = max(_SEPARATORS, key=first.count)
    names = [NONE] * len(_cells(first, separator))
    for name, number in numbers.items():
        require(0 < number <= len(names), "--columns", f"{name}={number}", f"the first line has {len(names)} fields")
        names[number - 1] = name
    return AccountingColumns(separator, names, _if_header(first), by_place=True)


def _renamed(first: str, theirs: Mapping[str, str]) -> AccountingColumns:
    """The header line's own names, but for those that are told; their own column of that name is not read then."""
    wanted = {name.lower() for name in theirs.values()}
    separator = max(_SEPARATORS, key=lambda each: (_named(wanted, first, each), first.count(each)))
    cells = _cells(first, separator)
    names = [NONE if _is_one_of(name, theirs) else name for name in cells]
    lower = [name.lower() for name in cells]
    for name, column in theirs.items():
        if column.lower() not in lower:
            raise InvalidValue("--columns", column, f"is not in the header line: {', '.join(cells)}")
        names[lower.index(column.lower())] = name
    return AccountingColumns(separator, names, first)


def _named(wanted: set[str], line: str, separator: str) -> int:
    """How many of the wanted columns a line names, if that is what separates them."""
    return len(wanted & {name.lower() for name in _cells(line, separator)})


def _is_one_of(name: str, theirs: Iterable[str]) -> bool:
    return name.lower() in {each.lower() for each in theirs}


def _cells(line: str, separator: str) -> list[str]:
    return [name.strip(' "') for name in line.rstrip(separator).split(separator)]


def _if_header(first: str) -> str:
    return "" if any(map(str.isdigit, first)) else first
