"""Parse lines of PBS's accounting log.

The format is `MM/DD/YYYY HH:MM:SS;TYPE;ID;NAME=VALUE NAME=VALUE ...`.

Users choose some of the values: account, project, job name and parts of the request. PBS writes them as is, in quotes
if they contain a blank. Quoted text can look like further fields, so a duplicate field has no value
(`PbsRecordFields.twice`). Text without quotes has no blank, but it may contain line breaks and tabs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cpsched.errors import InvalidValue

_LINE = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d);([A-Za-z]);([^;]*);(.*)", re.ASCII | re.DOTALL)
_FIELD = re.compile(r"""([A-Za-z_][\w.\-]*)=(?:"([^"]*)"(?=\s|$)|'([^']*)'(?=\s|$)|([^ ]*))""", re.ASCII)
_OPENED_QUOTE = re.compile(r'\s(?:account="|project="(?!\S* (?:accounting_id|jobname)=))')
_CLOSED_QUOTE = re.compile(r'"\s+(?:project|accounting_id|jobname)=')
_JOB = re.compile(r"(\d{1,18})(?:\[(\d{0,7})\]|-(\d{1,7}))?(?:\.(\S+))?$", re.ASCII)


class PbsAccountingLine(NamedTuple):
    """One line of the log. `at` is its local time, such as `2026-11-23T09:30:00`."""

    at: str
    kind: str
    id: str
    text: str


class PbsJobId(NamedTuple):
    """A PBS job id: `7[2].vm`, or `7-2.vm` in old Torque, is subjob 2 of job 7.

    `subjob` is -1 for a job without an array, and None for an array as a whole. `server` is `vm`.
    """

    number: int
    subjob: int | None
    server: str


def looks_like_pbs_log_line(text: str) -> bool:
    """Return whether the text begins like a line of the log."""
    return _LINE.match(text.lstrip()) is not None


def is_split_record(text: str, following: str) -> bool:
    """Return whether `following` continues the record in `text`.

    PBS does not escape line breaks in users' text, after which a record's last fields are missing. A line that looks
    like another record belongs to the text only within quotes, because a record's date and time contain a blank.
    """
    match = _LINE.match(text)
    if match is None or match[5] not in "EQRS" or not match[7].startswith("user="):
        return False
    opened = _OPENED_QUOTE.search(match[7])
    if opened is not None and _CLOSED_QUOTE.search(match[7], opened.end()) is None:
        return True
    _, _, after_user_text = match[7].partition(" jobname=")
    return " ctime=" not in after_user_text and _LINE.match(following) is None


def parse_pbs_line(text: str) -> PbsAccountingLine:
    """Split a line into its parts. Raise `InvalidValue` for any other text."""
    match = _LINE.match(text.strip())
    if not match:
        raise InvalidValue("line", text.strip(), "must be like 11/23/2026 09:30:00;E;7.server;user=ada ...")
    month, day, year, clock, kind, id, rest = match.groups()
    return PbsAccountingLine(f"{year}-{month}-{day}T{clock}", kind, id, rest)


def parse_pbs_job_id(text: str) -> PbsJobId:
    """Parse a PBS job id. Raise `InvalidValue`."""
    match = _JOB.match(text)
    if not match:
        raise InvalidValue("job", text, "must be like 7.server, or 7[2].server for a subjob")
    number, index, task, server = match.groups()
    index = task if index is None else index
    return PbsJobId(int(number), -1 if index is None else int(index) if index else None, server or "")


class PbsRecordFields(dict[str, str]):
    """A line's fields by name. `twice` contains the names that occur more than once."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.twice: set[str] = set()
        at = 0
        while at < len(text):
            match = _FIELD.match(text, at)
            if match is None:
                at = _next_word_index(text, at)
                continue
            name, *values = match.groups()
            if name in self:
                self.twice.add(name)
            self[name] = next((value for value in values if value is not None), "")
            at = _next_word_index(text, match.end())


_BLANKS = re.compile(r"\s+")


def _next_word_index(text: str, at: int) -> int:
    """Return the index at which the next word starts."""
    match = _BLANKS.search(text, at)
    return match.end() if match else len(text)
