"""Find an accounting file's columns from its header line or from `--columns`.

A header line has sacct's column names, in any order. If the line is missing or has other names, the user sets
`--columns` in one of two ways:

- `Submit=submitted,User=owner`: sacct's name, then the name in the header line or the 1-based column number.
- `JobIDRaw,User,-,Submit,...`: the names of all columns in order, with `-` for an unused column.

Without a known header line, a first line that contains no digit counts as the header and is skipped.
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
"""The columns that Open XDMoD requests from sacct. They are the default for a file without a header line."""
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
"""Equivalent sacct columns, by the column that they replace if it is missing."""
COLUMNS_READ = (
    "JobIDRaw", "JobID", "Partition", "Account", "User", "Submit", "Eligible", "Start", "End", "Elapsed", "ElapsedRaw",
    "State", "NNodes", "AllocNodes", "ReqNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "ReqTRES", "AllocTRES", "Timelimit",
    "TimelimitRaw", "NodeList", "JobName", "QOS", "Reservation", "Cluster", "Wait",
)  # fmt: skip
"""The columns that are read. A file may contain others."""
REQUIRED_COLUMNS = ("JobIDRaw", "Submit", "Start", "End", "Timelimit")
"""The required columns. `Wait` (seconds or a duration) may replace Start, and `Elapsed` may replace End."""
AMOUNT_COLUMNS = ("NNodes", "NCPUS")
"""The columns that are required unless AllocTRES or ReqTRES contains their amounts."""
NO_VALUE = "-"
_COLUMN_SEPARATORS = "|,;\t^~"
_LOOKS_LIKE_A_JOB = re.compile(r"\d+(?:[_+.][^|,;\t^~]*)?[|,;\t^~]", re.ASCII)
_KNOWN_COLUMNS = {name.lower() for name in (*XDMOD_COLUMNS.split("|"), *COLUMNS_READ)}


def sacct_column_separator(line: str) -> str:
    """Return the column separator of sacct's header line, or "" for any other line."""
    for separator in _COLUMN_SEPARATORS:
        names = {name.strip(' "\r\n').lower() for name in line.split(separator)}
        if names & {"jobid", "jobidraw"} and len(names & _KNOWN_COLUMNS) > 1:
            return separator
    return ""


def has_blank_aligned_columns(line: str) -> bool:
    """Return whether blanks align a line's columns, as in sacct without `--parsable2`.

    sacct truncates such columns.
    """
    names = line.lower().split()
    return (
        bool({"jobid", "jobidraw"} & set(names))
        and len(_KNOWN_COLUMNS & set(names)) > 1
        and not sacct_column_separator(line)
    )


class AccountingColumns:
    """The position of each column. `header` is the header line, or "" without one."""

    def __init__(self, separator: str, names: Sequence[str], header: str = "", by_place: bool = False) -> None:
        self.separator, self.header, self.by_place = separator, header, by_place
        self.count = len(names)
        self.at = {name.strip().lower(): at for at, name in enumerate(names)}
        self.name_comes_last = names[-1].strip().lower() == "jobname"
        self._names = {name.strip(' "').lower() for name in header.split(separator)} if header else set[str]()

    @classmethod
    def of(cls, first: str, text: str = "") -> AccountingColumns:
        """Find the columns from a file's first line and the user's `--columns`.

        Raise `InvalidValue`.
        """
        first = first.strip("\r\n")
        if text:
            return _parse_columns_option(first, text)
        if separator := sacct_column_separator(first):
            return cls(separator, _split_cells(first, separator), first)
        return cls("|", XDMOD_COLUMNS.split("|"))

    def index_of(self, name: str) -> int | None:
        """Return the position of a column or its equivalent, or None."""
        low = name.lower()
        return next((at for each in (low, *COLUMN_ALIASES.get(low, ())) if (at := self.at.get(each)) is not None), None)

    def missing_required_columns(self) -> list[str]:
        """Return the required columns that are missing."""
        has_amounts = bool({"alloctres", "reqtres"} & self.at.keys())
        instead = {"Start": "Wait", "End": "Elapsed"}
        needed = (*REQUIRED_COLUMNS, *(() if has_amounts else AMOUNT_COLUMNS))
        return [
            f"{name} (or {instead[name]})" if name in instead else name
            for name in needed
            if self.index_of(name) is self.index_of(instead.get(name, name)) is None
        ]

    def is_header(self, text: str) -> bool:
        """Return whether a line is a header: sacct's columns, or this file's in any order.

        The line of a job contains a number and times, whereas no field of a header line begins with a digit.
        """
        text = text.strip("\r\n")
        if text == self.header or text[:1].isdigit():
            return text == self.header
        cells = [name.lower() for name in _split_cells(text, self.separator)]
        if any(cell[:1].isdigit() for cell in cells):
            return False
        return (bool(self._names) and self._names == set(cells)) or (
            bool(sacct_column_separator(text)) and _has_time_columns(text)
        )

    def is_continuation(self, before: str, text: str) -> bool:
        """Return whether a line continues the line before it.

        A line break in a job name causes such lines.
        """
        between = text.count(self.separator)
        if between >= self.count - 1 or len(before) > MAX_LINE_CHARS or _LOOKS_LIKE_A_JOB.match(text):
            return False
        if self.is_header(before) or self.is_header(text):
            return False
        there = before.count(self.separator)
        return there >= self.count - 1 if self.name_comes_last else there < self.count - 1 and there + between > 0

    def is_reordered_by(self, header: str) -> bool:
        """Return whether a header line contradicts columns that the user set by position."""
        theirs = AccountingColumns.of(header).at
        return any(theirs.get(name) != at for name, at in self.at.items() if name != NO_VALUE)

    def split(self, text: str) -> list[str]:
        """Return the fields of a line. Raise `InvalidValue` if their number is wrong.

        The separator may also end the line, or occur within a job name in the last column.
        """
        fields = text.rstrip("\r\n").split(self.separator)
        if '"' in text and self.separator != "|" and len(quoted := self._split_quoted_line(text)) == self.count:
            return quoted
        if len(fields) != self.count and '"' in text:
            fields = self._split_quoted_line(text)
        if len(fields) == self.count + 1 and not fields[-1]:
            del fields[-1]
        if len(fields) > self.count and self.name_comes_last:
            fields[self.count - 1 :] = [self.separator.join(fields[self.count - 1 :])]
        if len(fields) != self.count:
            raise InvalidValue("fields", len(fields), f"must be {self.count}; request JobName as sacct's last column")
        return fields

    def _split_quoted_line(self, text: str) -> list[str]:
        try:
            return next(csv.reader([text], delimiter=self.separator), [])
        except csv.Error as error:
            raise InvalidValue("line", text.strip(), f"must be valid CSV: {error}") from error


def _has_time_columns(line: str) -> bool:
    """Return whether a header line contains the columns of the jobs' times."""
    return {"submit", "start", "end"} <= {name.lower() for name in _split_cells(line, sacct_column_separator(line))}


def _parse_columns_option(first: str, text: str) -> AccountingColumns:
    """Return the columns set by the user."""
    parts = [part.strip() for part in text.split(",")]
    if not any("=" in part for part in parts):
        return _columns_from_list(first, parts)
    theirs = dict(_parse_column_pair(part) for part in parts if part)
    if all(name.isdecimal() for name in theirs.values()):
        return _columns_from_numbers(first, {name: int(number) for name, number in theirs.items()})
    return _columns_from_renaming(first, theirs)


def _parse_column_pair(part: str) -> tuple[str, str]:
    name, equals, theirs = (text.strip() for text in part.partition("="))
    require(bool(equals and theirs), "--columns", part, "must be NAME=COLUMN, like the others")
    return _normalize_column_name(name), theirs


def _normalize_column_name(name: str) -> str:
    """Return a known column name, or another name of such a column, in its usual spelling."""
    known = {other: column for column, others in COLUMN_ALIASES.items() for other in others}
    known |= {each.lower(): each for each in COLUMNS_READ}
    meant = did_you_mean(name, COLUMNS_READ)
    require(
        name.lower() in known, "--columns", name, f"must be one of the known columns: {', '.join(COLUMNS_READ)}{meant}"
    )
    return known[name.lower()]


def _columns_from_list(first: str, names: Sequence[str]) -> AccountingColumns:
    names = [NO_VALUE if name in ("", NO_VALUE) else _normalize_column_name(name) for name in names]
    counts = {each: {len(text.split(each)) for text in (first, first.rstrip(each))} for each in _COLUMN_SEPARATORS}
    separator = next((each for each in _COLUMN_SEPARATORS if len(names) in counts[each]), "")
    if not separator:
        best = max(_COLUMN_SEPARATORS, key=first.count)
        rule = f"must list every column: the first line has {len(first.split(best))} fields between {best!r}"
        raise InvalidValue("--columns", f"{len(names)} names", rule)
    return AccountingColumns(separator, names, _header_line_or_empty(first), by_place=True)


def _columns_from_numbers(first: str, numbers: Mapping[str, int]) -> AccountingColumns:
    separator = max(_COLUMN_SEPARATORS, key=first.count)
    names = [NO_VALUE] * len(_split_cells(first, separator))
    for name, number in numbers.items():
        require(0 < number <= len(names), "--columns", f"{name}={number}", f"the first line has {len(names)} fields")
        names[number - 1] = name
    return AccountingColumns(separator, names, _header_line_or_empty(first), by_place=True)


def _columns_from_renaming(first: str, theirs: Mapping[str, str]) -> AccountingColumns:
    """Return the header line's columns, with names replaced as the user requested.

    Ignore a column whose own name the user gave to another column.
    """
    wanted = {name.lower() for name in theirs.values()}
    separator = max(
        _COLUMN_SEPARATORS, key=lambda each: (_count_wanted_columns(wanted, first, each), first.count(each))
    )
    cells = _split_cells(first, separator)
    names = [NO_VALUE if _contains_ignoring_case(name, theirs) else name for name in cells]
    lower = [name.lower() for name in cells]
    for name, column in theirs.items():
        if column.lower() not in lower:
            raise InvalidValue("--columns", column, f"is not in the header line: {', '.join(cells)}")
        names[lower.index(column.lower())] = name
    return AccountingColumns(separator, names, first)


def _count_wanted_columns(wanted: set[str], line: str, separator: str) -> int:
    """Return how many wanted columns a line has if it is split at this separator."""
    return len(wanted & {name.lower() for name in _split_cells(line, separator)})


def _contains_ignoring_case(name: str, theirs: Iterable[str]) -> bool:
    return name.lower() in {each.lower() for each in theirs}


def _split_cells(line: str, separator: str) -> list[str]:
    return [name.strip(' "') for name in line.rstrip(separator).split(separator)]


def _header_line_or_empty(first: str) -> str:
    return "" if any(map(str.isdigit, first)) else first
