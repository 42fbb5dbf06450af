"""Run `cpsched` in this process as a user would, and convert its output to facts."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import entry_points
from typing import Any
from unittest.mock import patch

Facts = dict[str, str]
"""Path -> value, one line each."""

MEASURED = re.compile(r"(^|/)(cpu_\w+|memory_mb|[a-z]\w*_ms|version|at_unix_s|date|host)(/|$)")
"""Paths whose values are measured or name a version: only their type is compared."""
PROSE = re.compile(r"(^|/)(summary|sentence|description|note|help|title|formula|heading)$")
"""Paths whose values are sentences."""
MOST_ITEMS = 3
"""Number of items of an unnamed list that become facts; the others are hashed."""
DIGITS = 12
"""Significant digits of a number: mathematical libraries differ in the last ones."""
_AGO = re.compile(r"^(last good cycle: |last round: \d+, ).+?(?= ago)", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """The output and exit code of a command."""

    code: int
    out: str
    err: str


def main_of_program() -> Any:
    """Return the function behind the command `cpsched`."""
    (found,) = entry_points(group="console_scripts", name="cpsched")
    return found.load()


def call(*argv: str, **environment: str) -> Answer:
    """Run `cpsched` with these arguments. An unhandled exception gives exit code 70."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    plain = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC", **environment}
    with (
        patch.dict(os.environ, plain),
        patch.object(sys, "argv", ["cpsched", *argv]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main_of_program()()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except Exception as error:
            code = 70
            print(f"{type(error).__name__}: {error}", file=err)
    return Answer(code, out.getvalue(), err.getvalue())


def json_facts(path: str, answer: Answer) -> Facts:
    """Return the exit code and every leaf of a command's JSON."""
    facts = {f"{path}/exit": str(answer.code)}
    if answer.code and not answer.out:
        return facts
    return facts | dict(leaves(path, json.loads(answer.out)))


def leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield every leaf of a JSON value by path; list items by name or number."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(f"{path}/{key}", each)
    elif isinstance(value, list) and value:
        names = [each.get("name") if isinstance(each, dict) else None for each in value]
        unique = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
        shown = value if unique else value[:MOST_ITEMS]
        for at, each in enumerate(shown):
            yield from leaves(f"{path}/{names[at] if unique else at}", each)
        if more := value[len(shown) :]:
            rest = [line for each in more for line in leaves(path, each)]
            yield f"{path}/more", f"{len(more)} items, {sha256(repr(rest).encode()).hexdigest()[:16]}"
    else:
        yield path, leaf(path, value)


def leaf(path: str, value: Any) -> str:
    """Return a value in one line, or its type if it is measured or prose."""
    if MEASURED.search(path) or (PROSE.search(path) and value):
        return f"<{'number' if isinstance(value, int | float) else type(value).__name__}>"
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return json.dumps(value, ensure_ascii=False)


def text_facts(path: str, text: str, *folders: str) -> Facts:
    """Return the lines of a text without folder names and times relative to now."""
    for folder in folders:
        text = text.replace(folder, "DIR")
    lines = [line.rstrip() for line in _AGO.sub(r"\1AGO", text).splitlines()]
    return {f"{path}/{at:03}": line for at, line in enumerate(lines) if line}
