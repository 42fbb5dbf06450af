"""Parsing the nodes that Slurm prints."""

from pathlib import Path

import pytest

from cpsched_sim.errors import InputError
from cpsched_sim.systems.slurm_node_parsing import (
    get_node_amounts,
    is_unavailable_state,
    list_other_gres,
    list_shared_gres,
    parse_slurm_nodes,
)

DATA = Path(__file__).parents[3] / "data" / "slurm" / "nodes"
LAB = [
    ("n1", 16, 16384, 0, {"main", "short", "closed"}), ("n2", 16, 16384, 0, {"main", "short", "closed"}),
    ("n3", 16, 16384, 2, {"main", "gpu", "closed"}), ("n4", 16, 16384, 2, {"main", "gpu", "closed"}),
]  # fmt: skip


def nodes(text):
    return parse_slurm_nodes(text, "x").nodes


def facts(node):
    return node.name, *get_node_amounts(node), set(node.partitions)


@pytest.mark.parametrize("name", ["scontrol.txt", "scontrol-o.txt", "sinfo-N-o.txt", "sinfo-o.txt"])
def test_all_slurm_outputs_of_test_cluster_agree(name):
    printed = parse_slurm_nodes((DATA / name).read_text(), name)
    assert sorted(map(facts, printed.nodes)) == LAB
    assert [node.available_features for node in printed.nodes] == [
        ["cpu", "rack1"], ["cpu", "rack2"], ["gpu", "rack1"], ["gpu", "rack2"],
    ]  # fmt: skip
    assert printed.lacks == ()
    assert not any(is_unavailable_state(node.state) for node in printed.nodes)


def test_aligned_sinfo_table_lacks_gpus():
    printed = parse_slurm_nodes((DATA / "sinfo-N-l.txt").read_text(), "x")
    assert [facts(node)[:3] for node in printed.nodes] == [row[:3] for row in LAB]
    assert printed.lacks == ("GRES",)


def test_rejects_default_sinfo_and_names_right_command():
    with pytest.raises(InputError, match=r"sinfo.txt:1: must include cores, memory; to print nodes, run: sinfo -N -o"):
        parse_slurm_nodes((DATA / "sinfo.txt").read_text(), "sinfo.txt")


def test_subtracts_system_reservations():
    (node,) = nodes("NodeName=a CPUEfctv=62 CPUTot=64 RealMemory=1000 MemSpecLimit=100 Weight=7")
    assert (*get_node_amounts(node), node.weight) == (62, 900, 0, 7)
    (node,) = nodes("NodeName=a CPUTot=64 RealMemory=1000")
    assert (*get_node_amounts(node), node.weight) == (64, 1000, 0, None)


@pytest.mark.parametrize(
    ("gres", "gpus", "others"),
    [
        ("(null)", 0, ()), ("gpu:4", 4, ()), ("gpu", 1, ()), ("gpu:a100:4(S:0-1),gpu:v100:2(S:0,1)", 6, ()),
        ("mic:2,gpu:tesla:1", 1, ("mic:2",)), ("gpu:a100:2(IDX:0-1),mps:400", 2, ("mps:400",)),
        ("gpux:3", 0, ("gpux:3",)), ("gpu:2080ti:8(S:0-1)", 8, ()), ("gpu:h100:2(S:0,3),gpu:1g.10gb:7(S:1)", 9, ()),
        ("gpu:2080ti", 1, ()), ("shard:1K", 0, ("shard:1024",)),
    ],
)  # fmt: skip
def test_counts_gpus_of_any_type_and_keeps_other_gres(gres, gpus, others):
    (node,) = nodes(f"NodeName=a CPUTot=1 RealMemory=1 Gres={gres}")
    assert (get_node_amounts(node).gpus, list_other_gres(node)) == (gpus, list(others))


def test_separates_shared_gres():
    text = "NodeName=a CPUTot=1 RealMemory=1 Gres=gpu:a100:2(S:2,7),scratch:fast:no_consume:1,gpu:tesla:no_consume:4"
    (node,) = nodes(text)
    assert get_node_amounts(node).gpus == 2
    assert (list_other_gres(node), list_shared_gres(node)) == ([], ["scratch:fast:1", "gpu:tesla:4"])


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x85", "\u2028"])
def test_only_slurm_lines_start_node(end):
    found = nodes(f"NodeName=a CPUTot=8 RealMemory=1 Comment=x{end}NodeName=b CPUTot=9 RealMemory=1\n")
    assert [(node.name, node.total_cpus) for node in found] == [("a", 8)]


@pytest.mark.parametrize(
    "text",
    [
        "HOSTNAMES CPUS MEMORY\nn1 16 64000\n", "HOSTNAMES|CPUS(A/I/O/T)|MEMORY\nn1|3/13/0/16|64000\n",
        "CLUSTER: lab\nNODELIST CPUS MEMORY STATECOMPLETE\nn1 16 64000 idle+cloud\n",
        "NODELIST CPUS MEMORY REASON\nn1 16 64000 not yet ready\n",
        "CPUS NODELIST MEMORY\n16 n1 64000\nMEMORY NODELIST CPUS\n64000 n1 16\n",
    ],
)  # fmt: skip
def test_finds_sinfo_columns_by_heading(text):
    assert [(*facts(node)[:3], is_unavailable_state(node.state)) for node in nodes(text)] == [("n1", 16, 64_000, False)]


def test_comment_cannot_change_node():
    (node,) = nodes(
        "NodeName=a CPUTot=8 RealMemory=1 Partitions=p\n   Comment=CPUTot=9999 Partitions=root RealMemory=7"
    )
    assert facts(node) == ("a", 8, 1, 0, {"p"})


def test_repeated_node_is_counted_once():
    assert len(nodes("NodeName=a CPUTot=8 RealMemory=1\nNodeName=a CPUTot=8 RealMemory=1\n")) == 1


def test_merges_partitions_of_sinfo_node_lines():
    text = "NODELIST|PARTITION|CPUS|MEMORY|GRES\nn[01-03]|main*|16+|1000+|\nn[02-03]|gpu|16|1000|gpu:1\n"
    assert [facts(node) for node in nodes(text)] == [
        ("n01", 16, 1000, 0, {"main"}), ("n02", 16, 1000, 0, {"main", "gpu"}), ("n03", 16, 1000, 0, {"main", "gpu"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "away"),
    [
        *((state, False) for state in (
            "", "IDLE", "MIXED+PLANNED", "idle", "mix", "mix-", "alloc", "alloc+", "ALLOCATED+COMPLETING", "comp",
            "plnd", "idle@", "IDLE+CLOUD", "block", "IDLE+DYNAMIC_NORM",
        )),
        *((state, True) for state in (
            "down*", "IDLE+DRAIN", "alloc*", "maint", "drng", "drain", "drng*", "resv", "inval", "unk", "unk*",
            "pow_dn", "pow_up", "powering_up", "IDLE+CLOUD+POWERED_DOWN", "IDLE+POWER_DOWN", "idle~", "mix#", "idle%",
            "idle!", "alloc$", "boot^", "failg", "futr", "FUTURE", "IDLE+RESERVED", "IDLE+MAINTENANCE+RESERVED", "npc",
            "?", "IDLE+INVALID_REG", "MIXED+NOT_RESPONDING",
        )),
    ],
)  # fmt: skip
def test_node_state_gives_availability(state, away):
    assert is_unavailable_state(state) is away


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x: is not the output of scontrol or sinfo"),
        ("hello", "x: is not the output"),
        (
            "NodeName=a RealMemory=1",
            "x:1: scontrol does not print CPUTot; to print nodes, run: scontrol -o show node",
        ),
        ("\nNodeName=a CPUTot=x RealMemory=1", "x:2: CPUTot=x: must be a whole number"),
        ("NodeName=a CPUTot=1 RealMemory=" + "9" * 30, "x:1: real_memory: 9999"),
        ("NODELIST|CPUS|MEMORY\nn[1-2|1|1", "x:2: node list 'n.1-2': brackets do not match"),
        ("NODELIST|CPUS|MEMORY\nn1|1\n", "x:2: memory: nothing: must be a whole number"),
        ("NODELIST|CPUS|MEMORY\n", "x: contains no nodes"),
        ("NODELIST REASON CPUS MEMORY\nn1 not ready 16 640\n", "x:2: fields: 5: must be 4"),
        ("CLUSTER|NODELIST|CPUS|MEMORY\nlab|n1|1|1\ngpu|n1|1|1\n", "x:3: CLUSTER: gpu: must be lab, as before"),
        ("CLUSTER: lab\nNODELIST CPUS MEMORY\nn1 1 1\nCLUSTER: gpu\n", "x:4: CLUSTER: gpu: must be lab"),
        ("NodeName=a CPUTot=1 RealMemory=1 Gres=gpu:(", "x:1: generic resources 'gpu:.': brackets do not match"),
        ("NodeName=\x1b[31m CPUTot=\x1b[31m RealMemory=1", r"x:1: CPUTot=.x1b.31m: must be"),
    ],
)
def test_unreadable_input_names_line_and_fix(text, message):
    with pytest.raises(InputError, match=message) as error:
        parse_slurm_nodes(text, "x")
    assert str(error.value).isprintable()
