"""Create, open and check SQLite files, and move damaged files aside."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cpsched_bridge.store.corruption_checks import (
    CorruptFileContent,
    is_corruption,
    read_file_head,
    require_regular_file_or_missing,
)

OWNER_ONLY = 0o600
"""File mode, regardless of the umask, for files that contain the names of users and jobs."""
_EXTRA_SUFFIXES = ("-wal", "-shm")
"""Suffixes of SQLite's additional files, which get the mode of the database file."""
_LOCK_TIMEOUT_S = 5.0
"""Seconds to wait for a lock that another process holds."""
_MAGIC = b"SQLite format 3\0"
_VERSION_OFFSETS = (18, 19)
"""Offsets of the write and read versions. For values other than 1 and 2, SQLite opens the file read-only."""


def connect_sqlite(
    path: Path | str, durable: bool, read_only: bool = False, auto_vacuum: bool = False
) -> sqlite3.Connection:
    """Return a connection in WAL mode. Raise `sqlite3.Error` or `CorruptFileContent`.

    With `durable`, each commit is flushed to disk. With `auto_vacuum`, a new file can return deleted space to the file
    system.
    """
    if path != ":memory:":
        _require_regular_sqlite_files(Path(path))
    if read_only:
        return _connect(f"file:{quote(str(path))}?mode=ro", uri=True)
    if path != ":memory:":
        _create_missing_file(Path(path))
        _check_header(Path(path))
    db = _connect(path)
    try:
        if auto_vacuum:
            db.execute("pragma auto_vacuum=incremental")  # must precede all writes
        db.execute("pragma journal_mode=wal")
        db.execute(f"pragma synchronous={'full' if durable else 'normal'}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _connect(name: Path | str, uri: bool = False) -> sqlite3.Connection:
    db = sqlite3.connect(name, timeout=_LOCK_TIMEOUT_S, uri=uri)
    db.text_factory = bytes.decode  # Python's decoding would raise an error that looks like SQLite's
    return db


def _require_regular_sqlite_files(path: Path) -> None:
    """Raise `CorruptFileContent` if SQLite would block or fail to open a file.

    A pipe blocks SQLite, and an additional file must be a regular file.
    """
    require_regular_file_or_missing(path)
    for end in _EXTRA_SUFFIXES:
        require_regular_file_or_missing(
            path.with_name(path.name + end), follow=False
        )  # SQLite does not open links here


def _create_missing_file(path: Path) -> None:
    """Create a missing file, because SQLite would use the umask for its permissions."""
    with contextlib.suppress(OSError):  # SQLite reports the error
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))


def _check_header(path: Path) -> None:
    """Raise `CorruptFileContent` for damage that SQLite would ignore.

    Opening the file here releases the locks of existing connections to it.
    """
    try:
        head = read_file_head(path, 100)
    except OSError:
        return  # SQLite reports the error
    if head.startswith(_MAGIC) and any(head[at : at + 1] not in (b"\1", b"\2") for at in _VERSION_OFFSETS):
        raise CorruptFileContent("the file header is damaged")


def identify_file(path: Path | str) -> tuple[int, int] | None:
    """Return the device and inode of the file at `path`, or None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def was_file_replaced(path: Path | str, file: tuple[int, int] | None) -> bool:
    """Return whether `path` no longer refers to `file`.

    SQLite would then write to a deleted file.
    """
    if file is None:
        return False
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return (found.st_dev, found.st_ino) != file


def read_rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows that a query selects, even on a full disk.

    Raise `sqlite3.Error` or `CorruptFileContent`. Text is decoded when it is read, so invalid UTF-8 raises
    `UnicodeDecodeError`.
    """
    _require_regular_sqlite_files(path)
    log = path.with_name(path.name + "-wal")
    ways = ["mode=ro", "mode=rw"]
    if not log.exists() or not log.stat().st_size:
        ways.append("mode=ro&immutable=1")  # ignores rows that exist only in the write-ahead log
    for way in ways:
        try:
            db = _connect(f"file:{quote(str(path))}?{way}", uri=True)
        except sqlite3.Error:
            continue
        try:
            if way == "mode=rw":
                db.execute("pragma locking_mode=exclusive")  # keep the log's index in memory instead of a file
            return db.execute(query).fetchall()
        except sqlite3.Error as error:
            if way == ways[-1] or is_corruption(error):
                raise
        finally:
            db.close()
    raise sqlite3.OperationalError(f"{path}: cannot be opened")


def replace_surrogates(text: str) -> str:
    """Return `text` with lone surrogates, which cannot be encoded, escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def move_aside(path: Path, why: str = "damaged") -> Path | None:
    """Rename a file and SQLite's additional files. Return the new path.

    The new name contains the time, for example `state.sqlite.damaged-20261121T140503Z`. Return None for a missing or
    empty file, which stays in place.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return None
    stem = f"{path.name}.{why}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    new, more = path.with_name(stem), 1
    while new.exists():
        more += 1
        new = path.with_name(f"{stem}-{more}")
    for end in _EXTRA_SUFFIXES:
        target = path.with_name(path.name + end)
        if os.path.lexists(target):
            target.rename(new.with_name(new.name + end))
    path.rename(new)
    return new
