"""Parse jobs from squeue and scontrol.

The translation leaves a pending job with an unreadable field to Slurm, and reports the field. A job with an ambiguous
scontrol record lacks `SCONTROL_ONLY_FIELDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple, TypeVar

from cpsched.slurm_text.jobs import NO_AMOUNTS, NodeShare, SlurmJob, TimeLimit
from cpsched.slurm_text.output_values import (
    parse_count,
    parse_dependencies,
    parse_flag,
    parse_gres_counts,
    parse_mib,
    parse_names,
    parse_number,
    parse_text_or_none,
    parse_time_limit,
    parse_tres_amounts,
)
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.transport.cli.job_list_parsing import SqueueRow
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_job_parsing import (
    ScontrolJobDetail,
    ScontrolSegments,
    UnparsedScontrolJob,
    is_same_except_times,
    parse_job_detail,
)
from cpsched_bridge.adapters.slurm.transport.programs.layout_queries import parse_layouts
from cpsched_bridge.users import find_user_name

T = TypeVar("T")

SCONTROL_ONLY_FIELDS = (
    "max_nodes", "ntasks", "memory_per_cpu", "memory_per_node", "requested_tres", "excluded_nodes",
    "spreads_over_nodes", "segment_size", "extra", "gres_binding", "node_counts", "ntasks_per_gpu", "is_cronjob",
    "time_limit_min",
)  # fmt: skip
"""Fields that a pending job lacks if it has no scontrol record."""

_SPECIAL_COLUMNS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "preferred_features": ("preferred_features", parse_text_or_none),
    "cluster_constraints": ("cluster_features", parse_names),
    "burst_buffer": ("burst_buffer", parse_text_or_none),
    "network": ("network", parse_text_or_none),
    "deadline": ("deadline", parse_number),
    "requires_contiguous_nodes": ("contiguous", parse_flag),
    "requires_node_reboot": ("reboot", parse_flag),
    "required_switches": ("required_switches", parse_number),
    "cores_reserved_for_system": ("core_spec", lambda word: parse_number(word.partition(" ")[0])),
    "boards_per_node": ("boards_per_node", parse_count),
    "sockets_per_board": ("sockets_per_board", parse_count),
    "sockets_per_node": ("sockets_per_node", parse_count),
    "cores_per_socket": ("cores_per_socket", parse_count),
    "threads_per_core": ("threads_per_core", parse_count),
    "ntasks_per_board": ("ntasks_per_board", parse_count),
    "ntasks_per_socket": ("ntasks_per_socket", parse_count),
    "ntasks_per_core": ("ntasks_per_core", lambda word: parse_count(word) > 1),
    "tres_per_socket": ("tres_per_socket", parse_tres_amounts),
    "temporary_disk_per_node": ("min_tmp_disk", parse_mib),
    "mcs_label": ("mcs_label", parse_text_or_none),
}
"""The column and the parser of each special request that squeue shows. A true value means that the job makes it."""
_get_special_columns = attrgetter(*(column for column, _ in _SPECIAL_COLUMNS.values()))


class _ParsedJob(NamedTuple):
    """A job with its source, and whether squeue may have merged the job with other array tasks."""

    row: SqueueRow
    shown: UnparsedScontrolJob | None
    merged: bool
    job: SlurmJob

    def is_current(self, row: SqueueRow, shown: UnparsedScontrolJob | None, merged: bool) -> bool:
        """Return whether parsing again would give the same job."""
        if self.merged != merged or self.row != row:
            return False
        if self.shown is None or shown is None:
            return self.shown is shown
        return is_same_except_times(self.shown, shown, row.name)


@dataclass(slots=True)
class CachingJobParser:
    """A parser of jobs that does not parse unchanged text again."""

    counts_one_more: bool = False
    """Whether slurmctld reports one node too many for a waiting job whose tasks have several CPUs."""
    filters_by_extra: bool = False
    """Whether SchedulerParameters contains extra_constraints."""
    _known: dict[int, _ParsedJob] = field(default_factory=dict)

    def set_node_filter(self, filters_by_extra: bool) -> None:
        """Set whether `--extra` filters nodes. If it has changed, discard all jobs."""
        if filters_by_extra != self.filters_by_extra:
            self.filters_by_extra = filters_by_extra
            self._known.clear()

    def parse(
        self,
        rows: Mapping[int, SqueueRow],
        shown: Mapping[int, UnparsedScontrolJob],
        hidden: frozenset[int] | set[int] = frozenset(),
    ) -> list[SlurmJob]:
        """Return the jobs of one reading.

        `hidden` contains the numbers of arrays' common records that squeue may have merged with other records. Only
        scontrol then shows the reason and the tasks of the common record.
        """
        known: dict[int, _ParsedJob] = {}
        for number, row in rows.items():
            before, details = self._known.get(number), shown.get(number)
            merged = number in hidden and "_[" in row.job_array_id
            if before is None or not before.is_current(row, details, merged):
                job = parse_job(row, details, merged, self.filters_by_extra)
                if self.counts_one_more:
                    job = _correct_min_node_count(job)
                before = _ParsedJob(row, details, merged, job)
            known[number] = before
        self._known = known
        return [parsed.job for parsed in known.values()]


def _correct_min_node_count(job: SlurmJob) -> SlurmJob:
    """Return the job with its minimum number of nodes, without slurmctld's extra node.

    Before 24.05, its `_pack_default_job_details` adds a node unless the tasks fill all of their nodes, for example for
    two tasks of three CPUs.
    """
    least = job.requested_tres.get("node")
    waits = job.state == slurm_states.PENDING and job.cpus_per_task > 1 and not job.ntasks_per_node
    return job._replace(num_nodes=least) if waits and least is not None and job.num_nodes == least + 1 else job


class _FieldReader:
    """A reader of one job's fields, which collects the names of those that cannot be read."""

    def __init__(self, row: SqueueRow, detail: ScontrolJobDetail | None) -> None:
        self._row, self._detail = row, detail
        self.unreadable: list[str] = []

    def setting(self, name: str, line: str, setting: str, parse: Callable[[str], T], default: T) -> T:
        """Return a field that scontrol shows on the line that begins with `line`, or the default without a record."""
        if self._detail is None:
            return default
        try:
            return parse(self._detail.get_value_on_line(line, setting))
        except (ValueError, KeyError):
            self.unreadable.append(name)
            return default

    def text(self, name: str, text: str, parse: Callable[[str], T], default: T) -> T:
        """Return a field from a text."""
        try:
            return parse(text)
        except (ValueError, IndexError):
            self.unreadable.append(name)
            return default

    def time_limit(self) -> TimeLimit:
        """Return the time limit. squeue shows none above one year, and a wrong one above 136 years."""
        if self._detail is None:
            return self.text("time_limit", self._row.time_limit, parse_time_limit, None)
        return self.setting("time_limit", "RunTime", "TimeLimit", parse_time_limit, None)

    def memory(self, name: str, setting: str) -> int:
        """Return the memory per CPU or per node, or 0 if scontrol does not show this one."""
        line = "" if self._detail is None else self._detail.settings.get("MinCPUsNode", "")
        return self.setting(name, "MinCPUsNode", setting, _parse_memory, 0) if f" {setting}=" in line else 0

    def required_nodes(self) -> str:
        """Return the nodes that the job requires."""
        if self._detail is None:
            return _parse_text(self._row.required_nodes)
        return self.setting("required_nodes", "ReqNodeList", "ReqNodeList", _parse_text, "")


def parse_job(
    row: SqueueRow, shown: UnparsedScontrolJob | None, merged: bool = False, filters_by_extra: bool = False
) -> SlurmJob:
    """Return one job. squeue may have `merged` the job with other array tasks."""
    detail = parse_job_detail(shown, row.name) if shown is not None else None
    is_pending = row.state == slurm_states.PENDING
    settings = {} if detail is None else detail.settings
    reader = _FieldReader(row, detail)
    segments = ScontrolSegments() if detail is None else detail.segments
    setting, text = reader.setting, reader.text

    number, state = int(row.job_id), row.state
    user_id = text("user_id", row.user_id, int, None)
    array = _parse_array(row, shown, merged, reader)
    special, unreadable_special = _find_special_requests(_get_special_columns(row))
    if detail is not None:
        special |= _find_special_settings(detail, reader, filters_by_extra)

    reason = row.reason
    if merged:
        reason = detail.get_pending_reason() if detail is not None else ""
    requested = settings.get("ReqTRES", settings.get("TRES", "") if is_pending else "")  # not shown before 23.02
    allocated = "" if is_pending else settings.get("AllocTRES", row.tres_alloc)
    num_nodes = text("num_nodes", row.num_nodes, parse_number, 0) or 1
    has_limit = not {"-", ","}.isdisjoint(settings.get("NumNodes", "").partition(" NumCPUs=")[0])
    licenses = parse_names(row.licenses)
    if not is_pending:
        licenses = parse_names(row.licenses_alloc) or licenses
    has_own_cpus = parse_text_or_none(row.cpus_per_tres) in (None, "N/A")

    job = SlurmJob(
        id=number,
        state=state,
        state_reason=_parse_text(reason),
        priority=text("priority", row.priority, int, None),
        name=_parse_text(row.name),
        user_id=user_id,
        user_name=look_up_user_name(user_id) if user_id is not None else "",
        account=_parse_text(row.account),
        partition=_parse_text(row.partition),
        qos=_parse_text(row.qos),
        submit_time=text("submit_time", row.submit_time, parse_number, 0),
        eligible_time=text("eligible_time", row.eligible_time, parse_number, 0),
        accrue_time=text("accrue_time", row.accrue_time, parse_number, 0),
        start_time=text("start_time", row.start_time, parse_number, 0),
        end_time=text("end_time", row.end_time, parse_number, 0),
        time_limit=reader.time_limit(),
        num_nodes=num_nodes,
        max_nodes=(text("max_nodes", row.max_nodes, parse_number, 0) or None) if has_limit else None,
        cpus=text("cpus", row.num_cpus, parse_number, 0) or 1,
        ntasks=setting("ntasks", "NumNodes", "NumTasks", _parse_task_count, 0),
        ntasks_per_node=text("ntasks_per_node", row.ntasks_per_node, parse_number, 0),
        ntasks_per_core=text("ntasks_per_core", row.ntasks_per_core, parse_count, 0),
        cpus_per_task=(text("cpus_per_task", row.cpus_per_task, parse_number, 0) or 1) if has_own_cpus else 0,
        min_cpus_per_node=text("min_cpus_per_node", row.min_cpus, parse_number, 0),
        memory_per_cpu=reader.memory("memory_per_cpu", "MinMemoryCPU"),
        memory_per_node=reader.memory("memory_per_node", "MinMemoryNode"),
        resource_sharing=normalize_job_oversubscribe(row.oversubscribe, row.exclusive),
        gres_per_node=text("gres_per_node", row.tres_per_node, parse_gres_counts, NO_AMOUNTS),
        gres_per_job=text("gres_per_job", "" if detail is None else detail.tres_per_job, parse_gres_counts, NO_AMOUNTS),
        tres_per_task=text("tres_per_task", row.tres_per_task, _parse_tres, NO_AMOUNTS),
        requested_tres=text("requested_tres", requested, _parse_tres, NO_AMOUNTS),
        allocated_tres=text("allocated_tres", allocated, _parse_tres, NO_AMOUNTS),
        licenses=licenses,
        array_id=array.number,
        array_task_id=array.task,
        array_tasks_waiting=array.waiting,
        array_tasks_parallel=array.parallel,
        heterogeneous_id=text("heterogeneous_id", row.het_job_id, parse_number, 0),
        admin_comment=_parse_text(row.admin_comment),
        comment=_parse_text(row.comment),
        requeue_count=text("requeue_count", row.restart_count, parse_number, 0),
        required_nodes=reader.required_nodes(),
        excluded_nodes=setting("excluded_nodes", "ReqNodeList", "ExcNodeList", _parse_text, ""),
        allocated_nodes=_parse_text(row.node_list),
        dependencies=text("dependencies", row.dependency if is_pending else "", parse_dependencies, None),
        constraints=parse_names(row.features),
        reservation=_parse_text(row.reservation),
        special_requests=special,
        segment_size=segments.size,
        spread_segments=segments.spread,
        consolidate_segments=segments.consolidate,
        nice=text("nice", row.nice, parse_number, 0),
        is_requeueable=text("is_requeueable", row.requeue, parse_flag, None),
        is_batch_job=text("is_batch_job", row.batch_flag, parse_flag, None),
        layout=_parse_layout(number, num_nodes, detail)
        if detail is not None and state in slurm_states.OCCUPYING_STATES
        else (),
    )

    unreadable = [*reader.unreadable, *unreadable_special, *(["state_reason"] if merged and detail is None else [])]
    if detail is not None:
        unreadable += detail.unknown
    elif is_pending:
        unreadable += SCONTROL_ONLY_FIELDS
    return job._replace(unreadable=tuple(unreadable)) if unreadable else job


def _parse_text(word: str) -> str:
    return "" if word == "(null)" else word


def _parse_task_count(word: str) -> int:
    return parse_number(word) or 1


def _parse_memory(word: str) -> int:
    return parse_mib(word) or 0


def _parse_tres(word: str) -> Mapping[str, int]:
    return parse_tres_amounts(word) or NO_AMOUNTS


@lru_cache(maxsize=4096)
def _find_special_requests(texts: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the special requests in the texts of `_SPECIAL_COLUMNS`, and those that cannot be read."""
    requests: list[str] = []
    unreadable: list[str] = []
    for (name, (_, parse)), word in zip(_SPECIAL_COLUMNS.items(), texts, strict=True):
        try:
            if parse(word):
                requests.append(name)
        except ValueError:
            unreadable.append(name)
    return frozenset(requests), tuple(unreadable)


def _find_special_settings(detail: ScontrolJobDetail, reader: _FieldReader, filters_by_extra: bool) -> frozenset[str]:
    """Return the special requests that only scontrol shows."""
    limit_min = reader.setting("time_limit_min", "RunTime", "TimeMin", parse_time_limit, None)
    counts = detail.settings.get("NumNodes", "").partition(" ")[0]
    requests = {
        "time_limit_min": isinstance(limit_min, int) and limit_min > 0,
        "spreads_over_nodes": detail.spread,
        "extra": filters_by_extra and detail.extra,
        "node_counts": not set(",:").isdisjoint(counts),
        "ntasks_per_gpu": detail.per_gpu,
        "is_cronjob": detail.settings.get("CronJob", "").startswith("Yes"),
        "gres_binding": detail.enforces_binding,
    }
    return frozenset(name for name, is_made in requests.items() if is_made)


def normalize_job_oversubscribe(oversubscribe: str, exclusive: str) -> str:
    """Return how a job shares its nodes, as Slurm releases before 26.05 print it.

    Release 26.05 prints two fields for this.
    """
    if exclusive in ("", "NO"):
        return "OK" if exclusive and oversubscribe == "NO" else oversubscribe
    return "NO" if exclusive == "NODE" else exclusive


class _ArrayFields(NamedTuple):
    """A job's array, and its array task or the tasks that wait in it."""

    number: int = 0
    task: int = 0
    waiting: str = ""
    parallel: int = 0


def _parse_array(row: SqueueRow, shown: UnparsedScontrolJob | None, merged: bool, reader: _FieldReader) -> _ArrayFields:
    array, is_task, task = row.job_array_id.partition("_")
    if not is_task:
        return _ArrayFields()
    if shown is None:
        reader.unreadable.append("array_tasks_parallel")
    parallel = 0 if shown is None else shown.throttle or 0
    number = reader.text("array_id", array, int, 0)
    if not task.startswith("["):
        return _ArrayFields(number, reader.text("array_id", task, int, 0), parallel=parallel)
    if shown is None and merged:
        reader.unreadable.append("array_tasks_waiting")
        return _ArrayFields(number)
    tasks = task.strip("[]") if shown is None else shown.tasks
    return _ArrayFields(number, waiting=tasks.partition("%")[0], parallel=parallel)


def _parse_layout(number: int, num_nodes: int, detail: ScontrolJobDetail) -> tuple[NodeShare, ...]:
    """Return a job's resources on each of its nodes, or nothing unless the job has several nodes."""
    if not detail.layout or num_nodes < 2:
        return ()
    return parse_layouts(f"JobId={number} \n{detail.layout}\n", {number: num_nodes}).get(number, ())


look_up_user_name = lru_cache(maxsize=8192)(find_user_name)
"""Return the name of a user id, which is looked up once."""
