"""Test the modes in which Slurm starts the jobs: advise changes only priorities, and shadow estimates a start.

In advise mode, each job requests all nodes, so that one runs at a time. The dispatcher prefers the shortest walltime,
and the jobs are submitted with the longest first.
"""

from __future__ import annotations

import json

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

ALL = ("-N4", "--exclusive")
LATE_S = 60
"""Maximum seconds that Slurm's own passes and a slow machine may add to a start."""


def advising(slurm: Slurm, name: str, **settings) -> LiveBridge:
    advise = {"every_s": 1, **settings.pop("advise", {})}
    policy = {"dispatcher": "list-sjf", "isolation": "none"}
    return LiveBridge(slurm, name, **{"mode": "advise", "advise": advise, "policy": policy, **settings})


def full(slurm: Slurm, seconds: int = 600) -> str:
    """Submit a job that uses all nodes, and return its id once it runs."""
    job = slurm.sbatch(*ALL, "-t30", script=f"sleep {seconds}", user="bob")
    slurm.wait_for_state(job, "RUNNING")
    return job


def waiting(slurm: Slurm, count: int = 5, *options: str, script: str = "sleep 1") -> list[str]:
    """Submit jobs with descending walltimes, and return their ids."""
    return [slurm.sbatch(*ALL, f"-t{10 + count - at}", *options, script=script) for at in range(count)]


def order(slurm: Slurm) -> list[str]:
    """Return the ids of pending jobs that are not held, in Slurm's order."""
    priorities = slurm.sprio("Y")
    return sorted(priorities, key=lambda id: (-priorities[id], int(id)))


def until_advised(slurm: Slurm, wanted: list[str], timeout_s: float = 60) -> None:
    wait_until(lambda: order(slurm) == wanted, timeout_s, f"Slurm's order is {wanted}")


@pytest.mark.conformance
def test_jobs_start_in_advised_order_without_holds(slurm: Slurm) -> None:
    blocker, jobs = full(slurm), waiting(slurm)
    with advising(slurm, "advise-order") as bridge:
        until_advised(slurm, jobs[::-1])
        assert not any(job.held for job in slurm.squeue().values())
        assert "own scheduler starts the jobs" in " ".join(bridge.cpsched("why", jobs[0]).split())
        assert "configured mode: advise" in bridge.cpsched("status")
        slurm.run("scancel", blocker)
        slurm.wait_for_state(jobs, "COMPLETED", 120)
    ran = slurm.wait_for_accounting(jobs)
    assert sorted(jobs, key=lambda job: ran[job].start_s or 0) == jobs[::-1]
    assert not bridge.transitions(), "no job is held, started or released"


@pytest.mark.conformance
def test_stop_removes_own_points_and_keeps_admin_points(slurm: Slurm) -> None:
    full(slurm)
    jobs = waiting(slurm)
    slurm.scontrol("update", f"JobId={jobs[0]}", "SiteFactor=777")
    with advising(slurm, "advise-stop"):
        others = jobs[:0:-1]
        wait_until(lambda: [job for job in order(slurm) if job in others] == others, 60, "the others are in order")
        assert slurm.sprio("S")[jobs[0]] == 777
    assert {job: points for job, points in slurm.sprio("S").items() if points} == {jobs[0]: 777}


@pytest.mark.conformance
def test_points_left_by_kill_are_removed_later(slurm: Slurm) -> None:
    full(slurm)
    jobs = waiting(slurm)
    bridge = advising(slurm, "advise-kill")
    bridge.start()
    until_advised(slurm, jobs[::-1])
    bridge.kill("KILL")
    left = slurm.sprio("S")
    assert any(left.values())
    assert not any(job.held for job in slurm.squeue().values())
    bridge.start()
    bridge.wait_for_rounds(3)
    assert slurm.sprio("S") == left, "the next one goes on with them"
    bridge.kill("KILL")
    user_held = jobs[-1]
    slurm.run("scontrol", "hold", user_held)
    said = bridge.cpsched("release-all")
    assert "no job has a boost set by the bridge" in said
    slurm.run("scontrol", "release", user_held)
    assert not any(slurm.sprio("S").values())
    assert set(slurm.sprio("S")) == set(jobs)


@pytest.mark.conformance
def test_array_has_one_value_and_split_task_its_own(slurm: Slurm) -> None:
    blocker = full(slurm)
    single = slurm.sbatch(*ALL, "-t20", script="sleep 1")
    array = slurm.sbatch(*ALL, "-t5", "--array=1-3", script="sleep 1")
    slurm.scontrol("update", f"JobId={array}_2", "SiteFactor=5")  # splits the task off the array's record
    with advising(slurm, "advise-array"):
        wait_until(lambda: slurm.sprio("S").get(array, 0) > 0, 60, "the array is raised")
        assert order(slurm)[-1] == single
        assert 5 in slurm.sprio("S").values()
        slurm.run("scancel", blocker)
        slurm.wait_for_state(single, "COMPLETED", 120)
        slurm.wait_until_empty(60)


@pytest.mark.conformance
def test_doctor_names_missing_configuration(slurm: Slurm) -> None:
    bridge = advising(slurm, "advise-doctor")
    said = bridge.cpsched("doctor")
    assert "priority type" in said
    assert "site factor" in said
    assert "job shrink" not in said
    with slurm.configured("PriorityType=priority/basic"):
        said = bridge.cpsched("doctor", check=False)
        assert "set PriorityType=priority/multifactor" in " ".join(said.split())


@pytest.mark.conformance
def test_job_starts_by_estimate(slurm: Slurm) -> None:
    with LiveBridge(slurm, "answers", mode="shadow") as bridge:
        blocker = slurm.sbatch(*ALL, "-t2", script="sleep 15", user="bob")
        slurm.wait_for_state(blocker, "RUNNING")
        bridge.wait_for_rounds(2)
        words = ("--nodes", "4", "--time", "1", "--exclusive", "--json")
        first = json.loads(bridge.cpsched("estimate-start", *words).splitlines()[-1])[0]
        assert first["now_s"] <= first["planned_s"] <= first["now_s"] + 2 * 60 + LATE_S
        assert first["likely_from_s"] <= first["likely_to_s"]
        assert not first["calibrated"]

        job = slurm.sbatch(*ALL, "-t1", script="sleep 3")
        slurm.wait_for_state(job, "COMPLETED", 120)
        start_s = slurm.wait_for_accounting([job])[job].start_s or 0
        assert first["now_s"] <= start_s <= first["planned_s"] + LATE_S
