"""Read the accounting log of PBS: OpenPBS, PBS Professional or Torque.

The input is one file, or the folder `server_priv/accounting` with all files.

| record | meaning |
|---|---|
| `E` (ended), `R` (requeued while it ran) | one job: a run, from `start` to `end` |
| `Q` (queued), `S` (started) | submission and start of jobs that never ran or have not ended |
| `D` (deleted), `A` (aborted), `M` (moved away) | the end of a waiting job; a job that ran also has an `E` |
| `z` (suspended) | the suspension counts as run time, with a note |
| others (reservations, licenses, alterations, provisioning) | skipped |

- A job arrives at `etime`, when it became eligible, if that is later than `ctime`, its submission. A further run
  arrives no earlier than the end of the previous run. A `TraceDialect` may select the submission.
- walltime_s is `Resource_List.walltime`, or the run time if the job had no limit.
- Units: see `cpsched_sim.traces.pbs_lines`.
- Queue and partition are PBS's queue; account is `account`, else `project`; nodes are the hosts of `exec_host`.
- Each subjob of an array is a job; the array itself is not. Subjob 3 of array 7 is job -70000003.
- A line in which a relevant field occurs twice is dropped, because user text can look like fields. A user's text may
contain a line break, after which the record continues. It is read as a space.

Times in fields are seconds since 1970. The time at the beginning of a line is local. It is used only for `D`, `A` and
`M`. Its offset from UTC is derived from earlier lines, unless the zone is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from sys import intern

from typing_extensions import override

from cpsched.errors import InvalidValue
from cpsched.pbs_text import parse_duration_s
from cpsched.registration import Registration
from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.input.input_limits import MAX_LINE_CHARS, MAX_TIME_S
from cpsched_sim.input.text_line_reader import dated_files, read_text_lines
from cpsched_sim.traces.job_run_numbering import ALREADY_READ_REASON, FURTHER_RUN_NOTE, TASK_FACTOR, JobRunNumbering
from cpsched_sim.traces.pbs_lines import (
    PbsAccountingLine,
    PbsRecordFields,
    is_split_record,
    looks_like_pbs_log_line,
    parse_exec_hosts,
    parse_pbs_job_id,
    parse_pbs_line,
    parse_pbs_request,
)
from cpsched_sim.traces.slurm_times import parse_time_zone, possible_unix_times_s
from cpsched_sim.traces.trace_record import DEFAULT_DIALECT, TraceDialect, TraceReader, TraceRecord, UnitsRequest

_QUARTER_HOUR_S = 900
"""Time zones differ from UTC by multiples of a quarter of an hour."""
_NO_PROJECT = "_pbs_project_default"
_TIME_FIELDS = {"ctime", "etime", "start", "end"}
_UNIQUE_FIELDS = _TIME_FIELDS | {
    "user",
    "jobname",
    "queue",
    "exec_host",
    "Resource_List.walltime",
    "Resource_List.select",
}
"""The fields that must occur only once in a line."""
FORGED_FIELD_REASON = "a field occurs twice, because a user's text looks like fields"
WHOLE_ARRAY_REASON = "the array as a whole: its subjobs are read as jobs"
SUSPENDED_REASON = "was suspended; this time counts as run time"
STILL_RUNNING_REASON = "still running when the file was written"
STILL_WAITING_REASON = "still waiting when the file was written"
MOVED_RECORD = "M"
END_REASONS = {"D": "deleted while waiting", "A": "aborted by the server", MOVED_RECORD: "moved to another server"}


@dataclass(slots=True)
class UnfinishedPbsJob:
    """A job that has not ended.

    `since_s` is the end of its last run, or 0. `start_s` is its start, or None if it waits.
    """

    fields: PbsRecordFields
    since_s: int = 0
    start_s: int | None = None


class PbsAccountingReader(TraceReader):
    """The PBS accounting log as a trace. A replay requires a system file."""

    @classmethod
    @override
    def recognises(cls, first: str) -> bool:
        """Return whether the line has a date, a time, a record type and a job id."""
        return looks_like_pbs_log_line(first)

    @classmethod
    @override
    def recognises_later(cls, line: str) -> bool:
        return looks_like_pbs_log_line(line)

    def __init__(self, path: Path, lenient: bool = False, dialect: TraceDialect = DEFAULT_DIALECT) -> None:
        super().__init__(path, lenient)
        if dialect.columns:
            raise InputError(f"{path}: PBS's accounting log has no columns: remove --columns, which is for tables")
        self.resources = ("cores", "memory_mib", "gpus")
        self._dialect = dialect
        self._files = dated_files(path)
        self._file = self._files[0]
        self._runs = JobRunNumbering()
        self._unfinished_jobs: dict[str, UnfinishedPbsJob] = {}
        self._ended: dict[str, int] = {}
        self._suspended: set[str] = set()
        self._asks: dict[UnitsRequest, UnitsRequest] = {}
        self._utc_offset_s = 0

    @override
    def __iter__(self) -> Iterator[TraceRecord]:
        """Yield the runs that ended. Then count the jobs that have not ended."""
        yield from super().__iter__()
        for id, begun in self._unfinished_jobs.items():
            self._handle_unfinished_job(id, begun, "", None)
        self._unfinished_jobs.clear()

    def _lines(self) -> Iterator[tuple[int, str]]:
        for file in self._files:
            self._file = file
            yield from _join_split_lines(file)

    def _make_error(self, field: str, value: object, rule: str) -> InvalidTrace:
        return InvalidTrace(self._file, self.line, field, value, rule)

    def _record(self, text: str) -> TraceRecord | None:
        if not text.strip():
            return None
        try:
            line = parse_pbs_line(text)
            if line.kind in "ER":
                return self._parse_ended_run(line)
            self._update_unfinished_jobs(line)
        except InvalidValue as error:
            raise self._make_error(error.field, error.value, error.rule) from error
        return None

    # ------------------------------------------------------------------------------------------ unfinished jobs

    def _update_unfinished_jobs(self, line: PbsAccountingLine) -> None:
        """Update the unfinished job that a line describes."""
        if line.kind in END_REASONS:
            self._remove_waiting_job(line)
        elif line.kind in "QS":
            fields = PbsRecordFields(line.text)
            if parse_pbs_job_id(line.id).subjob is None or not self._has_unique_fields(fields):
                return
            begun = self._unfinished_jobs.setdefault(line.id, UnfinishedPbsJob(fields, self._ended.get(line.id, 0)))
            if line.kind == "S":
                begun.fields, begun.start_s = fields, self._field_time_s(fields, "start")
            self._update_utc_offset(line, fields, "start" if line.kind == "S" else "qtime")
        elif line.kind == "z" and line.id not in self._suspended:
            self._suspended.add(line.id)
            self.tally.taken[SUSPENDED_REASON] += 1

    def _remove_waiting_job(self, line: PbsAccountingLine) -> None:
        """Remove a waiting job. A running job stays until it ends."""
        begun = self._unfinished_jobs.get(line.id)
        if begun is not None and begun.start_s is None:
            del self._unfinished_jobs[line.id]
            self._handle_unfinished_job(line.id, begun, line.kind, self._log_time_s(line))

    def _handle_unfinished_job(self, id: str, begun: UnfinishedPbsJob, kind: str, left_s: int | None) -> None:
        """Count a job that never ran or has not ended.

        If a line removed the job from the queue at `left_s`, `kind` is the type of this line. Otherwise, it is "".
        """
        self.tally.dropped[
            END_REASONS.get(kind) or (STILL_WAITING_REASON if begun.start_s is None else STILL_RUNNING_REASON)
        ] += 1

    # ------------------------------------------------------------------------------------------ runs

    def _parse_ended_run(self, line: PbsAccountingLine) -> TraceRecord | None:
        """Return the run that a line records, or None if the run is counted and dropped."""
        number = self._parse_job_number(line.id)
        if number is None:
            self.tally.dropped[WHOLE_ARRAY_REASON] += 1
            return None
        begun = self._unfinished_jobs.pop(line.id, None)
        fields = PbsRecordFields(line.text)
        if not self._has_unique_fields(fields):
            return None
        start_s, end_s = self._field_time_s(fields, "start"), self._field_time_s(fields, "end")
        if start_s is None or end_s is None or end_s <= start_s:
            self.tally.dropped["never started" if start_s is None else "run time below 1 s"] += 1
            return None
        self._update_utc_offset(line, fields, "end")
        hosts = ",".join(parse_exec_hosts(fields.get("exec_host", "")))
        id, _ = self._runs.assign_run_number(number, start_s, end_s, hosts)
        if id is None:
            self.tally.dropped[ALREADY_READ_REASON] += 1
            return None
        if id != number:
            self.tally.taken[FURTHER_RUN_NOTE] += 1
        since_s = begun.since_s if begun is not None else self._ended.get(line.id, 0)
        if line.kind == "R":
            self._ended[line.id] = end_s
            self._unfinished_jobs[line.id] = UnfinishedPbsJob(fields, end_s)
        return TraceRecord(
            id,
            self._arrival_s(fields, since_s, start_s),
            end_s - start_s,
            self._walltime_s(fields) or self._walltime_without_limit_s(end_s - start_s),
            self._parse_request(fields),
            *self._read_user_name_queue_account(fields),
            start_s,
            hosts,
            "",
            intern(fields.get("resvID", "")),
        )

    def _parse_job_number(self, id: str) -> int | None:
        """Return the number of a job, negative for a subjob, or None for an array."""
        job = parse_pbs_job_id(id)
        if job.subjob is None:
            return None
        return job.number if job.subjob < 0 else -(job.number * TASK_FACTOR + job.subjob)

    def _has_unique_fields(self, fields: PbsRecordFields) -> bool:
        """Return whether each relevant field occurs only once. Count the line if not."""
        if fields.twice.isdisjoint(_UNIQUE_FIELDS):
            return True
        self.tally.dropped[FORGED_FIELD_REASON] += 1
        return False

    def _read_user_name_queue_account(self, fields: PbsRecordFields) -> tuple[str, str, str, str]:
        """Return user, name, queue and account."""
        project = fields.get("project", "")
        account = fields.get("account") or ("" if project == _NO_PROJECT else project)
        texts = fields.get("user", ""), fields.get("jobname", ""), fields.get("queue", ""), account
        user, name, queue, account = (intern(" ".join(text.splitlines())) for text in texts)
        return user, name, queue, account

    def _parse_request(self, fields: PbsRecordFields) -> UnitsRequest:
        asked = parse_pbs_request(fields, intern(fields.get("queue", "")))
        for note in asked.notes:
            self.tally.taken[note] += 1
        return self._asks.setdefault(asked.units, asked.units)

    # ------------------------------------------------------------------------------------------ times

    def _field_time_s(self, fields: PbsRecordFields, name: str) -> int | None:
        """Return a time in seconds since 1970, or None if it is missing or 0 (never)."""
        text = fields.get(name, "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 16 and int(text) <= MAX_TIME_S):
            raise InvalidValue(name, text, f"must be seconds since 1970, up to {MAX_TIME_S:,}")
        return int(text) or None

    def _arrival_s(self, fields: PbsRecordFields, since_s: int, start_s: int) -> int:
        """Return the job's arrival: its submission or, if selected, its eligibility.

        The arrival is not after the start.
        """
        submit_s = self._field_time_s(fields, "ctime")
        if submit_s is None:
            raise InvalidValue("ctime", fields.get("ctime", ""), "must be set: it is the time of submission")
        eligible_s = self._field_time_s(fields, "etime") if self._dialect.arrival == "eligible" else None
        if eligible_s is not None and max(submit_s, since_s) < eligible_s <= start_s:
            self.tally.taken["arrival is etime, which is later than ctime"] += 1
            return eligible_s
        return min(max(submit_s, since_s), start_s)

    def _walltime_s(self, fields: PbsRecordFields) -> int:
        text = fields.get("Resource_List.walltime", "")
        return parse_duration_s(text, "walltime") if text else 0

    def _update_utc_offset(self, line: PbsAccountingLine, fields: PbsRecordFields, name: str) -> None:
        """Derive the local clock's offset from UTC.

        The field `name` contains the time at which the line was written.
        """
        at_s = self._field_time_s(fields, name)
        if at_s is not None:
            self._utc_offset_s = (
                round((possible_unix_times_s(line.at, UTC)[0] - at_s) / _QUARTER_HOUR_S) * _QUARTER_HOUR_S
            )

    def _log_time_s(self, line: PbsAccountingLine) -> int:
        """Return the time at which a line was written."""
        if self._dialect.zone:
            return possible_unix_times_s(line.at, parse_time_zone(self._dialect.zone))[0]
        return possible_unix_times_s(line.at, UTC)[0] - self._utc_offset_s


def _join_split_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield one numbered line per record. Join the lines of a record with line breaks in a user's text."""
    begun: tuple[int, str] | None = None
    for number, text in read_text_lines(file):
        if begun is not None and len(begun[1]) <= MAX_LINE_CHARS and is_split_record(begun[1], text):
            begun = begun[0], begun[1] + text
            continue
        if begun is not None:
            yield begun
        begun = number, text
    if begun is not None:
        yield begun


REGISTRATIONS = (
    Registration(
        "pbs",
        "PBS accounting log: a file, or the folder of daily files.",
        "OpenPBS; PBS Professional",
        PbsAccountingReader,
    ),
)
