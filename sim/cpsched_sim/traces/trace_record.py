"""The record that all trace readers create: a job with its request.

A system (`cpsched_sim.systems.system_file`) converts the request to units on nodes. `TraceDialect` contains the user's
options for accounting data: `--columns`, `--zone` and `--arrival`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from cpsched.errors import require
from cpsched.formatting import format_count
from cpsched.model import Job, Request
from cpsched_sim.errors import InvalidTrace
from cpsched_sim.input.input_limits import (
    MAX_FIELD_CHARS,
    MAX_HEADER_CHARS,
    MAX_HEADER_LINES,
    MAX_ID,
    MAX_JOBS,
    MAX_LINE_CHARS,
    MAX_LINES_WITHOUT_JOB,
    MAX_TIME_S,
)
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.traces.slurm_times import parse_time_zone
from cpsched_sim.traces.trace_jobs import TraceJob


class ProcessorCountRequest(NamedTuple):
    """A request for processors on any nodes.

    Memory is in MiB per processor, or 0 if unknown.
    """

    processors: int
    requested_mib: int = 0
    used_mib: int = 0
    partition: str = ""


class UnitsRequest(NamedTuple):
    """Equal units with named nonzero amounts, such as (("cores", 4), ("gpus", 1))."""

    units: int
    each: tuple[tuple[str, int], ...]
    distinct: bool = False
    exclusive: bool = False
    partition: str = ""


ResourceRequest = ProcessorCountRequest | UnitsRequest


class TraceRecord(NamedTuple):
    """One job of a trace. Missing names are "".

    `start_s` is the actual start, and `nodes` a Slurm hostlist. `qos` and `reservation` are those requested at
    submission. `soft_walltime_s` is the run time that the site expected, and `power_w` the mean power. Unknown values
    are None.
    """

    id: int
    submit_s: int
    run_s: int
    walltime_s: int
    ask: ResourceRequest
    user: str = ""
    name: str = ""
    queue: str = ""
    account: str = ""
    start_s: int | None = None
    nodes: str = ""
    qos: str = ""
    reservation: str = ""
    soft_walltime_s: int | None = None
    power_w: int | None = None

    def to_trace_job(self, request: Request) -> TraceJob:
        """Return the job with `request`, which is `ask` converted for a system."""
        job = Job(
            id=self.id,
            submit_s=self.submit_s,
            walltime_s=self.walltime_s,
            request=request,
            user=self.user,
            name=self.name,
            queue=self.queue,
            account=self.account,
        )
        return TraceJob(job, self.run_s, self.start_s, self.soft_walltime_s, self.power_w)


_NO_JOB_PREFIXES = ("", ";", "#")
"""Prefixes of blank lines and comments in any format."""
_TEXT_FIELDS = ("user", "name", "queue", "account")
"""The text fields of a record whose length is checked."""


MISSING_LIMIT_NOTE = "walltime is the run time, because the limit is missing"
"""The assumption made for a job without a limit."""
MAX_REASONS = 10
"""Maximum number of reasons to list for each kind of count."""
MAX_EXAMPLES = 5
"""Maximum number of invalid lines to quote."""


SEARCHED_LINES = 20
"""Number of lines in which to look for the format and the columns if the first lines are damaged."""


class TraceReaderCounts:
    """A reader's counts by reason: dropped jobs, cut jobs, skipped lines, assumptions."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        """Number of lines with ignored information, by kind of information."""
        self.taken: Counter[str] = Counter()
        """Number of jobs read with an assumption, by assumption."""
        self.read = 0
        """Number of readable lines, with or without a job."""
        self.broken = 0
        """Number of unreadable lines, all of which are also counted in `skipped`."""
        self.examples: list[str] = []
        """The first invalid lines, each with its number and the rule that it breaks."""

    def count_unreadable_line(self, error: InvalidTrace) -> None:
        """Count an unreadable line."""
        self.broken += 1
        self.skipped[f"{error.field} {error.rule}"] += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(str(error))

    def to_sentences(self, left_out: bool = True) -> list[str]:
        """Return the counts by reason as sentences, and the first invalid lines.

        With `left_out`, include dropped jobs and skipped lines.
        """
        kinds = [("cut", self.cut)]
        if left_out:
            kinds = [("dropped", self.dropped), *kinds, ("skipped", self.skipped)]
        notes = [line for kind, reasons in kinds for line in _format_reason_counts(kind, "job", reasons)]
        notes += [f"broken: {example}" for example in self.examples]
        return [
            *notes,
            *_format_reason_counts("ignored in", "line", self.ignored),
            *_format_reason_counts("in", "job", self.taken),
        ]


def _format_reason_counts(verb: str, one: str, reasons: Counter[str]) -> list[str]:
    """Return a sentence for each of the most frequent reasons, in alphabetical order."""
    shown = sorted(reasons.most_common(MAX_REASONS))
    notes = [f"{verb} {format_count(count, one)}: {why}" for why, count in shown]
    if more := reasons.total() - sum(count for _, count in shown):
        notes.append(f"{verb} {format_count(more, one)}: {format_count(len(reasons) - len(shown), 'other reason')}")
    return notes


class TraceReader:
    """A trace file opened for reading.

    The constructor reads the header. Iteration reads the jobs.

    A format is a subclass in a module of this package that lists it in `REGISTRATIONS`. Its `__init__` fills `header`.
    It must implement `recognises` and `_record`, and also `_lines` if the format has a header.
    """

    @classmethod
    def recognises(cls, first: str) -> bool:
        """Return whether a file with this first non-blank line has the format."""
        return False

    @classmethod
    def recognises_later(cls, line: str) -> bool:
        """Return whether a line shows the format although no format recognises the lines before it."""
        return False

    def __init__(self, path: Path, lenient: bool = False) -> None:
        self.path = path
        self.resources: tuple[str, ...] = ("processors",)
        """The resources that jobs may request; `processors` if jobs request only processors."""
        self.lenient = lenient
        self.header: dict[str, str] = {}
        self.tally = TraceReaderCounts()
        self.squeue_ids: dict[int, str] = {}
        """The job id in `squeue`, such as 12_3, of each job read under a different number."""
        self.line = 0
        """Number of the last line read."""
        self._lines_without_job = self._header_lines = self._header_chars = 0

    def __iter__(self) -> Iterator[TraceRecord]:
        """Yield the jobs in file order.

        Raise `InvalidTrace` for an invalid line; a lenient reader skips and counts it.
        """
        seen: set[int] = set()
        for number, text in self._lines():
            self.line = number
            try:
                record = self.read_line(text)
                if record is not None and record.id in seen:
                    raise self._make_error("job", record.id, "must occur only once")
            except InvalidTrace as error:
                self._raise_or_count(error)
                continue
            if record is None:
                self.count_jobless_line(text)
                continue
            seen.add(record.id)
            if len(seen) > MAX_JOBS:
                raise self._make_error("jobs", f"{len(seen):,}", f"must be at most {MAX_JOBS:,}")
            self.tally.read += 1
            yield record

    def read_line(self, text: str) -> TraceRecord | None:
        """Return the job on line `self.line`, or None if there is none.

        Raise `InvalidTrace` if the line is invalid.
        """
        if len(text) > MAX_LINE_CHARS:
            raise self._make_too_long_error(text)
        record = self._record(text)
        if record is not None:
            self._check_bounds(record, text)
        return record

    def count_jobless_line(self, text: str) -> None:
        """Count a line without a job. Raise `InvalidTrace` if there are too many."""
        self.tally.read += 1
        if text.lstrip()[:1] in _NO_JOB_PREFIXES:
            self._count_line_without_job()

    def _raise_or_count(self, error: InvalidTrace) -> None:
        """Raise the error of an unreadable line. If the reader is lenient, count the line instead."""
        if not self.lenient:
            raise error
        self.tally.count_unreadable_line(error)
        self._count_line_without_job()

    def _count_line_without_job(self) -> None:
        """Count one more line without a job. Raise `InvalidTrace` if there are too many."""
        self._lines_without_job += 1
        if self._lines_without_job > MAX_LINES_WITHOUT_JOB:
            raise self._make_error(
                "lines", f"{self._lines_without_job:,} without a job", f"must be at most {MAX_LINES_WITHOUT_JOB:,}"
            )

    def _may_store_header_line(self, text: str) -> bool:
        """Return whether one more header line may be stored."""
        self._header_lines += 1
        self._header_chars += len(text)
        return self._header_lines <= MAX_HEADER_LINES and self._header_chars <= MAX_HEADER_CHARS

    def _make_too_long_error(self, text: str) -> InvalidTrace:
        return self._make_error("line", text, f"must not be longer than {MAX_LINE_CHARS:,} characters")

    def _check_bounds(self, record: TraceRecord, text: str) -> None:
        """Check bounds for every format. Amounts are later checked against a system."""
        id, submit_s, run_s, walltime_s = record[:4]
        if not -MAX_ID <= id <= MAX_ID:
            raise self._make_error("job", id, f"must be from -{MAX_ID:,} to {MAX_ID:,}")
        if not (0 <= submit_s <= MAX_TIME_S and 0 < run_s <= MAX_TIME_S and 0 < walltime_s <= MAX_TIME_S):
            times = {"submit_s": submit_s, "run_s": run_s, "walltime_s": walltime_s}
            least = {"submit_s": 0, "run_s": 1, "walltime_s": 1}
            name = next(name for name, value in times.items() if not least[name] <= value <= MAX_TIME_S)
            raise self._make_error(name, times[name], f"must be from {least[name]} to {MAX_TIME_S:,}")
        if record.start_s is not None and not submit_s <= record.start_s <= MAX_TIME_S:
            raise self._make_error("start_s", record.start_s, f"must be from submit_s={submit_s} to {MAX_TIME_S:,}")
        if len(text) > MAX_FIELD_CHARS:
            for name in _TEXT_FIELDS:
                if len(word := getattr(record, name)) > MAX_FIELD_CHARS:
                    raise self._make_error(name, word, f"must not be longer than {MAX_FIELD_CHARS:,} characters")

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield the numbered lines that may contain a job: by default, all lines."""
        return read_text_lines(self.path)

    def _record(self, text: str) -> TraceRecord | None:
        """Return a line's job, or None if it has no job or its job was dropped."""
        raise NotImplementedError

    def _plausible_start_s(self, submit_s: int, start_s: int) -> int | None:
        """Return the recorded start. If it is implausible, count it and return None."""
        if start_s >= submit_s:
            return start_s
        self.tally.taken["the start is before the submission: read as not recorded"] += 1
        return None

    def _walltime_without_limit_s(self, run_s: int) -> int:
        """Return the run time as the walltime of a job without a limit. Count the job."""
        self.tally.taken[MISSING_LIMIT_NOTE] += 1
        return run_s

    def _make_error(self, field: str, value: object, rule: str) -> InvalidTrace:
        return InvalidTrace(self.path, self.line, field, value, rule)


Arrival = Literal["eligible", "submit"]


@dataclass(frozen=True, slots=True)
class TraceDialect:
    """The columns of a table, the zone of its times, and when its jobs arrive."""

    columns: str = ""
    zone: str = ""
    arrival: Arrival = "eligible"

    def __post_init__(self) -> None:
        require(self.arrival in ("eligible", "submit"), "--arrival", self.arrival, "must be eligible or submit")
        parse_time_zone(self.zone)


DEFAULT_DIALECT = TraceDialect()
