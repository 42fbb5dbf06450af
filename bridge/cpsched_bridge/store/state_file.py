"""Keep what must survive a crash in one SQLite file, with one writer and any number of readers.

Each table holds one kind of entry: one row per entry, with its id first and its checksum, called its seal, last. A
damaged file is moved aside, and every table keeps its valid rows. After start-up, a damaged or deleted file is written
again from memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from cpsched.errors import join_abbreviated
from cpsched.formatting import format_count
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.store.corruption_checks import (
    MAX_NUMBER,
    CorruptFileContent,
    compute_row_checksum,
    convert_content_errors,
    is_corruption,
)
from cpsched_bridge.store.sqlite_files import connect_sqlite, identify_file, move_aside, read_rows, was_file_replaced

FILE_NAME = "state.sqlite"
OLDER_LEDGER_NAME = "ledger.sqlite"
_OLDER_BOOST_TABLES = {"boosts.sqlite": "boosts", "advice.sqlite": "advice"}
OLDER_FILE_NAMES = (OLDER_LEDGER_NAME, *_OLDER_BOOST_TABLES, "preemptions.sqlite")
"""Files of older builds. `cpsched release-all` reads those of jobs and boosts."""
FORMAT = 1
"""Number of the tables' format, in SQLite's `user_version`."""

Row = tuple[Any, ...]

SCHEMA = f"""
begin;
pragma user_version = {FORMAT};
create table jobs (
  id integer primary key, state text not null, since_s integer not null, pinned integer not null,
  failures integer not null, nodes text not null, unmanaged_reason text not null, label text not null,
  why text not null, cause text not null, unmanaged_request text not null, restore text not null,
  seal integer not null);
create index jobs_by_state on jobs (state);
create table transitions (
  seq integer primary key, at_s integer not null, round integer not null, job_id integer not null,
  before text, after text not null, why text not null);
create index transitions_by_job on transitions (job_id);
create table boosts (
  id integer primary key, points text not null, since_s integer not null, seal integer not null);
create table preemptions (
  id integer primary key, job_id integer not null, user text not null, since_s integer not null, state text not null,
  end_s integer not null, nodes text not null, victims text not null, seal integer not null);
commit;
"""
TABLES = {"jobs": "job", "boosts": "boost", "preemptions": "preemption"}
"""The tables of sealed rows, with the name of an entry in messages."""
_COUNT_LOST_ROWS = "select count(*) from transitions where job_id not in (select id from jobs)"
"""Query that counts transitions of missing jobs. A positive count proves that a row was lost."""
_MAX_NAMED_ENTRIES = 50
"""Maximum number of entries listed in a message about a damaged file."""


class OtherStateFormat(BridgeError):
    """The state was written by a build with other files or columns. `cpsched release-all` can read it."""

    def __init__(self, path: Path | str) -> None:
        rule = "was written by another version of cpsched; run `cpsched release-all`, then move the state folder aside"
        super().__init__(f"{path}: {rule}")


class StateFile:
    """The state file in WAL mode.

    With `durable`, every commit is flushed to disk (synchronous=FULL), which also protects against power failures.
    """

    def __init__(self, path: Path | str, durable: bool = True, read_only: bool = False) -> None:
        self.path, self._durable = path, durable
        self.unreported_events: list[CycleEvent] = []
        """Events about the file that have not been reported yet."""
        self.whole = True
        """Whether the table of jobs is complete, because the file was neither damaged nor missing."""
        self._lost = False
        """Whether the file was moved aside and no new file has been created yet."""
        self._rows_in_memory: dict[str, Callable[[], Iterable[Row]]] = {}
        """Functions that return the current rows of each table, for a file that is written again."""
        if path != ":memory:" and not Path(path).exists():
            require_no_older_files(Path(path).parent)
        try:
            self._open(read_only)
        except CorruptFileContent as error:
            if read_only:
                raise
            self._replace_damaged_file(error)

    def _open(self, read_only: bool = False) -> None:
        with convert_content_errors():
            self.db = self._connect(read_only)
        try:
            with convert_content_errors():
                self._check_format()
                if not read_only:
                    self._check_integrity()
                    for table in TABLES:
                        self._keep_rows(table, self.read_rows(table))
        except BaseException:
            self.db.close()
            raise
        self._file = identify_file(self.path)

    def _connect(self, read_only: bool = False) -> sqlite3.Connection:
        """Return a connection that checkpoints each commit.

        A damaged write-ahead log then loses no data.
        """
        db = connect_sqlite(self.path, self._durable, read_only)
        if not read_only:
            db.execute("pragma wal_autocheckpoint=1")
        return db

    def _check_format(self) -> None:
        """Raise `OtherStateFormat` if another build wrote the tables."""
        has_tables = self.db.execute("select count(*) from sqlite_master where type = 'table'").fetchone()[0]
        if has_tables and self.db.execute("pragma user_version").fetchone()[0] != FORMAT:
            raise OtherStateFormat(self.path)

    def _check_integrity(self) -> None:
        """Raise `CorruptFileContent` or `sqlite3.Error` if the file is damaged."""
        tables = {name for (name,) in self.db.execute("select name from sqlite_master where type = 'table'")}
        self.whole = bool(tables)
        if not tables:
            _create_tables(self.db)
        elif missing := {*TABLES, "transitions"} - tables:
            raise CorruptFileContent(f"the table of {min(missing)} is missing")
        (result,) = self.db.execute("pragma quick_check(1)").fetchone()
        if result != "ok":
            raise CorruptFileContent(result)
        if lost := self.db.execute(_COUNT_LOST_ROWS).fetchone()[0]:
            raise CorruptFileContent(f"{lost} transitions refer to missing jobs")
        if not 0 <= self.find_last_transition_round() < MAX_NUMBER:
            raise CorruptFileContent(f"its last round number is out of range: {self.find_last_transition_round()}")

    def copy_boosts(self, path: Path) -> None:
        """Add the valid boosts of another state file, or of the file beside an older build's ledger."""
        found = _read_any_rows(path, "boosts")
        for name, table in _OLDER_BOOST_TABLES.items():
            found = found or _read_any_rows(path.with_name(name), table)
        rows = SalvagedRows("boosts", found).rows
        with self.db:
            insert_rows(self.db, "boosts", rows)

    def find_last_transition_round(self) -> int:
        """Return the newest round with a recorded transition, or 0 if there is none."""
        return int(self.db.execute("select coalesce(max(round), 0) from transitions").fetchone()[0])

    def _replace_damaged_file(self, error: CorruptFileContent) -> None:
        """Move a damaged file aside and start a new file with the valid rows of each table."""
        path = Path(self.path)
        salvaged = {table: salvage_rows(path, table) for table in TABLES}
        aside = move_aside(path)
        self._open()
        with self.db:
            for table, found in salvaged.items():
                insert_rows(self.db, table, found.rows)
        for table, found in salvaged.items():
            self._keep_rows(table, found.rows)
        self.whole = False
        kept = ", ".join(
            format_count(len(found.rows), TABLES[table])
            for table, found in salvaged.items()
            if found.rows or table == "jobs"
        )
        discarded = [
            f"; discarded {found.name_discarded(TABLES[table])}" for table, found in salvaged.items() if found.discarded
        ]
        name = aside.name if aside else "nothing"
        text = f"{self.path}: {error}; moved to {name}, started a new file with {kept} from valid rows"
        self.unreported_events.append(CycleEvent("ledger_damaged", text + "".join(discarded)))

    def read_rows(self, table: str) -> list[Row]:
        """Return a table's rows. Raise `sqlite3.Error`, or `CorruptFileContent` if a row is invalid."""
        with convert_content_errors():
            return [require_seal(table, row) for row in self.db.execute(f"select * from {table}")]

    def _keep_rows(self, table: str, rows: Sequence[Row]) -> None:
        self._rows_in_memory[table] = lambda: rows

    def take_rows(self, table: str, current_rows: Callable[[], Iterable[Row]]) -> list[Row]:
        """Return a table's rows, and call `current_rows` for them from now on.

        Raise `sqlite3.Error` or `CorruptFileContent`. Damage of another table has no effect.
        """
        rows = self.read_rows(table)
        self._rows_in_memory[table] = current_rows
        return rows

    def write_in_transaction(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Run `work` in one transaction. If the file is damaged, repeat in a new file."""
        try:
            with self.db:
                work(self.db)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not (self._lost or is_corruption(error)):
                raise
            self._rewrite_from_memory(error)
            with self.db:
                work(self.db)

    def restore_if_missing(self) -> None:
        """Write the file again from memory if it was deleted."""
        if self._lost or was_file_replaced(self.path, self._file):
            self._rewrite_from_memory("was deleted")

    def _rewrite_from_memory(self, why: object) -> None:
        """Move the file aside and write all rows to a new file.

        If that fails, the next write tries again.
        """
        again, self._lost = self._lost, True
        self.db.close()
        aside = move_aside(Path(self.path))
        rows_by_table = {table: list(rows()) for table, rows in self._rows_in_memory.items()}
        if aside or not again:
            kind, where = ("ledger_damaged", f"; moved to {aside.name}") if aside else ("ledger_gone", "")
            count = format_count(len(rows_by_table["jobs"]), "job")
            self.unreported_events.append(
                CycleEvent(kind, f"{self.path}: {why}{where}, wrote {count} from memory to a new file")
            )
        db = self._connect()
        try:
            _create_tables(db)
            with db:
                for table, rows in rows_by_table.items():
                    insert_rows(db, table, rows)
        except BaseException:
            db.close()
            raise
        self.db, self._lost, self._file = db, False, identify_file(self.path)

    def close(self) -> None:
        """Close the file."""
        self.db.close()


def require_no_older_files(folder: Path) -> None:
    """Raise `OtherStateFormat` if an older build's files are in the state folder."""
    for name in OLDER_FILE_NAMES:
        if (folder / name).exists():
            raise OtherStateFormat(folder / name)


def _create_tables(db: sqlite3.Connection) -> None:
    try:
        db.executescript(SCHEMA)
    finally:
        db.rollback()  # if a statement failed


def insert_rows(db: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    """Insert rows, replacing rows with the same ids."""
    listed = list(rows)
    if listed:
        db.executemany(f"insert or replace into {table} values ({','.join('?' * len(listed[0]))})", listed)


def seal_row(*values: object) -> Row:
    """Return a row with its checksum."""
    return (*values, compute_row_checksum(values))


def require_seal(table: str, row: Row) -> Row:
    """Return the row. Raise `CorruptFileContent` if it does not match its checksum."""
    with convert_content_errors(f"{TABLES[table]} {row[0]!r:.20}"):
        if row[-1] != compute_row_checksum(row[:-1]):
            raise CorruptFileContent("the checksum does not match")
    return row


class SalvagedRows:
    """The valid rows of a table in a damaged file, and the ids of the discarded rows."""

    def __init__(self, table: str, rows: Iterable[Row]) -> None:
        valid = dict[Any, Row]()
        odd = set[str]()
        for row in rows:
            try:
                with convert_content_errors():
                    text_row = tuple(value.decode() if isinstance(value, bytes) else value for value in row)
                valid[row[0]] = require_seal(table, text_row)
            except CorruptFileContent:
                odd.add(f"{row[0]!r:.20}")
        self.rows = list(valid.values())
        self.discarded = sorted(odd, key=lambda id: (len(id), id))

    def name_discarded(self, entry: str) -> str:
        """Return the discarded rows as text, for an event."""
        ids = join_abbreviated(self.discarded, _MAX_NAMED_ENTRIES)
        return ids if entry == "job" else f"{entry} {ids}"


def salvage_rows(path: Path, table: str) -> SalvagedRows:
    """Return the valid rows of a table in a damaged file."""
    return SalvagedRows(table, _iterate_readable_rows(path, table))


def _read_any_rows(path: Path, table: str) -> list[Row]:
    """Return a table's rows, or none if the file or the table is missing or unreadable."""
    with suppress(sqlite3.Error, CorruptFileContent), convert_content_errors():
        return read_rows(path, f"select * from {table}")
    return []


def _iterate_readable_rows(path: Path, table: str) -> Iterator[Row]:
    """Yield a damaged file's readable rows, once from the start and once from the end."""
    for way in ("asc", "desc"):
        with (
            suppress(sqlite3.Error, CorruptFileContent),
            convert_content_errors(),
            closing(connect_sqlite(path, durable=False, read_only=True)) as db,
        ):
            db.text_factory = bytes  # invalid UTF-8 then affects only its own row
            yield from db.execute(f"select * from {table} order by id {way}")
