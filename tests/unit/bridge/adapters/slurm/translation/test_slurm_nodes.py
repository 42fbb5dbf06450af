"""Slurm's nodes as a cluster: capacities, whole cores, features, node sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cpsched.model import NodeSetCondition
from cpsched.model.value_bounds import AMOUNT_BOUND
from cpsched.slurm_text.configuration import SelectRules
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from tests.builders import a_node


@pytest.mark.parametrize(
    ("facts", "capacity"),
    [
        ({}, [8, 1000, 0]),
        ({"memory_reserved_for_system": 200}, [8, 800, 0]),
        ({"memory_reserved_for_system": 1000}, [8, 0, 0]),
        ({"memory_reserved_for_system": 1001}, [0, 0, 0]),
        ({"real_memory": None}, [8, 0, 0]),
        ({"effective_cpus": None}, [0, 1000, 0]),
        ({"effective_cpus": AMOUNT_BOUND - 1}, [AMOUNT_BOUND - 1, 1000, 0]),
        ({"effective_cpus": AMOUNT_BOUND}, [0, 0, 0]),
        ({"configured_gres": {"gpu": 2}}, [8, 1000, 2]),
        ({"configured_gres": {"gpu": AMOUNT_BOUND}}, [0, 0, 0]),
    ],
)
def test_reads_node_capacity_or_zero_if_invalid(facts: dict[str, Any], capacity: list[int]) -> None:
    machine = SlurmNodeTable.from_records([a_node(**facts), a_node("other", configured_gres={"gpu": 1})])
    assert machine.resources == ("cores", "memory_mib", "gpu")
    assert machine.capacity.tolist() == [capacity, [8, 1000, 1]]


@pytest.mark.parametrize(("counts_memory", "memory_mib", "requested"), [(False, 0, 0), (True, 1000, 500)])
def test_ignores_memory_that_slurm_does_not_allocate(counts_memory: bool, memory_mib: int, requested: int) -> None:
    machine = SlurmNodeTable.from_records([a_node()], rules=SelectRules(counts_memory=counts_memory))
    assert machine.capacity.tolist() == [[8, memory_mib]]
    assert machine.to_amount_vector(3, 500, {}) == (3, requested)


def test_rounds_cpus_up_to_cores_of_each_node() -> None:
    """Slurm allocates threads only on nodes with more CPUs than cores."""
    shapes = (
        {"total_cpus": 32, "threads_per_core": 2},
        {"total_cpus": 16, "threads_per_core": 2},
        {"total_cpus": 32, "effective_cpus": 12, "threads_per_core": 2},
        {"total_cpus": 2, "threads_per_core": 2},
        {"total_cpus": 64, "threads_per_core": 4},
        {"threads_per_core": None},
    )
    nodes = [a_node(f"n{at}", sockets=2, cores_per_socket=8, **facts) for at, facts in enumerate(shapes)]
    machine = SlurmNodeTable.from_records([*nodes, a_node("n6", threads_per_core=2)])
    assert machine.round_up_to_cores(3, slice(None)).tolist() == [4, 3, 4, 3, 4, 3, 4]
    assert machine.round_up_to_cores(0, [0, 1]).tolist() == [0, 0]
    assert machine.ids_per_cpu.tolist() == [1, 2, 1, 2, 1, 1, 1]


def test_orders_amounts_and_rejects_unknown_resources() -> None:
    machine = SlurmNodeTable.from_records([a_node(configured_gres={"gpu:a100": 2, "fpga": 1})])
    assert machine.resources == ("cores", "memory_mib", "fpga", "gpu", "gpu:a100")
    assert machine.to_amount_vector(1, 2, {"gpu": 3, "fpga": 4}) == (1, 2, 4, 3, 0)
    assert machine.to_amount_vector(1, 2, {"gpu": 3, "tape": 1}) is None


def test_finds_nodes_by_name_and_ignores_unknown_ones() -> None:
    machine = SlurmNodeTable.from_records([a_node(name, active_features=features) for name, features in
                          (("a", ["x"]), ("b", None), ("c", ["x", "y"]))])  # fmt: skip
    assert machine.mask_of_names(["c", "nobody", "a"]).tolist() == [True, False, True]
    assert {name: mask.tolist() for name, mask in machine.features.items()} == {
        "x": [True, False, True],
        "y": [False, False, True],
    }


def test_equal_node_sets_are_shared_and_new_set_makes_cluster() -> None:
    machine = SlurmNodeTable.from_records([a_node("a"), a_node("b")])
    whole = machine.build_cluster()
    assert machine.intern_node_set(np.array([True, True]), NodeSetCondition("feature", "again")) == 0
    assert machine.build_cluster() is whole
    mask = np.array([False, True])
    assert machine.intern_node_set(mask, NodeSetCondition("feature", "some")) == 1
    assert machine.intern_node_set(mask.copy(), NodeSetCondition("feature", "the same")) == 1
    mask[:] = True
    found = machine.build_cluster()
    assert found is not whole
    assert found.node_set_names == ("all", "some")
    assert found.node_sets.tolist() == [[True, True], [False, True]]
    assert found.capacity is not machine.capacity


@pytest.mark.parametrize(
    "change",
    [
        {"name": "z"}, {"effective_cpus": 9}, {"threads_per_core": 2}, {"real_memory": 1},
        {"configured_gres": {"g": 1}}, {"memory_reserved_for_system": 1}, {"active_features": ["x"]},
        {"weight": 2},
    ],
)  # fmt: skip
def test_keeps_node_table_until_configuration_changes(change: dict[str, Any]) -> None:
    machine = SlurmNodeTable.from_records([a_node()])
    assert SlurmNodeTable.from_records([a_node(state="DOWN")], previous=machine) is machine
    assert SlurmNodeTable.from_records([a_node(**change)], previous=machine) is not machine
    assert SlurmNodeTable.from_records([a_node()]) is not machine


def test_uses_slurm_weights_or_default_1() -> None:
    machine = SlurmNodeTable.from_records([a_node("a", weight=20), a_node("b"), a_node("c", weight=0)])
    weights = machine.build_cluster().weights
    assert weights is not None
    assert weights.tolist() == [20, 1, 0]
    assert SlurmNodeTable.from_records([a_node("a", weight=1), a_node("b")]).build_cluster().weights is None


def test_builds_cluster_without_nodes() -> None:
    machine = SlurmNodeTable.from_records([])
    assert (machine.names, machine.core_cpus.shape, machine.capacity.shape) == ((), (0,), (0, 2))
