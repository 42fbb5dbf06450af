"""Slurm's nodes as a cluster: capacities, whole cores, features, node sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cpsched.model import NodeSetPart
from cpsched.model.value_bounds import MOST_AMOUNT
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable


def a_node(name: str = "n1", **facts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "effective_cpus": 8,
        "threads_per_core": 1,
        "real_memory": 1000,
        "memory_reserved_for_system": None,
        "configured_gres": None,
        "active_features": None,
        **facts,
    }


@pytest.mark.parametrize(
    ("facts", "capacity"),
    [
        ({}, [8, 1000, 0]),
        ({"memory_reserved_for_system": 200}, [8, 800, 0]),
        ({"memory_reserved_for_system": 1000}, [8, 0, 0]),
        ({"memory_reserved_for_system": 1001}, [0, 0, 0]),
        ({"real_memory": None}, [8, 0, 0]),
        ({"effective_cpus": None}, [0, 1000, 0]),
        ({"effective_cpus": MOST_AMOUNT - 1}, [MOST_AMOUNT - 1, 1000, 0]),
        ({"effective_cpus": MOST_AMOUNT}, [0, 0, 0]),
        ({"configured_gres": {"gpu": 2}}, [8, 1000, 2]),
        ({"configured_gres": {"gpu": MOST_AMOUNT}}, [0, 0, 0]),
    ],
)
def test_a_node_has_what_it_says_and_nothing_where_that_makes_no_sense(
    facts: dict[str, Any], capacity: list[int]
) -> None:
    machine = SlurmNodeTable.from_records([a_node(**facts), a_node("other", configured_gres={"gpu": 1})])
    assert machine.resources == ("cores", "memory_mib", "gpu")
    assert machine.capacity.tolist() == [capacity, [8, 1000, 1]]


def test_memory_does_not_count_where_slurm_does_not_allocate_it() -> None:
    machine = SlurmNodeTable.from_records([a_node()], counts_memory=False)
    assert machine.capacity.tolist() == [[8, 0]]
    assert machine.to_amount_vector(3, 500, {}) == (3, 0)
    assert SlurmNodeTable.from_records([a_node()]).to_amount_vector(3, 500, {}) == (3, 500)


@pytest.mark.parametrize(
    ("threads", "cpus", "whole"),
    [([1, 1], 3, 3), ([2, 1], 3, 4), ([1, 2], 4, 4), ([4, 2], 1, 4), ([None, None], 3, 3), ([2, 2], 0, 0)],
)
def test_cpus_are_rounded_up_to_whole_cores_of_the_node_with_most_threads(
    threads: list[int | None], cpus: int, whole: int
) -> None:
    machine = SlurmNodeTable.from_records([a_node(f"n{i}", threads_per_core=each) for i, each in enumerate(threads)])
    assert machine.round_up_to_cores(cpus) == whole
    assert machine.to_amount_vector(cpus, 0, {}) == (whole, 0)


def test_amounts_stand_in_the_order_of_the_resources_and_unknown_ones_are_refused() -> None:
    machine = SlurmNodeTable.from_records([a_node(configured_gres={"gpu:a100": 2, "fpga": 1})])
    assert machine.resources == ("cores", "memory_mib", "fpga", "gpu", "gpu:a100")
    assert machine.to_amount_vector(1, 2, {"gpu": 3, "fpga": 4}) == (1, 2, 4, 3, 0)
    assert machine.to_amount_vector(1, 2, {"gpu": 3, "tape": 1}) is None


def test_nodes_are_found_by_name_and_names_of_no_node_left_out() -> None:
    machine = SlurmNodeTable.from_records([a_node(name, active_features=features) for name, features in
                          (("a", ["x"]), ("b", None), ("c", ["x", "y"]))])  # fmt: skip
    assert machine.mask_of_names(["c", "nobody", "a"]).tolist() == [True, False, True]
    assert {name: mask.tolist() for name, mask in machine.features.items()} == {
        "x": [True, False, True],
        "y": [False, False, True],
    }


def test_node_sets_of_the_same_nodes_are_one_and_a_new_one_makes_a_new_cluster() -> None:
    machine = SlurmNodeTable.from_records([a_node("a"), a_node("b")])
    whole = machine.build_cluster()
    assert machine.intern_node_set(np.array([True, True]), NodeSetPart("feature", "again")) == 0
    assert machine.build_cluster() is whole
    mask = np.array([False, True])
    assert machine.intern_node_set(mask, NodeSetPart("feature", "some")) == 1
    assert machine.intern_node_set(mask.copy(), NodeSetPart("feature", "the same")) == 1
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
    ],
)  # fmt: skip
def test_the_machine_stays_until_the_configuration_of_a_node_changes(change: dict[str, Any]) -> None:
    machine = SlurmNodeTable.from_records([a_node()])
    assert SlurmNodeTable.from_records([a_node(state="DOWN")], previous=machine) is machine
    assert SlurmNodeTable.from_records([a_node(**change)], previous=machine) is not machine
    assert SlurmNodeTable.from_records([a_node()]) is not machine


def test_a_cluster_without_nodes_is_one() -> None:
    machine = SlurmNodeTable.from_records([])
    assert (machine.names, machine.threads, machine.capacity.shape) == ((), 1, (0, 2))
