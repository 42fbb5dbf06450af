"""Test many nodes. These tests run only on the cluster of `deploy/cluster wide N`, and are skipped on four nodes."""

import time

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until


@pytest.fixture
def wide(cluster: Slurm) -> Slurm:
    if len(cluster.node_states()) < 16:
        pytest.skip("the wide cluster is not up: deploy/cluster wide N")
    cluster.plugin(on=False)
    cluster.run("scancel", "--user=alice")
    cluster.wait_until(lambda: set(cluster.node_states().values()) == {"idle"}, 300, "all nodes idle")
    return cluster


def test_burst_fills_nodes_and_stop_releases_rest(wide: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    """With three jobs per node and the `cli` transport, no reading is late, no start fails, and no job stays held."""
    nodes = len(wide.node_states())
    wide.plugin(on=True)
    try:
        with LiveBridge(wide, "burst", options={"transport": "cli"}) as bridge:
            jobs = wide.burst(3 * nodes, "--nodes=1", "--ntasks=16", "--time=10", script="sleep 300")
            wait_until(lambda: wide.run("squeue", "-h", "-t", "R").count("\n") == nodes, 120, "all nodes are taken")
            bridge.wait_for_rounds(2)
            assert not bridge.events("backend_timeout", "start_failed", "start_refused")
            begin_s = time.monotonic()
        with capsys.disabled():
            print(f"\n{2 * nodes} held jobs released in {time.monotonic() - begin_s:.1f} s")
        queue = wide.squeue()
        assert not [job for job in jobs if queue[job].held]
    finally:
        wide.plugin(on=False)
        wide.run("scancel", "--user=alice")
