"""Find folders that contain one file per day, named by date."""

from __future__ import annotations

import re
from pathlib import Path

from cpsched_sim.errors import InputError

_DATED_NAME = re.compile(r"\d{8}(?:\.gz)?$", re.ASCII)


def has_dated_files(folder: Path) -> bool:
    """Return whether a folder contains files named by date."""
    try:
        return bool(dated_files(folder))
    except InputError:
        return False


def dated_files(path: Path) -> list[Path]:
    """Return the files in a folder that are named by date, or `[path]` for a file.

    The names are YYYYMMDD or YYYYMMDD.gz. The oldest file comes first.

    Raise `InputError` if a folder cannot be listed or contains no such file.
    """
    try:
        if not path.is_dir():
            return [path]
        found = sorted(file for file in path.iterdir() if _DATED_NAME.match(file.name) and file.is_file())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if not found:
        raise InputError(f"{path}: is a directory without files named by date, such as 20261122")
    return found
