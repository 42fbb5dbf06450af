"""Translate the records of waiting jobs to managed and unmanaged jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from cpsched.errors import escape_controls
from cpsched.model import IntArray, Job, PendingCode, PendingReason
from cpsched.parsing.pbs_select import parse_duration_s
from cpsched_bridge.adapters.pbs.pbs_records import UNREADABLE_KEY, Record, Value, get_part_texts, get_text
from cpsched_bridge.adapters.pbs.translation import pbs_job_ids
from cpsched_bridge.adapters.pbs.translation.pbs_limits import get_owner, limit_entities
from cpsched_bridge.adapters.pbs.translation.pbs_queues import PbsExecutionQueue
from cpsched_bridge.adapters.pbs.translation.pbs_reservations import PbsReservation, conflicting_reservations
from cpsched_bridge.adapters.pbs.translation.pbs_units import FOREVER_S, parse_time_s
from cpsched_bridge.adapters.pbs.translation.select_chunks import ChunkedRequest, build_chunk_request, chunks_fit
from cpsched_bridge.adapters.pbs.translation.vnodes import VnodeTable
from cpsched_bridge.adapters.shared.not_modelled import UNREADABLE, JobNotModelled, unreadable_reason
from cpsched_bridge.ports import Hold, Holder, PendingJob, UnmanagedJob

WAITING = frozenset("QHWT")
"""States of waiting jobs: queued, held, waiting for their time, moving."""
MINUTE_S = 60
BEGINS = "41"
"""Substate of a running job that its vnodes have not accepted yet."""
REFUSED = ("-3", "-16", "-22")
"""Exit statuses of a job that its host rejected and that PBS requeues (see `job.h`)."""
BEGUN = "B"
"""State of an array with a started subjob, which PBS does not move to another queue."""
BY_HAND = PendingReason(PendingCode.QUEUE_OPENED)
FULL = PendingReason(PendingCode.ARRAY_LIMIT, ("subjobs",))
LEAST, MOST = "min_walltime", "max_walltime"
"""Bounds on the walltime of a shrink-to-fit job, whose walltime is chosen at its start."""
MOST_WALLTIMES = 6
"""Maximum number of walltimes that are tried for a shrink-to-fit job."""
CLOCKS_S = 2
"""Tolerance in seconds between two readings of the same eligible time, for clock skew and rounding."""


@dataclass(frozen=True, slots=True)
class PbsPendingContext:
    """The facts needed for the translation of waiting jobs."""

    now_s: int
    machine: VnodeTable
    free: IntArray
    queues: Mapping[str, PbsExecutionQueue]
    """The managed queues by name."""
    by_hand: Collection[str]
    """The managed queues that another actor opened."""
    reservations: tuple[PbsReservation, ...]
    counts_eligible: bool = False
    """Whether the server accrues eligible time."""
    known: Mapping[int, Job] = field(default_factory=dict)
    """Jobs from earlier readings, by number."""


@dataclass(slots=True)
class PbsPendingJobs:
    """The waiting jobs of one reading."""

    pending: list[PendingJob] = field(default_factory=list)
    left: list[UnmanagedJob] = field(default_factory=list)
    asked: dict[int, ChunkedRequest] = field(default_factory=dict)
    """Requests of the jobs in `pending`, by number."""
    records: dict[int, Record] = field(default_factory=dict)
    """Records of the jobs in `pending`, by number."""
    fitted: dict[int, int] = field(default_factory=dict)
    """Walltimes in seconds to set before shrink-to-fit jobs start, by job number; see `LEAST`."""
    begins: set[int] = field(default_factory=set)
    """Jobs in `pending` that their vnodes have not accepted yet, or have rejected."""


def translate_pending_jobs(
    jobs: Mapping[str, Record], numbers: Mapping[str, int], scene: PbsPendingContext
) -> PbsPendingJobs:
    """Return the waiting jobs in arrival order; each subjob is a job."""
    found = PbsPendingJobs()
    room = _room_in_arrays(jobs)
    order = []
    for name, record in jobs.items():
        if pbs_job_ids.is_array(name) and not _is_broken(record):
            continue
        state = str(record.get("job_state", ""))
        if state in WAITING or _begins(record) or _is_broken(record):
            array = pbs_job_ids.parent_array_name(name) or ""
            order.append((_waits_since(record, jobs.get(array), numbers[name], scene), numbers[name], name, array))
    for since_s, number, name, array in sorted(order):
        record, parent = jobs[name], jobs.get(array)
        try:
            job, asks, (hold, holder) = _read(record, parent, number, since_s, scene)
        except (JobNotModelled, *UNREADABLE) as reason:
            if _begins(record):
                continue  # the running jobs include it
            why = reason.reason if isinstance(reason, JobNotModelled) else unreadable_reason(reason)
            found.left.append(_left(name, number, record, parent, why, scene))
            continue
        if array in room:
            room[array] -= 1
            if room[array] < 0 and job.ineligible is None:
                job = replace(job, ineligible=FULL)
        stays = hold is Hold.PLUGIN and parent is not None and parent.get("job_state") == BEGUN
        found.pending.append(
            PendingJob(job, hold, False, pbs_job_ids.strip_server_name(name), release_is_pointless=stays, holder=holder)
        )
        found.asked[number], found.records[number] = asks, record
        if _begins(record):
            found.begins.add(number)
        if LEAST in get_part_texts(record, "Resource_List") and job.walltime_s != FOREVER_S:
            found.fitted[number] = job.walltime_s
    return found


def build_job(record: Record, number: int, asks: ChunkedRequest, walltime_s: int, since_s: int | None = None) -> Job:
    """Return the job for a record; `since_s` defaults to its arrival."""
    return Job(
        id=number,
        submit_s=_arrival(record) if since_s is None else since_s,
        walltime_s=walltime_s,
        request=asks.request,
        user=get_owner(record),
        name=str(record.get("Job_Name", "")),
        queue=get_text(record, "queue"),
        account=str(record.get("Account_Name", "") or record.get("project", "")),
    )


def get_walltime_s(record: Record) -> int:
    """Return a job's walltime in seconds."""
    said = get_part_texts(record, "Resource_List").get("walltime", "")
    return max(1, parse_duration_s(said)) if said else FOREVER_S


def list_walltimes_s(record: Record, scene: PbsPendingContext) -> tuple[int, ...]:
    """Return the walltimes in seconds that a waiting job may start with, longest first.

    A job without a `min_walltime` has exactly one. Other jobs have their longest walltime, and shorter ones that end
    before a reservation, in whole minutes. Without a `max_walltime`, the longest is `walltime`, which was written by
    the user or by PBS's last start.
    """
    wishes = get_part_texts(record, "Resource_List")
    if LEAST not in wishes:
        return (get_walltime_s(record),)
    least = max(1, parse_duration_s(wishes[LEAST]))
    most = max(least, parse_duration_s(wishes[MOST]) if MOST in wishes else get_walltime_s(record))
    left = {(each.from_s - scene.now_s) // MINUTE_S * MINUTE_S for each in scene.reservations} | {least}
    shorter = sorted((seconds for seconds in left if least <= seconds < most), reverse=True)
    return (most, *shorter[: MOST_WALLTIMES - 2], *shorter[MOST_WALLTIMES - 2 :][-1:])


def _read(
    record: Record, parent: Record | None, number: int, since_s: int, scene: PbsPendingContext
) -> tuple[Job, ChunkedRequest, tuple[Hold, Holder]]:
    if _is_broken(record):
        raise JobNotModelled("cannot be read", f"cannot be read: {record[UNREADABLE_KEY]}")
    if number >= pbs_job_ids.STRANGE:
        raise JobNotModelled("another job has the same number")
    limit_entities(record)
    name = get_text(record, "queue")
    queue = scene.queues.get(name)
    if queue is None:
        raise JobNotModelled(f"queue {escape_controls(name)} is not managed by the bridge")
    wishes = get_part_texts(record, "Resource_List")
    select, place = get_text(record, "schedselect") or wishes.get("select", ""), wishes.get("place", "")
    if not select:
        raise JobNotModelled("asks for no chunks")
    everywhere = scene.machine.select_by_queue(queue.record, name)
    walltimes = list_walltimes_s(record, scene)
    tries = []
    for seconds in walltimes:
        allowed = everywhere
        for each in conflicting_reservations(scene.reservations, scene.now_s, scene.now_s + seconds):
            allowed = allowed & ~each.members
        with contextlib.suppress(JobNotModelled):
            tries.append((seconds, build_chunk_request(select, place, scene.machine, allowed, scene.free)))
    before = None
    if tries:
        begin = (each for each in tries if len(tries) > 1 and chunks_fit(each[1].request, scene.free, scene.machine))
        walltime_s, asks = next(begin, tries[0])
    else:
        walltime_s, asks = walltimes[0], build_chunk_request(select, place, scene.machine, everywhere, scene.free)
        before = PendingReason(PendingCode.NO_GAP)
    job = build_job(record, number, asks, walltime_s, since_s)
    hold, holder, why = _hold(record, parent, queue, scene.by_hand)
    return replace(job, ineligible=before or why), asks, (hold, holder)


def _hold(
    record: Record, parent: Record | None, queue: PbsExecutionQueue, by_hand: Collection[str]
) -> tuple[Hold, Holder, PendingReason | None]:
    """Return a job's hold, its holder, and the reason why it may not start yet.

    PBS has four kinds of holds: user (`u`), operator (`o`), manager or dependency (`s`), and expired password (`p`).
    """
    state = get_text(record, "job_state")
    if state in ("R", "E"):
        return Hold.NONE, Holder.OWNER, None
    holds = {letter for each in (record, parent or {}) for letter in get_text(each, "Hold_Types", "n")} - {"n"}
    if holds or state == "H":
        depends = "s" in holds and "depend" in record
        by_administrator = "o" in holds or ("s" in holds and not depends)
        holder = Holder.ADMINISTRATOR if by_administrator else Holder.OWNER if "u" in holds else Holder.CLUSTER
        code = PendingCode.HELD_FOR_JOBS if depends else PendingCode.HELD
        return Hold.USER, holder, PendingReason(code, ("".join(sorted(holds)) or "H",))
    if queue.name in by_hand:
        return Hold.USER, Holder.CLUSTER, BY_HAND
    hold = Hold.NONE if queue.started else Hold.PLUGIN
    until = {"W": PendingReason(PendingCode.BEGIN_TIME), "T": PendingReason(PendingCode.IN_TRANSIT)}
    return hold, Holder.OWNER, until.get(state)


def _left(
    name: str, number: int, record: Record, parent: Record | None, reason: PendingReason, scene: PbsPendingContext
) -> UnmanagedJob:
    """Return an unmanaged job, which the bridge releases if its queue is closed."""
    queue = scene.queues.get(str(record.get("queue", "")))
    held = False
    if queue is not None and not queue.started:
        holds = {str(each.get("Hold_Types", "n")) for each in (record, parent or {})}
        held = holds <= {"n"} and record.get("job_state") == "Q"
    try:
        user = get_owner(record)
    except UNREADABLE:
        user = ""
    return UnmanagedJob(number, reason, pbs_job_ids.strip_server_name(name), escape_controls(user), held_for_us=held)


def _room_in_arrays(jobs: Mapping[str, Record]) -> dict[str, int]:
    """Return how many more subjobs may run, by name of each array with `max_run_subjobs`."""
    most: dict[str, int] = {}
    for name, record in jobs.items():
        bound = str(record.get("max_run_subjobs", "")) if pbs_job_ids.is_array(name) else ""
        if bound.isdigit():
            most[name] = int(bound)
    for name, record in jobs.items():
        array = pbs_job_ids.parent_array_name(name)
        if array in most and record.get("job_state") in ("R", "E", "S", "U"):
            most[array] -= 1
    return most


def _arrival(record: Mapping[str, Value]) -> int:
    """Return when a job was submitted to this server, in Unix seconds; 0 if unreadable."""
    for name in ("ctime", "qtime"):
        said = record.get(name)
        if isinstance(said, str) and said:
            try:
                return parse_time_s(said)
            except UNREADABLE:
                return 0
    return 0


def _waits_since(record: Record, parent: Record | None, number: int, scene: PbsPendingContext) -> int:
    """Return when a job began to wait, according to its eligible time or its submission."""
    said = record.get("eligible_time", (parent or {}).get("eligible_time"))
    if not (scene.counts_eligible and isinstance(said, str)):
        return _arrival(record)
    try:
        since_s = max(0, scene.now_s - parse_duration_s(said))
    except ValueError:
        return _arrival(record)
    before = scene.known.get(number)
    return before.submit_s if before is not None and abs(before.submit_s - since_s) <= CLOCKS_S else since_s


def _begins(record: Record) -> bool:
    """Return whether a job's host has not accepted it yet, or rejected it (state E).

    Such a job counts as released rather than running, because PBS may requeue it before it runs.
    """
    if record.get("job_state") == "E":
        return record.get("Exit_status") in REFUSED
    return record.get("job_state") == "R" and record.get("substate") == BEGINS


def _is_broken(record: Record) -> bool:
    return UNREADABLE_KEY in record
