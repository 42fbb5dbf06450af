"""Write the journal: each round's inputs, decision and results.

A recorded decision can be repeated. The journal is an SQLite file (WAL) that only the bridge writes and any process may
read. Rounds are stored in segments. The first round of a segment is stored in full, and each other round as a change
(see `json_deltas`). The oldest segments are deleted when the journal is too large or the segments are too old.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from cpsched.model import Cluster, Snapshot
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.cycle_report import STOPPED_EVENT, CycleEvent, CycleReport
from cpsched_bridge.errors import CorruptFile
from cpsched_bridge.store.corruption_checks import (
    CorruptFileContent,
    add_checksum,
    convert_content_errors,
    is_corruption,
)
from cpsched_bridge.store.journal_reader import CLEAN_STOP_DETAIL, JournalReader, UnscheduledJob
from cpsched_bridge.store.json_deltas import JsonDeltaWriter, encode_json
from cpsched_bridge.store.round_records import (
    CachingJobRowEncoder,
    cluster_to_json,
    failed_decision_to_json,
    hash_content,
    round_to_json,
)
from cpsched_bridge.store.sqlite_files import (
    connect_sqlite,
    identify_file,
    move_aside,
    replace_surrogates,
    was_file_replaced,
)

FORMAT = 3
"""Version of the tables, stored in `pragma user_version`. Lower versions were never released."""

SCHEMA = """
create table if not exists clusters (key text primary key, data blob not null) without rowid;
create table if not exists segments (
  first integer primary key, version text not null, policy blob not null, cluster text not null);
create table if not exists rounds (
  round integer primary key, segment integer not null, at_unix_s real not null, now_s integer not null,
  mode text not null, queued integer not null, running integer not null, starts integer not null, path text not null,
  data blob not null);
create table if not exists explanations (round integer primary key, segment integer not null, data blob not null);
create table if not exists events (
  seq integer primary key, at_unix_s real not null, round integer not null, kind text not null, job_id integer,
  detail text not null);
create index if not exists events_by_job on events (job_id);
create table if not exists aside (
  job_id integer primary key, kind text not null, reason text not null, label text not null, user text not null);
create table if not exists past (
  job_id integer primary key, round integer not null, label text not null, user text not null,
  submit_s integer not null, start_s integer not null, end_s integer, nodes text not null);
create index if not exists past_by_label on past (label) where label != '';
create table if not exists facts (name text primary key, value text not null) without rowid;
"""

MAX_SEGMENT_ROUNDS = 512
"""Maximum number of rounds per segment. 512 changes are about as large as one full round."""

MIN_EXPLAINED_ROUNDS = 600
"""Minimum number of newest rounds with stored explanations. A replay recomputes older explanations."""

PRUNE_INTERVAL_ROUNDS = 64
"""Number of rounds between checks of the journal's age and size."""
_COUNT_TABLES = "select count(*) from sqlite_master where type = 'table'"


class Journal(JournalReader):
    """The journal on disk, for reading and writing.

    `max_mib` limits the size of the data and `keep_days` its age. The oldest rounds are deleted first. A `read_only`
    journal may be read while a bridge writes to the file.
    """

    def __init__(
        self, path: Path | str, max_mib: float = 2048.0, read_only: bool = False, keep_days: float = 30.0
    ) -> None:
        self._path = path
        self.unreported_events: list[CycleEvent] = []
        """Events about the file that have not been reported yet."""
        if read_only:
            super().__init__(connect_sqlite(path, durable=False, read_only=True))
            self._require_schema_version()
        else:
            super().__init__(self._open_or_create())
        self._max_bytes = int(max_mib * 2**20)
        self._keep_s = keep_days * 86400
        self._last, self._lost = 0 if read_only else self.last_round, False
        self._file = identify_file(path)
        self._unscheduled: frozenset[UnscheduledJob] | None = None
        """The unscheduled jobs as last written, or None if they are unknown."""
        self._labels: dict[int, str] = {}
        self._end_segment()

    def _open_or_create(self) -> sqlite3.Connection:
        """Return a connection. Move the file aside if it is damaged or has another format."""
        before, why = 0, "damaged"
        try:
            with convert_content_errors():
                db = self._connect()
                try:
                    found = _read_schema_version(db)
                    if found in (None, FORMAT):
                        db.executescript(SCHEMA)
                        db.execute(f"pragma user_version={FORMAT}")
                        JournalReader(db).last_round  # noqa: B018  reads the file to detect damage
                        return db
                    before = JournalReader(db).last_stored_round()
                    why, words = (
                        f"format-{found}",
                        f"has format {found}, but this version of cpsched uses format {FORMAT}",
                    )
                except BaseException:
                    db.close()
                    raise
                db.close()
        except CorruptFileContent as error:
            words = str(error)
        return self._start_new_file(why, words, before)

    def _start_new_file(self, why: str, text: object, before: int, again: bool = False) -> sqlite3.Connection:
        """Move the old file aside, create a new file, and return a connection to it.

        `before` is the last recorded round. `again` means that an earlier attempt failed and was reported.
        """
        if aside := move_aside(Path(self._path), why):
            kind = "journal_damaged" if why == "damaged" else "journal_replaced"
            self.unreported_events.append(
                CycleEvent(kind, f"{self._path}: {text}; moved to {aside.name}, started a new file")
            )
        elif not again:
            self.unreported_events.append(CycleEvent("journal_gone", f"{self._path}: {text}; started a new file"))
        db = self._connect()
        try:
            db.executescript(SCHEMA)
            db.execute(f"pragma user_version={FORMAT}")
            with db:
                db.execute("insert or replace into facts values ('rounds_before', ?)", (str(before),))
        except BaseException:
            db.close()
            raise
        return db

    def _connect(self) -> sqlite3.Connection:
        return connect_sqlite(self._path, durable=False, auto_vacuum=True)

    def _require_schema_version(self) -> None:
        try:
            with convert_content_errors():
                found = _read_schema_version(self._db)
                if found != FORMAT:
                    rule = "when a bridge of this version starts, it moves the file aside"
                    raise CorruptFile(f"{self._path}: format {found}, not {FORMAT}: {rule}")
        except BaseException:
            self.close()
            raise

    def _write_in_transaction(self, work: Callable[[], object]) -> None:
        """Run `work` in one write transaction, in a new file if the file is unusable."""
        if self._lost or was_file_replaced(self._path, self._file):
            self._continue_in_new_file("was deleted")
        try:
            with self._db:
                work()
        except BaseException as error:
            self._end_segment()  # the next round has no earlier round to differ from
            self._unscheduled = None
            if not is_corruption(error):
                raise
            self._continue_in_new_file(error)
            with self._db:
                work()

    def _continue_in_new_file(self, why: object) -> None:
        """Switch to a new file. If it cannot be created, the next write tries again."""
        self._end_segment()
        self._unscheduled = None
        self._db.close()
        again, self._lost = self._lost, True
        self._db = self._start_new_file("damaged", why, self._last, again)
        self._lost, self._file = False, identify_file(self._path)

    def _end_segment(self) -> None:
        """Make the next round start a new segment."""
        self._segment: int | None = None
        self._rounds_left = self._bytes_left = 0
        self._jobs = CachingJobRowEncoder()
        self._happened, self._explained = JsonDeltaWriter(), JsonDeltaWriter()
        self._policy: PolicySpec | None = None
        self._cluster: Cluster | None = None
        self._cluster_key = ""

    def _may_write_delta(self, cluster: Cluster, policy: PolicySpec) -> bool:
        """Return whether the next round may be written as a change."""
        if self._rounds_left <= 0 or self._bytes_left <= 0 or policy != self._policy:
            return False
        if cluster is not self._cluster:
            if hash_content(encode_json(cluster_to_json(cluster))) != self._cluster_key:
                return False
            self._cluster = cluster
        return True

    # ------------------------------------------------------------------------------------------------- writing

    def write_round(self, report: CycleReport, policy: PolicySpec) -> None:
        """Write a round that has a snapshot, with its decision or the failure's name."""
        snapshot = report.decided.snapshot
        assert snapshot is not None
        self._update_job_labels(report, snapshot)

        def write() -> None:
            if not self._may_write_delta(snapshot.cluster, policy):
                self._begin_segment(report.number, snapshot.cluster, policy)
            self._insert_round(report, snapshot)
            self._insert_observed_jobs(report, snapshot)

        self._write_in_transaction(write)
        self._last = report.number
        if report.number % PRUNE_INTERVAL_ROUNDS == 0:
            self.prune(report.at_unix_s)

    def _begin_segment(self, number: int, cluster: Cluster, policy: PolicySpec) -> None:
        self._end_segment()
        text = encode_json(cluster_to_json(cluster))
        key = hash_content(text)
        self._db.execute("insert or ignore into clusters values (?,?)", (key, add_checksum(zlib.compress(text))))
        words = json.dumps(asdict(policy), sort_keys=True).encode()
        row = (number, version("cpsched"), add_checksum(words), key)
        self._db.execute("insert or replace into segments values (?,?,?,?)", row)
        self._db.execute(
            "delete from explanations where segment < (select max(segment) from rounds where round <= ?)",
            (number - MIN_EXPLAINED_ROUNDS,),
        )
        self._segment, self._policy, self._cluster, self._cluster_key = number, policy, cluster, key
        self._rounds_left, self._bytes_left = MAX_SEGMENT_ROUNDS, self._max_bytes // 16

    def _insert_round(self, report: CycleReport, snapshot: Snapshot) -> None:
        decided = report.decided
        data = add_checksum(
            self._happened.encode_next(round_to_json(report, self._jobs.encode_rows(snapshot), self._labels))
        )
        explained = add_checksum(
            self._explained.encode_next((decided.recorded or failed_decision_to_json(""))["explained"])
        )
        path = decided.policy_failure if decided.decision is None else decided.decision.effort.path
        row = (report.number, self._segment, report.at_unix_s, snapshot.now_s, report.role.mode)
        counts = (len(snapshot.queue), len(snapshot.running), len(decided.starts))
        self._db.execute("insert or replace into rounds values (?,?,?,?,?,?,?,?,?,?)", (*row, *counts, path, data))
        self._db.execute(
            "insert or replace into explanations values (?,?,?)", (report.number, self._segment, explained)
        )
        self._rounds_left -= 1
        self._bytes_left -= len(data) + len(explained)

    def _update_job_labels(self, report: CycleReport, snapshot: Snapshot) -> None:
        """Store the labels of this round's jobs in memory, including jobs that have ended."""
        named = dict(self._labels)
        if report.observation is not None:
            named.update(report.observation.map_labels_by_job_id())
        if named:
            here = [snapshot.table.jobs[slot].id for slot in _iterate_queued_and_running_slots(snapshot)]
            here += [ended.job.id for ended in report.changes.ended]
            self._labels = {id: named[id] for id in here if id in named and named[id] != str(id)}

    def _insert_observed_jobs(self, report: CycleReport, snapshot: Snapshot) -> None:
        """Record the jobs first observed as running or ended, with nodes and times."""
        if not (report.changes.started or report.changes.ended):
            return
        table = snapshot.table
        slots = {table.jobs[slot].id: slot for slot in snapshot.running.tolist()}
        ends = {ended.job.id: ended.end_s for ended in report.changes.ended}
        begun = [*report.changes.started, *((ended.job, ended.start_s) for ended in report.changes.ended)]
        self._db.executemany(
            """insert into past values (?,?,?,?,?,?,?,?) on conflict (job_id) do update set
               round = excluded.round, start_s = excluded.start_s, end_s = excluded.end_s,
               label = iif(excluded.label = '', label, excluded.label),
               nodes = iif(excluded.nodes = '', nodes, excluded.nodes)""",
            [
                (
                    job.id,
                    report.number,
                    replace_surrogates(self._labels.get(job.id, "")),
                    replace_surrogates(job.user),
                    job.submit_s,
                    start_s,
                    ends.get(job.id),
                    _format_nodes(snapshot, slots[job.id]) if job.id in slots else "",
                )
                for job, start_s in begun
            ],
        )

    def write_events(self, at_unix_s: float, number: int, bridge_events: Iterable[CycleEvent]) -> None:
        """Write the events of a round, with or without a decision."""
        rows = [(at_unix_s, number, h.kind, h.job_id, replace_surrogates(h.detail)) for h in bridge_events]
        query = "insert into events (at_unix_s, round, kind, job_id, detail) values (?,?,?,?,?)"
        if rows:
            self._write_in_transaction(lambda: self._db.executemany(query, rows))

    def write_stop_event(self, at_unix_s: float, number: int, problems: Sequence[str]) -> None:
        """Write the event for the bridge's stop, with the problems that occurred."""
        self.write_events(at_unix_s, number, [CycleEvent(STOPPED_EVENT, "; ".join(problems) or CLEAN_STOP_DETAIL)])

    def write_unscheduled_jobs(self, jobs: Iterable[UnscheduledJob]) -> None:
        """Write the changes to the list of jobs that the bridge does not schedule."""
        now = frozenset(jobs)
        if now == self._unscheduled:
            return

        def write() -> None:
            before = self._unscheduled or frozenset()
            if self._unscheduled is None:
                self._db.execute("delete from aside")
            self._db.executemany("delete from aside where job_id = ?", [(job.job_id,) for job in before - now])
            rows = [(j.job_id, j.kind, *map(replace_surrogates, (j.reason, j.label, j.user))) for j in now - before]
            self._db.executemany("insert or replace into aside values (?,?,?,?,?)", rows)

        self._write_in_transaction(write)
        self._unscheduled = now

    # ------------------------------------------------------------------------------------------------- pruning

    def prune(self, now_unix_s: float) -> int:
        """Delete the oldest segments until the data meets the limits.

        Return the number of deleted rounds.
        """
        try:
            return self._prune_segments(now_unix_s)
        except (sqlite3.Error, ValueError) as error:
            if not is_corruption(error):
                raise
            self._continue_in_new_file(error)
            return 0

    def _prune_segments(self, now_unix_s: float) -> int:
        dropped = self._delete_segments_before(self._find_first_kept_round(now_unix_s))
        while self.compute_used_size_bytes() > self._max_bytes:
            firsts = [row[0] for row in self._db.execute("select first from segments order by first limit 2")]
            if len(firsts) < 2:
                break
            dropped += self._delete_segments_before(firsts[1])
        if dropped:
            self._db.executescript("pragma incremental_vacuum")  # `execute` would free only one page
        return dropped

    def _find_first_kept_round(self, now_unix_s: float) -> int:
        """Return the first round of the oldest segment to keep, or 0 to keep all.

        This is the segment with the oldest round within the age limit.
        """
        query = """select segment from rounds where round = (select min(round) from rounds where at_unix_s >= ?)"""
        row = self._db.execute(query, (now_unix_s - self._keep_s,)).fetchone()
        return 0 if row is None else int(row[0])

    def _delete_segments_before(self, first_kept: int) -> int:
        with self._db:
            if not self._db.execute("delete from segments where first < ?", (first_kept,)).rowcount:
                return 0  # avoids a scan of the tables
            dropped = self._db.execute("delete from rounds where round < ?", (first_kept,)).rowcount
            for table in ("explanations", "events", "past"):
                self._db.execute(f"delete from {table} where round < ?", (first_kept,))
            self._db.execute("delete from clusters where key not in (select cluster from segments)")
        return int(dropped)


def _read_schema_version(db: sqlite3.Connection) -> int | None:
    """Return the version of a journal's tables, or None if the file has no tables."""
    version, tables = (db.execute(query).fetchone()[0] for query in ("pragma user_version", _COUNT_TABLES))
    return int(version) if version or tables else None


def _iterate_queued_and_running_slots(snapshot: Snapshot) -> Iterable[int]:
    yield from snapshot.queue.tolist()
    yield from snapshot.running.tolist()


def _format_nodes(snapshot: Snapshot, slot: int) -> str:
    """Return a running job's nodes as text, for example `n1,n2*4`.

    The number of units follows a name if it exceeds 1.
    """
    names = snapshot.cluster.node_names
    return replace_surrogates(",".join(names[n] + (f"*{u}" if u > 1 else "") for n, u in snapshot.placement_of(slot)))
