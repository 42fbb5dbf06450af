"""Topologies, partial GPUs and preferences: jobs whose nodes Slurm may reject are unmanaged."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched.model import BlockRule
from cpsched.slurm_text.configuration import SelectRules, SlurmConfig
from cpsched.slurm_text.object_parsing import parse_topology
from cpsched.slurm_text.objects import SlurmTopology
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import find_restricting_topology_plugins
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.transport.programs.layout_queries import (
    UNREADABLE_TOPOLOGY,
    read_topologies,
)
from tests.builders import words
from tests.unit.bridge.adapters.slurm.scenes import Scene

NEVER_FILLED = "its nodes never fill blocks as the topology requires"
ALONE = "the topology plugin may reject its nodes"
TOGETHER = "the topology plugin may reject its combination of nodes"
NO_PARTS_SHOWN = "requests parts of GPUs, whose use its nodes do not show"
SPREAD = "requests GPUs on nodes where one job may share several GPUs (MULTIPLE_SHARING_GRES_PJ)"


@pytest.mark.parametrize(
    ("plugin", "parameters", "decides"),
    [
        (None, None, False),
        ("topology/none", [], False),
        ("topology/default", [], False),
        ("topology/flat", [], False),
        ("topology/tree", ["RouteTree"], True),
        ("topology/tree", ["Dragonfly", "TopoOptional"], False),
        ("topology/block", ["TopoOptional"], True),
        ("topology/3d_torus", [], True),
        ("topology/of_2030", [], True),
    ],
)
def test_decides_which_topology_plugins_choose_nodes(plugin: str | None, parameters: Any, decides: bool) -> None:
    """One that is not known does."""
    found = find_restricting_topology_plugins(SlurmConfig(topology_plugin=plugin, topology_parameters=parameters), {})
    assert found == dict.fromkeys(("", "default"), plugin if decides else "")


ONE = {"n1": "top", "n2": "top", "n3": "top", "n4": "top"}
TWO = {"n1": "s1", "n2": "s1", "n3": "s2", "n4": "s2"}
OUTSIDE = {"n1": "top", "n2": "top", "n3": "top"}


def reason(scene: Scene, name: str, translator: SlurmTranslator | None = None) -> str | None:
    seen = (translator or SlurmTranslator()).observe(scene.read())
    found = {each.job_id: words(each.reason) for each in seen.unmanaged}
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
def test_leaves_multi_node_job_unless_below_one_switch(
    networks: dict[str, str], facts: dict[str, Any], left: bool
) -> None:
    scene = Scene().only("two-nodes")
    scene.topologies = {"": SlurmTopology("topology/tree", networks)}
    scene.job("two-nodes").update(facts)
    assert reason(scene, "two-nodes") == (TOGETHER if left else None)
    scene.topologies = {"": SlurmTopology("", networks)}
    assert reason(scene, "two-nodes") is None


def test_topology_keeps_tasks_on_one_node() -> None:
    """Without a topology they would be taken task by task where no node has room for all."""
    scene = Scene().only("six")
    scene.with_each_node(state="MIXED", allocated_cpus=12)
    for plugin, units in (("", 6), ("topology/block", 1)):
        scene.topologies = {"": SlurmTopology(plugin, {})}
        assert SlurmTranslator().observe(scene.read()).pending[0].job.request.units == units


ONE_NODE = {"ntasks": 1, "cpus": 1, "num_nodes": 1, "max_nodes": 1}


@pytest.mark.parametrize(
    ("named", "several", "one"),
    [
        (None, None, None),
        ("trees", None, None),
        ("blocks", TOGETHER, None),
        ("plain", None, None),
        ("torus", ALONE, ALONE),
        ("added now", ALONE, ALONE),
    ],
)
def test_uses_topology_of_partition(named: str | None, several: str | None, one: str | None) -> None:
    """One that Slurm has not shown yet may reject any node; so may one of a plugin that is not known."""
    scene = Scene().only("two-nodes")
    scene.topologies = {
        "": SlurmTopology("topology/tree", ONE),
        "trees": SlurmTopology("topology/tree", ONE),
        "blocks": SlurmTopology("topology/block", TWO),
        "plain": SlurmTopology("", {}),
        "torus": SlurmTopology("topology/torus3d", {}),
    }
    scene.partition("main")["topology"] = named
    assert reason(scene, "two-nodes") == several
    scene.job("two-nodes").update(ONE_NODE)
    assert reason(scene, "two-nodes") == one


def test_changed_topology_applies_from_next_reading() -> None:
    """`scontrol reconfigure` makes another topology of topology.yaml the default."""
    scene, translator = Scene().only("two-nodes"), SlurmTranslator()
    for topology, left in (("topology/flat", 0), ("topology/tree", 1)):
        plugins = find_restricting_topology_plugins(SlurmConfig(topology_plugin=topology), {})
        scene.topologies = {name: SlurmTopology(plugin, TWO) for name, plugin in plugins.items()}
        assert len(translator.observe(scene.read()).unmanaged) == left


def test_leaves_jobs_of_partition_with_exclusive_topology() -> None:
    scene = Scene().only("two-nodes").with_partition("main", is_topology_exclusive=True)
    assert reason(scene, "two-nodes") == "partition main: it gives each job exclusive parts of the topology"


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
def test_parses_top_switch_or_block_of_each_node(printed: str, networks: dict[str, str]) -> None:
    """A node below two of them is below none alone."""
    assert parse_topology("topology/tree", printed).networks == networks


@pytest.mark.parametrize(
    ("printed", "leaves"),
    [
        ("", {}),
        (TREE, {"n1": 0, "n2": 0, "n3": 1, "n4": 1}),
        (BLOCKS, {}),
        (TREE + "SwitchName=other Level=0 LinkSpeed=1 Nodes=n[4-5]\n", {"n1": 0, "n2": 0, "n3": 1, "n5": 3}),
    ],
)
def test_parses_leaf_switch_of_each_node(printed: str, leaves: dict[str, int]) -> None:
    assert parse_topology("topology/tree", printed).leaves == leaves


@pytest.mark.parametrize(
    ("printed", "blocks", "count", "sizes"),
    [
        (TREE, {}, 0, ()),
        (BLOCKS, {"n1": 0, "n2": 0, "n3": 1, "n4": 1}, 2, (2, 4)),
        (
            "BlockName=b1 BlockIndex=0 BlockSize=18\nBlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=18\n",
            {"n3": 1, "n4": 1}, 2, (18,),
        ),
        (BLOCKS + "BlockName=b3 BlockIndex=3 Nodes=n4 BlockSize=2\n", {}, 3, (2, 4)),
    ],
)  # fmt: skip
def test_parses_base_block_of_each_node(
    printed: str, blocks: dict[str, int], count: int, sizes: tuple[int, ...]
) -> None:
    """Blocks without nodes count. If a node is in several blocks, no block is known."""
    found = parse_topology("topology/block", printed)
    assert (found.blocks, found.block_count, found.block_sizes) == (blocks, count, sizes)


def rule_of(scene: Scene, name: str, translator: SlurmTranslator | None = None) -> tuple[Any, list[str]]:
    """Return the only job's rule and the nodes that it may use."""
    seen = (translator or SlurmTranslator()).observe(scene.read())
    (pending,) = seen.pending
    row, cluster = pending.job.request.node_set, seen.cluster
    nodes = [node for node, ok in zip(cluster.node_names, cluster.node_sets[row], strict=True) if ok]
    return cluster.node_set_blocks[row], nodes


ALL = ["n1", "n2", "n3", "n4"]
GAPS = BLOCKS.replace("n[3-4]", "n3").replace("n[1-4]", "n[1-3]")


@pytest.mark.parametrize(
    ("printed", "facts", "rule", "nodes"),
    [
        (BLOCKS, {}, BlockRule(0), ALL),
        (GAPS, {}, BlockRule(0), ["n1", "n2", "n3"]),
        (BLOCKS, {"segment_size": 1}, BlockRule(0, 1), ALL),
        (BLOCKS, {"segment_size": 1, "spread_segments": True, "consolidate_segments": True},
         BlockRule(0, 1, True, True), ALL),
        (BLOCKS, {"segment_size": 2, "spread_segments": True}, BlockRule(0), ALL),
        (BLOCKS, ONE_NODE, None, ALL),
        (GAPS, {**ONE_NODE, "segment_size": 1}, None, ALL),
        (TREE, {"segment_size": 1}, None, ALL),
    ],
)  # fmt: skip
def test_jobs_on_several_nodes_fill_blocks(printed: str, facts: Any, rule: Any, nodes: list[str]) -> None:
    """A segment as large as the job changes nothing. Only nodes in blocks are used."""
    scene = Scene().only("two-nodes")
    plugin = "topology/tree" if printed == TREE else "topology/block"
    scene.topologies = {"": parse_topology(plugin, printed)}
    scene.job("two-nodes").update(facts)
    assert rule_of(scene, "two-nodes") == (rule, nodes)


def test_partitions_use_blocks_of_their_topologies_as_they_change() -> None:
    scene, translator = Scene().only("two-nodes"), SlurmTranslator()
    wide = BLOCKS.replace("BlockSize=2", "BlockSize=4")
    blocks, wider = (parse_topology("topology/block", printed) for printed in (BLOCKS, wide))
    scene.topologies = {"": blocks, "narrow": blocks, "wide": wider}
    rules = []
    for name in (None, "narrow", "wide"):
        scene.partition("main")["topology"] = name
        rules.append(rule_of(scene, "two-nodes", translator)[0])
    assert rules == [BlockRule(0), BlockRule(0), BlockRule(1)]
    scene.topologies = {"": blocks, "narrow": blocks, "wide": parse_topology("topology/block", GAPS)}
    assert rule_of(scene, "two-nodes", translator) == (BlockRule(1), ["n1", "n2", "n3"])


@pytest.mark.parametrize(
    ("printed", "facts", "why"),
    [
        ("BlockName=b1 BlockIndex=0 Nodes=n[1-4]\n", {"segment_size": 1}, TOGETHER),
        (BLOCKS + "BlockName=b3 BlockIndex=3 Nodes=n4 BlockSize=2\n", {}, TOGETHER),
        (BLOCKS.replace("n[1-2]", "n1").replace("n[3-4]", "n3"),
         {"num_nodes": 3, "max_nodes": 3, "ntasks": 3}, NEVER_FILLED),
        (BLOCKS, {"num_nodes": 3, "max_nodes": 3, "ntasks": 3, "segment_size": 2}, NEVER_FILLED),
    ],
)  # fmt: skip
def test_leaves_jobs_whose_blocks_are_unknown_or_never_filled(printed: str, facts: Any, why: str) -> None:
    scene = Scene().only("two-nodes")
    scene.topologies = {"": parse_topology("topology/block", printed)}
    scene.job("two-nodes").update(facts)
    assert reason(scene, "two-nodes") == why


@pytest.mark.parametrize(("leaves", "found"), [([0, 0, 1, 1], [0, 0, 1, 1]), ([0, 0, 0, 0], None), ([0, 1, 2], None)])
def test_cluster_has_leaf_switches_unless_some_are_unknown(leaves: list[int], found: list[int] | None) -> None:
    scene = Scene()
    known = dict(zip(("n1", "n2", "n3", "n4"), leaves, strict=False))
    scene.topologies = {"": SlurmTopology("topology/tree", ONE, known)}
    seen = SlurmTranslator().observe(scene.read()).cluster.leaf_switches
    assert (None if seen is None else seen.tolist()) == found


NAMED = """\
%YAML 1.1
---
- topology: plain
  cluster_default: true
  block: {}
  flat: true
  ring: {}
  torus3d: {}
  tree: {}
- topology: trees
  cluster_default: false
  block: {}
  flat: {}
  ring: {}
  torus3d: {}
  tree:
    switches:
    - switch: s1
      children:
      nodes: n[1-4]
...
"""
"""Recorded on 26.05; 25.05 prints `flat: false` for {}."""


@pytest.mark.parametrize("printed", [NAMED, NAMED.replace("flat: {}", "flat: false")])
def test_topology_yaml_replaces_configured_plugin(printed: str) -> None:
    """Each is asked for by its name, and `scontrol show config` has nothing to say."""
    asked = {("scontrol", "show", "topology", "trees"): TREE}
    config = SlurmConfig(topology_plugin="topology/block")
    flat, trees = (
        SlurmTopology("", {}),
        SlurmTopology("topology/tree", ONE, parse_topology("topology/tree", TREE).leaves),
    )
    assert read_topologies(config, printed, lambda command: asked[tuple(command)]) == {
        "": flat, "plain": flat, "trees": trees,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "plugin"),
    [
        ("", "topology/block"),
        (NAMED[: NAMED.index("- topology")] + "- topology: default\n  tree: {}\n  flat: {}\n", "topology/block"),
        ("[", UNREADABLE_TOPOLOGY),
        ("- 7", UNREADABLE_TOPOLOGY),
        ("topology", UNREADABLE_TOPOLOGY),
        ("- topology: new\n  flat: {}\n  of_2030:\n    size: 4\n", "topology/of_2030"),
    ],
)
def test_reads_configured_or_unreadable_topology(printed: str, plugin: str) -> None:
    """Jobs are left to Slurm under a topology that cannot be read."""
    assert (
        read_topologies(SlurmConfig(topology_plugin="topology/block"), printed, lambda command: "")[""].plugin == plugin
    )


@pytest.mark.parametrize(
    ("gres", "facts", "spread", "expected"),
    [
        ({"gpu:a100": 2, "shard": 8}, {}, False, None),
        ({"gpu:a100": 2, "shard": 8}, {"tres_per_task": {"gres/shard": 1}}, False, NO_PARTS_SHOWN),
        ({"gpu": 2, "mps": 200}, {"tres_per_task": {"gres/mps": 50}}, False, NO_PARTS_SHOWN),
        ({"gpu:a100": 2, "shard": 8}, {}, True, SPREAD),
        ({"gpu": 2, "mps": 200}, {}, True, SPREAD),
        ({"gpu:a100": 2}, {}, True, None),
        ({"gpu:a100": 2, "shard": 8}, {"tres_per_task": None, "requested_tres": {"cpu": 4}}, True, None),
        ({"gpu:a100": 2, "shard": 8}, {"excluded_nodes": "n1"}, True, None),
    ],
)
def test_leaves_requests_of_gpu_parts(
    gres: dict[str, int], facts: dict[str, Any], spread: bool, expected: str | None
) -> None:
    """n1 alone has parts of GPUs; who may not go there is not concerned."""
    scene = Scene().only("gpu-task").with_node("n1", configured_gres=gres)
    if expected == NO_PARTS_SHOWN:
        scene.job("gpu-task")["requested_tres"] = None
    scene.job("gpu-task").update(facts)
    assert reason(scene, "gpu-task", SlurmTranslator(SelectRules(spreads_gpu_parts=spread))) == expected


def test_leaves_jobs_with_preferred_features() -> None:
    scene = Scene().only("first").with_job("first", preferred_features="fast")
    assert reason(scene, "first") == "prefers features"
