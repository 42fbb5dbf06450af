"""Reads the journal: rounds, their outcomes and events, and the jobs that are not decided on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cpsched.model import Effort, Job, RunningJob, Wait
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.errors import UnknownRound
from cpsched_bridge.ports import Outcome
from cpsched_bridge.store.rounds import (
    RoundRecord,
    cluster_from_json,
    job_from_json,
    placement_from_json,
    unpack,
)


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
    """A pending job that the bridge does not decide on at present.

    `kind` is `unsupported` (left to the cluster's own scheduler), `ineligible` (a dependency, a limit), `held` (by its
    owner or an administrator), `free`, or the job's state in the ledger.
    """

    job_id: int
    kind: str
    reason: str
    label: str = ""
    user: str = ""


class JournalReader:
    """What the journal in an open database holds."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._read_jobs: dict[str, Job] = {}

    @property
    def last_round(self) -> int:
        """Number of the newest round, 0 if there is none."""
        return int(self._db.execute("select coalesce(max(round), 0) from rounds").fetchone()[0])

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
            failure=decision.get("failure", ""),
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

    def asides(self, kind: str | None = None) -> list[Aside]:
        """The jobs that are not decided on, by id; of one kind if given."""
        rows = self._db.execute("select job_id, kind, reason, label, user from aside order by job_id")
        return [aside for aside in (Aside(*row) for row in rows) if kind in (None, aside.kind)]

    def close(self) -> None:
        """Close the file."""
        self._db.close()
