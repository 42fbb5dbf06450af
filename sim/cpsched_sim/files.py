"""Reads settings from files, and writes results: whole files or none."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from cpsched.errors import InvalidValue
from cpsched_sim.errors import Unusable


def write_whole(path: Path, content: bytes) -> None:
    """Write beside, then rename: readers see the old file or the new one, never half of it.

    Makes the folder where there is none, packs the content if the name ends in .gz. Raises `Unusable`.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    if path.suffix == ".gz":
        content = gzip.compress(content, 6, mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_bytes(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise Unusable(f"{path}: cannot be written: {error.strerror or error}") from error


def write_table(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Rows as CSV; see `write_whole`."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole(path, text.getvalue().encode())


def read_json(setting: str, path: str) -> object:
    """The content of a JSON file that a setting names. Raises `InvalidValue` naming the setting and the file."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidValue(setting, path, f"cannot be read as JSON: {error}") from error
