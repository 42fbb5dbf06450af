"""Read Slurm accounting data: the lines of `sacct --parsable2 --allocations --duplicates`.

`cpsched_sim.traces.accounting_columns` determines the columns; a `TraceDialect` has the user's options.

- A job arrives when it became eligible, which is later than its submission if it waited for a date, another job or its
release. It arrives at submission if Eligible is unknown or the user selects that.
- run_s is End - Start, start_s is Start. Jobs that never started or have not ended are dropped and counted by State. A
run longer than its limit is not cut.
- walltime_s is Timelimit, or the run time if a job has no limit (UNLIMITED, Partition_Limit, empty). Any other text is
an error, and so is a plain number: minutes belong in TimelimitRaw.
- A job with N nodes requests N units on distinct nodes, each with its share (rounded up) of the allocated CPUs
  (`cores`), memory (`memory_mib`) and GPUs (`gpus`, gres/gpu of any type).
- Partition and queue are Slurm's partition; job steps are dropped.
- Each run of a requeued job is a separate job, and so is each component of a heterogeneous job.

A line with too few fields is joined with the next, since a job name may contain line breaks. A further header line sets
the order of the columns below it. The file must have the jobs of one cluster only.

Job numbers are Slurm's. With several runs, or without JobIDRaw, they are generated (`number_of`,
`cpsched_sim.traces.job_runs`). A missing user, account or name is "".

Times are local times without a zone. They are read as UTC unless the zone is given (see
`cpsched_sim.traces.timestamps`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from sys import intern

from typing_extensions import override

from cpsched.errors import InvalidValue
from cpsched.registration import Registration
from cpsched_sim.input.input_limits import MAX_AMOUNT
from cpsched_sim.input.text_lines import lines_of
from cpsched_sim.traces.accounting_columns import COLUMNS_READ, AccountingColumns, is_aligned, separator_of
from cpsched_sim.traces.job_runs import FURTHER_RUN, READ_BEFORE, TASKS, UNDER_ONE_NUMBER, JobRunNumbering
from cpsched_sim.traces.slurm_durations import duration_s, is_number, number_s
from cpsched_sim.traces.timestamps import HOUR_S, UNKNOWN, PossibleTimes, possible_times, resolve_times, zone_of
from cpsched_sim.traces.trace_dialect import DEFAULT_DIALECT, TraceDialect
from cpsched_sim.traces.trace_record import TraceReader, TraceRecord, UnitsRequest

_MIB_PER = {"": 1 / 1024**2, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MEMORY = re.compile(r"(\d+(?:\.\d*)?)([KMGTP]?)$", re.ASCII)
_COUNT = re.compile(r"(-?\d{1,18})(\.\d{1,6})?([KMGTP]?)$", re.ASCII)
_NUMBER = re.compile(r"(\d{1,4000})(?:([_+])(\d{1,7})|_\[[^|]*\]?)?$", re.ASCII)
_LONG = 4000
"""Digits that Python accepts in a number."""
_COMPONENTS = 9 * 10**6
"""Offset of the components of heterogeneous jobs: -79000001 is component 1 of job 7. No array has that many tasks."""
_TIMES = ("Submit", "Eligible", "Start", "End")
_ASKED = ("Partition", "NNodes", "NCPUS", "ReqTRES", "AllocTRES")
"""The columns that contain a job's request."""
_KNOWN_ASKS = 65_536
"""Cache size for parsed requests; most jobs repeat the request of another."""
Taken = Sequence[str]
"""Assumptions about a job, one sentence each."""
_NO_NUMBER = (
    "a time like 1-02:00:00; minutes belong in TimelimitRaw: rename the column, or use --columns TimelimitRaw=Timelimit"
)
NAME_GOES_ON = "the job name contains a line break, which is read as a space"
OTHER_COLUMNS = "header lines in a different order than the first: used for the lines below them"
_SHORT_STATES = {"R": "RUNNING", "PD": "PENDING", "S": "SUSPENDED", "CG": "COMPLETING", "CA": "CANCELLED"}
"""Job states by squeue's abbreviation."""
_NEVER_RAN = {
    "CANCELLED": "cancelled while waiting",
    "PENDING": "still waiting when the file was made",
    "RUNNING": "still running when the file was made",
    "SUSPENDED": "still running when the file was made",
}


def number_of(text: str) -> int:
    """Return the number of a job from JobIDRaw or JobID; negative for tasks and components. Raise `InvalidValue`.

    Pending array tasks in one line (`7_[3-9%2]`) have the number of the array.
    """
    if text.isdecimal() and text.isascii() and len(text) < _LONG:
        return int(text)
    match = _NUMBER.match(text)
    if not match:
        raise InvalidValue("job", text, "must be a whole number")
    job, kind, part = int(match[1]), match[2], int(match[3] or 0)
    if kind is None:
        return job
    return -(job * TASKS + part + (_COMPONENTS if kind == "+" else 0))


class SacctReader(TraceReader):
    """Accounting data as a trace. It has no machine: replay it on a system file."""

    @classmethod
    @override
    def recognises(cls, first: str) -> bool:
        """Return whether the line is a header or consists of fields separated by `|`."""
        between_bars = first.count("|") > 2 and not first.lstrip().startswith((";", "#"))
        return bool(separator_of(first)) or is_aligned(first) or between_bars

    def __init__(self, path: Path, lenient: bool = False, dialect: TraceDialect = DEFAULT_DIALECT) -> None:
        super().__init__(path, lenient)
        self.resources = ("cores", "memory_mib", "gpus")
        self._dialect, self._zone = dialect, zone_of(dialect.zone)
        self._runs = JobRunNumbering()
        self._asks: dict[UnitsRequest, UnitsRequest] = {}
        self._known_asks = lru_cache(_KNOWN_ASKS)(self._asked)
        self._cluster = ""
        self.line, first = next(((at, text) for at, text in lines_of(path) if text.strip()), (0, ""))
        if is_aligned(first):
            raise self._wrong("columns", first.strip(), "must be separated: run sacct with --parsable2")
        self._use(AccountingColumns.of(first, dialect.columns))

    def _use(self, columns: AccountingColumns) -> None:
        """Use these columns for all following lines."""
        if missing := columns.missing():
            rule = "is missing; add it to sacct's --format, or set its column with --columns NAME=COLUMN"
            raise self._wrong("columns", ", ".join(missing), rule)
        self.columns = columns
        self._at = {name: columns.index_of(name) for name in COLUMNS_READ}
        self._limit_in_minutes = "timelimit" not in columns.at

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield numbered lines, one per job; a job name with line breaks spans several lines of the file."""
        begun: tuple[int, str] | None = None
        for number, text in lines_of(self.path):
            if not text.strip():
                yield number, text
            elif begun is None:
                begun = number, text
            elif self.columns.is_continuation(begun[1], text):
                self.tally.taken[NAME_GOES_ON] += 1
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
            raise self._wrong(error.field, error.value, error.rule) from error
        self._check_cluster(self._get(fields, "Cluster"))
        id_text = self._get(fields, "JobIDRaw")
        if "." in id_text:
            self.tally.dropped["job step"] += 1
            return None
        submit_s, eligible_s, start_s, end_s = self._times(fields)
        run_s = self._run_s(fields, start_s, end_s)
        if run_s is None or start_s is None:
            self._leave_out(fields, (submit_s, eligible_s, start_s, end_s))
            return None
        if submit_s is None:
            raise self._wrong("Submit", self._get(fields, "Submit"), "must be a time")
        id = self._number(id_text, start_s, start_s + run_s, self._get(fields, "NodeList"))
        if id is None:
            self.tally.dropped[READ_BEFORE] += 1
            return None
        return TraceRecord(
            id,
            self._arrival_s(submit_s, eligible_s, start_s),
            run_s,
            self._limit_s(fields) or self._unlimited_s(run_s),
            self._ask(fields),
            self._word(fields, "User"),
            self._word(fields, "JobName"),
            self._word(fields, "Partition"),
            self._word(fields, "Account"),
            self._recorded_s(submit_s, start_s),
            self._word(fields, "NodeList"),
            self._word(fields, "QOS"),
            self._word(fields, "Reservation"),
        )

    def _leave_out(self, fields: list[str], times: Sequence[int | None]) -> None:
        """Count a job that never ran or has not ended; `times` are in the order of `_TIMES`."""
        self.tally.dropped[self._why_not(fields, times[2], times[3])] += 1

    def _apply_header(self, text: str) -> None:
        """Switch to the columns of another header line, which occurs in concatenated files."""
        try:
            if text.strip("\r\n") == self.columns.header:
                return
            if self.columns.by_place and self.columns.is_other(text):
                raise InvalidValue("columns", text.strip(), "must be those of the first line, as --columns lists them")
            columns = AccountingColumns.of(text, self._dialect.columns)
        except InvalidValue as error:
            raise self._wrong(error.field, error.value, error.rule) from error
        if columns.at != self.columns.at or columns.separator != self.columns.separator:
            self.tally.ignored[OTHER_COLUMNS] += 1
            self._use(columns)

    def _check_cluster(self, cluster: str) -> None:
        """Raise `InvalidTrace` if a job is from a different cluster than the previous jobs."""
        if cluster and cluster != self._cluster:
            if self._cluster:
                rule = f"must be {self._cluster}, as above: a replay has one cluster; keep the lines of one"
                raise self._wrong("Cluster", cluster, rule)
            self._cluster = cluster

    # ------------------------------------------------------------------------------------------ times

    def _times(self, fields: list[str]) -> list[int | None]:
        """Return submission, eligibility, start and end; resolve and count ambiguous times at clock changes."""
        found = [self._moments(fields, name) for name in _TIMES]
        for at, before, name in ((2, 0, "Wait"), (3, 2, "Elapsed")):
            if self._at[_TIMES[at]] is None:  # the column is missing, but an alternative exists
                after_s = self._seconds(fields, name)
                found[at] = () if after_s is None else tuple(moment + after_s for moment in found[before])
        if all(len(at) < 2 for at in found):
            return [at[0] if at else None for at in found]
        times, certain = resolve_times(found, self._elapsed_s(fields))
        how = "resolved by Elapsed and the order of times" if certain else "read as the first of the two"
        self.tally.taken[f"a time is in the hour that the clock showed twice, {how}"] += 1
        return times

    def _moments(self, fields: list[str], name: str) -> PossibleTimes:
        try:
            return possible_times(self._get(fields, name), self._zone)
        except InvalidValue as error:
            raise self._wrong(name, error.value, error.rule) from error

    def _elapsed_s(self, fields: list[str]) -> int | None:
        return self._seconds(fields, "Elapsed")

    def _seconds(self, fields: list[str], name: str) -> int | None:
        text = self._get(fields, name)
        return number_s(text, 1) if is_number(text) else self._duration_s(name, text, "seconds, or a time")

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
                    "Elapsed is used, since it differs by an hour from End - Start: the clock changed, so set --zone"
                ] += 1
                run_s = elapsed_s
        return run_s if run_s > 0 else None

    def _why_not(self, fields: list[str], start_s: int | None, end_s: int | None) -> str:
        if start_s is not None and end_s is not None and not self._was_cancelled(fields):
            return "run time below 1 s"
        word = "RUNNING" if start_s is not None and end_s is None else self._state(fields)
        return _NEVER_RAN.get(word, "never started")

    def _state(self, fields: list[str]) -> str:
        word = self._get(fields, "State").strip().partition(" ")[0].rstrip("+").upper()
        return _SHORT_STATES.get(word, word)

    def _was_cancelled(self, fields: list[str]) -> bool:
        return self._state(fields) == "CANCELLED"

    def _arrival_s(self, submit_s: int, eligible_s: int | None, start_s: int) -> int:
        if self._dialect.arrival == "submit" or eligible_s is None or not submit_s < eligible_s <= start_s:
            return submit_s
        self.tally.taken["arrival is Eligible, which is later than Submit"] += 1
        return eligible_s

    def _limit_s(self, fields: list[str]) -> int | None:
        text = self._get(fields, "Timelimit")
        if not self._limit_in_minutes:
            return self._duration_s("Timelimit", text, _NO_NUMBER)
        return number_s(text, 60) if is_number(text) else self._duration_s("TimelimitRaw", text, "minutes, or a time")

    def _duration_s(self, field: str, text: str, form: str) -> int | None:
        """Return a duration in seconds, or None if the job has no limit."""
        try:
            return duration_s(text)
        except ValueError:
            raise self._wrong(field, text, f"must be {form}") from None

    # ------------------------------------------------------------------------------------------ numbers

    def _number(self, text: str, start_s: int, end_s: int, nodes: str) -> int | None:
        """Return the job's number, a generated number for a further run, or None for a run already read."""
        id = self._told_number(text)
        try:
            run, is_task = self._runs.number(id, start_s, end_s, nodes)
        except InvalidValue as error:
            raise self._wrong(error.field, text, error.rule) from error
        if run is not None and run != id:
            self.tally.taken[UNDER_ONE_NUMBER if is_task else FURTHER_RUN] += 1
        return run

    def _told_number(self, text: str) -> int:
        try:
            return number_of(text)
        except InvalidValue as error:
            raise self._wrong("JobIDRaw" if "jobidraw" in self.columns.at else "JobID", text, error.rule) from error

    # ------------------------------------------------------------------------------------------ amounts

    def _ask(self, fields: list[str]) -> UnitsRequest:
        """Return the request of a job, and count the assumptions made."""
        ask, taken = self._known_asks(*(self._word(fields, name) for name in _ASKED))
        self.tally.taken.update(taken)
        return self._asks.setdefault(ask, ask)

    def _asked(
        self, partition: str, nnodes: str, ncpus: str, req_tres: str, alloc_tres: str
    ) -> tuple[UnitsRequest, Taken]:
        """Parse these texts; return the request and the assumptions made."""
        tres, taken = self._tres(req_tres) | self._tres(alloc_tres), list[str]()
        nodes = self._nodes(tres.get("node") or nnodes, taken)
        cores = self._whole("NCPUS", tres.get("cpu") or ncpus)
        if nodes < 1 or cores < 1:
            raise self._wrong("NNodes, NCPUS", (nodes, cores), "must be positive")
        gpus = self._gpus(tres)
        totals = {"cores": cores, "memory_mib": self._mib(tres.get("mem", "0")), "gpus": gpus}
        each = tuple((name, -(-total // nodes)) for name, total in totals.items() if total)
        return UnitsRequest(nodes, each, distinct=nodes > 1, partition=partition), taken

    def _nodes(self, text: str, taken: list[str]) -> int:
        """Return the number of nodes, or 1 if unknown, which is recorded in `taken`."""
        if text.lower() not in UNKNOWN:
            return self._whole("NNodes", text)
        taken.append("the number of nodes is missing: read as 1")
        return 1

    def _gpus(self, tres: dict[str, str]) -> int:
        """Return the number of GPUs of any type: the total, or the sum over the types if there is no total."""
        typed = [text for name, text in tres.items() if name.startswith("gres/gpu:")]
        gpus = sum(self._whole("gres/gpu", text) for text in ([tres["gres/gpu"]] if "gres/gpu" in tres else typed))
        if gpus < 0:
            raise self._wrong("gres/gpu", gpus, "must not be negative")
        return gpus

    def _tres(self, text: str) -> dict[str, str]:
        pairs = (part.partition("=") for part in text.split(",") if part)
        return {name: value for name, _, value in pairs}

    def _mib(self, text: str) -> int:
        match = _MEMORY.match(text)
        if not match:
            raise self._wrong("mem", text, "must be a number followed by K, M, G, T or P")
        mib = -(-float(match[1]) * _MIB_PER[match[2]] // 1)
        if not mib <= MAX_AMOUNT:  # NaN if the number has too many digits
            raise self._wrong("mem", text, f"must not be more than {MAX_AMOUNT:,} MiB")
        return int(mib)

    # ------------------------------------------------------------------------------------------ fields

    def _get(self, fields: list[str], name: str) -> str:
        at = self._at[name]
        return "" if at is None else fields[at]

    def _word(self, fields: list[str], name: str) -> str:
        """Return a field as an interned string, since many jobs share the same text."""
        return intern(self._get(fields, name))

    def _whole(self, field: str, text: str) -> int:
        """Return a whole number; sacct prints 1024 as 1K, and tables may contain 16.0 for 16."""
        if text.isdecimal() and len(text) < _LONG:
            return int(text)
        match = _COUNT.match(text)
        amount = float(match[1] + (match[2] or "")) * 1024 ** " KMGTP".index(match[3] or " ") if match else 0.5
        if not amount.is_integer():
            raise self._wrong(field, text, "must be a whole number")
        return int(amount)


LISTED = (
    Registration(
        "sacct", "Slurm accounting data: `sacct --parsable2 --allocations`.", "Slurm; Open XDMoD", SacctReader
    ),
)
