"""Many nodes: only on the cluster of `deploy/cluster wide N` (skipped on the four-node one)."""

import time

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

RELEASE_AND_WAIT = """
import json, sys, time
import pyslurm
from pyslurm import Job, JobSubmitDescription as Wish

jobs = list(map(int, sys.argv[1].split(",")))
nodes = sorted(pyslurm.Nodes.load())
begin = time.monotonic()
for number, job in enumerate(jobs):
    Job(job).modify(Wish(required_nodes=[nodes[number % len(nodes)]], priority=0xFFFFFFFF))
sent = time.monotonic() - begin
while True:
    states = pyslurm.Jobs.load()
    if all(states[j].state in ("RUNNING", "COMPLETED") for j in jobs):
        break
    assert time.monotonic() < begin + 60
    time.sleep(0.02)
print(json.dumps([sent, time.monotonic() - begin]))
"""

LOAD = """
import json, time
import pyslurm
best = {}
for _ in range(5):
    for name, load in (("jobs", pyslurm.Jobs.load), ("nodes", pyslurm.Nodes.load)):
        begin = time.monotonic()
        count = len(load())
        best[name] = [count, min(time.monotonic() - begin, best.get(name, [0, 1e9])[1])]
print(json.dumps(best))
"""


@pytest.fixture
def wide(cluster: Slurm) -> Slurm:
    if len(cluster.node_states()) < 16:
        pytest.skip("the wide cluster is not up: deploy/cluster wide N")
    cluster.plugin(on=False)
    cluster.run("scancel", "--user=alice")
    cluster.wait_until(lambda: set(cluster.node_states().values()) == {"idle"}, 300, "all nodes idle")
    return cluster


def test_a_burst_of_two_hundred(wide: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Released by one process one after another, on nodes in turn: all run, each on its own node."""
    wide.plugin(on=True)
    jobs = wide.burst(200, "--time=10", script="sleep 30")
    wide.plugin(on=False)
    sent, done = wide.python(RELEASE_AND_WAIT, ",".join(jobs))
    with capsys.disabled():
        print(
            f"\nburst of 200 on {len(wide.node_states())} nodes: commands {sent:.2f} s, all RUNNING after {done:.2f} s"
        )
    placed = [j.nodes for i, j in wide.squeue().items() if i in set(jobs)]
    assert len(set(placed)) == min(200, len(wide.node_states()))


def test_a_thousand_queued_jobs_are_read(wide: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    wide.burst(1000, "--hold", "--time=10")
    best = wide.python(LOAD)
    with capsys.disabled():
        for name, (count, seconds) in best.items():
            print(f"\npyslurm loads {count} {name} in {seconds * 1000:.1f} ms", end="")
        print()
    assert best["jobs"][0] >= 1000
    wide.run("scancel", "--user=alice")


def test_a_burst_fills_the_nodes_and_a_stop_hands_the_rest_back(
    wide: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over `cli`, three jobs a node: no reading is late, no start fails, and nothing stays held."""
    nodes = len(wide.node_states())
    wide.plugin(on=True)
    try:
        with LiveBridge(wide, "burst", options={"transport": "cli"}) as bridge:
            jobs = wide.burst(3 * nodes, "--nodes=1", "--ntasks=16", "--time=10", script="sleep 300")
            wait_until(lambda: wide.run("squeue", "-h", "-t", "R").count("\n") == nodes, 120, "all nodes are taken")
            bridge.wait_for_rounds(2)
            assert not {"backend_timeout", "start_failed", "start_refused"} & set(bridge.events())
            begin_s = time.monotonic()
        with capsys.disabled():
            print(f"\n{2 * nodes} held jobs handed back in {time.monotonic() - begin_s:.1f} s")
        queue = wide.squeue()
        assert not [job for job in jobs if queue[job].held]
    finally:
        wide.plugin(on=False)
        wide.run("scancel", "--user=alice")
