"""Translate one reading of Slurm records into an `Observation`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from cpsched.model import EndedJob, IntArray, Job, RunningJob
from cpsched.site.accounts import NO_EXEMPTIONS, PartitionLimit
from cpsched.slurm_text.configuration import SelectRules, SlurmConfig, parse_release
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmNode, SlurmObject
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_reservations, slurm_states
from cpsched_bridge.adapters.slurm.translation.free_capacity import (
    FreeNodeCapacity,
    compute_free_amounts,
    compute_gpus_occupied_by_parts,
    compute_reserved_amounts,
    list_future_core_reservations,
    mask_available_nodes,
    mask_nodes_with_shared_cores,
    mask_overcommitted_nodes,
    return_gpus_with_last_job,
    sum_running_requests,
)
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import DEFAULT_RULES, SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import (
    CachingPartitionTranslator,
    PartitionAccessContext,
    PartitionRules,
    find_account_check_rules,
    list_core_limits,
)
from cpsched_bridge.adapters.slurm.translation.slurm_pending_jobs import (
    CachingPendingJobTranslator,
    PendingJobTranslationContext,
)
from cpsched_bridge.adapters.slurm.translation.slurm_placed_jobs import (
    CachingRunningJobTranslator,
    NewlyEndedJobReader,
    drop_nodes_unusable_after_end,
    ended_jobs_from_sacct,
    list_ended_jobs,
)
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import (
    FutureCoreReservation,
    ReservedNodes,
    translate_reservations,
)
from cpsched_bridge.adapters.slurm.translation.start_pins import EQUAL_SHARES_SINCE
from cpsched_bridge.ports import ObjectKind, Observation, Outage, UnusableObject

MAX_UNUSED_NODE_SETS = 100
"""All node sets are dropped if unused sets outnumber used sets by more than this."""


@dataclass(slots=True)
class SlurmTranslator:
    """A translator of readings, with the state that later readings need."""

    rules: SelectRules = DEFAULT_RULES
    accounts_checked: tuple[bool | None, bool] = (None, True)
    """Whether partitions check accounts, in the form that `slurm_partitions.find_account_check_rules` returns."""
    cluster_name: str = ""
    job_defaults: str | None = None
    """slurm.conf's `JobDefaults`."""
    machine: SlurmNodeTable | None = None
    queue: CachingPendingJobTranslator = field(default_factory=CachingPendingJobTranslator)
    free: IntArray | None = None
    """The free amounts at the last reading, int64[N, R]."""
    to_come: tuple[FutureCoreReservation, ...] = ()
    """Future reservations of parts of nodes, at the last reading."""
    _partitions: CachingPartitionTranslator = field(default_factory=CachingPartitionTranslator)
    _running: CachingRunningJobTranslator = field(default_factory=CachingRunningJobTranslator)
    _ended: NewlyEndedJobReader = field(default_factory=NewlyEndedJobReader)
    _jobs: dict[int, Job] = field(default_factory=dict)
    """Jobs as translated while pending or running, so that an ended job keeps the same request for the predictors."""

    @classmethod
    def from_config(cls, config: SlurmConfig) -> SlurmTranslator:
        """Return a translator for a cluster with this configuration."""
        needs_cpus = parse_release(str(config.version)) < EQUAL_SHARES_SINCE
        return cls(
            replace(SelectRules.from_config(config), equal_shares_need_cpus=needs_cpus),
            find_account_check_rules(config),
            config.cluster_name or "",
            config.job_defaults,
        )

    def observe(
        self,
        seen: SlurmRecords,
        pinned: Collection[int] = (),
        above: Mapping[str, str] | None = None,
        licenses: Collection[str] = (),
        exempt_qos: Mapping[str, frozenset[PartitionLimit]] = NO_EXEMPTIONS,
    ) -> Observation:
        """Return the observation for one reading.

        `pinned` contains the jobs whose node list the bridge set. `above` maps each account to its parent, if
        known. `licenses` are the licenses that the site's policy counts. `exempt_qos` are the partitions' limits that
        do not apply to the jobs of a QOS.
        """
        machine, partitions = self.translate_machine_and_partitions(seen)
        reservations = translate_reservations(
            slurm_reservations.without_lease_reservation(seen.reservations), seen.nodes, machine, seen.now_s
        )
        access_context = PartitionAccessContext(*self.accounts_checked, above, seen.outside)
        running = self._running.read(seen, machine, self._jobs)
        usable = mask_available_nodes(seen.nodes, reservations, seen.now_s)
        usable &= ~mask_overcommitted_nodes(seen.nodes, machine)
        usable &= ~mask_nodes_with_shared_cores(seen.jobs, partitions, machine)
        inside = _group_by_reservation(seen.jobs, running)
        held = compute_reserved_amounts(machine, reservations, inside, seen.now_s)
        held += compute_gpus_occupied_by_parts(seen.jobs, machine)
        held += sum_running_requests(machine, self._running.list_expedited_jobs(seen.jobs))
        self.free = compute_free_amounts(seen.nodes, machine, running, usable, held)
        self.to_come = list_future_core_reservations(machine, reservations, running, seen.now_s)
        machine.set_weights_by_wakeup_rank([slurm_states.compute_wakeup_rank(node.state) for node in seen.nodes])
        theirs = {job.job.id: each.partly_reserved_nodes for each in reservations for job in inside.get(each.name, ())}
        nowhere = np.zeros(len(machine.names), np.bool_)
        returning = tuple(
            drop_nodes_unusable_after_end(job, usable & ~theirs.get(job.job.id, nowhere))
            for job in return_gpus_with_last_job(machine, running, self.free, usable)
        )
        context = PendingJobTranslationContext(
            seen.now_s,
            machine,
            partitions,
            reservations,
            pinned,
            seen.guarded,
            access_context,
            FreeNodeCapacity(machine, self.free, returning, seen.now_s),
            self.to_come,
            licenses,
            exempt_qos,
        )
        pending, left = self.queue.read(seen.jobs, context)
        self._jobs.update(self.queue.get_modelled_jobs())
        ended = self._ended.read(seen.jobs, machine, self._jobs)
        begun = [*(each.job.id for each in running), *(each.job.id for each in ended)]
        self._forget_removed_jobs(seen.jobs)
        return Observation(
            now_s=seen.now_s,
            cluster=machine.build_cluster(),
            free=self.free,
            pending=tuple(pending),
            running=returning,
            ended=ended,
            unmanaged=tuple(left),
            outages=list_outages(seen.nodes, reservations, seen.now_s),
            otherwise=dict(self._running.otherwise),
            lease=slurm_reservations.lease_from_reservations(seen.reservations),
            unusable=tuple(list_unusable_objects(seen)),
            cluster_name=self.cluster_name,
            labels={
                number: slurm_job_ids.format_job_id(number)
                for number in begun
                if slurm_job_ids.split_task_id(number)[1] is not None
            },
        )

    def translate_machine_and_partitions(self, seen: SlurmRecords) -> tuple[SlurmNodeTable, dict[str, PartitionRules]]:
        """Return the machine and the partitions of one reading."""
        machine = self._update_machine(seen)
        return machine, self._partitions.read(machine, seen.partitions, self.job_defaults)

    def list_remembered_ended_jobs(self, seen: SlurmRecords) -> list[EndedJob]:
        """Return every ended job that the controller remembers, sorted by end time.

        Later observations report these jobs again.
        """
        return list_ended_jobs(seen.jobs, self._update_machine(seen), self._jobs)

    def translate_sacct_jobs(self, records: Sequence[SlurmJob], seen: SlurmRecords) -> list[EndedJob]:
        """Return the ended jobs in accounting records, sorted by end time."""
        return ended_jobs_from_sacct(records, self._update_machine(seen))

    def _update_machine(self, seen: SlurmRecords) -> SlurmNodeTable:
        """Return the configured machine. If it is new, discard earlier translations.

        Each list of excluded nodes adds a node set. To drop the sets of ended jobs, a new machine is built.
        """
        previous = None if self._has_too_many_node_sets() else self.machine
        limits = list_core_limits(seen.partitions)
        machine = SlurmNodeTable.from_records(seen.nodes, self.rules, previous, seen.topologies, limits)
        if machine is not self.machine:
            self.machine = machine
            self._partitions.clear()
            self._running.clear()
            self.queue.clear()
            self._jobs.clear()
        return machine

    def _has_too_many_node_sets(self) -> bool:
        """Return whether too many node sets belong to ended jobs.

        The jobs are searched only if there are many sets.
        """
        if self.machine is None or len(self.machine.rows) <= MAX_UNUSED_NODE_SETS:
            return False
        needed = {job.request.node_set for job in self._jobs.values()}
        return len(self.machine.rows) > 2 * len(needed) + MAX_UNUSED_NODE_SETS

    def _forget_removed_jobs(self, jobs: Sequence[SlurmJob]) -> None:
        """Remove all data about jobs that the controller has forgotten."""
        alive = {
            number
            for job in jobs
            for number in (
                slurm_job_ids.list_job_numbers(job)
                if job.state == slurm_states.PENDING
                else [slurm_job_ids.get_job_id(job)]
            )
        }
        self.queue.retain_jobs(alive)
        self.queue.limits.retain_arrays({job.array_id for job in jobs})
        self._running.retain_jobs(alive)
        for number in self._jobs.keys() - alive:
            del self._jobs[number]


def _group_by_reservation(jobs: Sequence[SlurmJob], running: Sequence[RunningJob]) -> dict[str, list[RunningJob]]:
    """Return the running jobs by reservation name."""
    names = {
        slurm_job_ids.get_job_id(job): job.reservation for job in jobs if job.state in slurm_states.OCCUPYING_STATES
    }
    found: dict[str, list[RunningJob]] = {}
    for each in running:
        if name := names.get(each.job.id):
            found.setdefault(name, []).append(each)
    return found


def list_outages(nodes: Sequence[SlurmNode], reservations: Sequence[ReservedNodes], now_s: int) -> tuple[Outage, ...]:
    """Return the reservations of whole nodes as outages, then the unavailable nodes.

    Unavailable nodes with the same state form one outage. Slurm also marks the nodes of an active maintenance
    reservation in their state. These nodes are reported once, as reserved.
    """
    found = [
        Outage("reserved", r.name, tuple(r.members.nonzero()[0].tolist()), r.start_s, r.end_s) for r in reservations
    ]
    reserved = {node for outage in found if outage.from_s <= now_s for node in outage.nodes}
    parts = {row for r in reservations if r.start_s <= now_s for row in r.partly_reserved_nodes.nonzero()[0].tolist()}
    by_state: dict[str, list[int]] = {}
    for row, node in enumerate(nodes):
        state = slurm_states.strip_reserved_state(node.state) if row in parts else node.state
        if row not in reserved and not slurm_states.node_takes_jobs(state):
            by_state.setdefault(state.upper(), []).append(row)
    found += [
        Outage(_classify_outage(state), state, tuple(rows), now_s, None) for state, rows in sorted(by_state.items())
    ]
    return tuple(outage for outage in found if outage.nodes)


def _classify_outage(state: str) -> Literal["drained", "down"]:
    """Return "drained" if a working node is being drained, otherwise "down"."""
    base, *flags = state.split("+")
    return "drained" if base in slurm_states.USABLE_NODE_STATES and "DRAIN" in flags else "down"


def list_unusable_objects(seen: SlurmRecords) -> Iterator[UnusableObject]:
    """Yield all unusable objects in a reading.

    A job with an unreadable field counts only while it is pending. A job in an unknown state always counts.
    """
    tables: tuple[tuple[ObjectKind, Sequence[SlurmObject]], ...] = (
        ("node", seen.nodes),
        ("partition", seen.partitions),
        ("reservation", seen.reservations),
    )
    for kind, table in tables:
        yield from (slurm_states.make_unusable_object(kind, each) for each in table if each.has_unusable_field)
    for job in seen.jobs:
        if job.state == slurm_states.UNKNOWN:
            label = slurm_job_ids.format_job_id(slurm_job_ids.get_job_id(job))
            yield UnusableObject("job", label, "state", "unknown", job.unknown_state)
        elif job.unreadable and job.state == slurm_states.PENDING:
            label = slurm_job_ids.format_job_id(slurm_job_ids.get_job_id(job))
            yield UnusableObject("job", label, job.unreadable[0], "unreadable")
