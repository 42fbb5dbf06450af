"""The journal: every round with what it depended on, what was decided and what came of it, enough to decide it again.

SQLite (WAL), written by the bridge alone, read by anyone. Its size is bounded: the oldest rounds go first.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cpsched.model import Cluster, Job, Snapshot
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.report import CycleReport, Happening
from cpsched_bridge.store.journal_reader import Aside, JournalReader
from cpsched_bridge.store.ledger import connect
from cpsched_bridge.store.rounds import (
    cluster_to_json,
    failure_to_json,
    job_to_json,
    key_of,
    pack,
    state_to_json,
    unpack,
)

_SCHEMA = """
create table if not exists things (key blob primary key, data blob not null) without rowid;
create table if not exists jobs (key text primary key, job_id integer not null, data text not null) without rowid;
create table if not exists rounds (
  round integer primary key, now_s integer not null, at_unix_s real not null, mode text not null,
  policy blob not null, cluster blob not null, state blob not null, decision blob not null, memory blob,
  replayable integer not null, queued integer not null, running integer not null, starts integer not null,
  path text not null, seconds text not null);
create table if not exists outcomes (
  round integer not null, kind text not null, job_id integer not null, result text not null, detail text not null);
create index if not exists outcomes_by_round on outcomes (round);
create table if not exists events (
  seq integer primary key, at_unix_s real not null, round integer not null, kind text not null, job_id integer,
  detail text not null);
create index if not exists events_by_job on events (job_id);
create table if not exists aside (
  job_id integer primary key, kind text not null, reason text not null, label text not null, user text not null);
"""


class Journal(JournalReader):
    """The rounds on disk, to be read and written.

    `max_mib` bounds the size of the data: when they are larger, the oldest rounds are dropped. A journal that is opened
    `read_only` may be read while a bridge writes it.
    """

    def __init__(self, path: Path | str, max_mib: float = 512.0, read_only: bool = False) -> None:
        super().__init__(connect(path, durable=False, read_only=read_only))
        if not read_only:
            self._db.execute("pragma auto_vacuum=incremental")
            self._db.executescript(_SCHEMA)
        self._max_bytes = int(max_mib * 2**20)
        self._keys: dict[int, tuple[Job, str]] = {}
        self._cluster: tuple[Cluster, bytes] | None = None
        self._asides: frozenset[Aside] | None = None

    def write_round(self, report: CycleReport, policy: PolicySpec) -> None:
        """Write the round of a cycle that got as far as a snapshot; a failed decision by the name of its failure."""
        snapshot, memory = report.snapshot, report.packed_memory
        assert snapshot is not None
        decision = report.packed_decision or pack(failure_to_json(report.policy_failure))
        path = report.policy_failure if report.decision is None else report.decision.effort.path
        try:
            with self._db:
                self._insert_round(
                    report.number,
                    snapshot.now_s,
                    report.at_unix_s,
                    report.mode,
                    self._store(pack(asdict(policy))),
                    self._cluster_key(snapshot.cluster),
                    self._store(pack(state_to_json(snapshot, self._job_keys(snapshot)))),
                    self._store(decision),
                    None if memory is None else self._store(memory),
                    report.replayable,
                    len(snapshot.queue),
                    len(snapshot.running),
                    len(report.starts),
                    path,
                    json.dumps(report.seconds),
                )
                self._db.executemany(
                    "insert into outcomes values (?,?,?,?,?)",
                    [(report.number, kind, o.job_id, o.result, o.detail) for kind, o in report.outcomes],
                )
        except sqlite3.Error:
            self._keys, self._cluster = {}, None  # what was written with this round is gone with it
            raise
        if report.number % 64 == 0:
            self.prune()

    def _insert_round(self, *row: Any) -> None:
        self._db.execute(f"insert or replace into rounds values ({','.join('?' * len(row))})", row)

    def write_events(self, at_unix_s: float, number: int, happenings: Iterable[Happening]) -> None:
        """Write what happened in a round, decided or not."""
        rows = [(at_unix_s, number, h.kind, h.job_id, _storable(h.detail)) for h in happenings]
        if rows:
            with self._db:
                query = "insert into events (at_unix_s, round, kind, job_id, detail) values (?,?,?,?,?)"
                self._db.executemany(query, rows)

    def write_asides(self, asides: Iterable[Aside]) -> None:
        """Replace the list of jobs that are not decided on; costs nothing while it stays the same."""
        now = frozenset(asides)
        if now == self._asides:
            return
        with self._db:
            self._db.execute("delete from aside")
            rows = [(a.job_id, a.kind, *map(_storable, (a.reason, a.label, a.user))) for a in now]
            self._db.executemany("insert or replace into aside values (?,?,?,?,?)", rows)
        self._asides = now

    def _store(self, data: bytes) -> bytes:
        key = key_of(data)
        self._db.execute("insert or ignore into things values (?,?)", (key, data))
        return key

    def _cluster_key(self, cluster: Cluster) -> bytes:
        if self._cluster is None or self._cluster[0] is not cluster:
            self._cluster = (cluster, self._store(pack(cluster_to_json(cluster))))
        return self._cluster[1]

    def _job_keys(self, snapshot: Snapshot) -> dict[int, str]:
        """Content keys of the snapshot's jobs; those not seen yet are written."""
        slots = (*snapshot.queue.tolist(), *snapshot.running.tolist())
        jobs = [snapshot.table.jobs[slot] for slot in slots]
        known: dict[int, tuple[Job, str]] = {}
        fresh: list[tuple[str, int, str]] = []
        for job in jobs:
            entry = self._keys.get(job.id)
            if entry is None or (entry[0] is not job and entry[0] != job):
                text = json.dumps(job_to_json(job), separators=(",", ":"))
                entry = (job, key_of(text.encode()).hex())
                fresh.append((entry[1], job.id, text))
            known[job.id] = entry
        self._db.executemany("insert or ignore into jobs values (?,?,?)", fresh)
        self._keys = known
        return {id: key for id, (_, key) in known.items()}

    def size_bytes(self) -> int:
        """Bytes of the pages in use."""
        pages, free, size = (
            self._db.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def prune(self) -> int:
        """Drop the oldest rounds until the data fit into the bound; the number dropped."""
        dropped = 0
        while self.size_bytes() > self._max_bytes:
            count = self._db.execute("select count(*) from rounds").fetchone()[0]
            if count < 2:
                break
            dropped += self._drop_oldest(max(1, count // 8))
        if dropped:
            self._db.execute("pragma incremental_vacuum")
        return dropped

    def _drop_oldest(self, count: int) -> int:
        with self._db:
            first_kept = self._db.execute(
                "select round from rounds order by round limit 1 offset ?", (count,)
            ).fetchone()[0]
            for table in ("rounds", "outcomes", "events"):
                self._db.execute(f"delete from {table} where round < ?", (first_kept,))
            used = " union ".join(
                f"select {column} from rounds where {column} is not null"
                for column in ("policy", "cluster", "state", "decision", "memory")
            )
            self._db.execute(f"delete from things where key not in ({used})")
            self._forget_jobs()
        self._cluster = None
        return int(count)

    def _forget_jobs(self) -> None:
        """Drop the jobs that no recorded round names any more."""
        named: set[str] = set()
        for (data,) in self._db.execute("select data from things where key in (select distinct state from rounds)"):
            state = unpack(data)
            named.update(state["queue"], (entry[0] for entry in state["running"]))
        stored = [key for (key,) in self._db.execute("select key from jobs")]
        self._db.executemany("delete from jobs where key = ?", [(key,) for key in stored if key not in named])
        self._keys = {id: (job, key) for id, (job, key) in self._keys.items() if key in named}


def _storable(words: str) -> str:
    """`words`, with what is no character (half a surrogate pair, from a user's bytes) escaped."""
    return words.encode("utf-8", "backslashreplace").decode()
