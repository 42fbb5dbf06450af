"""Keep a ledger's entries in memory and in an SQLite file with one writer.

The entries survive a crash.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.store.corruption_checks import (
    CorruptFileContent,
    compute_row_checksum,
    convert_content_errors,
    is_corruption,
)
from cpsched_bridge.store.sqlite_files import connect_sqlite, identify_file, move_aside, read_rows, was_file_replaced

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class LedgerEntryFormat(Generic[E]):
    """How a file stores entries: one row per entry, with id, columns and checksum."""

    table: str
    columns: str
    """SQL definitions of the columns between the id and the checksum."""
    to_columns: Callable[[E], tuple[Any, ...]]
    from_row: Callable[..., E]
    """Return the entry stored in a row's id and columns. An error means that the row is invalid."""
    loss: str
    """Consequence of losing all entries, for the event that reports the loss."""


class LedgerEntryFile(Generic[E]):
    """Entries by id, in memory and in a file. The first entry creates the file.

    A damaged file is moved aside, and `unreported_events` reports this. A file that is deleted while the bridge runs is
    written again from memory. With `read_only`, nothing is written, and an unreadable file counts as empty.
    """

    def __init__(self, path: Path, format: LedgerEntryFormat[E], durable: bool = True, read_only: bool = False) -> None:
        self.entries: dict[int, E] = {}
        self.unreported_events: list[CycleEvent] = []
        """Events about the file that have not been reported yet."""
        self._path, self._format, self._durable = path, format, durable
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        try:
            if path.exists():
                self.entries = dict(map(self._parse_row, read_rows(path, f"select * from {format.table}")))
        except Exception as error:
            if read_only:
                if not isinstance(error, FileNotFoundError):  # deleted since
                    self._report("unreadable", str(error))
            elif is_corruption(error):
                self._move_file_aside(error)
            else:
                raise

    def write(self, entries: Mapping[int, E]) -> None:
        """Add or replace entries in the file, all or none, and then in memory.

        If this raises `sqlite3.Error`, both are unchanged.
        """
        if not entries:
            return
        rows = entries
        if self._db is not None and was_file_replaced(self._path, self._file):
            self.close()
            rows = self.entries | dict(entries)
        try:
            self._write_rows(rows)
        except (sqlite3.Error, CorruptFileContent, UnicodeDecodeError) as error:
            if not is_corruption(error):
                raise
            self.close()
            self._move_file_aside(error)
            self._write_rows(self.entries | dict(entries))
        self.entries |= entries

    def delete(self, ids: Collection[int]) -> None:
        """Delete entries from the file and from memory."""
        if ids and self._path.exists():
            with self._open_or_create() as db:
                db.executemany(f"delete from {self._format.table} where id = ?", [(id,) for id in ids])
        for id in ids:
            del self.entries[id]

    def close(self) -> None:
        """Close the file."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _write_rows(self, entries: Mapping[int, E]) -> None:
        values = [(id, *self._format.to_columns(each)) for id, each in entries.items()]
        rows = [(*each, compute_row_checksum(each)) for each in values]
        with self._open_or_create() as db:
            marks = ",".join("?" * len(rows[0]))
            db.executemany(f"insert or replace into {self._format.table} values ({marks})", rows)

    def _open_or_create(self) -> sqlite3.Connection:
        if self._db is None:
            db = connect_sqlite(self._path, self._durable)
            try:
                db.execute("pragma wal_autocheckpoint=1")  # commits reach the file itself immediately
                columns = f"id integer primary key, {self._format.columns}, seal integer not null"
                db.execute(f"create table if not exists {self._format.table} ({columns})")
            except BaseException:
                db.close()
                raise
            self._db, self._file = db, identify_file(self._path)
        return self._db

    def _parse_row(self, row: tuple[Any, ...]) -> tuple[int, E]:
        """Return the id and entry stored in a row. Raise `CorruptFileContent`."""
        with convert_content_errors(f"{self._format.table} {row[0]!r:.20}"):
            *values, seal = row
            if seal != compute_row_checksum(values):
                raise CorruptFileContent("the checksum does not match")
            return int(values[0]), self._format.from_row(*values)

    def _move_file_aside(self, error: Exception) -> None:
        aside = move_aside(self._path)
        self._report("damaged", f"{error}; moved to {aside.name if aside is not None else 'nothing'}")

    def _report(self, what: str, text: str) -> None:
        lost = "" if self.entries else f"; {self._format.loss}"
        self.unreported_events.append(CycleEvent(f"{self._path.stem}_{what}", f"{self._path}: {text}{lost}"))
