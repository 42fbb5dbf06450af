"""The book of advice: which points the bridge has put, or is about to put, on which job. On disk, so that a crash is
harmless.

What is about to be told is written before it is told. A job of the cluster's list whose points are in the book is the
bridge's to change. Any other points are somebody else's, and stay. Nothing has to be written to take points off.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpsched_bridge.cycle_report import Event
from cpsched_bridge.store.corruption import CorruptContent, is_corruption, reading_content, row_checksum
from cpsched_bridge.store.sqlite_files import connect, file_of, move_aside, rows_of, was_replaced

REMEMBERED = 8
"""Values of one job: a cluster that has crashed may come back with one of before."""
_SCHEMA = """create table if not exists advice (
  id integer primary key, points text not null, since_s integer not null, seal integer not null)"""
_ROWS = "select id, points, since_s, seal from advice"


@dataclass(frozen=True, slots=True)
class BoostedJob:
    """One job of the book."""

    points: tuple[int, ...]
    """The values that it was told or is about to be told, the newest last."""
    since_s: int
    """Cluster time of the newest."""


class BoostLedger:
    """The book in an SQLite file, which is made with the first entry. One writer.

    A damaged file is set aside with what it says: points that were in it count as somebody else's from then on, and
    `mishaps` tells so. A file that is taken away beside a living bridge is written anew from memory.
    """

    def __init__(self, path: Path, durable: bool = True) -> None:
        self.mishaps: list[Event] = []
        """What happened to the file, until somebody tells it on."""
        self._path, self._durable = path, durable
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._by_id: dict[int, BoostedJob] = {}
        try:
            if path.exists():
                self._by_id = dict(map(_advised, rows_of(path, _ROWS)))
        except (sqlite3.Error, CorruptContent, UnicodeDecodeError) as error:
            if not is_corruption(error) and "no such table" not in str(error):
                raise
            self._set_aside(error)

    @classmethod
    def readable(cls, path: Path) -> BoostLedger:
        """The book as far as it can be read; an empty one, which says why, where it cannot. Writes nothing."""
        book = cls(path.with_name(path.name + ".none"))
        book._path = path
        with suppress(FileNotFoundError):
            try:
                if path.exists():
                    book._by_id = dict(map(_advised, rows_of(path, _ROWS)))
            except Exception as error:  # whatever it is, what can be taken back is taken back
                book.mishaps.append(Event("advice_unreadable", f"{path}: {error}: whose points are whose is lost"))
        return book

    @property
    def by_id(self) -> Mapping[int, BoostedJob]:
        """All entries; changes with the book."""
        return self._by_id

    def values(self, *ids: int) -> tuple[int, ...]:
        """The points that the bridge may have put on any of these, the newest of the first one last."""
        known = [self._by_id[id].points for id in reversed(ids) if id in self._by_id]
        return tuple(value for points in known for value in points)

    def intend(self, points: Mapping[int, int], now_s: int) -> None:
        """Write what is about to be told, all or nothing. Raises `sqlite3.Error`; nothing is to be told then."""
        entries = {}
        for id, value in points.items():
            before = self._by_id[id].points if id in self._by_id else ()
            told = (*(each for each in before if each != value), value)
            entries[id] = BoostedJob(told[-REMEMBERED:], now_s)
        try:
            self._write(entries)
        except (sqlite3.Error, CorruptContent, UnicodeDecodeError) as error:
            if not is_corruption(error):
                raise
            self._close()
            self._set_aside(error)
            self._write(self._by_id | entries)
        self._by_id |= entries

    def forget(self, alive: Iterable[int], before_s: int) -> None:
        """Drop entries of before `before_s` that are not `alive` any more."""
        alive = set(alive)
        old = [id for id, each in self._by_id.items() if id not in alive and each.since_s < before_s]
        if old and self._path.exists():
            with self._opened() as db:
                db.executemany("delete from advice where id = ?", [(id,) for id in old])
        for id in old:
            del self._by_id[id]

    def close(self) -> None:
        """Close the file."""
        self._close()

    def _write(self, entries: Mapping[int, BoostedJob]) -> None:
        if self._db is not None and was_replaced(self._path, self._file):
            self._close()
            entries = self._by_id | dict(entries)
        rows = [_row(id, each) for id, each in entries.items()]
        with self._opened() as db:
            db.executemany("insert or replace into advice values (?,?,?,?)", rows)

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            db = connect(self._path, self._durable)
            try:
                db.execute("pragma wal_autocheckpoint=1")  # what is committed is in the file itself at once
                db.execute(_SCHEMA)
            except BaseException:
                db.close()
                raise
            self._db, self._file = db, file_of(self._path)
        return self._db

    def _set_aside(self, error: Exception) -> None:
        aside = move_aside(self._path)
        name = aside.name if aside is not None else "nothing"
        lost = "" if self._by_id else ": points that are on jobs now count as somebody else's"
        self.mishaps.append(Event("advice_damaged", f"{self._path}: {error}; set aside as {name}{lost}"))

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()


def _row(id: int, each: BoostedJob) -> tuple[Any, ...]:
    values = (id, json.dumps(each.points), each.since_s)
    return (*values, row_checksum(values))


def _advised(row: tuple[Any, ...]) -> tuple[int, BoostedJob]:
    """An entry of a row. Raises `CorruptContent` for one that is not as it was written."""
    with reading_content(f"job {row[0]!r:.20}"):
        id, points, since_s, seal = row
        if seal != row_checksum((id, points, since_s)):
            raise CorruptContent("the checksum does not fit")
        return int(id), BoostedJob(tuple(map(int, json.loads(points))), int(since_s))
