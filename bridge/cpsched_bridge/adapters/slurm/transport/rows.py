"""pyslurm's objects as plain values: what of a job, node, partition or reservation is read, and how it is spelled.

A record is a dict under pyslurm's own attribute names, holding None, bools, numbers, strings, lists and dicts only.
Trackable resources become {"cpu": 4, "mem": 4000, "node": 1, "gres/gpu": 2}. A table of records travels as
{"fields": [...], "rows": [[...], ...]}. Runs in the child; imports neither pyslurm nor the rest of the bridge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

Record = dict[str, Any]
Table = dict[str, Any]

ALWAYS = (
    "id",
    "state",
    "state_reason",
    "priority",
    "name",
    "user_id",
    "user_name",
    "account",
    "partition",
    "qos",
    "submit_time",
    "eligible_time",
    "start_time",
    "end_time",
    "time_limit",
    "num_nodes",
    "max_nodes",
    "cpus",
    "ntasks",
    "ntasks_per_node",
    "cpus_per_task",
    "min_cpus_per_node",
    "memory_per_cpu",
    "memory_per_node",
    "resource_sharing",
    "gres_per_node",
    "tres_per_task",
    "array_id",
    "array_task_id",
    "array_tasks_waiting",
    "array_tasks_parallel",
    "heterogeneous_id",
    "admin_comment",
    "comment",
    "requeue_count",
)
"""Read of every job, whatever its state."""

WHILE_PENDING = (
    "required_nodes",
    "excluded_nodes",
    "requested_tres",
    "dependencies",
    "constraints",
    "cluster_constraints",
    "batch_constraints",
    "reservation",
    "licenses",
    "burst_buffer",
    "network",
    "deadline",
    "time_limit_min",
    "requires_contiguous_nodes",
    "requires_node_reboot",
    "spreads_over_nodes",
    "required_switches",
    "cores_reserved_for_system",
    "threads_reserved_for_system",
    "boards_per_node",
    "sockets_per_board",
    "sockets_per_node",
    "cores_per_socket",
    "threads_per_core",
    "ntasks_per_board",
    "ntasks_per_socket",
    "ntasks_per_core",
    "ntasks_per_gpu",
    "tres_per_socket",
    "segment_size",
    "temporary_disk_per_node",
    "mcs_label",
    "is_cronjob",
)
"""Read of pending jobs: what decides where and whether they may start."""

WHILE_PLACED = ("allocated_nodes", "allocated_tres", "requested_tres")
"""Read of jobs that have, or had, nodes."""

JOB_FIELDS = (*ALWAYS, *dict.fromkeys((*WHILE_PENDING, *WHILE_PLACED)), "unreadable")

NODE_FIELDS = (
    "name",
    "state",
    "effective_cpus",
    "allocated_cpus",
    "threads_per_core",
    "real_memory",
    "memory_reserved_for_system",
    "allocated_memory",
    "configured_gres",
    "allocated_tres",
    "active_features",
    "partitions",
    "slurm_version",
)
PARTITION_FIELDS = (
    "name",
    "state",
    "nodes",
    "max_time",
    "default_time",
    "max_nodes",
    "min_nodes",
    "max_cpus_per_node",
    "max_cpus_per_socket",
    "max_memory_per_node",
    "max_memory_per_cpu",
    "oversubscribe",
    "allowed_accounts",
    "denied_accounts",
    "allowed_qos",
    "is_root_only",
    "is_user_exclusive",
    "requires_reservation",
)
RESERVATION_FIELDS = ("name", "nodes", "start_time", "end_time", "users", "accounts")
CONFIG_FIELDS = (
    "accounting_storage_tres",
    "accounting_storage_type",
    "cluster_name",
    "gres_types",
    "job_submit_plugins",
    "min_job_age",
    "preempt_mode",
    "preempt_type",
    "scheduler_parameters",
    "scheduler_type",
    "select_type",
    "select_type_parameters",
    "slurm_user_name",
    "version",
)
PAST_FIELDS = (
    "id",
    "name",
    "user_name",
    "account",
    "partition",
    "submit_time",
    "start_time",
    "end_time",
    "time_limit",
    "state",
    "num_nodes",
    "cpus",
    "array_id",
    "array_task_id",
    "nodelist",
    "allocated_tres",
)
"""Read of a job in the accounting database."""


def plain(value: Any) -> Any:
    """`value` as JSON can carry it; raises `TypeError` for what this project has not met."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "gres") and hasattr(value, "cpu"):
        return _resources(value)
    if hasattr(value, "count"):
        return int(value.count)
    raise TypeError(f"{type(value).__name__} cannot be sent")


def _resources(tres: Any) -> Record:
    amounts = {name: getattr(tres, name, None) for name in ("cpu", "mem", "node")}
    found = {name: int(amount.count) for name, amount in amounts.items() if amount is not None}
    return found | {f"gres/{name}": int(item.count) for name, item in tres.gres.items()}


def row_of(source: Any, fields: Sequence[str]) -> list[Any]:
    """The values of `fields`; AttributeError and the like become None."""
    return [_read(source, field)[0] for field in fields]


def _read(source: Any, field: str) -> tuple[Any, bool]:
    try:
        return plain(getattr(source, field)), True
    except Exception:
        # A property of the library that cannot cope with this record: its own business, but ours to notice.
        return None, False


_SCALARS = (int, str, type(None), bool, float)
_NAMED_ONCE = "user_name"
_user_names: dict[int, str] = {}
"""By user id: pyslurm asks the system anew for every job, which costs more than all other fields together."""


class _Reader:
    """Reads the fields that jobs in one state have a use for, all in one go."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.fields = [field for field in wanted if field != _NAMED_ONCE]
        self.places = [JOB_FIELDS.index(field) for field in self.fields]
        self.get = attrgetter(*self.fields)

    def row(self, job: Any) -> list[Any]:
        """A row of `JOB_FIELDS`, `unreadable` last."""
        row: list[Any] = [None] * len(JOB_FIELDS)
        unreadable: list[str] = []
        try:
            values = self.get(job)
        except Exception:
            values = (_Unread,) * len(self.fields)  # one of them: each by itself then
        for field, place, value in zip(self.fields, self.places, values, strict=True):
            if type(value) in _SCALARS:
                row[place] = value
                continue
            row[place], ok = _read(job, field)
            if not ok:
                unreadable.append(field)
        row[-1] = unreadable or None
        row[_NAME_PLACE] = _user_name(job)
        return row


class _Unread:
    """Stands for a value that is still to be read."""


def _user_name(job: Any) -> str | None:
    name = _user_names.get(job.user_id)
    if name is None:
        name = job.user_name
        if name is not None:
            _user_names[job.user_id] = name
    return name


_NAME_PLACE = JOB_FIELDS.index(_NAMED_ONCE)
_WAITING = _Reader((*ALWAYS, *WHILE_PENDING))
_PLACED = _Reader((*ALWAYS, *WHILE_PLACED))


def job_row(job: Any) -> list[Any]:
    """One job as a row of `JOB_FIELDS`; fields that its state has no use for are None, and so are unreadable ones."""
    return (_WAITING if job.state == "PENDING" else _PLACED).row(job)


def table(sources: Iterable[Any], fields: Sequence[str]) -> Table:
    """A table of records."""
    return {"fields": list(fields), "rows": [row_of(source, fields) for source in sources]}


def job_table(jobs: Iterable[Any]) -> Table:
    """A table of jobs."""
    return {"fields": list(JOB_FIELDS), "rows": [job_row(job) for job in jobs]}


def records(source: Table) -> list[Record]:
    """The dicts of a table."""
    fields = source["fields"]
    return [dict(zip(fields, row, strict=True)) for row in source["rows"]]
