"""Detect damaged files. No other module decides which errors mean damage.

External errors, such as a full disk, a lock or missing permissions, are not damage and propagate unchanged.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

T = TypeVar("T")

_EXTERNAL_ERRORS = frozenset(
    {
        *(sqlite3.SQLITE_AUTH, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
        *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_NOLFS),
        *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_READONLY),
    }
)
"""SQLite's codes for external errors. Any other code means damage, because our SQL is correct."""
_FILE_ERRORS = frozenset({sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})
_CONTENT_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, zlib.error)
"""Exceptions that invalid encoding, invalid JSON, invalid numbers or deep nesting may raise."""

_SEAL_BYTES = 4
_MAX_ERROR_CHARS = 200
MAX_NUMBER = 1 << 62
"""Largest absolute value of a stored number."""
DATE_RANGE_S = (-62_135_596_800, 253_402_300_799)
"""Range of Unix times that have a date, in the years 1 to 9999."""


class CorruptFileContent(ValueError):
    """An error for invalid file content. The message states the reason."""


def is_corruption(error: BaseException) -> bool:
    """Return whether an error means that a file is damaged."""
    if not isinstance(error, sqlite3.Error):  # an SQLite error that quotes the file's bytes fails to decode
        return isinstance(error, CorruptFileContent | UnicodeDecodeError)
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # raised by Python's `sqlite3` module for an invalid call
        return False
    return code in _FILE_ERRORS or code & 0xFF not in _EXTERNAL_ERRORS


@contextmanager
def convert_content_errors(what: object = "") -> Iterator[None]:
    """Convert errors caused by a file's content to `CorruptFileContent`.

    The message of the new error starts with `what`.
    """
    try:
        yield
    except sqlite3.Error as error:
        if not is_corruption(error):
            raise
        raise CorruptFileContent(_format_error(what, error)) from error
    except _CONTENT_ERRORS as error:
        raise CorruptFileContent(_format_error(what, error)) from error


def _format_error(what: object, error: Exception) -> str:
    """Return `error` as text of limited length.

    The text for a built-in error includes its type, because `str(KeyError("x"))`, for example, is only `'x'`.
    """
    text = str(error) if isinstance(error, sqlite3.Error | CorruptFileContent) else f"{type(error).__name__}: {error}"
    text = text[:_MAX_ERROR_CHARS].encode("utf-8", "backslashreplace").decode()
    return f"{what}: {text}" if what != "" else text


def read_file_head(path: Path, most: int) -> bytes:
    """Return at most the first `most` bytes of a file. Raise `OSError`.

    Never block: a pipe without a writer counts as empty.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(file, most)
    finally:
        os.close(file)


def require_regular_file_or_missing(path: Path, follow: bool = True) -> None:
    """Raise `CorruptFileContent` if the path is a directory, a pipe or a device.

    A missing file is not damage. With `follow`, check the target of a symbolic link. A missing target may be on a disk
    that is not mounted yet.
    """
    try:
        kind = path.stat(follow_symlinks=follow).st_mode
    except OSError:
        return
    if not stat.S_ISREG(kind):
        raise CorruptFileContent(f"{path.name} is not a file")


def add_checksum(data: bytes) -> bytes:
    """Return `data` preceded by a checksum that `verify_checksum` checks."""
    return zlib.crc32(data).to_bytes(_SEAL_BYTES, "big") + data


def verify_checksum(data: bytes) -> bytes:
    """Return the data without its checksum. Raise `CorruptFileContent`."""
    if not isinstance(data, bytes) or add_checksum(data[_SEAL_BYTES:]) != data:
        raise CorruptFileContent("the checksum does not match")
    return data[_SEAL_BYTES:]


def compute_row_checksum(values: Iterable[object]) -> int:
    """Return the checksum of a row's values, for a separate column."""
    return zlib.crc32("\x1f".join(map(str, values)).encode("utf-8", "backslashreplace"))


def rows_to_dataclasses(kind: type[T], rows: Iterable[Sequence[Any]]) -> list[T]:
    """Return rows as instances of the dataclass `kind`.

    Raise `CorruptFileContent` if a value is invalid. Columns are in the order of the fields. Types are checked because
    SQLite stores any type in any column. The value of a field whose name ends in `_s` must be within `DATE_RANGE_S`.
    """
    return [kind(*_check_row(kind, row)) for row in rows]


def _check_row(kind: type, row: Sequence[Any]) -> Sequence[Any]:
    for (name, types), value in zip(_get_column_types(kind), row, strict=True):
        least, most = DATE_RANGE_S if name.endswith("_s") else (-MAX_NUMBER, MAX_NUMBER)
        if type(value) not in types or (isinstance(value, int | float) and not least <= value <= most):
            raise CorruptFileContent(_format_error(name, ValueError(f"{value!r:.60}")))
    return row


@cache
def _get_column_types(kind: type) -> tuple[tuple[str, frozenset[type]], ...]:
    hints = get_type_hints(kind)
    return tuple((each.name, _get_allowed_types(hints[each.name])) for each in fields(kind))


def _get_allowed_types(hint: Any) -> frozenset[type]:
    types = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return frozenset(NoneType if each is None else each for each in types) | ({int} if float in types else frozenset())
