"""Test that Slurm itself applies user and QOS limits on the test cluster."""

from __future__ import annotations

import pytest

from tests.slurm.harness import Slurm, wait_until


def test_association_limits_apply_on_test_cluster(slurm: Slurm) -> None:
    """Without a bridge, a job over a limit waits with a reason that names the limit."""
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
def test_each_qos_reaches_its_limit(slurm: Slurm, options: tuple[str, ...], reason: str) -> None:
    jobs = slurm.burst(3, "--time=1", *options, script="sleep 20")
    wait_until(lambda: slurm.job(jobs[2]).reason == reason, 20, f"the reason is {reason}")
