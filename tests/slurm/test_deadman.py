"""The dead-man timer, with no bridge anywhere: the jobs that wait for it go back to Slurm, and no others."""

import time
from collections.abc import Iterator

import pytest

from tests.slurm.harness import Slurm

HEARTBEAT = "/var/lib/cpsched/heartbeat"


@pytest.fixture
def waiting(slurm: Slurm) -> Iterator[Slurm]:
    """The plugin on, no dead-man container, no heartbeat file."""
    slurm.plugin(on=True)
    slurm.run("rm", "-f", HEARTBEAT)
    yield slurm
    slurm.plugin(on=False)
    slurm.run("rm", "-f", HEARTBEAT)


def beat(slurm: Slurm, age_s: int = 0) -> None:
    slurm.run("touch", "--date", f"@{int(time.time()) - age_s}", HEARTBEAT)


def deadman(slurm: Slurm, *arguments: str) -> str:
    return slurm.run("env", "CPSCHED_DEADMAN_STALE_S=60", "cpsched-deadman", *arguments, user="cpsched")


def test_a_fresh_heartbeat_leaves_everything_alone(waiting: Slurm) -> None:
    job = waiting.sbatch()
    beat(waiting, age_s=5)
    assert deadman(waiting) == ""
    assert waiting.job(job).held


@pytest.mark.parametrize("age_s", [None, 61, 100_000])
def test_a_stale_or_missing_heartbeat_gives_the_jobs_back(waiting: Slurm, age_s: int | None) -> None:
    jobs = [waiting.sbatch(), waiting.sbatch("--nodes=2"), waiting.sbatch("--gres=gpu:1", "--nodes=1")]
    array = waiting.sbatch("--array=1-3")
    if age_s is not None:
        beat(waiting, age_s)
    assert "gave back 4 held jobs" in deadman(waiting)
    waiting.wait_for_state(jobs, "COMPLETED", 30)
    waiting.wait_until(
        lambda: [j.state for j in waiting.sacct([array]).values()] == ["COMPLETED"] * 3, 30, "the array ran"
    )


def test_holds_of_owners_and_administrators_stay(waiting: Slurm) -> None:
    own = waiting.sbatch("--hold")
    later = waiting.sbatch()
    waiting.scontrol("hold", later, user="alice")
    admin = waiting.sbatch()
    waiting.scontrol("hold", admin, user="root")
    waiting.plugin(on=False)
    never_managed = waiting.sbatch("--hold")
    never_managed_admin = waiting.sbatch("--hold")
    waiting.scontrol("hold", never_managed_admin, user="root")
    before = waiting.squeue(states="pending")
    assert deadman(waiting) == f"cpsched-deadman: no heartbeat at {HEARTBEAT}\n"
    assert waiting.squeue(states="pending") == before
    assert set(before) == {own, later, admin, never_managed, never_managed_admin}


def test_a_job_held_by_the_bridge_itself_goes_back(waiting: Slurm) -> None:
    """Also one that was submitted while the plugin was off."""
    waiting.plugin(on=False)
    job = waiting.sbatch("--begin=now+1hour")
    waiting.scontrol("hold", job, user="cpsched")
    assert "gave back 1 held jobs" in deadman(waiting)
    assert not waiting.job(job).held


def test_the_bridges_node_lists_are_cleared_and_the_owners_restored(waiting: Slurm) -> None:
    """Also of jobs that the bridge had already released, onto a node that was drained in between."""
    waiting.drain("n3")
    held, stuck, asked = waiting.sbatch(), waiting.sbatch(), waiting.sbatch("--nodelist=n2")
    for job in (held, stuck, asked):
        waiting.scontrol("update", f"JobId={job}", "ReqNodeList=n3", user="cpsched")
    waiting.scontrol("release", stuck, user="cpsched")
    assert "cleared 3 node lists" in deadman(waiting)
    waiting.wait_for_state([held, stuck, asked], "COMPLETED", 30)
    assert waiting.sacct([asked])[asked].nodes == ("n2",)


def test_many_jobs_go_back_at_once(waiting: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = set(waiting.burst(300, script="true"))
    begin = time.monotonic()
    assert "gave back 300 held jobs" in deadman(waiting)
    seconds = time.monotonic() - begin
    with capsys.disabled():
        print(f"\n300 held jobs given back in {seconds:.2f} s")
    assert not [j for j in waiting.squeue(states="pending").values() if j.held and j.id in jobs]
    waiting.run("scancel", "--user=alice")


def test_without_a_controller_it_says_so_and_lives_on(waiting: Slurm) -> None:
    job = waiting.sbatch()
    waiting.pause("slurmctld")
    try:
        output = waiting.run("bash", "-c", "timeout 100 cpsched-deadman || echo failed", service="n1", timeout_s=150)
    finally:
        waiting.unpause("slurmctld")
    assert "nothing could be done" in output
    waiting.wait_for_controller()
    assert waiting.job(job).held
