"""Test starts while slurmctld limits a user's calls: no start fails, is lost, or takes forever."""

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import RELEASE, Slurm

LIMITED = "SlurmctldParameters=rl_enable"
JOBS = 40


@pytest.mark.conformance
@pytest.mark.skipif(RELEASE["slurm"] == "22.05", reason="slurmctld limits calls from 23.02 on")
def test_burst_starts_under_slurm_rate_limit(slurm: Slurm) -> None:
    """No start fails under Slurm's default limit: 30 calls, and 2 more per second."""
    with slurm.configured(LIMITED):
        slurm.plugin(on=True)
        try:
            with LiveBridge(slurm, "limited", options={"transport": "auto"}) as bridge:
                jobs = slurm.burst(JOBS, "-n1", "-t5", script="sleep 120")
                bridge.wait_until(lambda: set(slurm.states(jobs).values()) == {"RUNNING"}, 120, "all run")
                assert "cli: " in bridge.log()
                assert not {"start_failed", "start_refused"} & set(bridge.events())
        finally:
            slurm.plugin(on=False)
            slurm.run("scancel", "--user=alice")
