"""One reading of plain Slurm records as an `Observation`: each subject is walked in a module of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.model import EndedJob, IntArray, Job
from cpsched_bridge.adapters.slurm.records import ClusterRecords, Record
from cpsched_bridge.adapters.slurm.translation import arrays, claims, ids, states
from cpsched_bridge.adapters.slurm.translation.access import Doors
from cpsched_bridge.adapters.slurm.translation.ended import Ended, all_ended, of_database
from cpsched_bridge.adapters.slurm.translation.machine import Machine
from cpsched_bridge.adapters.slurm.translation.nodes import available, free_on, overcommitted
from cpsched_bridge.adapters.slurm.translation.outages import outages_of
from cpsched_bridge.adapters.slurm.translation.partitions import Partitions
from cpsched_bridge.adapters.slurm.translation.queue import Queue, QueueSurroundings
from cpsched_bridge.adapters.slurm.translation.reservations import reservations_of
from cpsched_bridge.adapters.slurm.translation.room import Room
from cpsched_bridge.adapters.slurm.translation.running import Running, coming_back
from cpsched_bridge.adapters.slurm.translation.trouble import unusable_in
from cpsched_bridge.ports import Observation

SPARE_SETS = 100
"""Node sets that no job of a reading needs any more, beside as many as are in need, until all are given up."""


@dataclass(slots=True)
class Translator:
    """Turns readings into observations, and keeps what later readings need of earlier ones."""

    counts_memory: bool = True
    """Whether Slurm allocates memory at all (CR_*_Memory)."""
    accounts_checked: tuple[bool | None, bool] = (None, True)
    """See `access.accounts_checked`."""
    machine: Machine | None = None
    queue: Queue = field(default_factory=Queue)
    free: IntArray | None = None
    """What was free at the last reading, int64[N, R]."""
    _partitions: Partitions = field(default_factory=Partitions)
    _running: Running = field(default_factory=Running)
    _ended: Ended = field(default_factory=Ended)
    _jobs: dict[int, Job] = field(default_factory=dict)
    """Jobs as they were when pending or running: an ended job is learned under the same request."""

    def observe(
        self, seen: ClusterRecords, pinned: Collection[int] = (), above: Mapping[str, str] | None = None
    ) -> Observation:
        """The observation of one reading.

        `pinned` are jobs whose node list is the bridge's own; `above` tells of each account which one it is below,
        where that is known.
        """
        machine = self._machine(seen.nodes)
        partitions = self._partitions.read(machine, seen.partitions)
        reservations = reservations_of(claims.others(seen.reservations), machine, seen.now_s)
        doors = Doors(*self.accounts_checked, above, seen.outside)
        running = self._running.read(seen, machine, self._jobs)
        usable = available(seen.nodes, reservations, seen.now_s) & ~overcommitted(seen.nodes, machine)
        self.free = free_on(seen.nodes, machine, running, usable)
        room = Room(machine, self.free)
        around = QueueSurroundings(seen.now_s, machine, partitions, reservations, pinned, seen.guarded, doors, room)
        pending, left = self.queue.read(seen.jobs, around)
        self._jobs.update(self.queue.jobs())
        ended = self._ended.read(seen.jobs, machine, self._jobs)
        begun = [*(each.job.id for each in running), *(each.job.id for each in ended)]
        self._forget(seen.jobs)
        return Observation(
            now_s=seen.now_s,
            cluster=machine.cluster(),
            free=self.free,
            pending=tuple(pending),
            running=tuple(coming_back(job, usable) for job in running),
            ended=ended,
            left=tuple(left),
            outages=outages_of(seen.nodes, reservations, seen.now_s),
            otherwise=dict(self._running.otherwise),
            claim=claims.claim_of(seen.reservations),
            unusable=tuple(unusable_in(seen)),
            labels={number: ids.label(number) for number in begun if ids.split(number)[1] is not None},
        )

    def remembered(self, seen: ClusterRecords) -> list[EndedJob]:
        """Every ended job that the controller still remembers, by end; later observations tell them once more."""
        return all_ended(seen.jobs, self._machine(seen.nodes), self._jobs)

    def past(self, records: Sequence[Record], seen: ClusterRecords) -> list[EndedJob]:
        """Jobs of the accounting database, on the machine of this reading, by end."""
        return of_database(records, self._machine(seen.nodes))

    def _machine(self, nodes: Sequence[Record]) -> Machine:
        """The machine as configured; a new one makes what was translated for the old one void.

        Each list of excluded nodes that somebody writes is a node set: those of jobs that are gone must not stay.
        """
        machine = Machine.of(nodes, self.counts_memory, None if self._is_crowded() else self.machine)
        if machine is not self.machine:
            self.machine = machine
            self._partitions.clear()
            self._running.clear()
            self.queue.clear()
            self._jobs.clear()
        return machine

    def _is_crowded(self) -> bool:
        """Whether most node sets are of jobs that are gone; jobs are looked through only where there are many sets."""
        if self.machine is None or len(self.machine.rows) <= SPARE_SETS:
            return False
        needed = {job.request.node_set for job in self._jobs.values()}
        return len(self.machine.rows) > 2 * len(needed) + SPARE_SETS

    def _forget(self, jobs: Sequence[Record]) -> None:
        """Drop what was kept for jobs that the controller no longer knows."""
        alive = {
            number
            for job in jobs
            for number in (arrays.numbers_of(job) if job["state"] == states.PENDING else [ids.of_record(job)])
        }
        self.queue.keep(alive)
        self.queue.limits.keep({job["array_id"] for job in jobs})
        self._running.keep(alive)
        for number in self._jobs.keys() - alive:
            del self._jobs[number]
