"""Translate PBS readings into observations with their running jobs, and keep state for later readings."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cpsched.feasibility import amounts_by_node
from cpsched.model import BoolArray, EndedJob, Job, Placement, Request, RunningJob
from cpsched_bridge.adapters.pbs.pbs_objects import (
    LEASE_RESOURCE,
    PbsJob,
    PbsRecords,
    PbsServer,
    PbsVnode,
    make_unusable_object,
    parse_resource_amount,
    select_managed_queues,
)
from cpsched_bridge.adapters.pbs.translation import pbs_jobs
from cpsched_bridge.adapters.pbs.translation.pbs_chunk_requests import parse_place_text
from cpsched_bridge.adapters.pbs.translation.pbs_jobs import (
    PbsJobTranslationContext,
    TranslatedPbsPendingJobs,
    build_job,
    get_walltime_s,
    translate_pending_jobs,
)
from cpsched_bridge.adapters.pbs.translation.pbs_limits import PbsRunLimitTable
from cpsched_bridge.adapters.pbs.translation.vnodes import (
    ConfiguredVnodeTable,
    compute_free_amounts,
    find_overlapping_reservations,
    list_limited_vnodes,
    list_reservation_outages,
    list_vnode_outages,
    list_vnodes_with_unreadable_amounts,
    mask_usable_vnodes,
    translate_reservations,
)
from cpsched_bridge.adapters.shared.adapter_errors import UNREADABLE_FIELD_ERRORS, JobNotModelled
from cpsched_bridge.adapters.shared.lease_text import format_lease, parse_lease
from cpsched_bridge.adapters.shared.node_table import Amounts, describe_allocation, request_from_allocation
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, Lease, Observation, UnusableObject

ENDED_STATES = frozenset("XF")
"""States of ended subjobs and jobs that PBS still shows."""
MAX_UNUSED_NODE_SETS = 100
"""All node sets are dropped if unused sets outnumber used sets by more than this number."""


@dataclass(frozen=True, slots=True, eq=False)
class TranslatedPbsReading:
    """The translation of one reading, independent of earlier readings."""

    context: PbsJobTranslationContext
    numbers: Mapping[str, int]
    names: Mapping[int, str]
    waiting: TranslatedPbsPendingJobs
    vnodes: Mapping[str, PbsVnode]
    """The readable vnodes."""
    unusable: tuple[UnusableObject, ...]
    can_pbs_start_jobs: bool
    """Whether PBS's scheduler may start jobs at any moment."""


@dataclass(slots=True)
class PbsTranslator:
    """A translator from readings to observations. `queues` are the managed queues."""

    queues: tuple[str, ...]
    _machine: ConfiguredVnodeTable | None = None
    _known: dict[int, Job] = field(default_factory=dict)
    """Jobs from earlier readings, by number."""
    _ran: dict[int, tuple[Job, int]] = field(default_factory=dict)
    """Jobs that were running at the last reading or have started since, with start times in seconds, by number."""
    _otherwise: dict[int, str] = field(default_factory=dict)
    _sets: int = 0
    """Number of node sets that the jobs in the last reading need."""

    def interpret_reading(self, seen: PbsRecords, by_hand: Collection[str] = ()) -> TranslatedPbsReading:
        """Return the translation of a reading. Raise `ValueError` without vnodes.

        The translator stores only the vnode table and the number of node sets in use.
        """
        vnodes = {name: vnode for name, vnode in seen.vnodes.items() if not vnode.unreadable}
        found = ConfiguredVnodeTable.from_records(vnodes, seen.resources, self._machine)
        if found is self._machine and len(found.rows) > 2 * self._sets + MAX_UNUSED_NODE_SETS:
            found = ConfiguredVnodeTable.from_records(vnodes, seen.resources)
        if found is not self._machine:
            self._machine = found
            self._known.clear()
        numbers = pbs_jobs.assign_job_numbers(seen.jobs)
        kept, odd_reservations = translate_reservations(seen.reservations, vnodes, found, seen.now_s)
        free = compute_free_amounts(vnodes, found)
        for each in find_overlapping_reservations(kept, seen.now_s, seen.now_s + 1):
            free[each.members] = 0
        managed_queues = select_managed_queues(seen.queues, self.queues)
        eligible = seen.server.accrues_eligible_time
        context = PbsJobTranslationContext(
            seen.now_s, found, free, managed_queues, by_hand, kept, eligible, self._known
        )
        wait = translate_pending_jobs(seen.jobs, numbers, context)
        self._sets = len({asks.request.node_set for asks in wait.asked.values()})
        names = {number: name for name, number in numbers.items()}
        queues = [(name, seen.queues[name]) for name in self.queues if name in seen.queues]
        unreadable = (
            *seen.unreadable,
            *(
                make_unusable_object("node", name, each.unreadable)
                for name, each in seen.vnodes.items()
                if each.unreadable
            ),
            *list_vnodes_with_unreadable_amounts(vnodes, found),
            *(make_unusable_object("partition", name, each.unreadable) for name, each in queues if each.unreadable),
            *odd_reservations,
        )
        return TranslatedPbsReading(
            context,
            numbers,
            names,
            wait,
            vnodes,
            (*unreadable, *list_limited_vnodes(vnodes, found)),
            is_job_queued_in_open_queue(seen),
        )

    def record_start(self, job: Job, start_s: int) -> None:
        """Record a start that PBS accepted. The job may end before the next reading."""
        self._ran[job.id] = job, start_s

    def observe(self, seen: PbsRecords, reading: TranslatedPbsReading) -> Observation:
        """Return the observation for a reading and its translation."""
        usable = mask_usable_vnodes(reading.vnodes, reading.context.machine)
        reading.context.known.update({each.job.id: each.job for each in reading.waiting.pending})
        runs, otherwise = translate_running_jobs(
            seen.jobs, reading.numbers, reading.context, usable, reading.waiting.asked
        )
        alive = {number for number, name in reading.names.items() if seen.jobs[name].state not in ENDED_STATES}
        self._otherwise = {
            number: words for number, words in {**self._otherwise, **otherwise}.items() if number in alive
        }
        ended = self._find_ended_jobs(seen.now_s, alive)
        begins = {n: self._ran[n] for n in reading.waiting.begins if n in self._ran}
        self._ran = begins | {each.job.id: (each.job, each.start_s) for each in runs}
        self._known = {number: job for number, job in reading.context.known.items() if number in alive}
        queue_limits = {name: queue.limits for name, queue in reading.context.queues.items()}
        limits = PbsRunLimitTable.from_attributes(seen.server.limits, queue_limits)
        placed = [
            job
            for name, job in seen.jobs.items()
            if job.state in RUNNING_STATES and not pbs_jobs.is_array_job_name(name)
        ]
        return Observation(
            now_s=seen.now_s,
            cluster=reading.context.machine.build_cluster(),
            free=reading.context.free,
            pending=tuple(reading.waiting.pending),
            running=tuple(runs),
            ended=ended,
            unmanaged=tuple(reading.waiting.unmanaged),
            limits=limits.compute_limits_of_waiting_jobs(placed, reading.waiting.jobs),
            notes=tuple(limits.notes),
            unusable=reading.unusable,
            outages=(
                *list_vnode_outages(reading.vnodes, reading.context.machine, seen.now_s),
                *list_reservation_outages(reading.context.reservations),
            ),
            otherwise=dict(self._otherwise),
            lease=find_lease(seen.server),
            cluster_name=seen.server.host,
            labels={
                n: pbs_jobs.format_job_number(n)
                for n in (*self._ran, *(e.job.id for e in ended))
                if n >> pbs_jobs.SEQUENCE_BITS
            },
        )

    def _find_ended_jobs(self, now_s: int, alive: Collection[int]) -> tuple[EndedJob, ...]:
        """Return the jobs that ended since the last reading.

        Their end is the time of this reading.
        """
        gone = [(job, start_s) for number, (job, start_s) in self._ran.items() if number not in alive]
        return tuple(EndedJob(job, start_s, max(now_s, start_s)) for job, start_s in gone)


def is_job_queued_in_open_queue(seen: PbsRecords) -> bool:
    """Return whether a queued job waits in an open queue."""
    served = {name for name, queue in seen.queues.items() if queue.unreadable or queue.is_started}
    return any(job.state == "Q" and job.queue in served for job in seen.jobs.values())


def find_lease(server: PbsServer) -> Lease | None:
    """Return the lease stored on the server, or None if there is none."""
    if not server.lease:
        return None
    text = server.lease
    with contextlib.suppress(ValueError):  # if decoding fails, another program wrote the text
        text = bytes.fromhex(text).decode()
    return parse_lease(text, f"the actor that set {LEASE_RESOURCE}")


def encode_lease(lease: Lease) -> str:
    """Return the lease as hexadecimal digits, which are safe in a value for `qmgr`."""
    return format_lease(lease).encode().hex()


def translate_ended_jobs(jobs: Mapping[str, PbsJob], machine: ConfiguredVnodeTable) -> Sequence[EndedJob]:
    """Return the readable ended jobs in PBS's history, sorted by end time."""
    ended = []
    for name, pbs_job in jobs.items():
        start_s, duration_s = pbs_job.start_s, pbs_job.used_walltime_s
        if pbs_job.state not in ENDED_STATES or pbs_jobs.is_array_job_name(name):
            continue
        if start_s is None or duration_s is None:
            continue
        with contextlib.suppress(*UNREADABLE_FIELD_ERRORS):
            amounts = parse_exec_vnode(pbs_job.exec_vnode, machine)
            unknown = Request(1, (1,) * len(machine.resources))
            request = request_from_allocation(amounts, False)[0] if amounts else unknown
            job = build_job(pbs_job, pbs_jobs.parse_job_number(name), request, get_walltime_s(pbs_job))
            job = replace(job, submit_s=min(job.submit_s, start_s))
            ended.append(EndedJob(job, start_s, start_s + duration_s))
    return sorted(ended, key=lambda each: (each.end_s, each.job.id))


RUNNING_STATES = frozenset("REU")
"""States of jobs that occupy vnodes: running, exiting, or suspended by keyboard activity.

A job that is suspended for another reason has released its vnodes.
"""
_EXEC_VNODE_PART = re.compile(r"([^()+:=\s]+)((?::[A-Za-z][A-Za-z0-9_-]*=[^()+:=\s]*)+)")


def translate_running_jobs(
    jobs: Mapping[str, PbsJob],
    numbers: Mapping[str, int],
    context: PbsJobTranslationContext,
    usable: BoolArray,
    begins: Collection[int],
) -> tuple[list[RunningJob], dict[int, str]]:
    """Return the running jobs, and descriptions of unexpected allocations.

    An allocation is unexpected if it differs from the request. Descriptions are by job number. Jobs in `begins` count
    as waiting. `context.known` contains jobs from earlier readings. If a job's allocation equals the request stored
    there, that job is returned. Otherwise, the job is built from its allocation. All returned jobs are stored there.
    """
    machine, known, now_s = context.machine, context.known, context.now_s
    found, otherwise = [], {}
    for name, job in jobs.items():
        state, number = job.state, numbers[name]
        if number in begins or pbs_jobs.is_array_job_name(name) or (state not in RUNNING_STATES and state != "S"):
            continue
        before = known.get(number)
        try:
            each = _translate_running_job(job, number, machine, before, now_s)
            if before is not None and each.job.request != before.request and state != "S":
                amounts = parse_exec_vnode(job.exec_vnode, machine)
                otherwise[number] = describe_allocation(amounts, machine)
        except (*UNREADABLE_FIELD_ERRORS, JobNotModelled):
            each = RunningJob(_make_job_with_unknown_amounts(job, number, machine), now_s, ())
        known[number] = each.job if state != "S" or before is None else before
        kept = tuple((node, units) for node, units in each.placement if usable[node])
        found.append(replace(each, placement=() if state == "S" else kept))
    return found, otherwise


def _translate_running_job(
    job: PbsJob, number: int, machine: ConfiguredVnodeTable, before: Job | None, now_s: int
) -> RunningJob:
    job.require_readable("stime", "exec_vnode", "Resource_List")
    start_s = now_s if job.start_s is None else min(job.start_s, now_s)
    amounts = parse_exec_vnode(job.exec_vnode, machine)
    if not amounts:
        raise ValueError("exec_vnode contains no known vnode")
    exclusive = parse_place_text(job.requested.get("place", "")).sharing in ("excl", "exclhost")
    if before is not None:
        placement = match_allocation_to_request(before.request, amounts, machine)
        if placement is not None:
            walltime_s = get_walltime_s(job)  # a manager may have changed it
            same = before.walltime_s == walltime_s
            return RunningJob(before if same else replace(before, walltime_s=walltime_s), start_s, placement)
        exclusive = exclusive or before.request.exclusive
    request, placement = request_from_allocation(amounts, exclusive)
    return RunningJob(build_job(job, number, request, get_walltime_s(job)), start_s, placement)


def parse_exec_vnode(exec_vnode: str, machine: ConfiguredVnodeTable) -> Amounts:
    """Return a job's amounts by vnode row, without unknown vnodes.

    Raise `ValueError` for malformed amounts. Example: `(vm[0]:ncpus=2:mem=1gb)+(vm[1]:ncpus=2)`.
    """
    found: dict[int, list[int]] = {}
    for name, words in _EXEC_VNODE_PART.findall(exec_vnode):
        row = machine.index.get(name)
        if row is None:
            continue
        there = found.setdefault(row, [0] * len(machine.resources))
        for word in words[1:].split(":"):
            resource, _, value = word.partition("=")
            if resource in machine.resources:
                column = machine.resources.index(resource)
                there[column] += math.ceil(parse_resource_amount(value, resource in machine.sizes))
    return {row: tuple(amounts) for row, amounts in sorted(found.items())}


def match_allocation_to_request(request: Request, amounts: Amounts, machine: ConfiguredVnodeTable) -> Placement | None:
    """Return a job's placement if its amounts equal its request, otherwise None.

    A resource that PBS does not print, such as memory, counts as allocated in the requested amount. For a job with
    exclusive vnodes, only the amounts of its units are compared.
    """
    column = next(at for at, amount in enumerate(request.per_unit) if amount)
    placement = tuple((node, there[column] // request.per_unit[column]) for node, there in sorted(amounts.items()))
    if sum(units for _, units in placement) != request.units or any(units == 0 for _, units in placement):
        return None
    if request.distinct and any(units > 1 for _, units in placement):
        return None
    plain = replace(request, exclusive=False)
    for node, taken in amounts_by_node(plain, placement, machine.capacity).items():
        there = np.array(amounts[node])
        is_known = there > 0
        if (there[is_known] != taken[is_known]).any() or there[column] != taken[column]:
            return None
    return placement


def _make_job_with_unknown_amounts(job: PbsJob, number: int, machine: ConfiguredVnodeTable) -> Job:
    """Return a job whose amounts are unknown."""
    request = Request(1, (1,) * len(machine.resources))
    with contextlib.suppress(*UNREADABLE_FIELD_ERRORS):  # the user's name may be invalid
        return Job(number, 0, UNLIMITED_WALLTIME_S, request, user=job.owner)
    return Job(number, 0, UNLIMITED_WALLTIME_S, request)
