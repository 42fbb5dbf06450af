"""The files of ledger and journal, as another program reads and changes them, and as a disk fails them.

`damaged_while_open`, `full_disk`, `no_room` and `setting` are where tests reach into a store; no others need to.
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


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in the file of a store, which may be open."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def change(path: Path, statement: str, *values: object) -> None:
    """Change the content behind a store's back."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def all_in_the_file(path: Path) -> None:
    """Take over what is still in the log beside the file, and empty that."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma wal_checkpoint(truncate)")


def nobody_is_writing(path: Path) -> bool:
    """Whether another program could begin to write at once: no transaction was left open."""
    with closing(sqlite3.connect(path, timeout=0.0)) as db:
        try:
            db.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        return True


def damaged_while_open(store: Store, path: Path, damage: Callable[[Path], object]) -> None:
    """Damage the file so that the store's next use meets that: nothing of the file is in its memory any more."""
    all_in_the_file(path)
    store._db.close()  # noqa: SLF001
    damage(path)
    store._db = sqlite3.connect(path)  # noqa: SLF001


@contextmanager
def full_disk(store: Store) -> Iterator[None]:
    """Every write fails; as before afterwards, where the store is still open."""
    store._db.execute("pragma query_only=on")  # noqa: SLF001
    yield
    with suppress(sqlite3.ProgrammingError):
        store._db.execute("pragma query_only=off")  # noqa: SLF001


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on each write of a ledger fails, with SQLite's own words for a full disk."""

    def full(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Ledger, "_write", full)


def setting(store: Store, name: str) -> Any:
    """A setting of SQLite's that counts for the store's connection alone, such as `synchronous`."""
    return store._db.execute(f"pragma {name}").fetchone()[0]  # noqa: SLF001
