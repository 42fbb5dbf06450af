"""Read the accounting log of PBS (OpenPBS, PBS Professional, Torque): one file of `server_priv/accounting`, or all.

| record | meaning |
|---|---|
| `E` (ended), `R` (requeued while it ran) | one job: a run, from `start` to `end` |
| `Q` (queued), `S` (started) | submission and start of jobs that never ran or have not ended |
| `D` (deleted), `A` (aborted), `M` (moved away) | the end of a waiting job; a job that ran has an `E`, too |
| others (reservations, licences, alterations, provisioning) | skipped |

- A job arrives at `etime`, when it became eligible, if that is later than `ctime`, its submission. A further run
  arrives
no earlier than the end of the run before. A `TraceDialect` may select the submission.
- walltime_s is `Resource_List.walltime`, or the run time if the job had no limit.
- Units: see `cpsched_sim.traces.pbs_requests`.
- Queue and partition are PBS's queue; account is `account`, else `project`; nodes are the hosts of `exec_host`.
- Each subjob of an array is a job; the array itself is not. Subjob 3 of array 7 is job -70000003.
- A line with a duplicate of a relevant field is dropped, since a user's text can imitate fields. An account may contain
a line break: the line then continues.

Times in fields are seconds since 1970. The time at the begin of a line is local. It is used for `D`, `A` and `M` only;
its offset from UTC is derived from the lines before, unless the zone is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from sys import intern

from typing_extensions import override

from cpsched.errors import InvalidValue
from cpsched.parsing.pbs_select import parse_duration_s
from cpsched.registration import Registration
from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.input.dated_files import dated_files
from cpsched_sim.input.input_limits import MAX_LINE_CHARS, MAX_TIME_S
from cpsched_sim.input.text_lines import lines_of
from cpsched_sim.traces.job_runs import FURTHER_RUN, READ_BEFORE, TASKS, JobRunNumbering
from cpsched_sim.traces.pbs_lines import (
    PbsAccountingLine,
    PbsRecordFields,
    is_unfinished,
    job_id_of,
    line_of,
    looks_like_one,
)
from cpsched_sim.traces.pbs_requests import hosts_of, request_of
from cpsched_sim.traces.timestamps import possible_times, zone_of
from cpsched_sim.traces.trace_dialect import DEFAULT_DIALECT, TraceDialect
from cpsched_sim.traces.trace_record import TraceReader, TraceRecord, UnitsRequest

_QUARTER_S = 900
"""Time zone offsets from UTC are multiples of a quarter of an hour."""
_NO_PROJECT = "_pbs_project_default"
_TIMES = {"ctime", "etime", "start", "end"}
_COUNT = _TIMES | {"user", "jobname", "queue", "exec_host", "Resource_List.walltime", "Resource_List.select"}
"""Fields that must occur only once per line."""
FORGED = "a field occurs twice because a user's text looks like fields"
ARRAYS = "the array as a whole: its subjobs are read as jobs"
SUSPENDED = "was suspended; that time counts as run time"
STARTED = "still running when the file was made"
WAITED = "still waiting when the file was made"
MOVED = "M"
LEFT = {"D": "deleted while waiting", "A": "aborted by the server", MOVED: "moved to another server"}


@dataclass(slots=True)
class UnfinishedPbsJob:
    """A job that has not ended. `since_s` is the end of its last run or 0, `start_s` its start or None."""

    fields: PbsRecordFields
    since_s: int = 0
    start_s: int | None = None


class PbsAccountingReader(TraceReader):
    """The accounting log of PBS as a trace. It has no machine: replay it on a system file."""

    @classmethod
    @override
    def recognises(cls, first: str) -> bool:
        """Return whether the line has a date, a time, a record type and a job id."""
        return looks_like_one(first)

    def __init__(self, path: Path, lenient: bool = False, dialect: TraceDialect = DEFAULT_DIALECT) -> None:
        super().__init__(path, lenient)
        if dialect.columns:
            raise InputError(f"{path}: PBS's accounting log has no columns; --columns is for tables")
        self.resources = ("cores", "memory_mib", "gpus")
        self._dialect = dialect
        self._files = dated_files(path)
        self._file = self._files[0]
        self._runs = JobRunNumbering()
        self._begun: dict[str, UnfinishedPbsJob] = {}
        self._ended: dict[str, int] = {}
        self._suspended: set[str] = set()
        self._asks: dict[UnitsRequest, UnitsRequest] = {}
        self._ahead_s = 0

    @override
    def __iter__(self) -> Iterator[TraceRecord]:
        """Yield the records of jobs that ended; after the last line, count the jobs that have not ended."""
        yield from super().__iter__()
        for id, begun in self._begun.items():
            self._leave_out(id, begun, "", None)
        self._begun.clear()

    def _lines(self) -> Iterator[tuple[int, str]]:
        for file in self._files:
            self._file = file
            yield from _whole_lines(file)

    def _wrong(self, field: str, value: object, rule: str) -> InvalidTrace:
        return InvalidTrace(self._file, self.line, field, value, rule)

    def _record(self, text: str) -> TraceRecord | None:
        if not text.strip():
            return None
        try:
            line = line_of(text)
            if line.kind in "ER":
                return self._ended_run(line)
            self._noted(line)
        except InvalidValue as error:
            raise self._wrong(error.field, error.value, error.rule) from error
        return None

    # ------------------------------------------------------------------------------------------ unfinished jobs

    def _noted(self, line: PbsAccountingLine) -> None:
        """Record what a line says about an unfinished job."""
        if line.kind in LEFT:
            self._left(line)
        elif line.kind in "QS":
            fields = PbsRecordFields(line.text)
            if job_id_of(line.id).subjob is None or not self._is_clear(fields):
                return
            begun = self._begun.setdefault(line.id, UnfinishedPbsJob(fields, self._ended.get(line.id, 0)))
            if line.kind == "S":
                begun.fields, begun.start_s = fields, self._moment(fields, "start")
            self._learn(line, fields, "start" if line.kind == "S" else "qtime")
        elif line.kind == "z" and line.id not in self._suspended:
            self._suspended.add(line.id)
            self.tally.taken[SUSPENDED] += 1

    def _left(self, line: PbsAccountingLine) -> None:
        """Remove a waiting job; a running job is kept until its end."""
        begun = self._begun.get(line.id)
        if begun is not None and begun.start_s is None:
            del self._begun[line.id]
            self._leave_out(line.id, begun, line.kind, self._written_s(line))

    def _leave_out(self, id: str, begun: UnfinishedPbsJob, kind: str, left_s: int | None) -> None:
        """Count a job that never ran or has not ended; `left_s` is the time at which a line of this kind removed it."""
        self.tally.dropped[LEFT.get(kind) or (WAITED if begun.start_s is None else STARTED)] += 1

    # ------------------------------------------------------------------------------------------ runs

    def _ended_run(self, line: PbsAccountingLine) -> TraceRecord | None:
        """Return the run recorded by a line, or None if it is counted and dropped."""
        number = self._number(line.id)
        if number is None:
            self.tally.dropped[ARRAYS] += 1
            return None
        begun = self._begun.pop(line.id, None)
        fields = PbsRecordFields(line.text)
        if not self._is_clear(fields):
            return None
        start_s, end_s = self._moment(fields, "start"), self._moment(fields, "end")
        if start_s is None or end_s is None or end_s <= start_s:
            self.tally.dropped["never started" if start_s is None else "run time below 1 s"] += 1
            return None
        self._learn(line, fields, "end")
        hosts = ",".join(hosts_of(fields.get("exec_host", "")))
        id, _ = self._runs.number(number, start_s, end_s, hosts)
        if id is None:
            self.tally.dropped[READ_BEFORE] += 1
            return None
        if id != number:
            self.tally.taken[FURTHER_RUN] += 1
        since_s = begun.since_s if begun is not None else self._ended.get(line.id, 0)
        if line.kind == "R":
            self._ended[line.id] = end_s
            self._begun[line.id] = UnfinishedPbsJob(fields, end_s)
        return TraceRecord(
            id,
            self._arrival_s(fields, since_s, start_s),
            end_s - start_s,
            self._walltime_s(fields) or self._unlimited_s(end_s - start_s),
            self._ask(fields),
            *self._words(fields),
            start_s,
            hosts,
            "",
            intern(fields.get("resvID", "")),
        )

    def _number(self, id: str) -> int | None:
        """Return the number of a job, negative for a subjob, or None for an array."""
        job = job_id_of(id)
        if job.subjob is None:
            return None
        return job.number if job.subjob < 0 else -(job.number * TASKS + job.subjob)

    def _is_clear(self, fields: PbsRecordFields) -> bool:
        """Return whether each relevant field occurs only once; count the line if not."""
        if fields.twice.isdisjoint(_COUNT):
            return True
        self.tally.dropped[FORGED] += 1
        return False

    def _words(self, fields: PbsRecordFields) -> tuple[str, str, str, str]:
        """Return user, name, queue and account."""
        project = fields.get("project", "")
        account = fields.get("account") or ("" if project == _NO_PROJECT else project)
        user, name, queue = fields.get("user", ""), fields.get("jobname", ""), fields.get("queue", "")
        return intern(user), intern(name), intern(queue), intern(account)

    def _ask(self, fields: PbsRecordFields) -> UnitsRequest:
        asked = request_of(fields, intern(fields.get("queue", "")))
        for note in asked.notes:
            self.tally.taken[note] += 1
        return self._asks.setdefault(asked.units, asked.units)

    # ------------------------------------------------------------------------------------------ times

    def _moment(self, fields: PbsRecordFields, name: str) -> int | None:
        """Return a time in seconds since 1970, or None if the field is missing or 0, PBS's value for never."""
        text = fields.get(name, "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 16 and int(text) <= MAX_TIME_S):
            raise InvalidValue(name, text, f"must be seconds since 1970, up to {MAX_TIME_S:,}")
        return int(text) or None

    def _arrival_s(self, fields: PbsRecordFields, since_s: int, start_s: int) -> int:
        """Return the later of submission and eligibility, as configured, but never a time after the start."""
        submit_s = self._moment(fields, "ctime")
        if submit_s is None:
            raise InvalidValue("ctime", fields.get("ctime", ""), "must be set: it is the time of submission")
        eligible_s = self._moment(fields, "etime") if self._dialect.arrival == "eligible" else None
        if eligible_s is not None and max(submit_s, since_s) < eligible_s <= start_s:
            self.tally.taken["arrival is etime, which is later than ctime"] += 1
            return eligible_s
        return min(max(submit_s, since_s), start_s)

    def _walltime_s(self, fields: PbsRecordFields) -> int:
        text = fields.get("Resource_List.walltime", "")
        return parse_duration_s(text, "walltime") if text else 0

    def _unlimited_s(self, run_s: int) -> int:
        self.tally.taken["walltime is the run time, since the limit is missing"] += 1
        return run_s

    def _learn(self, line: PbsAccountingLine, fields: PbsRecordFields, name: str) -> None:
        """Learn the clock's offset from UTC from a line whose field `name` is the time of writing."""
        at_s = self._moment(fields, name)
        if at_s is not None:
            self._ahead_s = round((possible_times(line.at, UTC)[0] - at_s) / _QUARTER_S) * _QUARTER_S

    def _written_s(self, line: PbsAccountingLine) -> int:
        """Return the time at which a line was written."""
        if self._dialect.zone:
            return possible_times(line.at, zone_of(self._dialect.zone))[0]
        return possible_times(line.at, UTC)[0] - self._ahead_s


def _whole_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines; a line that ends within an account is joined with the next line."""
    begun: tuple[int, str] | None = None
    for number, text in lines_of(file):
        if begun is not None:
            number, text = begun[0], begun[1] + text
        begun = (number, text) if is_unfinished(text) and len(text) <= MAX_LINE_CHARS else None
        if begun is None:
            yield number, text
    if begun is not None:
        yield begun


LISTED = (
    Registration(
        "pbs",
        "PBS accounting log: a file, or the folder of its days.",
        "OpenPBS; PBS Professional",
        PbsAccountingReader,
    ),
)
