"""Read all jobs of a site, including cancelled and unfinished jobs, and find runaway jobs.

Runaway jobs are recorded as unfinished but must have ended. Slurm's database contains such a job if slurmdbd missed the
end of the job. `sacctmgr show runawayjobs` lists them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from cpsched.errors import InvalidValue
from cpsched.formatting import format_count
from cpsched.site.limit_checks import LICENSE
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched_sim.cluster.simulated_accounting import Amounts
from cpsched_sim.errors import InputError
from cpsched_sim.input.input_limits import MAX_AMOUNT, MAX_TIME_S
from cpsched_sim.systems.system_file import SystemFile
from cpsched_sim.traces.job_run_numbering import ALREADY_READ_REASON
from cpsched_sim.traces.pbs_accounting import MOVED_RECORD, PbsAccountingReader, UnfinishedPbsJob
from cpsched_sim.traces.pbs_lines import parse_exec_hosts
from cpsched_sim.traces.sacct_reader import ArrayTasks, SacctReader, Taken
from cpsched_sim.traces.trace_record import (
    DEFAULT_DIALECT,
    ResourceRequest,
    TraceDialect,
    TraceReader,
    TraceRecord,
    UnitsRequest,
)
from cpsched_sim.whatif.license_limits import peak_amount
from cpsched_sim.workloads.arrival_date_range import trace_epoch_s
from cpsched_sim.workloads.workload_loader import open_trace, require_few_invalid_lines

NEVER_ELIGIBLE_NOTE = "cancelled before it was eligible"
CANCELLED_WAITING_NOTE = "cancelled while waiting: in the queue until it was really cancelled"
STILL_WAITING_NOTE = "still waiting when the file was written: in the queue until then"
STILL_RUNNING_NOTE = "still running when the file was written: runs until then"
REPLACED_LINE_NOTE = "was still waiting or running in an earlier line of the same job"
WHOLE_NODES_NOTE = "had GPUs without requesting any: replayed on whole nodes"
THROTTLED_TASKS_NOTE = "waiting task of an array that limits its running tasks (%), which is not simulated"
UNLISTED_TASKS_NOTE = "line of waiting array tasks with an abbreviated list (set SLURM_BITSTR_LEN=0 for sacct)"
REQUEST_CACHE_SIZE = 65_536
"""Number of parsed requests to cache. Most jobs repeat the request of another job."""


class UnfinishedJobRecord(NamedTuple):
    """A job that never ran or has not ended. Times are in seconds.

    `start_s` is None if the job never started. `left_s` is the time of its cancellation, or None if the job was
    unfinished when the file was written.
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
    """All recorded jobs of a site. Times are in seconds since the file's time 0."""

    path: Path
    reader: TraceReader
    ran: list[TraceRecord]
    open: list[UnfinishedJobRecord] = field(default_factory=list)
    licenses: Mapping[int, Amounts] = field(default_factory=dict)
    """The licenses that jobs request, by job number."""

    @property
    def header(self) -> dict[str, str]:
        """Return the header of the file."""
        return self.reader.header

    @property
    def time_zero_unix_s(self) -> int:
        """Return the Unix time of the file's time 0, in seconds."""
        return trace_epoch_s(self.header)

    @property
    def last_recorded_s(self) -> int:
        """Return the last second that the file covers."""
        ends = [(job.start_s if job.start_s is not None else job.submit_s) + job.run_s for job in self.ran]
        moments = [moment for job in self.open for moment in (job.start_s, job.left_s)]
        return max([*ends, *(moment for moment in moments if moment is not None)])

    def drop_unfinished_jobs(self, untrue: Mapping[int, str]) -> None:
        """Drop the unfinished jobs in `untrue`, which maps job numbers to reasons."""
        tally = self.reader.tally
        for job in self.open:
            if job.id in untrue:
                tally.taken[STILL_WAITING_NOTE if job.start_s is None else STILL_RUNNING_NOTE] -= 1
                tally.dropped[untrue[job.id]] += 1
        tally.taken = +tally.taken
        self.open = [job for job in self.open if job.id not in untrue]


class SacctUnfinishedJobReader(SacctReader):
    """Accounting data, including jobs that never ran or have not ended."""

    def __init__(self, path: Path, lenient: bool = False, dialect: TraceDialect = DEFAULT_DIALECT) -> None:
        super().__init__(path, lenient, dialect)
        self.open: list[UnfinishedJobRecord] = []
        self._unsettled: list[tuple[UnfinishedJobRecord, int, str, Amounts]] = []
        """The unfinished jobs, each with its submission time, assumptions and licenses."""
        self._arrays: list[tuple[ArrayTasks, UnfinishedJobRecord, int, str, Amounts]] = []
        """The lines that stand for several tasks, with the same."""
        self._single_ids: set[str] = set()
        """The JobID of each unfinished job with a line of its own."""
        self.licenses: dict[int, Amounts] = {}
        """The licenses that jobs request, by job number. Jobs without licenses are omitted."""
        self._licenses: Amounts = ()
        self._cached_licenses = lru_cache(REQUEST_CACHE_SIZE)(self._held_or_requested_licenses)

    def _handle_unfinished_job(self, fields: list[str], times: Sequence[int | None]) -> None:
        submit_s, eligible_s, start_s, end_s = times
        state = self._job_state(fields)
        runs = start_s is not None and end_s is None and state in ("RUNNING", "SUSPENDED", "COMPLETING")
        waits = state == "PENDING"
        gave_up = state == "CANCELLED" and end_s is not None and not runs
        if submit_s is None or not (runs or waits or gave_up):
            super()._handle_unfinished_job(fields, times)
            return
        if not runs and eligible_s is None and self._at["Eligible"] is not None and self._dialect.arrival == "eligible":
            self.tally.dropped[NEVER_ELIGIBLE_NOTE] += 1
            return
        arrival_s = submit_s
        if self._dialect.arrival == "eligible" and eligible_s is not None:
            arrival_s = max(submit_s, eligible_s)
        if end_s is not None and end_s <= arrival_s:
            self.tally.dropped[NEVER_ELIGIBLE_NOTE] += 1
            return
        limit_s = self._time_limit_s(fields) or 0
        if limit_s < 1:
            state_text = "is still running" if runs else "never ran"
            self.tally.dropped[f"{state_text}, and has no time limit"] += 1
            return
        taken = STILL_RUNNING_NOTE if runs else STILL_WAITING_NOTE if waits else CANCELLED_WAITING_NOTE
        job = UnfinishedJobRecord(
            self._parse_job_number(self._get_field(fields, "JobIDRaw")),
            arrival_s,
            limit_s,
            self._parse_request(fields),
            self._intern_field(fields, "User"),
            self._intern_field(fields, "JobName"),
            self._intern_field(fields, "Partition"),
            self._intern_field(fields, "Account"),
            self._intern_field(fields, "QOS"),
            start_s if runs else None,
            end_s,
            self._intern_field(fields, "NodeList") if runs else "",
        )
        array = self._waiting_array_tasks(fields)
        if array is not None:
            self._arrays.append((array, job, submit_s, taken, self._licenses))
            return
        self._single_ids.add(self._get_field(fields, "JobID") or self._get_field(fields, "JobIDRaw"))
        self._unsettled.append((job, submit_s, taken, self._licenses))

    @override
    def __iter__(self) -> Iterator[TraceRecord]:
        """Yield the records. After the last line, add the unfinished jobs."""
        for record in super().__iter__():
            self._store_licenses(record.id)
            yield record
        for job, submit_s, taken, licenses in self._unsettled:
            self._licenses = licenses
            self._add_unfinished_job(job, submit_s, taken)
        self._add_array_tasks()
        self._unsettled.clear()
        self._arrays.clear()

    def _add_array_tasks(self) -> None:
        """Store each task of the lines that stand for several tasks, unless it has a line of its own."""
        known = self._single_ids.union(self.squeue_ids.values())
        throttled = set[int]()
        for array, job, submit_s, taken, licenses in self._arrays:
            self._licenses = licenses
            if not array.ranges:
                self.tally.dropped[UNLISTED_TASKS_NOTE] += 1
            for task in chain.from_iterable(array.ranges):
                if f"{array.array_id}_{task}" in known:
                    self.tally.dropped[REPLACED_LINE_NOTE] += 1
                elif array.is_throttled:
                    throttled.add(array.number_of(task))
                else:
                    self._add_unfinished_job(job._replace(id=array.number_of(task)), submit_s, taken)
        if throttled:
            self.tally.dropped[THROTTLED_TASKS_NOTE] += len(throttled)

    def _add_unfinished_job(self, job: UnfinishedJobRecord, submit_s: int, taken: str) -> None:
        """Number and store an unfinished job, unless another line supersedes it."""
        since_s = submit_s if job.start_s is None else job.start_s
        if job.left_s is None and self._runs.has_run_since(job.id, since_s, job.nodes):
            self.tally.dropped[REPLACED_LINE_NOTE] += 1
            return
        try:
            id, _ = self._runs.assign_run_number(job.id, since_s, job.left_s or 0, job.nodes)
        except InvalidValue as error:
            raise self._make_error(error.field, error.value, error.rule) from error
        if id is None:
            self.tally.dropped[ALREADY_READ_REASON] += 1
            return
        self.tally.taken[taken] += 1
        self.open.append(job._replace(id=id))
        self._store_licenses(id)

    def _store_licenses(self, id: int) -> None:
        """Store the licenses on the line just read."""
        if self._licenses:
            self.licenses[id] = self._licenses

    def _parse_request(self, fields: list[str]) -> UnitsRequest:
        self._licenses = self._cached_licenses(self._get_field(fields, "ReqTRES"), self._get_field(fields, "AllocTRES"))
        return super()._parse_request(fields)

    def _held_or_requested_licenses(self, req_tres: str, alloc_tres: str) -> Amounts:
        """Return the licenses that a job held, or requested if it never ran."""
        return self._parse_licenses(alloc_tres) or self._parse_licenses(req_tres)

    def _parse_licenses(self, text: str) -> Amounts:
        found = []
        for name, amount in self._parse_tres(text).items() if LICENSE in text else ():
            if not name.startswith(LICENSE):
                continue
            number = self._parse_whole_number(name, amount)
            if not 0 <= number <= MAX_AMOUNT:
                raise self._make_error(name, number, f"must be from 0 to {MAX_AMOUNT:,}")
            if number:
                found.append((name.removeprefix(LICENSE), number))
        return tuple(sorted(found))

    @override
    def _parse_request_texts(
        self, partition: str, nnodes: str, ncpus: str, req_tres: str, alloc_tres: str
    ) -> tuple[UnitsRequest, Taken]:
        """Return the request: whole nodes if the job had GPUs that it did not request."""
        asked, had = self._parse_tres(req_tres), self._parse_tres(alloc_tres)
        if not asked or self._count_gpus(asked) or not self._count_gpus(had):
            return super()._parse_request_texts(partition, nnodes, ncpus, req_tres, alloc_tres)
        return self._request_whole_nodes(partition, had.get("node") or nnodes, asked.get("cpu") or ncpus)

    def _request_whole_nodes(self, partition: str, nnodes: str, ncpus: str) -> tuple[UnitsRequest, Taken]:
        """Return a request for whole nodes, for a job with GPUs that it did not request."""
        taken = [WHOLE_NODES_NOTE]
        nodes, cores = self._count_nodes(nnodes, taken), self._parse_whole_number("NCPUS", ncpus)
        if nodes < 1 or cores < 1:
            raise self._make_error("NNodes, NCPUS", (nodes, cores), "must be positive")
        each = (("cores", -(-cores // nodes)),)
        return UnitsRequest(nodes, each, distinct=nodes > 1, exclusive=True, partition=partition), taken


class PbsUnfinishedJobReader(PbsAccountingReader):
    """The PBS accounting log, including jobs that never ran or have not ended."""

    def __init__(self, path: Path, lenient: bool = False, dialect: TraceDialect = DEFAULT_DIALECT) -> None:
        super().__init__(path, lenient, dialect)
        self.open: list[UnfinishedJobRecord] = []

    def _handle_unfinished_job(self, id: str, begun: UnfinishedPbsJob, kind: str, left_s: int | None) -> None:
        try:
            job = self._build_unfinished_job(id, begun, left_s)
        except InvalidValue:
            job = None  # a field is missing or invalid: count the job only
        if job is None or kind == MOVED_RECORD:
            super()._handle_unfinished_job(id, begun, kind, left_s)
            return
        self.tally.taken[
            STILL_RUNNING_NOTE
            if job.start_s is not None
            else STILL_WAITING_NOTE
            if left_s is None
            else CANCELLED_WAITING_NOTE
        ] += 1
        self.open.append(job)

    def _build_unfinished_job(self, id: str, begun: UnfinishedPbsJob, left_s: int | None) -> UnfinishedJobRecord | None:
        """Return the job. Raise `InvalidValue`.

        Return None if it was never eligible, has no time limit or was already read.
        """
        fields, number = begun.fields, self._parse_job_number(id)
        walltime_s, ends_s = self._walltime_s(fields), left_s if begun.start_s is None else begun.start_s
        arrival_s = self._arrival_s(fields, begun.since_s, MAX_TIME_S if ends_s is None else ends_s)
        if number is None or walltime_s < 1 or (left_s is not None and left_s <= arrival_s):
            return None
        run, _ = self._runs.assign_run_number(number, arrival_s if begun.start_s is None else begun.start_s)
        if run is None:
            return None
        user, name, queue, account = self._read_user_name_queue_account(fields)
        ask = self._parse_request(fields)
        nodes = ",".join(parse_exec_hosts(fields.get("exec_host", "")))
        return UnfinishedJobRecord(
            run, arrival_s, walltime_s, ask, user, name, queue, account, "", begun.start_s, left_s, nodes
        )


def read_history(
    path: Path, lenient: bool = False, format: str | None = None, dialect: TraceDialect = DEFAULT_DIALECT
) -> AccountingHistory:
    """Read a whole file. Raise `InputError` if no job has a start.

    Raise the same exceptions as `open_trace`.
    """
    reader = open_trace(path, lenient, format, dialect)
    if isinstance(reader, SacctReader):
        reader = SacctUnfinishedJobReader(path, lenient, dialect)
    elif isinstance(reader, PbsAccountingReader):
        reader = PbsUnfinishedJobReader(path, lenient, dialect)
    ran = list(reader)
    require_few_invalid_lines(reader)
    started = [record for record in ran if record.start_s is not None]
    if not started:
        found = f"{format_count(len(ran), 'job')}, none with a start" if ran else "the file has no jobs"
        why = "; ".join((found, *reader.tally.to_sentences()))
        raise InputError(f"{path}: records no job start to compare a replay with ({why})")
    if more := len(ran) - len(started):
        reader.tally.dropped["its start is missing"] += more
    not_over = reader.open if isinstance(reader, SacctUnfinishedJobReader | PbsUnfinishedJobReader) else []
    return AccountingHistory(
        path, reader, started, not_over, reader.licenses if isinstance(reader, SacctUnfinishedJobReader) else {}
    )


HOUR_S, DAY_S = 3_600, 86_400
MAX_WAIT_S = 30 * DAY_S
BEYOND_LIMIT_REASON = "runaway job: running far beyond its time limit"
NODE_REUSED_REASON = "runaway job: running on a node that other jobs have used since"
LONG_WAIT_REASON = "runaway job: waiting far longer than any other job"
RUNAWAY_HINT = "; sacctmgr show runawayjobs lists such jobs and can end them"


def find_runaway_jobs(history: AccountingHistory, system: SystemFile | None) -> dict[int, str]:
    """Return the runaway jobs by number, each with the reason why it must have ended.

    `system` is None if the system was only guessed.
    """
    last_s = history.last_recorded_s
    waits_s = (job.start_s - job.submit_s for job in history.ran if job.start_s is not None)
    most_wait_s = max(MAX_WAIT_S, 2 * max(waits_s, default=0))
    found: dict[int, str] = {}
    for job in history.open:
        if job.left_s is not None:
            continue
        if job.start_s is None:
            if last_s - job.submit_s > most_wait_s:
                found[job.id] = LONG_WAIT_REASON
        elif last_s - job.start_s > job.walltime_s + min(max(job.walltime_s, HOUR_S), DAY_S):
            found[job.id] = BEYOND_LIMIT_REASON
    if system is not None and system.node_types:
        name = system.resources[0]
        most = max(kind.each.get(name, 0) for kind in system.node_types.values())
        run = [job for job in history.open if job.start_s is not None and job.id not in found and job.nodes]
        found |= {
            job.id: NODE_REUSED_REASON for job in run if _is_displaced_by_later_jobs(job, history.ran, name, most)
        }
    advice = RUNAWAY_HINT if isinstance(history.reader, SacctUnfinishedJobReader) else ""
    return {id: why + advice for id, why in found.items()}


def _is_displaced_by_later_jobs(job: UnfinishedJobRecord, ran: Sequence[TraceRecord], name: str, most: int) -> bool:
    """Return whether the job must have ended, because later jobs used its nodes.

    Together with the job, they would exceed the amount `most` on a node.
    """
    nodes, own = set(expand_hostlist_or_empty(job.nodes)), _amount_per_node(job, name)
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for other in ran:
        begin_s, end_s = other.start_s or 0, (other.start_s or 0) + other.run_s
        if begin_s < (job.start_s or 0) or not other.nodes:
            continue
        for node in nodes.intersection(expand_hostlist_or_empty(other.nodes)):
            held = _amount_per_node(other, name)
            changes[node] += [(begin_s, held), (end_s, -held)]
    return any(peak_amount(each) + own > most for each in changes.values())


def _amount_per_node(job: UnfinishedJobRecord | TraceRecord, name: str) -> int:
    """Return the amount of a resource that a job had on each node, rounded down."""
    if not isinstance(job.ask, UnitsRequest):
        return 0
    return dict(job.ask.each).get(name, 0) * job.ask.units // max(1, len(expand_hostlist_or_empty(job.nodes)))
