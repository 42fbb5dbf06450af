"""Read Slurm accounting data.

The input is the output of `sacct --parsable2 --allocations --duplicates`.

`cpsched_sim.traces.accounting_columns` determines the columns. A `TraceDialect` contains the user's options.

- A job arrives when it became eligible, which is later than its submission if it waited for a date, another job or its
  release. It arrives at submission if Eligible is unknown or `arrival` is `submit`.
- run_s is End - Start, start_s is Start. Jobs that never started or have not ended are dropped and counted by State. A
  run longer than its limit is not cut.
- walltime_s is Timelimit, or the run time if a job has no limit (UNLIMITED, Partition_Limit, empty). Any other text is
  an error, and so is a plain number: minutes belong in TimelimitRaw.
- A job with N nodes requests N units on distinct nodes, each with its share of the totals, rounded up: CPUs
(`cores`), memory (`memory_mib`) and GPUs (`gpus`, gres/gpu of any type).
- Partition and queue are Slurm's partition; job steps are dropped.
- Each run of a requeued job is a separate job, and so is each component of a heterogeneous job.

A line with too few fields is joined with the next one, because a job name may contain line breaks. Another header line
sets the order of the columns below it. The file must contain jobs of one cluster only.

Job numbers are Slurm's. With several runs, or without JobIDRaw, they are generated (`parse_slurm_job_number`,
`cpsched_sim.traces.job_run_numbering`). A missing user, account or name is "".

Times are local times without a zone. They are read as UTC unless the zone is given (see
`cpsched_sim.traces.slurm_times`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from sys import intern
from typing import NamedTuple

from typing_extensions import override

from cpsched.errors import InvalidValue
from cpsched.registration import Registration
from cpsched.slurm_text.jobs import parse_task_ranges
from cpsched_sim.input.input_limits import MAX_AMOUNT
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.traces.accounting_columns import (
    COLUMNS_READ,
    AccountingColumns,
    has_blank_aligned_columns,
    sacct_column_separator,
)
from cpsched_sim.traces.job_run_numbering import (
    ALREADY_READ_REASON,
    DUPLICATE_NUMBER_REASON,
    FURTHER_RUN_NOTE,
    TASK_FACTOR,
    JobRunNumbering,
)
from cpsched_sim.traces.slurm_times import (
    HOUR_S,
    UNKNOWN_VALUES,
    PossibleTimes,
    is_plain_number,
    number_to_seconds,
    parse_slurm_duration_s,
    parse_time_zone,
    possible_unix_times_s,
    resolve_ambiguous_times,
)
from cpsched_sim.traces.trace_record import (
    DEFAULT_DIALECT,
    SEARCHED_LINES,
    TraceDialect,
    TraceReader,
    TraceRecord,
    UnitsRequest,
)

_MIB_PER_UNIT = {"": 1 / 1024**2, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MEMORY_PATTERN = re.compile(r"(\d+(?:\.\d*)?)([KMGTP]?)$", re.ASCII)
_COUNT_PATTERN = re.compile(r"(-?\d{1,18})(\.\d{1,6})?([KMGTP]?)$", re.ASCII)
_JOB_NUMBER_PATTERN = re.compile(r"(\d{1,4000})(?:([_+])(\d{1,7})|_\[[^|]*\]?)?$", re.ASCII)
_WAITING_TASKS_PATTERN = re.compile(r"(\d{1,18})_\[([^\]]*)\]?", re.ASCII)
_MAX_DIGITS = 4000
"""Maximum number of digits that Python converts to an integer."""
_COMPONENT_OFFSET = 9 * 10**6
"""Offset of a heterogeneous job's components: -79000001 is component 1 of job 7. No array has that many tasks."""
_TIME_COLUMNS = ("Submit", "Eligible", "Start", "End")
_REQUEST_COLUMNS = ("Partition", "NNodes", "NCPUS", "ReqTRES", "AllocTRES")
"""The columns that contain a job's request."""
_REQUEST_CACHE_SIZE = 65_536
"""Number of parsed requests to cache. Most jobs repeat the request of another job."""
Taken = Sequence[str]
"""The assumptions made for a job, one note each."""
_DURATION_FORM = (
    "a time like 1-02:00:00; minutes belong in TimelimitRaw: rename the column, or use --columns TimelimitRaw=Timelimit"
)
LINE_BREAK_IN_NAME = "the job name contains a line break, which is read as a space"
REORDERED_HEADER = "header lines in a different order from the first: used for the lines that follow"
_SHORT_STATES = {"R": "RUNNING", "PD": "PENDING", "S": "SUSPENDED", "CG": "COMPLETING", "CA": "CANCELLED"}
"""Job states by squeue's abbreviation."""
_NOT_RUN_REASONS = {
    "CANCELLED": "cancelled while waiting",
    "PENDING": "still waiting when the file was written",
    "RUNNING": "still running when the file was written",
    "SUSPENDED": "still running when the file was written",
}


class ArrayTasks(NamedTuple):
    """The waiting tasks of an array that sacct prints on one line, such as `79_[1-500%4]`."""

    array_id: int
    ranges: Sequence[range]
    """The tasks, or () if sacct abbreviated the list."""
    is_throttled: bool
    """Whether the array sets a maximum number of running tasks."""

    @classmethod
    def parse(cls, text: str) -> ArrayTasks | None:
        """Return the tasks in a JobID, or None for any other job."""
        match = _WAITING_TASKS_PATTERN.fullmatch(text)
        if match is None:
            return None
        listed, percent, _ = match[2].partition("%")
        try:
            return cls(int(match[1]), parse_task_ranges(listed), bool(percent))
        except ValueError:
            return cls(int(match[1]), (), bool(percent))

    def number_of(self, task: int) -> int:
        """Return the job number of one task."""
        return -(self.array_id * TASK_FACTOR + task)


def parse_slurm_job_number(text: str) -> int:
    """Return a job's number from JobIDRaw or JobID. Raise `InvalidValue`.

    The numbers of array tasks and components are negative. Pending array tasks on one line (`7_[3-9%2]`) have the
    array's number.
    """
    if text.isdecimal() and text.isascii() and len(text) < _MAX_DIGITS:
        return int(text)
    match = _JOB_NUMBER_PATTERN.match(text)
    if not match:
        raise InvalidValue("job", text, "must be a whole number")
    job, kind, part = int(match[1]), match[2], int(match[3] or 0)
    if kind is None:
        return job
    return -(job * TASK_FACTOR + part + (_COMPONENT_OFFSET if kind == "+" else 0))


class SacctReader(TraceReader):
    """Accounting data as a trace. A replay requires a system file."""

    @classmethod
    @override
    def recognises(cls, first: str) -> bool:
        """Return whether the line is a header or consists of fields separated by `|`."""
        between_bars = first.count("|") > 2 and not first.lstrip().startswith((";", "#"))
        return bool(sacct_column_separator(first)) or has_blank_aligned_columns(first) or between_bars

    @classmethod
    @override
    def recognises_later(cls, line: str) -> bool:
        """Return whether the line is a header, or a job's fields separated by `|`."""
        return bool(sacct_column_separator(line)) or (line[:1].isdigit() and line.count("|") > 2)

    def __init__(self, path: Path, lenient: bool = False, dialect: TraceDialect = DEFAULT_DIALECT) -> None:
        super().__init__(path, lenient)
        self.resources = ("cores", "memory_mib", "gpus")
        self._dialect, self._zone = dialect, parse_time_zone(dialect.zone)
        self._runs = JobRunNumbering()
        self._asks: dict[UnitsRequest, UnitsRequest] = {}
        self._cached_request = lru_cache(_REQUEST_CACHE_SIZE)(self._parse_request_texts)
        self._cluster = ""
        self._use_columns(self._find_columns())

    def _find_columns(self) -> AccountingColumns:
        """Return the columns of the first line, or of a later line if the first lines are damaged."""
        numbered = ((number, text) for number, text in read_text_lines(self.path) if text.strip())
        lines = list(islice(numbered, SEARCHED_LINES)) or [(0, "")]
        self.line, first = lines[0]
        if has_blank_aligned_columns(first):
            raise self._make_error("columns", first.strip(), "must be separated: run sacct with --parsable2")
        if not self._dialect.columns:
            header = next((text for _, text in lines if sacct_column_separator(text)), first)
            return AccountingColumns.of(first if self.recognises(first) else header)
        for _, text in lines:
            with contextlib.suppress(InvalidValue):
                return AccountingColumns.of(text, self._dialect.columns)
        return AccountingColumns.of(first, self._dialect.columns)

    def _use_columns(self, columns: AccountingColumns) -> None:
        """Use these columns for all following lines."""
        if missing := columns.missing_required_columns():
            rule = "is missing; add it to sacct's --format, or set its column with --columns NAME=COLUMN"
            raise self._make_error("columns", ", ".join(missing), rule)
        self.columns = columns
        self._at = {name: columns.index_of(name) for name in COLUMNS_READ}
        self._limit_in_minutes = "timelimit" not in columns.at

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield one numbered line per job. Join the lines of a job name with line breaks."""
        begun: tuple[int, str] | None = None
        for number, text in read_text_lines(self.path):
            if not text.strip():
                yield number, text
            elif begun is None:
                begun = number, text
            elif self.columns.is_continuation(begun[1], text):
                self.tally.taken[LINE_BREAK_IN_NAME] += 1
                begun = begun[0], f"{begun[1].rstrip()} {text.lstrip()}"
            else:
                yield begun
                begun = number, text
        if begun is not None:
            yield begun

    def _record(self, text: str) -> TraceRecord | None:
        if not text.strip():
            return None
        if self.columns.is_header(text):
            self._apply_header(text)
            return None
        try:
            fields = self.columns.split(text)
        except InvalidValue as error:
            raise self._make_error(error.field, error.value, error.rule) from error
        self._check_cluster(self._get_field(fields, "Cluster"))
        id_text = self._get_field(fields, "JobIDRaw")
        if "." in id_text.partition("[")[0]:  # dots in brackets abbreviate a list of tasks
            self.tally.dropped["job step"] += 1
            return None
        submit_s, eligible_s, start_s, end_s = self._resolve_job_times(fields)
        run_s = self._run_s(fields, start_s, end_s)
        if run_s is None or start_s is None:
            self._handle_unfinished_job(fields, (submit_s, eligible_s, start_s, end_s))
            return None
        if submit_s is None:
            raise self._make_error("Submit", self._get_field(fields, "Submit"), "must be a time")
        id = self._assign_job_number(id_text, start_s, start_s + run_s, self._get_field(fields, "NodeList"))
        if id is None:
            self.tally.dropped[ALREADY_READ_REASON] += 1
            return None
        squeue_id = self._get_field(fields, "JobID") or id_text
        if squeue_id != str(id):
            self.squeue_ids[id] = squeue_id
        return TraceRecord(
            id,
            self._arrival_s(submit_s, eligible_s, start_s),
            run_s,
            self._time_limit_s(fields) or self._walltime_without_limit_s(run_s),
            self._parse_request(fields),
            self._intern_field(fields, "User"),
            self._intern_field(fields, "JobName"),
            self._intern_field(fields, "Partition"),
            self._intern_field(fields, "Account"),
            self._plausible_start_s(submit_s, start_s),
            self._intern_field(fields, "NodeList"),
            self._intern_field(fields, "QOS"),
            self._intern_field(fields, "Reservation"),
        )

    def _handle_unfinished_job(self, fields: list[str], times: Sequence[int | None]) -> None:
        """Count a job without a complete run. `times` is in the order of `_TIME_COLUMNS`."""
        array = self._waiting_array_tasks(fields)
        count = sum(map(len, array.ranges)) if array is not None and array.ranges else 1
        self.tally.dropped[self._not_run_reason(fields, times[2], times[3])] += count

    def _waiting_array_tasks(self, fields: list[str]) -> ArrayTasks | None:
        """Return the tasks for which a line stands, or None for the line of one job."""
        texts = (self._get_field(fields, name) for name in ("JobID", "JobIDRaw"))
        return next(filter(None, map(ArrayTasks.parse, texts)), None)

    def _apply_header(self, text: str) -> None:
        """Use the columns of another header line.

        Concatenated files contain several header lines.
        """
        try:
            if text.strip("\r\n") == self.columns.header:
                return
            if self.columns.by_place and self.columns.is_reordered_by(text):
                raise InvalidValue("columns", text.strip(), "must match the first line, which --columns describes")
            columns = AccountingColumns.of(text, self._dialect.columns)
        except InvalidValue as error:
            raise self._make_error(error.field, error.value, error.rule) from error
        if columns.at != self.columns.at or columns.separator != self.columns.separator:
            self.tally.ignored[REORDERED_HEADER] += 1
            self._use_columns(columns)

    def _check_cluster(self, cluster: str) -> None:
        """Raise `InvalidTrace` if a job's cluster differs from that of earlier jobs."""
        if cluster and cluster != self._cluster:
            if self._cluster:
                rule = f"must be {self._cluster}, as on earlier lines: keep the lines of one cluster only"
                raise self._make_error("Cluster", cluster, rule)
            self._cluster = cluster

    # ------------------------------------------------------------------------------------------ times

    def _resolve_job_times(self, fields: list[str]) -> list[int | None]:
        """Return submission, eligibility, start and end. Count ambiguous times.

        A time is ambiguous in the hour that a clock change repeats.
        """
        found = [self._parse_possible_times(fields, name) for name in _TIME_COLUMNS]
        for at, before, name in ((2, 0, "Wait"), (3, 2, "Elapsed")):
            if self._at[_TIME_COLUMNS[at]] is None:  # the column is missing, but an alternative exists
                after_s = self._parse_seconds(fields, name)
                found[at] = () if after_s is None else tuple(moment + after_s for moment in found[before])
        if all(len(at) < 2 for at in found):
            return [at[0] if at else None for at in found]
        times, certain = resolve_ambiguous_times(found, self._elapsed_s(fields))
        how = "resolved by Elapsed and the order of times" if certain else "read as the first of the two"
        self.tally.taken[f"a time is in the hour that is repeated at a clock change, {how}"] += 1
        return times

    def _parse_possible_times(self, fields: list[str], name: str) -> PossibleTimes:
        try:
            return possible_unix_times_s(self._get_field(fields, name), self._zone)
        except InvalidValue as error:
            raise self._make_error(name, error.value, error.rule) from error

    def _elapsed_s(self, fields: list[str]) -> int | None:
        return self._parse_seconds(fields, "Elapsed")

    def _parse_seconds(self, fields: list[str], name: str) -> int | None:
        text = self._get_field(fields, name)
        return (
            number_to_seconds(text, 1)
            if is_plain_number(text)
            else self._parse_duration_s(name, text, "seconds, or a time")
        )

    def _run_s(self, fields: list[str], start_s: int | None, end_s: int | None) -> int | None:
        """Return the run time, or None if the job did not run or has not ended.

        Without a time zone, a run across a clock change appears an hour longer or shorter than Elapsed.
        """
        if start_s is None or end_s is None:
            return None
        run_s = end_s - start_s
        if not self._dialect.zone and self._at["Elapsed"] is not None:
            elapsed_s = self._elapsed_s(fields)
            if elapsed_s is not None and abs(run_s - elapsed_s) == HOUR_S:
                self.tally.taken[
                    "Elapsed is used, because it differs by an hour from End - Start: the clock changed, so set --zone"
                ] += 1
                run_s = elapsed_s
        return run_s if run_s > 0 else None

    def _not_run_reason(self, fields: list[str], start_s: int | None, end_s: int | None) -> str:
        if start_s is not None and end_s is not None and self._job_state(fields) != "CANCELLED":
            return "run time below 1 s"
        word = "RUNNING" if start_s is not None and end_s is None else self._job_state(fields)
        return _NOT_RUN_REASONS.get(word, "never started")

    def _job_state(self, fields: list[str]) -> str:
        word = self._get_field(fields, "State").strip().partition(" ")[0].rstrip("+").upper()
        return _SHORT_STATES.get(word, word)

    def _arrival_s(self, submit_s: int, eligible_s: int | None, start_s: int) -> int:
        if self._dialect.arrival == "submit" or eligible_s is None or not submit_s < eligible_s <= start_s:
            return submit_s
        self.tally.taken["arrival is Eligible, which is later than Submit"] += 1
        return eligible_s

    def _time_limit_s(self, fields: list[str]) -> int | None:
        text = self._get_field(fields, "Timelimit")
        if not self._limit_in_minutes:
            return self._parse_duration_s("Timelimit", text, _DURATION_FORM)
        return (
            number_to_seconds(text, 60)
            if is_plain_number(text)
            else self._parse_duration_s("TimelimitRaw", text, "minutes, or a time")
        )

    def _parse_duration_s(self, field: str, text: str, form: str) -> int | None:
        """Return a duration in seconds, or None if the job has no limit."""
        try:
            return parse_slurm_duration_s(text)
        except ValueError:
            raise self._make_error(field, text, f"must be {form}") from None

    # ------------------------------------------------------------------------------------------ numbers

    def _assign_job_number(self, text: str, start_s: int, end_s: int, nodes: str) -> int | None:
        """Return the job's number, or None for a duplicate run.

        A further run has a generated number.
        """
        id = self._parse_job_number(text)
        try:
            run, is_task = self._runs.assign_run_number(id, start_s, end_s, nodes)
        except InvalidValue as error:
            raise self._make_error(error.field, text, error.rule) from error
        if run is not None and run != id:
            self.tally.taken[DUPLICATE_NUMBER_REASON if is_task else FURTHER_RUN_NOTE] += 1
        return run

    def _parse_job_number(self, text: str) -> int:
        try:
            return parse_slurm_job_number(text)
        except InvalidValue as error:
            raise self._make_error(
                "JobIDRaw" if "jobidraw" in self.columns.at else "JobID", text, error.rule
            ) from error

    # ------------------------------------------------------------------------------------------ amounts

    def _parse_request(self, fields: list[str]) -> UnitsRequest:
        """Return a job's request, and count the assumptions made."""
        ask, taken = self._cached_request(*(self._intern_field(fields, name) for name in _REQUEST_COLUMNS))
        self.tally.taken.update(taken)
        return self._asks.setdefault(ask, ask)

    def _parse_request_texts(
        self, partition: str, nnodes: str, ncpus: str, req_tres: str, alloc_tres: str
    ) -> tuple[UnitsRequest, Taken]:
        """Parse the texts of a request. Return the request and the assumptions made."""
        requested, allocated, taken = self._parse_tres(req_tres), self._parse_tres(alloc_tres), list[str]()
        if self._has_unrequested_gpus(requested, allocated):
            allocated = {name: text for name, text in allocated.items() if not name.startswith("gres/gpu")}
        tres = requested | allocated
        nodes = self._count_nodes(tres.get("node") or nnodes, taken)
        cores = self._parse_whole_number("NCPUS", tres.get("cpu") or ncpus)
        if nodes < 1 or cores < 1:
            raise self._make_error("NNodes, NCPUS", (nodes, cores), "must be positive")
        gpus = self._count_gpus(tres)
        totals = {"cores": cores, "memory_mib": self._parse_memory_mib(tres.get("mem", "0")), "gpus": gpus}
        each = tuple((name, -(-total // nodes)) for name, total in totals.items() if total)
        return UnitsRequest(nodes, each, distinct=nodes > 1, partition=partition), taken

    def _has_unrequested_gpus(self, requested: dict[str, str], allocated: dict[str, str]) -> bool:
        """Return whether the job has GPUs only because it was allocated whole nodes.

        Some of these nodes may have no GPUs.
        """
        wanted, got = requested.get("cpu"), allocated.get("cpu")
        if not wanted or not got or any(name.startswith("gres/gpu") for name in requested):
            return False
        return self._parse_whole_number("AllocTRES", got) > self._parse_whole_number("ReqTRES", wanted)

    def _count_nodes(self, text: str, taken: list[str]) -> int:
        """Return the number of nodes. If it is unknown, return 1 and note this in `taken`."""
        if text.lower() not in UNKNOWN_VALUES:
            return self._parse_whole_number("NNodes", text)
        taken.append("the number of nodes is missing: read as 1")
        return 1

    def _count_gpus(self, tres: dict[str, str]) -> int:
        """Return the number of GPUs of any type.

        This is the total, or the sum over the types if there is no total.
        """
        typed = [text for name, text in tres.items() if name.startswith("gres/gpu:")]
        gpus = sum(
            self._parse_whole_number("gres/gpu", text) for text in ([tres["gres/gpu"]] if "gres/gpu" in tres else typed)
        )
        if gpus < 0:
            raise self._make_error("gres/gpu", gpus, "must not be negative")
        return gpus

    def _parse_tres(self, text: str) -> dict[str, str]:
        pairs = (part.partition("=") for part in text.split(",") if part)
        return {name: value for name, _, value in pairs}

    def _parse_memory_mib(self, text: str) -> int:
        match = _MEMORY_PATTERN.match(text)
        if not match:
            raise self._make_error("mem", text, "must be a number followed by K, M, G, T or P")
        mib = -(-float(match[1]) * _MIB_PER_UNIT[match[2]] // 1)
        if not mib <= MAX_AMOUNT:  # NaN if the number has too many digits
            raise self._make_error("mem", text, f"must be at most {MAX_AMOUNT:,} MiB")
        return int(mib)

    # ------------------------------------------------------------------------------------------ fields

    def _get_field(self, fields: list[str], name: str) -> str:
        at = self._at[name]
        return "" if at is None else fields[at]

    def _intern_field(self, fields: list[str], name: str) -> str:
        """Return a field as an interned string, because many jobs share values."""
        return intern(self._get_field(fields, name))

    def _parse_whole_number(self, field: str, text: str) -> int:
        """Return a whole number.

        sacct may print 1024 as 1K, and an exported table may contain 16.0 for 16.
        """
        if text.isdecimal() and len(text) < _MAX_DIGITS:
            return int(text)
        match = _COUNT_PATTERN.match(text)
        amount = float(match[1] + (match[2] or "")) * 1024 ** " KMGTP".index(match[3] or " ") if match else 0.5
        if not amount.is_integer():
            raise self._make_error(field, text, "must be a whole number")
        return int(amount)


REGISTRATIONS = (
    Registration(
        "sacct", "Slurm accounting data: `sacct --parsable2 --allocations`.", "Slurm; Open XDMoD", SacctReader
    ),
)
