"""Test launch failures and a killed controller: jobs that Slurm holds are reported as held by Slurm."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import NODES, Slurm, wait_until

PROLOG = "/etc/slurm/test-prolog"
HELD = "launch failed requeued held"


@contextmanager
def failing_prolog(slurm: Slurm) -> Iterator[None]:
    """Make every job's prolog fail, which drains the nodes, and resume the nodes at the end."""
    slurm.run("sh", "-c", f"printf '#!/bin/sh\\nexit 1\\n' >{PROLOG} && chmod 755 {PROLOG}", service="n1")
    try:
        with slurm.configured(f"Prolog={PROLOG}", nodes=True):
            yield
    finally:
        slurm.run("rm", "-f", PROLOG, service="n1")
        for node in NODES:
            slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)


def test_job_with_failed_prolog_is_left_without_pin(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    with failing_prolog(slurm), LiveBridge(slurm, "prolog") as bridge:
        job = slurm.sbatch("-n2", "-t1", script="true")
        wait_until(lambda: slurm.job(job).reason == HELD, 60, "Slurm holds the job")
        wait_until(lambda: not slurm.job(job).required_nodes, 30, "no node list of the bridge is on it")
        bridge.wait_for_rounds(3)
        assert slurm.job(job).held
        assert slurm.job(job).reason == HELD
        told = bridge.cpsched("why", job)
        assert f"held by the cluster until the job is released or changed: {HELD}" in told
        assert "administrator" not in told
        assert not bridge.events("start_failed")
    with LiveBridge(slurm, "mended"):
        slurm.scontrol("update", f"JobId={job}", "StartTime=now")
        slurm.scontrol("release", job)
        slurm.wait_for_state(job, "COMPLETED", 60)


def test_no_job_stays_pinned_after_controller_kill(slurm: Slurm) -> None:
    """Slurm restarts jobs whose start was not saved, and holds them if a node still runs them.

    Without a bridge, Slurm held all 16 of 41 jobs that had started, and drained the four nodes. Slurm also restarts
    jobs whose cancellation was not saved.
    """
    slurm.restart("slurmctld")  # a controller that has never saved its accounting data cannot start again
    slurm.plugin(on=True)
    with LiveBridge(slurm, "killed") as bridge:
        full = slurm.burst(4, "-N1", "-n16", "-t3", script="sleep 170")
        slurm.wait_for_state(full, "RUNNING", 60)
        jobs = slurm.burst(41, "-n4", "-t1", script="sleep 8")
        slurm.wait_until_saved(jobs[-1])
        slurm.run("scancel", *full)
        wait_until(lambda: "RUNNING" in slurm.states(jobs).values(), 60, "the first of them run", every_s=0.05)
        time.sleep(0.3)
        slurm.kill("slurmctld")
        slurm.start("slurmctld")
        slurm.wait_for_controller()
        slurm.run("scancel", *full, check=False)

        def settled() -> bool:
            for node, state in slurm.node_states().items():
                if state.startswith("drain"):
                    slurm.resume(node)
            waiting = slurm.squeue(states="PENDING,RUNNING,CONFIGURING,COMPLETING").values()
            return all(job.reason == HELD and not job.required_nodes for job in waiting)

        wait_until(settled, 300, "every job has run, or is held by Slurm without a node list", every_s=1.0)
        held = slurm.squeue(states="PENDING")
        print(f"{len(held)} of {len(jobs)} jobs are held by Slurm")
        for job in list(held)[:3]:
            assert f"held by the cluster until the job is released or changed: {HELD}" in bridge.cpsched("why", job)
        if held:
            slurm.scontrol("release", ",".join(held))
            wait_until(lambda: not slurm.squeue(states="PENDING,RUNNING"), 240, "what root releases runs")
