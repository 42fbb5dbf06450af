"""Read the journal: rounds, their results and events, and unscheduled jobs."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cpsched.model import Cluster
from cpsched_bridge.cycle_report import STOPPED_EVENT
from cpsched_bridge.errors import CorruptFile, UnknownRound
from cpsched_bridge.store.corruption_checks import (
    DATE_RANGE_S,
    MAX_NUMBER,
    CorruptFileContent,
    convert_content_errors,
    rows_to_dataclasses,
    verify_checksum,
)
from cpsched_bridge.store.json_deltas import JsonDeltaReader
from cpsched_bridge.store.round_records import RoundRecord, cluster_from_json, round_from_json


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """The summary of one round."""

    number: int
    now_s: int
    at_unix_s: float
    mode: str
    queued: int
    running: int
    starts: int
    path: str


CLEAN_STOP_DETAIL = "in order"
"""Stored detail of `STOPPED_EVENT` if no job remained held against the bridge's settings."""


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """A notable event, such as a failed cycle, a failed start or a mode change."""

    at_unix_s: float
    round: int
    kind: str
    job_id: int | None
    detail: str

    @property
    def is_clean_stop(self) -> bool:
        """Whether the bridge stopped and no job remained held against its settings."""
        return (self.kind, self.detail) == (STOPPED_EVENT, CLEAN_STOP_DETAIL)


BACKOFF_KIND = "backoff"
"""Kind of a job that backs off after a failed start, its own or that of a job in its group."""


@dataclass(frozen=True, slots=True)
class UnscheduledJob:
    """A pending job that the bridge currently does not schedule.

    `kind` is one of these, or the job's state in the ledger: `unmanaged` (left to the cluster's own scheduler),
    `ineligible` (a dependency or a limit applies), `BACKOFF_KIND`, `held` (by its owner or an administrator),
    `free`.
    """

    job_id: int
    kind: str
    reason: str
    label: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class JournalJobRecord:
    """A job that was observed running, with its times and nodes.

    `end_s` is None until the job ends.
    """

    job_id: int
    round: int
    """The round in which this record was last updated."""
    label: str
    user: str
    submit_s: int
    start_s: int
    end_s: int | None
    nodes: str


@dataclass(frozen=True, slots=True)
class _StoredRoundRow:
    """The columns of one round, and of the segment that contains it."""

    segment: int
    mode: str
    at_unix_s: float
    policy: bytes
    cluster: str


@dataclass(slots=True)
class _SegmentPosition:
    """A position in a segment. `series` has decoded all rounds up to `number`."""

    segment: int
    number: int
    series: JsonDeltaReader


class JournalReader:
    """A reader for the journal. Reading rounds in ascending order is fastest."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._places: dict[str, _SegmentPosition] = {}
        self._clusters: dict[str, Cluster] = {}

    @property
    def last_round(self) -> int:
        """Number of the newest round, or 0 if there is none.

        It includes rounds of an earlier file that was moved aside.
        """
        query = """select max(coalesce((select max(round) from rounds), 0),
                              coalesce((select cast(value as integer) from facts where name = 'rounds_before'), 0))"""
        return self._query_round_number(query)

    def last_stored_round(self) -> int:
        """Return the newest round in this file, or 0 if there is none.

        The file may be in another version of the format.
        """
        return self._query_round_number("select coalesce(max(round), 0) from rounds")

    def _query_round_number(self, query: str) -> int:
        with convert_content_errors():
            (found,) = self._db.execute(query).fetchone()
            if not 0 <= found < MAX_NUMBER:
                raise CorruptFileContent(f"{found} is not a round number")
            return int(found)

    def list_rounds(self, limit: int | None = None, with_starts: bool = False) -> list[RoundSummary]:
        """Return the newest `limit` rounds (all if `limit` is None), oldest first."""
        where = "where starts > 0" if with_starts else ""
        bound = "" if limit is None else f"limit {limit:d}"
        columns = "round, now_s, at_unix_s, mode, queued, running, starts, path"
        with convert_content_errors():
            rows = self._db.execute(f"select {columns} from rounds {where} order by round desc {bound}")
            return rows_to_dataclasses(RoundSummary, rows)[::-1]

    def read_round(self, number: int) -> RoundRecord:
        """Return a round. Raise `UnknownRound`, or `CorruptFile` if it is unreadable."""
        try:
            with convert_content_errors():
                return self._read_stored_round(number)
        except CorruptFileContent as error:
            self._places.clear()
            raise CorruptFile(f"round={number}: this part of the journal is damaged: {error}") from error

    def _read_stored_round(self, number: int) -> RoundRecord:
        query = """select segment, mode, at_unix_s, policy, cluster from rounds join segments on first = segment
                   where round = ?"""
        row = self._db.execute(query, (number,)).fetchone() if number < MAX_NUMBER else None
        if row is None:
            raise UnknownRound(self._describe_missing_round(number))
        (place,) = rows_to_dataclasses(_StoredRoundRow, [row])
        return round_from_json(
            number,
            self._read_round_value("rounds", place.segment, number),
            self._read_round_value("explanations", place.segment, number),
            json.loads(verify_checksum(place.policy)),
            self._read_cluster(place.cluster),
            mode=place.mode,
            at_unix_s=place.at_unix_s,
        )

    def _describe_missing_round(self, number: int) -> str:
        first, last = self._db.execute("select min(round), max(round) from rounds").fetchone()
        held = "the journal is empty" if first is None else f"the journal contains rounds {first} to {last}"
        return f"round={number}: must be in the journal; {held}"

    def _read_round_value(self, table: str, segment: int, number: int) -> Any:
        """Return a segment's value for a round, or None if the table has no such value."""
        place = self._places.get(table)
        if place is None or place.segment != segment or place.number > number:
            place = self._places[table] = _SegmentPosition(segment, segment - 1, JsonDeltaReader())
        query = f"select round, data from {table} where round > ? and round <= ? and segment = ? order by round"
        for at, data in self._db.execute(query, (place.number, number, segment)).fetchall():
            place.series.decode_next(verify_checksum(data))
            place.number = at
        return place.series.value if place.number == number else None

    def _read_cluster(self, key: str) -> Cluster:
        if key not in self._clusters:
            (data,) = self._db.execute("select data from clusters where key = ?", (key,)).fetchone()
            self._clusters[key] = cluster_from_json(json.loads(zlib.decompress(verify_checksum(data))))
        return self._clusters[key]

    def find_observed_job(self, text: str) -> JournalJobRecord | None:
        """Return the newest job with this id or label that was observed running, or None."""
        columns = "job_id, round, label, user, submit_s, start_s, end_s, nodes"
        query = f"select {columns} from past where label = ? or job_id = ? order by label = ? desc, round desc limit 1"
        with convert_content_errors():
            rows = self._db.execute(query, (text, int(text) if is_job_id_text(text) else -1, text))
            return next(iter(rows_to_dataclasses(JournalJobRecord, rows)), None)

    def get_job_name(self, job_id: int) -> str:
        """Return the job's label as shown to users, or its id if the journal has no label."""
        query = "select label from aside where job_id = ?1 union all select label from past where job_id = ?1"
        with convert_content_errors():
            labels = [str(label) for (label,) in self._db.execute(query, (job_id,)) if label]
        if labels:
            return labels[0]
        return self.read_round(self.last_round).get_job_name(job_id) if self.list_rounds(1) else str(job_id)

    def find_first_round(self) -> tuple[int, float] | None:
        """Return the number and the Unix time of the oldest round, or None."""
        with convert_content_errors():
            row = self._db.execute("select round, at_unix_s from rounds order by round limit 1").fetchone()
            if row is None:
                return None
            number, at_unix_s = int(row[0]), float(row[1])
            if not DATE_RANGE_S[0] <= at_unix_s <= DATE_RANGE_S[1]:
                raise CorruptFileContent(f"at_unix_s={at_unix_s}")
            return number, at_unix_s

    def list_events(self, job_id: int | None = None, limit: int = 50, kind: str = "") -> list[JournalEvent]:
        """Return the newest `limit` events, oldest first.

        With `job_id` or `kind`, return only events of that job or kind.
        """
        given = {"job_id": job_id, "kind": kind or None}
        args = [value for value in given.values() if value is not None]
        asked = [f"{column} = ?" for column, value in given.items() if value is not None]
        where = f"where {' and '.join(asked)}" if asked else ""
        query = f"select at_unix_s, round, kind, job_id, detail from events {where} order by seq desc limit {limit:d}"
        with convert_content_errors():
            return rows_to_dataclasses(JournalEvent, self._db.execute(query, args))[::-1]

    def find_last_activity(self) -> JournalEvent | None:
        """Return the newest event, or the newest round (as kind `round`) if it is newer.

        Return None if the journal is empty. An event of the newest round is newer than the round itself, because the
        bridge writes its last event later.
        """
        events = self.list_events(limit=1)
        lines = self.list_rounds(limit=1)
        if not lines or (events and events[-1].round >= lines[-1].number):
            return events[-1] if events else None
        return JournalEvent(lines[-1].at_unix_s, lines[-1].number, "round", None, "")

    def compute_used_size_bytes(self) -> int:
        """Return the total size, in bytes, of the pages in use."""
        with convert_content_errors():
            pages, free, size = (
                self._db.execute(f"pragma {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * size)

    def iterate_round_numbers(self) -> Iterator[int]:
        """Return an iterator over the numbers of all rounds, in ascending order."""
        with convert_content_errors():
            return iter([row[0] for row in self._db.execute("select round from rounds order by round")])

    def list_unscheduled_jobs(self, kind: str | None = None) -> list[UnscheduledJob]:
        """Return the jobs that the bridge does not schedule, sorted by id.

        With `kind`, return only jobs of that kind.
        """
        with convert_content_errors():
            rows = self._db.execute("select job_id, kind, reason, label, user from aside order by job_id")
            return [job for job in rows_to_dataclasses(UnscheduledJob, rows) if kind in (None, job.kind)]

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def is_job_id_text(text: str) -> bool:
    """Return whether `text` is a valid job id within the database's range."""
    return text.isascii() and text.isdigit() and len(text) < 19
