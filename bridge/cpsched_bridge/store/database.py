"""SQLite files: how they are opened, and what becomes of one that is damaged."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BESIDE = ("-wal", "-shm")
"""What SQLite keeps beside a file, by the end of the name."""


def connect(path: Path | str, durable: bool, read_only: bool = False, auto_vacuum: bool = False) -> sqlite3.Connection:
    """An SQLite connection in WAL mode; `durable` commits reach the disk.

    `auto_vacuum`: what is deleted can be given back to the file system, in a file that is made now.
    """
    if read_only:
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)
    db = sqlite3.connect(path, timeout=5.0)
    try:
        if auto_vacuum:
            db.execute("pragma auto_vacuum=incremental")  # before anything else is written
        db.execute("pragma journal_mode=wal")
        db.execute(f"pragma synchronous={'full' if durable else 'normal'}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in a file, without a byte of free space. Raises `sqlite3.Error`."""
    log = path.with_name(path.name + "-wal")
    ways = ["mode=ro", "mode=rw"]
    if not log.exists() or not log.stat().st_size:
        ways.append("mode=ro&immutable=1")  # would overlook what is in the write-ahead log alone
    for way in ways:
        try:
            db = sqlite3.connect(f"file:{path}?{way}", uri=True, timeout=5.0)
        except sqlite3.Error:
            continue
        try:
            if way == "mode=rw":
                db.execute("pragma locking_mode=exclusive")  # the log's index is kept in memory: no file for it
            return db.execute(query).fetchall()
        except sqlite3.Error as error:
            if way == ways[-1] or is_damage(error):
                raise
        finally:
            db.close()
    raise sqlite3.OperationalError(f"{path}: cannot be opened")


def is_damage(error: Exception) -> bool:
    """Whether an error says that a file is not what it should be; a full disk or a lock does not."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
    return isinstance(error, Damaged)


class Damaged(ValueError):
    """What a file holds is not what it should hold; the message says what."""


def set_aside(path: Path, why: str = "damaged") -> Path | None:
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
        if beside.exists():
            beside.rename(new.with_name(new.name + end))
    path.rename(new)
    return new
