"""From a file to a workload: whatever the format, jobs with requests, in order of arrival, on one system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from os import PathLike
from pathlib import Path

from cpsched.catalogue import Catalogue
from cpsched.errors import InvalidValue, UnknownName
from cpsched.listing import Listing
from cpsched.model import Cluster
from cpsched_sim.errors import InvalidTrace, Unusable, shown
from cpsched_sim.files import sha256_of
from cpsched_sim.reading.glance import look_at
from cpsched_sim.site.policy_file import SitePolicy, load_policy
from cpsched_sim.systems.system import Boundless, Power, System, SystemFile, load_system, named_system
from cpsched_sim.traces.job import TraceJob
from cpsched_sim.traces.record import Reader, Record
from cpsched_sim.traces.swf import SwfReader

_OTHERS = "name one that is known here, or a system file, with --system"
_LOOKED_AT = 20
"""Lines of which one must look like SWF, where no format recognises the first."""


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
    origin: Mapping[str, object] = field(default_factory=dict)
    """What it was read from: trace_sha256, system_sha256, max_jobs, lenient. Empty where it was made in memory."""
    site: SitePolicy | None = None
    """The policy that it is replayed under, whose accounts hold the users of its jobs."""
    power: Power | None = None
    """The cap of the system, which dispatchers that plan on pools heed."""


def under(workload: Workload, policy: SitePolicy | str | PathLike[str]) -> Workload:
    """The workload under a site's policy (or the one of a file): its jobs have their account, QOS and tier."""
    if not isinstance(policy, SitePolicy):
        policy = load_policy(Path(policy))
    site, jobs = policy.assigned(workload.jobs)
    return replace(workload, jobs=jobs, site=site, origin={**workload.origin, "policy_sha256": policy.sha256})


FORMATS: Catalogue[Reader] = Catalogue("trace format", "cpsched.formats", Reader, ("cpsched_sim.traces",))
"""The formats by name: every module of `cpsched_sim.traces` that lists one, and those of plug-ins."""


def open_trace(path: Path, lenient: bool = False, format: str | None = None) -> Reader:
    """A reader for the file: of `format`, or of the format that the file turns out to have.

    Raises `UnknownName` or `Unloadable` for a format that is not there, `Unusable` for a file that cannot be read or
    that is of no format, saying what it seems to be.
    """
    listing = FORMATS.find(format) if format is not None else _recognised(path)
    return FORMATS.checked(listing.factory(path, lenient), listing.name)


def _recognised(path: Path) -> Listing:
    """The format that knows the file's first line: of the project, then of plug-ins, where a broken one is passed over.

    A file whose first lines are damaged is SWF if one of the others looks like it: the reader then names the line.
    """
    glance = look_at(path)
    formats = [known for known in FORMATS.all() if isinstance(known, Listing)]
    for known in formats:
        if glance.lines and getattr(known.factory, "recognises", _nothing)(glance.lines[0]):
            return known
    if any(SwfReader.looks_like_one(line) for line in glance.lines[:_LOOKED_AT]):
        return FORMATS.find("swf")
    names = ", ".join(known.name for known in formats)
    raise Unusable(f"{path}: seems to be {glance.seems}, no trace; formats read, also gzipped: {names}")


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
    target = _system(system, reader)
    jobs = _jobs(reader, target, lenient, max_jobs, progress)
    notes = tuple(reader.tally.lines() + _sorted(jobs))
    origin = {
        "trace_sha256": sha256_of(path),
        "system_sha256": sha256(target.file.model_dump_json().encode()).hexdigest(),
        "max_jobs": max_jobs,
        "lenient": lenient,
    }
    power = target.file.power
    return Workload(shown(path.name), target.name, target.cluster, jobs, reader.header, notes, origin, power=power)


def load_jobs(
    path: Path, lenient: bool = False, max_jobs: int | None = None, format: str | None = None
) -> list[TraceJob]:
    """The jobs of a trace in order of arrival, for studies that place none: no system is asked for, every job fits.

    Requests tell jobs apart (as predictors do) and mean nothing else. Raises `InvalidTrace`, `Unusable`.
    """
    reader = open_trace(path, lenient, format)
    jobs = _jobs(reader, Boundless(reader.resources), lenient, max_jobs)
    _sorted(jobs)
    return jobs


def _jobs(
    reader: Reader,
    target: System,
    lenient: bool,
    max_jobs: int | None,
    progress: Callable[[int], None] | None = None,
) -> list[TraceJob]:
    jobs: list[TraceJob] = []
    for record in reader:
        job = _job(record, target, reader, lenient)
        if job is None:
            continue
        jobs.append(job)
        if progress is not None and len(jobs) % 10_000 == 0:
            progress(len(jobs))
        if len(jobs) == max_jobs:
            break
    if not jobs:
        why = "; ".join(reader.tally.lines()) or "the file has none"
        raise Unusable(f"{reader.path}: no jobs to replay ({why})")
    return jobs


def _system(system: str | SystemFile | None, reader: Reader) -> System:
    """The system asked for; else the one that the trace names, which is never taken for the path of a file."""
    if system is None and (named := reader.header.get("system")):
        try:
            file = named_system(named)
        except UnknownName as error:
            raise Unusable(f"{reader.path}: the trace is for the system {error.name!r}; {_OTHERS}") from error
    else:
        file = system if isinstance(system, SystemFile) else load_system(system or "pool")
    try:
        return System(file, reader.header)
    except InvalidValue as error:
        raise InvalidTrace(reader.path, reader.line, error.field, error.value, error.rule) from error


def _job(record: Record, system: System, reader: Reader, lenient: bool) -> TraceJob | None:
    try:
        return record.with_request(system.request(record.ask))
    except InvalidValue as error:
        rule = f"{error.rule} on {system.name}"
        if lenient:
            reader.tally.skipped[f"{error.field} {rule}"] += 1
            return None
        raise InvalidTrace(reader.path, reader.line, error.field, error.value, rule) from error


def _sorted(jobs: list[TraceJob]) -> list[str]:
    """Put jobs in order of arrival; a note if they were not."""
    late = sum(b.job.submit_s < a.job.submit_s for a, b in zip(jobs, islice(jobs, 1, None), strict=False))
    if not late:
        return []
    jobs.sort(key=lambda entry: entry.job.submit_s)
    return [f"sorted by submit time: {late} jobs were submitted before the line above theirs"]
