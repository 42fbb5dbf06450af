"""Use Slurm's number for a job, and compute a number for each array task.

Slurm assigns its own number to an array task only when the task starts or is changed. The computed number identifies
the task until it ends, even after its record has been split off from the array's record.
"""

from __future__ import annotations

from collections.abc import Sequence

from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.task_ranges import MAX_TASK_INDEX

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
