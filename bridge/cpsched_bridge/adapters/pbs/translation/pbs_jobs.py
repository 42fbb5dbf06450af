"""Records of jobs that wait: as jobs to decide on, or as jobs left to PBS with the reason."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from cpsched.errors import escape_controls
from cpsched.model import IntArray, Job, PendingCode, PendingReason
from cpsched.parsing.pbs_select import parse_duration_s
from cpsched_bridge.adapters.pbs.pbs_records import UNREADABLE as BROKEN
from cpsched_bridge.adapters.pbs.pbs_records import Record, Value, text_of, texts_of
from cpsched_bridge.adapters.pbs.translation import pbs_job_ids
from cpsched_bridge.adapters.pbs.translation.pbs_limits import counted_as, owner_of
from cpsched_bridge.adapters.pbs.translation.pbs_queues import ExecutionQueue
from cpsched_bridge.adapters.pbs.translation.pbs_reservations import Reservation, conflicting_reservations
from cpsched_bridge.adapters.pbs.translation.pbs_units import FOREVER_S, time_s
from cpsched_bridge.adapters.pbs.translation.select_chunks import ChunkRequest, chunk_request, chunks_fit
from cpsched_bridge.adapters.pbs.translation.vnodes import VnodeTable
from cpsched_bridge.adapters.shared.not_modelled import UNREADABLE, NotModelled, unreadable
from cpsched_bridge.ports import Hold, Holder, PendingJob, UnmanagedJob

WAITING = frozenset("QHWT")
"""States of jobs that have not begun: queued, held, waiting for their time, on their way to another queue."""
MINUTE_S = 60
BEGINS = "41"
"""The substate of a running job that its vnodes have not taken yet."""
REFUSED = ("-3", "-16", "-22")
"""Exit statuses of a job that its host, or a hook there, did not take on: PBS has it wait again (OpenPBS's `job.h`)."""
BEGUN = "B"
"""The state of an array of which a subjob has begun: PBS moves it into no other queue."""
BY_HAND = PendingReason(PendingCode.QUEUE_OPENED)
FULL = PendingReason(PendingCode.ARRAY_LIMIT, ("subjobs",))
LEAST, MOST = "min_walltime", "max_walltime"
"""Resources of a job whose walltime is chosen when the job starts, between the two (shrink-to-fit)."""
MOST_WALLTIMES = 6
"""How many walltimes of such a job are tried."""
CLOCKS_S = 2
"""How far two readings of one eligible time may be apart because clocks differ or a second ended between."""


@dataclass(frozen=True, slots=True)
class PendingContext:
    """What pending records are read against."""

    now_s: int
    machine: VnodeTable
    free: IntArray
    queues: Mapping[str, ExecutionQueue]
    """The managed ones."""
    by_hand: Collection[str]
    """Those of them that somebody else has opened."""
    reservations: tuple[Reservation, ...]
    counts_eligible: bool = False
    """Whether the server counts eligible time."""
    known: Mapping[int, Job] = field(default_factory=dict)
    """Jobs as earlier readings saw them."""


@dataclass(slots=True)
class PendingJobs:
    """The jobs of one reading that wait."""

    pending: list[PendingJob] = field(default_factory=list)
    left: list[UnmanagedJob] = field(default_factory=list)
    asked: dict[int, ChunkRequest] = field(default_factory=dict)
    """By number, what those in `pending` ask for."""
    records: dict[int, Record] = field(default_factory=dict)
    """By number, the records of those in `pending`."""
    fitted: dict[int, int] = field(default_factory=dict)
    """By number, the walltimes (s) that jobs of `pending` must be given before they start: see `LEAST`."""
    begins: set[int] = field(default_factory=set)
    """Those of `pending` that are on their way onto their vnodes, or back from them."""


def pending_jobs(jobs: Mapping[str, Record], numbers: Mapping[str, int], scene: PendingContext) -> PendingJobs:
    """The jobs that wait, in arrival order: arrays subjob by subjob."""
    found = PendingJobs()
    room = _room_in_arrays(jobs)
    order = []
    for name, record in jobs.items():
        if pbs_job_ids.is_array(name) and not _is_broken(record):
            continue
        state = str(record.get("job_state", ""))
        if state in WAITING or _begins(record) or _is_broken(record):
            array = pbs_job_ids.parent_of(name) or ""
            order.append((_waits_since(record, jobs.get(array), numbers[name], scene), numbers[name], name, array))
    for since_s, number, name, array in sorted(order):
        record, parent = jobs[name], jobs.get(array)
        try:
            job, asks, (hold, holder) = _read(record, parent, number, since_s, scene)
        except (NotModelled, *UNREADABLE) as reason:
            if _begins(record):
                continue  # it is seen running all the same
            why = reason.reason if isinstance(reason, NotModelled) else unreadable(reason)
            found.left.append(_left(name, number, record, parent, why, scene))
            continue
        if array in room:
            room[array] -= 1
            if room[array] < 0 and job.ineligible is None:
                job = replace(job, ineligible=FULL)
        stays = hold is Hold.PLUGIN and parent is not None and parent.get("job_state") == BEGUN
        found.pending.append(
            PendingJob(job, hold, False, pbs_job_ids.label(name), release_is_pointless=stays, holder=holder)
        )
        found.asked[number], found.records[number] = asks, record
        if _begins(record):
            found.begins.add(number)
        if LEAST in texts_of(record, "Resource_List") and job.walltime_s != FOREVER_S:
            found.fitted[number] = job.walltime_s
    return found


def job_of(record: Record, number: int, asks: ChunkRequest, walltime_s: int, since_s: int | None = None) -> Job:
    """A record as a job that asks for this, and has waited since then, or since it came; what a user chose is text."""
    return Job(
        id=number,
        submit_s=_arrival(record) if since_s is None else since_s,
        walltime_s=walltime_s,
        request=asks.request,
        user=owner_of(record),
        name=str(record.get("Job_Name", "")),
        queue=text_of(record, "queue"),
        account=str(record.get("Account_Name", "") or record.get("project", "")),
    )


def walltime_of(record: Record) -> int:
    """How long a job may run."""
    said = texts_of(record, "Resource_List").get("walltime", "")
    return max(1, parse_duration_s(said)) if said else FOREVER_S


def walltimes_of(record: Record, scene: PendingContext) -> tuple[int, ...]:
    """The walltimes (s) that a waiting job may start with, the longest first.

    One, unless it has a `min_walltime`: then the longest that it allows, and what reservations leave of it, in whole
    minutes. Without a `max_walltime` its `walltime` is the longest, which PBS wrote when it last began, or its user.
    """
    wishes = texts_of(record, "Resource_List")
    if LEAST not in wishes:
        return (walltime_of(record),)
    least = max(1, parse_duration_s(wishes[LEAST]))
    most = max(least, parse_duration_s(wishes[MOST]) if MOST in wishes else walltime_of(record))
    left = {(each.from_s - scene.now_s) // MINUTE_S * MINUTE_S for each in scene.reservations} | {least}
    shorter = sorted((seconds for seconds in left if least <= seconds < most), reverse=True)
    return (most, *shorter[: MOST_WALLTIMES - 2], *shorter[MOST_WALLTIMES - 2 :][-1:])


def _read(
    record: Record, parent: Record | None, number: int, since_s: int, scene: PendingContext
) -> tuple[Job, ChunkRequest, tuple[Hold, Holder]]:
    if _is_broken(record):
        raise NotModelled("cannot be read", f"cannot be read: {record[BROKEN]}")
    if number >= pbs_job_ids.STRANGE:
        raise NotModelled("another job has its number")
    counted_as(record)
    name = text_of(record, "queue")
    queue = scene.queues.get(name)
    if queue is None:
        raise NotModelled(f"queue {escape_controls(name)} is not the bridge's")
    wishes = texts_of(record, "Resource_List")
    select, place = text_of(record, "schedselect") or wishes.get("select", ""), wishes.get("place", "")
    if not select:
        raise NotModelled("asks for no chunks")
    everywhere = scene.machine.of_queue(queue.record, name)
    walltimes = walltimes_of(record, scene)
    tries = []
    for seconds in walltimes:
        allowed = everywhere
        for each in conflicting_reservations(scene.reservations, scene.now_s, scene.now_s + seconds):
            allowed = allowed & ~each.members
        with contextlib.suppress(NotModelled):
            tries.append((seconds, chunk_request(select, place, scene.machine, allowed, scene.free)))
    before = None
    if tries:
        begin = (each for each in tries if len(tries) > 1 and chunks_fit(each[1].request, scene.free, scene.machine))
        walltime_s, asks = next(begin, tries[0])
    else:
        walltime_s, asks = walltimes[0], chunk_request(select, place, scene.machine, everywhere, scene.free)
        before = PendingReason(PendingCode.NO_GAP)
    job = job_of(record, number, asks, walltime_s, since_s)
    hold, holder, why = _hold(record, parent, queue, scene.by_hand)
    return replace(job, ineligible=before or why), asks, (hold, holder)


def _hold(
    record: Record, parent: Record | None, queue: ExecutionQueue, by_hand: Collection[str]
) -> tuple[Hold, Holder, PendingReason | None]:
    """Who keeps PBS from starting a job, and why the job may not start yet.

    PBS has four holds: the owner's (`u`), an operator's (`o`), a manager's or for a dependency (`s`), and one for an
    expired password (`p`).
    """
    state = text_of(record, "job_state")
    if state in ("R", "E"):
        return Hold.NONE, Holder.OWNER, None
    holds = {letter for each in (record, parent or {}) for letter in text_of(each, "Hold_Types", "n")} - {"n"}
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
    name: str, number: int, record: Record, parent: Record | None, reason: PendingReason, scene: PendingContext
) -> UnmanagedJob:
    """A job that is left to PBS; the bridge has to let go of one whose queue PBS's own scheduler leaves alone."""
    queue = scene.queues.get(str(record.get("queue", "")))
    held = False
    if queue is not None and not queue.started:
        holds = {str(each.get("Hold_Types", "n")) for each in (record, parent or {})}
        held = holds <= {"n"} and record.get("job_state") == "Q"
    try:
        user = owner_of(record)
    except UNREADABLE:
        user = ""
    return UnmanagedJob(number, reason, pbs_job_ids.label(name), escape_controls(user), held_for_us=held)


def _room_in_arrays(jobs: Mapping[str, Record]) -> dict[str, int]:
    """By array with a bound on the subjobs that run at once, how many more of them may."""
    most: dict[str, int] = {}
    for name, record in jobs.items():
        bound = str(record.get("max_run_subjobs", "")) if pbs_job_ids.is_array(name) else ""
        if bound.isdigit():
            most[name] = int(bound)
    for name, record in jobs.items():
        array = pbs_job_ids.parent_of(name)
        if array in most and record.get("job_state") in ("R", "E", "S", "U"):
            most[array] -= 1
    return most


def _arrival(record: Mapping[str, Value]) -> int:
    """When a job was submitted to this server; 0 where that cannot be read."""
    for name in ("ctime", "qtime"):
        said = record.get(name)
        if isinstance(said, str) and said:
            try:
                return time_s(said)
            except UNREADABLE:
                return 0
    return 0


def _waits_since(record: Record, parent: Record | None, number: int, scene: PendingContext) -> int:
    """Since when a job counts as waiting: its submission, or as long ago as it has been eligible."""
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
    """Whether a job is on its way onto its vnodes, or back from them because its host has refused it (state E).

    Such a job counts as released, and not as running: it may wait again, without having run.
    """
    if record.get("job_state") == "E":
        return record.get("Exit_status") in REFUSED
    return record.get("job_state") == "R" and record.get("substate") == BEGINS


def _is_broken(record: Record) -> bool:
    return BROKEN in record
