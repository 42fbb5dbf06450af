"""Number jobs and array tasks, and apply an array's task limit.

A job keeps Slurm's number. Slurm assigns its own number to an array task only when the task starts or is changed. The
number computed here identifies the task until it ends, even after its record has been split off from the array's
record.

One record represents all waiting tasks of an array such as `--array=0-99%8`, which may run at most eight at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from cpsched.model import PendingCode, PendingReason
from cpsched.slurm_text.jobs import MAX_TASK_INDEX, SlurmJob, parse_task_ranges
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.ports import MAX_PENDING_TASKS

TASK_SHIFT = 32
"""Number of bits below the task index in a job number. Slurm's job ids have at most 26 bits, its task indices 22."""


def make_task_id(array_id: int, task: int) -> int:
    """Return the job number computed for an array task."""
    return (task + 1) << TASK_SHIFT | array_id


def split_task_id(job_id: int) -> tuple[int, int | None]:
    """Return the job id and, for an array task, its index: (19, 3) for 19_3."""
    task = job_id >> TASK_SHIFT
    return job_id & ((1 << TASK_SHIFT) - 1), task - 1 if task else None


def format_job_id(job_id: int) -> str:
    """Return the job's number as users write it, for example "19_3" or "19"."""
    number, task = split_task_id(job_id)
    return str(number) if task is None else f"{number}_{task}"


def get_job_id(job: SlurmJob) -> int:
    """Return the number of a record that represents one job or one task.

    pyslurm omits the index of task 0, so an array's record with neither an index nor waiting tasks represents task 0.
    An impossible index is ignored, because the number must fit into int64.
    """
    array = job.array_id
    if array and not (job.array_tasks_waiting and job.state == "PENDING"):
        task = job.array_task_id
        if 0 <= task <= MAX_TASK_INDEX and 0 < array < 1 << TASK_SHIFT:
            return make_task_id(array, task)
    return job.id


def index_preemptible_jobs(records: Sequence[SlurmJob]) -> dict[int, SlurmJob]:
    """Return the records of running and suspended jobs by job number.

    Slurm preempts jobs in these states (`slurm_find_preemptable_jobs` in interfaces/preempt.c).
    """
    return {get_job_id(job): job for job in records if job.state in ("RUNNING", "SUSPENDED")}


TASK_LIMIT_REASON = PendingReason(PendingCode.ARRAY_LIMIT, ("tasks",))


def list_job_numbers(job: SlurmJob) -> list[int]:
    """Return the numbers of the jobs that a pending record represents.

    For an array, these are the numbers of at most `MAX_PENDING_TASKS` waiting tasks, or none if they are unreadable.
    """
    if not job.array_id or not job.array_tasks_waiting:
        return [get_job_id(job)]
    try:
        ranges = parse_task_ranges(job.array_tasks_waiting)
    except ValueError:
        return []
    return [make_task_id(job.array_id, task) for task in islice(chain(*ranges), MAX_PENDING_TASKS)]


def count_active_tasks(jobs: Iterable[SlurmJob]) -> dict[int, int]:
    """Return how many tasks of each array occupy nodes, by array number."""
    return Counter(job.array_id for job in jobs if job.array_id and job.state in slurm_states.OCCUPYING_STATES)


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
