"""Translate the records of waiting jobs into managed and unmanaged jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from cpsched.errors import escape_controls
from cpsched.model import IntArray, Job, PendingCode, PendingReason
from cpsched.parsing.pbs_select import parse_duration_s
from cpsched_bridge.adapters.pbs.pbs_records import (
    UNREADABLE_KEY,
    Record,
    Value,
    get_attribute_part_texts,
    get_text_attribute,
)
from cpsched_bridge.adapters.pbs.translation import pbs_job_ids
from cpsched_bridge.adapters.pbs.translation.pbs_chunk_requests import (
    ChunkedRequest,
    build_chunk_request,
    request_fits_free_amounts,
)
from cpsched_bridge.adapters.pbs.translation.pbs_limits import get_job_owner, get_limit_entities_of_job
from cpsched_bridge.adapters.pbs.translation.pbs_queues import PbsExecutionQueue
from cpsched_bridge.adapters.pbs.translation.pbs_reservations import PbsReservation, find_overlapping_reservations
from cpsched_bridge.adapters.pbs.translation.pbs_units import parse_unix_time_s
from cpsched_bridge.adapters.pbs.translation.vnodes import ConfiguredVnodeTable
from cpsched_bridge.adapters.shared.job_not_modelled import (
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
MIN_WALLTIME_RESOURCE, MAX_WALLTIME_RESOURCE = "min_walltime", "max_walltime"
"""Resources that bound the walltime of a shrink-to-fit job. Its walltime is chosen when the job starts."""
MAX_TRIED_WALLTIMES = 6
"""Maximum number of walltimes to try for a shrink-to-fit job."""
ELIGIBLE_TIME_TOLERANCE_S = 2
"""Tolerance for clock skew and rounding between two readings of an eligible time, in seconds."""


@dataclass(frozen=True, slots=True)
class PbsJobTranslationContext:
    """The facts needed to translate waiting jobs."""

    now_s: int
    machine: ConfiguredVnodeTable
    free: IntArray
    queues: Mapping[str, PbsExecutionQueue]
    """The managed queues by name."""
    by_hand: Collection[str]
    """Managed queues that another actor opened."""
    reservations: tuple[PbsReservation, ...]
    accrues_eligible_time: bool = False
    """Whether the server accrues eligible time."""
    known: Mapping[int, Job] = field(default_factory=dict)
    """Jobs from earlier readings, by number."""


@dataclass(slots=True)
class TranslatedPbsPendingJobs:
    """The waiting jobs in one reading."""

    pending: list[PendingJob] = field(default_factory=list)
    left: list[UnmanagedJob] = field(default_factory=list)
    asked: dict[int, ChunkedRequest] = field(default_factory=dict)
    """Requests of the jobs in `pending`, by number."""
    records: dict[int, Record] = field(default_factory=dict)
    """Records of the jobs in `pending`, by number."""
    fitted: dict[int, int] = field(default_factory=dict)
    """Walltimes in seconds to set before shrink-to-fit jobs start, by job number."""
    begins: set[int] = field(default_factory=set)
    """Numbers of jobs in `pending` that their vnodes have not accepted yet, or have rejected."""


def translate_pending_jobs(
    jobs: Mapping[str, Record], numbers: Mapping[str, int], context: PbsJobTranslationContext
) -> TranslatedPbsPendingJobs:
    """Return the waiting jobs in order of arrival. Each subjob is a job."""
    found = TranslatedPbsPendingJobs()
    room = _count_startable_subjobs(jobs)
    order = []
    for name, record in jobs.items():
        if pbs_job_ids.is_array_job_name(name) and not _is_record_unreadable(record):
            continue
        state = str(record.get("job_state", ""))
        if state in WAITING_STATES or _is_job_starting(record) or _is_record_unreadable(record):
            array = pbs_job_ids.find_parent_array_name(name) or ""
            order.append(
                (_compute_wait_start_s(record, jobs.get(array), numbers[name], context), numbers[name], name, array)
            )
        elif state not in OTHER_STATES:
            reason = PendingReason(
                PendingCode.CLUSTER, (f"job_state={state}", "this version has no rule for this state")
            )
            found.left.append(_make_unmanaged_job(name, numbers[name], record, None, reason, context))
    for since_s, number, name, array in sorted(order):
        record, parent = jobs[name], jobs.get(array)
        try:
            job, asks, (hold, holder) = _translate_pending_record(record, parent, number, since_s, context)
        except (JobNotModelled, *UNREADABLE_FIELD_ERRORS) as reason:
            if _is_job_starting(record):
                continue  # the running jobs include it
            why = reason.reason if isinstance(reason, JobNotModelled) else make_unreadable_reason(reason)
            found.left.append(_make_unmanaged_job(name, number, record, parent, why, context))
            continue
        if array in room:
            room[array] -= 1
            if room[array] < 0 and job.ineligible is None:
                job = replace(job, ineligible=SUBJOB_LIMIT_REASON)
        stays = hold is Hold.PLUGIN and parent is not None and parent.get("job_state") == STARTED_ARRAY_STATE
        found.pending.append(
            PendingJob(job, hold, False, pbs_job_ids.strip_server_name(name), release_is_pointless=stays, holder=holder)
        )
        found.asked[number], found.records[number] = asks, record
        if _is_job_starting(record):
            found.begins.add(number)
        if (
            MIN_WALLTIME_RESOURCE in get_attribute_part_texts(record, "Resource_List")
            and job.walltime_s != UNLIMITED_WALLTIME_S
        ):
            found.fitted[number] = job.walltime_s
    return found


def build_job(record: Record, number: int, asks: ChunkedRequest, walltime_s: int, since_s: int | None = None) -> Job:
    """Return the job for a record.

    `since_s` is the start of its wait, by default its submission.
    """
    return Job(
        id=number,
        submit_s=_get_submit_time_s(record) if since_s is None else since_s,
        walltime_s=walltime_s,
        request=asks.request,
        user=get_job_owner(record),
        name=str(record.get("Job_Name", "")),
        queue=get_text_attribute(record, "queue"),
        account=str(record.get("Account_Name", "") or record.get("project", "")),
    )


def get_walltime_s(record: Record) -> int:
    """Return a job's walltime in seconds, or `UNLIMITED_WALLTIME_S` if it has none."""
    text = get_attribute_part_texts(record, "Resource_List").get("walltime", "")
    return max(1, parse_duration_s(text)) if text else UNLIMITED_WALLTIME_S


def list_shrink_to_fit_walltimes_s(record: Record, context: PbsJobTranslationContext) -> tuple[int, ...]:
    """Return a waiting job's possible walltimes in seconds, longest first.

    A job without a `min_walltime` has exactly one walltime. Other jobs have their longest walltime, shorter ones that
    end before a reservation (in whole minutes), and the shortest. Without a `max_walltime`, the longest is `walltime`,
    as set by the user or by PBS's last start.
    """
    requested = get_attribute_part_texts(record, "Resource_List")
    if MIN_WALLTIME_RESOURCE not in requested:
        return (get_walltime_s(record),)
    least = max(1, parse_duration_s(requested[MIN_WALLTIME_RESOURCE]))
    most = max(
        least,
        parse_duration_s(requested[MAX_WALLTIME_RESOURCE])
        if MAX_WALLTIME_RESOURCE in requested
        else get_walltime_s(record),
    )
    left = {(each.from_s - context.now_s) // MINUTE_S * MINUTE_S for each in context.reservations} | {least}
    shorter = sorted((seconds for seconds in left if least <= seconds < most), reverse=True)
    return (most, *shorter[: MAX_TRIED_WALLTIMES - 2], *shorter[MAX_TRIED_WALLTIMES - 2 :][-1:])


def _translate_pending_record(
    record: Record, parent: Record | None, number: int, since_s: int, context: PbsJobTranslationContext
) -> tuple[Job, ChunkedRequest, tuple[Hold, Holder]]:
    if _is_record_unreadable(record):
        raise JobNotModelled("cannot be read", f"cannot be read: {record[UNREADABLE_KEY]}")
    if number >= pbs_job_ids.FIRST_AMBIGUOUS_NUMBER:
        raise JobNotModelled("another job has the same number")
    get_limit_entities_of_job(record)
    name = get_text_attribute(record, "queue")
    queue = context.queues.get(name)
    if queue is None:
        raise JobNotModelled(f"queue {escape_controls(name)} is not managed by the bridge")
    requested = get_attribute_part_texts(record, "Resource_List")
    select, place = get_text_attribute(record, "schedselect") or requested.get("select", ""), requested.get("place", "")
    if not select:
        raise JobNotModelled("requests no chunks")
    everywhere = context.machine.mask_vnodes_of_queue(queue.record, name)
    walltimes = list_shrink_to_fit_walltimes_s(record, context)
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
    job = build_job(record, number, asks, walltime_s, since_s)
    hold, holder, why = _classify_hold(record, parent, queue, context.by_hand)
    return replace(job, ineligible=before or why), asks, (hold, holder)


def _classify_hold(
    record: Record, parent: Record | None, queue: PbsExecutionQueue, by_hand: Collection[str]
) -> tuple[Hold, Holder, PendingReason | None]:
    """Return a job's hold, its holder, and the reason why it may not start yet.

    PBS has four kinds of holds: user (`u`), operator (`o`), manager or dependency (`s`), and expired password (`p`).
    """
    state = get_text_attribute(record, "job_state")
    if state in ("R", "E"):
        return Hold.NONE, Holder.OWNER, None
    holds = {letter for each in (record, parent or {}) for letter in get_text_attribute(each, "Hold_Types", "n")} - {
        "n"
    }
    if holds or state == "H":
        depends = "s" in holds and "depend" in record
        by_administrator = "o" in holds or ("s" in holds and not depends)
        holder = Holder.ADMINISTRATOR if by_administrator else Holder.OWNER if "u" in holds else Holder.CLUSTER
        code = PendingCode.HELD_FOR_JOBS if depends else PendingCode.HELD
        return Hold.USER, holder, PendingReason(code, ("".join(sorted(holds)) or "H",))
    if queue.name in by_hand:
        return Hold.USER, Holder.CLUSTER, QUEUE_OPENED_REASON
    hold = Hold.NONE if queue.started else Hold.PLUGIN
    until = {"W": PendingReason(PendingCode.BEGIN_TIME), "T": PendingReason(PendingCode.IN_TRANSIT)}
    return hold, Holder.OWNER, until.get(state)


def _make_unmanaged_job(
    name: str,
    number: int,
    record: Record,
    parent: Record | None,
    reason: PendingReason,
    context: PbsJobTranslationContext,
) -> UnmanagedJob:
    """Return an unmanaged job, marked for release if its queue is closed."""
    queue = context.queues.get(str(record.get("queue", "")))
    held = False
    if queue is not None and not queue.started:
        holds = {str(each.get("Hold_Types", "n")) for each in (record, parent or {})}
        held = holds <= {"n"} and record.get("job_state") == "Q"
    try:
        user = get_job_owner(record)
    except UNREADABLE_FIELD_ERRORS:
        user = ""
    return UnmanagedJob(
        number, reason, pbs_job_ids.strip_server_name(name), escape_controls(user), held_for_bridge=held
    )


def _count_startable_subjobs(jobs: Mapping[str, Record]) -> dict[str, int]:
    """Return how many more subjobs may run, by array name.

    Only arrays with `max_run_subjobs` are included.
    """
    most: dict[str, int] = {}
    for name, record in jobs.items():
        bound = str(record.get("max_run_subjobs", "")) if pbs_job_ids.is_array_job_name(name) else ""
        if bound.isdigit():
            most[name] = int(bound)
    for name, record in jobs.items():
        array = pbs_job_ids.find_parent_array_name(name)
        if array in most and record.get("job_state") in ("R", "E", "S", "U"):
            most[array] -= 1
    return most


def _get_submit_time_s(record: Mapping[str, Value]) -> int:
    """Return the Unix time of a job's submission to this server, or 0.

    The result is 0 if the time is missing or unreadable.
    """
    for name in ("ctime", "qtime"):
        text = record.get(name)
        if isinstance(text, str) and text:
            try:
                return parse_unix_time_s(text)
            except UNREADABLE_FIELD_ERRORS:
                return 0
    return 0


def _compute_wait_start_s(record: Record, parent: Record | None, number: int, context: PbsJobTranslationContext) -> int:
    """Return the Unix time at which a job began to wait.

    It is computed from the job's eligible time or its submission time.
    """
    eligible_time = record.get("eligible_time", (parent or {}).get("eligible_time"))
    if not (context.accrues_eligible_time and isinstance(eligible_time, str)):
        return _get_submit_time_s(record)
    try:
        since_s = max(0, context.now_s - parse_duration_s(eligible_time))
    except ValueError:
        return _get_submit_time_s(record)
    before = context.known.get(number)
    return (
        before.submit_s
        if before is not None and abs(before.submit_s - since_s) <= ELIGIBLE_TIME_TOLERANCE_S
        else since_s
    )


def _is_job_starting(record: Record) -> bool:
    """Return whether a job's host has not accepted it yet, or has rejected it.

    A rejected job has state E. Such a job counts as released rather than running, because PBS may requeue it before it
    runs.
    """
    if record.get("job_state") == "E":
        return record.get("Exit_status") in REJECTED_BY_HOST_STATUSES
    return record.get("job_state") == "R" and record.get("substate") == SUBSTATE_STARTING


def _is_record_unreadable(record: Record) -> bool:
    return UNREADABLE_KEY in record
