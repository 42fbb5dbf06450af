"""Decide what a command may change, based on a newly read job record.

Slurm may have started a job since the bridge read it, and setting a node list on a running job would resize it. The
owner or an administrator may also have held the job since then, and the bridge must not release that job.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from cpsched_bridge.adapters.slurm.slurm_records import SETTABLE_PARTITIONS_PATTERN, Record
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.ports import Hold, OutcomeCode

CHECKED_FIELDS = (
    "id",
    "state",
    "state_reason",
    "priority",
    "admin_comment",
    "comment",
    "requeue_count",
    "array_id",
    "array_task_id",
    "array_tasks_waiting",
    "start_time",
    "partition",
    "qos",
)
"""The record fields that these rules use. A record's "unreadable" lists those that could not be read."""


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


_NODES = r"(?:ReqNodeList|ExcNodeList)=[\w.,\[\]-]*"
_NUMBERS = r"(?:TasksPerNode|NumNodes|NumTasks|MinCPUsNode|NumCPUs|Nice)=-?\d{1,10}(?:-\d{1,10})?"
_SETTING = rf"(?:{_NODES}|{_NUMBERS}|Partition={SETTABLE_PARTITIONS_PATTERN})"
CLEAR_PIN_SETTINGS_PATTERN = re.compile(rf"(?:{_SETTING}(?: {_SETTING})*)?", re.ASCII)
"""Pattern of scontrol settings that may clear a pin: only node lists, numbers and partitions."""


def has_lua_submit_plugin(job_submit_plugins: Collection[str] | None) -> bool:
    """Return whether the controller has loaded the submit plugin.

    A reconfiguration can change the result.
    """
    return "lua" in (job_submit_plugins or ())


def require_only_unpin_settings(text: str) -> None:
    """Raise `JobCommandRefused` if scontrol settings would do more than clear a pin."""
    if not CLEAR_PIN_SETTINGS_PATTERN.fullmatch(text):
        raise JobCommandRefused(f"its pin cannot be cleared with {text!r}")


def require_pending(job: Record) -> None:
    """Raise `JobCommandRefused` unless the job is pending."""
    state = get_readable_value(job, "state")
    if state != slurm_states.PENDING:
        raise JobCommandRefused(f"is {state}")


def require_not_held_by_others(job: Record, guarded: bool) -> None:
    """Raise `JobCommandRefused` unless the job is pending and not held by others.

    Others are the job's owner and administrators. `guarded` states whether the submit plugin marks the bridge's holds.
    """
    require_pending(job)
    hold = slurm_states.classify_hold(
        get_readable_value(job, "priority"),
        get_readable_value(job, "state_reason"),
        get_readable_value(job, "admin_comment"),
        get_readable_value(job, "comment"),
        get_readable_value(job, "requeue_count"),
        guarded,
    )
    if hold is Hold.USER:
        raise JobCommandRefused("is held by its owner or an administrator")


def require_held(job: Record, guarded: bool) -> None:
    """Raise `JobCommandRefused` unless the job is held, and not by others.

    See `require_not_held_by_others`.
    """
    require_not_held_by_others(job, guarded)
    if is_unheld(job):
        raise JobCommandRefused(f"is not held (priority {get_readable_value(job, 'priority')})")


def require_unchanged_victim(job: Record, order: Record) -> None:
    """Raise `JobCommandRefused` unless the job runs as the order describes.

    Its start time, partition and QOS must match, because the partition or the QOS determines whether the job may be
    preempted.
    """
    state = get_readable_value(job, "state")
    if state != slurm_states.RUNNING:
        raise JobCommandRefused(f"is {state}")
    for name, wanted in (("start_time", "start_s"), ("partition", "partition"), ("qos", "qos")):
        value = get_readable_value(job, name)
        if value != order[wanted] and not (name == "partition" and is_same_partition_list(value, order[wanted])):
            raise JobCommandRefused(f"its {name} is {value}, not {order[wanted]}")


def is_same_partition_list(one: str | None, other: str | None) -> bool:
    """Return whether two lists contain the same partitions. Slurm 26.11 lists them by tier, not as submitted."""
    return set((one or "").split(",")) == set((other or "").split(","))


def is_unheld(job: Record) -> bool:
    """Return whether the job is not held."""
    return bool(get_readable_value(job, "priority") != 0)


def may_be_released(job: Record) -> bool:
    """Return whether the job is held or delayed, and the bridge may release it."""
    if is_unheld(job):
        return slurm_states.find_begin_of_delayed_job(job) is not None
    return get_readable_value(job, "state_reason") not in slurm_states.LASTING_HOLD_REASONS


def is_held_by_other_actor(job: Record, guarded: bool) -> bool:
    """Return whether an actor other than the bridge holds an unpinned job.

    A user may hold a job after the bridge has read it as not held, and before the bridge's own hold arrives. The plugin
    marks every hold by the bridge. Without the plugin, the holder is unknown, and the result is False.
    """
    if not guarded or get_readable_value(job, "admin_comment") == slurm_states.WAIT_MARK:
        return False
    return slurm_states.WAIT_MARK not in (get_readable_value(job, "comment") or "").split(" ")


def get_readable_value(job: Record, name: str) -> Any:
    """Return the value of a field. Raise `JobCommandRefused` if it is unreadable."""
    if name in (job.get("unreadable") or ()):
        raise JobCommandRefused(f"its {name} cannot be read")
    return job[name]
