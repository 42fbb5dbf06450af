"""Check for nodes, partitions and reservations that affect how jobs are managed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from cpsched.errors import join_abbreviated
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmNode, SlurmPartition
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import count_cpus_per_core
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import (
    find_partitions_sharing_nodes,
    find_unmodelled_partition_reason,
)
from cpsched_bridge.ports import ReadinessCheck

MAX_LISTED_ITEMS = 5
"""Maximum number of nodes or jobs that a check lists."""
TEMPORARY_NODE_FLAGS = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""State flags of cloud nodes, of nodes created by `scontrol create`, and of nodes that slurmd registers dynamically."""


def run_node_checks(records: SlurmRecords, select_parameters: Sequence[str] = ()) -> list[ReadinessCheck]:
    """Return the node checks of one reading, none of which control mode requires.

    `select_parameters` are the words of slurm.conf's `SelectTypeParameters`.
    """
    found = [
        check_core_selection(records.nodes, select_parameters),
        check_dynamic_nodes(records.nodes),
        check_sleeping_nodes(records.nodes),
        check_node_weights(records.nodes),
        check_partition_settings(records.partitions),
        check_reservations(records),
        check_job_node_lists(records),
    ]
    return [dataclasses.replace(check, fix="") if check.ok else check for check in found]


def check_dynamic_nodes(nodes: Iterable[SlurmNode]) -> ReadinessCheck:
    """Report dynamic nodes, because jobs pinned to a removed node may end."""
    names = [each.name for each in nodes if not TEMPORARY_NODE_FLAGS.isdisjoint(each.state.upper().split("+")[1:])]
    return ReadinessCheck(
        "dynamic nodes",
        not names,
        f"dynamic or cloud nodes: {_abbreviate_names(names)}" if names else "no dynamic or cloud nodes",
        "before deleting a node or removing it from slurm.conf, drain it and wait until no job lists it. Otherwise, "
        "Slurm ends the jobs that list it (see the safety page)",
        required=False,
    )


def check_core_selection(nodes: Iterable[SlurmNode], select_parameters: Sequence[str]) -> ReadinessCheck:
    """Report nodes whose jobs are left to Slurm because each task gets a core of several CPUs."""
    is_set = any(word.upper().endswith("ONE_TASK_PER_CORE") for word in select_parameters)
    names = [node.name for node in nodes if is_set and count_cpus_per_core(node) > 1]
    return ReadinessCheck(
        "core selection",
        not names,
        f"CR_ONE_TASK_PER_CORE: all jobs that may use {_abbreviate_names(names)} are left to Slurm"
        if names
        else "SelectTypeParameters let jobs use all CPUs of their cores",
        "remove CR_ONE_TASK_PER_CORE from SelectTypeParameters, or set CPUs of these nodes to the number of cores, if "
        "the bridge should start these jobs",
        required=False,
        mode="control",
    )


def check_sleeping_nodes(nodes: Iterable[SlurmNode]) -> ReadinessCheck:
    """Show the nodes that Slurm has powered down or is powering up."""
    names = [node.name for node in nodes if slurm_states.compute_wakeup_rank(node.state)]
    found = f"powered down or powering up: {_abbreviate_names(names)}; jobs use them only if no other nodes are free"
    return ReadinessCheck("power saving", True, found if names else "no nodes are powered down", required=False)


def check_node_weights(nodes: Iterable[SlurmNode]) -> ReadinessCheck:
    """Show the range of node weights, which every dispatcher respects."""
    weights = sorted({1 if node.weight is None else node.weight for node in nodes} or {1})
    several = f"from {weights[0]} to {weights[-1]}; nodes of lower weight are chosen first"
    return ReadinessCheck(
        "node weights", True, several if len(weights) > 1 else "all weights are equal", required=False, mode="control"
    )


def check_partition_settings(partitions: Sequence[SlurmPartition]) -> ReadinessCheck:
    """Report partitions whose settings cause all of their jobs to be left to Slurm."""
    sharing = find_partitions_sharing_nodes(partitions)
    left = [
        f"{partition.name}: {why}"
        for partition in partitions
        if (why := find_unmodelled_partition_reason(partition, partition.name in sharing)) is not None
    ]
    return ReadinessCheck(
        "partition settings",
        not left,
        f"jobs left to Slurm in {_abbreviate_names(left, '; ')}" if left else "all partition settings are modelled",
        "no action needed: Slurm starts these jobs. `cpsched doctor --accounting 7` shows their share",
        required=False,
        mode="control",
    )


def check_reservations(records: SlurmRecords) -> ReadinessCheck:
    """Report the reservations that make the bridge leave jobs to Slurm."""
    found = [r for r in records.reservations if r.nodes]
    odd = [r.name for r in found if r.flags is None]
    magnetic = [r.name for r in found if "MAGNETIC" in (r.flags or ())]
    problems = [f"magnetic reservations: {_abbreviate_names(magnetic)}"] if magnetic else []
    problems += (
        [f"reservations with unreadable flags, whose nodes are not used: {_abbreviate_names(odd)}"] if odd else []
    )
    return ReadinessCheck(
        "reservations",
        not problems,
        "; ".join(problems) or f"{len(found)}, all of them supported",
        "no action needed: jobs that may use these reservations are left to Slurm",
        required=False,
    )


def check_job_node_lists(records: SlurmRecords) -> ReadinessCheck:
    """Report jobs whose node lists contain unknown nodes.

    Slurm rejects every change to such a job, even a release.
    """
    known = {node.name for node in records.nodes}
    found = [words for job in records.jobs if (words := _describe_missing_nodes(job, known))]
    return ReadinessCheck(
        "node lists",
        not found,
        f"unknown nodes: {_abbreviate_names(found, '; ')}" if found else "pending jobs list only known nodes",
        "restore the node in slurm.conf (State=FUTURE is enough) until the job has ended or its node list has "
        "been changed. While the node is missing, Slurm rejects changes to the job. If the job requests the node, "
        "Slurm ends the job when slurmctld restarts",
        required=False,
    )


def _describe_missing_nodes(job: SlurmJob, known: set[str]) -> str:
    """Describe the missing nodes in a pending job's node lists, or "" if all exist."""
    if job.state != slurm_states.PENDING:
        return ""
    lists = (
        ("requests", expand_hostlist_or_empty(job.required_nodes)),
        ("excludes", expand_hostlist_or_empty(job.excluded_nodes)),
    )
    parts = [
        f"{verb} {_abbreviate_names(lost)}" for verb, names in lists if (lost := [n for n in names if n not in known])
    ]
    label = slurm_job_ids.format_job_id(slurm_job_ids.get_job_id(job))
    return f"job {label} of {job.user_name} {', '.join(parts)}" if parts else ""


def _abbreviate_names(names: list[str], between: str = ", ") -> str:
    """Return the first names joined by `between`, with the number of omitted names."""
    return join_abbreviated(names, MAX_LISTED_ITEMS, between)
