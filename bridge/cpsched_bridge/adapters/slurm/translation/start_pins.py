"""What a pin changes in a job's record besides its list of nodes, and how that is given back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cpsched_bridge.adapters.slurm.slurm_records import Record


@dataclass(frozen=True, slots=True)
class StartPins:
    """What a start tells Slurm besides the nodes, so that the job is split as it is meant to be."""

    tasks_per_node: int
    """0 where Slurm needs no such number."""
    node_count: int
    """How many nodes the job is to have, exactly; 0 where nothing else is possible."""
    restore: str
    """scontrol settings that give the record back what that changes; may be empty."""
    cpus_per_node: int = 0
    """The least CPUs of a node that go with `tasks_per_node`; 0 where that is 0. See `BY_ITSELF`."""
    cpus: int = 0
    """The CPUs of the job, which a change of the least CPUs of a node would change."""
    num_nodes: str = ""
    """The number of nodes that goes with these; empty for a job of one node that is not told otherwise."""
    restore_all: str = ""
    """What gives the record back all that a number of tasks per node changes in it, by itself or told besides."""
    most_nodes: int | None = None
    """The greatest number of nodes that the job may be told; None: as many as it has, and no more."""

    def node_count_setting(self, count: int) -> str:
        """scontrol's word for `count` nodes, or for at least as many where the record has no greatest number.

        One number alone would become the greatest one as well, from some release on, and nothing takes that off again.
        """
        return f"{count}-{count if self.most_nodes is None else max(count, self.most_nodes)}"


BY_ITSELF = (26, 5)
"""The release since which it is known that a number of tasks per node alone makes equal shares.

Measured, with `TasksPerNode` and no more: 22.05 gave `-N2 -n4` three processors and one, and `-n20` on two nodes 17;
24.11 made of `-n20` ten tasks on one node. With the number of nodes, the least CPUs of a node and the CPUs of the job
told besides, both do as they are told. What lies between was not tried, and is told all of it.
"""


def start_settings(record: Record, nodes: int, most_nodes: int | None) -> StartPins:
    """What Slurm must be told to split a job in equal shares over `nodes`, CPUs included."""
    told = _tasks_told(record, nodes, most_nodes)
    if not told.tasks_per_node:
        return told
    least, cpus = max(1, record["min_cpus_per_node"] or 0), int(record["cpus"] or 0)
    each = max(least, told.tasks_per_node * max(1, record["cpus_per_task"] or 0))
    told = replace(told, most_nodes=_open_end(record, most_nodes))
    low, high = record["num_nodes"] or 1, record["max_nodes"]
    num_nodes = "" if nodes == low == 1 and high in (None, 1) else told.node_count_setting(nodes)
    counted = restored_node_count(record, most_nodes) if num_nodes else f"NumTasks={record['ntasks']}"
    restore = f"TasksPerNode=0 {counted} MinCPUsNode={least} NumCPUs={cpus}"
    return replace(told, cpus_per_node=each, cpus=cpus, num_nodes=num_nodes, restore_all=restore)


def start_settings_by_task(record: Record, most_nodes: int | None) -> StartPins:
    """What Slurm must be told to split a job as it likes over the nodes that the pin names."""
    return StartPins(0, 0, restored_node_count(record, most_nodes), most_nodes=_open_end(record, most_nodes))


def _open_end(record: Record, most_nodes: int | None) -> int | None:
    """The greatest number of nodes that stands for none: one for each task, as far as the partition allows it."""
    if record["max_nodes"] is not None:
        return None
    tasks = int(record["ntasks"])
    return tasks if most_nodes is None else min(tasks, most_nodes)


def _tasks_told(record: Record, nodes: int, most_nodes: int | None) -> StartPins:
    """The same without the CPUs.

    Where its owner set no greatest number of nodes, the record shows the number of tasks. Once that is set, it counts:
    so the number of nodes is given back only where the pin changes it, and no more than `most_nodes`, which the job's
    partition allows. Slurm would not start the job otherwise.
    """
    tasks = record["ntasks"]
    low, high = record["num_nodes"] or 1, record["max_nodes"]
    given_back = restored_node_count(record, most_nodes)
    if is_range(record):
        if record["ntasks_per_node"]:
            return StartPins(0, nodes, given_back)
        return StartPins(tasks // nodes, nodes, f"TasksPerNode=0 {given_back}")
    if record["ntasks_per_node"] or tasks == 1 or (low == high == tasks == nodes):
        return StartPins(0, 0, "")
    if nodes == low:
        return StartPins(tasks // nodes, 0, f"TasksPerNode=0 NumTasks={tasks}")
    return StartPins(tasks // nodes, 0, f"TasksPerNode=0 {given_back}")


def restored_node_count(record: Record, most_nodes: int | None) -> str:
    """scontrol settings that give a record back the number of nodes that it has; `most_nodes` as in
    `start_settings`.
    """
    low, high = record["num_nodes"] or 1, record["max_nodes"] or _open_end(record, most_nodes)
    assert high is not None
    if most_nodes is not None:
        high = min(high, most_nodes)
    return f"NumNodes={low}-{max(low, high)} NumTasks={record['ntasks']}"


def is_range(record: Record) -> bool:
    """Whether a job asks for one of several numbers of nodes, of which its tasks alone would not be the greatest."""
    low, high = record["num_nodes"] or 1, record["max_nodes"]
    return high is not None and low < high < record["ntasks"]


def unpinned(record: Record) -> Record:
    """A record with our pin as it asks without: a number of nodes that its tasks do not fill evenly is ours.

    That is known of the pins of this process; of those of an earlier one it is concluded.
    """
    tasks, low, high = record["ntasks"], record["num_nodes"] or 1, record["max_nodes"]
    ours = low == high and tasks % low and not record["ntasks_per_node"]
    return {**record, "num_nodes": 1, "max_nodes": tasks} if ours else record
