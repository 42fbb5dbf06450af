"""Record boosts and preemptions in tables of the state file before sending their commands, so a crash is harmless.

- The bridge may change only recorded boosts, because any other boost belongs to another actor. Removals are not
  recorded.
- A preemption names the jobs that the bridge stops to enable the start of another. It is `open` until its job runs or
  the bridge gives it up. Closed preemptions are kept to enforce the limits.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, get_args

from cpsched_bridge.ports import PreemptionUnderWay, Victim
from cpsched_bridge.store.corruption_checks import CorruptFileContent, convert_content_errors
from cpsched_bridge.store.state_file import Row, StateFile, insert_rows, seal_row

E = TypeVar("E")
MAX_STORED_BOOSTS = 8
"""Number of boosts stored per job, because a cluster may return to an earlier boost after a crash."""
PreemptionState = Literal["open", "started", "ineffective", "dropped"]
"""`ineffective`: the job did not run in time. `dropped`: the preemption became impossible or unnecessary."""


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


@dataclass(frozen=True, slots=True)
class BoostedJob:
    """One job's entry in the boost ledger."""

    points: tuple[int, ...]
    """Boosts that were sent or are about to be sent, newest last."""
    since_s: int
    """Cluster time of the newest boost."""


class BoostLedger:
    """The boost ledger in the state file's table of boosts.

    Raise `sqlite3.Error` or `CorruptFileContent` if the table cannot be read.
    """

    def __init__(self, file: StateFile) -> None:
        self._table = StateTable(file, _BOOST_FORMAT)

    @property
    def by_id(self) -> Mapping[int, BoostedJob]:
        """All entries by id, as a live view of the boost ledger."""
        return self._table.entries

    def list_possible_boosts(self, *ids: int) -> tuple[int, ...]:
        """Return the boosts that the bridge may have set on these ids.

        The newest boost of the first id is last.
        """
        known = [self.by_id[id].points for id in reversed(ids) if id in self.by_id]
        return tuple(value for points in known for value in points)

    def record_intended(self, points: Mapping[int, int], now_s: int) -> None:
        """Record boosts atomically. On `sqlite3.Error`, the boosts must not be sent."""
        entries = {}
        for id, value in points.items():
            before = self.by_id[id].points if id in self.by_id else ()
            values = (*(each for each in before if each != value), value)
            entries[id] = BoostedJob(values[-MAX_STORED_BOOSTS:], now_s)
        self._table.write(entries)

    def prune(self, alive: Iterable[int], before_s: int) -> None:
        """Delete the entries from before `before_s` whose ids are not in `alive`."""
        alive = set(alive)
        self._table.delete([id for id, each in self.by_id.items() if id not in alive and each.since_s < before_s])


def _boosted_job_to_columns(each: BoostedJob) -> tuple[Any, ...]:
    return json.dumps(each.points), each.since_s


def _boosted_job_from_row(_: int, points: str, since_s: int) -> BoostedJob:
    return BoostedJob(tuple(map(int, json.loads(points))), int(since_s))


_BOOST_FORMAT = EntryFormat("boosts", _boosted_job_to_columns, _boosted_job_from_row)


@dataclass(frozen=True, slots=True)
class PreemptionEntry:
    """One preemption. `user` owns the job that will start.

    `end_s` is the cluster time at which the preemption was closed, or 0 while it is open.
    """

    number: int
    user: str
    since_s: int
    what: PreemptionUnderWay
    state: PreemptionState = "open"
    end_s: int = 0


class PreemptionLedger:
    """The preemption ledger in the state file's table of preemptions.

    Raise `sqlite3.Error` or `CorruptFileContent` if the table cannot be read.
    """

    def __init__(self, file: StateFile) -> None:
        self._table = StateTable(file, _PREEMPTION_FORMAT)
        self._open = {each.what.job_id: each for each in self.entries if each.state == "open"}

    @property
    def entries(self) -> tuple[PreemptionEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._table.entries.values())

    @property
    def open_by_job_id(self) -> Mapping[int, PreemptionEntry]:
        """The open preemptions by job id."""
        return dict(self._open)

    def count_by_user_since(self, from_s: int) -> Counter[str]:
        """Return the number of preemptions decided since `from_s`, by user."""
        return Counter(each.user for each in self.entries if each.since_s >= from_s)

    def count_victim_choices_by_job(self) -> Counter[int]:
        """Return how often each job was chosen as a victim, by job id."""
        return Counter(victim.job_id for each in self.entries for victim in each.what.victims)

    def find_last_end_s_by_job(self, *states: PreemptionState) -> dict[int, int]:
        """Return when a preemption for each job last ended in one of `states`, by job id."""
        found = dict[int, int]()
        for each in self.entries:
            if each.state in states:
                found[each.what.job_id] = max(each.end_s, found.get(each.what.job_id, each.end_s))
        return found

    def record_intended(self, wanted: Sequence[tuple[PreemptionUnderWay, str]], now_s: int) -> None:
        """Record preemptions and their users atomically, before any victim is stopped.

        If this raises `sqlite3.Error`, no victim may be stopped.
        """
        first = max(self._table.entries, default=0) + 1
        self._write([PreemptionEntry(first + at, user, now_s, what) for at, (what, user) in enumerate(wanted)])

    def close_entry(self, entry: PreemptionEntry, state: PreemptionState, now_s: int) -> None:
        """Record the end of an open preemption."""
        self._write([replace(entry, state=state, end_s=now_s)])

    def prune(self, before_s: int) -> None:
        """Delete the closed preemptions that ended before `before_s`."""
        self._table.delete([each.number for each in self.entries if each.state != "open" and each.end_s < before_s])

    def _write(self, entries: Iterable[PreemptionEntry]) -> None:
        written = {each.number: each for each in entries}
        self._table.write(written)
        for each in written.values():
            if each.state == "open":
                self._open[each.what.job_id] = each
            else:
                self._open.pop(each.what.job_id, None)


def _preemption_to_columns(each: PreemptionEntry) -> tuple[Any, ...]:
    victims = [(victim.job_id, victim.start_s, victim.mode) for victim in each.what.victims]
    return (
        each.what.job_id, json.dumps(each.user), each.since_s, each.state, each.end_s,
        json.dumps(each.what.nodes), json.dumps(victims),
    )  # fmt: skip


def _preemption_from_row(
    number: int, job_id: int, user: str, since_s: int, state: PreemptionState, end_s: int, nodes: str, victims: str
) -> PreemptionEntry:
    if state not in get_args(PreemptionState):
        raise CorruptFileContent(f"unknown state {state!r:.20}")
    what = PreemptionUnderWay(
        job_id,
        tuple((str(name), int(units)) for name, units in json.loads(nodes)),
        tuple(Victim(int(id), int(start_s), mode) for id, start_s, mode in json.loads(victims)),
    )
    return PreemptionEntry(number, str(json.loads(user)), since_s, what, state, end_s)


_PREEMPTION_FORMAT = EntryFormat("preemptions", _preemption_to_columns, _preemption_from_row)
