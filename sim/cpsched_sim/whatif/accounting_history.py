"""Read all recorded jobs of a site: those that ran, those cancelled while waiting, and unfinished ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from cpsched.errors import InvalidValue
from cpsched.formatting import format_count
from cpsched_sim.errors import InputError
from cpsched_sim.input.input_limits import MAX_AMOUNT, MAX_TIME_S
from cpsched_sim.traces.job_runs import READ_BEFORE
from cpsched_sim.traces.pbs_accounting import MOVED, PbsAccountingReader, UnfinishedPbsJob
from cpsched_sim.traces.pbs_requests import hosts_of
from cpsched_sim.traces.sacct import SacctReader, Taken
from cpsched_sim.traces.trace_dialect import DEFAULT_DIALECT, TraceDialect
from cpsched_sim.traces.trace_record import ResourceRequest, TraceReader, TraceRecord, UnitsRequest
from cpsched_sim.whatif.licences import TRES, Amounts
from cpsched_sim.workloads.date_range import epoch_of
from cpsched_sim.workloads.load import check_broken, open_trace

NEVER_ELIGIBLE = "cancelled before it was eligible"
GAVE_UP = "cancelled while waiting: in the queue as long as it really was"
STILL_WAITS = "still waiting when the file was made: in the queue until then"
STILL_RUNS = "still running when the file was made: runs until then"
TOLD_LATER = "was still waiting or running in an earlier line of the same job"
OWN_NODES = "had GPUs without asking for any: its nodes are its own"
KNOWN = 65_536
"""Cache size for parsed requests; most jobs repeat the request of another."""


class UnfinishedJobRecord(NamedTuple):
    """A job that never ran or has not ended. Times are in seconds; `start_s` is None if it never started.

    `left_s` is the time of its cancellation, or None if it was still waiting or running when the file was written.
    """

    id: int
    submit_s: int
    walltime_s: int
    ask: ResourceRequest
    user: str
    name: str
    queue: str
    account: str
    qos: str
    start_s: int | None
    left_s: int | None
    nodes: str = ""


@dataclass(slots=True)
class AccountingHistory:
    """All recorded jobs. `first_s` and `last_s` are the first and last times in the file."""

    path: Path
    reader: TraceReader
    ran: list[TraceRecord]
    open: list[UnfinishedJobRecord] = field(default_factory=list)
    licences: Mapping[int, Amounts] = field(default_factory=dict)
    """The requested licences by job number."""

    @property
    def header(self) -> dict[str, str]:
        """Return the header of the file."""
        return self.reader.header

    @property
    def epoch_s(self) -> int:
        """Return the offset of the file's times from 1970 in seconds."""
        return epoch_of(self.header)

    @property
    def last_s(self) -> int:
        """Return the last second that the file covers."""
        ends = [(job.start_s if job.start_s is not None else job.submit_s) + job.run_s for job in self.ran]
        moments = [moment for job in self.open for moment in (job.start_s, job.left_s)]
        return max([*ends, *(moment for moment in moments if moment is not None)])

    def leave_out(self, untrue: Mapping[int, str]) -> None:
        """Drop unfinished jobs, given by number with the reason."""
        tally = self.reader.tally
        for job in self.open:
            if job.id in untrue:
                tally.taken[STILL_WAITS if job.start_s is None else STILL_RUNS] -= 1
                tally.dropped[untrue[job.id]] += 1
        tally.taken = +tally.taken
        self.open = [job for job in self.open if job.id not in untrue]


class SacctUnfinishedJobReader(SacctReader):
    """Accounting data, including jobs that never ran or have not ended."""

    def __init__(self, path: Path, lenient: bool = False, dialect: TraceDialect = DEFAULT_DIALECT) -> None:
        super().__init__(path, lenient, dialect)
        self.open: list[UnfinishedJobRecord] = []
        self._unsettled: list[tuple[UnfinishedJobRecord, int, str, Amounts]] = []
        """Unfinished jobs, each with its submission time, assumptions and licences."""
        self.licences: dict[int, Amounts] = {}
        """The requested licences by job number; jobs without licences are missing."""
        self._licences: Amounts = ()
        self._known_licences = lru_cache(KNOWN)(self._licences_of)

    def _leave_out(self, fields: list[str], times: Sequence[int | None]) -> None:
        submit_s, eligible_s, start_s, end_s = times
        state = self._state(fields)
        runs = start_s is not None and end_s is None and state in ("RUNNING", "SUSPENDED", "COMPLETING")
        waits = state == "PENDING"
        gave_up = state == "CANCELLED" and end_s is not None and not runs
        if submit_s is None or not (runs or waits or gave_up):
            super()._leave_out(fields, times)
            return
        if not runs and eligible_s is None and self._at["Eligible"] is not None and self._dialect.arrival == "eligible":
            self.tally.dropped[NEVER_ELIGIBLE] += 1
            return
        arrival_s = submit_s
        if self._dialect.arrival == "eligible" and eligible_s is not None:
            arrival_s = max(submit_s, eligible_s)
        if end_s is not None and end_s <= arrival_s:
            self.tally.dropped[NEVER_ELIGIBLE] += 1
            return
        limit_s = self._limit_s(fields) or 0
        if limit_s < 1:
            self.tally.dropped["never ran, and has no time limit"] += 1
            return
        taken = STILL_RUNS if runs else STILL_WAITS if waits else GAVE_UP
        job = UnfinishedJobRecord(
            self._told_number(self._get(fields, "JobIDRaw")),
            arrival_s,
            limit_s,
            self._ask(fields),
            self._word(fields, "User"),
            self._word(fields, "JobName"),
            self._word(fields, "Partition"),
            self._word(fields, "Account"),
            self._word(fields, "QOS"),
            start_s if runs else None,
            end_s,
            self._word(fields, "NodeList") if runs else "",
        )
        self._unsettled.append((job, submit_s, taken, self._licences))

    @override
    def __iter__(self) -> Iterator[TraceRecord]:
        """Yield the records; after the last line, add the unfinished jobs."""
        for record in super().__iter__():
            self._keep_licences(record.id)
            yield record
        for job, submit_s, taken, licences in self._unsettled:
            self._licences = licences
            self._settle(job, submit_s, taken)
        self._unsettled.clear()

    def _settle(self, job: UnfinishedJobRecord, submit_s: int, taken: str) -> None:
        """Assign a number to an unfinished job, unless another line records its end or the same state."""
        since_s = submit_s if job.start_s is None else job.start_s
        if job.left_s is None and self._runs.has_begun(job.id, since_s, job.nodes):
            self.tally.dropped[TOLD_LATER] += 1
            return
        try:
            id, _ = self._runs.number(job.id, since_s, job.left_s or 0, job.nodes)
        except InvalidValue as error:
            raise self._wrong(error.field, error.value, error.rule) from error
        if id is None:
            self.tally.dropped[READ_BEFORE] += 1
            return
        self.tally.taken[taken] += 1
        self.open.append(job._replace(id=id))
        self._keep_licences(id)

    def _keep_licences(self, id: int) -> None:
        """Store the licences of the line just read."""
        if self._licences:
            self.licences[id] = self._licences

    def _ask(self, fields: list[str]) -> UnitsRequest:
        self._licences = self._known_licences(self._get(fields, "ReqTRES"), self._get(fields, "AllocTRES"))
        return super()._ask(fields)

    def _licences_of(self, req_tres: str, alloc_tres: str) -> Amounts:
        """Return the licences held by a job, or requested by it if it never ran."""
        return self._licences_in(alloc_tres) or self._licences_in(req_tres)

    def _licences_in(self, text: str) -> Amounts:
        found = []
        for name, amount in self._tres(text).items() if TRES in text else ():
            if not name.startswith(TRES):
                continue
            number = self._whole(name, amount)
            if not 0 <= number <= MAX_AMOUNT:
                raise self._wrong(name, number, f"must be from 0 to {MAX_AMOUNT:,}")
            if number:
                found.append((name.removeprefix(TRES), number))
        return tuple(sorted(found))

    @override
    def _asked(
        self, partition: str, nnodes: str, ncpus: str, req_tres: str, alloc_tres: str
    ) -> tuple[UnitsRequest, Taken]:
        """Return the request: whole nodes if the job had GPUs without requesting any."""
        asked, had = self._tres(req_tres), self._tres(alloc_tres)
        if not asked or self._gpus(asked) or not self._gpus(had):
            return super()._asked(partition, nnodes, ncpus, req_tres, alloc_tres)
        return self._with_own_nodes(partition, had.get("node") or nnodes, asked.get("cpu") or ncpus)

    def _with_own_nodes(self, partition: str, nnodes: str, ncpus: str) -> tuple[UnitsRequest, Taken]:
        """Return whole nodes as the request of a job that had GPUs without requesting any."""
        taken = [OWN_NODES]
        nodes, cores = self._nodes(nnodes, taken), self._whole("NCPUS", ncpus)
        if nodes < 1 or cores < 1:
            raise self._wrong("NNodes, NCPUS", (nodes, cores), "must be positive")
        each = (("cores", -(-cores // nodes)),)
        return UnitsRequest(nodes, each, distinct=nodes > 1, exclusive=True, partition=partition), taken


class PbsUnfinishedJobReader(PbsAccountingReader):
    """The accounting log of PBS, including jobs that never ran or have not ended."""

    def __init__(self, path: Path, lenient: bool = False, dialect: TraceDialect = DEFAULT_DIALECT) -> None:
        super().__init__(path, lenient, dialect)
        self.open: list[UnfinishedJobRecord] = []

    def _leave_out(self, id: str, begun: UnfinishedPbsJob, kind: str, left_s: int | None) -> None:
        try:
            job = self._open_job(id, begun, left_s)
        except InvalidValue:
            job = None  # the job has been read, but its record is incomplete
        if job is None or kind == MOVED:
            super()._leave_out(id, begun, kind, left_s)
            return
        self.tally.taken[STILL_RUNS if job.start_s is not None else STILL_WAITS if left_s is None else GAVE_UP] += 1
        self.open.append(job)

    def _open_job(self, id: str, begun: UnfinishedPbsJob, left_s: int | None) -> UnfinishedJobRecord | None:
        """Return the job, or None if it was never eligible or has no time limit. Raise `InvalidValue`."""
        fields, number = begun.fields, self._number(id)
        walltime_s, ends_s = self._walltime_s(fields), left_s if begun.start_s is None else begun.start_s
        arrival_s = self._arrival_s(fields, begun.since_s, MAX_TIME_S if ends_s is None else ends_s)
        if number is None or walltime_s < 1 or (left_s is not None and left_s <= arrival_s):
            return None
        run, _ = self._runs.number(number, arrival_s if begun.start_s is None else begun.start_s)
        if run is None:
            return None
        user, name, queue, account = self._words(fields)
        ask = self._ask(fields)
        nodes = ",".join(hosts_of(fields.get("exec_host", "")))
        return UnfinishedJobRecord(
            run, arrival_s, walltime_s, ask, user, name, queue, account, "", begun.start_s, left_s, nodes
        )


def read_history(
    path: Path, lenient: bool = False, format: str | None = None, dialect: TraceDialect = DEFAULT_DIALECT
) -> AccountingHistory:
    """Read a whole file. Raise the exceptions of `open_trace`, and `InputError` if no job has a start."""
    reader = open_trace(path, lenient, format, dialect)
    if isinstance(reader, SacctReader):
        reader = SacctUnfinishedJobReader(path, lenient, dialect)
    elif isinstance(reader, PbsAccountingReader):
        reader = PbsUnfinishedJobReader(path, lenient, dialect)
    ran = list(reader)
    check_broken(reader)
    started = [record for record in ran if record.start_s is not None]
    if not started:
        found = f"{format_count(len(ran), 'job')}, none with a start" if ran else "the file has no job"
        why = "; ".join((found, *reader.tally.lines()))
        raise InputError(f"{path}: has no start of a job, so a replay has nothing to be compared with ({why})")
    if more := len(ran) - len(started):
        reader.tally.dropped["its start is missing"] += more
    not_over = reader.open if isinstance(reader, SacctUnfinishedJobReader | PbsUnfinishedJobReader) else []
    return AccountingHistory(
        path, reader, started, not_over, reader.licences if isinstance(reader, SacctUnfinishedJobReader) else {}
    )
