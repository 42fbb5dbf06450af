"""Record each held or starting job on disk.

No crash can lose a job or start it twice. An intent is written before its command is sent, and the outcome afterwards.
After a crash at any time, the next bridge process reads the intents, observes the cluster, and treats the cluster's
state as authoritative.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from cpsched.errors import join_abbreviated
from cpsched.formatting import format_count
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.ports import ClusterReason, UndoOrder
from cpsched_bridge.store.corruption_checks import (
    MAX_NUMBER,
    CorruptFileContent,
    compute_row_checksum,
    convert_content_errors,
    is_corruption,
    rows_to_dataclasses,
)
from cpsched_bridge.store.sqlite_files import (
    connect_sqlite,
    identify_file,
    move_aside,
    read_rows,
    replace_surrogates,
    was_file_replaced,
)


class LedgerState(StrEnum):
    """The state of a job from the bridge's point of view."""

    HOLDING = "holding"
    """A hold was sent or is about to be sent."""
    HELD = "held"
    """The job is held by the bridge, or by the submit plugin for the bridge, and may be started."""
    STARTING = "starting"
    """A start (pin and release) was sent or is about to be sent. The job is not running yet."""
    ROLLING_BACK = "rolling-back"
    """The start failed. The job must be held again, and its pin must be cleared."""
    RELEASING = "releasing"
    """The job must be released to the cluster's own scheduler, without a pin."""
    FREE = "free"
    """The job is pending and is managed only by the cluster's own scheduler."""
    RUNNING = "running"
    """The job was observed running."""
    ENDED = "ended"
    """The job ran and ended, or left the cluster while it was unmanaged."""
    GONE = "gone"
    """The job left the cluster without running while it was managed, for example because it was cancelled."""


OLDER_RELEASING = "handing-back"
"""Name of `LedgerState.RELEASING` in the ledgers and journals of older builds."""

MANAGED_STATES = frozenset(
    {LedgerState.HOLDING, LedgerState.HELD, LedgerState.STARTING, LedgerState.ROLLING_BACK, LedgerState.RELEASING}
)
"""States in which a job may have the bridge's hold or pin. `release-all` releases these jobs."""

CLOSED_STATES = frozenset({LedgerState.ENDED, LedgerState.GONE})

_OBSERVED_STATES = frozenset({LedgerState.RUNNING, LedgerState.ENDED, LedgerState.GONE})
"""States that a job may enter from any other state, because the cluster decides."""

PERMITTED_TRANSITIONS: dict[LedgerState | None, frozenset[LedgerState]] = {
    None: frozenset({LedgerState.HOLDING, LedgerState.HELD, LedgerState.RELEASING}),
    LedgerState.HOLDING: _OBSERVED_STATES | {LedgerState.HELD, LedgerState.FREE, LedgerState.RELEASING},
    LedgerState.HELD: _OBSERVED_STATES | {LedgerState.STARTING, LedgerState.RELEASING, LedgerState.FREE},
    LedgerState.STARTING: _OBSERVED_STATES
    | {LedgerState.HELD, LedgerState.ROLLING_BACK, LedgerState.RELEASING, LedgerState.FREE},
    LedgerState.ROLLING_BACK: _OBSERVED_STATES | {LedgerState.HELD, LedgerState.RELEASING, LedgerState.FREE},
    LedgerState.RELEASING: _OBSERVED_STATES | {LedgerState.FREE, LedgerState.HELD, LedgerState.HOLDING},
    LedgerState.FREE: _OBSERVED_STATES | {LedgerState.HOLDING, LedgerState.HELD, LedgerState.RELEASING},
    LedgerState.RUNNING: _OBSERVED_STATES - {LedgerState.RUNNING}
    | {LedgerState.HOLDING, LedgerState.FREE, LedgerState.RELEASING},
    LedgerState.ENDED: frozenset(
        {LedgerState.HOLDING, LedgerState.HELD, LedgerState.RELEASING, LedgerState.RUNNING, LedgerState.FREE}
    ),
    LedgerState.GONE: frozenset(
        {
            LedgerState.HOLDING,
            LedgerState.HELD,
            LedgerState.RELEASING,
            LedgerState.RUNNING,
            LedgerState.ENDED,
            LedgerState.FREE,
        }
    ),
}
"""Permitted transitions. A closed job may return after a requeue, or if the controller had lost it."""


Cause = Literal["", "released", "held_by_administrator", "refused"]
"""Cause of the last transition, or "" if it does not affect the next transition.

- `released`: the cluster answered the release command of a start whose pin and release are separate commands.
- `held_by_administrator`: the hold was refused because an administrator held the job.
- `refused`: the cluster refused the start.
"""
_TEXT_BY_CAUSE: Mapping[Cause, str] = {
    "released": "released",
    "held_by_administrator": "hold refused: is held by an administrator",
}
"""Text of each cause in `ManagedJobEntry.why`."""
_OLDER_RESTORE_UNITS = 0
"""Number of units that marks a pair in an older ledger's `nodes` as `ManagedJobEntry.restore`, not a node."""
_MAX_NAMED_JOBS = 50
"""Maximum number of jobs listed in a message about a damaged ledger."""


class IllegalLedgerTransition(BridgeError):
    """An error for a forbidden transition, which indicates a bug in the bridge."""


class OtherLedgerFormat(BridgeError):
    """The ledger was written by a build with other columns. `cpsched release-all` can read it."""

    def __init__(self, path: Path | str) -> None:
        rule = "was written by another version of cpsched; run `cpsched release-all`, then move the state folder aside"
        super().__init__(f"{path}: {rule}")


@dataclass(frozen=True, slots=True)
class ManagedJobEntry:
    """One job's entry in the ledger."""

    job_id: int
    state: LedgerState
    since_s: int
    """Cluster time of the last transition."""
    pinned: bool = False
    """Whether the job may have a node list set by the bridge."""
    failures: int = 0
    """Number of consecutive failed starts and holds."""
    nodes: tuple[tuple[str, int], ...] = ()
    """Nodes of the last start, as (node name, units) pairs."""
    unmanaged_reason: str = ""
    """Why the job must not be adopted again, or "" if it may be adopted."""
    label: str = ""
    """Label shown to users, such as "19_3"."""
    why: str = ""
    """Human-readable reason for the last transition."""
    cause: Cause = ""
    unmanaged_request: str = ""
    """Request to which this reason applies, as a `make_request_fingerprint`, or "" if it applies to any request."""
    restore: str = ""
    """The last start's `StartSettings.restore`."""

    @property
    def unmanaged_text(self) -> str:
        """Why the job must not be adopted again, with the request to which this applies."""
        reason, request = self.unmanaged_reason, self.unmanaged_request
        return f"{reason}, while it requests {request}" if reason and request else reason

    def make_undo_order(self) -> UndoOrder:
        """Return the order that holds, releases or unpins the job and undoes its last start."""
        return UndoOrder(self.job_id, self.pinned, self.restore)


TransitionEvent = Literal["", "as_decided", "still_managed", "unmanaged"]
"""Additional meaning of a transition:

- `as_decided`: the job was started on the nodes of the decision.
- `still_managed`: the job stays held and is retried, because the cluster's own scheduler could not start it either.
- `unmanaged`: the job becomes unmanaged, for the reason in `ManagedJobEntry.unmanaged_reason`.
"""


@dataclass(frozen=True, slots=True)
class LedgerTransition:
    """A new entry and the job's previous state, which is None for a new job."""

    before: LedgerState | None
    entry: ManagedJobEntry
    cluster_reason: ClusterReason | None = None
    """Why a start failed, if the reason concerns the job or its group instead of the bridge."""
    failed: bool = False
    """Whether a start or a hold failed without a known reason."""
    event: TransitionEvent = ""

    def __post_init__(self) -> None:
        if self.entry.state not in PERMITTED_TRANSITIONS[self.before] and self.entry.state != self.before:
            raise IllegalLedgerTransition(f"job {self.entry.job_id}: {self.before} cannot become {self.entry.state}")


def make_transition(
    entry: ManagedJobEntry | None,
    state: LedgerState,
    now_s: int,
    why: str,
    job_id: int = 0,
    event: TransitionEvent = "",
    **changes: Any,
) -> LedgerTransition:
    """Return a transition of `entry` to `state`, with `changes` to its fields.

    If `entry` is None, the transition creates an entry for `job_id`. `cause` applies only to this transition, and
    `unmanaged_request` only to an `unmanaged_reason` that is set in the same transition.
    """
    if entry is None:
        return LedgerTransition(None, ManagedJobEntry(job_id, state, now_s, why=why, **changes), event=event)
    changes = {"cause": "", **changes}
    if "unmanaged_reason" in changes:
        changes = {"unmanaged_request": "", **changes}
    return LedgerTransition(entry.state, replace(entry, state=state, since_s=now_s, why=why, **changes), event=event)


def make_caused_transition(entry: ManagedJobEntry, state: LedgerState, now_s: int, cause: Cause) -> LedgerTransition:
    """Return a transition of `entry` to a new state, with `cause` and its text."""
    return make_transition(entry, state, now_s, _TEXT_BY_CAUSE[cause], cause=cause)


SCHEMA = """
create table if not exists jobs (
  id integer primary key, state text not null, since_s integer not null, pinned integer not null,
  failures integer not null, nodes text not null, unmanaged_reason text not null, label text not null,
  why text not null, cause text not null, unmanaged_request text not null, restore text not null,
  seal integer not null);
create index if not exists jobs_by_state on jobs (state);
create table if not exists transitions (
  seq integer primary key, at_s integer not null, round integer not null, job_id integer not null,
  before text, after text not null, why text not null);
create index if not exists transitions_by_job on transitions (job_id);
"""

_COLUMNS = ("id", *(field.name for field in fields(ManagedJobEntry)[1:]), "seal")
_OLDER_FIELD_COUNT = 9
_SELECT_ROWS = "select * from jobs"
_COUNT_LOST_ROWS = "select count(*) from transitions where job_id not in (select id from jobs)"
"""Query that counts transitions of missing jobs. A positive count proves that a row was lost."""


class Ledger:
    """The ledger in an SQLite file (WAL) with one writer and any number of readers.

    With `durable`, every commit is flushed to disk (synchronous=FULL), which also protects against power failures.

    Each row has a checksum, called its seal. A damaged file is moved aside, and `unreported_events` reports this. At
    start-up, only rows with a valid seal are retained, and the cluster shows which other jobs have the bridge's marks.
    After start-up, a damaged or deleted file is written again from memory.
    """

    def __init__(self, path: Path | str, durable: bool = True, read_only: bool = False) -> None:
        self._path, self._durable = path, durable
        self.unreported_events: list[CycleEvent] = []
        """Events about the file that have not been reported yet."""
        self.whole = True
        """Whether the ledger is complete, because the file was neither damaged nor missing."""
        self._lost = False
        """Whether the file was moved aside and no new file has been created yet."""
        try:
            self._open(read_only)
        except CorruptFileContent as error:
            if read_only:
                raise
            self._replace_damaged_file(error)

    @classmethod
    def load_in_memory_copy(cls, path: Path) -> Ledger:
        """Return an in-memory copy of a ledger file, which may be that of an older build.

        Raise `sqlite3.Error` or `CorruptFileContent`.
        """
        copy = cls(":memory:", durable=False)
        with convert_content_errors():
            rows = read_rows(path, _SELECT_ROWS)
            copy.insert_or_replace_entries([_parse_entry_row_of_any_format(row) for row in rows])
        copy.whole = True
        return copy

    def _open(self, read_only: bool = False) -> None:
        with convert_content_errors():
            self._db = self._connect(read_only)
        try:
            with convert_content_errors():
                self._check_format()
                if not read_only:
                    self._check_integrity()
                self.reload()
        except BaseException:
            self._db.close()
            raise
        self._file = identify_file(self._path)

    def _connect(self, read_only: bool = False) -> sqlite3.Connection:
        """Return a connection that checkpoints each commit.

        A damaged write-ahead log then loses no data.
        """
        db = connect_sqlite(self._path, self._durable, read_only)
        if not read_only:
            db.execute("pragma wal_autocheckpoint=1")
        return db

    def _check_format(self) -> None:
        """Raise `OtherLedgerFormat` if the table of jobs has other columns."""
        columns = tuple(name for _, name, *_ in self._db.execute("pragma table_info(jobs)"))
        if columns not in ((), _COLUMNS):
            raise OtherLedgerFormat(self._path)

    def _check_integrity(self) -> None:
        """Raise `CorruptFileContent` or `sqlite3.Error` if the file is damaged."""
        tables = {name for (name,) in self._db.execute("select name from sqlite_master where type = 'table'")}
        self.whole = bool(tables)
        if tables and not tables >= {"jobs", "transitions"}:
            raise CorruptFileContent("the table of jobs is missing")
        self._db.executescript(SCHEMA)
        (result,) = self._db.execute("pragma quick_check(1)").fetchone()
        if result != "ok":
            raise CorruptFileContent(result)
        if lost := self._db.execute(_COUNT_LOST_ROWS).fetchone()[0]:
            raise CorruptFileContent(f"{lost} transitions refer to missing jobs")
        if not 0 <= self.find_last_transition_round() < MAX_NUMBER:
            raise CorruptFileContent(f"its last round number is out of range: {self.find_last_transition_round()}")

    def _replace_damaged_file(self, error: CorruptFileContent) -> None:
        """Move a damaged file aside and start a new file with the valid rows."""
        rows = list(_read_readable_rows(Path(self._path)))
        aside = move_aside(Path(self._path))
        self._open()
        entries, odd = _parse_valid_rows(rows)
        self.insert_or_replace_entries(entries)
        self.whole = False
        name = aside.name if aside else "nothing"
        whole = format_count(len(entries), "job")
        message = f"{self._path}: {error}; moved to {name}, started a new file with {whole} from valid rows"
        self.unreported_events.append(CycleEvent("ledger_damaged", message + odd))

    def insert_or_replace_entries(self, entries: Iterable[ManagedJobEntry]) -> None:
        """Write `entries` unchanged, replacing existing entries of the same jobs."""
        found = list(entries)
        with self._db:
            _insert_entries(self._db, found)
        self.reload()

    def reload(self) -> None:
        """Read all entries again. Raise `sqlite3.Error` or `CorruptFileContent`."""
        with convert_content_errors():
            rows = self._db.execute(_SELECT_ROWS)
            self._entries: dict[int, ManagedJobEntry] = {}
            self._in_state: dict[LedgerState | None, set[int]] = {state: set() for state in (None, *LedgerState)}
            for row in rows:
                self._set_entry_in_memory(None, _parse_entry_row(row))

    def restore_missing_file(self) -> None:
        """Write the file again from memory if it was deleted."""
        if self._lost or was_file_replaced(self._path, self._file):
            self._rewrite_file_from_memory("was deleted")

    def _rewrite_file_from_memory(self, why: object) -> None:
        """Move the file aside and write all entries to a new file.

        If that fails, the next write tries again.
        """
        again, self._lost = self._lost, True
        self._db.close()
        aside = move_aside(Path(self._path))
        if aside or not again:
            kind, where = ("ledger_damaged", f"; moved to {aside.name}") if aside else ("ledger_gone", "")
            message = (
                f"{self._path}: {why}{where}, wrote {format_count(len(self._entries), 'job')} from memory to a new file"
            )
            self.unreported_events.append(CycleEvent(kind, message))
        db = self._connect()
        try:
            db.executescript(SCHEMA)
            with db:
                _insert_entries(db, self._entries.values())
        except BaseException:
            db.close()
            raise
        self._db, self._lost, self._file = db, False, identify_file(self._path)

    def _set_entry_in_memory(self, before: LedgerState | None, entry: ManagedJobEntry) -> None:
        self._in_state[before].discard(entry.job_id)
        self._in_state[entry.state].add(entry.job_id)
        self._entries[entry.job_id] = entry

    @property
    def by_id(self) -> Mapping[int, ManagedJobEntry]:
        """All entries by job id, as a live view of the ledger."""
        return self._entries

    def get(self, job_id: int) -> ManagedJobEntry | None:
        """Return a job's entry, or None if there is none."""
        return self._entries.get(job_id)

    def get_job_name(self, job_id: int) -> str:
        """Return the job's label as shown to users, or its id if the ledger has no label."""
        entry = self._entries.get(job_id)
        return (entry.label if entry is not None else "") or str(job_id)

    def list_entries(self, *states: LedgerState) -> list[ManagedJobEntry]:
        """Return the entries in any of `states`, sorted by job id.

        Without `states`, return all entries.
        """
        return [self._entries[id] for id in sorted(set().union(*(self._in_state[s] for s in states or LedgerState)))]

    def list_open_job_ids(self) -> frozenset[int]:
        """Return the ids of jobs that have neither ended nor left the cluster."""
        return frozenset().union(*(self._in_state[state] for state in LedgerState if state not in CLOSED_STATES))

    def list_managed_job_ids(self) -> list[int]:
        """Return the ids of jobs that the bridge may have held or pinned."""
        return [entry.job_id for entry in self.list_entries(*MANAGED_STATES)]

    def list_pinned_job_ids(self) -> frozenset[int]:
        """Return the ids of jobs that may have the bridge's node list."""
        return frozenset(id for id in self.list_open_job_ids() if self._entries[id].pinned)

    def list_orphaned_pins(self) -> list[ManagedJobEntry]:
        """Return unmanaged pending jobs that still have the bridge's pin.

        Another actor held these jobs after the bridge pinned them. Once that actor removes the hold, `reconcile`
        manages the job again in order to release it.
        """
        return [entry for entry in self.list_entries(LedgerState.FREE) if entry.pinned]

    def record(self, transitions: Iterable[LedgerTransition], round_number: int = 0, unwritten: bool = False) -> None:
        """Write transitions atomically before returning.

        Raise `IllegalLedgerTransition` if a job's state in the ledger differs from the transition's previous state.

        `unwritten`: if writing fails, keep the transitions in memory, then raise the error.
        """
        batch = list(transitions)
        if not batch:
            return
        for transition in batch:
            known = self._entries.get(transition.entry.job_id)
            if (known.state if known else None) != transition.before:
                raise IllegalLedgerTransition(f"job {transition.entry.job_id}: its state is not {transition.before}")
        written = False
        try:
            self._write_transitions(batch, round_number)
            written = True
        finally:
            if written or unwritten:
                for t in batch:
                    self._set_entry_in_memory(t.before, t.entry)

    def _write_transitions(self, batch: Sequence[LedgerTransition], round_number: int) -> None:
        def execute_statements() -> None:
            _insert_entries(self._db, (transition.entry for transition in batch))
            self._db.executemany(
                "insert into transitions (at_s, round, job_id, before, after, why) values (?,?,?,?,?,?)",
                [_make_transition_row(transition, round_number) for transition in batch],
            )

        self._write_in_transaction(execute_statements)

    def _write_in_transaction(self, work: Callable[[], object]) -> None:
        """Run `work` in one transaction. If the file is damaged, repeat in a new file."""
        try:
            with self._db:
                work()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not (self._lost or is_corruption(error)):
                raise
            self._rewrite_file_from_memory(error)
            with self._db:
                work()

    def read_transitions(self, job_id: int) -> list[tuple[int, int, str | None, str, str]]:
        """Return a job's transitions, oldest first.

        Each is (cluster time, round, state before, state after, why).
        """
        query = "select at_s, round, before, after, why from transitions where job_id = ? order by seq"
        with convert_content_errors():
            rows = rows_to_dataclasses(_TransitionRow, self._db.execute(query, (job_id,)))
        return [(row.at_s, row.round, row.before, row.after, row.why) for row in rows]

    def find_last_transition_round(self) -> int:
        """Return the newest round with a recorded transition, or 0 if there is none."""
        return int(self._db.execute("select coalesce(max(round), 0) from transitions").fetchone()[0])

    def count_jobs_by_state(self) -> dict[LedgerState, int]:
        """Return the number of jobs in each state."""
        return {state: len(self._in_state[state]) for state in LedgerState}

    def prune(self, before_s: int) -> None:
        """Delete the jobs that were closed before `before_s`, with their transitions."""
        old = [e.job_id for e in self.list_entries(*CLOSED_STATES) if e.since_s < before_s]

        def execute_statements() -> None:
            self._db.executemany("delete from jobs where id = ?", [(id,) for id in old])
            self._db.executemany("delete from transitions where job_id = ?", [(id,) for id in old])

        self._write_in_transaction(execute_statements)
        for id in old:
            self._in_state[self._entries.pop(id).state].discard(id)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


@dataclass(frozen=True, slots=True)
class _TransitionRow:
    """A row of the transitions table."""

    at_s: int
    round: int
    before: str | None
    after: str
    why: str


def _insert_entries(db: sqlite3.Connection, entries: Iterable[ManagedJobEntry]) -> None:
    query = "insert or replace into jobs values (?,?,?,?,?,?,?,?,?,?,?,?,?)"
    db.executemany(query, [_make_entry_row(entry) for entry in entries])


def _make_transition_row(transition: LedgerTransition, round_number: int) -> tuple[Any, ...]:
    entry = transition.entry
    return entry.since_s, round_number, entry.job_id, transition.before, entry.state, replace_surrogates(entry.why)


def parse_state(state: str) -> LedgerState:
    """Return a stored state, which an older build may have named otherwise."""
    return LedgerState.RELEASING if state == OLDER_RELEASING else LedgerState(state)


def _parse_entry_row(row: tuple[Any, ...]) -> ManagedJobEntry:
    """Return the entry stored in a row. Raise `CorruptFileContent`."""
    with convert_content_errors(f"job {row[0]!r:.20}"):
        *values, seal = row
        if seal != compute_row_checksum(values):
            raise CorruptFileContent("the checksum does not match")
        id, state, since_s, pinned, failures, nodes, *texts = values
        places = tuple((name, units) for name, units in json.loads(nodes))
        return ManagedJobEntry(int(id), parse_state(state), int(since_s), bool(pinned), int(failures), places, *texts)


def _parse_entry_row_of_any_format(row: tuple[Any, ...]) -> ManagedJobEntry:
    """Return the entry stored in a row of this or an older build's ledger. Raise `CorruptFileContent`."""
    if len(row) == len(_COLUMNS):
        return _parse_entry_row(row)
    with convert_content_errors(f"job {row[0]!r:.20}"):
        id, state, since_s, pinned, failures, nodes, leave, label, why = row[:_OLDER_FIELD_COUNT]
        pairs = [(name, units) for name, units in json.loads(nodes)]
        places = tuple((name, units) for name, units in pairs if units != _OLDER_RESTORE_UNITS)
        restore = next((str(name) for name, units in pairs if units == _OLDER_RESTORE_UNITS), "")
        return ManagedJobEntry(
            int(id), parse_state(state), int(since_s), bool(pinned), int(failures), places, leave, label, why,
            restore=restore,
        )  # fmt: skip


def _make_entry_row(entry: ManagedJobEntry) -> tuple[Any, ...]:
    texts = map(
        replace_surrogates,
        (entry.unmanaged_reason, entry.label, entry.why, entry.cause, entry.unmanaged_request, entry.restore),
    )
    numbers = (entry.job_id, entry.state.value, entry.since_s, int(entry.pinned), entry.failures)
    values = (*numbers, json.dumps(entry.nodes), *texts)
    return (*values, compute_row_checksum(values))


def _read_readable_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """Yield a damaged file's readable rows, once from the start and once from the end."""
    for way in ("asc", "desc"):
        with (
            suppress(sqlite3.Error, CorruptFileContent),
            convert_content_errors(),
            closing(connect_sqlite(path, durable=False, read_only=True)) as db,
        ):
            db.text_factory = bytes  # invalid UTF-8 then affects only its own row
            yield from db.execute(f"{_SELECT_ROWS} order by id {way}")


def _parse_valid_rows(rows: Iterable[tuple[Any, ...]]) -> tuple[list[ManagedJobEntry], str]:
    """Return the entries of valid rows, and a message about the discarded rows."""
    whole: dict[int, ManagedJobEntry] = {}
    odd: set[str] = set()
    for row in rows:
        try:
            with convert_content_errors():
                entry = _parse_entry_row(tuple(value.decode() if isinstance(value, bytes) else value for value in row))
            whole[entry.job_id] = entry
        except CorruptFileContent:
            odd.add(f"{row[0]!r:.20}")
    if not odd:
        return list(whole.values()), ""
    named = sorted(odd, key=lambda id: (len(id), id))
    return list(whole.values()), f"; discarded {join_abbreviated(named, _MAX_NAMED_JOBS)}"
