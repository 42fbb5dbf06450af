"""The shape of each format that a release freezes, and its number.

python -m tests.formats

records the digests of all shapes in tests/data/formats.yaml. The shapes of settings, JSON, API and metrics are the
reference pages without explanations, defaults and examples. `make corpus-check` shows what differs.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import yaml

from cpsched_bridge.web import api_v1
from docs.scripts import json_keys, metrics, settings
from tests.bridges import a_bridge
from tests.fakes import FakeCluster

RECORD = Path(__file__).parent / "data" / "formats.yaml"
HEAD = "# Number and digest of each format that releases freeze. Written by `make formats`.\n"
SETTINGS = JSON = METRICS = 1
"""Numbers of the formats that do not contain their number."""
NOT_SHAPE = {"default", "example", "meaning", "series"}
"""Columns of the reference pages that may change without a new number."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format's number and the lines of its shape."""

    number: int
    lines: tuple[str, ...]

    @property
    def record(self) -> str:
        """Return the number and a digest of the shape."""
        return f"{self.number} {hashlib.sha256(chr(10).join(self.lines).encode()).hexdigest()[:16]}"


def find_formats() -> dict[str, Format]:
    """Return all formats by name. The files in the state directory are those of a bridge after one cycle."""
    commands, _, api = json_keys.page().partition("## HTTP API")
    found = {
        "settings": Format(SETTINGS, tuple(_rows(settings.page()))),
        "JSON": Format(JSON, tuple(_rows(commands))),
        "API": Format(int(api_v1.PREFIX.rpartition("v")[2]), tuple(_rows(api))),
        "metrics": Format(METRICS, tuple(_rows(metrics.page()))),
    }
    with tempfile.TemporaryDirectory() as folder:
        a_bridge(Path(folder), FakeCluster()).cycle()
        return found | {path.name: _read_tables(path) for path in sorted(Path(folder).glob("*.sqlite"))}


def _rows(page: str) -> Iterator[str]:
    """Yield the headings of a page and the rows of its tables, without the columns that are not part of the shape."""
    columns: list[int] = []
    for line in page.splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        if not cells:
            columns = []
            yield from [line] if line.startswith("#") else []
            continue
        if not columns:
            columns = [i for i, name in enumerate(cells) if name.strip() not in NOT_SHAPE]
        yield " | ".join(cells[i].strip() for i in columns)


def _read_tables(path: Path) -> Format:
    with closing(sqlite3.connect(path)) as db:
        (number,) = db.execute("pragma user_version").fetchone()
        statements = db.execute("select sql from sqlite_master where sql is not null order by name").fetchall()
    return Format(number, tuple(" ".join(sql.split()) for (sql,) in statements))


def read_record() -> dict[str, str]:
    """Return what is recorded of each format."""
    return dict(yaml.safe_load(RECORD.read_text()))


if __name__ == "__main__":
    RECORD.write_text(
        HEAD + yaml.safe_dump({name: each.record for name, each in find_formats().items()}, sort_keys=False)
    )
    print(RECORD.read_text(), end="")
