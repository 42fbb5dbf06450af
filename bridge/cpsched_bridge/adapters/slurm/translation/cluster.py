"""One snapshot of plain Slurm records into an `Observation`; what did not change is not translated again."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.model import BoolArray, EndedJob, IntArray, Job, RunningJob
from cpsched_bridge.adapters.slurm.translation import hostlist, ids, states
from cpsched_bridge.adapters.slurm.translation.jobs import Asked, NotModelled, asked_by, occupied_by, seconds
from cpsched_bridge.adapters.slurm.translation.machine import Machine, Partition, Reservation
from cpsched_bridge.adapters.slurm.transport.rows import Record, records
from cpsched_bridge.ports import Hold, LeftJob, Observation, PendingJob

MOST_TASKS = 500
"""Waiting tasks of one array that are shown at a time; the others follow as these start."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A translated pending record, and what it was translated from."""

    record: Record
    partition: Partition | None
    conflicts: tuple[Reservation, ...]
    asked: Asked | str
    """The reason, where it is left to Slurm."""


@dataclass(slots=True)
class Translator:
    """Turns snapshots into observations. Keeps the cluster, translated jobs and what was seen running."""

    counts_memory: bool = True
    machine: Machine | None = None
    asked: dict[int, Asked] = field(default_factory=dict)
    """The pending jobs of the last snapshot that are modelled, by job number."""
    _partitions: dict[str, tuple[Record, Partition]] = field(default_factory=dict)
    _known: dict[int, _Known] = field(default_factory=dict)
    _running: dict[int, tuple[Record, RunningJob]] = field(default_factory=dict)
    _jobs: dict[int, Job] = field(default_factory=dict)
    """Jobs as they were when pending or running: an ended job is learned under the same request."""
    _reported: set[tuple[int, int]] = field(default_factory=set)
    """(job, end) of ended jobs that are still in the controller's memory and were told."""
    _limits: dict[int, int] = field(default_factory=dict)
    """Greatest number of tasks at a time by array: only the record of the waiting tasks tells it."""

    def observe(self, snapshot: Record, pinned: Collection[int] = ()) -> Observation:
        """The observation of one snapshot; `pinned` are jobs whose node list is the bridge's own."""
        now_s = snapshot["now_s"]
        nodes, jobs = records(snapshot["nodes"]), records(snapshot["jobs"])
        machine = self._machine(nodes)
        partitions = self._read_partitions(machine, records(snapshot["partitions"]))
        reservations = machine.reservations(records(snapshot["reservations"]), now_s)
        placed = [job for job in jobs if job["state"] in states.OCCUPYING and job["allocated_nodes"]]
        running = within_capacity(machine, [self._run(machine, record, now_s) for record in placed])
        pending, left = self._queue(machine, partitions, reservations, jobs, now_s, pinned)
        available = machine.available(nodes, reservations, now_s)
        free = free_on(machine, machine.in_use(nodes), running, available)
        ended = self._ended(machine, jobs)
        self._forget(jobs)
        return Observation(
            now_s=now_s,
            cluster=machine.cluster(),
            free=free,
            pending=pending,
            running=tuple(_coming_back(job, available) for job in running),
            ended=ended,
            left=left,
        )

    def _machine(self, nodes: Sequence[Record]) -> Machine:
        machine = Machine.of(nodes, self.counts_memory, self.machine)
        if machine is not self.machine:
            self.machine = machine
            for cache in (self._partitions, self._known, self._running, self._jobs):
                cache.clear()
        return machine

    def _read_partitions(self, machine: Machine, table: Sequence[Record]) -> dict[str, Partition]:
        for record in table:
            known = self._partitions.get(record["name"])
            if known is None or known[0] != record:
                self._partitions[record["name"]] = (record, machine.partition(record))
        return {record["name"]: self._partitions[record["name"]][1] for record in table}

    def _queue(
        self,
        machine: Machine,
        partitions: dict[str, Partition],
        reservations: tuple[Reservation, ...],
        jobs: Sequence[Record],
        now_s: int,
        pinned: Collection[int],
    ) -> tuple[tuple[PendingJob, ...], tuple[LeftJob, ...]]:
        pending: list[PendingJob] = []
        left: list[LeftJob] = []
        self.asked = {}
        active = _active_tasks(jobs)
        waiting = [record for record in jobs if record["state"] == states.PENDING]
        waiting.sort(key=lambda record: (record["submit_time"] or 0, record["id"]))
        for record in waiting:
            hold = states.hold_of(record)
            numbers = self._numbers(record)
            known = self._translate(machine, partitions, reservations, record, numbers[0], now_s)
            reason = known.asked if isinstance(known.asked, str) else None
            by_bridge = states.pinned_by_bridge(record["comment"]) or any(number in pinned for number in numbers)
            if record["required_nodes"] and not by_bridge:
                reason = "its owner chose its nodes"
            if reason is not None:
                left.append(_left(record, reason, hold))
                continue
            assert isinstance(known.asked, Asked)
            room = self._room(record, active)
            for place, number in enumerate(numbers):
                asked = known.asked if number == numbers[0] else _numbered(known.asked, number)
                why = (
                    asked.job.ineligible
                    or _not_yet(record, now_s)
                    or ("its array runs as many tasks as it may" if room is not None and place >= room else None)
                )
                job = asked.job if why == asked.job.ineligible else dataclasses.replace(asked.job, ineligible=why)
                self.asked[number] = asked
                self._jobs[number] = asked.job
                pending.append(PendingJob(job, hold, bool(record["required_nodes"]), ids.label(number)))
        return tuple(pending), tuple(left)

    def _numbers(self, record: Record) -> list[int]:
        """The job numbers that a pending record stands for: one, or the waiting tasks of an array."""
        if not record["array_id"] or not record["array_tasks_waiting"]:
            return [ids.of_record(record)]
        tasks = hostlist.task_ids(record["array_tasks_waiting"])[:MOST_TASKS]
        return [ids.task_id(record["array_id"], task) for task in tasks]

    def _translate(
        self,
        machine: Machine,
        partitions: dict[str, Partition],
        reservations: tuple[Reservation, ...],
        record: Record,
        number: int,
        now_s: int,
    ) -> _Known:
        partition = partitions.get(record["partition"] or "")
        if partition is None:
            several = "," in (record["partition"] or "")
            reason = "several partitions" if several else f"unknown partition {record['partition']}"
            return _Known(record, None, (), reason)
        conflicts: tuple[Reservation, ...] = ()
        if reservations:
            end_s = now_s + seconds(record, partition)
            conflicts = tuple(r for r in reservations if now_s < r.start_s < end_s)
        known = self._known.get(number)
        if (
            known is not None
            and known.partition is partition
            and [r.name for r in known.conflicts] == [r.name for r in conflicts]
            and all((a.members == b.members).all() for a, b in zip(known.conflicts, conflicts, strict=True))
            and known.record == record
        ):
            return known
        try:
            asked: Asked | str = asked_by(record, number, machine, partition, conflicts)
        except NotModelled as reason:
            asked = str(reason)
        except ValueError as error:
            asked = f"cannot be read: {error}"
        known = self._known[number] = _Known(record, partition, conflicts, asked)
        return known

    def _room(self, record: Record, active: dict[int, int]) -> int | None:
        """How many more tasks of this record's array may run; None without a limit."""
        array = record["array_id"]
        if not array:
            return None
        if record["array_tasks_parallel"]:
            self._limits[array] = record["array_tasks_parallel"]
        limit = self._limits.get(array)
        return None if limit is None else max(0, limit - active.get(array, 0))

    def _run(self, machine: Machine, record: Record, now_s: int) -> RunningJob:
        number = ids.of_record(record)
        known = self._running.get(number)
        if known is not None and known[0] == record:
            return known[1]
        nodes = sorted(machine.index[n] for n in hostlist.expand(record["allocated_nodes"]) if n in machine.index)
        job = self._jobs.get(number)
        if job is None or job.request.units != len(nodes):
            job = occupied_by(record, number, machine, max(1, len(nodes)), record["partition"] or "")
            self._jobs[number] = job
        start_s = min(record["start_time"] or now_s, now_s)
        found = RunningJob(job, start_s, tuple((node, 1) for node in nodes))
        self._running[number] = (record, found)
        return found

    def _ended(self, machine: Machine, jobs: Sequence[Record]) -> tuple[EndedJob, ...]:
        """Jobs that ran and ended since the last snapshot, by end; at the first one all that the controller remembers.

        So a bridge that was dead meanwhile learns what became of its jobs.
        """
        over = [job for job in jobs if job["state"] in states.ENDED and job["start_time"] and job["end_time"]]
        keys = {(ids.of_record(job), job["end_time"]): job for job in over if job["end_time"] >= job["start_time"]}
        fresh = [self._end(machine, keys[key], key[0]) for key in keys if key not in self._reported]
        self._reported = set(keys)
        return tuple(sorted(fresh, key=lambda ended: (ended.end_s, ended.job.id)))

    def _end(self, machine: Machine, record: Record, number: int) -> EndedJob:
        job = self._jobs.get(number)
        if job is None:
            nodes = len(hostlist.expand(record["allocated_nodes"])) or record["num_nodes"] or 1
            job = occupied_by(record, number, machine, nodes, record["partition"] or "")
        return EndedJob(job, record["start_time"], record["end_time"])

    def read_machine(self, snapshot: Record) -> Machine:
        """The nodes of a snapshot, without taking note of its jobs."""
        return self._machine(records(snapshot["nodes"]))

    def all_ended(self, snapshot: Record) -> list[EndedJob]:
        """Every ended job that the controller still remembers, by end."""
        machine = self.read_machine(snapshot)
        over = [job for job in records(snapshot["jobs"]) if job["state"] in states.ENDED and job["start_time"]]
        ended = [self._end(machine, job, ids.of_record(job)) for job in over if job["end_time"]]
        return sorted(ended, key=lambda job: (job.end_s, job.job.id))

    def _forget(self, jobs: Sequence[Record]) -> None:
        """Drop what was kept for jobs that the controller no longer knows."""
        alive = {
            number
            for job in jobs
            for number in (self._numbers(job) if job["state"] == states.PENDING else [ids.of_record(job)])
        }
        for cache in (self._known, self._running, self._jobs):
            for number in [number for number in cache if number not in alive]:
                del cache[number]
        arrays = {job["array_id"] for job in jobs}
        for array in [array for array in self._limits if array not in arrays]:
            del self._limits[array]


def within_capacity(machine: Machine, running: Sequence[RunningJob]) -> list[RunningJob]:
    """`running`, less the nodes where it would not fit.

    Slurm splits jobs that it places itself unevenly, and only says what they have in all. Where equal shares exceed a
    node, that node is left out of such a job: nobody then counts on what it gives back there.
    """
    used = taken_by(machine, running)
    kept = list(running)
    for node in np.flatnonzero((used > machine.capacity).any(axis=1)).tolist():
        for at, job in enumerate(kept):
            if len(job.placement) > 1 and (used[node] > machine.capacity[node]).any():
                left = tuple(entry for entry in job.placement if entry[0] != node)
                used[node] -= (len(left) < len(job.placement)) * np.array(job.job.request.per_unit, np.int64)
                kept[at] = dataclasses.replace(job, placement=left)
    return kept


def taken_by(machine: Machine, running: Sequence[RunningJob]) -> IntArray:
    """What running jobs take by their requests, int64[N, R]; an exclusive one uses up its nodes."""
    used = np.zeros_like(machine.capacity)
    for job in running:
        request = job.job.request
        amounts = np.array(request.per_unit, np.int64)
        for node, units in job.placement:
            used[node] = machine.capacity[node] if request.exclusive else used[node] + amounts * units
    return used


def free_on(machine: Machine, in_use: IntArray, running: Sequence[RunningJob], available: BoolArray) -> IntArray:
    """What is free, int64[N, R]; 0 on nodes that are not available.

    The less of what the node records and what the running jobs leave. The node records alone know how a job that Slurm
    placed itself is split over its nodes, and what other jobs take; the running jobs alone know generic resources
    where accounting does not track them, and that an exclusive job uses up its nodes. So free and running amounts
    never exceed a node's capacity together.
    """
    free = machine.capacity - np.maximum(in_use, taken_by(machine, running))
    free[~available] = 0
    return np.maximum(free, 0)


def _coming_back(running: RunningJob, available: BoolArray) -> RunningJob:
    """Without the nodes that will not return to the scheduler when the job ends."""
    kept = tuple((node, units) for node, units in running.placement if available[node])
    return running if len(kept) == len(running.placement) else RunningJob(running.job, running.start_s, kept)


def _active_tasks(jobs: Sequence[Record]) -> dict[int, int]:
    """Running tasks by array, and those released but not started yet."""
    counts: dict[int, int] = {}
    for job in jobs:
        if job["array_id"] and job["state"] in states.OCCUPYING:
            counts[job["array_id"]] = counts.get(job["array_id"], 0) + 1
    return counts


def _left(record: Record, reason: str, hold: Hold) -> LeftJob:
    number = ids.of_record(record)
    return LeftJob(number, reason, ids.label(number), record["user_name"] or "", hold is Hold.PLUGIN)


def _not_yet(record: Record, now_s: int) -> str | None:
    return "begin time" if (record["eligible_time"] or 0) > now_s else None


def _numbered(asked: Asked, number: int) -> Asked:
    return dataclasses.replace(asked, job=dataclasses.replace(asked.job, id=number))
