"""Compute what a start changes in a job's record besides its nodes, and the settings that undo it."""

from __future__ import annotations

from dataclasses import replace

from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.ports import NO_SETTINGS, StartSettings

EQUAL_SHARES_SINCE = (26, 5)
"""First release known to make equal shares from a number of tasks per node alone.

Measured with only `TasksPerNode`: 22.05 split `-N2 -n4` into three CPUs and one CPU, and allocated 17 CPUs to `-n20` on
two nodes. 24.11 ran only ten tasks of `-n20`, on one node. With the number of nodes, the minimum CPUs per node and the
job's CPUs, both releases split as requested. Releases in between were not tested and receive all of these settings.
"""


def make_equal_split_settings(job: SlurmJob, nodes: int, most_nodes: int | None, needs_cpus: bool) -> StartSettings:
    """Return the settings with which Slurm splits a job equally over `nodes` nodes.

    `most_nodes` is the partition's limit. `needs_cpus` states whether the release needs more than the number of tasks
    per node (`EQUAL_SHARES_SINCE`).
    """
    settings = _make_equal_share_settings(job, nodes, most_nodes)
    if settings.tasks_per_node and needs_cpus:
        settings = _add_cpus(settings, job, nodes, most_nodes)
    return _add_partition(settings, job)


def make_task_split_settings(job: SlurmJob, most_nodes: int | None) -> StartSettings:
    """Return the settings with which Slurm splits a job over the pinned nodes."""
    settings = StartSettings(
        sets_node_count=True,
        max_nodes=_compute_max_nodes_if_unset(job, most_nodes),
        restore=format_restored_node_count(job, most_nodes),
    )
    return _add_partition(settings, job)


def _add_cpus(settings: StartSettings, job: SlurmJob, nodes: int, most_nodes: int | None) -> StartSettings:
    """Return the settings with the number of nodes and the CPUs, and with what restores all of them.

    In newer releases, a single number of nodes would also become the maximum, which cannot be removed again. If the
    record has no maximum, the start therefore sets a range.
    """
    least, cpus = max(1, job.min_cpus_per_node), job.cpus
    sets_node_count = not (nodes == job.num_nodes == 1 and job.max_nodes in (None, 1))
    counted = f"NumTasks={job.ntasks}"
    if sets_node_count:
        counted = format_restored_node_count(job, most_nodes)
    return replace(
        settings,
        sets_node_count=sets_node_count,
        max_nodes=_compute_max_nodes_if_unset(job, most_nodes),
        cpus_per_node=max(least, settings.tasks_per_node * max(1, job.cpus_per_task)),
        cpus=cpus,
        restore=f"TasksPerNode=0 {counted} MinCPUsNode={least} NumCPUs={cpus}",
    )


def _add_partition(settings: StartSettings, job: SlurmJob) -> StartSettings:
    """Return the settings of a job that names several partitions with the partition of its start."""
    if not job.listed_partitions:
        return settings
    restore = f"Partition={job.listed_partitions} {settings.restore}".rstrip()
    return replace(settings, partition=job.partition, restore=restore)


def _compute_max_nodes_if_unset(job: SlurmJob, most_nodes: int | None) -> int | None:
    """Return the maximum number of nodes to set, or None if the job has a maximum.

    This is one node per task, or fewer if the partition allows fewer.
    """
    if job.max_nodes is not None:
        return None
    tasks = job.ntasks
    return tasks if most_nodes is None else min(tasks, most_nodes)


def _make_equal_share_settings(job: SlurmJob, nodes: int, most_nodes: int | None) -> StartSettings:
    """Return the settings for equal shares, without the CPUs.

    If the owner set no maximum number of nodes, the record shows the number of tasks instead. Once a maximum is set,
    Slurm applies it. The number of nodes is therefore restored only if the start changes it. The restored maximum is at
    most `most_nodes`, the partition's limit, because Slurm would not start a job with a higher one.
    """
    tasks = job.ntasks
    low, high = job.num_nodes, job.max_nodes
    restored = format_restored_node_count(job, most_nodes)
    if has_node_range(job):
        if job.ntasks_per_node:
            return StartSettings(sets_node_count=True, restore=restored)
        restore = f"TasksPerNode=0 {restored}"
        return StartSettings(sets_node_count=True, tasks_per_node=tasks // nodes, restore=restore)
    if job.ntasks_per_node or tasks == 1 or (low == high == tasks == nodes):
        return NO_SETTINGS
    if nodes == low:
        restored = f"NumTasks={tasks}"
    return StartSettings(tasks_per_node=tasks // nodes, restore=f"TasksPerNode=0 {restored}")


def format_restored_node_count(job: SlurmJob, most_nodes: int | None) -> str:
    """Return scontrol settings that restore the node count in a record.

    `most_nodes` is as in `make_equal_split_settings`.
    """
    low, high = job.num_nodes, job.max_nodes or _compute_max_nodes_if_unset(job, most_nodes)
    assert high is not None
    if most_nodes is not None:
        high = min(high, most_nodes)
    return f"NumNodes={low}-{max(low, high)} NumTasks={job.ntasks}"


def has_node_range(job: SlurmJob) -> bool:
    """Return whether a job requests a range of node counts below its number of tasks."""
    low, high = job.num_nodes, job.max_nodes
    return high is not None and low < high < job.ntasks


def restore_requested_node_count(job: SlurmJob) -> SlurmJob:
    """Return a pinned record as its owner requested it.

    If the tasks do not divide evenly among the nodes, a pin set the number of nodes. This rule is needed for the pins
    of an earlier bridge process, whose original requests are unknown.
    """
    tasks, low, high = job.ntasks, job.num_nodes, job.max_nodes
    ours = low == high and tasks % low and not job.ntasks_per_node
    return job._replace(num_nodes=1, max_nodes=tasks) if ours else job
