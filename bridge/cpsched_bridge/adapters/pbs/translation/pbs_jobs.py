"""Number jobs, and translate waiting jobs into managed and unmanaged jobs.

PBS names a job `7.server`, an array `7[].server`, and a subjob of that array `7[2].server`.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cpsched.errors import escape_controls
from cpsched.model import IntArray, Job, PendingCode, PendingReason, Request
from cpsched_bridge.adapters.pbs.pbs_objects import UNREADABLE_KEY, PbsJob, PbsQueue
from cpsched_bridge.adapters.pbs.translation.pbs_chunk_requests import (
    ChunkedRequest,
    build_chunk_request,
    request_fits_free_amounts,
)
from cpsched_bridge.adapters.pbs.translation.vnodes import (
    ConfiguredVnodeTable,
    PbsReservation,
    find_overlapping_reservations,
)
from cpsched_bridge.adapters.shared.adapter_errors import (
    UNREADABLE_FIELD_ERRORS,
    JobNotModelled,
    make_unreadable_reason,
)
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, Hold, Holder, PendingJob, UnmanagedJob

WAITING_STATES = frozenset("QHWT")
"""States of waiting jobs: queued, held, waiting for the execution time, or in transit."""
OTHER_STATES = frozenset("REUSBXFM")
"""States of all other jobs: running, exiting, suspended (S, U), a started array, ended (X, F), or moved."""
MINUTE_S = 60
SUBSTATE_STARTING = "41"
"""Substate of a job in state R that its vnodes have not accepted yet."""
REJECTED_BY_HOST_STATUSES = ("-3", "-16", "-22")
"""Exit statuses of a job that its host rejected and that PBS requeues (see `job.h`)."""
STARTED_ARRAY_STATE = "B"
"""State of an array with a started subjob. PBS does not move such an array to another queue."""
QUEUE_OPENED_REASON = PendingReason(PendingCode.QUEUE_OPENED)
SUBJOB_LIMIT_REASON = PendingReason(PendingCode.ARRAY_LIMIT, ("subjobs",))
MAX_TRIED_WALLTIMES = 6
"""Maximum number of walltimes to try for a shrink-to-fit job."""
ELIGIBLE_TIME_TOLERANCE_S = 2
"""Tolerance for clock skew and rounding between two readings of an eligible time, in seconds."""


@dataclass(frozen=True, slots=True)
class PbsJobTranslationContext:
    """The facts needed to translate jobs."""

    now_s: int
    machine: ConfiguredVnodeTable
    free: IntArray
    queues: Mapping[str, PbsQueue]
    """The managed queues by name."""
    by_hand: Collection[str]
    """Managed queues that another actor opened."""
    reservations: tuple[PbsReservation, ...]
    accrues_eligible_time: bool = False
    """Whether the server accrues eligible time."""
    known: MutableMapping[int, Job] = field(default_factory=dict)
    """Jobs from earlier readings, by number."""


@dataclass(slots=True)
class TranslatedPbsPendingJobs:
    """The waiting jobs in one reading."""

    pending: list[PendingJob] = field(default_factory=list)
    unmanaged: list[UnmanagedJob] = field(default_factory=list)
    asked: dict[int, ChunkedRequest] = field(default_factory=dict)
    """Requests of the jobs in `pending`, by number."""
    jobs: dict[int, PbsJob] = field(default_factory=dict)
    """The jobs in `pending` as PBS prints them, by number."""
    fitted: dict[int, int] = field(default_factory=dict)
    """Walltimes in seconds to set before shrink-to-fit jobs start, by job number."""
    begins: set[int] = field(default_factory=set)
    """Numbers of jobs in `pending` that their vnodes have not accepted yet, or have rejected."""


class _WaitingJob(NamedTuple):
    """A waiting job or subjob, in order of arrival."""

    since_s: int
    number: int
    name: str
    array: str


def translate_pending_jobs(
    jobs: Mapping[str, PbsJob], numbers: Mapping[str, int], context: PbsJobTranslationContext
) -> TranslatedPbsPendingJobs:
    """Return the waiting jobs in order of arrival. Each subjob is a job."""
    found = TranslatedPbsPendingJobs()
    room = _count_startable_subjobs(jobs)
    order = []
    for name, job in jobs.items():
        if is_array_job_name(name) and not job.is_unreadable:
            continue
        if job.state in WAITING_STATES or _is_job_starting(job) or job.is_unreadable:
            array = find_parent_array_name(name) or ""
            since_s = _compute_wait_start_s(job, jobs.get(array), numbers[name], context)
            order.append(_WaitingJob(since_s, numbers[name], name, array))
        elif job.state not in OTHER_STATES:
            details = (f"job_state={job.state}", "this version has no rule for this state")
            reason = PendingReason(PendingCode.CLUSTER, details)
            found.unmanaged.append(_make_unmanaged_job(name, numbers[name], jobs, reason, context))
    for waiting in sorted(order):
        pbs_job, parent, number, array = jobs[waiting.name], jobs.get(waiting.array), waiting.number, waiting.array
        try:
            pending, request = _translate_pending_job(waiting, pbs_job, parent, context)
        except (JobNotModelled, *UNREADABLE_FIELD_ERRORS) as error:
            if _is_job_starting(pbs_job):
                continue  # the running jobs include it
            why = error.reason if isinstance(error, JobNotModelled) else make_unreadable_reason(error)
            found.unmanaged.append(_make_unmanaged_job(waiting.name, number, jobs, why, context))
            continue
        if array in room:
            room[array] -= 1
            if room[array] < 0 and pending.job.ineligible is None:
                pending = replace(pending, job=replace(pending.job, ineligible=SUBJOB_LIMIT_REASON))
        found.pending.append(pending)
        found.asked[number], found.jobs[number] = request, pbs_job
        if _is_job_starting(pbs_job):
            found.begins.add(number)
        if pbs_job.min_walltime_s is not None and pending.job.walltime_s != UNLIMITED_WALLTIME_S:
            found.fitted[number] = pending.job.walltime_s
    return found


def build_job(job: PbsJob, number: int, request: Request, walltime_s: int, since_s: int | None = None) -> Job:
    """Return the job for a job of PBS.

    `since_s` is the start of its wait, by default its submission. Raise `ValueError` if its user or queue is
    unreadable.
    """
    job.require_readable("euser", "Job_Owner", "queue")
    return Job(
        id=number,
        submit_s=job.submit_s if since_s is None else since_s,
        walltime_s=walltime_s,
        request=request,
        user=job.owner,
        name=job.name,
        queue=job.queue,
        account=job.account,
    )


def get_walltime_s(job: PbsJob) -> int:
    """Return a job's walltime in seconds, or `UNLIMITED_WALLTIME_S` if it has none. Raise `ValueError`."""
    job.require_readable("Resource_List", "walltime")
    return UNLIMITED_WALLTIME_S if job.walltime_s is None else job.walltime_s


def list_shrink_to_fit_walltimes_s(job: PbsJob, context: PbsJobTranslationContext) -> tuple[int, ...]:
    """Return a waiting job's possible walltimes in seconds, longest first.

    A job without a `min_walltime` has exactly one walltime. Other jobs have their longest walltime, shorter ones that
    end before a reservation (in whole minutes), and the shortest. Without a `max_walltime`, the longest is `walltime`,
    as set by the user or by PBS's last start.
    """
    job.require_readable("min_walltime", "max_walltime")
    least = job.min_walltime_s
    if least is None:
        return (get_walltime_s(job),)
    most = max(least, get_walltime_s(job) if job.max_walltime_s is None else job.max_walltime_s)
    left = {(each.from_s - context.now_s) // MINUTE_S * MINUTE_S for each in context.reservations} | {least}
    shorter = sorted((seconds for seconds in left if least <= seconds < most), reverse=True)
    return (most, *shorter[: MAX_TRIED_WALLTIMES - 2], *shorter[MAX_TRIED_WALLTIMES - 2 :][-1:])


def _translate_pending_job(
    waiting: _WaitingJob, pbs_job: PbsJob, parent: PbsJob | None, context: PbsJobTranslationContext
) -> tuple[PendingJob, ChunkedRequest]:
    if pbs_job.is_unreadable:
        raise JobNotModelled("cannot be read", f"cannot be read: {pbs_job.unreadable[UNREADABLE_KEY]}")
    if waiting.number >= FIRST_AMBIGUOUS_NUMBER:
        raise JobNotModelled("another job has the same number")
    pbs_job.require_readable("euser", "Job_Owner", "egroup", "project", "queue")
    queue = context.queues.get(pbs_job.queue)
    if queue is None:
        raise JobNotModelled(f"queue {escape_controls(pbs_job.queue)} is not managed by the bridge")
    pbs_job.require_readable("Resource_List", "schedselect")
    select, place = pbs_job.select or pbs_job.requested.get("select", ""), pbs_job.requested.get("place", "")
    if not select:
        raise JobNotModelled("requests no chunks")
    everywhere = context.machine.mask_vnodes_of_queue(queue)
    walltimes = list_shrink_to_fit_walltimes_s(pbs_job, context)
    tries = []
    for seconds in walltimes:
        allowed = everywhere
        for each in find_overlapping_reservations(context.reservations, context.now_s, context.now_s + seconds):
            allowed = allowed & ~each.members
        with contextlib.suppress(JobNotModelled):
            tries.append((seconds, build_chunk_request(select, place, context.machine, allowed, context.free)))
    before = None
    if tries:
        begin = (
            each
            for each in tries
            if len(tries) > 1 and request_fits_free_amounts(each[1].request, context.free, context.machine)
        )
        walltime_s, asks = next(begin, tries[0])
    else:
        walltime_s, asks = walltimes[0], build_chunk_request(select, place, context.machine, everywhere, context.free)
        before = PendingReason(PendingCode.NO_GAP)
    job = build_job(pbs_job, waiting.number, asks.request, walltime_s, waiting.since_s)
    hold, holder, why = _classify_hold(pbs_job, parent, queue, context.by_hand)
    stays = hold is Hold.PLUGIN and parent is not None and parent.state == STARTED_ARRAY_STATE
    label = strip_server_name(waiting.name)
    job = replace(job, ineligible=before or why)
    return PendingJob(job, hold, False, label, release_is_pointless=stays, holder=holder), asks


def _classify_hold(
    job: PbsJob, parent: PbsJob | None, queue: PbsQueue, by_hand: Collection[str]
) -> tuple[Hold, Holder, PendingReason | None]:
    """Return a job's hold, its holder, and the reason why it may not start yet.

    PBS has four kinds of holds: user (`u`), operator (`o`), manager or dependency (`s`), and expired password (`p`).
    """
    if job.state in ("R", "E"):
        return Hold.NONE, Holder.OWNER, None
    holds = job.holds.union(parent.holds if parent is not None else ())
    if holds or job.state == "H":
        depends = "s" in holds and job.has_dependency
        by_administrator = "o" in holds or ("s" in holds and not depends)
        holder = Holder.ADMINISTRATOR if by_administrator else Holder.OWNER if "u" in holds else Holder.CLUSTER
        code = PendingCode.HELD_FOR_JOBS if depends else PendingCode.HELD
        return Hold.USER, holder, PendingReason(code, ("".join(sorted(holds)) or "H",))
    if queue.name in by_hand:
        return Hold.USER, Holder.CLUSTER, QUEUE_OPENED_REASON
    hold = Hold.NONE if queue.is_started else Hold.PLUGIN
    until = {"W": PendingReason(PendingCode.BEGIN_TIME), "T": PendingReason(PendingCode.IN_TRANSIT)}
    return hold, Holder.OWNER, until.get(job.state)


def _make_unmanaged_job(
    name: str,
    number: int,
    jobs: Mapping[str, PbsJob],
    reason: PendingReason,
    context: PbsJobTranslationContext,
) -> UnmanagedJob:
    """Return an unmanaged job, marked for release if its queue is closed."""
    job, parent = jobs[name], jobs.get(find_parent_array_name(name) or "")
    queue = context.queues.get(job.queue)
    held = False
    if queue is not None and not queue.is_started and job.state == "Q":
        with contextlib.suppress(ValueError):
            held = not (job.holds or (parent is not None and parent.holds))
    label, user = strip_server_name(name), escape_controls(job.owner)
    return UnmanagedJob(number, reason, label, user, held_for_bridge=held)


def _count_startable_subjobs(jobs: Mapping[str, PbsJob]) -> dict[str, int]:
    """Return how many more subjobs may run, by array name.

    Only arrays with `max_run_subjobs` are included.
    """
    arrays = {name: job.max_running_subjobs for name, job in jobs.items() if is_array_job_name(name)}
    most = {name: bound for name, bound in arrays.items() if bound is not None}
    for name, job in jobs.items():
        array = find_parent_array_name(name)
        if array in most and job.state in ("R", "E", "S", "U"):
            most[array] -= 1
    return most


def _compute_wait_start_s(job: PbsJob, parent: PbsJob | None, number: int, context: PbsJobTranslationContext) -> int:
    """Return the Unix time at which a job began to wait.

    It is computed from the job's eligible time or its submission time.
    """
    eligible_s = parent.eligible_s if job.eligible_s is None and parent is not None else job.eligible_s
    if not context.accrues_eligible_time or eligible_s is None:
        return job.submit_s
    since_s = max(0, context.now_s - eligible_s)
    before = context.known.get(number)
    if before is not None and abs(before.submit_s - since_s) <= ELIGIBLE_TIME_TOLERANCE_S:
        return before.submit_s
    return since_s


def _is_job_starting(job: PbsJob) -> bool:
    """Return whether a job's host has not accepted it yet, or has rejected it.

    A rejected job has state E. Such a job counts as released rather than running, because PBS may requeue it before it
    runs.
    """
    if job.state == "E":
        return job.exit_status in REJECTED_BY_HOST_STATUSES
    return job.state == "R" and job.substate == SUBSTATE_STARTING


SEQUENCE_BITS = 41
"""Number of bits for a sequence number, which has at most 12 digits in PBS."""
MAX_SUBJOB_INDEX = (1 << 20) - 1
FIRST_AMBIGUOUS_NUMBER = 1 << 62
"""Lower bound for the numbers of ambiguous names (same sequence number, different server)."""

JOB_NAME_PATTERN = re.compile(r"(\d{1,12})(?:\[(\d{0,7})\])?\.([A-Za-z0-9][A-Za-z0-9._-]{0,254})", re.ASCII)
"""Pattern for a job name: sequence number, subjob index (empty for the array itself), and server."""


def parse_job_number(name: str) -> int:
    """Return the number of a job, array or subjob.

    Raise `ValueError` if `name` is not a job name.
    """
    found = JOB_NAME_PATTERN.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not a job name")
    index = int(found[2]) + 1 if found[2] else 0
    if index > MAX_SUBJOB_INDEX:
        raise ValueError(f"{name!r}: the array index is too large")
    return index << SEQUENCE_BITS | int(found[1])


def assign_job_numbers(names: Iterable[str]) -> dict[str, int]:
    """Return a unique number for each name.

    Text that is not a job name gets a number of at least `FIRST_AMBIGUOUS_NUMBER`.
    """
    found: dict[str, int] = {}
    taken: set[int] = set()
    for name in sorted(names):
        try:
            number = parse_job_number(name)
        except ValueError:
            number = FIRST_AMBIGUOUS_NUMBER | zlib.crc32(name.encode())
        while number in taken:
            number = FIRST_AMBIGUOUS_NUMBER | zlib.crc32(f"{number} {name}".encode())
        taken.add(number)
        found[name] = number
    return found


def find_parent_array_name(name: str) -> str | None:
    """Return the name of a subjob's array, or None for other jobs."""
    found = JOB_NAME_PATTERN.fullmatch(name)
    return f"{found[1]}[].{found[3]}" if found and found[2] else None


def format_job_number(number: int) -> str:
    """Return the job name for a number, without the server."""
    sequence, index = number & ((1 << SEQUENCE_BITS) - 1), number >> SEQUENCE_BITS
    if number >= FIRST_AMBIGUOUS_NUMBER or not index:
        return str(sequence)
    return f"{sequence}[{index - 1}]"


def is_array_job_name(name: str) -> bool:
    """Return whether a name refers to a whole array."""
    return "[]" in name


def strip_server_name(name: str) -> str:
    """Return the job name without the server, as users write it."""
    return name.partition(".")[0]
