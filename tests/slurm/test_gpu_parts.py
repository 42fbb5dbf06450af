"""Test jobs with shards and MPS on a real cluster: they are managed, and start where Slurm starts them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import CONF, RELEASE, Slurm
from tests.slurm.inside import adapter
from tests.slurm.test_bridge_adapter import submit

pytestmark = [
    pytest.mark.usefixtures("shared_gpus"),
    pytest.mark.skipif(RELEASE["slurm"] < "24.11", reason="not tested with earlier releases"),
]

FILE = "/etc/slurm/gres.conf"
NODE_GRES = {"n1": "gpu:a100:3,shard:12", "n2": "gpu:2,mps:200", "n3": "gpu:a100:1,gpu:1g.5gb:2", "n4": "gpu:2,shard:8"}
GRES = """\
NodeName=n1 Name=gpu Type=a100 File=/run/fakegpu[0-2]
NodeName=n1 Name=shard Count=12
NodeName=n2 Name=gpu File=/run/fakegpu[0-1]
NodeName=n2 Name=mps Count=200
NodeName=n3 Name=gpu Type=a100 File=/run/fakegpu0
NodeName=n3 Name=gpu Type=1g.5gb File=/run/fakegpu[1-2]
NodeName=n4 Name=gpu File=/run/fakegpu[0-1]
NodeName=n4 Name=shard Count=8
"""
SHARED = re.compile(r"\b(?:shard|mps)(?::\w+)?:\d+\(([^)]*)\)")


@pytest.fixture
def shared_gpus(slurm: Slurm) -> Iterator[None]:
    before = slurm.run("cat", FILE)
    shape = re.search(r"^NodeName=n1 (.*?) Feature=", slurm.run("cat", CONF), re.MULTILINE)
    assert shape is not None
    nodes = [f"NodeName={name} {shape[1]} Gres={gres}" for name, gres in NODE_GRES.items()]
    for service in ("slurmctld", *NODE_GRES):
        slurm.run("sh", "-c", "touch /run/fakegpu0 /run/fakegpu1 /run/fakegpu2", service=service)
    try:
        slurm.run("sh", "-c", f"cat >{FILE}", service=slurm.node_host(), stdin=GRES)
        main = "PartitionName=main Nodes=n[1-4] Default=YES DefaultTime=60 MaxTime=60 State=UP"
        slurm.start_as("GresTypes=gpu,shard,mps", *nodes, main)
        slurm.wait_until(lambda: _all_idle(slurm), 90, "all nodes idle")
        yield
    finally:
        slurm.run("sh", "-c", f"cat >{FILE}", service=slurm.node_host(), stdin=before)


def _all_idle(slurm: Slurm) -> bool:
    """Return whether all nodes are idle. Slurm drains a node that still registers its earlier generic resources."""
    states = slurm.node_states()
    for node in (node for node, state in states.items() if state != "idle"):
        slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
    return set(states.values()) == {"idle"}


PROBES = {
    "n1": ("shard:1", "shard:3", "gpu:1", "gpu:2"), "n2": ("mps:30", "mps:70", "gpu:1"), "n4": ("shard:2", "shard:4"),
}  # fmt: skip


def test_job_fits_where_slurm_starts_it(slurm: Slurm) -> None:
    """In the same state of the GPUs, the bridge and Slurm agree."""
    draw = random.Random(5)
    outcomes = []
    for _ in range(2):
        slurm.plugin(on=False)
        kinds = [*draw.choices(["shard:1", "shard:2", "shard:3", "gpu:1"], k=draw.randint(4, 9)), "mps:30", "mps:45"]
        for gres in kinds:
            slurm.sbatch(f"--gres={gres}", script="sleep 600")
        slurm.wait_until(lambda: _all_tested(slurm), 30)
        slurm.run("scancel", "--user=alice", "--state=PENDING")
        for node, gres in ((node, gres) for node, kinds in PROBES.items() for gres in kinds):
            (job,) = submit(slurm, f"-x {','.join(NODE_GRES.keys() - {node})} --gres={gres}", script="sleep 600")
            used = SHARED.findall(slurm.scontrol("--details", "show", "nodes"))
            fits = slurm.call(adapter.list_fitting_nodes, job) == [node]
            slurm.scontrol("release", job)
            slurm.wait_until(lambda: _all_tested(slurm), 30)
            outcomes.append((fits, slurm.job(job).state == "RUNNING", node, gres, used))
            slurm.run("scancel", job)
            slurm.wait_until(lambda: not slurm.squeue(states="completing"), 20)
        slurm.run("scancel", "--user=alice")
        slurm.wait_until(lambda: not slurm.squeue(states="running,pending,completing"), 30)
    assert [outcome for outcome in outcomes if outcome[0] != outcome[1]] == []
    assert {outcome[0] for outcome in outcomes} == {True, False}


def _all_tested(slurm: Slurm) -> bool:
    jobs = slurm.squeue(states="pending").values()
    return all(job.reason in ("Resources", "Priority") for job in jobs)


def test_manages_jobs_on_parts_of_gpus(slurm: Slurm) -> None:
    """All jobs are managed, and share no GPU beyond its parts: each starts on the decided nodes."""
    draw = random.Random(3)
    requests = draw.choices(
        ["shard:1", "shard:2", "shard:3", "shard:4", "gpu:1", "gpu:2", "mps:30", "mps:60", "gpu:1g.5gb:1"], k=24
    )
    totals = "--gpus=1", "--gpus=a100:1", "--gpus=1g.5gb:2", "--gpus=1"
    jobs = submit(slurm, *(f"--gres={gres}" for gres in requests), "-N2 --gres=shard:2", *totals, script="sleep 4")
    with LiveBridge(slurm, "gpu-parts") as bridge:
        slurm.wait_for_state(jobs, "COMPLETED", 180)
        bridge.wait_for_ends(jobs)
        ran, ledger = slurm.wait_for_accounting(jobs), bridge.ledger()
        assert {job: ran[job].nodes for job in jobs} == {job: ledger[job].nodes for job in jobs}
        assert not bridge.events("unmanaged", "start_failed", "start_refused", "started_elsewhere")
        assert max(each["starts"] for each in bridge.round_figures()) > 4
