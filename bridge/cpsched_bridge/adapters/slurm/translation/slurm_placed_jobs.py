"""Translate jobs that have nodes, with the allocation on each, and jobs that ended.

Without a layout, only the total allocation of a job on several nodes is known. It is divided equally among the nodes.
Ended jobs come from the controller's memory and from the accounting database.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.feasibility import amounts_by_node, units_fitting_by_row
from cpsched.model import BoolArray, EndedJob, Job, Placement, Request, RunningJob
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.shared.adapter_errors import UNREADABLE_FIELD_ERRORS
from cpsched_bridge.adapters.shared.node_table import CORES, Amounts, describe_allocation, request_from_allocation
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.adapters.slurm.translation.free_capacity import sum_running_requests
from cpsched_bridge.adapters.slurm.translation.gres_counts import (
    find_typed_gres,
    gres_from_tres,
    parse_gres_amounts,
)
from cpsched_bridge.adapters.slurm.translation.per_node_amounts import compute_allocated_per_node
from cpsched_bridge.adapters.slurm.translation.slurm_jobs import (
    get_placed_walltime_s,
    translate_placed_job,
    translate_unreadable_job,
)
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.start_split_prediction import (
    is_split_by_slurm,
    predict_task_distribution,
)


@dataclass(slots=True)
class CachingRunningJobTranslator:
    """A translator of running jobs that does not translate unchanged records again."""

    otherwise: dict[int, str] = field(default_factory=dict)
    """Descriptions, by job number, of allocations that differ from the request made while pending."""
    _known: dict[int, tuple[SlurmJob, RunningJob]] = field(default_factory=dict)

    def read(self, seen: SlurmRecords, machine: SlurmNodeTable, known: MutableMapping[int, Job]) -> list[RunningJob]:
        """Return the jobs of one reading that occupy nodes.

        `known` maps job numbers to earlier translations. A job whose allocation equals its request keeps its
        translation. The translation of any other job is added to `known`.
        """
        placed = (job for job in seen.jobs if job.state in slurm_states.OCCUPYING_STATES and job.allocated_nodes)
        running = [
            adjust_to_state(job.state, self._translate_cached(job, machine, known, seen.now_s), seen.now_s)
            for job in placed
        ]
        return drop_overcommitted_nodes(machine, running)

    def _translate_cached(
        self, slurm_job: SlurmJob, machine: SlurmNodeTable, jobs: MutableMapping[int, Job], now_s: int
    ) -> RunningJob:
        number = slurm_job_ids.get_job_id(slurm_job)
        known = self._known.get(number)
        if known is not None and known[0] == slurm_job:
            return known[1]
        names = expand_hostlist_or_empty(slurm_job.allocated_nodes)
        nodes = sorted({machine.index[name] for name in names if name in machine.index})
        try:
            translated = self._translate_placed(slurm_job, number, nodes, machine, jobs)
            running = add_gres_types(_with_current_walltime(translated, slurm_job), slurm_job, machine)
            running = dataclasses.replace(running, start_s=min(slurm_job.start_time or now_s, now_s))
        except UNREADABLE_FIELD_ERRORS:
            job = translate_unreadable_job(slurm_job, number, machine, max(1, len(nodes)))
            running = translated = RunningJob(job, now_s, tuple((node, 1) for node in nodes))

        # Later readings compare the allocation with the request, and predictors learn from it.
        jobs[number] = translated.job
        self._known[number] = (slurm_job, running)
        return running

    def _translate_placed(
        self,
        slurm_job: SlurmJob,
        number: int,
        nodes: list[int],
        machine: SlurmNodeTable,
        jobs: Mapping[int, Job],
    ) -> RunningJob:
        """Return the job on its nodes, with start time 0."""
        job, amounts = jobs.get(number), compute_amounts_by_node(slurm_job, nodes, machine)
        each = tuple((node, 1) for node in nodes)
        if amounts is None:
            fits = job is not None and job.request.units == len(nodes)
            return RunningJob(
                job if job and fits else translate_placed_job(slurm_job, number, machine, max(1, len(nodes))), 0, each
            )
        placement = match_allocation_to_request(job.request, amounts, machine) if job is not None else None
        if job is not None and placement is not None:
            return RunningJob(job, 0, placement)
        if job is not None and number not in self._known:
            self.otherwise[number] = describe_allocation(amounts, machine)
        job = translate_placed_job(slurm_job, number, machine, len(nodes))
        request, placement = request_from_allocation(amounts, job.request.exclusive)
        return RunningJob(dataclasses.replace(job, request=request), 0, placement)

    def list_expedited_jobs(self, jobs: Sequence[SlurmJob]) -> list[RunningJob]:
        """Return the expedited jobs on the nodes that they had when they failed.

        Slurm starts them there before all other jobs (`sort_job_queue2` in slurmctld/job_scheduler.c), and their
        records no longer show the nodes. The nodes are unknown if the bridge did not observe the job's run, for example
        because it started later. Another job may then start there first, and the expedited job waits for its end.
        """
        numbers = (
            slurm_job_ids.get_job_id(job)
            for job in jobs
            if job.state == slurm_states.EXPEDITING and not job.allocated_nodes
        )
        return [self._known[number][1] for number in numbers if number in self._known]

    def retain_jobs(self, numbers: set[int]) -> None:
        """Forget all jobs except these."""
        for number in self._known.keys() - numbers:
            del self._known[number]
        for number in self.otherwise.keys() - numbers:
            del self.otherwise[number]

    def clear(self) -> None:
        """Discard all translations, which are valid only for the previous machine."""
        self._known.clear()
        self.otherwise.clear()


def adjust_to_state(state: str, running: RunningJob, now_s: int) -> RunningJob:
    """Return the job as it counts while its nodes are being configured, or while it is suspended.

    - While its nodes are being configured, it starts now: its time limit begins when the nodes are up
      (`job_config_fini` in slurmctld/job_mgr.c).
    - While it is suspended, Slurm starts other jobs on its CPUs, but not in its memory (`job_res_rm_job` in cons_tres).
    """
    if state == slurm_states.CONFIGURING:
        return dataclasses.replace(running, start_s=now_s)
    if state != slurm_states.SUSPENDED:
        return running
    request = running.job.request
    kept = tuple(0 if at == CORES else amount for at, amount in enumerate(request.per_unit))
    if not any(kept):
        return dataclasses.replace(running, placement=())
    kept_request = dataclasses.replace(request, per_unit=kept, exclusive=False)
    return dataclasses.replace(running, job=dataclasses.replace(running.job, request=kept_request))


def drop_overcommitted_nodes(machine: SlurmNodeTable, running: Sequence[RunningJob]) -> list[RunningJob]:
    """Return the running jobs without the nodes whose capacity they would exceed.

    Equal shares may exceed a node's capacity. Jobs on several nodes then lose that node, so no decision relies on
    resources that they would release there.
    """
    used = sum_running_requests(machine, running)
    kept = list(running)
    for node in np.flatnonzero((used > machine.capacity).any(axis=1)).tolist():
        for at, job in enumerate(kept):
            if len(job.placement) > 1 and (used[node] > machine.capacity[node]).any():
                left = tuple(entry for entry in job.placement if entry[0] != node)
                if len(left) < len(job.placement):
                    here = tuple(entry for entry in job.placement if entry[0] == node)
                    used[node] -= amounts_by_node(job.job.request, here, machine.capacity)[node]
                kept[at] = dataclasses.replace(job, placement=left)
    return kept


def drop_nodes_unusable_after_end(running: RunningJob, usable: BoolArray) -> RunningJob:
    """Return the job without nodes that remain unusable when it ends (drained nodes)."""
    kept = tuple((node, units) for node, units in running.placement if usable[node])
    return running if len(kept) == len(running.placement) else RunningJob(running.job, running.start_s, kept)


def compute_amounts_by_node(job: SlurmJob, nodes: list[int], machine: SlurmNodeTable) -> Amounts | None:
    """Return a placed job's amounts on its nodes, by node.

    Return None if Slurm reports only the total over several nodes.
    """
    if len(nodes) == 1:
        return {nodes[0]: compute_allocated_per_node(job, machine, 1, nodes)}
    found: Amounts = {}
    for share in job.layout:
        known = {name: count for name, count in parse_gres_amounts(share.gres).items() if name in machine.resources}
        for name in expand_hostlist_or_empty(share.nodes):
            if name in machine.index:
                node = machine.index[name]
                cpus = share.cpus // int(machine.ids_per_cpu[node])
                amounts = machine.to_amount_vector(cpus, share.memory, known, job.partition)
                assert amounts is not None
                found[node] = amounts
    return found if sorted(found) == nodes else None


def _with_current_walltime(running: RunningJob, slurm_job: SlurmJob) -> RunningJob:
    """Return the job with the time limit of its record, which may have changed since the job was translated."""
    walltime_s = get_placed_walltime_s(slurm_job)
    if slurm_job.time_limit is None or walltime_s == running.job.walltime_s:
        return running
    return dataclasses.replace(running, job=dataclasses.replace(running.job, walltime_s=walltime_s))


def add_gres_types(running: RunningJob, slurm_job: SlurmJob, machine: SlurmNodeTable) -> RunningJob:
    """Return the job with the types of its generic resources, so that plans return the types at its end.

    A job may request no type, and its allocation shows only types that accounting tracks. A type is known if the
    request or the allocation contains no other type of the resource, or if the job's nodes have no other.
    """
    sources = (
        parse_gres_amounts(slurm_job.gres_per_node),
        parse_gres_amounts(slurm_job.gres_per_job),
        gres_from_tres(slurm_job.tres_per_task),
        gres_from_tres(slurm_job.allocated_tres),
    )
    sole_types = {
        name for amounts in sources for name, count in amounts.items() if count == amounts[name.partition(":")[0]]
    }

    resources, request = machine.resources, running.job.request
    per_unit = list(request.per_unit)
    typed = find_typed_gres(name for name, amount in zip(resources, per_unit, strict=True) if amount)
    nodes, units = np.array(running.placement, np.int64).reshape(-1, 2).T
    for at, name in enumerate(resources):
        general, is_type, _ = name.partition(":")
        if is_type and general not in typed:
            column = resources.index(general)
            capacity = machine.capacity[nodes, at]
            is_known = name in sole_types or (capacity == machine.capacity[nodes, column]).all()
            if is_known and (capacity >= per_unit[column] * units).all():
                per_unit[at] = per_unit[column]

    if tuple(per_unit) == request.per_unit:
        return running
    typed_request = dataclasses.replace(request, per_unit=tuple(per_unit))
    return dataclasses.replace(running, job=dataclasses.replace(running.job, request=typed_request))


def match_allocation_to_request(request: Request, amounts: Amounts, machine: SlurmNodeTable) -> Placement | None:
    """Return where a job's units are, or None if it did not get what it requested.

    For a job that requires whole nodes, only the number of nodes must match. A type of generic resource that was not
    requested counts under its general name.
    """
    nodes = sorted(amounts)
    if request.exclusive:
        room = units_fitting_by_row(request, machine.capacity[nodes]).tolist()
        tasks = predict_task_distribution(request.units, room) if is_split_by_slurm(request) else [1] * len(nodes)
        return tuple(zip(nodes, tasks, strict=True)) if tasks and sum(tasks) == request.units else None
    cores = request.per_unit[CORES]
    units = {node: amounts[node][CORES] // cores if cores else 1 for node in nodes}
    placement = tuple(units.items())
    if sum(units.values()) != request.units or (request.distinct and max(units.values()) > 1):
        return None
    used = amounts_by_node(request, placement, machine.capacity)
    asked = _list_compared_columns(request, amounts, machine)
    exact = all((used[node][asked] == np.array(amounts[node])[asked]).all() for node in nodes)
    return placement if exact else None


def _list_compared_columns(request: Request, amounts: Amounts, machine: SlurmNodeTable) -> list[int]:
    """Return the columns in which a job's allocation must equal its request.

    These are all columns except two kinds of types of generic resources: types that the job did not request, and types
    that accounting does not track. Without `AccountingStorageTRES=gres/gpu:a100`, the allocation shows `gres/gpu` only.
    """
    totals = np.sum(list(amounts.values()), axis=0).tolist()
    typed = find_typed_gres(name for name, total in zip(machine.resources, totals, strict=True) if total)

    columns = enumerate(zip(machine.resources, request.per_unit, strict=True))
    return [at for at, (name, amount) in columns if ":" not in name or (amount and name.partition(":")[0] in typed)]


@dataclass(slots=True)
class NewlyEndedJobReader:
    """A reader that reports each ended job once."""

    _reported: set[tuple[int, int]] = field(default_factory=set)
    """The job numbers and end times of reported jobs that the controller still remembers."""

    def read(self, jobs: Sequence[SlurmJob], machine: SlurmNodeTable, known: Mapping[int, Job]) -> tuple[EndedJob, ...]:
        """Return the jobs that ran and ended since the last reading, sorted by end time.

        The first reading returns all ended jobs that Slurm remembers, so that a restarted bridge learns how its jobs
        ended. A job in `known` keeps the translation found there.
        """
        over = [job for job in jobs if _has_run_and_ended(job) and job.end_time >= job.start_time]
        keys = {(slurm_job_ids.get_job_id(job), job.end_time): job for job in over}
        fresh = [keys[key] for key in keys if key not in self._reported]
        self._reported = set(keys)
        return tuple(_translate_readable_ended_jobs(lambda job: _translate_ended_job(job, machine, known), fresh))


def list_ended_jobs(jobs: Iterable[SlurmJob], machine: SlurmNodeTable, known: Mapping[int, Job]) -> list[EndedJob]:
    """Return every ended job that the controller still remembers, sorted by end time."""
    return _translate_readable_ended_jobs(
        lambda job: _translate_ended_job(job, machine, known), filter(_has_run_and_ended, jobs)
    )


def ended_jobs_from_sacct(past: Iterable[SlurmJob], machine: SlurmNodeTable) -> list[EndedJob]:
    """Return the jobs in accounting records that ran and ended, sorted by end time."""
    return _translate_readable_ended_jobs(
        lambda job: _translate_database_record(job, machine), filter(has_run_and_ended_in_database, past)
    )


def _has_run_and_ended(job: SlurmJob) -> bool:
    """Return whether a job ran and has ended.

    A job that was cancelled while pending has a start time, which equals its end time, but no nodes.
    """
    is_over = job.state in slurm_states.ENDED_STATES
    return bool(is_over and job.start_time and job.end_time and job.allocated_nodes)


def _translate_ended_job(slurm_job: SlurmJob, machine: SlurmNodeTable, known: Mapping[int, Job]) -> EndedJob:
    number = slurm_job_ids.get_job_id(slurm_job)
    job = known.get(number)
    if job is None:
        nodes = len(expand_hostlist_or_empty(slurm_job.allocated_nodes)) or slurm_job.num_nodes
        job = translate_placed_job(slurm_job, number, machine, nodes)
    return EndedJob(job, slurm_job.start_time, slurm_job.end_time)


def has_run_and_ended_in_database(job: SlurmJob) -> bool:
    """Return whether an accounting record shows a user's job that ran and ended."""
    start_s, end_s = job.start_time, job.end_time
    return bool(job.allocated_nodes and start_s and end_s >= start_s and job.user_name)


def _translate_database_record(slurm_job: SlurmJob, machine: SlurmNodeTable) -> EndedJob:
    """Return the ended job in an accounting record."""
    number = slurm_job_ids.get_job_id(slurm_job)
    job = translate_placed_job(slurm_job, number, machine, slurm_job.num_nodes)
    return EndedJob(job, slurm_job.start_time, slurm_job.end_time)


def _translate_readable_ended_jobs(
    translate: Callable[[SlurmJob], EndedJob], records: Iterable[SlurmJob]
) -> list[EndedJob]:
    """Return the jobs in these records by end time, without unreadable records."""
    found = []
    for job in records:
        with contextlib.suppress(*UNREADABLE_FIELD_ERRORS):
            found.append(translate(job))
    return sorted(found, key=lambda each: (each.end_s, each.job.id))
