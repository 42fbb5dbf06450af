"""What is damaged: the one place that knows which errors say that a file does not hold what it should hold.

Errors of the outside (a full disk, a lock, a file that may not be opened) are no damage, and pass as they are.
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

_OUTSIDE = frozenset(
    {
        *(sqlite3.SQLITE_AUTH, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
        *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_NOLFS),
        *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_READONLY),
    }
)
"""SQLite's codes for what is wrong outside of the file. All others are the file's: our statements are right."""
_FILE_AFTER_ALL = frozenset({sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})
_OF_CONTENT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, zlib.error)
"""What decoding, JSON, numbers and depth raise."""

_SEAL_BYTES = 4
_LONGEST_WORDS = 200
MOST = 1 << 62
"""No stored number is beyond this, either sign."""
DATES_S = (-62_135_596_800, 253_402_300_799)
"""Seconds that have a date, as Unix time: the years 1 to 9999."""


class CorruptContent(ValueError):
    """What a file holds is not what it should hold; the message says what."""


def is_corruption(error: BaseException) -> bool:
    """Whether an error says that a file is not what it should be; a full disk or a lock does not."""
    if not isinstance(error, sqlite3.Error):  # where SQLite's own message quotes bytes of the file, it has no text
        return isinstance(error, CorruptContent | UnicodeDecodeError)
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # said by Python's module, of a mistake of its caller
        return False
    return code in _FILE_AFTER_ALL or code & 0xFF not in _OUTSIDE


@contextmanager
def reading_content(what: object = "") -> Iterator[None]:
    """Reading in here: whatever the content of a file makes go wrong is raised as `CorruptContent`, with `what` before
    it.
    """
    try:
        yield
    except sqlite3.Error as error:
        if not is_corruption(error):
            raise
        raise CorruptContent(_words(what, error)) from error
    except _OF_CONTENT as error:
        raise CorruptContent(_words(what, error)) from error


def _words(what: object, error: Exception) -> str:
    """`error` in a line of bounded length; Python's own errors by their type too, since `KeyError: 'x'` says `'x'`."""
    said = str(error) if isinstance(error, sqlite3.Error | CorruptContent) else f"{type(error).__name__}: {error}"
    said = said[:_LONGEST_WORDS].encode("utf-8", "backslashreplace").decode()
    return f"{what}: {said}" if what != "" else said


def read_head(path: Path, most: int) -> bytes:
    """The first bytes of a file, `most` at most, however long it is or grows. Raises `OSError`.

    Nobody is waited for: a pipe that nobody writes to holds nothing.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(file, most)
    finally:
        os.close(file)


def require_file(path: Path, follow: bool = True) -> None:
    """Raise `CorruptContent` where a folder, a pipe or a device is in the place of a file; nothing at all is no damage.

    `follow`: a symbolic link is what it leads to. One that leads nowhere may lead to a disk that is not there yet.
    """
    try:
        kind = path.stat(follow_symlinks=follow).st_mode
    except OSError:
        return
    if not stat.S_ISREG(kind):
        raise CorruptContent(f"{path.name} is no file")


def add_checksum(data: bytes) -> bytes:
    """`data` with a checksum, by which `verify_checksum` tells whether they are still the same."""
    return zlib.crc32(data).to_bytes(_SEAL_BYTES, "big") + data


def verify_checksum(data: bytes) -> bytes:
    """What was `add_checksum`. Raises `CorruptContent` if it is not that."""
    if not isinstance(data, bytes) or add_checksum(data[_SEAL_BYTES:]) != data:
        raise CorruptContent("the checksum does not fit")
    return data[_SEAL_BYTES:]


def row_checksum(values: Iterable[object]) -> int:
    """The checksum of a row, to be kept in a column of its own."""
    return zlib.crc32("\x1f".join(map(str, values)).encode("utf-8", "backslashreplace"))


def rows_as(kind: type[T], rows: Iterable[Sequence[Any]]) -> list[T]:
    """Rows of a table as values of the dataclass `kind`, by its fields in order; `CorruptContent` for a wrong type or
    number.

    SQLite holds any type in any column. A field whose name ends in `_s` is a time that has a date, or a span.
    """
    return [kind(*_checked(kind, row)) for row in rows]


def _checked(kind: type, row: Sequence[Any]) -> Sequence[Any]:
    for (name, types), value in zip(_columns(kind), row, strict=True):
        least, most = DATES_S if name.endswith("_s") else (-MOST, MOST)
        if type(value) not in types or (isinstance(value, int | float) and not least <= value <= most):
            raise CorruptContent(_words(name, ValueError(f"{value!r:.60}")))
    return row


@cache
def _columns(kind: type) -> tuple[tuple[str, frozenset[type]], ...]:
    hints = get_type_hints(kind)
    return tuple((each.name, _allowed(hints[each.name])) for each in fields(kind))


def _allowed(hint: Any) -> frozenset[type]:
    types = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return frozenset(NoneType if each is None else each for each in types) | ({int} if float in types else frozenset())
