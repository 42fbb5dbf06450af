"""Test parts of the cluster that fail and recover while jobs run."""

from __future__ import annotations

import time

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

QUICK = {"options": {"deadline_s": 5.0}, "cycle": {"max_backoff_s": 4.0}, "start": {"timeout_s": 8}}


@pytest.mark.parametrize("service", ["slurmdbd", "mariadb"])
def test_accounting_outage_with_bridge(slurm: Slurm, service: str) -> None:
    """Jobs run without accounting, and the controller delivers their records when accounting is back."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, f"without-{service}", **QUICK) as bridge:
        with slurm.without(service):
            jobs = slurm.burst(6, "-n2", "-t1", script="sleep 1")
            slurm.wait_for_state(jobs, "COMPLETED", 60)
        bridge.wait_for_rounds(2)
        assert {bridge.ledger()[job].state for job in jobs} <= {"running", "ended"}
    wait_until(
        lambda: [j.state for j in slurm.sacct(jobs).values()] == ["COMPLETED"] * 6, 90, "accounting has all", 1.0
    )


def test_bridge_starts_without_accounting(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    bridge = LiveBridge(slurm, "start-without", **{**QUICK, "options": {}})
    with slurm.without("slurmdbd"):
        bridge.start(wait=False)
        try:
            job = slurm.sbatch("-n2", "-t1", script="sleep 1")
            slurm.wait_for_state(job, "COMPLETED", 50)
            assert job in bridge.ledger(), "it was the bridge that started it"
        finally:
            bridge.stop()
            print(f"bridge log, its end:\n{bridge.log()[-4000:]}")


def test_many_reconfigurations_lose_no_job(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    with LiveBridge(slurm, "storm", **QUICK) as bridge:
        jobs = slurm.burst(10, "-n2", "-t1", script="sleep 1")
        for _ in range(8):
            slurm.run("scontrol", "reconfigure", check=False)
            time.sleep(0.5)
        slurm.wait_for_controller()
        jobs += slurm.burst(10, "-n2", "-t1", script="sleep 1")
        slurm.wait_for_state(jobs, "COMPLETED", 120)
        bridge.wait_for_rounds(2)
        assert {job.restarts for job in slurm.wait_for_accounting(jobs).values()} == {0}


def test_flapping_node_loses_no_job(slurm: Slurm) -> None:
    """All jobs end, on any nodes, although a node goes down and up several times."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "flap", **QUICK) as bridge:
        jobs: list[str] = []
        for _ in range(3):
            jobs += slurm.burst(4, "-n4", "-t1", "--requeue", script="sleep 1")
            slurm.scontrol("update", "NodeName=n2", "State=DOWN", "Reason=flap")
            time.sleep(1)
            # The node may have registered and resumed by itself.
            slurm.run("scontrol", "update", "NodeName=n2", "State=RESUME", check=False)
        wait_until(lambda: all_over_or_due(slurm, jobs), 120, "all jobs have run, or wait for Slurm's two minutes", 1.0)
        bridge.wait_for_rounds(2)
        assert "circuit_breaker_tripped" not in bridge.events()


def all_over_or_due(slurm: Slurm, jobs: list[str]) -> bool:
    """Return whether all jobs have completed, except those that Slurm requeued with a delay of two minutes."""
    seen = slurm.squeue()
    return all(seen[j].state == "COMPLETED" or slurm.record(j).get("Restarts", "0") != "0" for j in jobs if j in seen)


@pytest.mark.conformance
def test_maintenance_reservation_made_while_jobs_flow(slurm: Slurm) -> None:
    """Reserved nodes get no new jobs, and running jobs continue on them."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "maintenance", **QUICK) as bridge:
        running = slurm.burst(4, "-N1", "-n8", "-t2", script="sleep 15")
        slurm.wait_for_state(running, "RUNNING", 30)
        slurm.reserve("window", "n1,n2", flags="MAINT,IGNORE_JOBS")
        jobs = slurm.burst(8, "-n4", "-t1", script="sleep 1")
        slurm.wait_for_state([*running, *jobs], "COMPLETED", 90)
        assert {node for job in slurm.wait_for_accounting(jobs).values() for node in job.nodes} <= {"n3", "n4"}
        slurm.scontrol("delete", "ReservationName=window")
        late = slurm.sbatch("-n2", "-t1", "-C", "cpu", script="sleep 1")
        slurm.wait_for_state(late, "COMPLETED", 60)
        assert "circuit_breaker_tripped" not in bridge.events()


def test_partition_is_down_and_up_again(slurm: Slurm) -> None:
    """Jobs in the partition wait until it is up again, and jobs in other partitions run."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "partition", **QUICK) as bridge, slurm.partition("gpu", "DOWN"):
        bridge.wait_for_rounds(2)
        waits, runs = slurm.sbatch("-p", "gpu", "-n1", "-t1"), slurm.sbatch("-n1", "-t1")
        slurm.wait_for_state(runs, "COMPLETED", 30)
        assert slurm.states([waits]) == {waits: "PENDING"}
        slurm.scontrol("update", "PartitionName=gpu", "State=UP")
        slurm.wait_for_state(waits, "COMPLETED", 30)


def test_job_starts_on_cpus_of_suspended_jobs(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    with LiveBridge(slurm, "gives", **QUICK) as bridge:
        first = slurm.sbatch("-N4", "-n64", "-t5", "--mem=100", script="sleep 20")
        slurm.wait_for_state(first, "RUNNING", 30)
        slurm.scontrol("suspend", first)
        slurm.wait_for_state(first, "SUSPENDED", 10)
        second = slurm.sbatch("-N4", "-n64", "-t5", "--mem=100", script="sleep 5")
        slurm.wait_for_state(second, "COMPLETED", 60)
        assert "started on the planned nodes" in [step.why for step in bridge.transitions()[second]]
        assert slurm.record(first)["JobState"] == "SUSPENDED"
        slurm.scontrol("resume", first)
        slurm.wait_for_state(first, "COMPLETED", 60)


def test_suspended_job_stays_in_ledger(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    with LiveBridge(slurm, "suspend", **QUICK) as bridge:
        job = slurm.sbatch("-N1", "-n16", "-t2", script="sleep 4")
        slurm.wait_for_state(job, "RUNNING", 30)
        slurm.scontrol("suspend", job)
        slurm.wait_for_state(job, "SUSPENDED", 10)
        bridge.wait_for_rounds(3)
        assert bridge.ledger()[job].state == "running"
        slurm.scontrol("resume", job)
        slurm.wait_for_state(job, "COMPLETED", 30)
        assert slurm.wait_for_accounting([job])[job].restarts == 0
