"""Define the records that a transport delivers and the translation reads.

A record is a dict keyed by pyslurm's attribute names. Its values are None, bools, numbers, strings, lists and dicts.
Trackable resources have the form {"cpu": 4, "mem": 4000, "node": 1, "gres/gpu": 2}. Memory is in MiB, times are in Unix
seconds, and limits are in minutes. A field that does not apply to the job's state is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cpsched.slurm_text.objects import SlurmNode, SlurmPartition, SlurmReservation, SlurmTopology

Record = dict[str, Any]

Layout = Sequence[Sequence[Any]]
"""A job's allocation on its nodes: [nodes, CPUs, memory in MiB, {generic resource: count}] for each part.

The nodes are a hostlist. The amounts are per node, and are the same on all nodes of a part.
"""


@dataclass(frozen=True, slots=True, eq=False)
class SlurmRecords:
    """One reading of a Slurm cluster. `now_s` is the controller's time."""

    now_s: int
    nodes: Sequence[SlurmNode]
    partitions: Sequence[SlurmPartition]
    reservations: Sequence[SlurmReservation]
    jobs: Sequence[Record]
    """Records with the fields in `JOB_FIELDS`: all jobs that the controller remembers."""
    layouts: Mapping[int, Layout] = field(default_factory=dict)
    """Layouts by Slurm's own job number, for jobs that run on several nodes. Unreadable layouts are omitted."""
    guarded: bool = True
    """Whether the submit plugin is loaded, even if it is switched off."""
    outside: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Groups, by user, that partitions allow and that the user is known not to belong to."""
    topologies: Mapping[str, SlurmTopology] = field(default_factory=dict)
    """Topologies by the name that partitions use ("" if they name no topology)."""


COMMON_JOB_FIELDS = (
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
    "licenses",
    "array_id",
    "array_task_id",
    "array_tasks_waiting",
    "array_tasks_parallel",
    "heterogeneous_id",
    "admin_comment",
    "comment",
    "requeue_count",
)
"""Fields of every job, regardless of its state.

`licenses` are those that a job requests or, if Slurm shows them, those that it holds.
"""

PENDING_JOB_FIELDS = (
    "required_nodes",
    "excluded_nodes",
    "requested_tres",
    "dependencies",
    "constraints",
    "preferred_features",
    "cluster_constraints",
    "batch_constraints",
    "reservation",
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
    "extra",
    "gres_binding",
    "node_counts",
    "temporary_disk_per_node",
    "mcs_label",
    "is_cronjob",
    "nice",
    "accrue_time",
)
"""Fields of pending jobs that determine whether and where they may start.

- `extra`: the node filter of `--extra`, if SchedulerParameters contains extra_constraints. Otherwise, the option is a
  comment, and the field is None.
- `node_counts`: the allowed numbers of nodes as text, if `--nodes` lists several. pyslurm does not show it.
"""

PLACED_JOB_FIELDS = (
    "allocated_nodes",
    "allocated_tres",
    "requested_tres",
    "reservation",
    "is_requeueable",
    "is_batch_job",
)
"""Fields of jobs that have or had nodes."""


def name_users(records: SlurmRecords, user_names: Mapping[int, str]) -> SlurmRecords:
    """Return the records with the user names of Slurm's associations instead of this host's."""
    jobs = [
        job if (name := user_names.get(job["user_id"])) in (None, job["user_name"]) else {**job, "user_name": name}
        for job in records.jobs
    ]
    return replace(records, jobs=jobs)


JOB_FIELDS = (*COMMON_JOB_FIELDS, *dict.fromkeys((*PENDING_JOB_FIELDS, *PLACED_JOB_FIELDS)), "unreadable")

ENDED_JOB_FIELDS = (
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
    "reservation",
    "constraints",
)
"""Fields of a job in the accounting database."""


NODE_FILTER_PARAMETER = "extra_constraints"
"""Item of SchedulerParameters with which `--extra` is a node filter instead of a comment."""


PARTITIONS_FIELD = "partitions"
"""Field that `narrow_to_partition` adds to the record of a job that names several partitions: these partitions."""


SETTABLE_PARTITIONS_PATTERN = r"[\w.+@-]+(?:,[\w.+@-]+)*"
"""Pattern (ASCII) for partitions that a start can set and restore. Slurm also accepts names with blanks or slashes."""


def narrow_to_partition(record: Record, name: str) -> Record:
    """Return a pending job's record as if `name` were the job's only partition."""
    if record["partition"] == name:
        return record
    return {**record, "partition": name, PARTITIONS_FIELD: record["partition"]}
