"""Test requeued jobs: single, in large numbers, and as array tasks with running siblings."""

from __future__ import annotations

import time

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

QUICK = {"start": {"timeout_s": 8}}


@pytest.mark.conformance
def test_requeued_array_task_runs_again_with_sibling(slurm: Slurm) -> None:
    """While the sibling runs, Slurm would reject any change of the task under the array's own number."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "array-task", **QUICK) as bridge:
        began = "~/began-${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
        array = slurm.sbatch("--array=1-2", "-n2", "-t3", "--requeue", script=f"touch {began}; sleep 40")
        tasks = [f"{array}_{task}" for task in (1, 2)]
        wait_until(lambda: _states(slurm, tasks) == ["RUNNING"] * 2, 30, "both tasks run")
        # A job that is requeued while its script is being launched ends as FAILED under Slurm 22.05.
        look = f"ls /home/alice/began-{tasks[1]} 2>&1"
        wait_until(lambda: "No such" not in slurm.run("bash", "-c", look, check=False), 30, "its script runs")
        time.sleep(1)
        slurm.scontrol("requeue", tasks[1])
        time.sleep(3)  # nodes reject a job that starts in the second of its requeue ("credential revoked", 22.05)
        _may_begin(slurm, tasks[1])
        wait_until(lambda: _states(slurm, tasks) == ["RUNNING"] * 2, 30, "the task runs again")
        assert slurm.record(tasks[1])["Restarts"] == "1"
        assert "no_effect" not in bridge.events()


def test_pause_releases_requeued_array_task(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    with LiveBridge(slurm, "array-pause", **QUICK) as bridge:
        array = slurm.sbatch("--array=1-2", "-N1", "-n2", "-t3", "--requeue", script="sleep 60")
        tasks = [f"{array}_{task}" for task in (1, 2)]
        wait_until(lambda: _states(slurm, tasks) == ["RUNNING"] * 2, 30, "both tasks run")
        slurm.scontrol("requeue", tasks[1])
        wait_until(lambda: slurm.job(tasks[1]).held, 30, "the bridge has taken it over")
        bridge.cpsched("pause")
        wait_until(lambda: not slurm.job(tasks[1]).held, 20, "it is Slurm's")
        assert slurm.job(tasks[1]).required_nodes == ""


def test_many_requeues_lose_no_job(slurm: Slurm) -> None:
    """Jobs and array tasks that are requeued twice while they run still complete on the decided nodes."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "requeues", **QUICK) as bridge:
        jobs = slurm.burst(6, "-n2", "-t1", "--requeue", script="sleep 3")
        array = slurm.sbatch("--array=0-5", "-n2", "-t1", "--requeue", script="sleep 3")
        every = [*jobs, *(f"{array}_{task}" for task in range(6))]
        for _ in range(2):
            time.sleep(2)
            running = [job for job, state in zip(every, _states(slurm, every), strict=True) if state == "RUNNING"]
            for job in running:
                slurm.run("scontrol", "requeue", job, check=False)
            for job in running:
                _may_begin(slurm, job)
        wait_until(lambda: set(_states(slurm, every)) == {"COMPLETED"}, 90, "all have completed")
        assert not {"no_effect", "circuit_breaker_tripped", "unmanaged"} & set(bridge.events())
        assert any(job.restarts for job in slurm.sacct(every).values())


def _may_begin(slurm: Slurm, job: str) -> None:
    """End the two-minute delay that Slurm gives a requeued job."""

    def moved() -> bool:
        slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
        seen = slurm.record(job)
        return seen["JobState"] != "PENDING" or seen["Reason"] != "BeginTime"

    wait_until(moved, 20, f"{job} may begin")


def _states(slurm: Slurm, identities: list[str]) -> list[str]:
    seen = slurm.squeue(tasks=True)
    return [seen[identity].state if identity in seen else "" for identity in identities]
