"""Load a workload from a file in any known format.

Its jobs are in order of arrival and have requests for one system.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cpsched.errors import (
    CAUGHT_EXCEPTIONS,
    CHECKED_METHODS,
    CpschedError,
    InvalidValue,
    PluginError,
    UnknownName,
    describe_exception,
    join_abbreviated,
    plugin_source_location,
    require,
)
from cpsched.formatting import format_count
from cpsched.markup import make_markup_element
from cpsched.model import Cluster, EndedJob
from cpsched.registration import Registration
from cpsched.registry import Registry
from cpsched_sim.data_frames import jobs_to_frame
from cpsched_sim.errors import InputError, InvalidTrace, UnknownFormat, quote_value
from cpsched_sim.file_io import sha256_of_all
from cpsched_sim.input.file_type_guess import sniff_file
from cpsched_sim.input.text_line_reader import dated_files, has_dated_files
from cpsched_sim.site.policy_file import SitePolicyFile, load_site_policy_file
from cpsched_sim.systems.system_file import InfiniteCapacitySystem, System, SystemFile, load_bundled_system, load_system
from cpsched_sim.traces.parquet_trace_reader import PARQUET_KIND, parquet_column_names
from cpsched_sim.traces.pbs_accounting import PbsAccountingReader
from cpsched_sim.traces.sacct_reader import SacctReader
from cpsched_sim.traces.swf import SwfReader
from cpsched_sim.traces.swf_block_reader import read_swf_columns
from cpsched_sim.traces.trace_jobs import ColumnarTrace, TraceJob
from cpsched_sim.traces.trace_record import DEFAULT_DIALECT, SEARCHED_LINES, TraceDialect, TraceReader, TraceRecord
from cpsched_sim.workloads.arrival_date_range import ALL_DATES, ArrivalDateRange, arrival_dates_text, trace_epoch_s

if TYPE_CHECKING:
    from cpsched_sim.data_frames import DataFrame

_SET_SYSTEM = "set a known system or a system file with --system"
_CORRECT_SYSTEM = "correct the system, or omit such jobs with lenient"
ACCOUNTING_READERS = (SacctReader, PbsAccountingReader)
"""Readers for which the user sets options in a `TraceDialect`."""
MAX_INVALID_SHARE = 0.5
"""Maximum share of invalid lines that lenient reading accepts. A larger share suggests a wrong format."""
TOLERATED_INVALID_LINES = 10
"""Number of invalid lines that lenient reading always accepts."""
_MAX_NAMES = 5
"""Maximum number of partitions in a note, or of columns in a message."""


@dataclass(frozen=True, slots=True, repr=False)
class Workload:
    """A trace ready for replay: jobs in order of arrival, and their cluster."""

    name: str
    system: str
    cluster: Cluster
    jobs: Sequence[TraceJob]
    """The constructor stores them in columns."""
    header: Mapping[str, str]
    notes: tuple[str, ...]
    """Notes on dropped jobs, cut jobs and skipped lines, one note per reason."""
    origin: Mapping[str, object] = field(default_factory=dict)
    """Provenance: trace_sha256, system_sha256, max_jobs, lenient. Empty for a workload created in memory."""
    site: SitePolicyFile | None = None
    """The site policy for the replay. Its accounts include the jobs' users."""
    history: tuple[EndedJob, ...] = ()
    """Jobs that ended before the replay. A learning policy learns from them first."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", ColumnarTrace.of(self.jobs))

    def __repr__(self) -> str:
        return f"<Workload {self.name}: {self.summary}>"

    def _repr_html_(self) -> str:
        """Return the summary as HTML for a notebook."""
        return make_markup_element("p", make_markup_element("b", self.name), f": {self.summary}")

    @property
    def summary(self) -> str:
        """Return the number of jobs, the dates and the system in one line."""
        parts = [format_count(len(self.jobs), "job"), arrival_dates_text(self.jobs, trace_epoch_s(self.header))]
        nodes, amount = len(self.cluster.capacity), int(self.cluster.capacity[:, 0].sum())
        parts.append(f"on {self.system}: {format_count(nodes, 'node')}, {amount:,} {self.cluster.resources[0]}")
        return ", ".join(filter(None, parts))

    def between(self, from_: object = "", to: object = "", zone: str = "") -> Workload:
        """Return the jobs that arrive at or after `from_` and before `to`.

        Each bound is a `date`, a `datetime`, or text as for `cpsched simulate --from`: `2012-02-01T12:00`, or `+30d`
        and `+12h` from the first job (in `to`, from the beginning of the range). A bound without a time zone is in
        `zone`, by default UTC. Raise `InvalidValue` for an invalid date, or if the trace has no dates. Raise
        `InputError` if no job remains.
        """
        wanted = ArrivalDateRange(str(from_), str(to), zone)
        epoch_s = trace_epoch_s(self.header)
        if not (jobs := wanted.select_jobs(self.jobs, epoch_s)):
            raise InputError(
                f"{self.name}: no job arrives in that range; the trace covers {arrival_dates_text(self.jobs, epoch_s)}"
            )
        return self._with_selected_jobs(jobs, asdict(wanted))

    def head(self, jobs: int) -> Workload:
        """Return the first `jobs` jobs. Raise `InvalidValue` if `jobs` is less than one."""
        require(jobs > 0, "jobs", jobs, "must be positive")
        return self._with_selected_jobs(self.jobs[:jobs], jobs)

    def job_range(self, from_job: int = 0, jobs: int | None = None) -> Workload:
        """Return at most `jobs` jobs, from index `from_job` on.

        Raise `InputError` if there are none.
        """
        if from_job >= len(self.jobs):
            raise InputError(f"{self.name}: from_job={from_job}: must be below the number of jobs, {len(self.jobs)}")
        part = self.jobs[from_job:] if jobs is None else self.jobs[from_job : from_job + jobs]
        return (
            self
            if len(part) == len(self.jobs)
            else self._with_selected_jobs(part, {"from_job": from_job, "jobs": jobs})
        )

    def _with_selected_jobs(self, jobs: Sequence[TraceJob], cut: object) -> Workload:
        """Return a copy that contains only `jobs`, with `cut` added to its `origin`."""
        parts = [*self.origin.get("parts", ()), cut]  # type: ignore[misc]
        return replace(self, jobs=jobs, origin={**self.origin, "parts": parts})

    def to_frame(self) -> DataFrame:
        """Return the jobs as a pandas frame with one row per job, indexed by job id.

        Raise `InputError` without pandas.

        The columns are those of `Simulation.to_frame()` that require no schedule. All times are in seconds since the
        trace's time 0.
        """
        return jobs_to_frame(self.jobs)


def apply_site_policy(workload: Workload, policy: SitePolicyFile | str | PathLike[str]) -> Workload:
    """Return the workload with a site policy, which is an object or a file.

    The policy sets the jobs' accounts, QOSes and tiers.
    """
    if not isinstance(policy, SitePolicyFile):
        policy = load_site_policy_file(Path(policy))
    site, jobs = policy.with_users_of(workload.jobs)
    return replace(workload, jobs=jobs, site=site, origin={**workload.origin, "policy_sha256": policy.sha256})


FORMATS: Registry[TraceReader] = Registry("trace format", "cpsched.formats", TraceReader, ("cpsched_sim.traces",))
"""The trace formats by name, from the modules of `cpsched_sim.traces` and from plug-ins."""


def open_trace(
    path: Path, lenient: bool = False, format: str | None = None, dialect: TraceDialect = DEFAULT_DIALECT
) -> TraceReader:
    """Open a reader for `format`, or for the detected format.

    A `dialect` with columns selects accounting data, regardless of the first line.

    Raise `UnknownName` or `PluginLoadError` for an unavailable format. Raise `InputError` if the file cannot be read or
    has no known format. The message then contains a guess at the file's type.
    """
    if format is None and dialect.columns:
        return SacctReader(path, lenient, dialect)
    listing = FORMATS.find(format) if format is not None else _detect_format(path)
    if listing.factory in ACCOUNTING_READERS:
        return listing.factory(path, lenient, dialect)
    if dialect != DEFAULT_DIALECT:
        raise InputError(f"{path}: is read as {listing.name}; --columns, --zone and --arrival require accounting data")
    with _convert_format_errors(listing.name):
        return FORMATS.require_valid(listing.factory(path, lenient), listing.name)


@contextmanager
def _convert_format_errors(format: str, reader: TraceReader | None = None) -> Iterator[None]:
    """Convert an unexpected exception from a format to `PluginError`."""
    try:
        yield
    except (CpschedError, OSError, MemoryError):
        raise
    except CAUGHT_EXCEPTIONS as error:
        at = f" at line {reader.line} of {reader.path}" if reader is not None else ""
        place = plugin_source_location(error, reader, CHECKED_METHODS["trace format"])
        raise PluginError("trace format", format, f"{describe_exception(error)}{at}", place) from error


def _detect_format(path: Path) -> Registration:
    """Return the format that recognises the first line.

    The project's own formats are tried before plug-ins.

    If the first lines are damaged, a later line or file determines the format, and the reader reports the damaged
    lines.
    """
    files = dated_files(path) if has_dated_files(path) else [path]
    glance = sniff_file(files[0])
    formats = [known for known in FORMATS.iterate_registrations() if isinstance(known, Registration)]
    if glance.seems == PARQUET_KIND:
        return _detect_table_format(path, formats)
    glances = chain([glance], map(sniff_file, files[1:]))
    lines = chain.from_iterable(each.lines[:SEARCHED_LINES] for each in glances)
    for at, line in enumerate(lines):
        for known in formats:
            if _recognises_line(known, line, "recognises_later" if at else "recognises"):
                return known
    texts, tables = ([known.name for known in formats if _reads_tables(known) is so] for so in (False, True))
    read = f"formats read, also gzipped: {', '.join(texts)}; tables: {', '.join(tables)}"
    raise UnknownFormat(f"{path}: seems to be {glance.seems}, not a trace; {read}")


def _reads_tables(format: Registration) -> bool:
    return hasattr(format.factory, "recognises_columns")


def _detect_table_format(path: Path, formats: Sequence[Registration]) -> Registration:
    """Return the format that recognises a Parquet table's columns.

    Raise `InputError` if none does.
    """
    names = parquet_column_names(path)
    tables = list(filter(_reads_tables, formats))
    for known in tables:
        with _convert_format_errors(known.name):
            if known.factory.recognises_columns(names):  # type: ignore[attr-defined]
                return known
    read = ", ".join(known.name for known in tables)
    raise InputError(
        f"{path}: is {PARQUET_KIND} with the columns {join_abbreviated(names, _MAX_NAMES)}, not a trace; "
        f"tables read: {read}"
    )


def _recognises_line(format: Registration, line: str, method: str) -> bool:
    """Return whether a format's method recognises a line. Raise `PluginError` if the format fails."""
    with _convert_format_errors(format.name):
        return bool(getattr(format.factory, method, _recognise_nothing)(line))


def _recognise_nothing(line: str) -> bool:
    return False


def load(
    path: str | PathLike[str],
    system: str | SystemFile | None = None,
    *,
    lenient: bool = False,
    max_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    format: str | None = None,
    dialect: TraceDialect = DEFAULT_DIALECT,
    between: ArrivalDateRange = ALL_DATES,
) -> Workload:
    """Read a trace for a system: a name, a file, or the trace's own (default `pool`).

    `format` is a name or `package.module:Class`; the default is detected from the first line. `dialect` has options for
    accounting data: columns, time zone and arrival. `between` selects the jobs by date.

    Raise `InvalidTrace` with file and line for a job that breaks a rule or can never fit. With `lenient`, count such
    jobs instead, and raise `InputError` if most lines are invalid. `progress` is called periodically with the number of
    jobs read.
    """
    path = Path(path)
    reader = open_trace(path, lenient, format, dialect)
    found = read_workload(reader, system, max_jobs, progress, between)
    more = {"dialect": asdict(dialect)} if isinstance(reader, ACCOUNTING_READERS) else {}
    return replace(found, origin={"trace_sha256": sha256_of_all(dated_files(path)), **found.origin, **more})


def read_workload(
    reader: TraceReader,
    system: str | SystemFile | None = None,
    max_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    between: ArrivalDateRange = ALL_DATES,
) -> Workload:
    """Read all jobs of an opened trace for a system (see `load`)."""
    target = _load_target_system(system, reader)
    jobs = _read_jobs(reader, target, reader.lenient, max_jobs if between == ALL_DATES else None, progress)
    jobs, late = _sort_by_arrival(jobs)
    notes = (*reader.tally.to_sentences(), *late)
    jobs = _select_date_range(jobs, between, max_jobs, reader)
    origin = {
        "system_sha256": sha256(target.file.model_dump_json().encode()).hexdigest(),
        "max_jobs": max_jobs,
        "lenient": reader.lenient,
        **({"between": asdict(between)} if between != ALL_DATES else {}),
    }
    cluster = replace(target.cluster, epoch_s=trace_epoch_s(reader.header))
    return Workload(quote_value(reader.path.name), target.name, cluster, jobs, reader.header, notes, origin)


def read_jobs(
    reader: TraceReader,
    max_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    between: ArrivalDateRange = ALL_DATES,
) -> Sequence[TraceJob]:
    """Read the jobs of an opened trace in order of arrival, without a system.

    This is for studies without placement.

    The requests only distinguish jobs, for example in predictors. Raise `InvalidTrace` or `InputError`.
    """
    system = InfiniteCapacitySystem(reader.resources)
    jobs = _read_jobs(reader, system, reader.lenient, max_jobs if between == ALL_DATES else None, progress)
    jobs, _ = _sort_by_arrival(jobs)
    return _select_date_range(jobs, between, max_jobs, reader)


def _select_date_range(
    jobs: Sequence[TraceJob], between: ArrivalDateRange, max_jobs: int | None, reader: TraceReader
) -> Sequence[TraceJob]:
    """Return at most `max_jobs` jobs in a date range. Raise `InputError` without jobs."""
    if between == ALL_DATES:
        return jobs
    epoch_s = trace_epoch_s(reader.header)
    if part := between.select_jobs(jobs, epoch_s)[:max_jobs]:
        return part
    raise InputError(
        f"{reader.path}: no job arrives in that range; the trace covers {arrival_dates_text(jobs, epoch_s)}"
    )


def _read_jobs(
    reader: TraceReader,
    target: System,
    lenient: bool,
    max_jobs: int | None,
    progress: Callable[[int], None] | None = None,
) -> Sequence[TraceJob]:
    if (
        type(reader) is SwfReader
        and max_jobs is None
        and (found := _try_read_swf_columns(reader, target, progress)) is not None
    ):
        return found
    jobs: list[TraceJob] = []
    strangers: Counter[str] = Counter()
    with _convert_format_errors(type(reader).__name__, reader):
        for record in reader:
            job = job_from_record(record, target, reader)
            if job is None:
                continue
            jobs.append(job)
            if target.is_unknown_partition(record.ask.partition):
                strangers[record.ask.partition] += 1
            if progress is not None and len(jobs) % 10_000 == 0:
                progress(len(jobs))
            if len(jobs) == max_jobs:
                break
    require_few_invalid_lines(reader)
    if strangers:
        reader.tally.taken[_unknown_partition_hint(strangers, target.name)] = strangers.total()
    if not jobs:
        why = "; ".join(reader.tally.to_sentences()) or "the file has none"
        raise InputError(f"{reader.path}: no jobs to replay ({why})")
    return jobs


def _try_read_swf_columns(
    reader: SwfReader, target: System, progress: Callable[[int], None] | None
) -> ColumnarTrace | None:
    """Return the jobs of an error-free trace in columns.

    Update the reader's counts. For any other trace, return None.
    """
    fresh = SwfReader(reader.path, reader.lenient)
    found = read_swf_columns(fresh, progress)
    if found is None:
        return None
    try:
        jobs = found.to_columnar_trace([target.request(ask) for ask in found.asks])
    except InvalidValue:
        return None
    reader.tally, reader.comments, reader.line = fresh.tally, fresh.comments, fresh.line
    if strangers := found.count_missing_partitions(target.is_unknown_partition):
        reader.tally.taken[_unknown_partition_hint(strangers, target.name)] = strangers.total()
    return jobs


def require_few_invalid_lines(reader: TraceReader) -> None:
    """Raise `InputError` if too many lines are invalid.

    The trace probably has another format.
    """
    tally = reader.tally
    lines = tally.read + tally.broken
    if tally.read and tally.broken > max(TOLERATED_INVALID_LINES, MAX_INVALID_SHARE * lines):
        raise InputError(
            f"{reader.path}: {tally.broken:,} of {format_count(lines, 'line is', 'lines are')} broken, "
            "too many to skip: check the format and the columns. "
            f"The first error: {tally.examples[0]}"
        )


def _unknown_partition_hint(partitions: Counter[str], system: str) -> str:
    names = join_abbreviated([name for name, _ in partitions.most_common()], _MAX_NAMES, text=quote_value)
    return f"the partition ({names}) is not one of {quote_value(system)}: any node may be used"


def _load_target_system(system: str | SystemFile | None, reader: TraceReader) -> System:
    """Return the given system, or the system that the trace names.

    The name in a trace is never opened as a path.
    """
    if system is None and (named := reader.header.get("system")):
        try:
            file = load_bundled_system(named)
        except UnknownName as error:
            raise InputError(f"{reader.path}: the trace is for the system {error.name!r}; {_SET_SYSTEM}") from error
    else:
        file = system if isinstance(system, SystemFile) else load_system(system or "pool")
    try:
        return System(file, reader.header)
    except InvalidValue as error:
        raise InvalidTrace(reader.path, reader.line, error.field, error.value, error.rule) from error


def job_from_record(record: TraceRecord, system: System, reader: TraceReader) -> TraceJob | None:
    """Convert a record to a job for a system.

    If the job cannot fit, raise `InvalidTrace`. If the reader is lenient, count the job and return None instead.
    """
    for name, value in zip(TraceRecord._fields[:4], record, strict=False):
        if type(value) is not int:
            raise TypeError(f"{name}={value!r}: must be an int")
    try:
        return record.to_trace_job(system.request(record.ask))
    except InvalidValue as error:
        rule = f"{error.rule} on {system.name}"
        if reader.lenient:
            reader.tally.skipped[f"{error.field} {rule}"] += 1
            return None
        rule += f" ({_CORRECT_SYSTEM})"
        raise InvalidTrace(reader.path, reader.line, error.field, error.value, rule) from error


def _sort_by_arrival(jobs: Sequence[TraceJob]) -> tuple[Sequence[TraceJob], list[str]]:
    """Return the jobs in order of arrival, and a note if their order has changed."""
    columns = ColumnarTrace.of(jobs)
    late = int(np.count_nonzero(np.diff(columns.submit_s) < 0))
    if not late:
        return jobs, []
    jobs = columns.take(np.argsort(columns.submit_s, kind="stable"))
    return jobs, [
        f"sorted by submit time: {format_count(late, 'job was', 'jobs were')} submitted before the preceding job"
    ]
