"""Test the dead-man timer without a bridge: it releases exactly the jobs that are held for the bridge."""

import pytest

from tests.slurm.harness import Slurm

HEARTBEAT = "/var/lib/cpsched/heartbeat"


@pytest.fixture
def waiting(slurm: Slurm) -> Slurm:
    """Return a cluster whose plugin holds jobs, without a dead-man container or heartbeat file."""
    slurm.plugin(on=True, begin_delay_s=0)
    slurm.run("rm", "-f", HEARTBEAT)
    return slurm


def deadman(slurm: Slurm, *arguments: str) -> str:
    settings = ("CPSCHED_DEADMAN_STALE_S=60", "CPSCHED_DEADMAN_CONFIRM_S=1")
    return slurm.run("env", *settings, "cpsched-deadman", *arguments, user="cpsched")


def test_missing_heartbeat_releases_jobs(waiting: Slurm) -> None:
    jobs = [waiting.sbatch(), waiting.sbatch("--nodes=2"), waiting.sbatch("--gres=gpu:1", "--nodes=1")]
    array = waiting.sbatch("--array=1-3")
    assert "released 4 held jobs" in deadman(waiting)
    waiting.wait_for_state(jobs, "COMPLETED", 30)
    waiting.wait_until(
        lambda: [j.state for j in waiting.sacct([array]).values()] == ["COMPLETED"] * 3, 30, "the array ran"
    )


def test_keeps_holds_of_owners_and_administrators(waiting: Slurm) -> None:
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
    told = deadman(waiting)
    assert told.startswith(f"cpsched-deadman: no heartbeat at {HEARTBEAT}\n")
    assert "released" not in told
    assert waiting.squeue(states="pending") == before
    assert set(before) == {own, later, admin, never_managed, never_managed_admin}


def test_keeps_hold_that_bypassed_plugin(waiting: Slurm) -> None:
    """`scontrol requeuehold` bypasses the plugin, so the job has the bridge's mark, but another actor holds it."""
    requeued = {}
    for user in ("alice", "root"):
        job = waiting.sbatch("--requeue", script="sleep 60")
        waiting.scontrol("release", job, user="cpsched")
        waiting.wait_for_state(job, "RUNNING", 15)
        waiting.scontrol("requeuehold", job, user=user)
        requeued[user] = job
    waiting.wait_until(lambda: all(waiting.job(job).held for job in requeued.values()), 30, "both are requeued on hold")
    assert not any("bridge:" in waiting.job(job).comment for job in requeued.values())
    before = waiting.squeue(states="pending")
    deadman(waiting)
    assert waiting.squeue(states="pending") == before
    waiting.scontrol("release", requeued["alice"], user="alice")
    assert not waiting.job(requeued["alice"]).held


@pytest.mark.conformance
def test_releases_array_tasks_besides_running_ones(waiting: Slurm) -> None:
    """While other tasks run, Slurm accepts changes of a requeued, pinned task only by its task number."""
    array = waiting.sbatch("--array=1-2", "--ntasks=2", "--requeue", script="sleep 60")
    tasks = [f"{array}_1", f"{array}_2"]
    for task in tasks:
        waiting.scontrol("update", f"JobId={task}", "ReqNodeList=n2", user="cpsched")
        waiting.scontrol("release", task, user="cpsched")
    waiting.wait_for_state(tasks, "RUNNING", 20)
    waiting.scontrol("requeue", tasks[1])
    waiting.wait_for_state(tasks[1], "PENDING", 20)
    waiting.scontrol("hold", tasks[1], user="cpsched")
    assert "released 1 held jobs, cleared 1 node lists" in deadman(waiting)
    seen = waiting.job(tasks[1])
    assert (seen.held, seen.required_nodes, seen.comment) == (False, "", "")


def test_releases_arrays_with_gaps(waiting: Slurm) -> None:
    """squeue prints steps (0-177:3) and limits (%2), which scontrol does not accept."""
    stepped = waiting.sbatch("--array=" + ",".join(str(3 * n) for n in range(30)) + "%20", script="true")
    mixed = waiting.sbatch("--array=1-4,7,9-15:2", script="true")
    assert "released 2 held jobs" in deadman(waiting)
    waiting.wait_until(
        lambda: [j.state for j in waiting.sacct([stepped, mixed]).values()] == ["COMPLETED"] * 39, 60, "all tasks ran"
    )


@pytest.mark.conformance
def test_job_name_or_comment_cannot_imitate_another_job(waiting: Slurm) -> None:
    """Line breaks in a name or comment look like further lines of squeue's output."""
    target = waiting.sbatch()
    waiting.scontrol("hold", target, user="root")
    line = f"{target:<12}{'0.0':<30}{'JobHeldUser':<30}{'bridge:wait':<20}"
    forger = waiting.sbatch(f"--comment=x\n{line}\n", f"--job-name=y\n{line}\n", "--begin=now+1hour")
    assert "released 1 held jobs" in deadman(waiting)
    assert waiting.job(target).held
    assert not waiting.job(forger).held


@pytest.mark.conformance
def test_clears_bridge_node_lists_and_restores_owner_ones(waiting: Slurm) -> None:
    """A job may be released and still pending, because its node was drained in the meantime."""
    waiting.drain("n3")
    held, stuck, asked = waiting.sbatch(), waiting.sbatch(), waiting.sbatch("--nodelist=n2")
    for job in (held, stuck, asked):
        waiting.scontrol("update", f"JobId={job}", "ReqNodeList=n3", user="cpsched")
    waiting.scontrol("release", stuck, user="cpsched")
    assert "cleared 3 node lists" in deadman(waiting)
    waiting.wait_for_state([held, stuck, asked], "COMPLETED", 30)
    assert waiting.wait_for_accounting([asked])[asked].nodes == ("n2",)
