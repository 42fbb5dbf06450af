"""Compute the free amounts on the nodes that accept jobs now, and which requests fit on them."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.feasibility import amounts_by_node, units_fitting_by_row
from cpsched.model import NEVER, BoolArray, IntArray, Request, RunningJob
from cpsched.model.gpu_parts import GpuPartsColumns, find_amounts_returned_by_last_jobs
from cpsched.model.value_bounds import AMOUNT_BOUND
from cpsched.slurm_text.gres import is_gpu_part
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmNode
from cpsched_bridge.adapters.shared.adapter_errors import UNREADABLE_FIELD_ERRORS
from cpsched_bridge.adapters.shared.node_table import CORES, MEMORY
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.translation.gres_counts import gres_from_tres, parse_gres_amounts
from cpsched_bridge.adapters.slurm.translation.per_node_amounts import compute_max_gres_per_share
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import PartitionRules
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import FutureCoreReservation, ReservedNodes


def mask_available_nodes(nodes: Sequence[SlurmNode], reservations: Iterable[ReservedNodes], now_s: int) -> BoolArray:
    """Return a mask of the nodes that accept jobs now, bool[N].

    These nodes are up or powered down by Slurm, not drained, and not reserved as a whole. Slurm marks all nodes of an
    active reservation, but only the reservation's record shows which nodes it holds as a whole.
    """
    active = [reservation for reservation in reservations if reservation.start_s <= now_s]
    closed_nodes = np.zeros(len(nodes), np.bool_)
    parts = np.zeros(len(nodes), np.bool_)
    for each in active:
        closed_nodes |= each.members
        parts |= each.partly_reserved_nodes
    seen = (
        slurm_states.strip_reserved_state(node.state) if parts[row] else node.state for row, node in enumerate(nodes)
    )
    return np.fromiter(map(slurm_states.node_takes_jobs, seen), np.bool_, len(nodes)) & ~closed_nodes


def compute_reserved_amounts(
    machine: SlurmNodeTable,
    reservations: Iterable[ReservedNodes],
    inside: Mapping[str, Sequence[RunningJob]],
    now_s: int,
) -> IntArray:
    """Return the unused amounts of active reservations, int64[N, R].

    `inside` maps the name of each reservation to its running jobs.
    """
    held = np.zeros_like(machine.capacity)
    for each in reservations:
        if each.start_s <= now_s and each.held is not None:
            held += np.maximum(each.held - sum_running_requests(machine, inside.get(each.name, ())), 0)
    return held


def list_future_core_reservations(
    machine: SlurmNodeTable, reservations: Sequence[ReservedNodes], running: Sequence[RunningJob], now_s: int
) -> tuple[FutureCoreReservation, ...]:
    """Return the future reservations of parts of nodes, with the capacity they leave."""
    found = []
    for each in reservations:
        if each.start_s > now_s and each.held is not None:
            meeting = [other for other in reservations if other.start_s <= each.start_s < other.end_s]
            then = [other.held for other in meeting if other.held is not None]
            lasting = [job for job in running if job.start_s + job.job.walltime_s > each.start_s]
            room = machine.capacity - sum_running_requests(machine, lasting) - np.sum(then, axis=0)
            found.append(
                FutureCoreReservation(each.name, each.start_s, each.partly_reserved_nodes, np.maximum(room, 0))
            )
    return tuple(found)


def compute_allocated_amounts(nodes: Sequence[SlurmNode], machine: SlurmNodeTable) -> IntArray:
    """Return the amounts that the node records show as allocated, int64[N, R].

    Generic resources are included only if accounting tracks them, or if the records show their use.
    """
    used = np.zeros_like(machine.capacity)
    used[:, CORES] = [min(node.allocated_cpus or 0, AMOUNT_BOUND) for node in nodes]
    if machine.rules.counts_memory:
        used[:, MEMORY] = [min(node.allocated_memory or 0, AMOUNT_BOUND) for node in nodes]
    for row, node in enumerate(nodes):
        for name, count in gres_from_tres(_select_integer_tres(node.allocated_tres)).items():
            if name in machine.resources:
                used[row, machine.resources.index(name)] = min(count, AMOUNT_BOUND)
        for name, count in parse_gres_amounts(node.used_gres).items() if node.used_gres else ():
            if name in machine.resources:
                column = machine.resources.index(name)
                used[row, column] = max(used[row, column], min(count, AMOUNT_BOUND))
    return used


def _select_integer_tres(tres: Mapping[str, object] | None) -> dict[str, int]:
    """Return the integer entries of `allocated_tres`. "mem" may be text, such as "4G"."""
    return {key: value for key, value in (tres or {}).items() if isinstance(value, int)}


def compute_gpus_occupied_by_parts(jobs: Iterable[SlurmJob], machine: SlurmNodeTable) -> IntArray:
    """Return the GPUs that jobs with parts of GPUs may occupy, int64[N, R].

    On nodes whose GPUs Slurm does not show, each job counts as using one GPU, although several jobs may share a GPU.
    Slurm allocates all of a job's parts on a node from one GPU.
    """
    found = np.zeros_like(machine.capacity)
    unknown = machine.shares_gpus & ~machine.mask_nodes_with_gpu_parts()
    if unknown.any():
        for job in jobs:
            if job.state in slurm_states.OCCUPYING_STATES and _has_gpu_parts(job):
                nodes = machine.mask_of_names(expand_hostlist_or_empty(job.allocated_nodes)) & unknown
                for column in machine.gpu_columns():
                    found[nodes, column] += 1
    return found


def _has_gpu_parts(job: SlurmJob) -> bool:
    """Return whether a job has parts of GPUs, which accounting may not track."""
    try:
        names = {*compute_max_gres_per_share(job), *gres_from_tres(job.allocated_tres)}
    except UNREADABLE_FIELD_ERRORS:
        return False  # the job counts as exclusive on its nodes
    return any(map(is_gpu_part, names))


def mask_overcommitted_nodes(nodes: Sequence[SlurmNode], machine: SlurmNodeTable) -> BoolArray:
    """Return a mask of the nodes whose allocation exceeds their capacity, bool[N].

    A node's configuration may shrink while jobs run, or its memory may be over-allocated.
    """
    found: BoolArray = np.any(compute_allocated_amounts(nodes, machine) > machine.capacity, axis=1)
    return found


def mask_nodes_with_shared_cores(
    jobs: Iterable[SlurmJob], partitions: Mapping[str, PartitionRules], machine: SlurmNodeTable
) -> BoolArray:
    """Return a mask of the nodes whose running jobs may share cores, bool[N].

    Slurm starts a job of another partition there only if that job may also share cores (`_is_node_busy` in
    cons_tres/job_test.c).
    """
    found = np.zeros(len(machine.names), np.bool_)
    if any(partition.may_share_cores for partition in partitions.values()):
        for job in jobs:
            partition = partitions.get(job.partition)
            if (
                partition is not None
                and job.state in slurm_states.OCCUPYING_STATES
                and partition.may_job_share_cores(job)
            ):
                found |= machine.mask_of_names(expand_hostlist_or_empty(job.allocated_nodes))
    return found


def sum_running_requests(machine: SlurmNodeTable, running: Sequence[RunningJob]) -> IntArray:
    """Return the amounts that running jobs use by their requests, int64[N, R].

    An exclusive job uses the whole capacity of its nodes.
    """
    used = np.zeros_like(machine.capacity)
    for job in running:
        request = job.job.request
        for node, amounts in amounts_by_node(request, job.placement, machine.capacity).items():
            used[node] = amounts if request.exclusive else used[node] + amounts
    return used


def compute_free_amounts(
    nodes: Sequence[SlurmNode],
    machine: SlurmNodeTable,
    running: Sequence[RunningJob],
    usable: BoolArray,
    held: IntArray,
) -> IntArray:
    """Return the free amounts, int64[N, R], which are 0 on nodes outside `usable`.

    `held` contains the amounts that are reserved or blocked by parts of GPUs. The used amount is the larger of the
    amounts from two sources:

    - The node records reflect how Slurm split the jobs that it placed, and include jobs that are not modelled.
    - The running jobs include the whole nodes of exclusive jobs, and generic resources that accounting does not track.

    As a result, free and running amounts together never exceed a node's capacity.
    """
    free: IntArray = (
        machine.capacity
        - np.maximum(compute_allocated_amounts(nodes, machine), sum_running_requests(machine, running))
        - held
    )
    free[~usable] = 0
    np.maximum(free, 0, out=free)
    for columns in GpuPartsColumns.of(machine.resources):
        for row in np.flatnonzero(usable & (machine.capacity[:, columns.gpus[0]] > 0)).tolist():
            shared_gpus = nodes[row].shared_gpus
            assert shared_gpus is not None
            columns.set_free_amounts(shared_gpus.used, free[row], machine.capacity[row])
    return free


def return_gpus_with_last_job(
    machine: SlurmNodeTable, running: Sequence[RunningJob], free: IntArray, usable: BoolArray
) -> list[RunningJob]:
    """Return the running jobs, of which the last on each node's shared GPUs returns all parts that no other returns.

    See `cpsched.model.gpu_parts`.
    """
    missing = np.maximum(machine.capacity - free - sum_running_requests(machine, running), 0)
    missing[~usable] = 0
    by_end = sorted(range(len(running)), key=lambda at: running[at].start_s + running[at].job.walltime_s)
    jobs = {at: (running[at].job.request, running[at].placement) for at in by_end}

    found = list(running)
    for at, amounts in find_amounts_returned_by_last_jobs(machine.resources, missing, jobs).items():
        job = running[at].job
        per_unit = tuple((np.array(job.request.per_unit) + amounts).tolist())
        request = dataclasses.replace(job.request, per_unit=per_unit)
        found[at] = dataclasses.replace(running[at], job=dataclasses.replace(job, request=request))
    return found


@dataclass(slots=True)
class FreeNodeCapacity:
    """A machine's free amounts, int64[N, R], and the jobs that will release more.

    Results are cached for a reading, because many jobs have equal requests.
    """

    machine: SlurmNodeTable
    free: IntArray
    running: Sequence[RunningJob] = ()
    now_s: int = 0
    _found: dict[Request, bool] = field(default_factory=dict)
    _earliest_s: dict[Request, int] = field(default_factory=dict)
    _releases: _ReleaseSchedule | None = None

    def fits(self, request: Request) -> bool:
        """Return whether all units of a request fit now."""
        if request not in self._found:
            self._found[request] = self._can_hold(request, self.free)
        return self._found[request]

    def find_earliest_fit_s(self, request: Request) -> int:
        """Return when all units of a request fit if no other job starts, or `NEVER`."""
        if self.fits(request):
            return self.now_s
        if request not in self._earliest_s:
            self._earliest_s[request] = self._compute_earliest_fit_s(request)
        return self._earliest_s[request]

    def _compute_earliest_fit_s(self, request: Request) -> int:
        if self._releases is None:
            self._releases = _ReleaseSchedule.of(self.running, self.machine.capacity, self.now_s)
        ends = self._releases
        at = bisect_left(
            range(len(ends.end_s)),
            True,
            key=lambda at: self._can_hold(request, ends.compute_free_after_releases(self.free, at + 1)),
        )
        return ends.end_s[at] if at < len(ends.end_s) else NEVER

    def _can_hold(self, request: Request, free: IntArray) -> bool:
        return int(count_units_by_node(request, free, self.machine).sum()) >= request.units


@dataclass(frozen=True, slots=True, eq=False)
class _ReleaseSchedule:
    """The amounts that running jobs release, ordered by the jobs' end times.

    The first `k` jobs to end release the first `offsets[k]` entries of `nodes` and `amounts`.
    """

    end_s: list[int]
    offsets: list[int]
    nodes: list[int]
    amounts: IntArray

    @classmethod
    def of(cls, running: Sequence[RunningJob], capacity: IntArray, now_s: int) -> _ReleaseSchedule:
        end_s, offsets, nodes = [], [0], list[int]()
        amounts: list[IntArray] = []
        for job in sorted(running, key=lambda job: job.start_s + job.job.walltime_s):
            used = amounts_by_node(job.job.request, job.placement, capacity)
            nodes += used
            amounts += used.values()
            offsets.append(len(nodes))
            end_s.append(max(now_s + 1, job.start_s + job.job.walltime_s))
        return cls(end_s, offsets, nodes, np.array(amounts, np.int64).reshape(len(nodes), capacity.shape[1]))

    def compute_free_after_releases(self, free: IntArray, jobs: int) -> IntArray:
        """Return the free amounts after the first `jobs` jobs have ended, int64[N, R]."""
        then, entries = free.copy(), self.offsets[jobs]
        np.add.at(then, self.nodes[:entries], self.amounts[:entries])
        return then


def count_units_by_node(request: Request, free: IntArray, machine: SlurmNodeTable) -> IntArray:
    """Return how many units of a request fit on each node, int64[N].

    `free` is int64[N, R].
    """
    found = units_fitting_by_row(request, free)
    found[~machine.rows[request.node_set]] = 0
    if request.exclusive:
        found[(free != machine.capacity).any(axis=1)] = 0
    return found
