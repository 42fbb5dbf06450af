"""Generic resources that jobs share (`no_consume`): they limit no job, but a job's nodes must have them."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.ports import Observation
from tests.builders import words
from tests.unit.bridge.adapters.slurm.scenes import Scene


def observed(asks: dict[str, Any], n1: str = "lustre:no_consume", n2: str = "lustre:no_consume") -> Observation:
    """n1 and n2 have two of a resource, n3 and n4 none; the job "first" has the given request."""
    scene = Scene().only("first")
    for node, key in (("n1", n1), ("n2", n2)):
        scene.node(node)["configured_gres"] = {"gpu": 2, key: 2}
    scene.job("first").update(asks)
    return SlurmTranslator().observe(scene.read())


@pytest.mark.parametrize(
    "asks",
    [
        {"gres_per_node": {"lustre": 2}},
        {"tres_per_task": {"gres/lustre": 1}},
        {"requested_tres": {"cpu": 1, "mem": 1000, "node": 1, "gres/lustre": 2}},
    ],
)
def test_shared_gres_selects_nodes_and_takes_nothing(asks: dict[str, Any]) -> None:
    seen = observed(asks)
    (pending,) = seen.pending
    nodes = seen.cluster.node_sets[pending.job.request.node_set].tolist()
    assert (seen.cluster.resources, pending.job.request.per_unit) == (("cores", "memory_mib", "gpu"), (1, 1000, 0))
    assert nodes == [True, True, False, False]


@pytest.mark.parametrize(
    ("asks", "other"),
    [({"gres_per_node": {"lustre": 3}}, "lustre:no_consume"), ({"gres_per_node": {"lustre": 1}}, "lustre")],
)
def test_leaves_shared_gres_of_unequal_amounts(asks: dict[str, Any], other: str) -> None:
    seen = observed(asks, n2=other)
    assert [words(left.reason) for left in seen.unmanaged] == [
        "requests lustre, which jobs share (no_consume) and whose amount differs between nodes"
    ]


@pytest.mark.parametrize(
    ("name", "nodes"), [("lustre", [True, True, False, False]), ("lustre:fast", [True, False, False, False])]
)
def test_general_name_matches_typed_shared_gres(name: str, nodes: list[bool]) -> None:
    seen = observed({"gres_per_node": {name: 1}}, n1="lustre:fast:no_consume", n2="lustre:slow:no_consume")
    assert seen.cluster.node_sets[seen.pending[0].job.request.node_set].tolist() == nodes
