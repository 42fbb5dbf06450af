"""Lines of PBS's accounting log: `MM/DD/YYYY HH:MM:SS;TYPE;ID;NAME=VALUE NAME=VALUE ...`.

Users choose some of the values: account, project, name of the job, and texts that they ask for. PBS writes these texts
as they are, between quotes where one has a blank. A text with quotes can therefore look like further fields, so a field
that a line has twice means nothing (`Fields.twice`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cpsched.errors import InvalidValue

_LINE = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d);([A-Za-z]);([^;]*);(.*)", re.ASCII | re.DOTALL)
_FIELD = re.compile(r"""([A-Za-z_][\w.\-]*)=(?:"([^"]*)"(?=\s|$)|'([^']*)'(?=\s|$)|(\S*))""", re.ASCII)
_AFTER_ACCOUNT = re.compile(r'"\s+(?:project|accounting_id|jobname)=')
_JOB = re.compile(r"(\d{1,18})(?:\[(\d{0,7})\]|-(\d{1,7}))?(?:\.(\S+))?$", re.ASCII)


class AccountingLine(NamedTuple):
    """One line. `at` is the local time of its writing, as `2026-11-23T09:30:00`."""

    at: str
    kind: str
    id: str
    text: str


class JobId(NamedTuple):
    """`7[2].vm`, for old Torque `7-2.vm`: job 7, subjob 2 (-1: no subjob; None: the array itself), of server `vm`."""

    number: int
    subjob: int | None
    server: str


def looks_like_one(text: str) -> bool:
    """Whether a text begins as a line of the log."""
    return _LINE.match(text.lstrip()) is not None


def is_unfinished(text: str) -> bool:
    """Whether a line ends within an account: PBS writes a line end that a user put there as it is."""
    _, opened, rest = text.partition('account="')
    return bool(opened) and not _AFTER_ACCOUNT.search(rest)


def line_of(text: str) -> AccountingLine:
    """The parts of a line. Raises `InvalidValue`."""
    match = _LINE.match(text.strip())
    if not match:
        raise InvalidValue("line", text.strip(), "must be like 11/23/2026 09:30:00;E;7.server;user=ada ...")
    month, day, year, clock, kind, id, rest = match.groups()
    return AccountingLine(f"{year}-{month}-{day}T{clock}", kind, id, rest)


def job_id_of(text: str) -> JobId:
    """A job as PBS names it. Raises `InvalidValue`."""
    match = _JOB.match(text)
    if not match:
        raise InvalidValue("job", text, "must be like 7.server, or 7[2].server for a subjob")
    number, index, task, server = match.groups()
    index = task if index is None else index
    return JobId(int(number), -1 if index is None else int(index) if index else None, server or "")


class Fields(dict[str, str]):
    """The fields of a line by name. `twice` holds the names of those that came more than once."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.twice: set[str] = set()
        at = 0
        while at < len(text):
            match = _FIELD.match(text, at)
            if match is None:
                at = _next_word(text, at)
                continue
            name, *values = match.groups()
            if name in self:
                self.twice.add(name)
            self[name] = next((value for value in values if value is not None), "")
            at = _next_word(text, match.end())


_BLANKS = re.compile(r"\s+")


def _next_word(text: str, at: int) -> int:
    """Where the word after the next blanks begins."""
    match = _BLANKS.search(text, at)
    return match.end() if match else len(text)
