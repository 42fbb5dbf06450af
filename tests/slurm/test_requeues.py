"""Test requeued jobs: single, of several partitions, in large numbers, and as array tasks with running siblings."""

from __future__ import annotations

import time

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

pytestmark = pytest.mark.usefixtures("plugin_on")

QUICK = {"start": {"timeout_s": 8}}


@pytest.mark.conformance
def test_requeued_array_task_runs_again_with_sibling(slurm: Slurm) -> None:
    """While the sibling runs, Slurm would reject any change of the task under the array's own number."""
    with LiveBridge(slurm, "array-task", **QUICK) as bridge:
        began = "~/began-${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
        array = slurm.sbatch("--array=1-2", "-n2", "-t3", "--requeue", script=f"touch {began}; sleep 40")
        tasks = [f"{array}_{task}" for task in (1, 2)]
        slurm.wait_for_state(tasks, "RUNNING")
        # A job that is requeued while its script is being launched ends as FAILED under Slurm 22.05.
        look = f"ls /home/alice/began-{tasks[1]} 2>&1"
        wait_until(lambda: "No such" not in slurm.run("bash", "-c", look, check=False), 30, "its script runs")
        time.sleep(1)
        slurm.scontrol("requeue", tasks[1])
        time.sleep(3)  # nodes reject a job that starts in the second of its requeue ("credential revoked", 22.05)
        _may_begin(slurm, tasks[1])
        slurm.wait_for_state(tasks, "RUNNING")
        assert slurm.record(tasks[1])["Restarts"] == "1"
        assert not bridge.events("no_effect")


def test_pause_releases_requeued_array_task(slurm: Slurm) -> None:
    with LiveBridge(slurm, "array-pause", **QUICK) as bridge:
        array = slurm.sbatch("--array=1-2", "-N1", "-n2", "-t3", "--requeue", script="sleep 60")
        tasks = [f"{array}_{task}" for task in (1, 2)]
        slurm.wait_for_state(tasks, "RUNNING")
        slurm.scontrol("requeue", tasks[1])
        wait_until(lambda: slurm.job(tasks[1]).held, 30, "the bridge has taken it over")
        bridge.cpsched("pause")
        wait_until(lambda: not slurm.job(tasks[1]).held, 20, "it is Slurm's")
        assert slurm.job(tasks[1]).required_nodes == ""


def test_many_requeues_lose_no_job(slurm: Slurm) -> None:
    """Jobs and array tasks that are requeued twice while they run still complete on the decided nodes."""
    with LiveBridge(slurm, "requeues", **QUICK) as bridge:
        jobs = slurm.burst(6, "-n2", "-t1", "--requeue", script="sleep 3")
        array = slurm.sbatch("--array=0-5", "-n2", "-t1", "--requeue", script="sleep 3")
        every = [*jobs, *(f"{array}_{task}" for task in range(6))]
        for _ in range(2):
            time.sleep(2)
            running = [job for job, state in slurm.states(every).items() if state == "RUNNING"]
            for job in running:
                slurm.run("scontrol", "requeue", job, check=False)
            for job in running:
                _may_begin(slurm, job)
        slurm.wait_for_state(every, "COMPLETED", 90)
        assert not bridge.events("no_effect", "circuit_breaker_tripped", "unmanaged")
        assert any(job.restarts for job in slurm.sacct(every).values())


@pytest.mark.conformance
@pytest.mark.parametrize("options", [(), ("--array=1-2",)])
def test_a_job_of_several_partitions_runs_in_one_and_gets_all_back(slurm: Slurm, options: tuple[str, ...]) -> None:
    """The job starts in main, because partition short has only n1 and n2, which are full."""
    with LiveBridge(slurm, "several", **QUICK) as bridge:
        full = [slurm.sbatch("-p", "short", "-N1", "-n16", "-t5", script="sleep 300", user="bob") for _ in range(2)]
        slurm.wait_for_state(full, "RUNNING")
        job = slurm.sbatch("-p", "short,main", "-n2", "-t3", "--requeue", *options, script="sleep 120")
        label = f"{job}_2" if options else job
        slurm.wait_for_state(label, "RUNNING", 60)
        started = slurm.record(label)
        assert (started["Partition"], started["NodeList"] in ("n3", "n4")) == ("main", True)
        slurm.scontrol("requeue", label)
        wait_until(lambda: slurm.record(label)["Partition"] != "main", 60, "it is in all of its partitions")
        again = slurm.record(label)
        assert (set(again["Partition"].split(",")), again["ReqNodeList"]) == ({"short", "main"}, "(null)")
        assert not bridge.events("unmanaged", "start_failed", "started_elsewhere")
        slurm.run("scancel", job, *full)


def _may_begin(slurm: Slurm, job: str) -> None:
    """End the two-minute delay that Slurm gives a requeued job."""

    def moved() -> bool:
        slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
        seen = slurm.record(job)
        return seen["JobState"] != "PENDING" or seen["Reason"] != "BeginTime"

    wait_until(moved, 20, f"{job} may begin")
