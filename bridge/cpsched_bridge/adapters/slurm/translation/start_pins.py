"""Compute what a pin changes in a job's record, and the settings that undo it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cpsched.slurm_text.jobs import SlurmJob


@dataclass(frozen=True, slots=True)
class StartPinSettings:
    """The settings that a start sends to make Slurm split the job as planned."""

    tasks_per_node: int
    """Number of tasks per node, or 0 if Slurm does not need it."""
    node_count: int
    """The job's exact number of nodes, or 0 if no other number is possible."""
    restore: str
    """scontrol settings that restore the record fields changed by the pin, or "" for none."""
    cpus_per_node: int = 0
    """Minimum CPUs per node to send with `tasks_per_node`, or 0 if it is 0. See `EQUAL_SHARES_SINCE`."""
    cpus: int = 0
    """The job's CPUs, which a change to the minimum CPUs per node would otherwise alter."""
    num_nodes: str = ""
    """Number of nodes to send with these settings, or empty for a single-node job without other settings."""
    restore_all: str = ""
    """Settings that restore everything changed by `tasks_per_node` and the settings sent with it."""
    most_nodes: int | None = None
    """Maximum of the node range that a start sets, or None if the range has only one number."""
    partitions: str = ""
    """The partitions of a job that names several, or "" for other jobs. A start sets only one of them."""

    def format_node_count(self, count: int) -> str:
        """Return scontrol's text for `count` nodes, as a range.

        In newer Slurm releases, a single number would also become the maximum, which cannot be removed again. If the
        record has no maximum, the range extends to `most_nodes`.
        """
        return f"{count}-{count if self.most_nodes is None else max(count, self.most_nodes)}"


EQUAL_SHARES_SINCE = (26, 5)
"""First release known to make equal shares from a number of tasks per node alone.

Measured with only `TasksPerNode`: 22.05 split `-N2 -n4` into three CPUs and one CPU, and allocated 17 CPUs to `-n20` on
two nodes. 24.11 ran only ten tasks of `-n20`, on one node. With the number of nodes, the minimum CPUs per node and the
job's CPUs, both releases split as requested. Releases in between were not tested and receive all of these settings.
"""


def make_equal_split_pins(job: SlurmJob, nodes: int, most_nodes: int | None) -> StartPinSettings:
    """Return the settings, with CPUs, that split a job equally over `nodes` nodes."""
    pins = replace(_make_equal_share_pins(job, nodes, most_nodes), partitions=job.listed_partitions)
    if not pins.tasks_per_node:
        return pins
    least, cpus = max(1, job.min_cpus_per_node), job.cpus
    each = max(least, pins.tasks_per_node * max(1, job.cpus_per_task))
    pins = replace(pins, most_nodes=_compute_max_nodes_if_unset(job, most_nodes))
    low, high = job.num_nodes, job.max_nodes
    num_nodes = "" if nodes == low == 1 and high in (None, 1) else pins.format_node_count(nodes)
    counted = format_restored_node_count(job, most_nodes) if num_nodes else f"NumTasks={job.ntasks}"
    restore = f"TasksPerNode=0 {counted} MinCPUsNode={least} NumCPUs={cpus}"
    return replace(pins, cpus_per_node=each, cpus=cpus, num_nodes=num_nodes, restore_all=restore)


def make_task_split_pins(job: SlurmJob, most_nodes: int | None) -> StartPinSettings:
    """Return the settings with which Slurm splits a job over the pinned nodes."""
    restore, most_nodes = (
        format_restored_node_count(job, most_nodes),
        _compute_max_nodes_if_unset(job, most_nodes),
    )
    return StartPinSettings(0, 0, restore, most_nodes=most_nodes, partitions=job.listed_partitions)


def _compute_max_nodes_if_unset(job: SlurmJob, most_nodes: int | None) -> int | None:
    """Return the maximum number of nodes to set, or None if the job has a maximum.

    This is one node per task, or fewer if the partition allows fewer.
    """
    if job.max_nodes is not None:
        return None
    tasks = job.ntasks
    return tasks if most_nodes is None else min(tasks, most_nodes)


def _make_equal_share_pins(job: SlurmJob, nodes: int, most_nodes: int | None) -> StartPinSettings:
    """Return the settings for equal shares, without the CPUs.

    If the owner set no maximum number of nodes, the record shows the number of tasks instead. Once a maximum is set,
    Slurm applies it. The number of nodes is therefore restored only if the pin changes it. The restored maximum is at
    most `most_nodes`, the partition's limit, because Slurm would not start a job with a higher one.
    """
    tasks = job.ntasks
    low, high = job.num_nodes, job.max_nodes
    restored = format_restored_node_count(job, most_nodes)
    if has_node_range(job):
        if job.ntasks_per_node:
            return StartPinSettings(0, nodes, restored)
        return StartPinSettings(tasks // nodes, nodes, f"TasksPerNode=0 {restored}")
    if job.ntasks_per_node or tasks == 1 or (low == high == tasks == nodes):
        return StartPinSettings(0, 0, "")
    if nodes == low:
        return StartPinSettings(tasks // nodes, 0, f"TasksPerNode=0 NumTasks={tasks}")
    return StartPinSettings(tasks // nodes, 0, f"TasksPerNode=0 {restored}")


def format_restored_node_count(job: SlurmJob, most_nodes: int | None) -> str:
    """Return scontrol settings that restore the node count in a record.

    `most_nodes` is as in `make_equal_split_pins`.
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
