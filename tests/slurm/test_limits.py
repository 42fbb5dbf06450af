"""Limits of users and QOS, as most sites have them: what Slurm itself does, and what the bridge does beside it."""

from __future__ import annotations

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until


def test_limits_hold_on_the_test_cluster(slurm: Slurm) -> None:
    """Of Slurm alone: a job over a limit waits, with a reason that names the limit."""
    slurm.limit("alice", MaxJobs="2")
    jobs = slurm.burst(4, "-n1", "-t1", script="sleep 20")
    wait_until(lambda: sorted(slurm.states(jobs).values()) == ["PENDING"] * 2 + ["RUNNING"] * 2, 20, "two of four run")
    wait_until(lambda: slurm.job(jobs[3]).reason == "AssocMaxJobsLimit", 20, "the reason names the limit")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--qos=pair", "-n1"), "QOSMaxJobsPerUserLimit"),
        (("--qos=cores", "-n8"), "QOSMaxCpuPerUserLimit"),
        (("--qos=quick", "-n1", "--time=5"), "QOSMaxWallDurationPerJobLimit"),
    ],
)
def test_each_qos_meets_its_limit(slurm: Slurm, options: tuple[str, ...], reason: str) -> None:
    jobs = slurm.burst(3, "--time=1", *options, script="sleep 20")
    wait_until(lambda: slurm.job(jobs[2]).reason == reason, 20, f"the reason is {reason}")


def test_a_user_at_a_limit_delays_nobody_else(slurm: Slurm) -> None:
    """Sixty jobs of a user who may run two at a time, beside twenty of another: those all run, the bridge stays."""
    slurm.limit("alice", MaxJobs="2")
    slurm.plugin(on=True)
    with LiveBridge(slurm, "limits", start={"timeout_s": 6}) as bridge:
        limited = slurm.burst(60, "-n1", "-t1", script="sleep 5")
        others = slurm.burst(20, "-n1", "-t1", script="sleep 2", user="bob")
        slurm.wait_for_state(others, "COMPLETED", 60)
        bridge.wait_for_rounds(30, timeout_s=120)
        assert "stood_down" not in bridge.events()
        assert bridge.metric('cpsched_mode{mode="control"}') == 1
        running = [state for state in slurm.states(limited).values() if state == "RUNNING"]
        assert len(running) <= 2
        waiting = [job for job in limited if slurm.states([job]).get(job) == "PENDING"]
        assert waiting
        assert "AssocMaxJobsLimit" in bridge.cpsched("why", waiting[-1])
