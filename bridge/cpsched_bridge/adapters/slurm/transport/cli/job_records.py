"""Build records with the fields in `JOB_FIELDS` from squeue and scontrol.

An unreadable field is None and is listed in `unreadable`. The translation then leaves the job to Slurm and reports the
reason. A job with an ambiguous scontrol record lacks `SCONTROL_ONLY_FIELDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from cpsched_bridge.adapters.slurm.slurm_records import JOB_FIELDS, Layout, Record
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.translation.unsupported_requests import ENFORCED_BINDING
from cpsched_bridge.adapters.slurm.transport.cli import slurm_output_values
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_job_parsing import (
    ScontrolJobDetail,
    UnparsedScontrolJob,
    is_same_except_times,
    parse_job_detail,
)
from cpsched_bridge.adapters.slurm.transport.cli.squeue_parsing import Row
from cpsched_bridge.adapters.slurm.transport.programs.layout_queries import parse_layouts
from cpsched_bridge.host_users import find_user_name

SCONTROL_ONLY_FIELDS = (
    "max_nodes", "ntasks", "memory_per_cpu", "memory_per_node", "requested_tres", "excluded_nodes", "batch_constraints",
    "spreads_over_nodes", "segment_size", "extra", "gres_binding", "node_counts", "ntasks_per_gpu", "is_cronjob",
    "time_limit_min",
)  # fmt: skip
"""Fields that a pending job lacks if it has no scontrol record."""

Read = Callable[[str], Any]

_ROW_ALWAYS: tuple[tuple[str, str, Read], ...] = (
    ("id", "JobID", int),
    ("state", "State", str),
    ("state_reason", "Reason", slurm_output_values.parse_text_or_none),
    ("priority", "PriorityLong", int),
    ("name", "Name", slurm_output_values.parse_text_or_none),
    ("user_id", "UserID", int),
    ("account", "Account", slurm_output_values.parse_text_or_none),
    ("partition", "Partition", slurm_output_values.parse_text_or_none),
    ("qos", "QOS", slurm_output_values.parse_text_or_none),
    ("submit_time", "SubmitTime", slurm_output_values.parse_nonzero_or_none),
    ("eligible_time", "EligibleTime", slurm_output_values.parse_nonzero_or_none),
    ("start_time", "StartTime", slurm_output_values.parse_nonzero_or_none),
    ("end_time", "EndTime", slurm_output_values.parse_nonzero_or_none),
    ("num_nodes", "NumNodes", slurm_output_values.parse_nonzero_or_none),
    ("cpus", "NumCPUs", lambda word: slurm_output_values.parse_nonzero_or_none(word) or 1),
    ("ntasks_per_node", "NTPerNode", slurm_output_values.parse_nonzero_or_none),
    ("min_cpus_per_node", "MinCPUs", slurm_output_values.parse_nonzero_or_none),
    ("gres_per_node", "tres-per-node", slurm_output_values.parse_gres_counts),
    ("tres_per_task", "tres-per-task", slurm_output_values.parse_tres_amounts),
    ("licenses", "Licenses", slurm_output_values.parse_names),
    ("heterogeneous_id", "HetJobID", slurm_output_values.parse_nonzero_or_none),
    ("admin_comment", "admin_comment", slurm_output_values.parse_text_or_none),
    ("comment", "Comment", slurm_output_values.parse_text_or_none),
    ("requeue_count", "RestartCnt", lambda word: slurm_output_values.parse_number_or_none(word) or 0),
    ("reservation", "Reservation", slurm_output_values.parse_text_or_none),
)


def _parse_count_or_infinite(word: str) -> int | str | None:
    """Return the number of tasks per socket or core.

    In squeue's output, "N/A" means unlimited.
    """
    return slurm_output_values.UNLIMITED if word == "N/A" else slurm_output_values.parse_nonzero_or_none(word)


_ROW_PENDING: tuple[tuple[str, str, Read], ...] = (
    ("required_nodes", "ReqNodes", slurm_output_values.parse_text_or_none),
    ("dependencies", "Dependency", slurm_output_values.parse_dependencies),
    ("constraints", "Feature", slurm_output_values.parse_names),
    ("preferred_features", "Prefer", slurm_output_values.parse_text_or_none),
    ("cluster_constraints", "ClusterFeature", slurm_output_values.parse_names),
    ("burst_buffer", "BurstBuffer", slurm_output_values.parse_text_or_none),
    ("network", "Network", slurm_output_values.parse_text_or_none),
    ("deadline", "Deadline", slurm_output_values.parse_nonzero_or_none),
    ("requires_contiguous_nodes", "Contiguous", slurm_output_values.parse_flag),
    ("requires_node_reboot", "Reboot", slurm_output_values.parse_flag),
    ("required_switches", "ReqSwitch", slurm_output_values.parse_nonzero_or_none),
    (
        "cores_reserved_for_system",
        "CoreSpec",
        lambda word: None if "Thread" in word else slurm_output_values.parse_number_or_none(word),
    ),
    ("threads_reserved_for_system", "CoreSpec", lambda word: int(word.split()[0]) if "Thread" in word else None),
    ("boards_per_node", "BoardsPerNode", slurm_output_values.parse_count_or_infinite),
    ("sockets_per_board", "SPerBoard", slurm_output_values.parse_count_or_infinite),
    ("sockets_per_node", "Sockets", slurm_output_values.parse_count_or_infinite),
    ("cores_per_socket", "Cores", slurm_output_values.parse_count_or_infinite),
    ("threads_per_core", "Threads", slurm_output_values.parse_count_or_infinite),
    ("ntasks_per_board", "NTPerBoard", slurm_output_values.parse_count_or_infinite),
    ("ntasks_per_socket", "NTPerSocket", _parse_count_or_infinite),
    ("ntasks_per_core", "NTPerCore", _parse_count_or_infinite),
    ("tres_per_socket", "tres-per-socket", slurm_output_values.parse_tres_amounts),
    ("temporary_disk_per_node", "MinTmpDisk", slurm_output_values.parse_mib),
    ("mcs_label", "MCSLabel", slurm_output_values.parse_text_or_none),
    ("nice", "Nice", slurm_output_values.parse_number_or_none),
    ("accrue_time", "AccrueTime", slurm_output_values.parse_nonzero_or_none),
)
_ROW_PLACED: tuple[tuple[str, str, Read], ...] = (
    ("is_requeueable", "Requeue", slurm_output_values.parse_flag),
    ("is_batch_job", "BatchFlag", slurm_output_values.parse_flag),
)
_UNSET_FIELDS: Record = dict.fromkeys(JOB_FIELDS)


@dataclass(slots=True)
class CachingSlurmJobRecordBuilder:
    """A builder of job records that does not parse unchanged text again."""

    counts_one_more: bool = False
    """Whether slurmctld reports one node too many for a waiting job whose tasks have several CPUs."""
    filters_by_extra: bool = False
    """Whether SchedulerParameters contains extra_constraints."""
    _known: dict[int, tuple[Row, UnparsedScontrolJob | None, Record, Layout | None, bool]] = field(default_factory=dict)
    """Source, record, layout, and whether the record was merged, by job number."""

    def set_node_filter(self, filters_by_extra: bool) -> None:
        """Set whether `--extra` filters nodes. If it has changed, discard all records."""
        if filters_by_extra != self.filters_by_extra:
            self.filters_by_extra = filters_by_extra
            self._known.clear()

    def read(
        self,
        rows: Mapping[int, Row],
        shown: Mapping[int, UnparsedScontrolJob],
        hidden: frozenset[int] | set[int] = frozenset(),
    ) -> tuple[list[Record], dict[int, Layout]]:
        """Return the job records and layouts of one reading.

        `hidden` contains the numbers of arrays' common records that squeue may have merged with other records. Only
        scontrol then shows the reason and the tasks of the common record.
        """
        known: dict[int, tuple[Row, UnparsedScontrolJob | None, Record, Layout | None, bool]] = {}
        layouts: dict[int, Layout] = {}
        records = []
        for number, row in rows.items():
            before, details = self._known.get(number), shown.get(number)
            merged = number in hidden and "_[" in row["JobArrayID"]
            if (
                before is not None
                and before[0] == row
                and before[4] == merged
                and _is_scontrol_record_unchanged(before[1], details, row)
            ):
                found = before
            else:
                record, layout = build_job_record(row, details, merged)
                if not self.filters_by_extra:
                    record["extra"] = None
                if self.counts_one_more:
                    record["num_nodes"] = _correct_min_node_count(record)
                found = (row, details, record, layout, merged)
            known[number] = found
            records.append(found[2])
            if found[3] is not None:
                layouts[number] = found[3]
        self._known = known
        return records, layouts


def _is_scontrol_record_unchanged(
    before: UnparsedScontrolJob | None, now: UnparsedScontrolJob | None, row: Row
) -> bool:
    if before is None or now is None:
        return before is now
    return is_same_except_times(before, now, row["Name"])


def _correct_min_node_count(record: Record) -> int | None:
    """Return a job's minimum number of nodes, without slurmctld's extra node.

    Before 24.05, its `_pack_default_job_details` adds a node unless the tasks fill all of their nodes, for example for
    two tasks of three CPUs.
    """
    nodes: int | None = record["num_nodes"]
    least = (record["requested_tres"] or {}).get("node")
    waits = (
        record["state"] == slurm_states.PENDING and (record["cpus_per_task"] or 1) > 1 and not record["ntasks_per_node"]
    )
    return least if waits and least is not None and nodes == least + 1 else nodes


def build_job_record(row: Row, shown: UnparsedScontrolJob | None, merged: bool = False) -> tuple[Record, Layout | None]:
    """Return the record and layout of one job.

    squeue may have `merged` the job with other array tasks.
    """
    record = _UNSET_FIELDS.copy()
    unreadable: list[str] = []
    detail = parse_job_detail(shown, row["Name"]) if shown is not None else None
    is_pending = row["State"] == slurm_states.PENDING
    _fill_fields_from_row(record, row, _ROW_ALWAYS, unreadable)
    record["user_name"] = _find_user_name(record["user_id"]) if record["user_id"] is not None else None
    _set_field_or_mark_unreadable(record, unreadable, "cpus_per_task", lambda: _parse_cpus_per_task(row))
    _set_field_or_mark_unreadable(
        record, unreadable, "time_limit", lambda: slurm_output_values.parse_time_limit(_get_time_limit(row, detail))
    )
    _set_field_or_mark_unreadable(
        record,
        unreadable,
        "resource_sharing",
        lambda: normalize_job_oversubscribe(row["OverSubscribe"], row.get("Exclusive")),
    )
    _set_array_fields(record, row, shown, merged, unreadable)
    if merged:
        record["state_reason"] = detail.get_pending_reason() if detail is not None else None
        if detail is None:
            unreadable.append("state_reason")
    if detail is not None:
        _set_common_details(record, row, detail, is_pending, unreadable)
    if is_pending:
        _fill_fields_from_row(record, row, _ROW_PENDING, unreadable)
        if detail is None:
            unreadable.extend(SCONTROL_ONLY_FIELDS)
        else:
            _set_pending_details(record, detail, unreadable)
            unreadable.extend(detail.unknown)
    else:
        _set_placed_fields(record, row, detail, unreadable)
    record["unreadable"] = unreadable or None
    return record, _parse_layout(record, detail)


def _fill_fields_from_row(
    record: Record, row: Row, table: tuple[tuple[str, str, Read], ...], unreadable: list[str]
) -> None:
    for name, column, read in table:
        try:
            record[name] = read(row[column])
        except (ValueError, IndexError):
            unreadable.append(name)


def _set_field_or_mark_unreadable(record: Record, unreadable: list[str], name: str, read: Callable[[], Any]) -> None:
    try:
        record[name] = read()
    except (ValueError, KeyError, IndexError):
        unreadable.append(name)


def _get_time_limit(row: Row, detail: ScontrolJobDetail | None) -> str:
    """Return the time limit, from scontrol if possible.

    squeue does not show limits above one year, and shows a wrong limit above 136 years.
    """
    return row["TimeLimit"] if detail is None else detail.get_value_on_line("RunTime", "TimeLimit")


def _parse_cpus_per_task(row: Row) -> int | None:
    if slurm_output_values.parse_text_or_none(row["cpus-per-tres"]) not in (None, "N/A"):
        return None
    return slurm_output_values.parse_nonzero_or_none(row["CPUsPerTask"]) or 1


def normalize_job_oversubscribe(oversubscribe: str, exclusive: str | None) -> str:
    """Return how a job shares its nodes, as Slurm releases before 26.05 print it.

    Release 26.05 prints two fields for this.
    """
    if exclusive in (None, "NO"):
        return "OK" if exclusive and oversubscribe == "NO" else oversubscribe
    return "NO" if exclusive == "NODE" else str(exclusive)


def _set_array_fields(
    record: Record, row: Row, shown: UnparsedScontrolJob | None, merged: bool, unreadable: list[str]
) -> None:
    """Set a record's array, and its array task or the tasks that wait in it."""
    array, is_task, task = row["JobArrayID"].partition("_")
    if not is_task:
        return
    try:
        record["array_id"] = int(array)
        if task.startswith("["):
            if shown is not None:
                record["array_tasks_waiting"] = shown.tasks.partition("%")[0] or None
            elif merged:
                unreadable.append("array_tasks_waiting")
            else:
                record["array_tasks_waiting"] = task.strip("[]").partition("%")[0] or None
        else:
            record["array_task_id"] = int(task) or None
    except ValueError:
        unreadable.append("array_id")
    if shown is None:
        unreadable.append("array_tasks_parallel")
    else:
        record["array_tasks_parallel"] = shown.throttle


def _set_common_details(
    record: Record, row: Row, detail: ScontrolJobDetail, is_pending: bool, unreadable: list[str]
) -> None:
    """Set the fields that scontrol shows for every job."""
    _set_field_or_mark_unreadable(
        record,
        unreadable,
        "ntasks",
        lambda: slurm_output_values.parse_nonzero_or_none(detail.get_value_on_line("NumNodes", "NumTasks")) or 1,
    )
    _set_field_or_mark_unreadable(
        record,
        unreadable,
        "requested_tres",
        lambda: slurm_output_values.parse_tres_amounts(_get_requested_tres(detail.settings, is_pending)),
    )
    line = f" MinCPUsNode={detail.settings['MinCPUsNode']}"
    nodes = f" {detail.settings.get('NumNodes', '')}".partition(" NumCPUs=")[0]
    if " MinMemoryCPU=" in line:
        _set_field_or_mark_unreadable(
            record,
            unreadable,
            "memory_per_cpu",
            lambda: slurm_output_values.parse_mib(detail.get_value_on_line("MinCPUsNode", "MinMemoryCPU")),
        )
    elif " MinMemoryNode=" in line:
        _set_field_or_mark_unreadable(
            record,
            unreadable,
            "memory_per_node",
            lambda: slurm_output_values.parse_mib(detail.get_value_on_line("MinCPUsNode", "MinMemoryNode")),
        )
    if is_pending and not {"-", ","}.isdisjoint(nodes):
        _set_field_or_mark_unreadable(
            record, unreadable, "max_nodes", lambda: slurm_output_values.parse_nonzero_or_none(row["MaxNodes"])
        )


def _get_requested_tres(settings: Mapping[str, str], is_pending: bool) -> str:
    """Return the resources that a job requests, as scontrol prints them.

    Before 23.02, scontrol shows these resources only for pending jobs.
    """
    if "ReqTRES" in settings:
        return settings["ReqTRES"]
    return settings["TRES"] if is_pending else ""


def _set_pending_details(record: Record, detail: ScontrolJobDetail, unreadable: list[str]) -> None:
    for name, key in (("required_nodes", "ReqNodeList"), ("excluded_nodes", "ExcNodeList")):
        _set_field_or_mark_unreadable(record, unreadable, name, partial(_get_node_list, detail, key))
    _set_field_or_mark_unreadable(
        record,
        unreadable,
        "time_limit_min",
        lambda: slurm_output_values.parse_time_limit(detail.get_value_on_line("RunTime", "TimeMin")),
    )
    record["batch_constraints"] = slurm_output_values.parse_names(
        detail.settings.get("BatchFeatures", "").split(" BatchHost=")[0]
    )
    record["is_cronjob"] = detail.settings.get("CronJob", "").startswith("Yes")
    record["spreads_over_nodes"] = detail.spread
    record["ntasks_per_gpu"] = detail.per_gpu or None
    record["segment_size"] = detail.segment or None
    record["extra"] = detail.extra or None
    record["gres_binding"] = ENFORCED_BINDING if detail.enforces_binding else None
    counts = detail.settings.get("NumNodes", "").partition(" ")[0]
    record["node_counts"] = None if set(",:").isdisjoint(counts) else counts


def _get_node_list(detail: ScontrolJobDetail, key: str) -> str | None:
    return slurm_output_values.parse_text_or_none(detail.get_value_on_line("ReqNodeList", key))


def _set_placed_fields(record: Record, row: Row, detail: ScontrolJobDetail | None, unreadable: list[str]) -> None:
    record["allocated_nodes"] = slurm_output_values.parse_text_or_none(row["NodeList"])
    tres = row["tres-alloc"] if detail is None else detail.settings.get("AllocTRES", row["tres-alloc"])
    _set_field_or_mark_unreadable(
        record, unreadable, "allocated_tres", lambda: slurm_output_values.parse_tres_amounts(tres)
    )
    _fill_fields_from_row(record, row, _ROW_PLACED, unreadable)
    if held := slurm_output_values.parse_names(row.get("LicensesAlloc", "")):
        record["licenses"] = held


def _parse_layout(record: Record, detail: ScontrolJobDetail | None) -> Layout | None:
    """Return a job's resources on each of its nodes.

    Return None unless the job occupies several nodes.
    """
    nodes = record["num_nodes"] or 0
    if detail is None or not detail.layout or nodes < 2 or record["state"] not in slurm_states.OCCUPYING_STATES:
        return None
    number = record["id"]
    return parse_layouts(f"JobId={number} \n{detail.layout}\n", {number: nodes}).get(number)


_find_user_name = lru_cache(maxsize=8192)(find_user_name)
