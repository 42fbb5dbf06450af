"""How a job is split over nodes: tables of requests, the amounts of each part, and the unmanaged requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cpsched.model import NodeSetCondition
from cpsched.slurm_text.configuration import SelectRules
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled
from cpsched_bridge.adapters.slurm.translation.per_node_amounts import (
    EqualJobSplit,
    PossibleJobSplits,
    SplitLimits,
    compute_allocated_per_node,
    compute_requested_per_node,
    find_equal_split,
    find_split_choices,
    find_task_split,
    list_allowed_node_counts,
)
from cpsched_bridge.adapters.slurm.translation.slurm_jobs import with_defaults_per_gpu
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.start_pins import (
    make_equal_split_settings,
    make_task_split_settings,
    restore_requested_node_count,
)
from cpsched_bridge.adapters.slurm.translation.unsupported_requests import JobNeverFits
from cpsched_bridge.ports import NO_SETTINGS
from tests.builders import a_node, a_slurm_job
from tests.unit.bridge.adapters.slurm.translation.test_slurm_jobs import a_partition

EVENLY = "its tasks cannot be divided evenly among nodes"
TOO_MANY = "requests more tasks than its nodes may run"
MORE_CPUS = "nodes with more CPUs than its tasks use"
WHOLE_JOB = "requests a total number of GPUs"
NOT_UNDERSTOOD = "requests generic resources in an unsupported way"

WHOLE_SOCKETS = SelectRules(whole_sockets=True)


def a_machine(nodes: int = 4, counts_memory: bool = True, **facts: Any) -> SlurmNodeTable:
    """Nodes of 8 cores, 1000 MiB and 2 GPUs."""
    configured = {"configured_gres": {"gpu": 2}, **facts}
    return SlurmNodeTable.from_records(
        [a_node(f"n{i}", **configured) for i in range(nodes)], SelectRules(counts_memory=counts_memory)
    )


def asked(**facts: Any) -> SlurmJob:
    """A pending job: one task of one core and 100 MiB on one node."""
    one = {"ntasks": 1, "max_nodes": 1, "cpus": facts.get("ntasks", 1), "memory_per_cpu": 100}
    return a_slurm_job(**one | facts)


def agrees(expected: object, call: Callable[[], object]) -> bool:
    """Whether a call returns what is expected, or is refused with these words."""
    try:
        return call() == expected
    except (JobNotModelled, JobNeverFits) as refusal:
        return isinstance(expected, str) and expected in str(refusal)


@pytest.mark.parametrize(
    ("tasks", "low", "high", "per_node", "expected"),
    [
        (1, 1, 1, None, [1]),
        (4, 2, 2, None, [2]),
        (4, 2, 2, 2, [2]),
        (4, 4, 4, 2, [4]),
        (4, None, 1, None, [1]),
        (4, 1, 4, None, [1, 2, 4]),
        (4, 2, 4, None, [2, 4]),
        (4, 1, None, None, [1, 2, 4]),
        (4, None, None, None, [1, 2, 4]),
        (4, 3, None, None, [4]),
        (4, 1, 3, None, [1, 2]),
        (4, 1, 5, None, [1, 2, 4]),
        (4, 3, 3, None, EVENLY),
        (5, 2, 4, None, EVENLY),
        (4, 1, 4, 2, [2]),
        (4, 1, None, 1, [4]),
        (4, 1, None, 4, [1]),
        (4, 1, 2, 2, [2]),
        (4, 1, 4, 3, [2]),
        (4, 1, 3, 3, "has too few tasks to fill every node"),
        (4, 1, None, 5, [1]),
        (17, 1, 17, 5, [4]),
        (17, 5, 6, 5, "has too few tasks to fill every node"),
        (15, 2, 4, 5, [3]),
        (4, 2, 2, 1, TOO_MANY),
        (17, 2, 3, 5, TOO_MANY),
        (2, 2, 2, 3, [2]),
        (2, 3, None, None, "requests more nodes than tasks"),
        (4, 1, 0, None, "its maximum number of nodes is below its minimum"),
        (4, 3, 2, None, "its maximum number of nodes is below its minimum"),
    ],
)
def test_lists_node_counts_with_equal_shares(
    tasks: int, low: int | None, high: int | None, per_node: int | None, expected: list[int] | str
) -> None:
    record = asked(ntasks=tasks, num_nodes=low, max_nodes=high, ntasks_per_node=per_node)
    assert agrees(expected, lambda: list_allowed_node_counts(record))


@pytest.mark.parametrize(
    ("facts", "nodes", "amounts"),
    [
        ({}, 1, (1, 100, 0)),
        ({"ntasks": 4}, 1, (4, 400, 0)),
        ({"ntasks": 4}, 2, (2, 200, 0)),
        ({"ntasks": 4, "cpus_per_task": 3}, 2, (6, 600, 0)),
        ({"min_cpus_per_node": 5}, 1, MORE_CPUS),
        ({"ntasks": 2, "min_cpus_per_node": 3}, 1, MORE_CPUS),
        ({"ntasks": 2, "min_cpus_per_node": 3, "ntasks_per_node": 2}, 1, MORE_CPUS),
        ({"ntasks": 2, "min_cpus_per_node": 3, "ntasks_per_node": 3}, 1, (3, 300, 0)),
        ({"ntasks": 5, "min_cpus_per_node": 6, "ntasks_per_node": 3, "cpus_per_task": 2}, 2, (6, 600, 0)),
        ({"ntasks": 6, "min_cpus_per_node": 5}, 1, (6, 600, 0)),
        ({"min_cpus_per_node": 0}, 1, (1, 100, 0)),
        ({"memory_per_node": 70}, 1, (1, 70, 0)),
        ({"memory_per_node": 0}, 1, (1, 100, 0)),
        ({"ntasks": 4, "memory_per_node": 70}, 2, (2, 70, 0)),
        ({"memory_per_cpu": 0}, 1, "all of a node's memory"),
        ({"gres_per_node": {"gres:gpu": 2}}, 1, (1, 100, 2)),
        ({"ntasks": 4, "gres_per_node": {"gres:gpu": 1}}, 2, (2, 200, 1)),
        ({"ntasks": 4, "tres_per_task": {"gres/gpu": 1}}, 2, (2, 200, 2)),
        ({"tres_per_task": {"cpu": 4}}, 1, (1, 100, 0)),
        ({"ntasks": 2, "gres_per_node": {"gpu": 1}, "tres_per_task": {"gres/gpu": 1}}, 2, (1, 100, 2)),
        ({"requested_tres": {"cpu": 1, "gres/gpu": 2}}, 1, (1, 100, 2)),
        ({"requested_tres": {"cpu": 1, "mem": 100}}, 1, (1, 100, 0)),
        ({"gres_per_node": {"gpu": 2}, "requested_tres": {"gres/gpu": 2}}, 1, (1, 100, 2)),
        ({"ntasks": 2, "gres_per_node": {"gpu": 2}, "requested_tres": {"gres/gpu": 4}}, 2, (1, 100, 2)),
        ({"gres_per_node": {"gpu": 2}, "requested_tres": {"gres/shard": 9}}, 1, (1, 100, 2)),
        ({"ntasks": 2, "requested_tres": {"gres/gpu": 2}}, 2, WHOLE_JOB),
        ({"gres_per_node": {"gpu": 2}, "requested_tres": {"gres/gpu": 1}}, 1, NOT_UNDERSTOOD),
        ({"ntasks": 2, "gres_per_node": {"gpu": 2}, "requested_tres": {"gres/gpu": 2}}, 2, NOT_UNDERSTOOD),
        ({"gres_per_node": {"fpga": 1}}, 1, "generic resources that no node has"),
    ],
)
def test_computes_amounts_of_one_share(facts: dict[str, Any], nodes: int, amounts: tuple[int, ...] | str) -> None:
    assert agrees(amounts, lambda: compute_requested_per_node(asked(**facts), a_machine(), nodes))


@pytest.mark.parametrize(
    ("facts", "nodes", "amounts"),
    [
        ({"gres_per_job": {"gres/gpu": 1}}, 1, (1, 100, 1, 0, 0)),
        ({"gres_per_job": {"gres/gpu:b": 2}}, 1, (1, 100, 2, 0, 2)),
        ({"gres_per_job": {"gres:gpu:a": 1, "gres:gpu:b": 2}}, 1, (1, 100, 3, 1, 2)),
        ({"gres_per_job": {"gres/gpu:b": 2}, "requested_tres": {"gres/gpu": 2}}, 1, (1, 100, 2, 0, 2)),
        ({"gres_per_job": {"gres/gpu:b": 2}, "requested_tres": {"gres/gpu": 3}}, 1, WHOLE_JOB),
        ({"gres_per_job": {"gres/gpu": 2}, "requested_tres": {"gres/gpu": 2, "gres/gpu:b": 2}}, 1, WHOLE_JOB),
        ({"requested_tres": {"gres/gpu": 2}}, 1, WHOLE_JOB),
        ({"ntasks": 2, "gres_per_job": {"gres/gpu": 2}}, 2, WHOLE_JOB),
    ],
)
def test_total_number_of_gpus_has_types_if_slurm_shows_them(
    facts: dict[str, Any], nodes: int, amounts: tuple[int, ...] | str
) -> None:
    machine = a_machine(configured_gres={"gpu:a": 1, "gpu:b": 2})
    assert machine.resources == ("cores", "memory_mib", "gpu", "gpu:a", "gpu:b")
    assert agrees(amounts, lambda: compute_requested_per_node(asked(**facts), machine, nodes))


def test_missing_memory_request_is_0_if_memory_is_uncounted() -> None:
    machine = a_machine(counts_memory=False)
    assert compute_requested_per_node(asked(memory_per_cpu=0), machine, 1) == (1, 0, 0)
    assert compute_requested_per_node(asked(), machine, 1) == (1, 0, 0)


@pytest.mark.parametrize(("tasks", "cores", "memory_mib"), [(1, 2, 200), (2, 2, 200), (3, 4, 400)])
def test_rounds_to_whole_cores_with_their_memory(tasks: int, cores: int, memory_mib: int) -> None:
    """Nodes of two threads a core: a request per CPU includes the thread that no other job can use."""
    assert compute_requested_per_node(asked(ntasks=tasks), a_machine(threads_per_core=2), 1) == (cores, memory_mib, 0)


@pytest.mark.parametrize(
    ("facts", "default", "nodes", "cpus"),
    [
        ({"gres_per_node": {"gpu": 1}, "ntasks": 2}, 2, 1, 2),
        ({"gres_per_node": {"gpu": 1}}, 2, 1, 2),
        ({"gres_per_node": {"gpu": 3}}, 2, 1, 6),
        ({"gres_per_node": {"gpu": 1}, "ntasks": 8}, 2, 1, 8),
        ({"gres_per_node": {"gpu": 1}}, 3, 1, 4),
        ({"gres_per_node": {"gpu:a100": 3}}, 3, 1, 10),
        ({"gres_per_node": {"gpu": 3}, "tres_per_task": {"cpu": 1}}, 3, 1, 2),
        ({"gres_per_node": {"gpu": 3}, "cpus_per_task": 2}, 3, 1, 2),
        ({"gres_per_node": {"gpu": 2}, "ntasks": 2}, 3, 2, 6),
        ({"tres_per_task": {"gres/gpu": 1}, "ntasks": 2}, 3, 1, 6),
        ({"requested_tres": {"gres/gpu": 2}, "ntasks": 4}, 3, 1, 6),
        ({"gres_per_node": {"gpu": 3}, "cpus_per_task": 0}, 3, 1, 10),
        ({"ntasks": 3}, 3, 1, 4),
        ({"gres_per_node": {"gpu": 3}}, 0, 1, 2),
    ],
)
def test_adds_default_cpus_per_gpu(facts: dict[str, Any], default: int, nodes: int, cpus: int) -> None:
    """The CPUs on each node as Slurm 26.05 allocated them with two threads per core; None: as shown after a test."""
    machine, partition = a_machine(threads_per_core=2, effective_cpus=16), a_partition(cpus_per_gpu=default)
    typed = "gpu:a100" in str(facts)
    if typed:
        machine = a_machine(threads_per_core=2, effective_cpus=16, configured_gres={"gpu:a100": 4})
    record = with_defaults_per_gpu(asked(**facts), partition)
    assert compute_requested_per_node(record, machine, nodes)[:2] == (cpus, 100 * cpus)
    assert not record.cpus_per_gpu or find_task_split(record._replace(max_nodes=9), machine, 0) is None


@pytest.mark.parametrize(
    ("facts", "nodes", "cpus"),
    [
        ({}, 1, 8),
        ({"ntasks": 8}, 1, 16),
        ({"ntasks": 9}, 1, 16),
        ({"cpus_per_task": 8}, 1, 8),
        ({"cpus_per_task": 9}, 1, 16),
        ({"ntasks": 2}, 2, 8),
        ({"ntasks": 18, "ntasks_per_node": 9}, 2, 16),
        ({"ntasks": 2, "cpus_per_task": 4}, 1, 16),
    ],
)
def test_rounds_to_whole_sockets(facts: dict[str, Any], nodes: int, cpus: int) -> None:
    """Two sockets of 8 CPUs: what Slurm 26.05 allocated with CR_Socket_Memory on empty nodes."""
    shape = {"effective_cpus": 16, "sockets": 2, "cores_per_socket": 4, "threads_per_core": 2, "real_memory": 2000}
    machine = SlurmNodeTable.from_records([a_node(f"n{i}", **shape) for i in range(4)], WHOLE_SOCKETS)
    assert compute_requested_per_node(asked(**facts), machine, nodes) == (cpus, 100 * cpus)
    assert find_task_split(asked(ntasks=4, max_nodes=4, cpus_per_task=8), machine, 0) is None


def test_one_task_per_core_needs_cores_of_one_cpu() -> None:
    """With CR_ONE_TASK_PER_CORE, Slurm shows this request for every job."""
    record = asked(ntasks=2, ntasks_per_core=1)
    cores = a_machine(total_cpus=16, sockets=2, cores_per_socket=8, threads_per_core=2)
    assert compute_requested_per_node(record, cores, 1)[:2] == (2, 200)
    with pytest.raises(JobNotModelled, match="CR_ONE_TASK_PER_CORE"):
        compute_requested_per_node(record, a_machine(threads_per_core=2), 1)


def test_rounds_to_cores_of_allowed_nodes() -> None:
    """A job of the nodes without threads must not lose half of each to the nodes with threads."""
    machine = SlurmNodeTable.from_records([a_node("n1"), a_node("n2", threads_per_core=2)])
    sets = [machine.intern_node_set(machine.mask_of_names(names)) for names in (["n1"], ["n2"])]
    assert [compute_requested_per_node(asked(), machine, 1, row) for row in sets] == [(1, 100), (2, 200)]
    assert compute_requested_per_node(asked(ntasks=2), machine, 1) == (2, 200)
    with pytest.raises(JobNotModelled, match="whose CPUs differ between its nodes"):
        compute_requested_per_node(asked(), machine, 1)


@pytest.mark.parametrize("odd", [{"sockets": 4}, {"effective_cpus": 15}, {"sockets": None}])
def test_leaves_jobs_if_sockets_differ(odd: dict[str, Any]) -> None:
    shape = {"effective_cpus": 16, "sockets": 2, "cores_per_socket": 8}
    nodes = [a_node("n1", **shape), a_node("n2", **shape | odd)]
    with pytest.raises(JobNotModelled, match="the sockets of the nodes differ"):
        compute_requested_per_node(asked(), SlurmNodeTable.from_records(nodes, WHOLE_SOCKETS), 1)
    assert compute_requested_per_node(asked(), SlurmNodeTable.from_records(nodes), 1) == (1, 100)


def test_requested_cpus_per_gpu_do_not_count_as_default() -> None:
    record = asked(gres_per_node={"gpu": 2}, cpus_per_task=0, cpus=6)
    assert with_defaults_per_gpu(record, a_partition(cpus_per_gpu=1)) == record


@pytest.mark.parametrize(
    ("facts", "nodes", "memory_mib"),
    [
        ({"gres_per_node": {"gpu": 2}}, 1, 600),
        ({"gres_per_node": {"gpu": 2}, "ntasks": 2}, 2, 600),
        ({"tres_per_task": {"gres/gpu": 1}, "ntasks": 2}, 1, 600),
        ({"gres_per_node": {"gpu": 1}, "memory_per_cpu": 400}, 1, 400),
        ({"gres_per_node": {"gpu": 2}, "memory_per_node": 500}, 1, 600),
        ({"memory_per_cpu": 100}, 1, 100),
    ],
)
def test_adds_default_memory_per_gpu(facts: dict[str, Any], nodes: int, memory_mib: int) -> None:
    """Memory that may be another default counts if it is larger."""
    record = with_defaults_per_gpu(asked(**{"memory_per_cpu": 0} | facts), a_partition(memory_per_gpu_mib=300))
    machine = a_machine(effective_cpus=16, configured_gres={"gpu": 4})
    assert compute_requested_per_node(record, machine, nodes)[1] == memory_mib
    assert not record.memory_per_gpu or find_task_split(record._replace(max_nodes=9), machine, 0) is None


def test_leaves_typed_gpus_counted_per_job() -> None:
    machine = a_machine(configured_gres={"gpu:a100": 2})
    with pytest.raises(JobNotModelled, match="whose type Slurm does not show"):
        compute_requested_per_node(asked(requested_tres={"gres/gpu": 1}), machine, 1)
    assert compute_requested_per_node(asked(gres_per_node={"gpu:a100": 1}), machine, 1) == (1, 100, 1, 1)
    other = a_machine(configured_gres={"gpu": 2, "gpux:a": 1})
    assert compute_requested_per_node(asked(requested_tres={"gres/gpu": 1}), other, 1) == (1, 100, 1, 0, 0), (
        "of another name"
    )


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, EqualJobSplit(1, (1, 100, 0), True)),
        ({"ntasks": 8, "max_nodes": 8}, EqualJobSplit(1, (8, 800, 0), True)),
        ({"ntasks": 9, "max_nodes": 9}, EqualJobSplit(3, (3, 300, 0), True)),
        ({"ntasks": 12, "max_nodes": 12}, EqualJobSplit(2, (6, 600, 0), True)),
        ({"ntasks": 12, "max_nodes": 12, "num_nodes": 3}, EqualJobSplit(3, (4, 400, 0), True)),
        ({"ntasks": 11, "max_nodes": 11}, EqualJobSplit(1, (11, 1100, 0), False)),
        ({"ntasks": 33, "max_nodes": 33}, EqualJobSplit(1, (33, 3300, 0), False)),
        ({"ntasks": 4, "num_nodes": 4, "max_nodes": 4}, EqualJobSplit(4, (1, 100, 0), True)),
        ({"ntasks": 5, "num_nodes": 5, "max_nodes": 5}, EqualJobSplit(5, (1, 100, 0), False)),
        ({"ntasks": 32, "num_nodes": 4, "max_nodes": 4}, EqualJobSplit(4, (8, 800, 0), True)),
        ({"ntasks": 36, "num_nodes": 4, "max_nodes": 4}, EqualJobSplit(4, (9, 900, 0), False)),
        ({"ntasks": 3, "num_nodes": 2, "max_nodes": 2}, EVENLY),
        ({"ntasks": 0}, "requests no tasks"),
        ({"ntasks": -3}, "requests no tasks"),
        ({"ntasks": 2, "num_nodes": 3, "max_nodes": None}, "requests more nodes than tasks"),
        ({"ntasks": 2, "num_nodes": 2, "max_nodes": None}, EqualJobSplit(2, (1, 100, 0), True)),
    ],
)
def test_splits_over_requested_or_fewest_nodes(facts: dict[str, Any], expected: EqualJobSplit | str) -> None:
    """Four nodes of 8 cores. What fits nowhere is reported for the fewest requested nodes."""
    assert agrees(expected, lambda: find_equal_split(asked(**facts), a_machine(), 0))


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (16, EqualJobSplit(2, (8, 800, 0), True)),
        (24, EqualJobSplit(1, (24, 2400, 0), False)),
        (4, EqualJobSplit(1, (4, 400, 0), True)),
    ],
)
def test_split_uses_only_allowed_nodes(tasks: int, expected: EqualJobSplit) -> None:
    machine = a_machine()
    row = machine.intern_node_set(np.array([True, False, True, False]), NodeSetCondition("feature", "two of four"))
    assert find_equal_split(asked(ntasks=tasks, max_nodes=tasks), machine, row) == expected


@pytest.mark.parametrize(
    ("facts", "nodes", "amounts"),
    [
        ({}, 1, (8, 800, 0)),
        ({}, 2, (4, 400, 0)),
        ({"cpus": 9, "allocated_tres": {"mem": 801}}, 2, (5, 401, 0)),
        ({"cpus": None}, 1, (1, 800, 0)),
        ({"cpus": None, "allocated_tres": {"cpu": 1}}, 2, (1, 0, 0)),
        ({"allocated_tres": {"mem": 800, "gres/gpu": 3}}, 2, (4, 400, 2)),
        ({"allocated_tres": {"mem": 800, "gres/fpga": 3}}, 2, (4, 400, 0)),
        ({"allocated_tres": None, "requested_tres": {"mem": 600, "gres/gpu": 2}}, 2, (4, 300, 1)),
        ({"allocated_tres": {}, "requested_tres": {"mem": 600}}, 2, (4, 300, 0)),
        ({"allocated_tres": {"mem": 800}, "requested_tres": {"mem": 600, "gres/gpu": 2}}, 2, (4, 400, 0)),
        ({"allocated_tres": None, "requested_tres": None}, 2, (4, 0, 0)),
        ({"allocated_tres": None}, 2, (4, 0, 0)),
        ({"gres_per_node": {"gpu": 1}}, 2, (4, 400, 1)),
        ({"gres_per_node": {"gpu": 1}, "tres_per_task": {"gres/gpu": 2}}, 2, (4, 400, 1)),
        ({"ntasks": 4, "tres_per_task": {"gres/gpu": 1}}, 2, (4, 400, 2)),
        ({"ntasks": 3, "tres_per_task": {"gres/gpu": 1}}, 2, (4, 400, 2)),
        ({"allocated_tres": {"gres/gpu": 1}, "gres_per_node": {"gpu": 2}}, 1, (8, 0, 1)),
    ],
)
def test_rounds_share_of_allocated_job_up(facts: dict[str, Any], nodes: int, amounts: tuple[int, ...]) -> None:
    """Where accounting does not track what a job got, what it asked for counts."""
    record = a_slurm_job(**{"cpus": 8, "allocated_tres": {"mem": 800}, "ntasks": 1, **facts})
    assert compute_allocated_per_node(record, a_machine(), nodes) == amounts


@pytest.mark.parametrize(
    ("tasks", "low", "high", "nodes", "most", "expected"),
    [
        (1, 1, 1, 1, None, (0, False, "")),
        (4, 4, 4, 4, None, (0, False, "")),
        (8, 4, 4, 4, None, (2, False, "TasksPerNode=0 NumTasks=8")),
        (4, 1, 4, 1, None, (4, False, "TasksPerNode=0 NumTasks=4")),
        (4, 4, None, 4, None, (1, False, "TasksPerNode=0 NumTasks=4")),
        (6, None, 6, 1, None, (6, False, "TasksPerNode=0 NumTasks=6")),
        (6, None, 6, 2, 4, (3, False, "TasksPerNode=0 NumNodes=1-4 NumTasks=6")),
        (6, 1, 6, 2, None, (3, False, "TasksPerNode=0 NumNodes=1-6 NumTasks=6")),
        (6, 1, 6, 2, 0, (3, False, "TasksPerNode=0 NumNodes=1-1 NumTasks=6")),
        (6, 2, 6, 3, 1, (2, False, "TasksPerNode=0 NumNodes=2-2 NumTasks=6")),
        (6, 1, 6, 2, 9, (3, False, "TasksPerNode=0 NumNodes=1-6 NumTasks=6")),
        (6, 1, None, 2, 4, (3, False, "TasksPerNode=0 NumNodes=1-4 NumTasks=6")),
        (6, 2, None, 3, None, (2, False, "TasksPerNode=0 NumNodes=2-6 NumTasks=6")),
        (6, 2, 4, 2, None, (3, True, "TasksPerNode=0 NumNodes=2-4 NumTasks=6")),
        (6, 2, 2, 2, None, (3, False, "TasksPerNode=0 NumTasks=6")),
    ],
)
def test_start_changes_node_settings_and_can_restore_them(
    tasks: int, low: int | None, high: int | None, nodes: int, most: int | None, expected: tuple[int, bool, str]
) -> None:
    found = make_equal_split_settings(asked(ntasks=tasks, num_nodes=low, max_nodes=high), nodes, most, False)
    assert (found.tasks_per_node, found.sets_node_count, found.restore) == expected


@pytest.mark.parametrize(("high", "most", "set_to"), [(None, 4, 4), (None, 9, 6), (None, None, 6), (6, 4, None)])
def test_start_sets_no_maximum_above_partition_limit(high: int | None, most: int | None, set_to: int | None) -> None:
    """Slurm does not start a job with a higher maximum than its partition's."""
    assert make_task_split_settings(asked(ntasks=6, max_nodes=high), most).max_nodes == set_to


@pytest.mark.parametrize(
    ("tasks", "low", "per_node", "expected"),
    [(4, 1, 2, (0, False, "")), (6, 2, 3, (0, True, "NumNodes=2-4 NumTasks=6"))],
)
def test_tasks_per_node_request_needs_no_task_pin(
    tasks: int, low: int, per_node: int, expected: tuple[int, bool, str]
) -> None:
    slurm_job = asked(ntasks=tasks, num_nodes=low, max_nodes=4, ntasks_per_node=per_node)
    found = make_equal_split_settings(slurm_job, 2, None, False)
    assert (found.tasks_per_node, found.sets_node_count, found.restore) == expected


@pytest.mark.parametrize(
    ("facts", "nodes", "expected"),
    [
        ({"ntasks": 4, "cpus": 4, "min_cpus_per_node": 1}, 2, (2, 4, "2-4 NumTasks=4 MinCPUsNode=1 NumCPUs=4")),
        (
            {"ntasks": 8, "cpus": 16, "cpus_per_task": 2, "min_cpus_per_node": 2},
            4,
            (4, 16, "4-8 NumTasks=8 MinCPUsNode=2 NumCPUs=16"),
        ),
        ({"ntasks": 4, "cpus": 8, "min_cpus_per_node": 4}, 2, (4, 8, "2-4 NumTasks=4 MinCPUsNode=4 NumCPUs=8")),
        ({"ntasks": 4, "cpus": 4, "min_cpus_per_node": None}, 4, (1, 4, "4-4 NumTasks=4 MinCPUsNode=1 NumCPUs=4")),
    ],
)
def test_pins_cpus_with_tasks_and_restores_all_changes(
    facts: dict[str, Any], nodes: int, expected: tuple[int, int, str]
) -> None:
    found = make_equal_split_settings(asked(num_nodes=nodes, max_nodes=None, **facts), nodes, None, True)
    assert (found.cpus_per_node, found.cpus) == expected[:2]
    assert found.restore == f"TasksPerNode=0 NumNodes={expected[2]}"


def test_start_without_tasks_per_node_sets_no_cpus() -> None:
    assert make_equal_split_settings(asked(ntasks=1, max_nodes=1), 1, None, True) == NO_SETTINGS


TASK = (1, 100, 0)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"ntasks": 17, "num_nodes": 3, "max_nodes": 17}, EqualJobSplit(17, TASK, True)),
        ({"ntasks": 17, "num_nodes": 3, "max_nodes": None}, EqualJobSplit(17, TASK, True)),
        ({"ntasks": 17, "num_nodes": 1, "max_nodes": 20}, EqualJobSplit(17, TASK, True)),
        ({"ntasks": 33, "num_nodes": 5, "max_nodes": 33}, EqualJobSplit(33, TASK, False)),
        ({"ntasks": 7, "num_nodes": 1, "max_nodes": 7, "cpus_per_task": 3}, EqualJobSplit(7, (3, 300, 0), True)),
        ({"ntasks": 9, "num_nodes": 1, "max_nodes": 9, "cpus_per_task": 3}, EqualJobSplit(9, (3, 300, 0), False)),
        ({"ntasks": 2, "max_nodes": 2, "tres_per_task": {"gres/gpu": 1}}, EqualJobSplit(2, (1, 100, 1), True)),
        ({"ntasks": 1, "max_nodes": 1}, None),
        ({"ntasks": 17, "num_nodes": 3, "max_nodes": 3}, None),
        ({"ntasks": 17, "num_nodes": 3, "max_nodes": 16}, None),
        ({"ntasks": 17, "num_nodes": 4, "max_nodes": 17}, None),
        ({"ntasks": 17, "max_nodes": 17, "ntasks_per_node": 5}, None),
        ({"ntasks": 17, "max_nodes": 17, "memory_per_node": 100}, None),
        ({"ntasks": 17, "max_nodes": 17, "gres_per_node": {"gpu": 1}}, None),
        ({"ntasks": 17, "max_nodes": 17, "min_cpus_per_node": 2}, None),
    ],
)
def test_splits_by_task_without_per_node_request(facts: dict[str, Any], expected: EqualJobSplit | None) -> None:
    """Four nodes of 8 cores. Three nodes at least are what 17 tasks come to by themselves; four are a wish."""
    assert find_task_split(asked(**facts), a_machine(), 0) == expected


def test_leaves_tasks_that_share_cores_to_slurm() -> None:
    machine, record = a_machine(threads_per_core=2), asked(ntasks=5, max_nodes=5)
    assert find_task_split(record, machine, 0) is None
    assert find_task_split(record._replace(cpus_per_task=2), machine, 0) == EqualJobSplit(5, (2, 200, 0), True)


PRIME, FOUR = {"ntasks": 17, "num_nodes": 3, "max_nodes": 17}, EqualJobSplit(4, TASK, True)


@pytest.mark.parametrize(
    ("facts", "least", "most", "expected"),
    [
        ({"ntasks": 4, "max_nodes": 4}, 0, None, PossibleJobSplits(EqualJobSplit(1, (4, 400, 0), True), FOUR)),
        (PRIME, 0, None, PossibleJobSplits(None, EqualJobSplit(17, TASK, True))),
        (PRIME, 3, 4, PossibleJobSplits(None, EqualJobSplit(17, TASK, True))),
        (PRIME, 0, 3, "requests more nodes than its partition allows"),
        (PRIME, 4, None, "cannot hold it on 17 nodes"),
        ({**PRIME, "memory_per_node": 10}, 0, None, "cannot hold it on 17 nodes"),
        ({"ntasks": 37, "num_nodes": 5, "max_nodes": 37}, 0, None, "cannot hold 37 tasks"),
        ({"ntasks": 2, "num_nodes": 2, "max_nodes": 2}, 0, 1, "requests more nodes than its partition allows"),
        ({"ntasks": 2, "num_nodes": 2, "max_nodes": 2}, 3, None, "requests fewer nodes than its partition requires"),
    ],
)
def test_finds_possible_split_or_reports_too_large_job(
    facts: dict[str, Any], least: int, most: int | None, expected: PossibleJobSplits | str
) -> None:
    assert agrees(expected, lambda: find_split_choices(asked(**facts), a_machine(), 0, SplitLimits(least, most)))


@pytest.mark.parametrize(
    ("facts", "as_before"),
    [
        ({"ntasks": 17, "num_nodes": 2, "max_nodes": 2}, {"num_nodes": 1, "max_nodes": 17}),
        ({"ntasks": 16, "num_nodes": 2, "max_nodes": 2}, {}),
        ({"ntasks": 17, "num_nodes": 1, "max_nodes": 17}, {}),
        ({"ntasks": 17, "num_nodes": 4, "max_nodes": 4, "ntasks_per_node": 5}, {}),
    ],
)
def test_unpinned_record_drops_node_count_set_by_pin(facts: dict[str, Any], as_before: dict[str, Any]) -> None:
    assert restore_requested_node_count(asked(**facts)) == asked(**facts)._replace(**as_before)
