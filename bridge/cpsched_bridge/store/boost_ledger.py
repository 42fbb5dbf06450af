"""Record the bridge's boosts on disk before they are sent, to make a crash harmless.

The bridge may change only recorded boosts, because any other boost belongs to another actor. Removals are not recorded.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.store.corruption_checks import CorruptFileContent, is_corruption, raise_as_corrupt, row_checksum
from cpsched_bridge.store.sqlite_files import connect_sqlite, identify_file, move_aside, read_rows, was_replaced

MAX_STORED_BOOSTS = 8
"""Number of boosts stored per job, because a cluster may return to an earlier boost after a crash."""
_SCHEMA = """create table if not exists advice (
  id integer primary key, points text not null, since_s integer not null, seal integer not null)"""
_SELECT_ROWS = "select id, points, since_s, seal from advice"


@dataclass(frozen=True, slots=True)
class BoostedJob:
    """One job's entry in the boost ledger."""

    points: tuple[int, ...]
    """Boosts that were sent or are about to be sent, newest last."""
    since_s: int
    """Cluster time of the newest boost."""


class BoostLedger:
    """The boost ledger in an SQLite file with a single writer. The first entry creates the file.

    A damaged file is moved aside, and `unreported_events` reports this. The boosts in that file then count as another
    actor's. If the file is deleted while the bridge runs, it is written again from memory.
    """

    def __init__(self, path: Path, durable: bool = True) -> None:
        self.unreported_events: list[CycleEvent] = []
        """Events about the file that have not been reported yet."""
        self._path, self._durable = path, durable
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._by_id: dict[int, BoostedJob] = {}
        try:
            if path.exists():
                self._by_id = dict(map(_parse_row, read_rows(path, _SELECT_ROWS)))
        except (sqlite3.Error, CorruptFileContent, UnicodeDecodeError) as error:
            if not is_corruption(error) and "no such table" not in str(error):
                raise
            self._move_file_aside(error)

    @classmethod
    def open_tolerant_read_only(cls, path: Path) -> BoostLedger:
        """Return the boost ledger, or an empty ledger that reports why it is unreadable. Write nothing to disk."""
        book = cls(path.with_name(path.name + ".none"))
        book._path = path
        with suppress(FileNotFoundError):
            try:
                if path.exists():
                    book._by_id = dict(map(_parse_row, read_rows(path, _SELECT_ROWS)))
            except Exception as error:  # the caller still removes the boosts that are known
                book.unreported_events.append(
                    CycleEvent("advice_unreadable", f"{path}: {error}; it is unknown which boosts the bridge set")
                )
        return book

    @property
    def by_id(self) -> Mapping[int, BoostedJob]:
        """All entries by id, as a live view of the boost ledger."""
        return self._by_id

    def list_possible_boosts(self, *ids: int) -> tuple[int, ...]:
        """Return the boosts that the bridge may have set on these ids. The first id's newest boost is last."""
        known = [self._by_id[id].points for id in reversed(ids) if id in self._by_id]
        return tuple(value for points in known for value in points)

    def record_intended(self, points: Mapping[int, int], now_s: int) -> None:
        """Record boosts atomically. If this raises `sqlite3.Error`, the boosts must not be sent."""
        entries = {}
        for id, value in points.items():
            before = self._by_id[id].points if id in self._by_id else ()
            values = (*(each for each in before if each != value), value)
            entries[id] = BoostedJob(values[-MAX_STORED_BOOSTS:], now_s)
        try:
            self._write_entries(entries)
        except (sqlite3.Error, CorruptFileContent, UnicodeDecodeError) as error:
            if not is_corruption(error):
                raise
            self.close()
            self._move_file_aside(error)
            self._write_entries(self._by_id | entries)
        self._by_id |= entries

    def prune(self, alive: Iterable[int], before_s: int) -> None:
        """Delete the entries from before `before_s` whose ids are not in `alive`."""
        alive = set(alive)
        old = [id for id, each in self._by_id.items() if id not in alive and each.since_s < before_s]
        if old and self._path.exists():
            with self._open_or_create() as db:
                db.executemany("delete from advice where id = ?", [(id,) for id in old])
        for id in old:
            del self._by_id[id]

    def _write_entries(self, entries: Mapping[int, BoostedJob]) -> None:
        if self._db is not None and was_replaced(self._path, self._file):
            self.close()
            entries = self._by_id | dict(entries)
        rows = [_make_row(id, each) for id, each in entries.items()]
        with self._open_or_create() as db:
            db.executemany("insert or replace into advice values (?,?,?,?)", rows)

    def _open_or_create(self) -> sqlite3.Connection:
        if self._db is None:
            db = connect_sqlite(self._path, self._durable)
            try:
                db.execute("pragma wal_autocheckpoint=1")  # commits reach the file itself immediately
                db.execute(_SCHEMA)
            except BaseException:
                db.close()
                raise
            self._db, self._file = db, identify_file(self._path)
        return self._db

    def _move_file_aside(self, error: Exception) -> None:
        aside = move_aside(self._path)
        name = aside.name if aside is not None else "nothing"
        lost = "" if self._by_id else "; boosts on jobs now count as set by another actor"
        self.unreported_events.append(CycleEvent("advice_damaged", f"{self._path}: {error}; moved to {name}{lost}"))

    def close(self) -> None:
        """Close the file."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()


def _make_row(id: int, each: BoostedJob) -> tuple[Any, ...]:
    values = (id, json.dumps(each.points), each.since_s)
    return (*values, row_checksum(values))


def _parse_row(row: tuple[Any, ...]) -> tuple[int, BoostedJob]:
    """Return the id and entry stored in a row. Raise `CorruptFileContent` if the row is invalid."""
    with raise_as_corrupt(f"job {row[0]!r:.20}"):
        id, points, since_s, seal = row
        if seal != row_checksum((id, points, since_s)):
            raise CorruptFileContent("the checksum does not match")
        return int(id), BoostedJob(tuple(map(int, json.loads(points))), int(since_s))
