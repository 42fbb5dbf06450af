"""Translate pending records into jobs to schedule, or into jobs left to Slurm.

Each array task is a separate job.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.errors import escape_controls
from cpsched.model import Job, NodeSetCondition, PendingCode, PendingReason
from cpsched.site.accounts import PartitionLimit
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.shared.adapter_errors import (
    UNREADABLE_FIELD_ERRORS,
    JobNotModelled,
    make_unreadable_reason,
)
from cpsched_bridge.adapters.slurm.slurm_records import SETTABLE_PARTITIONS_PATTERN
from cpsched_bridge.adapters.slurm.translation import job_dependencies, pending_reasons, slurm_job_ids, slurm_states
from cpsched_bridge.adapters.slurm.translation.free_capacity import (
    FreeNodeCapacity,
    count_units_by_node,
)
from cpsched_bridge.adapters.slurm.translation.slurm_jobs import (
    PartitionTerms,
    SlurmJobWithStartSettings,
    get_walltime_s,
    translate_pending_job,
)
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable, describe_unknown_nodes
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import (
    PartitionAccessContext,
    PartitionRules,
    find_access_denied_reason,
)
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import (
    FutureCoreReservation,
    ReservedNodes,
    find_reservations_before_job_end,
    fits_empty_reservation,
    may_use_reservation,
)
from cpsched_bridge.adapters.slurm.translation.start_pins import restore_requested_node_count
from cpsched_bridge.adapters.slurm.translation.unsupported_requests import find_uncounted_licenses_reason
from cpsched_bridge.backoff_groups import make_equivalence_class_key
from cpsched_bridge.ports import Hold, Holder, PendingJob, UnmanagedJob

SEVERAL_PARTITIONS_PATTERN = re.compile(rf"(?=.*,){SETTABLE_PARTITIONS_PATTERN}", re.ASCII)
"""Pattern for the partition list of a job that names several partitions."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingJobTranslationContext:
    """The context in which pending records are translated."""

    now_s: int
    machine: SlurmNodeTable
    partitions: Mapping[str, PartitionRules]
    reservations: tuple[ReservedNodes, ...]
    pinned: Collection[int]
    """Jobs whose node list was set by the bridge."""
    guarded: bool
    """Whether the submit plugin is loaded. Without it, marks in a job's comment prove nothing."""
    access_context: PartitionAccessContext
    room: FreeNodeCapacity
    """The capacity of the free nodes."""
    to_come: tuple[FutureCoreReservation, ...]
    licenses: Collection[str]
    """The licenses whose total number is known."""
    exempt_qos: Mapping[str, frozenset[PartitionLimit]]
    """Limits of partitions that do not apply to the jobs of a QOS, by QOS."""


@dataclass(frozen=True, slots=True)
class _CachedJobTranslation:
    """A translated record, with the values on which the translation depends."""

    slurm_job: SlurmJob
    terms: PartitionTerms
    asked: SlurmJobWithStartSettings | PendingReason
    """The translated job, or the reason why the job is left to Slurm."""


@dataclass(slots=True)
class CachingPendingJobTranslator:
    """A translator of pending jobs that does not translate unchanged records again."""

    asked: dict[int, SlurmJobWithStartSettings] = field(default_factory=dict)
    """The modelled jobs of the last reading, by job number."""
    limits: slurm_job_ids.RememberedArrayTaskLimits = field(default_factory=slurm_job_ids.RememberedArrayTaskLimits)
    _known: dict[tuple[int, str], _CachedJobTranslation] = field(default_factory=dict)
    """Translations by job number and partition."""
    _split_by_task: set[int] = field(default_factory=set)
    """Jobs last translated task by task, although they can also run in equal shares."""
    _last_partition: dict[int, str] = field(default_factory=dict)
    """Partitions last chosen for an immediate start, by number of a job that names several partitions."""

    def read(
        self, jobs: Sequence[SlurmJob], context: PendingJobTranslationContext
    ) -> tuple[list[PendingJob], list[UnmanagedJob]]:
        """Return the pending jobs in arrival order, and the jobs left to Slurm."""
        before, self.asked = self.asked, {}
        pending: list[PendingJob] = []
        left: list[UnmanagedJob] = []
        active = slurm_job_ids.count_active_tasks(jobs)
        others = job_dependencies.JobDependencyTargets(jobs, context.now_s)
        waiting = [job for job in jobs if job.state == slurm_states.PENDING]
        for job in sorted(waiting, key=lambda job: (job.submit_time, job.id)):
            numbers = slurm_job_ids.list_job_numbers(job)
            if numbers and SEVERAL_PARTITIONS_PATTERN.fullmatch(job.partition):
                job = self._choose_partition(job, numbers[0], context)
            asked = self._translate_request(job, numbers, before, context)
            if isinstance(asked, PendingReason):
                left.append(_make_unmanaged_job(job, asked, context.guarded, _has_bridge_pin(job, numbers, context)))
            else:
                wait = others.find_unmet_dependency_reason(job) or _find_begin_time_reason(job, context.now_s)
                wait = wait or find_access_denied_reason(job, context.partitions[job.partition], context.access_context)
                startable = self.limits.count_startable_tasks(job, active)
                limited = () if startable is None else numbers[startable:]
                waits = dict.fromkeys(numbers, wait) | dict.fromkeys(limited, wait or slurm_job_ids.TASK_LIMIT_REASON)
                pending += self._make_pending_jobs(job, asked, waits, context)
        for job in jobs:
            wait_for_slurm = slurm_states.find_wait_for_slurm(job, context.now_s)
            if wait_for_slurm is not None:
                reason = PendingReason(PendingCode.CLUSTER, wait_for_slurm)
                number = slurm_job_ids.get_job_id(job)
                label = slurm_job_ids.format_job_id(number)
                left.append(UnmanagedJob(number, reason, label, job.user_name))
        return pending, left

    def _translate_request(
        self,
        job: SlurmJob,
        numbers: Sequence[int],
        before: Mapping[int, SlurmJobWithStartSettings],
        context: PendingJobTranslationContext,
    ) -> SlurmJobWithStartSettings | PendingReason:
        """Return the job that the record requests, or why it is left to Slurm.

        A job whose start is in progress keeps its earlier request, because the bridge's pin changes more than the node
        list.
        """
        if not numbers:
            return JobNotModelled("its pending tasks cannot be read").reason
        ours = _has_bridge_pin(job, numbers, context)
        try:
            lost = describe_unknown_nodes("requests", job.required_nodes, context.machine) if ours else None
            if lost is not None:
                return JobNotModelled(lost).reason
            if ours and numbers[0] in before:
                return before[numbers[0]]
            asked = self._translate_cached(restore_requested_node_count(job) if ours else job, numbers[0], context)
        except UNREADABLE_FIELD_ERRORS as error:
            return make_unreadable_reason(error)
        if job.required_nodes and not ours:
            return PendingReason(PendingCode.CHOSEN_NODES)
        if isinstance(asked, PendingReason):
            return asked
        uncounted = find_uncounted_licenses_reason(job, context.licenses)
        if uncounted or ours:
            return uncounted or asked
        return _find_magnetic_reservation_reason(job, asked, context) or asked

    def _choose_partition(self, job: SlurmJob, number: int, context: PendingJobTranslationContext) -> SlurmJob:
        """Return the record with only the partition in which the job should start.

        If the job could start immediately in several partitions, the partition with the highest tier comes first. If
        the dispatcher does not start the job there, the next reading chooses the next partition. A reservation or a
        limit may block the free nodes of the first. The job is left to Slurm if any of its partitions is not modelled.
        """
        names = job.partition.split(",")
        unknown = next((name for name in names if name not in context.partitions), None)
        if unknown is not None:
            return job.in_partition(unknown)
        names.sort(key=lambda name: -context.partitions[name].tier)
        asked: dict[str, SlurmJobWithStartSettings] = {}
        allowed: dict[str, SlurmJobWithStartSettings] = {}
        for name in names:
            partition, view = context.partitions[name], job.in_partition(name)
            denied = find_access_denied_reason(view, partition, context.access_context)
            found = self._translate_cached(view, number, context)
            if isinstance(found, PendingReason):
                if denied is None and partition.unmodelled:
                    return view
                continue
            asked[name] = found
            if denied is None and found.job.ineligible is None:
                allowed[name] = found
        starts_s = {name: _find_earliest_fit_s(each, context.room) for name, each in (allowed or asked).items()}
        if not starts_s:
            return job.in_partition(names[0])
        first_s = min(starts_s.values())
        first = [name for name, start_s in starts_s.items() if start_s == first_s]
        last = self._last_partition.get(number)
        held = slurm_states.classify_hold(job, context.guarded) in (Hold.PLUGIN, Hold.ADMIN)
        chosen = first[(first.index(last) + 1) % len(first)] if held and last in first else first[0]
        if first_s <= context.now_s:
            self._last_partition[number] = chosen
        return job.in_partition(chosen)

    def _translate_cached(
        self, job: SlurmJob, number: int, context: PendingJobTranslationContext
    ) -> SlurmJobWithStartSettings | PendingReason:
        partition = context.partitions.get(job.partition)
        if partition is None:
            several = "," in job.partition
            what = "requests several partitions" if several else f"unknown partition {job.partition}"
            return JobNotModelled(what).reason
        conflicts = find_reservations_before_job_end(
            context.reservations, context.now_s, context.now_s + get_walltime_s(job, partition)
        )
        key = number, partition.name
        known = self._known.get(key)
        terms = PartitionTerms(partition, conflicts, context.exempt_qos.get(job.qos, frozenset()))
        if known is None or not known.terms.is_same(terms) or known.slurm_job != job:
            asked = _translate_or_find_reason(job, number, context.machine, terms)
            known = self._known[key] = _CachedJobTranslation(job, terms, asked)
        return known.asked

    def _make_pending_jobs(
        self,
        slurm_job: SlurmJob,
        asked: SlurmJobWithStartSettings,
        waits: Mapping[int, PendingReason | None],
        context: PendingJobTranslationContext,
    ) -> list[PendingJob]:
        """Return one pending job for each job number of a record.

        `waits` contains why the job with each number must currently wait, or None.
        """
        found = []
        hold, pinned = slurm_states.classify_hold(slurm_job, context.guarded), bool(slurm_job.required_nodes)
        holder = slurm_states.find_holder(slurm_job) if hold is Hold.USER else Holder.OWNER
        awaits_hold = slurm_states.find_begin_of_delayed_job(slurm_job) is not None
        asked = self._choose_split(next(iter(waits)), asked, hold, context)
        for number, wait in waits.items():
            asked = self.asked[number] = asked if number == asked.job.id else _with_job_number(asked, number)
            why = asked.job.ineligible or wait
            job = asked.job if why == asked.job.ineligible else dataclasses.replace(asked.job, ineligible=why)
            likes = make_equivalence_class_key(job)
            job = _exclude_reserved_nodes(job, context)
            label = slurm_job_ids.format_job_id(number)
            subject = pending_reasons.PendingJobWithReason(label, slurm_job, likes)
            meaning = pending_reasons.get_reason_meaning(slurm_job.state_reason)
            refused = pending_reasons.normalize_reason_name(slurm_job.state_reason) if meaning.refused else ""
            found.append(
                PendingJob(
                    job,
                    hold,
                    pinned,
                    label,
                    pending_reasons.find_cluster_reason(subject),
                    pending_reasons.list_backoff_keys(subject),
                    meaning.lower_priority,
                    refused,
                    holder=holder,
                    awaits_hold=awaits_hold,
                    start_settings=asked.settings,
                )
            )
        return found

    def _choose_split(
        self, number: int, asked: SlurmJobWithStartSettings, hold: Hold, context: PendingJobTranslationContext
    ) -> SlurmJobWithStartSettings:
        """Return the job split task by task if only this split can start now.

        Otherwise, return it in equal shares, which keep a job on few nodes. A job whose start is in progress keeps its
        split.
        """
        by_task = asked.task_by_task
        if by_task is None:
            return asked
        if hold in (Hold.PLUGIN, Hold.ADMIN):
            if context.room.fits(by_task.job.request) and not context.room.fits(asked.job.request):
                self._split_by_task.add(number)
            else:
                self._split_by_task.discard(number)
        return by_task if number in self._split_by_task else asked

    def get_modelled_jobs(self) -> dict[int, Job]:
        """Return the modelled jobs in the last reading, by job number."""
        return {number: asked.job for number, asked in self.asked.items()}

    def retain_jobs(self, numbers: set[int]) -> None:
        """Forget all jobs except these."""
        for key in [key for key in self._known if key[0] not in numbers]:
            del self._known[key]
        for number in self._last_partition.keys() - numbers:
            del self._last_partition[number]
        self._split_by_task &= numbers

    def clear(self) -> None:
        """Discard all translations, which are valid only for the previous machine."""
        self._known.clear()
        self._split_by_task.clear()
        self._last_partition.clear()
        self.asked.clear()


def _find_earliest_fit_s(asked: SlurmJobWithStartSettings, room: FreeNodeCapacity) -> int:
    """Return when a job fits if no other job starts, in equal shares or task by task."""
    forms = asked, asked.task_by_task
    return min(room.find_earliest_fit_s(each.job.request) for each in forms if each is not None)


def _translate_or_find_reason(
    job: SlurmJob, number: int, machine: SlurmNodeTable, terms: PartitionTerms
) -> SlurmJobWithStartSettings | PendingReason:
    try:
        return translate_pending_job(job, number, machine, terms)
    except JobNotModelled as reason:
        return reason.reason
    except UNREADABLE_FIELD_ERRORS as error:
        return make_unreadable_reason(error)


def _find_magnetic_reservation_reason(
    job: SlurmJob, asked: SlurmJobWithStartSettings, context: PendingJobTranslationContext
) -> PendingReason | None:
    """Return why Slurm must place a job that could start in a magnetic reservation now.

    Slurm does not start a job that would end after the reservation, unless the reservation is FLEX. If it is unknown
    whether the job may use a reservation, assume that it may.
    """
    now_s, end_s = context.now_s, context.now_s + asked.job.walltime_s
    members = context.partitions[job.partition].members
    for each in context.reservations:
        if not each.is_magnetic or not may_use_reservation(each.reservation, job, context.access_context):
            continue
        if "FLEX" in (each.reservation.flags or ()) or (
            each.start_s <= now_s
            and end_s <= each.end_s
            and fits_empty_reservation(each, asked.job.request, members, context.machine)
        ):
            return PendingReason(PendingCode.MAGNETIC_RESERVATION, (escape_controls(each.name),))
    return None


def _exclude_reserved_nodes(job: Job, context: PendingJobTranslationContext) -> Job:
    """Return the job without nodes on which it would use cores reserved for later."""
    met = [each for each in context.to_come if each.begins_during_job(context.now_s, job.walltime_s)]
    if not met:
        return job
    machine, request = context.machine, job.request
    mask = machine.rows[request.node_set]
    closed = np.logical_or.reduce([each.mask_blocked_nodes(request) for each in met])
    if not (mask & closed).any():
        return job
    parts = (*machine.get_node_set_conditions(request.node_set), NodeSetCondition("reservation", met[0].name))
    blocks = machine.node_set_blocks[request.node_set]
    request = dataclasses.replace(request, node_set=machine.intern_node_set(mask & ~closed, *parts, blocks=blocks))
    why = job.ineligible
    if why is None and count_units_by_node(request, machine.capacity, machine).sum() < request.units:
        why = PendingReason(PendingCode.BESIDE_RESERVATION, (met[0].name,))
    return dataclasses.replace(job, request=request, ineligible=why)


def _with_job_number(asked: SlurmJobWithStartSettings, number: int) -> SlurmJobWithStartSettings:
    return dataclasses.replace(asked, job=dataclasses.replace(asked.job, id=number))


def _has_bridge_pin(job: SlurmJob, numbers: Sequence[int], context: PendingJobTranslationContext) -> bool:
    """Return whether the record has a node list that the bridge set."""
    if not job.required_nodes:
        return False
    return slurm_states.is_pinned_by_bridge(job, context.guarded) or any(number in context.pinned for number in numbers)


def _make_unmanaged_job(job: SlurmJob, reason: PendingReason, guarded: bool, pinned: bool) -> UnmanagedJob:
    number, hold = slurm_job_ids.get_job_id(job), slurm_states.classify_hold(job, guarded)
    return UnmanagedJob(
        number,
        reason,
        slurm_job_ids.format_job_id(number),
        job.user_name,
        held_for_bridge=hold is Hold.PLUGIN or slurm_states.find_begin_of_delayed_job(job) is not None,
        pinned=pinned and hold is Hold.NONE,
    )


def _find_begin_time_reason(job: SlurmJob, now_s: int) -> PendingReason | None:
    asked_s = slurm_states.find_begin_of_delayed_job(job)
    begin_s = job.eligible_time if asked_s is None else asked_s
    return PendingReason(PendingCode.BEGINS_AT, (begin_s,)) if begin_s > now_s else None
