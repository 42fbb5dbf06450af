"""Record preemptions on disk before their victims are stopped, to make a crash harmless.

A preemption is `open` until its job runs or the bridge drops it. Closed preemptions are kept for the limits.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.ports import PreemptionUnderWay, Victim
from cpsched_bridge.store.corruption_checks import CorruptFileContent, is_corruption, raise_as_corrupt, row_checksum
from cpsched_bridge.store.sqlite_files import connect_sqlite, identify_file, move_aside, read_rows, was_replaced

PreemptionState = Literal["open", "started", "ineffective", "dropped"]
"""`ineffective`: the job did not run in time. `dropped`: the preemption became impossible or unnecessary."""
_SCHEMA = """create table if not exists preemption (
  id integer primary key, job_id integer not null, user text not null, since_s integer not null, state text not null,
  end_s integer not null, nodes text not null, victims text not null, seal integer not null)"""
_SELECT_ROWS = "select id, job_id, user, since_s, state, end_s, nodes, victims, seal from preemption"


@dataclass(frozen=True, slots=True)
class PreemptionEntry:
    """One preemption: its job's user, when it was decided, its state, and when it was closed (0 while open)."""

    number: int
    user: str
    since_s: int
    what: PreemptionUnderWay
    state: PreemptionState = "open"
    end_s: int = 0


class PreemptionLedger:
    """The preemption ledger in an SQLite file, which has a single writer and is created with the first entry.

    A damaged file is moved aside, and `unreported_events` reports this. If the file is deleted while the bridge runs,
    it is written again from memory.
    """

    def __init__(self, path: Path, durable: bool = True) -> None:
        self.unreported_events: list[CycleEvent] = []
        """Events about the file that have not been reported yet."""
        self._path, self._durable = path, durable
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._entries: dict[int, PreemptionEntry] = {}
        try:
            if path.exists():
                self._entries = {each.number: each for each in map(_parse_row, read_rows(path, _SELECT_ROWS))}
        except (sqlite3.Error, CorruptFileContent, UnicodeDecodeError) as error:
            if not is_corruption(error) and "no such table" not in str(error):
                raise
            self._move_file_aside(error)

    @property
    def entries(self) -> tuple[PreemptionEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries.values())

    @property
    def open(self) -> Mapping[int, PreemptionEntry]:
        """The open preemptions by job id."""
        return {each.what.job_id: each for each in self._entries.values() if each.state == "open"}

    def count_since(self, from_s: int) -> Counter[str]:
        """Return the number of preemptions decided since `from_s`, by user."""
        return Counter(each.user for each in self._entries.values() if each.since_s >= from_s)

    def count_stops(self) -> Counter[int]:
        """Return how many preemptions chose each job as a victim, by job id."""
        return Counter(victim.job_id for each in self._entries.values() for victim in each.what.victims)

    def last_end_s(self, *states: PreemptionState, job_id: int | None = None) -> int | None:
        """Return when a preemption (for `job_id` or any job) last ended in one of `states`, or None."""
        times = (
            each.end_s for each in self._entries.values() if each.state in states and job_id in (None, each.what.job_id)
        )
        return max(times, default=None)

    def record_intended(self, wanted: Sequence[tuple[PreemptionUnderWay, str]], now_s: int) -> None:
        """Record preemptions and their users atomically, before any victim is stopped.

        If this raises `sqlite3.Error`, no victim may be stopped.
        """
        first = max(self._entries, default=0) + 1
        self._write([PreemptionEntry(first + at, user, now_s, what) for at, (what, user) in enumerate(wanted)])

    def close_entry(self, entry: PreemptionEntry, state: PreemptionState, now_s: int) -> None:
        """Record the end of an open preemption."""
        self._write([replace(entry, state=state, end_s=now_s)])

    def prune(self, before_s: int) -> None:
        """Delete the closed preemptions that ended before `before_s`."""
        old = [each.number for each in self._entries.values() if each.state != "open" and each.end_s < before_s]
        if old and self._path.exists():
            with self._open_or_create() as db:
                db.executemany("delete from preemption where id = ?", [(number,) for number in old])
        for number in old:
            del self._entries[number]

    def _write(self, entries: Iterable[PreemptionEntry]) -> None:
        changed = {each.number: each for each in entries}
        wanted = changed
        if self._db is not None and was_replaced(self._path, self._file):
            self.close()
            wanted = self._entries | changed
        try:
            self._write_rows(wanted.values())
        except (sqlite3.Error, CorruptFileContent, UnicodeDecodeError) as error:
            if not is_corruption(error):
                raise
            self.close()
            self._move_file_aside(error)
            self._write_rows((self._entries | changed).values())
        self._entries |= changed

    def _write_rows(self, entries: Iterable[PreemptionEntry]) -> None:
        with self._open_or_create() as db:
            db.executemany("insert or replace into preemption values (?,?,?,?,?,?,?,?,?)", map(_make_row, entries))

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
        self.unreported_events.append(CycleEvent("preemptions_damaged", f"{self._path}: {error}; moved to {name}"))

    def close(self) -> None:
        """Close the file."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()


def _make_row(each: PreemptionEntry) -> tuple[Any, ...]:
    victims = [(victim.job_id, victim.start_s, victim.mode) for victim in each.what.victims]
    values = (
        each.number, each.what.job_id, json.dumps(each.user), each.since_s, each.state, each.end_s,
        json.dumps(each.what.nodes), json.dumps(victims),
    )  # fmt: skip
    return (*values, row_checksum(values))


def _parse_row(row: tuple[Any, ...]) -> PreemptionEntry:
    """Return the entry stored in a row. Raise `CorruptFileContent` if the row is invalid."""
    with raise_as_corrupt(f"preemption {row[0]!r:.20}"):
        *values, seal = row
        if seal != row_checksum(tuple(values)):
            raise CorruptFileContent("the checksum does not match")
        number, job_id, user, since_s, state, end_s, nodes, victims = values
        if state not in get_args(PreemptionState):
            raise CorruptFileContent(f"unknown state {state!r:.20}")
        what = PreemptionUnderWay(
            job_id,
            tuple((str(name), int(units)) for name, units in json.loads(nodes)),
            tuple(Victim(int(id), int(start_s), mode) for id, start_s, mode in json.loads(victims)),
        )
        return PreemptionEntry(number, str(json.loads(user)), since_s, what, state, end_s)
