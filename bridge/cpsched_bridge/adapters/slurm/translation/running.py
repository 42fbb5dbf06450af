"""Jobs that have nodes: where they run, in equal shares of what Slurm allocated to them."""

from __future__ import annotations

import dataclasses
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.fit import used_by
from cpsched.model import BoolArray, Job, RunningJob
from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.adapters.slurm.translation import hostlist, ids, states
from cpsched_bridge.adapters.slurm.translation.jobs import placed_job, unreadable_job
from cpsched_bridge.adapters.slurm.translation.machine import Machine
from cpsched_bridge.adapters.slurm.translation.nodes import taken_by
from cpsched_bridge.adapters.slurm.translation.unmodelled import UNREADABLE


@dataclass(slots=True)
class Running:
    """The running jobs; a record that did not change is not translated again."""

    _known: dict[int, tuple[Record, RunningJob]] = field(default_factory=dict)

    def read(
        self, jobs: Sequence[Record], machine: Machine, known: MutableMapping[int, Job], now_s: int
    ) -> list[RunningJob]:
        """The jobs of one reading that occupy nodes.

        `known` holds jobs by number as they were read before. A job of the same number of nodes stays that job; any
        other is added.
        """
        placed = (job for job in jobs if job["state"] in states.OCCUPYING and job["allocated_nodes"])
        return within_capacity(machine, [self._read(record, machine, known, now_s) for record in placed])

    def _read(self, record: Record, machine: Machine, jobs: MutableMapping[int, Job], now_s: int) -> RunningJob:
        number = ids.of_record(record)
        known = self._known.get(number)
        if known is not None and known[0] == record:
            return known[1]
        names = hostlist.known(record["allocated_nodes"])
        nodes = sorted({machine.index[name] for name in names if name in machine.index})
        job, placement = jobs.get(number), tuple((node, 1) for node in nodes)
        try:
            if job is None or job.request.units != len(nodes):
                job = placed_job(record, number, machine, max(1, len(nodes)))
            found = RunningJob(job, min(record["start_time"] or now_s, now_s), placement)
        except UNREADABLE:
            job = unreadable_job(record, number, machine, max(1, len(nodes)))
            found = RunningJob(job, now_s, placement)
        jobs[number] = job
        self._known[number] = (record, found)
        return found

    def keep(self, numbers: set[int]) -> None:
        """Forget all but these jobs."""
        for number in self._known.keys() - numbers:
            del self._known[number]

    def clear(self) -> None:
        """Forget what was translated for another machine."""
        self._known.clear()


def within_capacity(machine: Machine, running: Sequence[RunningJob]) -> list[RunningJob]:
    """`running`, less the nodes where it would not fit.

    Slurm splits jobs that it places itself unevenly, and only tells what they have in all. Where equal shares exceed a
    node, that node is left out of such a job: nobody then counts on what the job gives back there.
    """
    used = taken_by(machine, running)
    kept = list(running)
    for node in np.flatnonzero((used > machine.capacity).any(axis=1)).tolist():
        for at, job in enumerate(kept):
            if len(job.placement) > 1 and (used[node] > machine.capacity[node]).any():
                left = tuple(entry for entry in job.placement if entry[0] != node)
                if len(left) < len(job.placement):
                    used[node] -= used_by(job.job.request, ((node, 1),), machine.capacity)[node]
                kept[at] = dataclasses.replace(job, placement=left)
    return kept


def coming_back(running: RunningJob, usable: BoolArray) -> RunningJob:
    """The job without the nodes that will not return to the scheduler when it ends, such as drained ones."""
    kept = tuple((node, units) for node, units in running.placement if usable[node])
    return running if len(kept) == len(running.placement) else RunningJob(running.job, running.start_s, kept)
