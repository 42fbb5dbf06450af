"""Test that both transports read equal records of a mix of jobs, nodes, partitions and reservations.

pyslurm reads before and after the other transport, so that a change in between does not count as a difference.
`EXPLAINED` gives the reasons for intended differences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.translation import slurm_states
from tests.slurm.harness import RELEASE, Slurm
from tests.slurm.inside import adapter, transports

EXPLAINED = {
    ("special_requests", "['sockets_per_node']", "['sockets_per_node', 'tres_per_socket']"): (
        "pyslurm overlooks a resource that is written with a colon"
    ),
    ("memory_per_node", "100", "0"): "pyslurm takes memory per GPU for memory per node",
    ("name", "'(null)'", "''"): "a job of this name is printed like one without a name",
    ("unreadable", "()", "('MinMemoryTRES',)"): "pyslurm has no field for memory per GPU",
}
"""Reasons for differences, by field, pyslurm's value, and the value from Slurm's programs."""
EMPTY = {"is_topology_exclusive", "qos", "allowed_partitions", "topology_parameters"}
"""Fields that pyslurm lacks, or for which the transports return different empty values."""
LETTER = "a b JobState=RUNNING UserId=root(0)"
FORGED = "x\\n\\nJobId={} JobName=wrap\\n   UserId=root(0)\\n   JobState=RUNNING Reason=None\\n   MinCPUsNode=1\\n\\n"

SUBMIT = r"""
cd; exec 2>&1
held() { sbatch --parsable --hold --output=/dev/null "$@" --wrap 'sleep 300'; }
now() { sbatch --parsable --output=/dev/null "$@" --wrap 'sleep 300'; }
now -N2 -n4 --mem=500
now -N2 -n5 --ntasks-per-node=3 --mem-per-cpu=200
now --gres=gpu:1 -p gpu
now --gpus=2 -p gpu --cpus-per-gpu=2
ended=$(sbatch --parsable --output=/dev/null --wrap true)
failed=$(sbatch --parsable --output=/dev/null --wrap false)
array=$(held --array=0-7%3); scontrol hold "${array}_[2,5]"
held --array=1-9:2 --begin=now+1hour
held -N1; held -n2 -N1-3; held -n6 -N2 --spread-job
held --mem=3G; held --mem=0; held --exclusive; held --exclusive=user; held -s
held -C 'cpu&rack1'; held -C 'gpu|cpu' --batch=cpu
held --deadline=now+3days --time=10; held --time=100 --time-min=50; held --time=UNLIMITED; held --time=600-00
held --contiguous -N2; held --switches=1@10; held -x n2,n3 -w n1
held --extra-node-info=2:4:1; held --ntasks-per-core=1 --ntasks-per-socket=2 -n4; held --mincpus=4; held -c 3 -n 2
held --ntasks-per-gpu=2 --gpus=1 -p gpu; held --gpus-per-task=1 -n1 -p gpu; held --mem-per-gpu=100 --gpus=1 -p gpu
held --gpus-per-socket=1 --sockets-per-node=1 -p gpu; held --tres-per-task=cpu=2,gres/gpu=1 -p gpu -n1
held --segment=2 -N2; held --segment=1 -N2 --spread-segments --consolidate-segments
held --nice=77; held --network=foo; held -p main,short; held --mcs-label=foo; held --bb='#BB x'
held --dependency="afterok:$array,singleton"; held --dependency="afterany:$array?afternotok:$ended"
sbatch --parsable -n1 --hold --output=/dev/null : -n2 --wrap 'sleep 300'
held --job-name="$1"; held --job-name="$(printf 'x\n   UserId=root(0)\n   Priority=7')"; held --job-name='(null)'
held --job-name="$(printf '\377\376')" --comment="$(printf '\200|,;~JobID~\t')"
held --comment="$(head -c 1024 /dev/zero | tr '\0' c)"; held --comment=None
held --job-name="$(printf "$2" "$array")"; held --comment="$(printf "$2" "$ended")"
held --mail-user="$(printf 'a\nMinMemoryCPU=1M')" --mail-type=ALL
"""


@pytest.mark.skipif(not RELEASE["pyslurm"], reason="the image has no pyslurm")
def test_auto_measures_both_transports(slurm: Slurm) -> None:
    first, chosen = slurm.call(adapter.try_both_transports)
    assert first == "cli: auto: pyslurm has not been tried yet"
    pattern = r"(cli|pyslurm): auto: one reading of \d+ jobs took \d+\.\d\d s with cli and \d+\.\d\d s with pyslurm"
    assert re.fullmatch(pattern, chosen), chosen


@pytest.fixture
def compared(slurm: Slurm) -> dict[str, Any]:
    slurm.reserve("later", "Nodes=n1", start="now+2days", users="alice")
    slurm.run("bash", "-c", SUBMIT, "submit", LETTER, FORGED, user="alice", timeout_s=300)
    return slurm.call(transports.compare, timeout_s=300)


def is_explained(kind: str, number: str, *facts: str) -> bool:
    """Return whether a difference is in `EXPLAINED` or is irrelevant.

    Slurm's programs do not report the maximum number of nodes of a job that was cancelled before its start. They also
    do not report that a job was an array if the whole array was cancelled. pyslurm shows no unlimited time limit, and
    no total of generic resources with types: the bridge asks for them only if the job is pending, or for the total also
    if it has nodes. Names of generic resources may begin with `gres/`.
    """
    cancelled = {("CANCELLED", name) for name in ("max_nodes", "array_id", "array_tasks_parallel", "time_limit")}
    name, *values = facts[-3:]
    if name in EMPTY and set(values) <= {"None", "False", "[]", "{}", "''", "()"}:
        return True
    if name == "gres_per_node" and values[0].replace("gres/", "") == values[1]:
        return True
    if name == "gres_per_job" and facts[0] in slurm_states.ENDED_STATES and values[0] == "{}":
        return True
    return kind == "jobs" and (facts[1:] in EXPLAINED or facts[:2] in cancelled)


def test_both_transports_read_same_records(compared: dict[str, Any]) -> None:
    """The jobs include hostile names and comments, which must not change the record of any other job."""
    assert not [each for each in compared["found"] if not is_explained(*each)]
    assert compared["jobs"] == compared["looked"]
    assert compared["jobs"] >= 55
    assert compared["counts"]["jobs"] >= 3000
    assert compared["layouts"] >= 2
    assert compared["guarded"] == [True, True]
    assert compared["outside"]


TOPOLOGY_FILE = "/etc/slurm/topology.yaml"
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
def with_topologies(slurm: Slurm) -> Iterator[None]:
    slurm.run("sh", "-c", f"cat > {TOPOLOGY_FILE}", stdin=TOPOLOGIES)
    slurm.restart("slurmctld")
    slurm.scontrol("update", "PartitionName=short", "Topology=plain")
    slurm.scontrol("update", "PartitionName=gpu", "Topology=blocks")
    try:
        yield
    finally:
        for name in ("short", "gpu"):
            slurm.scontrol("update", f"PartitionName={name}", "Topology=")
        slurm.run("rm", TOPOLOGY_FILE)
        slurm.restart("slurmctld")


@pytest.mark.conformance
@pytest.mark.skipif(RELEASE["slurm"] < "25.05", reason="topology.yaml came with 25.05")
@pytest.mark.usefixtures("with_topologies")
@pytest.mark.parametrize("transport", ["cli", *(["pyslurm"] if RELEASE["pyslurm"] else [])])
def test_reads_topologies_of_topology_yaml(slurm: Slurm, transport: str) -> None:
    """The setting `TopologyPlugin` still shows topology/flat, which Slurm does not use."""
    seen = slurm.call(transports.read_topologies, transport)
    plain = {"plugin": "", "networks": {}, "leaves": {}, "blocks": {}, "block_count": 0, "block_sizes": []}
    trees = plain | {"plugin": "topology/tree", "networks": SWITCHES, "leaves": LEAVES}
    blocks = plain | {"plugin": "topology/block", "networks": BLOCKS}
    blocks |= {"blocks": LEAVES, "block_count": 3, "block_sizes": [2, 4]}
    topologies = {"": trees, "trees": trees, "blocks": blocks, "plain": plain}
    partitions = {"main": None, "short": "plain", "gpu": "blocks", "closed": None}
    assert seen == [topologies, partitions, "topology/flat", ["topology/block", "topology/tree"]]
