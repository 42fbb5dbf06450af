"""Nodes with parts of GPUs: the GPUs that count as free are never more than those that Slurm can allocate.

The first tests are about nodes whose GPUs Slurm does not show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.model import RunningJob
from cpsched.slurm_text.configuration import SelectRules
from cpsched.slurm_text.gres import SharedGpus
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.object_parsing import parse_nodes
from cpsched_bridge.adapters.slurm.translation.free_capacity import (
    compute_free_amounts,
    compute_gpus_occupied_by_parts,
    return_gpus_with_last_job,
)
from cpsched_bridge.adapters.slurm.translation.slurm_jobs import translate_placed_job
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from tests.builders import a_node, a_slurm_job
from tests.unit.bridge.adapters.slurm.scenes import Scene

GPUS, PARTS = 4, 8
PER_GPU = PARTS // GPUS


def a_job(**facts: Any) -> SlurmJob:
    return a_slurm_job(**{"state": "RUNNING", "allocated_nodes": "n1", **facts})


@given(whole=st.integers(0, GPUS), parts=st.lists(st.tuples(st.integers(0, GPUS - 1), st.integers(1, PER_GPU))))
def test_free_gpus_never_exceed_those_without_parts(whole: int, parts: list[tuple[int, int]]) -> None:
    """The first GPUs are allocated as a whole; each other job has parts of one GPU that has them free."""
    used = [PER_GPU] * whole + [0] * (GPUS - whole)
    jobs = []
    for gpu, count in parts:
        if used[gpu] + count <= PER_GPU:
            used[gpu] += count
            jobs.append(a_job(gres_per_node={"gres/shard": count}))
    nodes = [a_node("n1", configured_gres={"gpu:a100": GPUS, "shard": PARTS}, allocated_cpus=0, allocated_memory=0,
                    allocated_tres={"gres/gpu": whole, "gres/gpu:a100": whole})]  # fmt: skip
    machine = SlurmNodeTable.from_records(nodes)
    held = compute_gpus_occupied_by_parts(jobs, machine)
    (free,) = compute_free_amounts(nodes, machine, [], np.array([True]), held)
    for name in ("gpu", "gpu:a100"):
        left, untouched = free[machine.resources.index(name)], used.count(0)
        assert left == untouched or (left < untouched and len(jobs) > 1), "with one such job, the number is exact"


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
def test_each_job_with_parts_counts_as_one_gpu(facts: dict[str, Any], gpus: int) -> None:
    nodes = [a_node("n1", configured_gres={"gpu": 2, "shard": 8, "mps": 200}), a_node("n2")]
    found = compute_gpus_occupied_by_parts([a_job(**facts)], SlurmNodeTable.from_records(nodes))
    assert found[0].tolist() == [0, 0, gpus, 0, 0]


def test_gpus_with_parts_are_not_free() -> None:
    scene = Scene().only("gpu-task").with_node("n3", configured_gres={"gpu": 2, "shard": 8})
    running = {**scene.job("gpu-task"), "id": 9, "state": "RUNNING", "allocated_nodes": "n3", "num_nodes": 1,
               "gres_per_node": {"gres/shard": 1}, "tres_per_task": None, "requested_tres": None,
               "start_time": 1}  # fmt: skip
    scene.rows["jobs"].append(running)
    seen = SlurmTranslator().observe(scene.read())
    assert seen.free[2, seen.cluster.resources.index("gpu")] == 1


RECORDED = Path(__file__).parents[5] / "data" / "slurm" / "nodes" / "scontrol-shared-gpus.txt"
"""Slurm 26.05: on n1, two jobs with shards and one with a GPU; on n2, one with MPS; on n3 and n4, one with a GPU."""


def test_free_parts_are_those_that_slurm_shows() -> None:
    nodes = parse_nodes(RECORDED.read_text())
    machine = SlurmNodeTable.from_records(nodes)
    free = compute_free_amounts(nodes, machine, [], np.ones(4, np.bool_), np.zeros_like(machine.capacity))
    expected = {
        "shard": ([12, 0, 0, 8], [2, 0, 0, 4]),
        "gpu@shard": ([12, 8, 12, 8], [2, 8, 12, 4]),
        "shard@gpu0": ([4, 0, 0, 4], [1, 0, 0, 0]),
        "shard@gpu1": ([4, 0, 0, 4], [2, 0, 0, 4]),
        "mps": ([0, 200, 0, 0], [0, 40, 0, 0]),
        "gpu@mps": ([300, 200, 300, 200], [300, 140, 300, 200]),
        "gpu": ([3, 2, 3, 2], [2, 2, 2, 1]),
        "gpu:a100": ([3, 0, 1, 0], [2, 0, 0, 0]),  # accounting does not track types
        "gpu:1g.5gb": ([0, 0, 2, 0], [0, 0, 2, 0]),
        "mps@gpu1": ([0, 100, 0, 0], [0, 0, 0, 0]),  # MPS shares one GPU at a time
    }
    columns = {name: machine.resources.index(name) for name in expected}
    found = {name: (machine.capacity[:, at].tolist(), free[:, at].tolist()) for name, at in columns.items()}
    assert found == expected


def a_shared_scene(**facts: Any) -> Scene:
    """n3 and n4 have two GPUs with 4 and 2 shards each; the job requests one shard."""
    scene = Scene().only("gpu-task")
    for name, parts in (("n3", 4), ("n4", 2)):
        shared = SharedGpus("shard", parts, (0, 0))
        scene.node(name).update(configured_gres={"gpu": 2, "shard": 2 * parts}, shared_gpus=shared)
    request: dict[str, Any] = {"gres_per_node": {"gres/shard": 1}, "tres_per_task": None, "requested_tres": None}
    scene.job("gpu-task").update(**request | {"ntasks": 1, "num_nodes": 1, "max_nodes": None} | facts)
    return scene


def test_job_goes_only_to_gpus_with_enough_parts() -> None:
    seen = SlurmTranslator().observe(a_shared_scene(gres_per_node={"gres/shard": 3}).read())
    (pending,) = seen.pending
    columns = [seen.cluster.resources.index(name) for name in ("gpu", "shard", "gpu@shard", "shard@gpu0")]
    assert [pending.job.request.per_unit[column] for column in columns] == [0, 3, 3, 0]
    assert seen.cluster.node_sets[pending.job.request.node_set].tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("facts", "spreads", "reason"),
    [
        ({"gres_per_node": {"gres/shard": 5}}, False, "requests more parts of a GPU than its nodes have"),
        ({"gres_per_node": {"gres/shard": 1, "gres/gpu": 1}}, False,
         "requests parts of GPUs in addition to other GPUs"),
        ({"ntasks": 11, "num_nodes": 1, "max_nodes": 11, "gres_per_node": {}, "tres_per_task": {"gres/shard": 1}},
         False, "requests parts of GPUs for tasks that Slurm distributes"),
        ({}, True, "requests parts of GPUs on nodes where one job may share several GPUs"),
    ],
)  # fmt: skip
def test_leaves_other_requests_of_parts(facts: dict[str, Any], spreads: bool, reason: str) -> None:
    translator = SlurmTranslator(SelectRules(spreads_gpu_parts=spreads))
    (left,) = translator.observe(a_shared_scene(**facts).read()).unmanaged
    assert left.reason.arguments[-1] == reason


def test_whole_gpus_use_all_parts() -> None:
    seen = SlurmTranslator().observe(a_shared_scene(gres_per_node={"gres/gpu": 2}).read())
    column = seen.cluster.resources.index("gpu@shard")
    assert seen.pending[0].job.request.per_unit[column] == 8
    assert set(seen.cluster.capacity[:, column]) == {8}, "as if all GPUs had most parts"


def test_last_job_returns_the_rest_of_the_gpus() -> None:
    """Job 1 uses a shard of one GPU, and job 2 of the other, so that no GPU is unused."""
    nodes = [a_node("n1", configured_gres={"gpu": 2, "shard": 8}, shared_gpus=SharedGpus("shard", 4, (1, 2)))]
    machine = SlurmNodeTable.from_records(nodes)
    requests = [a_job(gres_per_node={"gres/shard": count}, id=count) for count in (1, 2)]
    translated = [translate_placed_job(job, job.id, machine, 1) for job in requests]
    running = [RunningJob(job, start_s, ((0, 1),)) for job, start_s in zip(translated, (20, 10), strict=True)]
    free = compute_free_amounts(nodes, machine, running, np.array([True]), np.zeros_like(machine.capacity))
    column = [machine.resources.index(name) for name in ("shard", "gpu@shard")]
    assert free[0, column].tolist() == [3, 3]
    returned = return_gpus_with_last_job(machine, running, free, np.array([True]))
    assert [[job.job.request.per_unit[at] for at in column] for job in returned] == [[3, 3], [2, 2]]
    assert return_gpus_with_last_job(machine, running, free, np.array([False])) == running
