"""The files of the ledger and the journal as read and changed by another program, and with disk faults.

Only `damaged_while_open`, `full_disk`, `no_room` and `setting` access a store's internals.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import Ledger

Store = Ledger | Journal
GARBAGE = b"this is no database at all, " * 400


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the result of a query on the file of a store, which may be open."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def change(path: Path, statement: str, *values: object) -> None:
    """Change the content from outside the store."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def all_in_the_file(path: Path) -> None:
    """Move the content of the write-ahead log into the file."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma wal_checkpoint(truncate)")


def nobody_is_writing(path: Path) -> bool:
    """Return whether another program could write at once, that is, no transaction is open."""
    with closing(sqlite3.connect(path, timeout=0.0)) as db:
        try:
            db.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        return True


def _connection(store: Store) -> sqlite3.Connection:
    return store.file.db if isinstance(store, Ledger) else store._db  # noqa: SLF001


def damaged_while_open(store: Store, path: Path, damage: Callable[[Path], object]) -> None:
    """Damage the file so that the store's next use reads it: its cache is emptied."""
    all_in_the_file(path)
    _connection(store).close()
    damage(path)
    if isinstance(store, Ledger):
        store.file.db = sqlite3.connect(path)
    else:
        store._db = sqlite3.connect(path)  # noqa: SLF001


@contextmanager
def full_disk(store: Store) -> Iterator[None]:
    """Make every write fail; restore afterwards if the store is still open."""
    _connection(store).execute("pragma query_only=on")
    yield
    with suppress(sqlite3.ProgrammingError):
        _connection(store).execute("pragma query_only=off")


def full(*_: object, **__: object) -> None:
    """Fail as a write to a full disk does."""
    raise sqlite3.OperationalError("database or disk is full")


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each write of a ledger fail with SQLite's message for a full disk."""
    monkeypatch.setattr(Ledger, "_write_transitions", full)


def setting(store: Store, name: str) -> Any:
    """Return a SQLite setting of the store's connection, such as `synchronous`."""
    return _connection(store).execute(f"pragma {name}").fetchone()[0]
