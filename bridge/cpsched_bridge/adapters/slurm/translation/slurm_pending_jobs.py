"""Translate pending records into jobs to schedule, or into jobs left to Slurm.

Each array task is a job.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.errors import escape_controls
from cpsched.model import Job, NodeSetPart, PendingCode, PendingReason
from cpsched_bridge.adapters.shared.not_modelled import UNREADABLE, JobNotModelled, unreadable_reason
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import (
    array_tasks,
    job_dependencies,
    pending_reasons,
    slurm_job_ids,
    slurm_states,
)
from cpsched_bridge.adapters.slurm.translation.free_capacity import (
    FreeNodeCapacity,
    WakeableNodeCapacity,
    count_units_by_node,
)
from cpsched_bridge.adapters.slurm.translation.partition_access import PartitionAccessContext, access_denied_reason
from cpsched_bridge.adapters.slurm.translation.slurm_jobs import (
    TranslatedSlurmJob,
    get_walltime_s,
    translate_pending_job,
)
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import SlurmPartition
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import (
    FutureCoreReservation,
    SlurmReservation,
    conflicting_reservations,
    find_magnetic_reservation,
)
from cpsched_bridge.adapters.slurm.translation.start_pins import to_unpinned
from cpsched_bridge.adapters.slurm.translation.unknown_nodes import describe_unknown_nodes
from cpsched_bridge.equivalence import equivalence_key
from cpsched_bridge.ports import Hold, Holder, PendingJob, UnmanagedJob


@dataclass(frozen=True, slots=True, eq=False)
class PendingJobContext:
    """The context in which pending records are translated."""

    now_s: int
    machine: SlurmNodeTable
    partitions: Mapping[str, SlurmPartition]
    reservations: tuple[SlurmReservation, ...]
    pinned: Collection[int]
    """Jobs whose node list was set by the bridge."""
    guarded: bool
    """Whether the submit plugin is loaded; otherwise its marks in a job's comment prove nothing."""
    doors: PartitionAccessContext
    room: FreeNodeCapacity
    """The capacity of the free nodes."""
    to_come: tuple[FutureCoreReservation, ...]
    wakeable: WakeableNodeCapacity


@dataclass(frozen=True, slots=True)
class _Known:
    """A translated record, with the values on which the translation depends."""

    record: Record
    partition: SlurmPartition | None
    conflicts: tuple[SlurmReservation, ...]
    asked: TranslatedSlurmJob | PendingReason
    """The translated job, or the reason if the job is left to Slurm."""

    def still(self, record: Record, partition: SlurmPartition, conflicts: tuple[SlurmReservation, ...]) -> bool:
        """Return whether translating again would give the same result."""
        return (
            self.partition is partition
            and [r.name for r in self.conflicts] == [r.name for r in conflicts]
            and all((a.members == b.members).all() for a, b in zip(self.conflicts, conflicts, strict=True))
            and self.record == record
        )


@dataclass(slots=True)
class PendingJobTranslator:
    """A translator of pending jobs that does not translate unchanged records again."""

    asked: dict[int, TranslatedSlurmJob] = field(default_factory=dict)
    """The modelled jobs of the last reading, by job number."""
    limits: array_tasks.ArrayTaskLimits = field(default_factory=array_tasks.ArrayTaskLimits)
    _known: dict[int, _Known] = field(default_factory=dict)
    _by_task: set[int] = field(default_factory=set)
    """Jobs last translated task by task, although they can also run in equal shares."""

    def read(self, jobs: Sequence[Record], around: PendingJobContext) -> tuple[list[PendingJob], list[UnmanagedJob]]:
        """Return the pending jobs in arrival order, and the jobs left to Slurm."""
        before, self.asked = self.asked, {}
        pending: list[PendingJob] = []
        left: list[UnmanagedJob] = []
        active = array_tasks.count_active_tasks(jobs)
        others = job_dependencies.JobDependencyTargets(jobs, around.now_s)
        waiting = [record for record in jobs if record["state"] == slurm_states.PENDING]
        for record in sorted(waiting, key=lambda record: (record["submit_time"] or 0, record["id"])):
            numbers = array_tasks.list_job_numbers(record)
            asked = self._asked(record, numbers, before, around)
            if isinstance(asked, PendingReason):
                left.append(_left(record, asked, around.guarded, _is_pinned(record, numbers, around)))
            else:
                wait = None if others.are_dependencies_met(record) else job_dependencies.UNMET
                wait = wait or _not_yet(record, around.now_s)
                wait = wait or access_denied_reason(record, around.partitions[record["partition"]], around.doors)
                pending += self._pending(
                    record, asked, numbers, self.limits.remaining_tasks(record, active), wait, around
                )
        left += [_requeued(record) for record in jobs if record["state"] == slurm_states.SPECIAL_EXIT]
        sleepers = _sleepers(pending, around)
        left += [_left_asleep(each) for each in pending if each.job.id in sleepers]
        return [each for each in pending if each.job.id not in sleepers], left

    def _asked(
        self,
        record: Record,
        numbers: Sequence[int],
        before: Mapping[int, TranslatedSlurmJob],
        around: PendingJobContext,
    ) -> TranslatedSlurmJob | PendingReason:
        """Return the job that the record requests, or why it is left to Slurm.

        A job whose start is in progress keeps its earlier request, because the bridge's pin changes more than the node
        list.
        """
        if not numbers:
            return JobNotModelled("its waiting tasks cannot be read").reason
        ours = _is_pinned(record, numbers, around)
        try:
            lost = describe_unknown_nodes("required_nodes", record, around.machine) if ours else None
            if lost is not None:
                return JobNotModelled(lost).reason
            if ours and numbers[0] in before:
                return before[numbers[0]]
            asked = self._translated(to_unpinned(record) if ours else record, numbers[0], around)
        except UNREADABLE as error:
            return unreadable_reason(error)
        if record["required_nodes"] and not ours:
            return PendingReason(PendingCode.CHOSEN_NODES)
        return asked if isinstance(asked, PendingReason) or ours else _attracted(record, asked, around) or asked

    def _translated(self, record: Record, number: int, around: PendingJobContext) -> TranslatedSlurmJob | PendingReason:
        partition = around.partitions.get(record["partition"] or "")
        if partition is None:
            several = "," in (record["partition"] or "")
            what = "several partitions" if several else f"unknown partition {record['partition']}"
            return JobNotModelled(what).reason
        conflicts = conflicting_reservations(
            around.reservations, around.now_s, around.now_s + get_walltime_s(record, partition)
        )
        known = self._known.get(number)
        if known is None or not known.still(record, partition, conflicts):
            asked = _translate(record, number, around.machine, partition, conflicts)
            known = self._known[number] = _Known(record, partition, conflicts, asked)
        return known.asked

    def _pending(
        self,
        record: Record,
        first: TranslatedSlurmJob,
        numbers: Sequence[int],
        room: int | None,
        wait: PendingReason | None,
        around: PendingJobContext,
    ) -> list[PendingJob]:
        """Return one pending job for each number of a record.

        All tasks of an array except the first `room` must wait. `wait` is another reason why the whole record must
        currently wait.
        """
        found = []
        hold, pinned = slurm_states.hold_from_record(record, around.guarded), bool(record["required_nodes"])
        holder = slurm_states.find_holder(record) if hold is Hold.USER else Holder.OWNER
        first = self._split(numbers[0], first, hold, around)
        for place, number in enumerate(numbers):
            asked = self.asked[number] = first if number == numbers[0] else _numbered(first, number)
            full = room is not None and place >= room
            why = asked.job.ineligible or wait or (array_tasks.FULL if full else None)
            job = asked.job if why == asked.job.ineligible else dataclasses.replace(asked.job, ineligible=why)
            likes = equivalence_key(job)
            job = _beside(job, around)
            label = slurm_job_ids.format_job_id(number)
            subject = pending_reasons.PendingReasonSubject(label, record, likes)
            obstacle, groups = pending_reasons.find_pending_reason(subject), pending_reasons.list_backoff_keys(subject)
            meaning = pending_reasons.get_reason_meaning(record["state_reason"] or "")
            refused = pending_reasons.reason_name(record["state_reason"]) if meaning.refused else ""
            found.append(
                PendingJob(job, hold, pinned, label, obstacle, groups, meaning.lower_priority, refused, holder=holder)
            )
        return found

    def _split(
        self, number: int, asked: TranslatedSlurmJob, hold: Hold, around: PendingJobContext
    ) -> TranslatedSlurmJob:
        """Return the job in equal shares, or task by task if it can start now only in that form.

        Equal shares keep a job on few nodes. A job whose start is in progress keeps its split. A job that the bridge
        may not start is shown in equal shares.
        """
        by_task = asked.task_by_task
        if by_task is None:
            return asked
        if hold in (Hold.PLUGIN, Hold.ADMIN):
            if around.room.fits(by_task.job.request) and not around.room.fits(asked.job.request):
                self._by_task.add(number)
            else:
                self._by_task.discard(number)
        return by_task if number in self._by_task else asked

    def get_modelled_jobs(self) -> dict[int, Job]:
        """Return the requests of the modelled jobs in the last reading, by number."""
        return {number: asked.job for number, asked in self.asked.items()}

    def retain_jobs(self, numbers: set[int]) -> None:
        """Forget all jobs except these."""
        for number in self._known.keys() - numbers:
            del self._known[number]
        self._by_task &= numbers

    def clear(self) -> None:
        """Discard the translations, which belong to another machine."""
        self._known.clear()
        self._by_task.clear()
        self.asked.clear()


def _translate(
    record: Record,
    number: int,
    machine: SlurmNodeTable,
    partition: SlurmPartition,
    conflicts: tuple[SlurmReservation, ...],
) -> TranslatedSlurmJob | PendingReason:
    try:
        return translate_pending_job(record, number, machine, partition, conflicts)
    except JobNotModelled as reason:
        return reason.reason
    except UNREADABLE as error:
        return unreadable_reason(error)


def _attracted(record: Record, asked: TranslatedSlurmJob, around: PendingJobContext) -> PendingReason | None:
    """Return why Slurm must place a job that a magnetic reservation could take."""
    span = around.now_s, around.now_s + asked.job.walltime_s
    members = around.partitions[record["partition"]].members
    request = asked.job.request
    found = find_magnetic_reservation(around.reservations, record, request, span, members, around.machine, around.doors)
    return (
        PendingReason(PendingCode.MAGNETIC_RESERVATION, (escape_controls(found.name),)) if found is not None else None
    )


def _beside(job: Job, around: PendingJobContext) -> Job:
    """Return the job, excluding nodes on which it would use cores that are reserved for later."""
    met = [each for each in around.to_come if each.conflicts_with_job(around.now_s, job.walltime_s)]
    if not met:
        return job
    machine, request = around.machine, job.request
    mask = machine.rows[request.node_set]
    closed = np.logical_or.reduce([each.mask_blocked_nodes(request) for each in met])
    if not (mask & closed).any():
        return job
    parts = (*machine.parts_of(request.node_set), NodeSetPart("reservation", met[0].name))
    request = dataclasses.replace(request, node_set=machine.intern_node_set(mask & ~closed, *parts))
    why = job.ineligible
    if why is None and count_units_by_node(request, machine.capacity, machine).sum() < request.units:
        why = PendingReason(PendingCode.BESIDE_RESERVATION, (met[0].name,))
    return dataclasses.replace(job, request=request, ineligible=why)


ASLEEP = PendingReason(PendingCode.SLEEPING_NODES)


def _sleepers(pending: Sequence[PendingJob], around: PendingJobContext) -> set[int]:
    """Return the numbers of the jobs that could start now only if Slurm woke nodes for them.

    Jobs that are not held come first, because Slurm may already be waking nodes for them.
    """
    found = set()
    for each in sorted(pending, key=lambda each: each.hold is not Hold.NONE):
        waits = each.job.ineligible is not None or each.pinned or each.hold in (Hold.USER, Hold.CLUSTER)
        if not waits and not around.room.fits(each.job.request) and around.wakeable.try_take(each.job.request):
            found.add(each.job.id)
    return found


def _left_asleep(pending: PendingJob) -> UnmanagedJob:
    held = pending.hold is Hold.PLUGIN
    return UnmanagedJob(pending.job.id, ASLEEP, pending.label, pending.job.user, held_for_us=held)


def _numbered(asked: TranslatedSlurmJob, number: int) -> TranslatedSlurmJob:
    return dataclasses.replace(asked, job=dataclasses.replace(asked.job, id=number))


def _is_pinned(record: Record, numbers: Sequence[int], around: PendingJobContext) -> bool:
    """Return whether the record has a node list that the bridge set."""
    if not record["required_nodes"]:
        return False
    return slurm_states.is_pinned_by_bridge(record, around.guarded) or any(
        number in around.pinned for number in numbers
    )


def _requeued(record: Record) -> UnmanagedJob:
    what = "requeued and held, until an administrator releases it"
    reason = PendingReason(PendingCode.CLUSTER, ("SPECIAL_EXIT", what))
    return UnmanagedJob(
        slurm_job_ids.job_id_of_record(record),
        reason,
        slurm_job_ids.format_job_id(slurm_job_ids.job_id_of_record(record)),
        record["user_name"] or "",
    )


def _left(record: Record, reason: PendingReason, guarded: bool, pinned: bool) -> UnmanagedJob:
    number, hold = slurm_job_ids.job_id_of_record(record), slurm_states.hold_from_record(record, guarded)
    return UnmanagedJob(
        number,
        reason,
        slurm_job_ids.format_job_id(number),
        record["user_name"] or "",
        held_for_us=hold is Hold.PLUGIN,
        pinned=pinned and hold is Hold.NONE,
    )


def _not_yet(record: Record, now_s: int) -> PendingReason | None:
    return PendingReason(PendingCode.BEGIN_TIME) if (record["eligible_time"] or 0) > now_s else None
