"""Keep the entries of one table of the state file in memory and in the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cpsched_bridge.store.corruption_checks import convert_content_errors
from cpsched_bridge.store.state_file import Row, StateFile, insert_rows, seal_row

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class EntryFormat(Generic[E]):
    """How a table stores entries: one row per entry, with id, columns and checksum."""

    table: str
    to_columns: Callable[[E], tuple[Any, ...]]
    from_row: Callable[..., E]
    """Return the entry stored in a row's id and columns. An error means that the row is invalid."""


class StateTable(Generic[E]):
    """Entries by id, in memory and in a table of a state file.

    Raise `sqlite3.Error` or `CorruptFileContent` if the table cannot be read.
    """

    def __init__(self, file: StateFile, format: EntryFormat[E]) -> None:
        self._file, self._format = file, format
        rows = file.take_rows(format.table, lambda: self._to_rows(self.entries))
        self.entries: dict[int, E] = dict(map(self._parse_row, rows))

    def write(self, entries: Mapping[int, E]) -> None:
        """Add or replace entries in the file, all or none, and then in memory.

        If this raises `sqlite3.Error`, both are unchanged.
        """
        if entries:
            self._file.restore_if_missing()
            self._file.write_in_transaction(lambda db: insert_rows(db, self._format.table, self._to_rows(entries)))
            self.entries |= entries

    def delete(self, ids: Collection[int]) -> None:
        """Delete entries from the file and from memory."""

        def execute_statements(db: sqlite3.Connection) -> None:
            db.executemany(f"delete from {self._format.table} where id = ?", [(id,) for id in ids])

        if ids:
            self._file.write_in_transaction(execute_statements)
        for id in ids:
            del self.entries[id]

    def _to_rows(self, entries: Mapping[int, E]) -> Iterator[Row]:
        return (seal_row(id, *self._format.to_columns(entry)) for id, entry in entries.items())

    def _parse_row(self, row: Row) -> tuple[int, E]:
        with convert_content_errors(f"{self._format.table} {row[0]!r:.20}"):
            return int(row[0]), self._format.from_row(*row[:-1])
