"""Topologies, GPUs in parts and preferences: jobs whose nodes Slurm may refuse are left to it."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.translation.slurm_nodes import has_topology
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.transport.programs.topology import parse_topology
from tests.builders import words
from tests.unit.bridge.adapters.slurm.scenes import Scene

TOGETHER = "several nodes, which the topology plugin may not take together"
IN_PARTS = "GPUs of nodes that give them out in parts (shard, mps), too"


@pytest.mark.parametrize(
    ("plugin", "parameters", "decides"),
    [
        (None, None, False),
        ("topology/none", [], False),
        ("topology/default", [], False),
        ("topology/flat", [], False),
        ("topology/tree", ["RouteTree"], True),
        ("topology/tree", ["Dragonfly", "TopoOptional"], False),
        ("topology/tree", "TopoOptional,RoutePart", False),
        ("topology/block", ["TopoOptional"], True),
        ("topology/3d_torus", [], True),
        ("topology/of_2030", [], True),
    ],
)
def test_which_topology_plugins_decide(plugin: str | None, parameters: Any, decides: bool) -> None:
    """One that is not known does."""
    assert has_topology({"topology_plugin": plugin, "topology_parameters": parameters}) is decides


ONE = {"n1": "top", "n2": "top", "n3": "top", "n4": "top"}
TWO = {"n1": "s1", "n2": "s1", "n3": "s2", "n4": "s2"}
OUTSIDE = {"n1": "top", "n2": "top", "n3": "top"}


def reason(scene: Scene, name: str, topology: bool = True) -> str | None:
    seen = SlurmTranslator(has_topology=topology).observe(scene.read())
    found = {each.job_id: words(each.reason) for each in seen.left}
    job = scene.job(name)["id"]
    assert job in found or [each.job.id for each in seen.pending] == [job]
    return found.get(job)


@pytest.mark.parametrize(
    ("networks", "facts", "left"),
    [
        (TWO, {}, True),
        (ONE, {}, False),
        (OUTSIDE, {}, True),
        ({}, {}, True),
        (TWO, {"constraints": ["fast"]}, False),
        (OUTSIDE, {"constraints": ["fast"]}, False),
        (TWO, {"ntasks": 1, "cpus": 1, "num_nodes": 1, "max_nodes": 1}, False),
        ({}, {"ntasks": 20, "cpus": 20, "num_nodes": 1, "max_nodes": None}, True),
    ],
)
def test_several_nodes_are_slurms_to_choose_unless_they_are_below_one_switch(
    networks: dict[str, str], facts: dict[str, Any], left: bool
) -> None:
    scene = Scene().only("two-nodes")
    scene.networks = networks
    scene.job("two-nodes").update(facts)
    assert reason(scene, "two-nodes") == (TOGETHER if left else None)
    assert reason(scene, "two-nodes", topology=False) is None


def test_tasks_that_could_be_on_one_node_are_kept_there() -> None:
    """Without a topology they would be taken task by task where no node has room for all."""
    scene = Scene().only("six")
    for node in scene.rows["nodes"]:
        node.update(state="MIXED", allocated_cpus=12)
    for topology, units in ((False, 6), (True, 1)):
        seen = SlurmTranslator(has_topology=topology).observe(scene.read())
        assert seen.pending[0].job.request.units == units


def test_a_partition_with_a_topology_of_its_own() -> None:
    scene = Scene().only("two-nodes")
    scene.partition("main")["topology"] = "blocks"
    assert reason(scene, "two-nodes", topology=False) == TOGETHER
    scene.partition("main").update(topology=None, is_topology_exclusive=True)
    assert reason(scene, "two-nodes", False) == "partition main: parts of the topology exclusive to a job"


TREE = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]
"""
BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4
"""


@pytest.mark.parametrize(
    ("printed", "networks"),
    [
        ("", {}),
        ("No topology information available\n", {}),
        (TREE, ONE),
        (TREE.rpartition("SwitchName")[0], {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2"}),
        (BLOCKS, {"n1": "b1", "n2": "b1", "n3": "b2", "n4": "b2"}),
        (TREE + "SwitchName=other Level=1 LinkSpeed=1 Nodes=n4\n", dict.fromkeys(("n1", "n2", "n3"), "top")),
    ],
)
def test_the_highest_switch_or_the_block_of_each_node(printed: str, networks: dict[str, str]) -> None:
    """A node below two of them is below none alone."""
    assert parse_topology(printed) == networks


@pytest.mark.parametrize(
    ("gres", "facts", "left"),
    [
        ({"gpu:a100": 2, "shard": 8}, {}, True),
        ({"gpu": 2, "mps": 200}, {}, True),
        ({"gpu:a100": 2}, {}, False),
        ({"gpu:a100": 2, "shard": 8}, {"tres_per_task": {"gres/shard": 1}}, True),
        ({"gpu:a100": 2, "shard": 8}, {"tres_per_task": None, "requested_tres": {"cpu": 4}}, False),
        ({"gpu:a100": 2, "shard": 8}, {"excluded_nodes": "n1"}, False),
    ],
)
def test_gpus_of_nodes_with_shards(gres: dict[str, int], facts: dict[str, Any], left: bool) -> None:
    """n1 alone has them; who may not go there is not concerned."""
    scene = Scene().only("gpu-task")
    scene.node("n1")["configured_gres"] = gres
    if "shard" in str(facts):
        scene.job("gpu-task")["requested_tres"] = None
    scene.job("gpu-task").update(facts)
    assert reason(scene, "gpu-task", False) == (IN_PARTS if left else None)


def test_preferred_features() -> None:
    scene = Scene().only("first")
    scene.job("first")["preferred_features"] = "fast"
    assert reason(scene, "first", False) == "prefers features"
