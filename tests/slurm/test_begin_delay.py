"""Test new jobs at a site with the default settings of the submit plugin, which delays their begin time by two minutes.

Where a test expects that the bridge starts a job, its time limit is shorter than the delay, after which Slurm would
start the job.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

SHORTER_S = 100
DELAYED = (False, "BeginTime", "bridge:begin(0)")
HELD = (True, "JobHeldAdmin", "bridge:wait")


@pytest.fixture
def full(slurm: Slurm) -> Iterator[list[str]]:
    """Yield the jobs that fill the cluster, so that further jobs wait."""
    fill = slurm.burst(4, "-N1", "-n16", "-t10", script="sleep 600")
    slurm.wait_for_state(fill, "RUNNING", 30)
    slurm.plugin(on=True)
    yield fill
    slurm.plugin(on=False)


def look(slurm: Slurm, job: str) -> tuple[bool, str, str]:
    seen = slurm.job(job)
    return seen.held, seen.reason, seen.comment


@pytest.mark.conformance
def test_new_jobs_of_all_kinds_run(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    with LiveBridge(slurm, "delay") as bridge:
        jobs = [slurm.sbatch("-n2", "-t1", "--comment=mine"), slurm.sbatch("-N4", "--exclusive", "-t1")]
        jobs.append(slurm.sbatch("-n1", "-t1", f"--dependency=afterok:{jobs[-1]}"))
        array = slurm.sbatch("-n1", "-t1", "--array=1-3%2")
        later = slurm.sbatch("-n1", "-t1", "--begin=now+1hour")
        output = slurm.run("srun", "-N2", "-t1", "hostname", user="alice", timeout_s=SHORTER_S)
        assert len(output.split()) == 2
        slurm.wait_for_state(jobs, "COMPLETED", SHORTER_S)
        ran = slurm.wait_for_accounting([*jobs, *(f"{array}_{task}" for task in (1, 2, 3))])
        assert {job.state for job in ran.values()} == {"COMPLETED"}
        bridge.wait_for_ends(jobs)
        ledger = bridge.ledger()
        assert {job: ran[job].nodes for job in jobs} == {job: ledger[job].nodes for job in jobs}
        assert (slurm.job(jobs[0]).comment, slurm.job(later).comment) == ("bridge:pinned() mine", "bridge:wait")
        assert ", 0 different" in bridge.cpsched("journal", "replay", "--all")


@pytest.mark.conformance
def test_restarted_bridge_holds_jobs_submitted_meanwhile(slurm: Slurm, full: list[str]) -> None:
    """The bridge that stops releases its held jobs; `pause` also ends the delay of a new job."""
    with LiveBridge(slurm, "restart") as bridge:
        before = slurm.sbatch("-n1", "-t1")
        wait_until(lambda: look(slurm, before) == HELD, 30, "the bridge holds it")
        bridge.stop()
        meanwhile = slurm.sbatch("-n1", "-t1")
        assert not slurm.job(before).held
        assert look(slurm, meanwhile) == DELAYED
        bridge.start()
        wait_until(lambda: look(slurm, meanwhile) == HELD, 30, "the next bridge holds it")

        bridge.cpsched("pause")
        wait_until(lambda: not slurm.job(meanwhile).held, 30, "the paused bridge releases it")
        paused = slurm.sbatch("-n1", "-t1")
        wait_until(lambda: look(slurm, paused)[1:] == ("Priority", ""), 30, "the paused bridge ends its delay")
        bridge.cpsched("resume")
        for job in full:
            slurm.run("scancel", job)
        slurm.wait_for_state([before, meanwhile, paused], "COMPLETED", SHORTER_S)


def test_slurm_starts_delayed_jobs_of_killed_bridge(slurm: Slurm, full: list[str]) -> None:
    """`release-all` ends the delay. The dead-man script does not, but Slurm starts the jobs after the delay."""
    with LiveBridge(slurm, "killed") as bridge:
        held = slurm.sbatch("-n1", "-t1")
        wait_until(lambda: look(slurm, held) == HELD, 30, "the bridge holds it")
        bridge.kill("KILL")
        for job in full:
            slurm.run("scancel", job)
        delayed = slurm.sbatch("-n1", "-t1")
        assert "no longer holds any job" in bridge.cpsched("release-all")
        slurm.wait_for_state([held, delayed], "COMPLETED", 30)

        delayed = slurm.sbatch("-n1", "-t1")
        settings = f"CPSCHED_HEARTBEAT={bridge.state}/heartbeat CPSCHED_DEADMAN_LEDGER="
        bridge.shell(f"{settings} bash /src/deploy/systemd/cpsched-deadman --now")
        assert look(slurm, delayed) == DELAYED
        slurm.wait_for_state(delayed, "COMPLETED", 150)


def test_standby_bridge_starts_delayed_jobs_of_dead_leader(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    leader, standby = (
        LiveBridge(slurm, name, lease={"duration_s": 30}, metrics={"port": port})
        for name, port in (("leader", 9764), ("standby", 9765))
    )
    with leader, standby:
        leader.kill("KILL")
        job = slurm.sbatch("-n1", "-t1")
        slurm.wait_for_state(job, "COMPLETED", SHORTER_S)
        standby.wait_for_ends([job])
        assert standby.ledger()[job].nodes == slurm.wait_for_accounting([job])[job].nodes
