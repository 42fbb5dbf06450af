"""The journal: every round with what it depended on, what was decided and what came of it, enough to decide it again.

SQLite (WAL), written by the bridge alone, read by anyone. Its size is bounded: the oldest rounds go first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.model import Cluster, Decision, Effort, Job, RunningJob, Snapshot, Wait
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.errors import UnknownRound
from cpsched_bridge.ports import Outcome
from cpsched_bridge.report import Happening, Phase
from cpsched_bridge.store.ledger import connect
from cpsched_bridge.store.rounds import (
    RoundRecord,
    cluster_from_json,
    cluster_to_json,
    decision_to_json,
    job_from_json,
    job_to_json,
    key_of,
    pack,
    placement_from_json,
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


@dataclass(frozen=True, slots=True)
class RoundLine:
    """One round in a list."""

    number: int
    now_s: int
    at_unix_s: float
    mode: str
    queued: int
    running: int
    starts: int
    path: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling: a failed cycle, a start that did not work out, a change of mode."""

    at_unix_s: float
    round: int
    kind: str
    job_id: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Aside:
    """A pending job that the bridge does not decide on at present; `kind`: unsupported, ineligible, held."""

    job_id: int
    kind: str
    reason: str
    label: str = ""
    user: str = ""


class Journal:
    """The rounds on disk. `max_mib` bounds the size of the data; what is over is pruned from the oldest round on."""

    def __init__(self, path: Path | str, max_mib: float = 512.0, read_only: bool = False) -> None:
        self._db = connect(path, durable=False, read_only=read_only)
        if not read_only:
            self._db.execute("pragma auto_vacuum=incremental")
            self._db.executescript(_SCHEMA)
        self._max_bytes = int(max_mib * 2**20)
        self._keys: dict[int, tuple[Job, str]] = {}
        self._cluster: tuple[Cluster, bytes] | None = None
        self._read_jobs: dict[str, Job] = {}
        self._last = self._newest()
        self._asides: frozenset[Aside] | None = None

    def _newest(self) -> int:
        return int(self._db.execute("select coalesce(max(round), 0) from rounds").fetchone()[0])

    @property
    def last_round(self) -> int:
        """Number of the newest round, 0 if there is none."""
        return self._last

    def write_round(
        self,
        number: int,
        snapshot: Snapshot,
        decision: Decision,
        policy: PolicySpec,
        memory: Any,
        replayable: bool,
        mode: str,
        at_unix_s: float,
        outcomes: Iterable[tuple[str, Outcome]],
        seconds: Mapping[Phase, float],
    ) -> None:
        """Write one round; `outcomes` are (kind of command, outcome), `seconds` the time of each phase."""
        with self._db:
            row = (
                number,
                snapshot.now_s,
                at_unix_s,
                mode,
                self._store(pack(asdict(policy))),
                self._cluster_key(snapshot.cluster),
                self._store(pack(state_to_json(snapshot, self._job_keys(snapshot)))),
                self._store(pack(decision_to_json(decision, snapshot))),
                None if memory is None else self._store(pack(memory)),
                replayable,
                len(snapshot.queue),
                len(snapshot.running),
                len(decision.starts),
                decision.effort.path,
                json.dumps(dict(seconds)),
            )
            self._db.execute(f"insert or replace into rounds values ({','.join('?' * len(row))})", row)
            self._db.executemany(
                "insert into outcomes values (?,?,?,?,?)",
                [(number, kind, o.job_id, o.result, o.detail) for kind, o in outcomes],
            )
        self._last = number
        if number % 64 == 0:
            self.prune()

    def write_events(self, at_unix_s: float, number: int, happenings: Iterable[Happening]) -> None:
        """Write what happened in a round, decided or not."""
        rows = [(at_unix_s, number, h.kind, h.job_id, h.detail) for h in happenings]
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
            rows = [(a.job_id, a.kind, a.reason, a.label, a.user) for a in now]
            self._db.executemany("insert or replace into aside values (?,?,?,?,?)", rows)
        self._asides = now

    def asides(self, kind: str | None = None) -> list[Aside]:
        """The jobs that are not decided on, by id; of one kind if given."""
        rows = self._db.execute("select job_id, kind, reason, label, user from aside order by job_id")
        return [aside for aside in (Aside(*row) for row in rows) if kind in (None, aside.kind)]

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

    def lines(self, limit: int | None = None, with_starts: bool = False) -> list[RoundLine]:
        """The newest rounds, oldest first; all of them if `limit` is None."""
        where = "where starts > 0" if with_starts else ""
        bound = "" if limit is None else f"limit {limit:d}"
        columns = "round, now_s, at_unix_s, mode, queued, running, starts, path"
        rows = self._db.execute(f"select {columns} from rounds {where} order by round desc {bound}")
        return [RoundLine(*row) for row in rows][::-1]

    def read(self, number: int) -> RoundRecord:
        """A round; raises `UnknownRound`."""
        query = """select now_s, at_unix_s, mode, policy, cluster, state, decision, memory, replayable
                   from rounds where round = ?"""
        row = self._db.execute(query, (number,)).fetchone()
        if row is None:
            raise UnknownRound(self._no_such_round(number))
        now_s, at_unix_s, mode, *keys, replayable = row
        policy, cluster, state, decision, memory = map(self._thing, keys)
        jobs = self._jobs_of([*state["queue"], *(entry[0] for entry in state["running"])])
        return RoundRecord(
            number=number,
            now_s=now_s,
            policy=PolicySpec(**policy),
            cluster=cluster_from_json(cluster),
            free=np.array(state["free"], dtype=np.int64),
            queue=tuple(jobs[key] for key in state["queue"]),
            running=tuple(RunningJob(jobs[k], start_s, placement_from_json(p)) for k, start_s, p in state["running"]),
            estimates={int(id): seconds for id, seconds in state["estimates"].items()},
            starts={int(id): placement_from_json(p) for id, p in decision["starts"].items()},
            plan={int(id): start_s for id, start_s in decision["plan"].items()},
            waits={int(id): Wait(reason, tuple(behind)) for id, (reason, behind) in decision["waits"].items()},
            effort=Effort(**decision["effort"]),
            memory=memory,
            replayable=bool(replayable),
            mode=mode,
            at_unix_s=at_unix_s,
        )

    def _no_such_round(self, number: int) -> str:
        first, last = self._db.execute("select min(round), max(round) from rounds").fetchone()
        held = "it is empty" if first is None else f"it holds rounds {first} to {last}"
        return f"round={number}: not in the journal; {held}"

    def _thing(self, key: bytes | None) -> Any:
        if key is None:
            return None
        return unpack(self._db.execute("select data from things where key = ?", (key,)).fetchone()[0])

    def _jobs_of(self, keys: list[str]) -> dict[str, Job]:
        """Jobs by content key; those of the round read before are kept, as most are the same."""
        found = {}
        for key in keys:
            job = self._read_jobs.get(key)
            if job is None:
                (text,) = self._db.execute("select data from jobs where key = ?", (key,)).fetchone()
                job = job_from_json(json.loads(text))
            found[key] = job
        self._read_jobs = found
        return found

    def outcomes(self, number: int) -> list[tuple[str, Outcome]]:
        """(kind of command, outcome) of a round."""
        query = "select kind, job_id, result, detail from outcomes where round = ? order by rowid"
        return [(kind, Outcome(id, result, detail)) for kind, id, result, detail in self._db.execute(query, (number,))]

    def seconds(self, number: int) -> dict[str, float]:
        """Time of each phase of a round."""
        row = self._db.execute("select seconds from rounds where round = ?", (number,)).fetchone()
        return dict(json.loads(row[0])) if row else {}

    def events(self, job_id: int | None = None, limit: int = 50) -> list[Event]:
        """The newest events, oldest first; of one job if given."""
        where, args = ("where job_id = ?", (job_id,)) if job_id is not None else ("", ())
        query = f"select at_unix_s, round, kind, job_id, detail from events {where} order by seq desc limit {limit:d}"
        return [Event(*row) for row in self._db.execute(query, args)][::-1]

    def numbers(self) -> Iterator[int]:
        """All round numbers, ascending."""
        return iter([row[0] for row in self._db.execute("select round from rounds order by round")])

    def close(self) -> None:
        """Close the file."""
        self._db.close()
