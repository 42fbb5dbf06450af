"""Translate an array's waiting tasks into jobs, and apply the array's task limit.

One record represents all waiting tasks of an array such as `--array=0-99%8`, which may run at most eight at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

from cpsched.model import PendingCode, PendingReason
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.task_ranges import parse_task_ranges
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.ports import MAX_PENDING_TASKS

TASK_LIMIT_REASON = PendingReason(PendingCode.ARRAY_LIMIT, ("tasks",))


def list_job_numbers(job: SlurmJob) -> list[int]:
    """Return the numbers of the jobs that a pending record represents.

    For an array, these are the numbers of at most `MAX_PENDING_TASKS` waiting tasks, or none if they are unreadable.
    """
    if not job.array_id or not job.array_tasks_waiting:
        return [slurm_job_ids.get_job_id(job)]
    try:
        ranges = parse_task_ranges(job.array_tasks_waiting)
    except ValueError:
        return []
    return [slurm_job_ids.make_task_id(job.array_id, task) for task in islice(chain(*ranges), MAX_PENDING_TASKS)]


def count_active_tasks(jobs: Iterable[SlurmJob]) -> dict[int, int]:
    """Return how many tasks of each array occupy nodes, by array number."""
    counts: dict[int, int] = {}
    for job in jobs:
        if job.array_id and job.state in slurm_states.OCCUPYING_STATES:
            counts[job.array_id] = counts.get(job.array_id, 0) + 1
    return counts


@dataclass(slots=True)
class RememberedArrayTaskLimits:
    """The limits on each array's running tasks, remembered between readings.

    Only the record of an array's waiting tasks contains the limit.
    """

    _most: dict[int, int] = field(default_factory=dict)

    def count_startable_tasks(self, job: SlurmJob, active: Mapping[int, int]) -> int | None:
        """Return how many more tasks of the record's array may run, or None if unlimited."""
        array = job.array_id
        if not array:
            return None
        if job.array_tasks_parallel:
            self._most[array] = job.array_tasks_parallel
        most = self._most.get(array)
        return None if most is None else max(0, most - active.get(array, 0))

    def retain_arrays(self, arrays: set[int]) -> None:
        """Forget all arrays except these."""
        for array in self._most.keys() - arrays:
            del self._most[array]
