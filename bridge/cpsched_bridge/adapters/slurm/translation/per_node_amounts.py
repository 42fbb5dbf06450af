"""Split a Slurm job over nodes, in equal shares or task by task.

- Equal shares on distinct nodes (`find_equal_split`): a start sets the nodes and the number of tasks on each. A fixed
  number of nodes (`--nodes=k`) gives k shares. Otherwise, the job gets the smallest number of shares that can hold it,
  usually one. With `--ntasks-per-node`, shares hold that many tasks, and the last shares may be partly idle.
- Task by task (`find_task_split`): a start sets the nodes and their number, and Slurm distributes the tasks as
  `start_split_prediction` predicts. This applies to jobs that request amounts per task, because a node's share is
  then the sum of its tasks.
- Slurm places all other jobs.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cpsched.feasibility import units_fitting_by_row
from cpsched.formatting import format_count
from cpsched.model import IntArray, Request
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled
from cpsched_bridge.adapters.shared.node_table import CORES, MEMORY
from cpsched_bridge.adapters.slurm.translation.gres_counts import Amounts, gres_from_tres, parse_gres_amounts
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import NodeChoice, SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.start_pins import has_node_range
from cpsched_bridge.adapters.slurm.translation.unsupported_requests import JobNeverFits

MAX_TRIED_NODES = 100_000
"""Maximum number of nodes to try for a job. No cluster has more nodes."""
ANY_NODES = slice(None)


@dataclass(frozen=True, slots=True)
class EqualJobSplit:
    """A split of a job into equal parts.

    It contains the number of parts, the amounts of each part, and whether empty nodes could hold all parts.
    """

    units: int
    amounts: tuple[int, ...]
    fit: bool


@dataclass(frozen=True, slots=True)
class PossibleJobSplits:
    """A job's possible splits on the empty machine, of which at least one is set."""

    equal: EqualJobSplit | None
    tasks: EqualJobSplit | None


class SplitLimits(NamedTuple):
    """Limits on the nodes of a split, and on a share's memory. None means no limit."""

    min_nodes: int = 0
    max_nodes: int | None = None
    max_memory_mib: int | None = None


def find_split_choices(job: SlurmJob, machine: SlurmNodeTable, node_set: int, limits: SplitLimits) -> PossibleJobSplits:
    """Return how a pending job can be split within limits.

    Raise `JobNeverFits` if the machine is too small, or `JobNotModelled` if no split is supported.
    """
    equal = tasks = None
    refused: JobNotModelled | None = None
    try:
        equal = find_equal_split(job, machine, node_set, limits.max_memory_mib)
        _require_split_fits(equal, limits)
    except JobNotModelled as reason:
        refused, equal = reason, None
    nodes = int(machine.rows[node_set].sum())
    if limits.max_nodes is None or limits.max_nodes >= min(job.ntasks, nodes):
        with contextlib.suppress(JobNotModelled):
            tasks = find_task_split(job, machine, node_set, limits.min_nodes)
    if tasks is not None and not tasks.fit:
        refused, tasks = (
            JobNeverFits(
                "its allowed nodes cannot hold all of its tasks, even if they are empty",
                f"its allowed nodes cannot hold {format_count(tasks.units, 'task')}, even if they are empty",
            ),
            None,
        )
    if equal is None and tasks is None:
        assert refused is not None
        raise refused
    return PossibleJobSplits(equal, tasks)


def _require_split_fits(equal: EqualJobSplit, limits: SplitLimits) -> None:
    if limits.max_nodes is not None and equal.units > limits.max_nodes:
        raise JobNeverFits("requests more nodes than its partition allows")
    if equal.units < limits.min_nodes:
        raise JobNeverFits("requests fewer nodes than its partition requires")
    if not equal.fit:
        raise JobNeverFits(
            "its allowed nodes cannot hold it, even if they are empty",
            f"its allowed nodes cannot hold it on {format_count(equal.units, 'node')}, even if they are empty",
        )


def find_equal_split(
    job: SlurmJob, machine: SlurmNodeTable, node_set: int, most_memory_mib: int | None = None
) -> EqualJobSplit:
    """Return the split of a pending job into the smallest number of equal shares.

    Each share has at most `most_memory_mib`. If no allowed number of shares fits on the empty nodes, return the split
    into the smallest number, with `fit` False. Raise `JobNotModelled` if no number is allowed.
    """
    tried = []
    for nodes in list_allowed_node_counts(job):
        amounts = compute_requested_per_node(job, machine, nodes, node_set)
        allowed = most_memory_mib is None or amounts[MEMORY] <= most_memory_mib
        fit = allowed and _count_nodes_that_hold(amounts, machine, node_set) >= nodes
        tried.append(EqualJobSplit(nodes, amounts, fit))
        if tried[-1].fit:
            return tried[-1]
    return tried[0]


def list_allowed_node_counts(job: SlurmJob) -> list[int]:
    """Return the allowed numbers of equal shares in ascending order.

    Raise `JobNotModelled` if no number is allowed. Without --nodes, Slurm records the number of tasks as the maximum
    number of nodes.
    """
    tasks, low, high = job.ntasks, job.num_nodes, job.max_nodes
    if tasks < 1:
        raise JobNotModelled("requests no tasks")
    if low > tasks:
        raise JobNotModelled("requests more nodes than tasks")
    if high is not None and high < low:
        raise JobNotModelled("its maximum number of nodes is below its minimum")
    most = min(high or tasks, tasks)
    if job.ntasks_per_node:
        fewest = max(low, -(-tasks // job.ntasks_per_node))
        if fewest > most:
            raise JobNotModelled("requests more tasks than its nodes may run")
        if has_node_range(job) and fewest * job.ntasks_per_node != tasks:
            raise JobNotModelled("requests a range of node counts, but has too few tasks to fill every node")
        return [fewest]
    counts = [nodes for nodes in range(low, min(most, max(low, MAX_TRIED_NODES)) + 1) if tasks % nodes == 0]
    if not counts:
        raise JobNotModelled("its tasks cannot be divided evenly among nodes")
    return counts


def is_limited_to_one_node(job: SlurmJob) -> bool:
    """Return whether a pending job can use only one node."""
    return 1 in (job.max_nodes, job.ntasks)


def find_task_split(
    job: SlurmJob, machine: SlurmNodeTable, node_set: int, least_nodes: int = 0
) -> EqualJobSplit | None:
    """Return the tasks of a pending job as units that may share nodes.

    Return None if Slurm's own split cannot be predicted, for example because the job requests amounts per node.
    """
    tasks, low, high = job.ntasks, max(job.num_nodes, least_nodes), job.max_nodes
    for_each_node = job.ntasks_per_node or job.memory_per_node or job.gres_per_node
    per_gpu = job.cpus_per_gpu or job.memory_per_gpu
    if tasks < 2 or for_each_node or per_gpu or low == high or (high is not None and high < tasks):
        return None
    if (
        machine.rules.whole_sockets
        or (job.cpus_per_task % machine.core_cpus[machine.rows[node_set]]).any()
        or job.min_cpus_per_node > job.cpus_per_task
    ):
        return None
    amounts = compute_requested_per_node(job, machine, tasks, node_set)
    room = _count_units_by_empty_node(Request(tasks, amounts), machine, node_set)
    fewest = -(-tasks // max(1, int(room.max(initial=0))))
    return EqualJobSplit(tasks, amounts, int(room.sum()) >= tasks) if low <= fewest else None


def compute_requested_per_node(
    job: SlurmJob, machine: SlurmNodeTable, nodes: int, node_set: int = 0
) -> tuple[int, ...]:
    """Return the amounts of each of `nodes` shares on nodes of a set, in the order of the resources.

    With --ntasks-per-node, the last shares may have fewer tasks, but Slurm allocates the same amounts for them.
    """
    tasks = -(-job.ntasks // nodes)
    used, least = tasks * job.cpus_per_task, job.min_cpus_per_node
    if least > max(used, job.ntasks_per_node * job.cpus_per_task):
        raise JobNotModelled("requests nodes with more CPUs than its tasks use")
    gres = _compute_gres_per_share(job, machine, nodes, tasks)
    least = max(used, least, job.cpus_per_gpu * gres.get("gpu", 0))
    cpus = _round_up_to_equal_cores(least, tasks, job.ntasks_per_core == 1, machine, node_set)
    for_gpus_mib = job.memory_per_gpu * gres.get("gpu", 0)
    if job.memory_per_node:
        memory_mib = job.memory_per_node
    elif job.memory_per_cpu:
        memory_mib = job.memory_per_cpu * cpus
    elif machine.rules.counts_memory and not for_gpus_mib:
        raise JobNotModelled("requests all of a node's memory")
    else:
        memory_mib = 0
    if for_gpus_mib:
        memory_mib = max(memory_mib, for_gpus_mib)
    amounts = machine.to_amount_vector(cpus, memory_mib, gres, job.partition)
    if amounts is None:
        raise JobNotModelled("requests generic resources that no node has")
    return amounts


def _round_up_to_equal_cores(cpus: int, tasks: int, has_own_cores: bool, machine: SlurmNodeTable, node_set: int) -> int:
    """Return `cpus` in whole cores or sockets, or raise `JobNotModelled` if that differs between nodes of a set.

    `has_own_cores`: whether no core may run two tasks. This has no effect if each core has one CPU (`_allocate_sc` in
    cons_tres/job_test.c).
    """
    nodes = machine.rows[node_set] & (machine.capacity[:, CORES] > 0)
    if has_own_cores and (machine.core_cpus[nodes] > 1).any():
        what = "requests one task per core"
        raise JobNotModelled(what, f"{what} (--ntasks-per-core=1 or CR_ONE_TASK_PER_CORE) on cores of several CPUs")
    if machine.rules.whole_sockets and not machine.sockets[nodes].all():
        raise JobNotModelled("the sockets of the nodes differ, and Slurm allocates whole sockets")
    rounded = machine.round_up_to_cores(cpus, nodes, tasks)
    if rounded.size and rounded.min() < rounded.max():
        raise JobNotModelled("Slurm allocates whole cores or sockets, whose CPUs differ between its nodes")
    return int(rounded.max(initial=cpus))


def _compute_gres_per_share(job: SlurmJob, machine: SlurmNodeTable, nodes: int, tasks: int) -> Amounts:
    """Return the generic resources of one share.

    A job requests them per node, per task, or in total if it runs on a single node.
    """
    per_node = parse_gres_amounts(job.gres_per_node)
    per_task = gres_from_tres(job.tres_per_task)
    asked = {n: per_node.get(n, 0) + per_task.get(n, 0) * tasks for n in {*per_node, *per_task}}
    found = {name: count for name, count in asked.items() if name not in machine.shared}
    total = {n: count for n, count in gres_from_tres(job.requested_tres).items() if n not in machine.shared}
    per_job = {n: count for n, count in parse_gres_amounts(job.gres_per_job).items() if n not in machine.shared}

    if not found and (total or per_job):
        if nodes > 1:
            raise JobNotModelled("requests a total number of GPUs on several nodes")
        if per_job and all(per_job.get(n, 0) == count for n, count in total.items()):
            return per_job
        if any(resource.startswith(f"{name}:") for name in total for resource in machine.resources):
            what = "requests a total number of GPUs"
            raise JobNotModelled(what, f"{what}, whose type Slurm does not show")
        return total

    if total and any(total.get(n, 0) != found.get(n, 0) * nodes for n in found if n in total):
        raise JobNotModelled("requests generic resources in an unsupported way")
    return found


def compute_max_gres_per_share(job: SlurmJob) -> Amounts:
    """Return the maximum amount of each generic resource that one share requests."""
    tasks = job.ntasks or 1
    per_node, total = parse_gres_amounts(job.gres_per_node), gres_from_tres(job.requested_tres)
    per_job = parse_gres_amounts(job.gres_per_job)
    per_task = {name: count * tasks for name, count in gres_from_tres(job.tres_per_task).items()}
    names = {*per_node, *per_task, *per_job, *total}
    return {name: max(asked.get(name, 0) for asked in (per_node, per_task, per_job, total)) for name in names}


def compute_requested_no_consume_gres(job: SlurmJob, machine: SlurmNodeTable) -> Amounts:
    """Return the maximum amounts requested of resources that jobs share."""
    asked = compute_max_gres_per_share(job) if machine.shared else {}
    return {name: count for name, count in asked.items() if name in machine.shared}


def _count_nodes_that_hold(amounts: tuple[int, ...], machine: SlurmNodeTable, node_set: int) -> int:
    """Return how many nodes in a node set could hold one share if empty."""
    return int(np.count_nonzero(_count_units_by_empty_node(Request(1, amounts, distinct=True), machine, node_set)))


def _count_units_by_empty_node(request: Request, machine: SlurmNodeTable, node_set: int) -> IntArray:
    """Return how many units each node in a node set could hold if empty."""
    return units_fitting_by_row(request, machine.capacity)[machine.rows[node_set]]


def compute_allocated_per_node(
    job: SlurmJob, machine: SlurmNodeTable, nodes: int, places: NodeChoice = ANY_NODES
) -> tuple[int, ...]:
    """Return one of `nodes` equal shares of a job's allocation, rounded up to whole cores of any of `places`.

    Slurm reports totals over all nodes. A resource that an accounting record lacks counts as not requested.
    """
    tres = job.allocated_tres or job.requested_tres
    gres = gres_from_tres(tres) or _compute_requested_job_gres(job, nodes)
    shares = {name: -(-count // nodes) for name, count in gres.items() if name in machine.resources}
    cpus, memory_mib = -(-job.cpus // nodes), -(-int(tres.get("mem", 0)) // nodes)
    cpus = int(machine.round_up_to_cores(cpus, places).max(initial=cpus))
    amounts = machine.to_amount_vector(cpus, memory_mib, shares, job.partition)
    assert amounts is not None
    return amounts


def _compute_requested_job_gres(job: SlurmJob, nodes: int) -> Amounts:
    """Return the generic resources that the whole job requested.

    These count if accounting does not track the allocated generic resources.
    """
    per_node = parse_gres_amounts(job.gres_per_node)
    if per_node:
        return {name: count * nodes for name, count in per_node.items()}
    per_task = gres_from_tres(job.tres_per_task)
    if per_task and not job.ntasks:
        raise ValueError("its number of tasks is unknown")
    return {name: count * job.ntasks for name, count in per_task.items()}
