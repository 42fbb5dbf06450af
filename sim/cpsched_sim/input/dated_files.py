"""Files that a program begins anew each day: a folder whose files are named after their dates."""

from __future__ import annotations

import re
from pathlib import Path

from cpsched_sim.errors import InputError

_DATED = re.compile(r"\d{8}(?:\.gz)?$", re.ASCII)


def has_dated_files(folder: Path) -> bool:
    """Whether a folder has files that are named after a day."""
    try:
        return bool(dated_files(folder))
    except InputError:
        return False


def dated_files(path: Path) -> list[Path]:
    """The files of a folder that are named YYYYMMDD or YYYYMMDD.gz, in order of time; `[path]` where it is no folder.

    Raises `InputError` where a folder cannot be listed, or has no such file.
    """
    try:
        if not path.is_dir():
            return [path]
        found = sorted(file for file in path.iterdir() if _DATED.match(file.name) and file.is_file())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if not found:
        raise InputError(f"{path}: is a directory without files that are named after a day, such as 20261122")
    return found
