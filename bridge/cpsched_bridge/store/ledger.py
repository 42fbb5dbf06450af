"""The ledger: every job that the bridge holds or is starting, on disk, so that a crash strands and repeats nothing.

What is about to be asked of the cluster is written before the command, what came of it after. Whatever moment the
bridge dies at, the next one reads the intents, observes the cluster, and lets the cluster's state decide.
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
from cpsched.formatting import many
from cpsched_bridge.cycle_report import Event as Happening
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.ports import ClusterReason
from cpsched_bridge.store.corruption import MOST, CorruptContent, is_corruption, reading_content, row_checksum, rows_as
from cpsched_bridge.store.sqlite_files import connect, file_of, move_aside, rows_of, storable, was_replaced


class State(StrEnum):
    """Where a job stands between the bridge and the cluster."""

    HOLDING = "holding"
    """A hold was, or is about to be, asked for."""
    HELD = "held"
    """Held for us, by us or by the submit plugin: may be started."""
    STARTING = "starting"
    """A start (pin and release) was, or is about to be, asked for; not yet seen running."""
    ROLLING_BACK = "rolling-back"
    """The start did not work out: hold again and clear the pin."""
    HANDING_BACK = "handing-back"
    """To be released to the cluster's own scheduler, pin cleared."""
    FREE = "free"
    """Pending under the cluster's own scheduler."""
    RUNNING = "running"
    """Seen running."""
    ENDED = "ended"
    """Ran and ended, or left the cluster while it was not ours."""
    GONE = "gone"
    """No longer known to the cluster, and it was ours when it vanished (cancelled before it ran)."""


KEPT = frozenset({State.HOLDING, State.HELD, State.STARTING, State.ROLLING_BACK, State.HANDING_BACK})
"""States in which a hold or a pin of ours may be on the job: what `release-all` hands back."""

CLOSED = frozenset({State.ENDED, State.GONE})

_SEEN = frozenset({State.RUNNING, State.ENDED, State.GONE})
"""What the cluster may do to a job in any state."""

FOLLOWS: dict[State | None, frozenset[State]] = {
    None: frozenset({State.HOLDING, State.HELD, State.HANDING_BACK}),
    State.HOLDING: _SEEN | {State.HELD, State.FREE, State.HANDING_BACK},
    State.HELD: _SEEN | {State.STARTING, State.HANDING_BACK, State.FREE},
    State.STARTING: _SEEN | {State.HELD, State.ROLLING_BACK, State.HANDING_BACK, State.FREE},
    State.ROLLING_BACK: _SEEN | {State.HELD, State.HANDING_BACK, State.FREE},
    State.HANDING_BACK: _SEEN | {State.FREE, State.HELD, State.HOLDING},
    State.FREE: _SEEN | {State.HOLDING, State.HELD, State.HANDING_BACK},
    State.RUNNING: _SEEN - {State.RUNNING} | {State.HOLDING, State.FREE, State.HANDING_BACK},
    State.ENDED: frozenset({State.HOLDING, State.HELD, State.HANDING_BACK, State.RUNNING, State.FREE}),
    State.GONE: frozenset({State.HOLDING, State.HELD, State.HANDING_BACK, State.RUNNING, State.ENDED, State.FREE}),
}
"""Which state may follow which; a closed job may come back (a requeue, a controller that had lost sight of it)."""


Cause = Literal["", "released", "held_by_administrator"]
"""What the reason of an entry's last transition means for the next one; empty where only its state counts.

- `released`: the release of a start was answered, where pin and release are two commands.
- `held_by_administrator`: the hold was refused, since an administrator has held the job.
"""
_CAUSES: Mapping[Cause, tuple[str, frozenset[State]]] = {
    "released": ("released", frozenset({State.STARTING})),
    "held_by_administrator": (
        "hold refused: is held by an administrator",
        frozenset({State.HOLDING, State.ROLLING_BACK}),
    ),
}
"""How the file spells a cause, in the column of the reason, and the states that have it. Earlier versions read it."""
_WHILE = ", while it asks for "
"""What precedes, in the file's column `leave`, what the job asked for when it was left: see `Entry.asked`."""

_NAMED = 50
"""Jobs of a damaged ledger that a message names."""


class IllegalTransition(BridgeError):
    """A state that cannot follow the present one: a bug of the bridge, not of the cluster."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One job of the ledger."""

    job_id: int
    state: State
    since_s: int
    """Cluster time of its last transition."""
    pinned: bool = False
    """Whether a node list of ours may be on the job."""
    failures: int = 0
    """Starts and holds in a row that did not work out."""
    nodes: tuple[tuple[str, int], ...] = ()
    """Where the job was last told to start: (node name, units there)."""
    leave: str = ""
    """Why the job is not adopted again; empty if it may be."""
    label: str = ""
    """The name that people use for the job, such as "19_3"."""
    why: str = ""
    """The reason of its last transition, for people."""
    cause: Cause = ""
    asked: str = ""
    """`leave` counts only while the job asks for this (`equivalence.request_fingerprint`); empty: whatever it asks
    for.
    """


Event = Literal["", "as_decided", "kept_on", "left"]
"""What else a transition means:

- `as_decided`: the job was started where it was decided.
- `kept_on`: the job stays held and is retried, since the cluster's own scheduler could not start it.
- `left`: the job is left to the cluster's own scheduler for the reason in `Entry.leave`.
"""


@dataclass(frozen=True, slots=True)
class Transition:
    """An entry as it becomes, and the state it had (None: it is new)."""

    before: State | None
    entry: Entry
    obstacle: ClusterReason | None = None
    """Why a start did not come true, where the reason lies with the job or its like: no failure of the bridge."""
    failed: bool = False
    """Whether a start or a hold failed, with nobody to name as the reason."""
    event: Event = ""

    def __post_init__(self) -> None:
        if self.entry.state not in FOLLOWS[self.before] and self.entry.state != self.before:
            raise IllegalTransition(f"job {self.entry.job_id}: {self.before} cannot become {self.entry.state}")


def move(
    entry: Entry | None, state: State, now_s: int, why: str, job_id: int = 0, event: Event = "", **changes: Any
) -> Transition:
    """`entry` in a new state, with other fields changed; a new entry for `job_id` if there is none.

    `cause` is that of this transition alone. So is `asked` that of the `leave` that it comes with.
    """
    if entry is None:
        return Transition(None, Entry(job_id, state, now_s, why=why, **changes), event=event)
    changes = {"cause": "", **({"asked": ""} if "leave" in changes else {}), **changes}
    return Transition(entry.state, replace(entry, state=state, since_s=now_s, why=why, **changes), event=event)


def caused(entry: Entry, state: State, now_s: int, cause: Cause) -> Transition:
    """`entry` in a new state for one of the causes, with the reason by which the file keeps it."""
    return move(entry, state, now_s, _CAUSES[cause][0], cause=cause)


def left_while(asked: str, reason: str) -> dict[str, Any]:
    """The fields of an entry whose job is left to the cluster for `reason`, while it asks for this."""
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
"""For a ledger of a version that knew no seals: a row without one is believed."""
_FIELDS = 9
_ROWS = "select * from jobs"
_LOST = "select count(*) from transitions where job_id not in (select id from jobs)"
"""A job is forgotten with its transitions: where they are, the job was."""


class Ledger:
    """The jobs table and its transitions in SQLite (WAL). One writer; readers may look on from other processes.

    `durable`: every commit reaches the disk (synchronous=FULL), so that a power failure is survived too and not
    the death of the process alone.

    Each row has a checksum, its seal. A file that is damaged is set aside, and `mishaps` tells so. If that is found at
    the start, the rows whose seal fits are taken over, and nothing else is believed: the cluster shows the jobs that
    carry the bridge's marks. If it is found later, or if somebody took the file away, it is written anew from memory.
    """

    def __init__(self, path: Path | str, durable: bool = True, read_only: bool = False) -> None:
        self._path, self._durable = path, durable
        self.mishaps: list[Happening] = []
        """What happened to the file, until somebody tells it on."""
        self.whole = True
        """Whether this is all that was ever written: false where the file was damaged, or there was none."""
        self._lost = False
        """Whether the file was set aside and no new one could be made yet."""
        try:
            self._open(read_only)
        except CorruptContent as error:
            if read_only:
                raise
            self._begin_anew(error)

    @classmethod
    def copy_of(cls, path: Path) -> Ledger:
        """A ledger in memory with what a file holds. Raises `sqlite3.Error`, `CorruptContent` for what is no ledger."""
        copy = cls(":memory:", durable=False)
        with reading_content():
            copy.take_over([_entry(row) for row in rows_of(path, _ROWS)])
        copy.whole = True
        return copy

    def _open(self, read_only: bool = False) -> None:
        with reading_content():
            self._db = self._connected(read_only)
        try:
            with reading_content():
                if not read_only:
                    self._look_whether_whole()
                self.reload()
        except BaseException:
            self._db.close()
            raise
        self._file = file_of(self._path)

    def _connected(self, read_only: bool = False) -> sqlite3.Connection:
        """The file, opened. What is committed goes to the file itself at once: a damaged log takes nothing along."""
        db = connect(self._path, self._durable, read_only)
        if not read_only:
            db.execute("pragma wal_autocheckpoint=1")
        return db

    def _look_whether_whole(self) -> None:
        """Raise what `reading_content` makes `CorruptContent` where tables or rows are missing, or pages are not in
        order.
        """
        tables = {name for (name,) in self._db.execute("select name from sqlite_master where type = 'table'")}
        self.whole = bool(tables)
        if tables and not tables >= {"jobs", "transitions"}:
            raise CorruptContent("it has no jobs")
        self._db.executescript(SCHEMA)
        if len(self._db.execute("pragma table_info(jobs)").fetchall()) == _FIELDS:
            self._db.execute(_SEALED)
        (said,) = self._db.execute("pragma quick_check(1)").fetchone()
        if said != "ok":
            raise CorruptContent(said)
        if lost := self._db.execute(_LOST).fetchone()[0]:
            raise CorruptContent(f"{lost} transitions are those of jobs that are not there")
        if not 0 <= self.last_round() < MOST:
            raise CorruptContent(f"its last round is {self.last_round()}")

    def _begin_anew(self, error: CorruptContent) -> None:
        """Set a damaged file aside and begin a new one with those of its rows that are whole."""
        rows = list(_readable_rows(Path(self._path)))
        aside = move_aside(Path(self._path))
        self._open()
        entries, odd = _whole_rows(rows)
        self.take_over(entries)
        self.whole = False
        name = aside.name if aside else "nothing"
        whole = many(len(entries), "job")
        said = f"{self._path}: {error}; set aside as {name}, begun anew with the {whole} whose rows are whole"
        self.mishaps.append(Happening("ledger_damaged", said + odd))

    def take_over(self, entries: Iterable[Entry]) -> None:
        """Write entries as they are, in place of those of the same jobs."""
        found = list(entries)
        with self._db:
            _insert(self._db, found)
        self.reload()

    def reload(self) -> None:
        """Read all entries again. Raises `sqlite3.Error`, or `CorruptContent` for a row that is no entry."""
        with reading_content():
            rows = self._db.execute(_ROWS)
            self._entries: dict[int, Entry] = {}
            self._in_state: dict[State | None, set[int]] = {state: set() for state in (None, *State)}
            for row in rows:
                self._remember(None, _entry(row))

    def keep_file(self) -> None:
        """Write the file anew from memory where somebody took it away; called once a cycle."""
        if self._lost or was_replaced(self._path, self._file):
            self._write_anew("it was taken away")

    def _write_anew(self, why: object) -> None:
        """Set the file aside and write what is in memory to a new one. Where that fails, the next write tries again."""
        again, self._lost = self._lost, True
        self._db.close()
        aside = move_aside(Path(self._path))
        if aside or not again:
            kind, where = ("ledger_damaged", f"; set aside as {aside.name}") if aside else ("ledger_gone", "")
            said = f"{self._path}: {why}{where}, {many(len(self._entries), 'job')} written anew from memory"
            self.mishaps.append(Happening(kind, said))
        db = self._connected()
        try:
            db.executescript(SCHEMA)
            with db:
                _insert(db, self._entries.values())
        except BaseException:
            db.close()
            raise
        self._db, self._lost, self._file = db, False, file_of(self._path)

    def _remember(self, before: State | None, entry: Entry) -> None:
        self._in_state[before].discard(entry.job_id)
        self._in_state[entry.state].add(entry.job_id)
        self._entries[entry.job_id] = entry

    @property
    def by_id(self) -> Mapping[int, Entry]:
        """All entries by job id; changes with the ledger."""
        return self._entries

    def get(self, job_id: int) -> Entry | None:
        """The entry of a job, if it has one."""
        return self._entries.get(job_id)

    def name_of(self, job_id: int) -> str:
        """The name that people use for a job, as far as the ledger knows it."""
        entry = self._entries.get(job_id)
        return (entry.label if entry is not None else "") or str(job_id)

    def entries(self, *states: State) -> list[Entry]:
        """The entries in any of `states` (none given: all), by job id."""
        return [self._entries[id] for id in sorted(set().union(*(self._in_state[s] for s in states or State)))]

    def open_ids(self) -> frozenset[int]:
        """Ids of the jobs that are not over."""
        return frozenset().union(*(self._in_state[state] for state in State if state not in CLOSED))

    def kept(self) -> list[int]:
        """Ids of the jobs on which a hold or a pin of ours may be."""
        return [entry.job_id for entry in self.entries(*KEPT)]

    def pinned(self) -> frozenset[int]:
        """Ids of the jobs whose node list is ours."""
        return frozenset(id for id in self.open_ids() if self._entries[id].pinned)

    def left_pinned(self) -> list[Entry]:
        """Pending jobs that are not ours any more with a pin of ours on them: somebody has held them after it.

        Where nobody holds such a job, `reconcile` makes it ours again, to be handed back.
        """
        return [entry for entry in self.entries(State.FREE) if entry.pinned]

    def record(self, transitions: Iterable[Transition], round_number: int = 0, unwritten: bool = False) -> None:
        """Write transitions, all or none, before returning. Raises `IllegalTransition` if the ledger is elsewhere.

        `unwritten`: what the disk does not take is remembered nevertheless, and the error is raised after that.
        """
        batch = list(transitions)
        if not batch:
            return
        for transition in batch:
            known = self._entries.get(transition.entry.job_id)
            if (known.state if known else None) != transition.before:
                raise IllegalTransition(f"job {transition.entry.job_id}: the ledger does not say {transition.before}")
        written = False
        try:
            self._write(batch, round_number)
            written = True
        finally:
            if written or unwritten:
                for t in batch:
                    self._remember(t.before, t.entry)

    def _write(self, batch: Sequence[Transition], round_number: int) -> None:
        def work() -> None:
            _insert(self._db, (transition.entry for transition in batch))
            self._db.executemany(
                "insert into transitions (at_s, round, job_id, before, after, why) values (?,?,?,?,?,?)",
                [_transition_row(transition, round_number) for transition in batch],
            )

        self._written(work)

    def _written(self, work: Callable[[], object]) -> None:
        """Do `work` in one transaction; a second time, to a new file, where the file is damaged."""
        try:
            with self._db:
                work()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not (self._lost or is_corruption(error)):
                raise
            self._write_anew(error)
            with self._db:
                work()

    def history(self, job_id: int) -> list[tuple[int, int, str | None, str, str]]:
        """(cluster time, round, state before, state after, why) of a job, oldest first."""
        query = "select at_s, round, before, after, why from transitions where job_id = ? order by seq"
        with reading_content():
            rows = rows_as(_Line, self._db.execute(query, (job_id,)))
        return [(row.at_s, row.round, row.before, row.after, row.why) for row in rows]

    def last_round(self) -> int:
        """The newest round that changed anything, of those that are not forgotten; 0 if there is none."""
        return int(self._db.execute("select coalesce(max(round), 0) from transitions").fetchone()[0])

    def counts(self) -> dict[State, int]:
        """Number of jobs by state."""
        return {state: len(self._in_state[state]) for state in State}

    def forget(self, before_s: int) -> None:
        """Drop jobs that were over before `before_s`, and their transitions."""
        old = [e.job_id for e in self.entries(*CLOSED) if e.since_s < before_s]

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
    """A row of the transitions."""

    at_s: int
    round: int
    before: str | None
    after: str
    why: str


def _insert(db: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    query = "insert or replace into jobs values (?,?,?,?,?,?,?,?,?,?)"
    db.executemany(query, [_row(entry) for entry in entries])


def _transition_row(transition: Transition, round_number: int) -> tuple[Any, ...]:
    entry = transition.entry
    return entry.since_s, round_number, entry.job_id, transition.before, entry.state, storable(entry.why)


def _entry(row: tuple[Any, ...]) -> Entry:
    """The entry of a row. Raises `CorruptContent` if it is none, or not as it was written."""
    with reading_content(f"job {row[0]!r:.20}"):
        values, seal = row[:_FIELDS], row[_FIELDS] if len(row) > _FIELDS else None
        if seal is not None and seal != row_checksum(values):
            raise CorruptContent("the checksum does not fit")
        id, state, since_s, pinned, failures, nodes, leave, label, why = values
        places = tuple((name, units) for name, units in json.loads(nodes))
        return Entry(
            int(id), State(state), int(since_s), bool(pinned), int(failures), places, leave, label, why,
            next((cause for cause, known in _CAUSES.items() if why == known[0] and state in known[1]), ""),
            leave.rpartition(_WHILE)[2] if _WHILE in leave else "",
        )  # fmt: skip


def _row(entry: Entry) -> tuple[Any, ...]:
    texts = (json.dumps(entry.nodes), *map(storable, (entry.leave, entry.label, entry.why)))
    values = (entry.job_id, entry.state.value, entry.since_s, int(entry.pinned), entry.failures, *texts)
    return (*values, row_checksum(values))


def _readable_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """The rows of a damaged file, as far as they can be read from both ends."""
    for way in ("asc", "desc"):
        with (
            suppress(sqlite3.Error, CorruptContent),
            reading_content(),
            closing(connect(path, durable=False, read_only=True)) as db,
        ):
            db.text_factory = bytes  # one text that is no UTF-8 spoils its own row alone
            yield from db.execute(f"{_ROWS} order by id {way}")


def _whole_rows(rows: Iterable[tuple[Any, ...]]) -> tuple[list[Entry], str]:
    """The entries of those rows that are sealed, and words on the others."""
    whole: dict[int, Entry] = {}
    odd: set[str] = set()
    for row in rows:
        try:
            with reading_content():
                entry = _entry(tuple(value.decode() if isinstance(value, bytes) else value for value in row))
            if len(row) <= _FIELDS or row[_FIELDS] is None:
                raise CorruptContent("not sealed")
            whole[entry.job_id] = entry
        except CorruptContent:
            odd.add(f"{row[0]!r:.20}")
    if not odd:
        return list(whole.values()), ""
    named = sorted(odd, key=lambda id: (len(id), id))
    return list(whole.values()), f"; not believed is what it said of {abbreviate(named, _NAMED)}"
