"""Nodes with shares of GPUs: the GPUs that count as free are never more than those that Slurm can allocate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.translation.node_availability import (
    compute_free_amounts,
    compute_gpus_occupied_by_shares,
)
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from tests.builders import a_node, a_slurm_job
from tests.unit.bridge.adapters.slurm.scenes import Scene

GPUS, SHARES = 4, 8
PER_GPU = SHARES // GPUS


def a_job(**facts: Any) -> SlurmJob:
    return a_slurm_job(**{"state": "RUNNING", "allocated_nodes": "n1", **facts})


@given(whole=st.integers(0, GPUS), shares=st.lists(st.tuples(st.integers(0, GPUS - 1), st.integers(1, PER_GPU))))
def test_free_gpus_never_exceed_those_without_shares(whole: int, shares: list[tuple[int, int]]) -> None:
    """The first GPUs are allocated as a whole; each other job has shares of one GPU that has them free."""
    used = [PER_GPU] * whole + [0] * (GPUS - whole)
    jobs = []
    for gpu, count in shares:
        if used[gpu] + count <= PER_GPU:
            used[gpu] += count
            jobs.append(a_job(gres_per_node={"gres/shard": count}))
    nodes = [a_node("n1", configured_gres={"gpu:a100": GPUS, "shard": SHARES}, allocated_cpus=0, allocated_memory=0,
                    allocated_tres={"gres/gpu": whole, "gres/gpu:a100": whole})]  # fmt: skip
    machine = SlurmNodeTable.from_records(nodes)
    held = compute_gpus_occupied_by_shares(jobs, machine)
    (free,) = compute_free_amounts(nodes, machine, [], np.array([True]), held)
    untouched = used.count(0)
    for name in ("gpu", "gpu:a100"):
        left = free[machine.resources.index(name)]
        assert left <= untouched
        assert left == untouched or len(jobs) > 1, "with one such job, the number is exact"


@pytest.mark.parametrize(
    ("facts", "gpus"),
    [
        ({"gres_per_node": {"gres/shard": 2}}, 1),
        ({"gres_per_node": {"gres/mps": 50}}, 1),
        ({"tres_per_task": {"gres/shard": 1}}, 1),
        ({"allocated_tres": {"gres/shard": 1}}, 1),
        ({"gres_per_node": {"gres/gpu": 1}}, 0),
        ({"gres_per_node": {"gres/shard": "x"}}, 0),
        ({"gres_per_node": {"gres/shard": 2}, "state": "COMPLETED"}, 0),
        ({"gres_per_node": {"gres/shard": 2}, "allocated_nodes": "n2"}, 0),
    ],
)
def test_each_job_with_shares_counts_as_one_gpu(facts: dict[str, Any], gpus: int) -> None:
    nodes = [a_node("n1", configured_gres={"gpu": 2, "shard": 8, "mps": 200}), a_node("n2")]
    found = compute_gpus_occupied_by_shares([a_job(**facts)], SlurmNodeTable.from_records(nodes))
    assert found[0].tolist() == [0, 0, gpus, 0, 0]


def test_gpus_with_shares_are_not_free() -> None:
    scene = Scene().only("gpu-task")
    scene.node("n3")["configured_gres"] = {"gpu": 2, "shard": 8}
    running = {**scene.job("gpu-task"), "id": 9, "state": "RUNNING", "allocated_nodes": "n3", "num_nodes": 1,
               "gres_per_node": {"gres/shard": 1}, "tres_per_task": None, "requested_tres": None,
               "start_time": 1}  # fmt: skip
    scene.rows["jobs"].append(running)
    seen = SlurmTranslator().observe(scene.read())
    assert seen.free[2, seen.cluster.resources.index("gpu")] == 1
