"""SQLite files: how they are made and opened, whether they are still there, and how one is set aside."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cpsched_bridge.store.corruption import CorruptContent, is_corruption, read_head, require_file

OWNERS_ALONE = 0o600
"""Mode of files with names of users and jobs in them, whatever the umask."""
_BESIDE = ("-wal", "-shm")
"""What SQLite keeps beside a file, by the end of the name; these get the mode of the file itself."""
_PATIENCE_S = 5.0
"""How long to wait for another process that has the file locked."""
_MAGIC = b"SQLite format 3\0"
_VERSIONS = (18, 19)
"""Bytes of the head that say who may write and read; with others than 1 and 2, SQLite takes the file for read-only."""


def connect(path: Path | str, durable: bool, read_only: bool = False, auto_vacuum: bool = False) -> sqlite3.Connection:
    """An SQLite connection in WAL mode; `durable` commits reach the disk. Raises `sqlite3.Error`, `CorruptContent`.

    `auto_vacuum`: what is deleted can be given back to the file system, in a file that is made now.
    """
    if path != ":memory:":
        _require_files(Path(path))
    if read_only:
        return _opened(f"file:{quote(str(path))}?mode=ro", uri=True)
    if path != ":memory:":
        _make(Path(path))
        _look_at_head(Path(path))
    db = _opened(path)
    try:
        if auto_vacuum:
            db.execute("pragma auto_vacuum=incremental")  # before anything else is written
        db.execute("pragma journal_mode=wal")
        db.execute(f"pragma synchronous={'full' if durable else 'normal'}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _opened(name: Path | str, uri: bool = False) -> sqlite3.Connection:
    db = sqlite3.connect(name, timeout=_PATIENCE_S, uri=uri)
    db.text_factory = bytes.decode  # Python's own decoding would raise an error that looks like one of SQLite's
    return db


def _require_files(path: Path) -> None:
    """Raise `CorruptContent` where SQLite would wait for a pipe, or be unable to open what is beside the file."""
    require_file(path)
    for end in _BESIDE:
        require_file(path.with_name(path.name + end), follow=False)  # SQLite opens no link there


def _make(path: Path) -> None:
    """Make the file where there is none: SQLite would make it readable for all whom the umask allows."""
    with contextlib.suppress(OSError):  # SQLite says what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNERS_ALONE))


def _look_at_head(path: Path) -> None:
    """Raise `CorruptContent` where SQLite would not say so. No connection to the file is open: its locks would be
    lost.
    """
    try:
        head = read_head(path, 100)
    except OSError:
        return  # SQLite says what is wrong
    if head.startswith(_MAGIC) and any(head[at : at + 1] not in (b"\1", b"\2") for at in _VERSIONS):
        raise CorruptContent("the head of the file is damaged")


def file_of(path: Path | str) -> tuple[int, int] | None:
    """What tells the file at `path` from any other that is there later; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def was_replaced(path: Path | str, file: tuple[int, int] | None) -> bool:
    """Whether the `file` that was at `path` is there no more: SQLite would go on writing to what nobody finds again."""
    if file is None:
        return False
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return (found.st_dev, found.st_ino) != file


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in a file, without a byte of free space. Raises `sqlite3.Error`, `CorruptContent`.

    Texts are decoded as they are read: one that is no UTF-8 raises `UnicodeDecodeError`.
    """
    _require_files(path)
    log = path.with_name(path.name + "-wal")
    ways = ["mode=ro", "mode=rw"]
    if not log.exists() or not log.stat().st_size:
        ways.append("mode=ro&immutable=1")  # would overlook what is in the write-ahead log alone
    for way in ways:
        try:
            db = _opened(f"file:{quote(str(path))}?{way}", uri=True)
        except sqlite3.Error:
            continue
        try:
            if way == "mode=rw":
                db.execute("pragma locking_mode=exclusive")  # the log's index is kept in memory: no file for it
            return db.execute(query).fetchall()
        except sqlite3.Error as error:
            if way == ways[-1] or is_corruption(error):
                raise
        finally:
            db.close()
    raise sqlite3.OperationalError(f"{path}: cannot be opened")


def storable(words: str) -> str:
    """`words`, with what is no character (half a surrogate pair, from a user's bytes) escaped."""
    return words.encode("utf-8", "backslashreplace").decode()


def move_aside(path: Path, why: str = "damaged") -> Path | None:
    """Give a file another name, with what SQLite keeps beside it; nothing is deleted. Returns the new name.

    The name has the time in it: `ledger.sqlite.damaged-20261121T140503Z`. A file that is not there, or is empty, is
    left as it is (None).
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return None
    stem = f"{path.name}.{why}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    new, more = path.with_name(stem), 1
    while new.exists():
        more += 1
        new = path.with_name(f"{stem}-{more}")
    for end in _BESIDE:
        beside = path.with_name(path.name + end)
        if os.path.lexists(beside):
            beside.rename(new.with_name(new.name + end))
    path.rename(new)
    return new
