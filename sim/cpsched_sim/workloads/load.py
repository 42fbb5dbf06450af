"""From a file to a workload: whatever the format, jobs with requests, in order of arrival, on one system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path

from cpsched.catalogue import Catalogue
from cpsched.errors import InvalidValue
from cpsched.listing import Listing
from cpsched.model import Cluster
from cpsched_sim.errors import InvalidTrace, Unusable
from cpsched_sim.systems.system import System, SystemFile, load_system
from cpsched_sim.traces.job import TraceJob
from cpsched_sim.traces.record import Reader, Record, open_text


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace ready for replay: jobs in order of arrival (ties in file order), and the cluster they ask for."""

    name: str
    system: str
    cluster: Cluster
    jobs: list[TraceJob]
    header: Mapping[str, str]
    notes: tuple[str, ...]
    """What was dropped, cut and skipped, one sentence per reason."""


FORMATS: Catalogue[Reader] = Catalogue("trace format", "cpsched.formats", Reader, ("cpsched_sim.traces",))
"""The formats by name: every module of `cpsched_sim.traces` that lists one, and those of plug-ins."""
UNRECOGNISED = "swf"
"""The format of a file that none recognises: its reader says what is wrong with the first line."""


def open_trace(path: Path, lenient: bool = False, format: str | None = None) -> Reader:
    """A reader for the file: of `format`, or of the format that the file turns out to have.

    Raises `UnknownName` or `Unloadable` for a format that is not there, `Unusable` for a file that cannot be read.
    """
    listing = FORMATS.find(format) if format is not None else _recognised(_first_line(path))
    return FORMATS.checked(listing.factory(path, lenient), listing.name)


def _first_line(path: Path) -> str:
    """The first line that is not blank."""
    with open_text(path) as file:
        try:
            return next((line for line in file if line.strip()), "")
        except (EOFError, OSError) as error:
            raise Unusable(f"{path}: cannot be read: {error}") from error


def _recognised(first: str) -> Listing:
    """The format that knows its first line: of the project, then of plug-ins, where a broken one is passed over."""
    for known in FORMATS.all():
        if isinstance(known, Listing) and getattr(known.factory, "recognises", _nothing)(first):
            return known
    return FORMATS.find(UNRECOGNISED)


def _nothing(first: str) -> bool:
    return False


def load(
    path: str | PathLike[str],
    system: str | SystemFile | None = None,
    lenient: bool = False,
    max_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    format: str | None = None,
) -> Workload:
    """Read a trace for a system: a name, a file, or what the trace says of itself (else `pool`).

    `format` is a name or `package.module:Class`; without one the file's first line tells.

    Raises `InvalidTrace` with file and line where a job breaks a rule or could never fit, unless `lenient`.
    `progress` is told the number of jobs read, now and then.
    """
    path = Path(path)
    reader = open_trace(path, lenient, format)
    file = system if isinstance(system, SystemFile) else load_system(system or reader.header.get("system", "pool"))
    target = System(file, reader.header)
    jobs: list[TraceJob] = []
    for record in reader:
        job = _job(record, target, reader, path, lenient)
        if job is None:
            continue
        jobs.append(job)
        if progress is not None and len(jobs) % 10_000 == 0:
            progress(len(jobs))
        if len(jobs) == max_jobs:
            break
    if not jobs:
        raise Unusable(f"{path}: no jobs to replay ({'; '.join(reader.tally.lines()) or 'the file has none'})")
    notes = tuple(reader.tally.lines() + _sorted(jobs))
    return Workload(path.name, target.name, target.cluster, jobs, reader.header, notes)


def _job(record: Record, system: System, reader: Reader, path: Path, lenient: bool) -> TraceJob | None:
    try:
        request = system.request(record.ask)
    except InvalidValue as error:
        rule = f"{error.rule} on {system.name}"
        if lenient:
            reader.tally.skipped[f"{error.field} {rule}"] += 1
            return None
        raise InvalidTrace(path, reader.line, error.field, error.value, rule) from error
    return record.with_request(request)


def _sorted(jobs: list[TraceJob]) -> list[str]:
    """Put jobs in order of arrival; a note if they were not."""
    late = sum(b.job.submit_s < a.job.submit_s for a, b in zip(jobs, islice(jobs, 1, None), strict=False))
    if not late:
        return []
    jobs.sort(key=lambda entry: entry.job.submit_s)
    return [f"sorted by submit time: {late} jobs were submitted before the line above theirs"]
