"""System files drafted from Slurm's configuration."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cpsched.slurm_text.objects import SlurmNode
from cpsched_sim.errors import InvalidSystem
from cpsched_sim.systems.slurm_node_parsing import ParsedSlurmNodes, parse_slurm_nodes
from cpsched_sim.systems.system_draft import draft_system_from_nodes, node_name_prefix, render_and_parse_draft
from cpsched_sim.systems.system_file import System
from cpsched_sim.traces.trace_record import UnitsRequest
from tests.unit.sim.systems.test_slurm_node_parsing import DATA


def a_node(name, cores, memory_mib, gres=None, **fields):
    facts = {"name": name, "state": "IDLE", "effective_cpus": cores, "real_memory": memory_mib, **fields}
    return SlurmNode(**facts, configured_gres=gres)


def drafted(*nodes, lacks=(), name="lab"):
    text, file = render_and_parse_draft(draft_system_from_nodes(ParsedSlurmNodes(nodes, lacks), name, "a test"))
    return text, System(file)


def of_lab(name):
    return render_and_parse_draft(
        draft_system_from_nodes(parse_slurm_nodes((DATA / name).read_text(), name), "lab", "a test")
    )[0]


def test_draft_of_test_cluster_is_independent_of_output_form():
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
    _, system = drafted(a_node("a", 4, 100, partitions=("p",)), a_node("b", 8, 100, partitions=("q",)))
    assert system.request(UnitsRequest(1, (("cores", 8),), partition="q")).units == 1
    with pytest.raises(ValueError, match="must be at most 0, the number of units of 8 cores in p that fit"):
        system.request(UnitsRequest(1, (("cores", 8),), partition="p"))


def test_nodes_are_in_slurm_allocation_order():
    text, _ = drafted(a_node("gpu1", 8, 1, {"gpu": 4}, weight=100), a_node("thin1", 8, 1), a_node("thin2", 8, 1))
    assert list(yaml.safe_load(text)["node_types"]) == ["cpu8", "cpu8-gpu4"]


def test_separates_node_kinds_and_partition_of_same_name():
    nodes = (a_node("a", 8, 1, partitions=("cpu8",)), a_node("b", 8, 2, partitions=("q",)), a_node("c", 8, 3))
    text, system = drafted(*nodes)
    assert list(yaml.safe_load(text)["node_types"]) == ["cpu8-2", "cpu8-3", "cpu8-4"]
    assert system.request(UnitsRequest(1, (("memory_mib", 1),), partition="cpu8")).units == 1


def test_reports_what_owner_should_check():
    nodes = (
        a_node("a1", 8, 1, partitions=("p",), state="DOWN+DRAIN"),
        a_node("a2", 8, 1, partitions=("p",), gres={"mic": 2}),
        a_node("a3", 8, 900),
    )
    text, _ = drafted(*nodes, lacks=("GRES",))
    for said in (
        "# Missing and therefore omitted: GRES. For all, use: sinfo -N -o",
        "# 1 were down, drained or reserved when printed, but are included: a1.",
        "# Omitted, because no trace requests them: mic:2.",
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
def test_finds_common_node_name_prefix(names, prefix):
    assert node_name_prefix(names) == prefix


TEXTS = st.text(max_size=8) | st.sampled_from(
    ["\x1b[31m", '"', "a\nname: evil", "# x", "\\x1b[31m", "'", "{", "\\", "\u202e", "null"]
)


@given(
    st.lists(
        st.tuples(TEXTS, st.lists(TEXTS.filter(bool), max_size=3), TEXTS, st.integers(0, 9)), min_size=1, max_size=6
    ),
    TEXTS.filter(bool),
)
def test_draft_is_valid_system_file_for_any_names(rows, name):
    nodes = [
        a_node(
            node,
            4 + size,
            100,
            {"gpu": size % 3, text: 1},
            available_features=[text],
            partitions=partitions,
            state=text,
        )
        for node, partitions, text, size in rows
    ]
    text, system = drafted(*nodes, name=name)
    assert system.cluster.size == len(nodes)
    assert len(system.file.partitions) <= len({part for node in nodes for part in node.partitions})
    assert all(line.isprintable() for line in text.split("\n"))


def test_rejects_draft_above_system_file_limits():
    nodes = [a_node(f"n{i}", 1 + i, 1) for i in range(1001)]
    with pytest.raises(InvalidSystem, match="must be at most 10,000"):
        drafted(*nodes)
