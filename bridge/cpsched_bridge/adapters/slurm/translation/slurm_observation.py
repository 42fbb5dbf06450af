"""Translate one reading of plain Slurm records into an `Observation`.

Each subject has its own module.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cpsched.model import EndedJob, IntArray, Job, RunningJob
from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.adapters.slurm.translation import array_tasks, lease_reservation, slurm_job_ids, slurm_states
from cpsched_bridge.adapters.slurm.translation.ended_jobs import (
    ReportedEndedJobs,
    ended_jobs_from_sacct,
    list_ended_jobs,
)
from cpsched_bridge.adapters.slurm.translation.free_capacity import FreeNodeCapacity, WakeableNodeCapacity
from cpsched_bridge.adapters.slurm.translation.node_availability import (
    compute_free_amounts,
    compute_reserved_amounts,
    future_core_reservations,
    mask_available_nodes,
    mask_overcommitted_nodes,
    mask_sleeping_nodes,
)
from cpsched_bridge.adapters.slurm.translation.partition_access import PartitionAccessContext
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import PartitionTranslator
from cpsched_bridge.adapters.slurm.translation.slurm_pending_jobs import PendingJobContext, PendingJobTranslator
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import (
    FutureCoreReservation,
    SlurmReservation,
    translate_reservations,
)
from cpsched_bridge.adapters.slurm.translation.slurm_running import RunningJobTranslator, keep_returning_nodes
from cpsched_bridge.adapters.slurm.translation.unusable_objects import list_unusable_objects
from cpsched_bridge.ports import Observation, Outage

SPARE_SETS = 100
"""Maximum number of unused node sets, beyond as many as are in use, before all sets are dropped."""


@dataclass(slots=True)
class SlurmTranslator:
    """A translator of readings that keeps the state later readings need."""

    counts_memory: bool = True
    """Whether Slurm allocates memory at all (CR_*_Memory)."""
    accounts_checked: tuple[bool | None, bool] = (None, True)
    """Whether partitions check accounts, in the form that `partition_access.parse_account_checks` returns."""
    cluster_name: str = ""
    job_defaults: str | None = None
    """slurm.conf's defaults for jobs that request GPUs, in partitions without their own `JobDefaults`."""
    machine: SlurmNodeTable | None = None
    queue: PendingJobTranslator = field(default_factory=PendingJobTranslator)
    free: IntArray | None = None
    """The free amounts at the last reading, int64[N, R]."""
    to_come: tuple[FutureCoreReservation, ...] = ()
    """Future reservations of parts of nodes, at the last reading."""
    _partitions: PartitionTranslator = field(default_factory=PartitionTranslator)
    _running: RunningJobTranslator = field(default_factory=RunningJobTranslator)
    _ended: ReportedEndedJobs = field(default_factory=ReportedEndedJobs)
    _jobs: dict[int, Job] = field(default_factory=dict)
    """Jobs as translated while pending or running, so that an ended job is learned under the same request."""

    def observe(
        self, seen: SlurmRecords, pinned: Collection[int] = (), above: Mapping[str, str] | None = None
    ) -> Observation:
        """Return the observation for one reading.

        `pinned` contains the jobs whose node list the bridge set. `above` maps each account to its parent, if
        known.
        """
        machine = self._machine(seen)
        partitions = self._partitions.read(machine, seen.partitions, self.job_defaults)
        reservations = translate_reservations(
            lease_reservation.without_lease_reservation(seen.reservations), seen.nodes, machine, seen.now_s
        )
        doors = PartitionAccessContext(*self.accounts_checked, above, seen.outside)
        running = self._running.read(seen, machine, self._jobs)
        usable = mask_available_nodes(seen.nodes, reservations, seen.now_s) & ~mask_overcommitted_nodes(
            seen.nodes, machine
        )
        inside = _by_reservation(seen.jobs, running)
        held = compute_reserved_amounts(machine, reservations, inside, seen.now_s)
        self.free = compute_free_amounts(seen.nodes, machine, running, usable, held)
        self.to_come = future_core_reservations(machine, reservations, running, seen.now_s)
        sleeping = mask_sleeping_nodes(seen.nodes, reservations, seen.now_s)
        around = PendingJobContext(
            seen.now_s,
            machine,
            partitions,
            reservations,
            pinned,
            seen.guarded,
            doors,
            FreeNodeCapacity(machine, self.free),
            self.to_come,
            WakeableNodeCapacity(
                machine, sleeping, compute_free_amounts(seen.nodes, machine, running, usable | sleeping, held)
            ),
        )
        pending, left = self.queue.read(seen.jobs, around)
        theirs = {job.job.id: each.partly_reserved_nodes for each in reservations for job in inside.get(each.name, ())}
        nowhere = np.zeros(len(machine.names), np.bool_)
        self._jobs.update(self.queue.get_modelled_jobs())
        ended = self._ended.read(seen.jobs, machine, self._jobs)
        begun = [*(each.job.id for each in running), *(each.job.id for each in ended)]
        self._forget(seen.jobs)
        return Observation(
            now_s=seen.now_s,
            cluster=machine.build_cluster(),
            free=self.free,
            pending=tuple(pending),
            running=tuple(keep_returning_nodes(job, usable & ~theirs.get(job.job.id, nowhere)) for job in running),
            ended=ended,
            left=tuple(left),
            outages=list_outages(seen.nodes, reservations, seen.now_s),
            otherwise=dict(self._running.otherwise),
            claim=lease_reservation.lease_from_reservations(seen.reservations),
            unusable=tuple(list_unusable_objects(seen)),
            cluster_name=self.cluster_name,
            labels={
                number: slurm_job_ids.format_job_id(number)
                for number in begun
                if slurm_job_ids.split_task_id(number)[1] is not None
            },
        )

    def list_remembered_jobs(self, seen: SlurmRecords) -> list[EndedJob]:
        """Return every ended job that the controller remembers, by end time.

        Later observations report these jobs again.
        """
        return list_ended_jobs(seen.jobs, self._machine(seen), self._jobs)

    def translate_sacct_jobs(self, records: Sequence[Record], seen: SlurmRecords) -> list[EndedJob]:
        """Return jobs from the accounting database, translated for this reading's machine, by end time."""
        return ended_jobs_from_sacct(records, self._machine(seen))

    def _machine(self, seen: SlurmRecords) -> SlurmNodeTable:
        """Return the machine as configured; a new machine clears earlier translations.

        Each list of excluded nodes that a user specifies is a node set. The sets of ended jobs must not accumulate.
        """
        previous = None if self._is_crowded() else self.machine
        machine = SlurmNodeTable.from_records(seen.nodes, self.counts_memory, previous, seen.topologies)
        if machine is not self.machine:
            self.machine = machine
            self._partitions.clear()
            self._running.clear()
            self.queue.clear()
            self._jobs.clear()
        return machine

    def _is_crowded(self) -> bool:
        """Return whether most node sets belong to ended jobs.

        The jobs are searched only if there are many sets.
        """
        if self.machine is None or len(self.machine.rows) <= SPARE_SETS:
            return False
        needed = {job.request.node_set for job in self._jobs.values()}
        return len(self.machine.rows) > 2 * len(needed) + SPARE_SETS

    def _forget(self, jobs: Sequence[Record]) -> None:
        """Remove all data about jobs that the controller has forgotten."""
        alive = {
            number
            for job in jobs
            for number in (
                array_tasks.list_job_numbers(job)
                if job["state"] == slurm_states.PENDING
                else [slurm_job_ids.job_id_of_record(job)]
            )
        }
        self.queue.retain_jobs(alive)
        self.queue.limits.retain_arrays({job["array_id"] for job in jobs})
        self._running.retain_jobs(alive)
        for number in self._jobs.keys() - alive:
            del self._jobs[number]


def _by_reservation(jobs: Sequence[Record], running: Sequence[RunningJob]) -> dict[str, list[RunningJob]]:
    """Return the running jobs by the name of their reservation."""
    names = {
        slurm_job_ids.job_id_of_record(job): job["reservation"]
        for job in jobs
        if job["state"] in slurm_states.OCCUPYING
    }
    found: dict[str, list[RunningJob]] = {}
    for each in running:
        if name := names.get(each.job.id):
            found.setdefault(name, []).append(each)
    return found


def list_outages(nodes: Sequence[Record], reservations: Sequence[SlurmReservation], now_s: int) -> tuple[Outage, ...]:
    """Return outages: reservations of whole nodes by start, then unavailable nodes.

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
        state = slurm_states.strip_reserved_state(node["state"]) if row in parts else node["state"]
        if row not in reserved and not slurm_states.node_takes_jobs(state):
            by_state.setdefault(state.upper(), []).append(row)
    found += [Outage(_kind(state), state, tuple(rows), now_s, None) for state, rows in sorted(by_state.items())]
    return tuple(outage for outage in found if outage.nodes)


def _kind(state: str) -> Literal["drained", "down"]:
    """Return "drained" for a working node that is being drained, and "down" for any other."""
    base, *flags = state.split("+")
    return "drained" if base in slurm_states.USABLE_NODE_STATES and "DRAIN" in flags else "down"
