"""Convert pyslurm's objects to plain records and tables.

`adapters.slurm.slurm_records` describes records. A table has the form {"fields": [...], "rows": [[...], ...]}, so that
field names are sent only once. Both the bridge and the child use this module, which does not import pyslurm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from enum import Flag
from operator import attrgetter
from typing import Any, TypeVar

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.objects import SlurmNode, SlurmObject, SlurmPartition, SlurmReservation, SlurmTopology
from cpsched_bridge.adapters.slurm.slurm_records import (
    COMMON_JOB_FIELDS,
    JOB_FIELDS,
    PENDING_JOB_FIELDS,
    PLACED_JOB_FIELDS,
    Record,
    SlurmRecords,
)
from cpsched_bridge.adapters.slurm.translation import node_and_task_lists, slurm_states
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import CHECKED_FIELDS

Table = dict[str, Any]
ObjectT = TypeVar("ObjectT", bound=SlurmObject)
TROUBLE = ("unreadable", "unknown")
"""Fields of a `SlurmObject` that describe its unusable fields."""


def list_fields(kind: type[SlurmObject | SlurmConfig]) -> list[str]:
    """Return the names of a class's fields."""
    return [field.name for field in dataclasses.fields(kind)]


FLAG_NAMES = {
    "IGNORE_RUNNING_JOBS": "IGNORE_JOBS",
    "MAINTENANCE": "MAINT",
    "NO_JOB_HOLD_AFTER_END": "NO_HOLD_JOBS_AFTER_END",
    "PARTITION_NODES_ONLY": "PART_NODES",
    "PURGE": "PURGE_COMP",
    "SPECIFIC_NODES": "SPEC_NODES",
    "STATIC_NODES": "STATIC",
    "USER_DELETION": "USER_DELETE",
}
"""scontrol's names for the reservation flags that pyslurm names differently."""


def to_json_value(value: Any) -> Any:
    """Return `value` as JSON types. Raise `TypeError` for an unknown type."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_value(item) for item in value]
    if isinstance(value, Flag):
        return sorted(FLAG_NAMES.get(flag.name, flag.name) for flag in value if flag.name)
    if hasattr(value, "gres") and hasattr(value, "cpu"):
        return _convert_tres(value)
    if hasattr(value, "count"):
        return int(value.count)
    raise TypeError(f"{type(value).__name__} cannot be sent")


def _convert_tres(tres: Any) -> Record:
    amounts = {name: getattr(tres, name, None) for name in ("cpu", "mem", "node", "billing")}
    found = {name: int(amount.count) for name, amount in amounts.items() if amount is not None}
    return found | {f"gres/{name}": int(item.count) for name, item in tres.gres.items()}


def object_to_row(source: Any, fields: Sequence[str]) -> list[Any]:
    """Return the values of `fields`, with None for missing and unreadable values.

    If `fields` contains `unreadable`, it lists the unreadable fields, but not the missing ones.
    """
    values = {field: _read_field(source, field) for field in fields if field not in TROUBLE}
    failed = {
        field: "pyslurm cannot read it" for field, (_, ok) in values.items() if not ok and _has_field(source, field)
    }
    trouble = {"unreadable": failed or None, "unknown": None}
    return [trouble[field] if field in trouble else values[field][0] for field in fields]


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


_SCALARS = (int, str, type(None), bool, float)
_CACHED_NAME_FIELD = "user_name"
_user_names: dict[int, str] = {}
"""Cache of user names by id. pyslurm queries the host for each job, which costs more than all other fields."""


class _JobFieldReader:
    """A reader of the fields that apply to jobs in one state, with one getter call."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.fields = [field for field in wanted if field != _CACHED_NAME_FIELD]
        self.places = [JOB_FIELDS.index(field) for field in self.fields]
        self.get = attrgetter(*self.fields)

    def row(self, job: Any) -> list[Any]:
        """Return a row of `JOB_FIELDS`, with `unreadable` last."""
        row: list[Any] = [None] * len(JOB_FIELDS)
        unreadable: list[str] = []
        try:
            values = self.get(job)
        except Exception:
            values = (_UnreadValue,) * len(self.fields)  # one field failed, so each is read separately
        for field, place, value in zip(self.fields, self.places, values, strict=True):
            if type(value) in _SCALARS:
                row[place] = value
                continue
            row[place], ok = _read_field(job, field)
            if not ok:
                unreadable.append(field)
        row[-1] = unreadable or None
        row[_NAME_PLACE] = _get_cached_user_name(job)
        return row


class _UnreadValue:
    """A placeholder for a value that has not been read yet."""


def _get_cached_user_name(job: Any) -> str | None:
    name = _user_names.get(job.user_id)
    if name is None:
        name = _read_field(job, _CACHED_NAME_FIELD)[0]
        if name is not None:
            _user_names[job.user_id] = name
    return name


_NAME_PLACE = JOB_FIELDS.index(_CACHED_NAME_FIELD)
_PENDING_READER = _JobFieldReader(
    [field for field in (*COMMON_JOB_FIELDS, *PENDING_JOB_FIELDS) if field != "node_counts"]
)
_PLACED_READER = _JobFieldReader((*COMMON_JOB_FIELDS, *PLACED_JOB_FIELDS))


_GET_CHECKED_FIELDS = attrgetter(*CHECKED_FIELDS)


def to_checked_record(job: Any) -> Record:
    """Return a record with the fields in `CHECKED_FIELDS`.

    `programs.job_command_rules` describes "unreadable".
    """
    try:
        values = _GET_CHECKED_FIELDS(job)
    except Exception:
        values = (_UnreadValue,)  # one field failed, so each is read separately
    if all(type(value) in _SCALARS for value in values):
        return dict(zip(CHECKED_FIELDS, values, strict=True))
    read = {field: _read_field(job, field) for field in CHECKED_FIELDS}
    unreadable = [field for field, (_, ok) in read.items() if not ok]
    return {**{field: value for field, (value, _) in read.items()}, "unreadable": unreadable}


def read_field_value(source: Any, field: str) -> Any:
    """Return the value of a field. Raise `ValueError` if it is unreadable."""
    value, ok = _read_field(source, field)
    if not ok:
        raise ValueError(f"its {field} cannot be read")
    return value


def to_job_row(job: Any) -> list[Any]:
    """Return one job as a row of `JOB_FIELDS`.

    Unreadable fields, and fields that do not apply to the job's state, are None.
    """
    return (_PENDING_READER if job.state == "PENDING" else _PLACED_READER).row(job)


def to_table(sources: Iterable[Any], fields: Sequence[str]) -> Table:
    """Return a table of `fields` with a row for each source object."""
    return {"fields": list(fields), "rows": [object_to_row(source, fields) for source in sources]}


def to_partition_table(partitions: Iterable[Any]) -> Table:
    """Return a table of partitions, combining two fields into `JobDefaults`."""
    sources = list(partitions)
    table, at = to_table(sources, list_fields(SlurmPartition)), list_fields(SlurmPartition).index("job_defaults")
    for row, source in zip(table["rows"], sources, strict=True):
        found = {name: _read_field(source, field) for field, name in _JOB_DEFAULTS.items() if _has_field(source, field)}
        words = [f"{name}={value if ok else '?'}" for name, (value, ok) in found.items() if value or not ok]
        row[at] = ",".join(words) or None
    return table


_JOB_DEFAULTS = {"default_cpus_per_gpu": "DefCpuPerGPU", "default_memory_per_gpu": "DefMemPerGPU"}
"""Slurm's names for the default amounts per GPU, by pyslurm's field names."""


def to_job_table(jobs: Iterable[Any]) -> Table:
    """Return a table of jobs."""
    return {"fields": list(JOB_FIELDS), "rows": [to_job_row(job) for job in jobs]}


def table_to_records(source: Table) -> list[Record]:
    """Return the rows of a table as dicts."""
    fields = source["fields"]
    return [dict(zip(fields, row, strict=True)) for row in source["rows"]]


def parse_cluster_records(snapshot: Record) -> SlurmRecords:
    """Return the records in the child's snapshot, whose parts are tables."""
    jobs = table_to_records(snapshot["jobs"])
    singletons = {int(number): single for number, single in snapshot.get("singletons", {}).items()}
    unlimited = set(snapshot.get("unlimited", ()))
    for job in jobs:
        if job["id"] in unlimited:
            job["time_limit"] = "UNLIMITED"
        if job["dependencies"] and not job["dependencies"].get("singleton"):
            job["dependencies"]["singleton"] = singletons.get(
                job["id"]
            )  # pyslurm shows `singleton` only once it is satisfied
    layouts = {int(number): layout for number, layout in snapshot.get("layouts", {}).items()}
    guarded, outside = snapshot.get("guarded", True), snapshot.get("outside", {})
    topologies = {name: SlurmTopology(**each) for name, each in snapshot.get("topologies", {}).items()}
    return SlurmRecords(
        snapshot["now_s"],
        nodes=[slurm_states.mark_unusable_node(node) for node in _table_to_objects(SlurmNode, snapshot["nodes"])],
        partitions=_table_to_objects(SlurmPartition, snapshot["partitions"]),
        reservations=[
            reservation.with_strictest_values()
            for reservation in _table_to_objects(SlurmReservation, snapshot["reservations"])
        ],
        jobs=slurm_states.mark_unknown_states(jobs, snapshot["now_s"]),
        layouts=layouts,
        guarded=guarded,
        outside=outside,
        topologies=topologies,
    )


def to_config(record: Record) -> SlurmConfig:
    """Return the configuration in a record. pyslurm shows some lists as text."""
    fields: dict[str, Any] = {
        name: value.split(",") if name in _LIST_SETTINGS and isinstance(value, str) else value
        for name, value in record.items()
    }
    return SlurmConfig(**fields)


_LIST_SETTINGS = {"accounting_storage_enforce", "topology_parameters"}


def _table_to_objects(kind: type[ObjectT], source: Table) -> list[ObjectT]:
    return [_to_object(kind, record) for record in table_to_records(source)]


def _to_object(kind: type[ObjectT], record: Record) -> ObjectT:
    """Return an object, with an invalid node list reported in `unreadable`.

    pyslurm does not check the node list that Slurm prints. It shows limits that are not set as "UNLIMITED" or None.
    """
    fields: dict[str, Any] = {name: None if value == "UNLIMITED" else value for name, value in record.items()}
    if fields.get("state", "") is None:
        del fields["state"]
    try:
        node_and_task_lists.expand_hostlist(fields.get("nodes"))
    except ValueError as error:
        fields |= {"nodes": None, "unreadable": {**(fields.get("unreadable") or {}), "nodes": str(error)}}
    return kind(**fields)
