"""What a Slurm job asks for, as a `Request` that Slurm can be made to honour to the letter.

A decision must come true exactly, node by node. Slurm can be told the nodes and one number of tasks per node, no
other split. So a job is modelled as equal shares on distinct nodes:

- a fixed number of nodes (`--nodes=k`): k units, each the share of one node;
- no number of nodes: the fewest nodes that can hold it in equal shares, one as a rule;
- tasks that do not divide evenly, a range of node counts, and whatever else Slurm alone can place: left to Slurm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpsched.model import BoolArray, Job, Request
from cpsched_bridge.adapters.slurm.translation import hostlist
from cpsched_bridge.adapters.slurm.translation.machine import (
    Amounts,
    Machine,
    Partition,
    Reservation,
    gres_amounts,
    tres_gres,
)
from cpsched_bridge.adapters.slurm.transport.rows import Record

FOREVER_S = 365 * 86400
"""Walltime of a job without a time limit in a partition without one."""

NOT_MODELLED = {
    "heterogeneous_id": "heterogeneous job",
    "reservation": "asks for a reservation",
    "licenses": "asks for licenses",
    "burst_buffer": "asks for a burst buffer",
    "network": "asks for network resources",
    "deadline": "has a deadline",
    "time_limit_min": "has a minimum time limit",
    "requires_contiguous_nodes": "asks for contiguous nodes",
    "requires_node_reboot": "asks for a reboot of its nodes",
    "spreads_over_nodes": "asks to be spread over nodes",
    "required_switches": "asks for a number of switches",
    "segment_size": "asks for segments of the topology",
    "cores_reserved_for_system": "core specialisation",
    "threads_reserved_for_system": "core specialisation",
    "boards_per_node": "asks for a layout of boards",
    "sockets_per_board": "asks for a layout of sockets",
    "sockets_per_node": "asks for a layout of sockets",
    "cores_per_socket": "asks for a layout of sockets",
    "threads_per_core": "asks for a layout of threads",
    "ntasks_per_board": "tasks per board",
    "ntasks_per_socket": "tasks per socket",
    "ntasks_per_core": "tasks per core",
    "ntasks_per_gpu": "tasks per GPU",
    "tres_per_socket": "resources per socket",
    "temporary_disk_per_node": "asks for local disk",
    "cluster_constraints": "asks for other clusters",
    "mcs_label": "multi-category security",
    "is_cronjob": "scrontab job",
}
"""Fields that, when set, leave a job to Slurm, with the reason."""


class NotModelled(Exception):
    """The job is left to Slurm; says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One pending job as read: its `job`, and how many tasks a unit of it has where Slurm must be told (else 0)."""

    job: Job
    tasks_per_node: int
    restore: str
    """scontrol settings that give the record back what the pin changes besides the node list; may be empty."""


def seconds(record: Record, partition: Partition) -> int:
    """Walltime: the job's limit, else the partition's default, else its maximum."""
    for minutes in (record["time_limit"], partition.default_time_min, partition.max_time_min):
        if minutes:
            return int(minutes) * 60
    return FOREVER_S


def refuse_unmodelled(record: Record) -> None:
    """Raise `NotModelled` for what only Slurm can place."""
    if record["unreadable"]:
        raise NotModelled(f"cannot be read: {', '.join(record['unreadable'])}")
    for name, reason in NOT_MODELLED.items():
        if record[name] and record[name] != "UNLIMITED":
            raise NotModelled(reason)
    if record["cpus_per_task"] is None:
        raise NotModelled("CPUs counted per GPU")
    if record["resource_sharing"] not in ("OK", "NO", "YES", None):
        raise NotModelled(f"shares nodes by {str(record['resource_sharing']).lower()}")


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


def share(record: Record, machine: Machine, nodes: int) -> tuple[int, ...]:
    """Amounts that one of `nodes` equal shares takes on its node, in the order of the machine's resources."""
    tasks = record["ntasks"] // nodes
    cpus = max(tasks * record["cpus_per_task"], record["min_cpus_per_node"] or 0)
    cpus = -(-cpus // machine.threads) * machine.threads
    if record["memory_per_node"] is not None:
        memory_mib = record["memory_per_node"]
    elif record["memory_per_cpu"] is not None:
        memory_mib = record["memory_per_cpu"] * cpus
    elif machine.counts_memory:
        raise NotModelled("asks for all memory of a node")
    else:
        memory_mib = 0
    gres = gres_share(record, machine, nodes, tasks)
    amounts = machine.vector(cpus, memory_mib if machine.counts_memory else 0, gres)
    if amounts is None:
        raise NotModelled("asks for generic resources that no node has")
    return amounts


def gres_share(record: Record, machine: Machine, nodes: int, tasks: int) -> Amounts:
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


def where(record: Record, machine: Machine, partition: Partition, conflicts: tuple[Reservation, ...]) -> int:
    """The row of the nodes that a job may use: partition, features, excluded nodes, reservations in its way."""
    mask = partition.members
    named = [partition.name]
    for constraint in record["constraints"] or ():
        for feature in constraint.split("&"):
            if not feature or any(sign in feature for sign in "|[]()*:"):
                raise NotModelled(f"features {constraint!r}")
            mask = mask & machine.features.get(feature, np.zeros_like(mask))
            named.append(feature)
    if record["excluded_nodes"]:
        mask = mask & ~machine.members(hostlist.expand(record["excluded_nodes"]))
        named.append("excluded nodes")
    for reservation in conflicts:
        mask = mask & ~reservation.members
        named.append(f"not {reservation.name}")
    return machine.node_set(mask, " & ".join(named))


def fitting(machine: Machine, mask: BoolArray, amounts: tuple[int, ...]) -> int:
    """How many nodes of `mask` could hold such a share if they were empty."""
    holds = np.all(machine.capacity >= np.array(amounts), axis=1)
    return int(np.count_nonzero(holds & mask))


@dataclass(frozen=True, slots=True)
class Shares:
    """A job in equal shares: on how many nodes, what each takes, and whether enough nodes could hold one if empty."""

    nodes: int
    amounts: tuple[int, ...]
    fit: bool


def shares_of(record: Record, machine: Machine, node_set: int) -> Shares:
    """The fewest nodes that hold the job in equal shares, or the number that it asks for; raises `NotModelled`."""
    fewest, exact = nodes_asked(record)
    tasks = record["ntasks"]
    if exact is not None and tasks % exact:
        raise NotModelled("tasks do not divide evenly over nodes")
    counts = [exact] if exact is not None else [n for n in range(fewest, tasks + 1) if tasks % n == 0]
    if not counts:
        raise NotModelled("more nodes than tasks")
    tried = []
    for nodes in counts:
        amounts = share(record, machine, nodes)
        tried.append(Shares(nodes, amounts, fitting(machine, machine.rows[node_set], amounts) >= nodes))
        if tried[-1].fit:
            return tried[-1]
    return tried[0]


def asked_by(
    record: Record, job_id: int, machine: Machine, partition: Partition, conflicts: tuple[Reservation, ...]
) -> Asked:
    """A pending record as a job; raises `NotModelled`. `ineligible` holds limits and dependencies, not times."""
    refuse_unmodelled(record)
    if partition.unmodelled:
        raise NotModelled(f"partition {partition.name}: {partition.unmodelled}")
    node_set = where(record, machine, partition, conflicts)
    shares = shares_of(record, machine, node_set)
    walltime_s = seconds(record, partition)
    reason = limits(record, partition, shares.nodes, walltime_s)
    if reason is None and not shares.fit:
        reason = f"no {shares.nodes} node(s) that it may use can hold it, even empty"
    request = Request(
        units=shares.nodes,
        per_unit=shares.amounts,
        distinct=shares.nodes > 1,
        exclusive=partition.exclusive or record["resource_sharing"] == "NO",
        node_set=node_set,
    )
    job = Job(
        id=job_id,
        submit_s=record["submit_time"] or 0,
        walltime_s=walltime_s,
        request=request,
        user=record["user_name"] or str(record["user_id"]),
        name=record["name"] or "",
        queue=partition.name,
        account=record["account"] or "",
        ineligible=reason,
    )
    return Asked(job, *told_by(record, shares.nodes))


def told_by(record: Record, nodes: int) -> tuple[int, str]:
    """Tasks per node that Slurm must be told to split the job like that (0: none), and how to take that back."""
    tasks = record["ntasks"]
    fixed = record["num_nodes"] == record["max_nodes"]
    if record["ntasks_per_node"] or tasks == 1 or (fixed and tasks == nodes):
        return 0, ""
    return tasks // nodes, f"TasksPerNode=0 NumNodes={_range(record)} NumTasks={tasks}"


def _range(record: Record) -> str:
    low, high = record["num_nodes"] or 1, record["max_nodes"]
    return f"{low}-{high}" if high else str(low)


def limits(record: Record, partition: Partition, nodes: int, walltime_s: int) -> str | None:
    """Why the job may not start whatever is free: dependencies, its partition's state and limits; None if it may."""
    if record["dependencies"] is not None:
        return "dependency"
    if partition.state not in ("UP", "DRAIN"):
        return f"partition {partition.name} is {partition.state}"
    if partition.max_time_min is not None and walltime_s > partition.max_time_min * 60:
        return f"time limit above that of partition {partition.name}"
    if partition.max_nodes is not None and nodes > partition.max_nodes:
        return f"more nodes than partition {partition.name} allows"
    if nodes < partition.min_nodes:
        return f"fewer nodes than partition {partition.name} asks for"
    account = record["account"] or ""
    if partition.allowed_accounts is not None and account not in partition.allowed_accounts:
        return f"account may not use partition {partition.name}"
    if account in partition.denied_accounts:
        return f"account may not use partition {partition.name}"
    return None


def occupied_by(record: Record, job_id: int, machine: Machine, nodes: int, queue: str) -> Job:
    """A running or ended record as a job of equal shares on its nodes, by what Slurm allocated."""
    tres = record["allocated_tres"] or record["requested_tres"] or {}
    cpus = -(-(record["cpus"] or 1) // nodes)
    memory_mib = -(-int(tres.get("mem", 0)) // nodes)
    gres = tres_gres(tres) or {
        name: count * nodes for name, count in gres_amounts(record["gres_per_node"] or {}).items()
    }
    if not gres:
        gres = {name: count * record["ntasks"] for name, count in tres_gres(record["tres_per_task"]).items()}
    shares = {name: -(-count // nodes) for name, count in gres.items() if name in machine.resources}
    amounts = machine.vector(cpus, memory_mib if machine.counts_memory else 0, shares)
    assert amounts is not None
    return Job(
        id=job_id,
        submit_s=record["submit_time"] or 0,
        walltime_s=int(record["time_limit"] or 0) * 60 or FOREVER_S,
        request=Request(nodes, amounts, distinct=nodes > 1, exclusive=record["resource_sharing"] == "NO"),
        user=record["user_name"] or str(record["user_id"]),
        name=record["name"] or "",
        queue=queue,
        account=record["account"] or "",
    )
