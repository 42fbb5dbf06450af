"""The ledger: every job that the bridge holds or is starting, on disk, so that a crash strands and repeats nothing.

What is about to be asked of the cluster is written before the command, what came of it after. Whatever moment the
bridge dies at, the next one reads the intents, observes the cluster, and lets the cluster's state decide.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from cpsched_bridge.errors import BridgeError
from cpsched_bridge.ports import Obstacle
from cpsched_bridge.report import Happening
from cpsched_bridge.store.database import Damaged, connect, is_damage, rows_of, set_aside


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
"""States in which a hold or a pin of ours may be on the job: what `release-all` gives back."""

CLOSED = frozenset({State.ENDED, State.GONE})

_SEEN = frozenset({State.RUNNING, State.ENDED, State.GONE})
"""What the cluster may do to a job in any state."""

FOLLOWS: dict[State | None, frozenset[State]] = {
    None: frozenset({State.HOLDING, State.HELD, State.HANDING_BACK}),
    State.HOLDING: _SEEN | {State.HELD, State.FREE, State.HANDING_BACK},
    State.HELD: _SEEN | {State.STARTING, State.HANDING_BACK, State.FREE},
    State.STARTING: _SEEN | {State.HELD, State.ROLLING_BACK, State.HANDING_BACK, State.FREE},
    State.ROLLING_BACK: _SEEN | {State.HELD, State.HANDING_BACK, State.FREE},
    State.HANDING_BACK: _SEEN | {State.FREE, State.HELD},
    State.FREE: _SEEN | {State.HOLDING, State.HELD, State.HANDING_BACK},
    State.RUNNING: _SEEN - {State.RUNNING} | {State.HOLDING, State.FREE, State.HANDING_BACK},
    State.ENDED: frozenset({State.HOLDING, State.HELD, State.HANDING_BACK, State.RUNNING, State.FREE}),
    State.GONE: frozenset({State.HOLDING, State.HELD, State.HANDING_BACK, State.RUNNING, State.ENDED, State.FREE}),
}
"""Which state may follow which; a closed job may come back (a requeue, a controller that had lost sight of it)."""


_CLAIMS = 50
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
    """The reason of its last transition."""


@dataclass(frozen=True, slots=True)
class Transition:
    """An entry as it becomes, and the state it had (None: it is new)."""

    before: State | None
    entry: Entry
    obstacle: Obstacle | None = None
    """Why a start did not come true, where the reason lies with the job or its like: no failure of the bridge."""

    def __post_init__(self) -> None:
        if self.entry.state not in FOLLOWS[self.before] and self.entry.state != self.before:
            raise IllegalTransition(f"job {self.entry.job_id}: {self.before} cannot become {self.entry.state}")


def move(entry: Entry | None, state: State, now_s: int, why: str, job_id: int = 0, **changes: Any) -> Transition:
    """`entry` in a new state, with other fields changed; a new entry for `job_id` if there is none."""
    if entry is None:
        return Transition(None, Entry(job_id, state, now_s, why=why, **changes))
    return Transition(entry.state, replace(entry, state=state, since_s=now_s, why=why, **changes))


_SCHEMA = """
create table if not exists jobs (
  id integer primary key, state text not null, since_s integer not null, pinned integer not null,
  failures integer not null, nodes text not null, leave text not null, label text not null, why text not null);
create index if not exists jobs_by_state on jobs (state);
create table if not exists transitions (
  seq integer primary key, at_s integer not null, round integer not null, job_id integer not null,
  before text, after text not null, why text not null);
create index if not exists transitions_by_job on transitions (job_id);
"""

_COLUMNS = "id, state, since_s, pinned, failures, nodes, leave, label, why"


class Ledger:
    """The jobs table and its transitions in SQLite (WAL). One writer; readers may look on from other processes.

    `durable`: every commit reaches the disk (synchronous=FULL), so that a power failure is survived too and not
    the death of the process alone.

    A file that is damaged is set aside, and `mishaps` tells so. If that is found at the start, the ledger begins empty:
    what is damaged is not believed, and the cluster shows the jobs that carry the bridge's marks. If it is found later,
    the ledger is written anew from memory.
    """

    def __init__(self, path: Path | str, durable: bool = True, read_only: bool = False) -> None:
        self._path, self._durable = path, durable
        self.mishaps: list[Happening] = []
        """What happened to the file, until somebody tells it on."""
        self._lost = False
        """Whether the file was set aside and no new one could be made yet."""
        try:
            self._open(read_only)
        except (sqlite3.Error, Damaged) as error:
            if read_only or not is_damage(error):
                raise
            claims = _claims(Path(path))
            aside = set_aside(Path(path))
            self._open()
            name = aside.name if aside else "nothing"
            said = f"{path}: {error}; set aside as {name}, begun anew from what the cluster shows"
            self.mishaps.append(Happening("ledger_damaged", said + claims))

    @classmethod
    def copy_of(cls, path: Path) -> Ledger:
        """A ledger in memory with what a file holds. Raises `sqlite3.Error`, `Damaged` for a row that is no entry."""
        copy = cls(":memory:", durable=False)
        entries = [_entry(row) for row in rows_of(path, f"select {_COLUMNS} from jobs")]
        with copy._db:
            _insert(copy._db, entries)
        copy.reload()
        return copy

    def _open(self, read_only: bool = False) -> None:
        self._db = connect(self._path, self._durable, read_only)
        try:
            if not read_only:
                self._db.executescript(_SCHEMA)
            self.reload()
        except BaseException:
            self._db.close()
            raise

    def reload(self) -> None:
        """Read all entries again. Raises `sqlite3.Error`, or `Damaged` for a row that is no entry."""
        rows = self._db.execute(f"select {_COLUMNS} from jobs")
        self._entries: dict[int, Entry] = {}
        self._in_state: dict[State | None, set[int]] = {state: set() for state in (None, *State)}
        for row in rows:
            self._remember(None, _entry(row))

    def _write_anew(self, error: sqlite3.Error) -> None:
        """Set the file aside and write what is in memory to a new one. Where that fails, the next write tries again."""
        self._db.close()
        self._lost = True
        if aside := set_aside(Path(self._path)):
            said = (
                f"{self._path}: {error}; set aside as {aside.name}, {len(self._entries)} jobs written anew from memory"
            )
            self.mishaps.append(Happening("ledger_damaged", said))
        db = connect(self._path, self._durable)
        try:
            db.executescript(_SCHEMA)
            with db:
                _insert(db, self._entries.values())
        except BaseException:
            db.close()
            raise
        self._db, self._lost = db, False

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
        try:
            self._write_once(batch, round_number)
        except sqlite3.Error as error:
            if not (self._lost or is_damage(error)):
                raise
            self._write_anew(error)
            self._write_once(batch, round_number)

    def _write_once(self, batch: Sequence[Transition], round_number: int) -> None:
        with self._db:
            _insert(self._db, (transition.entry for transition in batch))
            self._db.executemany(
                "insert into transitions (at_s, round, job_id, before, after, why) values (?,?,?,?,?,?)",
                [(t.entry.since_s, round_number, t.entry.job_id, t.before, t.entry.state, t.entry.why) for t in batch],
            )

    def history(self, job_id: int) -> list[tuple[int, int, str | None, str, str]]:
        """(cluster time, round, state before, state after, why) of a job, oldest first."""
        query = "select at_s, round, before, after, why from transitions where job_id = ? order by seq"
        return list(self._db.execute(query, (job_id,)))

    def last_round(self) -> int:
        """The newest round that changed anything, of those that are not forgotten; 0 if there is none."""
        return int(self._db.execute("select coalesce(max(round), 0) from transitions").fetchone()[0])

    def counts(self) -> dict[State, int]:
        """Number of jobs by state."""
        return {state: len(self._in_state[state]) for state in State}

    def forget(self, before_s: int) -> None:
        """Drop jobs that were over before `before_s`, and their transitions."""
        old = [e.job_id for e in self.entries(*CLOSED) if e.since_s < before_s]
        with self._db:
            self._db.executemany("delete from jobs where id = ?", [(id,) for id in old])
            self._db.executemany("delete from transitions where job_id = ?", [(id,) for id in old])
        for id in old:
            self._in_state[self._entries.pop(id).state].discard(id)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _insert(db: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    query = f"insert or replace into jobs ({_COLUMNS}) values (?,?,?,?,?,?,?,?,?)"
    db.executemany(query, [_row(entry) for entry in entries])


def _entry(row: tuple[Any, ...]) -> Entry:
    try:
        id, state, since_s, pinned, failures, nodes, leave, label, why = row
        places = tuple((name, units) for name, units in json.loads(nodes))
        return Entry(int(id), State(state), int(since_s), bool(pinned), int(failures), places, leave, label, why)
    except (ValueError, TypeError) as error:
        raise Damaged(f"job {row[0]}: {error}") from error


def _claims(path: Path) -> str:
    """Which jobs a damaged ledger says that it held, as far as it can be read: words for people, not to be acted on."""
    found: list[str] = []
    try:
        kept = ",".join(f"'{state}'" for state in sorted(KEPT))
        with closing(connect(path, durable=False, read_only=True)) as db:
            for id, label in db.execute(f"select id, label from jobs where state in ({kept})"):
                found.append(str(label or id))
    except sqlite3.Error:
        pass
    if not found:
        return ""
    more = f" and {len(found) - _CLAIMS} more" if len(found) > _CLAIMS else ""
    named = f"it named as held: {', '.join(found[:_CLAIMS])}{more}"
    return f"; {named}; those without the submit plugin's mark look like an administrator's now"


def _row(entry: Entry) -> tuple[Any, ...]:
    return (
        entry.job_id,
        entry.state.value,
        entry.since_s,
        entry.pinned,
        entry.failures,
        json.dumps(entry.nodes),
        entry.leave,
        entry.label,
        entry.why,
    )
