"""Split the tables and the NAME=VALUE lists that Slurm's commands print.

Values are users' text and may contain any line separator but a line feed, so no function uses `str.splitlines`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

_NAME = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w:/()-]*)=")


class TableRow(NamedTuple):
    """A row of a table: its line number, and its values by heading.

    `missing` is the first heading without a value, or "".
    """

    line: int
    values: Mapping[str, str]
    missing: str = ""


def parse_headings(text: str) -> list[str]:
    """Return the headings of a Slurm command's `-P` output."""
    return text.partition("\n")[0].removesuffix("\r").split("|")


def parse_pipe_table(text: str) -> Iterator[TableRow]:
    """Yield the rows of a Slurm command's `-P` output: headings, then values."""
    headings = parse_headings(text)
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n")[1:], start=2):
        if line.strip():
            values = line.split("|")
            missing = headings[len(values)] if len(values) < len(headings) else ""
            yield TableRow(number, dict(zip(headings, values, strict=False)), missing)


def parse_name_values(line: str, text_names: Collection[str] = ()) -> dict[str, str]:
    """Return the NAME=VALUE pairs in a line from `scontrol`.

    A value may be empty or contain spaces. If a name appears more than once, its first value counts. The value of a
    name in `text_names` is the rest of the line. A line that does not begin with a name has no pairs, because it
    continues a user's text.

    >>> parse_name_values("OS=Linux 6.1 #1 State=IDLE Comment= State=DOWN")
    {'OS': 'Linux 6.1 #1', 'State': 'IDLE', 'Comment': ''}
    """
    line = line.strip()
    names = list(_NAME.finditer(line))
    values: dict[str, str] = {}
    if names and names[0].start():
        return values
    for at, name in enumerate(names, start=1):
        if name[1] in text_names:
            values.setdefault(name[1], line[name.end() :])
            break
        end = names[at].start() if at < len(names) else None
        values.setdefault(name[1], line[name.end() : end].strip())
    return values
