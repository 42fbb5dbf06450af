"""Read files that settings refer to, and write results atomically."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from cpsched.errors import InvalidValue
from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.input.file_type_guess import describe_special_file
from cpsched_sim.input.input_limits import MAX_JSON_BYTES


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file in one step, so that no reader sees a partial file.

    First write a temporary file in the same folder, then rename it to `path`.

    Create the folder, and compress the content if the name ends in .gz. Raise `InputError` on failure.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    if path.suffix == ".gz":
        content = gzip.compress(content, 6, mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def require_writable_folder(folder: Path) -> None:
    """Raise `InputError` if no file can be written to `folder`.

    A long run can then fail before it starts.

    To test this, write and remove a file in the folder or its nearest existing parent. Do not create a folder.
    """
    there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), Path("/"))
    if not there.is_dir():
        raise InputError(f"{there}: must be a folder for results, but is a file")
    temporary = there / f".cpsched.{os.getpid()}"
    try:
        try:
            temporary.write_bytes(bytes(4096))
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written to: {error.strerror or error}") from error


def format_csv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write rows as CSV with `write_atomically`."""
    write_atomically(path, format_csv(rows).encode())


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256 digest as hex. Raise `InputError` if it is unreadable."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def sha256_of_all(paths: Sequence[Path]) -> str:
    """Return the digest of one file, or of several files' digests in order.

    Raise `InputError`.
    """
    digests = [file_sha256(path) for path in paths]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def read_setting_file(setting: str, path: str, text: bool = False) -> object:
    """Return the content of a JSON file that a setting refers to.

    With `text`, return its text without parsing it.

    Raise `InvalidValue` with the setting and the file.
    """
    try:
        if kind := describe_special_file(Path(path)):
            raise ValueError(f"is {kind}")
        with Path(path).open("rb") as file:
            content = file.read(MAX_JSON_BYTES + 1)
        if len(content) > MAX_JSON_BYTES:
            raise ValueError(f"is larger than {MAX_JSON_BYTES:,} bytes")
        words = content.decode("utf-8-sig")
        return words if text else json.loads(words)
    except (OSError, ValueError, RecursionError, InputError) as error:
        kind = "text" if text else "JSON"
        raise InvalidValue(setting, path, f"cannot be read as {kind}: {quote_value(error)}") from error
