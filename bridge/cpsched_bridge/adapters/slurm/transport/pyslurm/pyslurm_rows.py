"""Convert pyslurm's jobs and nodes to plain tables, and the tables to the classes of `cpsched.slurm_text`.

A table has the form {"fields": [...], "rows": [[...], ...]}, so that field names are sent only once. Both the bridge
and the child use this module, which does not import pyslurm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from cpsched.slurm_text.jobs import SPECIAL_REQUESTS, UNLIMITED, JobDependencies, SlurmJob
from cpsched.slurm_text.objects import SlurmNode
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.transport.cli import job_records

Table = dict[str, Any]
NODE_FIELDS = tuple(field.name for field in dataclasses.fields(SlurmNode))
_TROUBLE = ("unreadable", "unknown")
"""Fields of a node that describe its unusable fields."""
_SCALARS = (int, str, type(None), bool, float)


def to_json_value(value: Any) -> Any:
    """Return `value` as JSON types. Raise `TypeError` for an unknown type."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_value(item) for item in value]
    if hasattr(value, "gres") and hasattr(value, "cpu"):
        return _convert_tres(value)
    if hasattr(value, "count"):
        return int(value.count)
    raise TypeError(f"{type(value).__name__} cannot be sent")


def _convert_tres(tres: Any) -> Record:
    amounts = {name: getattr(tres, name, None) for name in ("cpu", "mem", "node", "billing")}
    found = {name: int(amount.count) for name, amount in amounts.items() if amount is not None}
    return found | {f"gres/{name}": int(item.count) for name, item in tres.gres.items()}


def to_node_row(source: Any) -> list[Any]:
    """Return the values of `NODE_FIELDS`, with None for missing and unreadable values.

    `unreadable` lists the unreadable fields, but not those that this version of pyslurm lacks.
    """
    values = {field: _read_field(source, field) for field in NODE_FIELDS if field not in _TROUBLE}
    failed = {
        field: "pyslurm cannot read it" for field, (_, ok) in values.items() if not ok and _has_field(source, field)
    }
    return [failed or None if field == "unreadable" else values.get(field, (None,))[0] for field in NODE_FIELDS]


def _has_field(source: Any, field: str) -> bool:
    """Return whether this version of pyslurm has the field."""
    return hasattr(type(source), field) or field in getattr(source, "__dict__", ())


def _read_field(source: Any, field: str) -> tuple[Any, bool]:
    try:
        return to_json_value(getattr(source, field)), True
    except UnicodeDecodeError as error:
        # A user may write any bytes into a name or a comment, and the exception holds all of them.
        return error.object.decode(errors="backslashreplace"), True
    except Exception:
        # pyslurm cannot read this field of the record, so the field is reported as unreadable.
        return None, False


_TRANSLATED_FIELDS = {
    *("special_requests", "layout", "unreadable", "unknown_state", "listed_partitions", "cpus_per_gpu"),
    *("memory_per_gpu", "node_counts", "user_name", "gres_per_job"),
}
"""Fields and requests that are not attributes of pyslurm's jobs, and the name, which pyslurm queries for each job."""
JOB_FIELDS = tuple(
    dict.fromkeys(
        field
        for field in (*SlurmJob._fields, *SPECIAL_REQUESTS, "threads_reserved_for_system")
        if field not in _TRANSLATED_FIELDS
    )
)
"""Attributes of pyslurm's jobs that are read."""
_GET_JOB_FIELDS = attrgetter(*JOB_FIELDS)


def to_job_row(job: Any) -> list[Any]:
    """Return a job's values of `JOB_FIELDS`, and its unreadable fields. The value of an unreadable field is None."""
    unreadable: list[str] = []
    try:
        row = list(_GET_JOB_FIELDS(job))
    except Exception:
        row = [_UnreadValue] * len(JOB_FIELDS)  # one field failed, so each is read separately
    for at, value in enumerate(row):
        if type(value) not in _SCALARS:
            row[at], ok = _read_field(job, JOB_FIELDS[at])
            if not ok:
                unreadable.append(JOB_FIELDS[at])
    return [*row, unreadable]


class _UnreadValue:
    """A placeholder for a value that has not been read yet."""


def to_job_table(jobs: Iterable[Any]) -> Table:
    """Return a table of jobs."""
    return {"fields": [*JOB_FIELDS, "unreadable"], "rows": [to_job_row(job) for job in jobs]}


def to_node_table(nodes: Iterable[Any]) -> Table:
    """Return a table of nodes."""
    return {"fields": list(NODE_FIELDS), "rows": [to_node_row(node) for node in nodes]}


def table_to_records(source: Table) -> list[Record]:
    """Return the rows of a table as dicts."""
    fields = source["fields"]
    return [dict(zip(fields, row, strict=True)) for row in source["rows"]]


def to_node(values: Record) -> SlurmNode:
    """Return the node with pyslurm's attributes. pyslurm shows a value that is not set as None."""
    return slurm_states.mark_unusable_node(SlurmNode(**{**values, "state": values["state"] or "UNKNOWN"}))


def to_slurm_job(values: Record) -> SlurmJob:
    """Return the job with pyslurm's attributes.

    pyslurm shows a value that is not set as None, an infinite count as "UNLIMITED", and no CPUs per task if the job
    requests CPUs per GPU.
    """
    fields: dict[str, Any] = {
        name: value
        for name, value in values.items()
        if name in _JOB_CLASS_FIELDS and value is not None and (value != UNLIMITED or name == "time_limit")
    }
    fields = {name: value for name, value in fields.items() if value != 0 or name not in ("cpus", "num_nodes")}
    requests = {name for name in SPECIAL_REQUESTS if values.get(name) not in _UNSET_REQUESTS}
    if values.get("threads_reserved_for_system"):
        requests.add("cores_reserved_for_system")
    if values.get("ntasks_per_core") == 1:
        requests.remove("ntasks_per_core")
    user_id = values.get("user_id")
    fields.setdefault("state", "")
    fields.setdefault("user_name", "" if user_id is None else job_records.look_up_user_name(user_id))
    fields |= {
        "cpus_per_task": values.get("cpus_per_task") or 0,
        "special_requests": frozenset(requests),
        "unreadable": tuple(values.get("unreadable") or ()),
    }
    wanted = fields.pop("dependencies", None)
    job = SlurmJob(**fields)
    if isinstance(wanted, dict) and job.state == slurm_states.PENDING:
        return job._replace(dependencies=_to_dependencies(wanted))
    return job


def _to_dependencies(wanted: Record) -> JobDependencies:
    """Return dependencies. pyslurm shows `singleton` only once it is satisfied."""
    conditions = tuple(
        (kind, str(target)) for kind, targets in wanted.items() if isinstance(targets, list) for target in targets
    )
    return JobDependencies(conditions, wanted.get("singleton") or None, wanted.get("satisfy") == "any")


_JOB_CLASS_FIELDS = frozenset(SlurmJob._fields)
_UNSET_REQUESTS: tuple[object, ...] = (None, UNLIMITED, 0, "", [], {})
