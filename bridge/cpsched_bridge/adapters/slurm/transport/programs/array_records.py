"""Find the record of each array task, and split tasks off their common record.

The waiting tasks of an array share one record, and a command for that record affects all of them. To start a single
task, the bridge first splits it off: scontrol does this when a command names the task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain

from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.task_ranges import format_ranges, parse_task_ranges
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states

Common = dict[int, tuple[int, tuple[range, ...]]]
"""By array: the number of its common record, and the indices of the tasks that wait in that record."""


def find_controller_job_numbers(
    wanted: Sequence[int],
    look: Callable[[Collection[int]], Iterable[SlurmJob]],
    scontrol: Callable[[Sequence[str]], object],
    *,
    separate: bool,
) -> dict[int, int]:
    """Return the controller's number of each wanted job.

    `look` reads the jobs of the given arrays, and `scontrol` runs commands. `separate` splits array tasks off their
    common record first. Without `separate`, a task in its array's common record maps to that record.
    """
    known = {job_id: job_id for job_id in wanted if slurm_job_ids.split_task_id(job_id)[1] is None}
    if len(known) == len(wanted):
        return known
    among = {slurm_job_ids.split_task_id(job_id)[0] for job_id in wanted if job_id not in known}
    own, common = find_own_and_common_records(look(among))
    if separate:
        commands = make_split_commands(
            [job_id for job_id in wanted if job_id not in known and job_id not in own], common
        )
        if commands:
            scontrol(commands)
            own, common = find_own_and_common_records(look(among))
    for job_id in wanted:
        array = slurm_job_ids.split_task_id(job_id)[0]
        if job_id in own:
            known[job_id] = own[job_id]
        elif array in common and not separate:
            known[job_id] = common[array][0]
    return known


def find_own_and_common_records(jobs: Iterable[SlurmJob]) -> tuple[dict[int, int], Common]:
    """Return the numbers of tasks' own records, and the common records of arrays."""
    own: dict[int, int] = {}
    common: Common = {}
    for job in jobs:
        with contextlib.suppress(ValueError):  # an array that cannot be read is left to Slurm
            if array := job.array_id:
                waiting = parse_task_ranges(job.array_tasks_waiting) if job.state == slurm_states.PENDING else ()
                if sum(map(len, waiting)) > 1:
                    common[array] = (job.id, waiting)
                else:
                    task = next(chain(*waiting), job.array_task_id)
                    own[slurm_job_ids.make_task_id(array, task)] = job.id
    return own, common


def format_job_selector(job: SlurmJob) -> str:
    """Return the job identifier by which scontrol addresses only this record.

    The array's own number would include tasks that have their own records. Raise `ValueError` if the record's
    tasks cannot be read.
    """
    array = job.array_id
    if not array:
        return str(job.id)
    waiting = parse_task_ranges(job.array_tasks_waiting) if job.state == slurm_states.PENDING else ()
    if sum(map(len, waiting)) > 1:
        return f"{array}_[{','.join(map(_format_range, waiting))}]"
    return f"{array}_{next(chain(*waiting), job.array_task_id)}"


def _format_range(tasks: range) -> str:
    if len(tasks) == 1:
        return str(tasks[0])
    return f"{tasks[0]}-{tasks[-1]}" + (f":{tasks.step}" if tasks.step > 1 else "")


def make_split_commands(tasks: list[int], common: Common) -> list[str]:
    """Return commands that give every wanted task its own record.

    The commands hold tasks that are already held. A command for all waiting tasks of an array would not split their
    common record. The commands therefore omit the last task, which keeps that record.
    """
    by_array: dict[int, list[int]] = {}
    for job_id in tasks:
        array, task = slurm_job_ids.split_task_id(job_id)
        if task is not None and array in common and any(task in some for some in common[array][1]):
            by_array.setdefault(array, []).append(task)
    commands = []
    for array, wanted in by_array.items():
        if len(wanted) == sum(map(len, common[array][1])):
            wanted = wanted[:-1]
        commands.append(f"hold {array}_[{format_ranges(wanted)}]")
    return commands
