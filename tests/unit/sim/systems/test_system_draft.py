"""System files from what Slurm has configured."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cpsched_sim.errors import InvalidSystem
from cpsched_sim.systems.slurm_node_parsing import ParsedSlurmNodes, SlurmNode, parse_nodes
from cpsched_sim.systems.system_draft import checked_draft, draft_from_nodes, prefix_of
from cpsched_sim.systems.system_file import System
from cpsched_sim.traces.trace_record import UnitsRequest
from tests.unit.sim.systems.test_slurm_node_parsing import DATA


def drafted(*nodes, lacks=(), name="lab"):
    text, file = checked_draft(draft_from_nodes(ParsedSlurmNodes(nodes, lacks), name, "a test"))
    return text, System(file)


def of_lab(name):
    return checked_draft(draft_from_nodes(parse_nodes((DATA / name).read_text(), name), "lab", "a test"))[0]


def test_the_test_cluster_is_drafted_alike_however_it_was_printed():
    first, *others = map(of_lab, ("scontrol.txt", "scontrol-o.txt", "sinfo-N-o.txt", "sinfo-o.txt"))
    assert {*others} == {first}
    content = yaml.safe_load(first)
    assert content["partitions"] == {
        "closed": ["cpu16-16g", "cpu16-16g-gpu2"], "gpu": ["cpu16-16g-gpu2"], "main": ["cpu16-16g", "cpu16-16g-gpu2"],
        "short": ["cpu16-16g"],
    }  # fmt: skip
    assert content["node_types"]["cpu16-16g-gpu2"] == {
        "count": 2, "prefix": "n", "each": {"cores": 16, "memory_mib": 16384, "gpus": 2},
    }  # fmt: skip
    assert "# n3, n4; features: gpu, rack1, rack2" in first


def test_jobs_find_their_partition():
    _, system = drafted(SlurmNode("a", 4, 100, partitions=("p",)), SlurmNode("b", 8, 100, partitions=("q",)))
    assert system.request(UnitsRequest(1, (("cores", 8),), partition="q")).units == 1
    with pytest.raises(ValueError, match="must be at most 0, which is how many of 8 cores in p fit"):
        system.request(UnitsRequest(1, (("cores", 8),), partition="p"))


def test_nodes_stand_in_the_order_in_which_slurm_fills_them():
    text, _ = drafted(SlurmNode("gpu1", 8, 1, 4, weight=100), SlurmNode("thin1", 8, 1), SlurmNode("thin2", 8, 1))
    assert list(yaml.safe_load(text)["node_types"]) == ["cpu8", "cpu8-gpu4"]


def test_kinds_of_one_label_and_a_partition_of_that_name_keep_apart():
    nodes = (SlurmNode("a", 8, 1, partitions=("cpu8",)), SlurmNode("b", 8, 2, partitions=("q",)), SlurmNode("c", 8, 3))
    text, system = drafted(*nodes)
    assert list(yaml.safe_load(text)["node_types"]) == ["cpu8-2", "cpu8-3", "cpu8-4"]
    assert system.request(UnitsRequest(1, (("memory_mib", 1),), partition="cpu8")).units == 1


def test_what_its_owner_should_look_at_is_said():
    nodes = (
        SlurmNode("a1", 8, 1, partitions=("p",), state="DOWN+DRAIN"),
        SlurmNode("a2", 8, 1, partitions=("p",), other_gres=("mic:2",)),
        SlurmNode("a3", 8, 900),
    )
    text, _ = drafted(*nodes, lacks=("GRES",))
    for said in (
        "# Missing, and therefore left out: GRES. For all, use: sinfo -N -o",
        "# 1 were down, drained or reserved when printed, but are included: a1.",
        "# Left out, since no trace requests them: mic:2.",
        "# 2 have no memory configured, so no job that requests memory fits: a1, a2.",
        "# 1 are in none of the printed partitions: a3.",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["n1", "n2"], "n"),
        (["node017"], "node"),
        (["r1n1", "r2n1"], "r"),
        (["a", "b"], "n"),
        (["17"], "n"),
        (["x y1"], "xy"),
    ],
)
def test_names_of_nodes_begin_alike(names, prefix):
    assert prefix_of(names) == prefix


TEXTS = st.text(max_size=8) | st.sampled_from(
    ["\x1b[31m", '"', "a\nname: evil", "# x", "\\x1b[31m", "'", "{", "\\", "\u202e", "null"]
)


@given(
    st.lists(
        st.tuples(TEXTS, st.lists(TEXTS.filter(bool), max_size=3), TEXTS, st.integers(0, 9)), min_size=1, max_size=6
    ),
    TEXTS.filter(bool),
)
def test_whatever_names_hold_the_draft_is_a_legal_system_file_of_its_own_nodes(rows, name):
    nodes = [
        SlurmNode(node, 4 + size, 100, size % 3, (text,), (text,), tuple(partitions), text)
        for node, partitions, text, size in rows
    ]
    text, system = drafted(*nodes, name=name)
    assert system.cluster.size == len(nodes)
    assert len(system.file.partitions) <= len({part for node in nodes for part in node.partitions})
    assert all(line.isprintable() for line in text.split("\n"))


def test_more_than_a_system_file_may_hold_is_refused():
    nodes = [SlurmNode(f"n{i}", 1 + i, 1) for i in range(1001)]
    with pytest.raises(InvalidSystem, match="must not be more than 10,000"):
        drafted(*nodes)
