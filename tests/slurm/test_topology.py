"""Test that each transport reads topologies that only topology.yaml defines (Slurm 25.05 and later)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.harness import RELEASE, Slurm
from tests.slurm.inside import transports

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(RELEASE["slurm"] < "25.05", reason="topology.yaml came with 25.05"),
]

FILE = "/etc/slurm/topology.yaml"
TOPOLOGIES = """
- topology: trees
  cluster_default: true
  tree:
    switches:
      - {switch: s1, nodes: "n[1-2]"}
      - {switch: s2, nodes: "n[3-4]"}
- topology: blocks
  block:
    block_sizes: [2, 4]
    blocks:
      - {block: b1, nodes: "n[1-2]"}
      - {block: b2, nodes: "n[3-4]"}
      - {block: empty}
- topology: plain
  flat: true
"""
SWITCHES = {"n1": "s1", "n2": "s1", "n3": "s2", "n4": "s2"}
LEAVES = {"n1": 0, "n2": 0, "n3": 1, "n4": 1}
BLOCKS = {"n1": "b1", "n2": "b1", "n3": "b2", "n4": "b2"}


@pytest.fixture
def with_topologies(slurm: Slurm) -> Iterator[Slurm]:
    slurm.run("sh", "-c", f"cat > {FILE}", stdin=TOPOLOGIES)
    slurm.restart("slurmctld")
    slurm.scontrol("update", "PartitionName=short", "Topology=plain")
    slurm.scontrol("update", "PartitionName=gpu", "Topology=blocks")
    try:
        yield slurm
    finally:
        for name in ("short", "gpu"):
            slurm.scontrol("update", f"PartitionName={name}", "Topology=")
        slurm.run("rm", FILE)
        slurm.restart("slurmctld")


@pytest.mark.parametrize("transport", ["cli", *(["pyslurm"] if RELEASE["pyslurm"] else [])])
def test_reads_topologies_of_topology_yaml(with_topologies: Slurm, transport: str) -> None:
    """The setting `TopologyPlugin` still shows topology/flat, which Slurm does not use."""
    seen = with_topologies.call(transports.read_topologies, transport)
    plain = {"plugin": "", "networks": {}, "leaves": {}, "blocks": {}, "block_count": 0, "block_sizes": []}
    trees = plain | {"plugin": "topology/tree", "networks": SWITCHES, "leaves": LEAVES}
    blocks = plain | {"plugin": "topology/block", "networks": BLOCKS}
    blocks |= {"blocks": LEAVES, "block_count": 3, "block_sizes": [2, 4]}
    topologies = {"": trees, "trees": trees, "blocks": blocks, "plain": plain}
    partitions = {"main": None, "short": "plain", "gpu": "blocks", "closed": None}
    assert seen == [topologies, partitions, "topology/flat", ["topology/block", "topology/tree"]]
