"""Record on disk each job that the bridge holds or starts, so that a crash loses no job and starts none twice.

An intent is written before its command is sent, and the outcome afterwards. After a crash at any time, the next bridge
process reads the intents, observes the cluster, and relies on the cluster's state.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from cpsched.errors import abbreviate
from cpsched.formatting import format_count
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.ports import ClusterReason
from cpsched_bridge.store.corruption import (
    MOST,
    CorruptFileContent,
    is_corruption,
    raise_as_corrupt,
    row_checksum,
    rows_to_dataclasses,
)
from cpsched_bridge.store.sqlite_files import (
    connect,
    identify_file,
    move_aside,
    read_rows,
    replace_surrogates,
    was_replaced,
)


class LedgerState(StrEnum):
    """The state of a job from the bridge's point of view."""

    HOLDING = "holding"
    """A hold was sent or is about to be sent."""
    HELD = "held"
    """The job is held by the bridge, or by the submit plugin for the bridge, and may be started."""
    STARTING = "starting"
    """A start (pin and release) was sent or is about to be sent; the job does not run yet."""
    ROLLING_BACK = "rolling-back"
    """The start failed; the job must be held again and its pin cleared."""
    HANDING_BACK = "handing-back"
    """The job must be released to the cluster's own scheduler, without a pin."""
    FREE = "free"
    """The job is pending and left to the cluster's own scheduler."""
    RUNNING = "running"
    """The job was seen running."""
    ENDED = "ended"
    """The job ran and ended, or left the cluster while it was not managed."""
    GONE = "gone"
    """The job left the cluster while it was managed, because it was cancelled before it ran."""


KEPT = frozenset(
    {LedgerState.HOLDING, LedgerState.HELD, LedgerState.STARTING, LedgerState.ROLLING_BACK, LedgerState.HANDING_BACK}
)
"""States in which a job may have the bridge's hold or pin; `release-all` releases these jobs."""

CLOSED = frozenset({LedgerState.ENDED, LedgerState.GONE})

_SEEN = frozenset({LedgerState.RUNNING, LedgerState.ENDED, LedgerState.GONE})
"""States that the cluster may cause from any other state."""

FOLLOWS: dict[LedgerState | None, frozenset[LedgerState]] = {
    None: frozenset({LedgerState.HOLDING, LedgerState.HELD, LedgerState.HANDING_BACK}),
    LedgerState.HOLDING: _SEEN | {LedgerState.HELD, LedgerState.FREE, LedgerState.HANDING_BACK},
    LedgerState.HELD: _SEEN | {LedgerState.STARTING, LedgerState.HANDING_BACK, LedgerState.FREE},
    LedgerState.STARTING: _SEEN
    | {LedgerState.HELD, LedgerState.ROLLING_BACK, LedgerState.HANDING_BACK, LedgerState.FREE},
    LedgerState.ROLLING_BACK: _SEEN | {LedgerState.HELD, LedgerState.HANDING_BACK, LedgerState.FREE},
    LedgerState.HANDING_BACK: _SEEN | {LedgerState.FREE, LedgerState.HELD, LedgerState.HOLDING},
    LedgerState.FREE: _SEEN | {LedgerState.HOLDING, LedgerState.HELD, LedgerState.HANDING_BACK},
    LedgerState.RUNNING: _SEEN - {LedgerState.RUNNING}
    | {LedgerState.HOLDING, LedgerState.FREE, LedgerState.HANDING_BACK},
    LedgerState.ENDED: frozenset(
        {LedgerState.HOLDING, LedgerState.HELD, LedgerState.HANDING_BACK, LedgerState.RUNNING, LedgerState.FREE}
    ),
    LedgerState.GONE: frozenset(
        {
            LedgerState.HOLDING,
            LedgerState.HELD,
            LedgerState.HANDING_BACK,
            LedgerState.RUNNING,
            LedgerState.ENDED,
            LedgerState.FREE,
        }
    ),
}
"""Permitted transitions. A closed job may return after a requeue or if the controller had lost the job."""


Cause = Literal["", "released", "held_by_administrator"]
"""Cause of the last transition that affects the next one; empty if only the state matters.

- `released`: the release of a start was answered, if pin and release are two commands.
- `held_by_administrator`: the hold was refused because an administrator held the job.
"""
_CAUSES: Mapping[Cause, tuple[str, frozenset[LedgerState]]] = {
    "released": ("released", frozenset({LedgerState.STARTING})),
    "held_by_administrator": (
        "hold refused: is held by an administrator",
        frozenset({LedgerState.HOLDING, LedgerState.ROLLING_BACK}),
    ),
}
"""The text for a cause in the file's reason column, and the states that can have it. Earlier versions read it."""
_WHILE = ", while it asks for "
"""Separator before the job's request in the file's column `leave`; see `ManagedJobEntry.asked`."""

_NAMED = 50
"""Maximum number of jobs in a damaged ledger that a message lists."""


class IllegalLedgerTransition(BridgeError):
    """An error for a transition that is not permitted, which is a bug in the bridge."""


@dataclass(frozen=True, slots=True)
class ManagedJobEntry:
    """The entry of one job in the ledger."""

    job_id: int
    state: LedgerState
    since_s: int
    """Cluster time of the last transition."""
    pinned: bool = False
    """Whether the job may have a node list set by the bridge."""
    failures: int = 0
    """Number of consecutive failed starts and holds."""
    nodes: tuple[tuple[str, int], ...] = ()
    """Nodes of the last start as (node name, units)."""
    leave: str = ""
    """Why the job must not be adopted again; empty if it may be."""
    label: str = ""
    """The name that users see, for example "19_3"."""
    why: str = ""
    """Reason for the last transition, for people."""
    cause: Cause = ""
    asked: str = ""
    """Request to which `leave` applies, as `equivalence.request_fingerprint`; empty for any request."""


TransitionEvent = Literal["", "as_decided", "kept_on", "left"]
"""Additional meaning of a transition:

- `as_decided`: the job was started on the nodes of the decision.
- `kept_on`: the job stays held and is retried, because the cluster's own scheduler could not start it.
- `left`: the job is left to the cluster's own scheduler for the reason in `ManagedJobEntry.leave`.
"""


@dataclass(frozen=True, slots=True)
class LedgerTransition:
    """A new entry and the job's previous state, which is None for a new job."""

    before: LedgerState | None
    entry: ManagedJobEntry
    obstacle: ClusterReason | None = None
    """Why a start failed, if the reason concerns the job or its group. Not a failure of the bridge."""
    failed: bool = False
    """Whether a start or a hold failed without a known reason."""
    event: TransitionEvent = ""

    def __post_init__(self) -> None:
        if self.entry.state not in FOLLOWS[self.before] and self.entry.state != self.before:
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
    """Return a transition of `entry`, or of a new entry for `job_id`, to a new state with further changes.

    `cause` applies only to this transition, and `asked` only with its `leave`.
    """
    if entry is None:
        return LedgerTransition(None, ManagedJobEntry(job_id, state, now_s, why=why, **changes), event=event)
    changes = {"cause": "", **({"asked": ""} if "leave" in changes else {}), **changes}
    return LedgerTransition(entry.state, replace(entry, state=state, since_s=now_s, why=why, **changes), event=event)


def make_caused_transition(entry: ManagedJobEntry, state: LedgerState, now_s: int, cause: Cause) -> LedgerTransition:
    """Return a transition of `entry` to a new state for `cause`, with the reason text as stored in the file."""
    return make_transition(entry, state, now_s, _CAUSES[cause][0], cause=cause)


def unmanaged_fields(asked: str, reason: str) -> dict[str, Any]:
    """Return the entry fields for a job that is left to the cluster for `reason` while its request is `asked`."""
    return {"leave": f"{reason}{_WHILE}{asked}", "asked": asked}


SCHEMA = """
create table if not exists jobs (
  id integer primary key, state text not null, since_s integer not null, pinned integer not null,
  failures integer not null, nodes text not null, leave text not null, label text not null, why text not null,
  seal integer);
create index if not exists jobs_by_state on jobs (state);
create table if not exists transitions (
  seq integer primary key, at_s integer not null, round integer not null, job_id integer not null,
  before text, after text not null, why text not null);
create index if not exists transitions_by_job on transitions (job_id);
"""

_SEALED = "alter table jobs add column seal integer"
"""Statement that upgrades a ledger without seals; a row without a seal is trusted."""
_FIELDS = 9
_ROWS = "select * from jobs"
_LOST = "select count(*) from transitions where job_id not in (select id from jobs)"
"""Query for lost rows: a job is deleted with its transitions, so transitions without a job mean a lost row."""


class Ledger:
    """The ledger's jobs and transitions in an SQLite file (WAL) with one writer, which other processes may read.

    `durable`: every commit reaches the disk (synchronous=FULL), which also protects against power failures.

    Each row has a checksum, called its seal. A damaged file is moved aside, and `mishaps` reports this. At start-up,
    only rows with a valid seal are kept, and the cluster shows which other jobs have the bridge's marks. Later, or if
    the file was deleted, the file is written again from memory.
    """

    def __init__(self, path: Path | str, durable: bool = True, read_only: bool = False) -> None:
        self._path, self._durable = path, durable
        self.mishaps: list[CycleEvent] = []
        """Events of the file that are still to be reported."""
        self.whole = True
        """Whether the ledger is complete; False if the file was damaged or missing."""
        self._lost = False
        """Whether the file was moved aside and a new file could not be created yet."""
        try:
            self._open(read_only)
        except CorruptFileContent as error:
            if read_only:
                raise
            self._begin_anew(error)

    @classmethod
    def load_copy(cls, path: Path) -> Ledger:
        """Return an in-memory ledger with a file's content. Raise `sqlite3.Error` or `CorruptFileContent`."""
        copy = cls(":memory:", durable=False)
        with raise_as_corrupt():
            copy.replace_entries([_entry(row) for row in read_rows(path, _ROWS)])
        copy.whole = True
        return copy

    def _open(self, read_only: bool = False) -> None:
        with raise_as_corrupt():
            self._db = self._connected(read_only)
        try:
            with raise_as_corrupt():
                if not read_only:
                    self._look_whether_whole()
                self.reload()
        except BaseException:
            self._db.close()
            raise
        self._file = identify_file(self._path)

    def _connected(self, read_only: bool = False) -> sqlite3.Connection:
        """Return a connection whose commits reach the file itself immediately, so that a damaged log loses nothing."""
        db = connect(self._path, self._durable, read_only)
        if not read_only:
            db.execute("pragma wal_autocheckpoint=1")
        return db

    def _look_whether_whole(self) -> None:
        """Raise an error that counts as corruption if tables or rows are missing or pages are out of order."""
        tables = {name for (name,) in self._db.execute("select name from sqlite_master where type = 'table'")}
        self.whole = bool(tables)
        if tables and not tables >= {"jobs", "transitions"}:
            raise CorruptFileContent("it has no jobs")
        self._db.executescript(SCHEMA)
        if len(self._db.execute("pragma table_info(jobs)").fetchall()) == _FIELDS:
            self._db.execute(_SEALED)
        (said,) = self._db.execute("pragma quick_check(1)").fetchone()
        if said != "ok":
            raise CorruptFileContent(said)
        if lost := self._db.execute(_LOST).fetchone()[0]:
            raise CorruptFileContent(f"{lost} transitions have no job")
        if not 0 <= self.last_round() < MOST:
            raise CorruptFileContent(f"its last round number is out of range: {self.last_round()}")

    def _begin_anew(self, error: CorruptFileContent) -> None:
        """Move a damaged file aside and start a new file with the valid rows."""
        rows = list(_readable_rows(Path(self._path)))
        aside = move_aside(Path(self._path))
        self._open()
        entries, odd = _whole_rows(rows)
        self.replace_entries(entries)
        self.whole = False
        name = aside.name if aside else "nothing"
        whole = format_count(len(entries), "job")
        said = f"{self._path}: {error}; moved to {name}, started a new file with the {whole} whose rows are valid"
        self.mishaps.append(CycleEvent("ledger_damaged", said + odd))

    def replace_entries(self, entries: Iterable[ManagedJobEntry]) -> None:
        """Replace the entries of the same jobs with `entries`, unchanged."""
        found = list(entries)
        with self._db:
            _insert(self._db, found)
        self.reload()

    def reload(self) -> None:
        """Read all entries again. Raise `sqlite3.Error`, or `CorruptFileContent` if a row is invalid."""
        with raise_as_corrupt():
            rows = self._db.execute(_ROWS)
            self._entries: dict[int, ManagedJobEntry] = {}
            self._in_state: dict[LedgerState | None, set[int]] = {state: set() for state in (None, *LedgerState)}
            for row in rows:
                self._remember(None, _entry(row))

    def restore_missing_file(self) -> None:
        """Write the file again from memory if it was deleted. Called once per cycle."""
        if self._lost or was_replaced(self._path, self._file):
            self._write_anew("it was deleted")

    def _write_anew(self, why: object) -> None:
        """Move the file aside and write all entries to a new file. If that fails, the next write tries again."""
        again, self._lost = self._lost, True
        self._db.close()
        aside = move_aside(Path(self._path))
        if aside or not again:
            kind, where = ("ledger_damaged", f"; moved to {aside.name}") if aside else ("ledger_gone", "")
            said = f"{self._path}: {why}{where}, {format_count(len(self._entries), 'job')} written again from memory"
            self.mishaps.append(CycleEvent(kind, said))
        db = self._connected()
        try:
            db.executescript(SCHEMA)
            with db:
                _insert(db, self._entries.values())
        except BaseException:
            db.close()
            raise
        self._db, self._lost, self._file = db, False, identify_file(self._path)

    def _remember(self, before: LedgerState | None, entry: ManagedJobEntry) -> None:
        self._in_state[before].discard(entry.job_id)
        self._in_state[entry.state].add(entry.job_id)
        self._entries[entry.job_id] = entry

    @property
    def by_id(self) -> Mapping[int, ManagedJobEntry]:
        """All entries by job id; the mapping changes with the ledger."""
        return self._entries

    def get(self, job_id: int) -> ManagedJobEntry | None:
        """Return the entry of a job, or None."""
        return self._entries.get(job_id)

    def get_job_name(self, job_id: int) -> str:
        """Return the name of a job that users see, if the ledger contains it."""
        entry = self._entries.get(job_id)
        return (entry.label if entry is not None else "") or str(job_id)

    def list_entries(self, *states: LedgerState) -> list[ManagedJobEntry]:
        """Return the entries in any of `states`, or all entries if no state is given, sorted by job id."""
        return [self._entries[id] for id in sorted(set().union(*(self._in_state[s] for s in states or LedgerState)))]

    def open_ids(self) -> frozenset[int]:
        """Return the ids of jobs that are not over."""
        return frozenset().union(*(self._in_state[state] for state in LedgerState if state not in CLOSED))

    def list_held_ids(self) -> list[int]:
        """Return the ids of jobs that may have a hold or pin of the bridge."""
        return [entry.job_id for entry in self.list_entries(*KEPT)]

    def get_pinned_ids(self) -> frozenset[int]:
        """Return the ids of jobs that may have a node list set by the bridge."""
        return frozenset(id for id in self.open_ids() if self._entries[id].pinned)

    def list_orphaned_pins(self) -> list[ManagedJobEntry]:
        """Return pending jobs that are pinned but no longer managed, because another actor held them after the pin.

        If such a job is no longer held, `reconcile` manages the job again in order to release it.
        """
        return [entry for entry in self.list_entries(LedgerState.FREE) if entry.pinned]

    def record(self, transitions: Iterable[LedgerTransition], round_number: int = 0, unwritten: bool = False) -> None:
        """Write transitions, all or none, before returning.

        Raise `IllegalLedgerTransition` if the ledger has another state for a job.

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
            self._write(batch, round_number)
            written = True
        finally:
            if written or unwritten:
                for t in batch:
                    self._remember(t.before, t.entry)

    def _write(self, batch: Sequence[LedgerTransition], round_number: int) -> None:
        def work() -> None:
            _insert(self._db, (transition.entry for transition in batch))
            self._db.executemany(
                "insert into transitions (at_s, round, job_id, before, after, why) values (?,?,?,?,?,?)",
                [_transition_row(transition, round_number) for transition in batch],
            )

        self._written(work)

    def _written(self, work: Callable[[], object]) -> None:
        """Run `work` in one transaction. If the file is damaged, run it again in a new file."""
        try:
            with self._db:
                work()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not (self._lost or is_corruption(error)):
                raise
            self._write_anew(error)
            with self._db:
                work()

    def read_transitions(self, job_id: int) -> list[tuple[int, int, str | None, str, str]]:
        """Return a job's transitions as (cluster time, round, state before, state after, why), oldest first."""
        query = "select at_s, round, before, after, why from transitions where job_id = ? order by seq"
        with raise_as_corrupt():
            rows = rows_to_dataclasses(_Line, self._db.execute(query, (job_id,)))
        return [(row.at_s, row.round, row.before, row.after, row.why) for row in rows]

    def last_round(self) -> int:
        """Return the number of the newest round with a recorded transition; 0 if there is none."""
        return int(self._db.execute("select coalesce(max(round), 0) from transitions").fetchone()[0])

    def counts_by_state(self) -> dict[LedgerState, int]:
        """Return the number of jobs in each state."""
        return {state: len(self._in_state[state]) for state in LedgerState}

    def prune(self, before_s: int) -> None:
        """Delete the jobs that were over before `before_s`, with their transitions."""
        old = [e.job_id for e in self.list_entries(*CLOSED) if e.since_s < before_s]

        def work() -> None:
            self._db.executemany("delete from jobs where id = ?", [(id,) for id in old])
            self._db.executemany("delete from transitions where job_id = ?", [(id,) for id in old])

        self._written(work)
        for id in old:
            self._in_state[self._entries.pop(id).state].discard(id)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


@dataclass(frozen=True, slots=True)
class _Line:
    """A row of the transitions table."""

    at_s: int
    round: int
    before: str | None
    after: str
    why: str


def _insert(db: sqlite3.Connection, entries: Iterable[ManagedJobEntry]) -> None:
    query = "insert or replace into jobs values (?,?,?,?,?,?,?,?,?,?)"
    db.executemany(query, [_row(entry) for entry in entries])


def _transition_row(transition: LedgerTransition, round_number: int) -> tuple[Any, ...]:
    entry = transition.entry
    return entry.since_s, round_number, entry.job_id, transition.before, entry.state, replace_surrogates(entry.why)


def _entry(row: tuple[Any, ...]) -> ManagedJobEntry:
    """Return the entry stored in a row. Raise `CorruptFileContent` if the row is invalid."""
    with raise_as_corrupt(f"job {row[0]!r:.20}"):
        values, seal = row[:_FIELDS], row[_FIELDS] if len(row) > _FIELDS else None
        if seal is not None and seal != row_checksum(values):
            raise CorruptFileContent("the checksum does not match")
        id, state, since_s, pinned, failures, nodes, leave, label, why = values
        places = tuple((name, units) for name, units in json.loads(nodes))
        return ManagedJobEntry(
            int(id), LedgerState(state), int(since_s), bool(pinned), int(failures), places, leave, label, why,
            next((cause for cause, known in _CAUSES.items() if why == known[0] and state in known[1]), ""),
            leave.rpartition(_WHILE)[2] if _WHILE in leave else "",
        )  # fmt: skip


def _row(entry: ManagedJobEntry) -> tuple[Any, ...]:
    texts = (json.dumps(entry.nodes), *map(replace_surrogates, (entry.leave, entry.label, entry.why)))
    values = (entry.job_id, entry.state.value, entry.since_s, int(entry.pinned), entry.failures, *texts)
    return (*values, row_checksum(values))


def _readable_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a damaged file that can be read from its beginning or its end."""
    for way in ("asc", "desc"):
        with (
            suppress(sqlite3.Error, CorruptFileContent),
            raise_as_corrupt(),
            closing(connect(path, durable=False, read_only=True)) as db,
        ):
            db.text_factory = bytes  # invalid UTF-8 then affects only its own row
            yield from db.execute(f"{_ROWS} order by id {way}")


def _whole_rows(rows: Iterable[tuple[Any, ...]]) -> tuple[list[ManagedJobEntry], str]:
    """Return the entries of rows with a valid seal, and a text about the other rows."""
    whole: dict[int, ManagedJobEntry] = {}
    odd: set[str] = set()
    for row in rows:
        try:
            with raise_as_corrupt():
                entry = _entry(tuple(value.decode() if isinstance(value, bytes) else value for value in row))
            if len(row) <= _FIELDS or row[_FIELDS] is None:
                raise CorruptFileContent("not sealed")
            whole[entry.job_id] = entry
        except CorruptFileContent:
            odd.add(f"{row[0]!r:.20}")
    if not odd:
        return list(whole.values()), ""
    named = sorted(odd, key=lambda id: (len(id), id))
    return list(whole.values()), f"; discarded {abbreviate(named, _NAMED)}"
