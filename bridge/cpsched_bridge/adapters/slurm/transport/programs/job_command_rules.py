"""Find the record of a job or array task, and decide what a command may change in it.

Slurm may have started a job since the bridge read it, and setting a node list on a running job would resize it. The
owner or an administrator may also have held the job since then, and the bridge must not release that job.

The waiting tasks of an array share one record, and a command for that record affects all of them. To start a single
task, the bridge first splits it off: scontrol does this when a command names the task.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain

from cpsched.slurm_text.jobs import SlurmJob, format_ranges, parse_task_ranges
from cpsched_bridge.adapters.slurm.slurm_records import SETTABLE_PARTITIONS_PATTERN
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.ports import Hold, OutcomeCode, UndoOrder, Victim


class JobCommandRefused(Exception):
    """An error for a command that cannot be executed for its job."""

    def __init__(self, text: str, code: OutcomeCode = "") -> None:
        super().__init__(text)
        self.code: OutcomeCode = code


class ControllerCallError(Exception):
    """An error for a failed call to the controller.

    `lost` means that the call may have taken effect.
    """

    def __init__(self, text: str, *, lost: bool, code: OutcomeCode = "") -> None:
        super().__init__(text)
        self.lost = lost
        self.code: OutcomeCode = code


def make_not_sent_error(why: str) -> ControllerCallError:
    """Return the error for a command that was not sent for an unrelated reason."""
    return ControllerCallError(f"not sent: {why}", lost=False, code="not_sent")


CLEAR_NODE_LIST = "ReqNodeList="
"""scontrol's setting that clears a node list. An empty list sent by pyslurm would change nothing."""
_NODES = r"(?:ReqNodeList|ExcNodeList)=[\w.,\[\]-]*"
_NUMBERS = r"(?:TasksPerNode|NumNodes|NumTasks|MinCPUsNode|NumCPUs|Nice)=-?\d{1,10}(?:-\d{1,10})?"
_SETTING = rf"(?:{_NODES}|{_NUMBERS}|Partition={SETTABLE_PARTITIONS_PATTERN})"
CLEAR_PIN_SETTINGS_PATTERN = re.compile(rf"{_SETTING}(?: {_SETTING})*", re.ASCII)
"""Pattern of scontrol settings that may clear a pin: only node lists, numbers and partitions."""


def has_lua_submit_plugin(job_submit_plugins: Collection[str] | None) -> bool:
    """Return whether the controller has loaded the submit plugin.

    A reconfiguration can change the result.
    """
    return "lua" in (job_submit_plugins or ())


def format_unpin_settings(order: UndoOrder) -> str:
    """Return the scontrol settings that clear the bridge's pin, or "" if the job has none.

    Raise `JobCommandRefused` if the settings would do more than that.
    """
    if not order.pinned:
        return ""
    text = f"{CLEAR_NODE_LIST} {order.restore}" if order.restore else CLEAR_NODE_LIST
    if not CLEAR_PIN_SETTINGS_PATTERN.fullmatch(text):
        raise JobCommandRefused(f"its pin cannot be cleared with {text!r}")
    return text


def require_pending(job: SlurmJob) -> None:
    """Raise `JobCommandRefused` unless the job is pending."""
    require_readable(job, "state")
    if job.state != slurm_states.PENDING:
        raise JobCommandRefused(f"is {job.state}")


def require_not_held_by_others(job: SlurmJob, guarded: bool) -> None:
    """Raise `JobCommandRefused` unless the job is pending and not held by others.

    Others are the job's owner and administrators. `guarded` states whether the submit plugin marks the bridge's holds.
    """
    require_pending(job)
    require_readable(job, "priority", "state_reason", "admin_comment", "comment", "requeue_count")
    if slurm_states.classify_hold(job, guarded) is Hold.USER:
        raise JobCommandRefused("is held by its owner or an administrator")


def require_held(job: SlurmJob, guarded: bool) -> None:
    """Raise `JobCommandRefused` unless the job is held, and not by others.

    See `require_not_held_by_others`.
    """
    require_not_held_by_others(job, guarded)
    if is_unheld(job):
        raise JobCommandRefused(f"is not held (priority {job.priority})")


def require_unchanged_victim(job: SlurmJob, victim: Victim) -> None:
    """Raise `JobCommandRefused` unless the job is in the run of the victim.

    Its start time, partition and QOS must match, because the partition or the QOS determines whether the job may be
    preempted.
    """
    require_readable(job, "state", "start_time", "partition", "qos")
    if job.state != slurm_states.RUNNING:
        raise JobCommandRefused(f"is {job.state}")
    if job.start_time != victim.start_s:
        raise JobCommandRefused(f"its start_time is {job.start_time}, not {victim.start_s}")
    if not is_same_partition_list(job.partition, victim.partition):
        raise JobCommandRefused(f"its partition is {job.partition}, not {victim.partition}")
    if job.qos != victim.qos:
        raise JobCommandRefused(f"its qos is {job.qos}, not {victim.qos}")


def is_same_partition_list(one: str, other: str) -> bool:
    """Return whether two lists contain the same partitions. Slurm 26.11 lists them by tier, not as submitted."""
    return set(one.split(",")) == set(other.split(","))


def is_unheld(job: SlurmJob) -> bool:
    """Return whether the job is not held."""
    require_readable(job, "priority")
    return job.priority != 0


def may_be_released(job: SlurmJob) -> bool:
    """Return whether the job is held or delayed, and the bridge may release it."""
    if is_unheld(job):
        return slurm_states.find_begin_of_delayed_job(job) is not None
    require_readable(job, "state_reason")
    return job.state_reason not in slurm_states.LASTING_HOLD_REASONS


def is_held_by_other_actor(job: SlurmJob, guarded: bool) -> bool:
    """Return whether an actor other than the bridge holds an unpinned job.

    A user may hold a job after the bridge has read it as not held, and before the bridge's own hold arrives. The plugin
    marks every hold by the bridge. Without the plugin, the holder is unknown, and the result is False.
    """
    require_readable(job, "admin_comment", "comment")
    if not guarded or job.admin_comment == slurm_states.WAIT_MARK:
        return False
    return slurm_states.WAIT_MARK not in job.comment.split(" ")


def require_readable(job: SlurmJob, *fields: str) -> None:
    """Raise `JobCommandRefused` if one of these fields is unreadable."""
    for name in fields:
        if name in job.unreadable:
            raise JobCommandRefused(f"its {name} cannot be read")


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
