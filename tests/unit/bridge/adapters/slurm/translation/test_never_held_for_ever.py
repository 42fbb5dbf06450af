"""No job is held for ever because the bridge assumes that it cannot run: such a job is unmanaged."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from cpsched.feasibility import why_infeasible
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.ports import NO_SETTINGS
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.unit.bridge.adapters.slurm.scenes import Scene

ASKED = st.fixed_dictionaries(
    {
        "ntasks": st.integers(1, 70),
        "num_nodes": st.integers(0, 6),
        "max_nodes": st.none() | st.integers(0, 70),
        "cpus_per_task": st.integers(1, 18),
        "ntasks_per_node": st.none() | st.integers(1, 20),
        "min_cpus_per_node": st.none() | st.integers(1, 20),
        "memory_per_node": st.none() | st.integers(0, 20_000),
        "memory_per_cpu": st.none() | st.integers(0, 20_000),
        "gres_per_node": st.none() | st.fixed_dictionaries({"gres:gpu": st.integers(1, 4)}),
        "tres_per_task": st.none() | st.fixed_dictionaries({"gres/gpu": st.integers(1, 3)}),
        "excluded_nodes": st.none() | st.sampled_from(["n1", "n[1-3]", "n[1-4]"]),
        "constraints": st.none() | st.sampled_from([["rack1"], ["nowhere"]]),
        "resource_sharing": st.sampled_from(["OK", "NO"]),
    }
)
PARTITION = st.fixed_dictionaries({"max_nodes": st.none() | st.integers(0, 5), "min_nodes": st.integers(0, 3)})
BUSY = st.lists(st.integers(0, 16), min_size=4, max_size=4)


def a_scene(asked: dict[str, Any], partition: dict[str, Any], busy: list[int]) -> Scene:
    """One job of the bridge's beside four nodes of 16 cores and 16 GiB, two of them with 2 GPUs, some cores in use."""
    scene = Scene().only("six").with_job("six", **asked).with_partition("main", **partition)
    for node, cores in zip(scene.rows["nodes"], busy, strict=True):
        node["allocated_cpus"] = cores
    return scene


@scaled_example_settings(400, suppress_health_check=[HealthCheck.too_slow])
@given(ASKED, PARTITION, BUSY)
def test_every_managed_job_fits_on_empty_cluster(
    asked: dict[str, Any], partition: dict[str, Any], busy: list[int]
) -> None:
    seen = SlurmTranslator().observe(a_scene(asked, partition, busy).read())
    assert len(seen.pending) + len(seen.unmanaged) == 1
    assert all(left.reason and left.held_for_bridge for left in seen.unmanaged)
    for pending in seen.pending:
        assert pending.job.ineligible is None
        assert why_infeasible(pending.job.request, seen.cluster) is None
        assert pending.start_settings == NO_SETTINGS or pending.start_settings.restore


def test_manages_17_tasks_on_16_core_nodes_and_prime_counts() -> None:
    for tasks in (17, 19, 23, 31, 37, 38, 41, 61):
        asked = {"ntasks": tasks, "num_nodes": -(-tasks // 16), "max_nodes": tasks}
        (pending,) = SlurmTranslator().observe(a_scene(asked, {}, [0] * 4).read()).pending
        request = pending.job.request
        assert (pending.job.ineligible, request.distinct, request.units) == (None, False, tasks)


def test_uses_unequal_shares_only_to_start_now_and_keeps_them() -> None:
    """Eight tasks in one share, else where nothing but cores on several nodes is free."""
    scene, translator = a_scene({"ntasks": 8, "num_nodes": 1, "max_nodes": 8}, {}, [16, 16, 16, 8]), SlurmTranslator()

    def units() -> int:
        (pending,) = translator.observe(scene.read(), {scene.job("six")["id"]}).pending
        return pending.job.request.units

    def busy(*cores: int) -> None:
        for node, each in zip(scene.rows["nodes"], cores, strict=True):
            node["allocated_cpus"] = each

    assert units() == 1
    busy(16, 16, 12, 12)
    assert units() == 8
    busy(16, 16, 16, 12)
    assert units() == 1, "neither can start: the job waits for one node"
    busy(16, 16, 12, 12)
    assert units() == 8
    scene.job("six").update(required_nodes="n[3-4]", num_nodes=2, max_nodes=2, priority=7, state_reason="None")
    busy(0, 0, 12, 12)
    assert units() == 8, "on its way"
    scene.job("six").update(required_nodes=None, num_nodes=1, max_nodes=8, priority=0, state_reason="JobHeldAdmin")
    assert units() == 1


def test_pinned_job_of_earlier_bridge_keeps_its_node_count() -> None:
    asked = {"ntasks": 17, "num_nodes": 2, "max_nodes": 2, "required_nodes": "n[1-2]", "priority": 7}
    scene = a_scene(asked, {}, [0] * 4)
    (pending,) = SlurmTranslator().observe(scene.read(), {scene.job("six")["id"]}).pending
    assert (pending.job.request.units, pending.job.request.distinct) == (17, False)
