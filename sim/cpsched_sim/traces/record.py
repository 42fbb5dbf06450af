"""What every trace reader yields: a job in the project's units that still asks in the words of its trace.

A system (`cpsched_sim.systems.system`) turns what a record asks for into units on nodes.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from cpsched.model import Job, Request
from cpsched_sim.errors import InvalidTrace, Unusable
from cpsched_sim.traces.job import TraceJob


class Processors(NamedTuple):
    """So many processors, wherever they are. Memory is MiB per processor, 0 where the trace does not tell."""

    processors: int
    requested_mib: int = 0
    used_mib: int = 0
    partition: str = ""


class Units(NamedTuple):
    """Identical units with named amounts per unit, e.g. (("cores", 4), ("gpus", 1)); amounts of zero are left out."""

    units: int
    each: tuple[tuple[str, int], ...]
    distinct: bool = False
    exclusive: bool = False
    partition: str = ""


Ask = Processors | Units


class Record(NamedTuple):
    """One job of a trace. Names are "" where the trace has none."""

    id: int
    submit_s: int
    run_s: int
    walltime_s: int
    ask: Ask
    user: str = ""
    name: str = ""
    queue: str = ""
    account: str = ""

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
        return TraceJob(job, self.run_s)


class Tally:
    """What a reader did to the lines of its file, by reason: jobs dropped, jobs cut, lines skipped by leniency."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()

    def lines(self) -> list[str]:
        """One sentence per reason."""
        kinds = (("dropped", self.dropped), ("cut", self.cut), ("skipped", self.skipped))
        return [f"{kind} {count} jobs: {why}" for kind, reasons in kinds for why, count in sorted(reasons.items())]


class Reader:
    """A trace file opened for reading: its header at once, its jobs as they are asked for.

    A format is a class derived from this one, in a file of this folder that lists it in `LISTED`. `header` is filled
    by `__init__`; `_lines` and `_record` are what a format has to write.
    """

    @classmethod
    def recognises(cls, first: str) -> bool:
        """Whether a file whose first line with anything in it is `first` is of this format."""
        return False

    def __init__(self, path: Path, lenient: bool = False) -> None:
        self.path = path
        self.lenient = lenient
        self.header: dict[str, str] = {}
        self.tally = Tally()
        self.line = 0
        """Number of the line that was read last."""

    def __iter__(self) -> Iterator[Record]:
        """The jobs in file order. Raises `InvalidTrace`, or skips and counts where lenient."""
        seen: set[int] = set()
        for number, text in self._lines():
            self.line = number
            try:
                record = self._record(text)
                if record is None:
                    continue
                if record.id in seen:
                    raise self._wrong("job", record.id, "must appear once")
            except InvalidTrace as error:
                if not self.lenient:
                    raise
                self.tally.skipped[f"{error.field} {error.rule}"] += 1
                continue
            seen.add(record.id)
            yield record

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Numbered lines that may hold a job."""
        raise NotImplementedError

    def _record(self, text: str) -> Record | None:
        """The job of a line; None where it holds none, or one that was dropped and counted."""
        raise NotImplementedError

    def _wrong(self, field: str, value: object, rule: str) -> InvalidTrace:
        return InvalidTrace(self.path, self.line, field, value, rule)


def open_text(path: Path) -> IO[str]:
    """The file as text, unpacked if it is gzip (told by its first bytes). Raises `Unusable`."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        if packed:
            return cast(IO[str], gzip.open(path, "rt", encoding="utf-8", errors="replace"))
        return path.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror or error}") from error


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines; a damaged file is an `InvalidTrace` at the line where it breaks off."""
    number = 0
    with open_text(path) as file:
        try:
            for number, text in enumerate(file, start=1):
                yield number, text
        except (EOFError, OSError) as error:
            raise InvalidTrace(path, number + 1, "file", path.name, f"must be readable to its end: {error}") from error
