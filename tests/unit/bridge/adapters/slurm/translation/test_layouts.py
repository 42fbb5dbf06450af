"""The amounts of a placed job on its nodes, as a request with a placement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.feasibility import amounts_by_node
from cpsched.model import Request
from cpsched.slurm_text.jobs import NodeShare, SlurmJob
from cpsched_bridge.adapters.shared.node_table import Amounts, describe_allocation, request_from_allocation
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_placed_jobs import (
    compute_amounts_by_node,
    match_allocation_to_request,
)
from tests.builders import a_node, a_slurm_job


def a_machine(**facts: Any) -> SlurmNodeTable:
    """Four nodes of 16 cores, 16000 MiB and 2 GPUs."""
    configured = {"effective_cpus": 16, "real_memory": 16000, "configured_gres": {"gpu": 2}, **facts}
    return SlurmNodeTable.from_records([a_node(f"n{i}", **configured) for i in range(4)])


PRIME = NodeShare("n0", 16, 16000, {}), NodeShare("n2", 1, 1000, {"gpu": 1})


def a_record(*layout: NodeShare) -> SlurmJob:
    return a_slurm_job(cpus=17, allocated_tres={"cpu": 17, "mem": 17000}, layout=layout)


CORES_OF_TWO_THREADS = {"total_cpus": 16, "sockets": 2, "cores_per_socket": 8, "threads_per_core": 2}


@pytest.mark.parametrize(
    ("layout", "nodes", "facts", "expected"),
    [
        (PRIME, [0, 2], {}, {0: (16, 16000, 0), 2: (1, 1000, 1)}),
        ((NodeShare("n[0-1,3]", 4, 100, {}),), [0, 1, 3], {}, dict.fromkeys((0, 1, 3), (4, 100, 0))),
        # A node whose 16 CPUs are cores of two threads: Slurm allocates one CPU, and scontrol prints CPU_IDs=0-1.
        ((NodeShare("n[0,2]", 2, 1000, {}),), [0, 2], CORES_OF_TWO_THREADS, dict.fromkeys((0, 2), (1, 1000, 0))),
        # A job on one node needs no layout, and the layout of other nodes is ignored.
        ((), [1], {}, {1: (17, 17000, 0)}),
        ((), [0, 2], {}, None),
        (PRIME[:1], [0, 2], {}, None),
        ((NodeShare("n[0-3]", 16, 16000, {}),), [0, 2], {}, None),
    ],
)
def test_layout_gives_amounts_on_each_node(
    layout: tuple[NodeShare, ...], nodes: list[int], facts: dict[str, Any], expected: object
) -> None:
    assert compute_amounts_by_node(a_record(*layout), nodes, a_machine(**facts)) == expected


@pytest.mark.parametrize(
    ("request_", "amounts", "placement"),
    [
        (Request(17, (1, 1000, 0)), {0: (16, 16000, 0), 2: (1, 1000, 0)}, ((0, 16), (2, 1))),
        (Request(4, (3, 300, 1)), {0: (6, 600, 2), 2: (6, 600, 2)}, ((0, 2), (2, 2))),
        (Request(2, (8, 100, 0), distinct=True), {1: (8, 100, 0), 3: (8, 100, 0)}, ((1, 1), (3, 1))),
        (Request(1, (0, 100, 0)), {1: (0, 100, 0)}, ((1, 1),)),
        (Request(17, (1, 1000, 0)), {0: (16, 16000, 0), 2: (1, 999, 0)}, None),
        (Request(17, (1, 1000, 0)), {0: (16, 16000, 1), 2: (1, 1000, 0)}, None),
        (Request(17, (1, 1000, 0)), {0: (16, 16000, 0), 2: (2, 2000, 0)}, None),
        (Request(2, (8, 100, 0), distinct=True), {1: (16, 200, 0)}, None),
        (Request(2, (8, 100, 0), distinct=True), {1: (9, 100, 0), 3: (8, 100, 0)}, None),
        (Request(2, (8, 1, 0), True, True), {1: (16, 9, 2), 3: (16, 9, 2)}, ((1, 1), (3, 1))),
        (Request(3, (8, 1, 0), True, True), {1: (16, 9, 2), 3: (16, 9, 2)}, None),
        (Request(17, (1, 1, 0), exclusive=True), {1: (16, 9, 2), 3: (16, 9, 2)}, ((1, 16), (3, 1))),
        (Request(17, (1, 1, 0), exclusive=True), {1: (16, 9, 2)}, None),
    ],
)
def test_finds_requested_placement(request_: Request, amounts: Amounts, placement: Any) -> None:
    assert match_allocation_to_request(request_, amounts, a_machine()) == placement


@pytest.mark.parametrize(
    ("requested", "allocated", "placement"),
    [
        ((1, 0, 0), (1, 1, 0), ((0, 1),)),
        ((1, 1, 0), (1, 1, 0), ((0, 1),)),
        ((1, 1, 0), (1, 0, 0), ((0, 1),)),  # accounting does not track types
        ((1, 1, 0), (1, 0, 1), None),
        ((1, 1, 0), (2, 0, 0), None),
    ],
)
def test_compares_gpu_type_if_requested_and_tracked(
    requested: tuple[int, ...], allocated: tuple[int, ...], placement: Any
) -> None:
    machine = a_machine(configured_gres={"gpu:a100": 2, "gpu:1g.5gb": 2})
    assert machine.resources == ("cores", "memory_mib", "gpu", "gpu:1g.5gb", "gpu:a100")
    assert match_allocation_to_request(Request(1, (1, 5, *requested)), {0: (1, 5, *allocated)}, machine) == placement


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ({1: (8, 100, 1)}, (Request(1, (8, 100, 1)), ((1, 1),))),
        ({1: (8, 100, 1), 2: (8, 100, 1)}, (Request(2, (8, 100, 1), True), ((1, 1), (2, 1)))),
        ({1: (16, 160, 0), 2: (1, 10, 0)}, (Request(17, (1, 10, 0)), ((1, 16), (2, 1)))),
        ({1: (6, 60, 2), 2: (3, 30, 1)}, (Request(3, (3, 30, 1)), ((1, 2), (2, 1)))),
        ({1: (16, 50, 1), 2: (1, 50, 1)}, (Request(2, (1, 50, 1), True), ((1, 1), (2, 1)))),
        ({1: (16, 50, 0), 2: (0, 50, 1)}, (Request(2, (0, 50, 1), True), ((1, 1), (2, 1)))),
    ],
)
def test_request_from_unequal_shares_is_safe_lower_bound(amounts: Amounts, expected: Any) -> None:
    assert request_from_allocation(amounts, False) == expected


AMOUNTS = st.dictionaries(
    st.integers(0, 3), st.tuples(st.integers(1, 16), st.integers(0, 9), st.integers(0, 2)), min_size=1
)


@given(AMOUNTS)
def test_freed_amounts_never_exceed_allocation(amounts: Amounts) -> None:
    request, placement = request_from_allocation(amounts, False)
    used = amounts_by_node(request, placement, np.full((4, 3), 99))
    assert used.keys() == amounts.keys()
    assert all((used[node][:2] <= amounts[node][:2]).all() for node in amounts)
    assert all(used[node][2] >= amounts[node][2] for node in amounts), "GPUs that only the job's record knows of"


@given(AMOUNTS)
def test_requested_amounts_give_same_placement(amounts: Amounts) -> None:
    request, placement = request_from_allocation(amounts, False)
    used = {
        node: tuple(took.tolist()) for node, took in amounts_by_node(request, placement, np.full((4, 3), 99)).items()
    }
    assert match_allocation_to_request(request, used, a_machine()) == placement


def test_formats_allocation_of_each_node() -> None:
    found = describe_allocation({2: (1, 1000, 1), 0: (16, 16000, 0)}, a_machine())
    assert found == "n0: 16 cores, 16000 MiB; n2: 1 core, 1000 MiB, 1 gpu"
