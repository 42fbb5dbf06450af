"""What every trace reader yields: a job in the project's units that still asks in the words of its trace.

A system (`cpsched_sim.systems.system_file`) turns what a record asks for into units on nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cpsched.formatting import many
from cpsched.model import Job, Request
from cpsched_sim.errors import InvalidTrace
from cpsched_sim.input.input_limits import (
    MAX_FIELD_CHARS,
    MAX_HEADER_CHARS,
    MAX_HEADER_LINES,
    MAX_ID,
    MAX_JOBS,
    MAX_LINE_CHARS,
    MAX_LINES_ASIDE,
    MAX_TIME_S,
)
from cpsched_sim.input.text_lines import lines_of
from cpsched_sim.traces.trace_job import TraceJob


class CountRequest(NamedTuple):
    """So many processors, wherever they are. Memory is MiB per processor, 0 where the trace does not tell."""

    processors: int
    requested_mib: int = 0
    used_mib: int = 0
    partition: str = ""


class NodeRequest(NamedTuple):
    """Identical units with named amounts per unit, e.g. (("cores", 4), ("gpus", 1)); amounts of zero are left out."""

    units: int
    each: tuple[tuple[str, int], ...]
    distinct: bool = False
    exclusive: bool = False
    partition: str = ""


ResourceRequest = CountRequest | NodeRequest


class TraceRecord(NamedTuple):
    """One job of a trace. Names are "" where the trace has none.

    `start_s` is when the job really started, None where the trace does not tell; `nodes` where it ran, as Slurm spells
    lists of nodes. `qos` and `reservation` are what it was submitted under. `soft_walltime_s` is what the site expected
    it to take, and `power_w` what it drew in the mean, None where the trace does not tell.
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

    def with_request(self, request: Request) -> TraceJob:
        """The job, asking for `request`: what `ask` means on a system."""
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


_NO_JOB = ("", ";", "#")
"""How lines begin that are blank, or comments in one of the formats."""
_WORDS = ("user", "name", "queue", "account")
"""The last fields of a record."""


MOST_REASONS = 10
"""Reasons of one kind that are told each; of those beyond, how many there are."""
MOST_EXAMPLES = 5
"""Broken lines that are told word by word."""


class ReaderTally:
    """What a reader did to the lines of its file, by reason: jobs dropped, jobs cut, lines skipped by leniency."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        """What was passed over in lines that were read."""
        self.taken: Counter[str] = Counter()
        """What was taken for granted in jobs that were read."""
        self.read = 0
        """Lines that could be read, whether or not a job came of it."""
        self.broken = 0
        """Lines that could not be read, all of which are in `skipped`, too."""
        self.examples: list[str] = []
        """The first of them, each with its line and the rule that it breaks."""

    def skip(self, error: InvalidTrace) -> None:
        """Count a line that cannot be read."""
        self.broken += 1
        self.skipped[f"{error.field} {error.rule}"] += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(str(error))

    def lines(self, left_out: bool = True) -> list[str]:
        """One sentence for each reason, with its count; the first broken lines as they are.

        `left_out`: also of what was left out, jobs dropped and lines skipped.
        """
        kinds = [("cut", self.cut)]
        if left_out:
            kinds = [("dropped", self.dropped), *kinds, ("skipped", self.skipped)]
        notes = [line for kind, reasons in kinds for line in _told(kind, "job", reasons)]
        notes += [f"broken: {example}" for example in self.examples]
        return [*notes, *_told("ignored in", "line", self.ignored), *_told("in", "job", self.taken)]


def _told(verb: str, one: str, reasons: Counter[str]) -> list[str]:
    """A sentence for each of the most frequent reasons, in the order of the alphabet."""
    shown = sorted(reasons.most_common(MOST_REASONS))
    notes = [f"{verb} {many(count, one)}: {why}" for why, count in shown]
    if more := reasons.total() - sum(count for _, count in shown):
        notes.append(f"{verb} {many(more, one)}: {many(len(reasons) - len(shown), 'other reason')}")
    return notes


class Reader:
    """A trace file opened for reading: its header at once, its jobs as they are asked for.

    A format is a class derived from this one, in a file of this folder that lists it in `LISTED`. `header` is filled
    by `__init__`; `recognises` and `_record` are what a format has to write, and `_lines` where a file has a header.
    """

    @classmethod
    def recognises(cls, first: str) -> bool:
        """Whether a file whose first line with anything in it is `first` is of this format."""
        return False

    def __init__(self, path: Path, lenient: bool = False) -> None:
        self.path = path
        self.resources: tuple[str, ...] = ("processors",)
        """What jobs may ask for by name; processors where they ask for processors alone."""
        self.lenient = lenient
        self.header: dict[str, str] = {}
        self.tally = ReaderTally()
        self.line = 0
        """Number of the line that was read last."""
        self._aside = self._header_lines = self._header_chars = 0

    def __iter__(self) -> Iterator[TraceRecord]:
        """The jobs in file order. Raises `InvalidTrace`, or skips and counts where lenient."""
        seen: set[int] = set()
        for number, text in self._lines():
            self.line = number
            try:
                if len(text) > MAX_LINE_CHARS:
                    raise self._too_long(text)
                record = self._record(text)
                if record is not None:
                    self._check(record, text)
                    if record.id in seen:
                        raise self._wrong("job", record.id, "must appear once")
            except InvalidTrace as error:
                if not self.lenient:
                    raise
                self.tally.skip(error)
                self._pass_over()
                continue
            if record is None:
                self.tally.read += 1
                if text.lstrip()[:1] in _NO_JOB:
                    self._pass_over()
                continue
            seen.add(record.id)
            if len(seen) > MAX_JOBS:
                raise self._wrong("jobs", f"{len(seen):,}", f"must not be more than {MAX_JOBS:,}")
            self.tally.read += 1
            yield record

    def _pass_over(self) -> None:
        """Count one more line without a job. Raises `InvalidTrace` where there are more than any real trace has."""
        self._aside += 1
        if self._aside > MAX_LINES_ASIDE:
            raise self._wrong("lines", f"{self._aside:,} without a job", f"must not be more than {MAX_LINES_ASIDE:,}")

    def _keeps(self, text: str) -> bool:
        """Whether one more line of the header is kept."""
        self._header_lines += 1
        self._header_chars += len(text)
        return self._header_lines <= MAX_HEADER_LINES and self._header_chars <= MAX_HEADER_CHARS

    def _too_long(self, text: str) -> InvalidTrace:
        return self._wrong("line", text, f"must not be longer than {MAX_LINE_CHARS:,} characters")

    def _check(self, record: TraceRecord, text: str) -> None:
        """Bounds that hold in every format. Amounts are checked where a system gives them a meaning."""
        id, submit_s, run_s, walltime_s = record[:4]
        if not -MAX_ID <= id <= MAX_ID:
            raise self._wrong("job", id, f"must be within {MAX_ID:,}")
        if not (0 <= submit_s <= MAX_TIME_S and 0 < run_s <= MAX_TIME_S and 0 < walltime_s <= MAX_TIME_S):
            times = {"submit_s": submit_s, "run_s": run_s, "walltime_s": walltime_s}
            least = {"submit_s": 0, "run_s": 1, "walltime_s": 1}
            name = next(name for name, value in times.items() if not least[name] <= value <= MAX_TIME_S)
            raise self._wrong(name, times[name], f"must be from {least[name]} to {MAX_TIME_S:,}")
        if record.start_s is not None and not submit_s <= record.start_s <= MAX_TIME_S:
            raise self._wrong("start_s", record.start_s, f"must be from submit_s={submit_s} to {MAX_TIME_S:,}")
        if len(text) > MAX_FIELD_CHARS:
            for name in _WORDS:
                if len(word := getattr(record, name)) > MAX_FIELD_CHARS:
                    raise self._wrong(name, word, f"must not be longer than {MAX_FIELD_CHARS:,} characters")

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Numbered lines that may hold a job: all of the file, unless a format says otherwise."""
        return lines_of(self.path)

    def _record(self, text: str) -> TraceRecord | None:
        """The job of a line; None where it holds none, or one that was dropped and counted."""
        raise NotImplementedError

    def _recorded_s(self, submit_s: int, start_s: int) -> int | None:
        """The start as recorded, if that is possible; else None, which is counted."""
        if start_s >= submit_s:
            return start_s
        self.tally.taken["the start is before the submission, and does not count as recorded"] += 1
        return None

    def _unlimited_s(self, run_s: int) -> int:
        """The walltime of a job without a limit, which is counted."""
        self.tally.taken["walltime is the run time, since no limit is told"] += 1
        return run_s

    def _wrong(self, field: str, value: object, rule: str) -> InvalidTrace:
        return InvalidTrace(self.path, self.line, field, value, rule)
