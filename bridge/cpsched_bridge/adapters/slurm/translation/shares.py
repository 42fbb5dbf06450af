"""How a Slurm job is split over nodes: in equal shares, which is the only split that Slurm can be told.

Slurm can be told the nodes of a job and one number of tasks per node. So a job is modelled as equal shares on
distinct nodes:

- A fixed number of nodes (`--nodes=k`) makes k shares.
- Without a number of nodes a job is split over the fewest nodes that can hold it in equal shares, one as a rule.
- Tasks that do not divide evenly, a range of node counts, and whatever else only Slurm can place are left to Slurm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpsched.fit import units_by_node
from cpsched.model import Request
from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.adapters.slurm.translation.gres import Amounts, gres_amounts, tres_gres
from cpsched_bridge.adapters.slurm.translation.machine import Machine
from cpsched_bridge.adapters.slurm.translation.unmodelled import NotModelled


@dataclass(frozen=True, slots=True)
class Shares:
    """A job in equal shares: on how many nodes, what each takes, and whether enough nodes could hold one if empty."""

    nodes: int
    amounts: tuple[int, ...]
    fit: bool


def shares_asked(record: Record, machine: Machine, node_set: int) -> Shares:
    """The shares of a pending job: on the nodes it asks for, else on the fewest that hold it; raises `NotModelled`."""
    fewest, exact = nodes_asked(record)
    tasks = record["ntasks"]
    if tasks < 1:
        raise NotModelled("asks for no tasks")
    if exact is not None and tasks % exact:
        raise NotModelled("tasks do not divide evenly over nodes")
    counts = [exact] if exact is not None else [n for n in range(fewest, tasks + 1) if tasks % n == 0]
    if not counts:
        raise NotModelled("more nodes than tasks")
    tried = []
    for nodes in counts:
        amounts = share_asked(record, machine, nodes)
        tried.append(Shares(nodes, amounts, _nodes_that_hold(amounts, machine, node_set) >= nodes))
        if tried[-1].fit:
            return tried[-1]
    return tried[0]


def nodes_asked(record: Record) -> tuple[int, int | None]:
    """(fewest nodes, exact number of nodes or None): what `--nodes`, `--ntasks-per-node` say.

    Without --nodes Slurm records the number of tasks as the greatest number of nodes.
    """
    tasks, low, high = record["ntasks"], record["num_nodes"] or 1, record["max_nodes"]
    per_node = record["ntasks_per_node"]
    if high == low:
        return low, low
    if high is not None and high != tasks:
        raise NotModelled("range of node counts")
    if per_node:
        if tasks % per_node:
            raise NotModelled("tasks do not divide evenly over nodes")
        return tasks // per_node, tasks // per_node
    return low, None


def share_asked(record: Record, machine: Machine, nodes: int) -> tuple[int, ...]:
    """Amounts that one of `nodes` equal shares takes on its node, in the order of the machine's resources."""
    tasks = record["ntasks"] // nodes
    cpus = machine.whole_cores(max(tasks * record["cpus_per_task"], record["min_cpus_per_node"] or 0))
    if record["memory_per_node"] is not None:
        memory_mib = record["memory_per_node"]
    elif record["memory_per_cpu"] is not None:
        memory_mib = record["memory_per_cpu"] * cpus
    elif machine.counts_memory:
        raise NotModelled("asks for all memory of a node")
    else:
        memory_mib = 0
    amounts = machine.vector(cpus, memory_mib, _gres_asked(record, machine, nodes, tasks))
    if amounts is None:
        raise NotModelled("asks for generic resources that no node has")
    return amounts


def _gres_asked(record: Record, machine: Machine, nodes: int, tasks: int) -> Amounts:
    """Generic resources of one share, from what is asked per node, per task, or for the job on its one node."""
    per_node = gres_amounts(record["gres_per_node"] or {})
    per_task = tres_gres(record["tres_per_task"])
    found = {n: per_node.get(n, 0) + per_task.get(n, 0) * tasks for n in {*per_node, *per_task}}
    total = tres_gres(record["requested_tres"])
    if not found and total:
        if nodes > 1:
            raise NotModelled("GPUs counted for the whole job, over several nodes")
        if any(resource.startswith(f"{name}:") for name in total for resource in machine.resources):
            raise NotModelled("GPUs counted for the whole job: pyslurm does not tell of which type")
        return total
    if total and any(total.get(n, 0) != found.get(n, 0) * nodes for n in found if n in total):
        raise NotModelled("asks for generic resources in a way not understood")
    return found


def _nodes_that_hold(amounts: tuple[int, ...], machine: Machine, node_set: int) -> int:
    """How many nodes of a node set could hold such a share if they were empty."""
    fits = units_by_node(Request(1, amounts, distinct=True), machine.capacity)
    return int(np.count_nonzero(fits[machine.rows[node_set]]))


def share_allocated(record: Record, machine: Machine, nodes: int) -> tuple[int, ...]:
    """Amounts of one of `nodes` equal shares of what Slurm allocated to a job, rounded up.

    Slurm tells the sums over all nodes. What a database record does not have is taken as not asked for.
    """
    tres = record["allocated_tres"] or record.get("requested_tres") or {}
    gres = tres_gres(tres) or _gres_untracked(record, nodes)
    shares = {name: -(-count // nodes) for name, count in gres.items() if name in machine.resources}
    cpus, memory_mib = -(-(record["cpus"] or 1) // nodes), -(-int(tres.get("mem", 0)) // nodes)
    amounts = machine.vector(cpus, memory_mib, shares)
    assert amounts is not None
    return amounts


def _gres_untracked(record: Record, nodes: int) -> Amounts:
    """Generic resources of the whole job by what it asked for: accounting does not track what it got."""
    per_node = gres_amounts(record.get("gres_per_node") or {})
    if per_node:
        return {name: count * nodes for name, count in per_node.items()}
    return {name: count * record["ntasks"] for name, count in tres_gres(record.get("tres_per_task")).items()}


def told_at_start(record: Record, nodes: int, most_nodes: int | None) -> tuple[int, str]:
    """What Slurm must be told to split the job like that, and how to take that back.

    - Tasks per node; 0 where Slurm would split the job like that anyway.
    - Settings, in scontrol's words, that give the record back what the number of tasks changes in it.

    Where its owner set no greatest number of nodes, the record shows the number of tasks. Once that is set, it counts:
    so the number of nodes is named only where the pin changes the least one, and no more than `most_nodes`, which the
    job's partition allows. Slurm would not start the job otherwise.
    """
    tasks = record["ntasks"]
    fixed = record["num_nodes"] == record["max_nodes"]
    if record["ntasks_per_node"] or tasks == 1 or (fixed and tasks == nodes):
        return 0, ""
    low, high = record["num_nodes"] or 1, record["max_nodes"]
    if nodes == low:
        return tasks // nodes, f"TasksPerNode=0 NumTasks={tasks}"
    if high and most_nodes is not None:
        high = max(low, min(high, most_nodes))
    span = f"{low}-{high}" if high else str(low)
    return tasks // nodes, f"TasksPerNode=0 NumNodes={span} NumTasks={tasks}"
