"""Test the behaviour of Slurm on which the bridge relies, on a real cluster and without a bridge.

If a test fails after an upgrade of Slurm, an assumption of the bridge no longer holds: read the test's docstring, then
the adapter. Commands that the bridge would send run as the bridge's own user (a Slurm operator). What the bridge's own
commands do is in `tests.backend_contract` and `test_bridge_adapter.py`.
"""

from tests.slurm.harness import Slurm


def pin(slurm: Slurm, job: str, node: str) -> None:
    slurm.scontrol("update", f"JobId={job}", f"ReqNodeList={node}", user="cpsched")


def start(slurm: Slurm, job: str, node: str) -> None:
    pin(slurm, job, node)
    slurm.scontrol("release", job, user="cpsched")


def held_jobs(slurm: Slurm, *requests: str) -> list[str]:
    """Submit jobs that the plugin holds, and switch it off, so that it does not change the bridge's commands."""
    slurm.plugin(on=True, begin_delay_s=0)
    jobs = [slurm.sbatch("--time=10", *request.split(), script="sleep 30") for request in requests]
    slurm.plugin(on=False)
    return jobs


def test_reason_says_why_pinned_job_does_not_start(slurm: Slurm) -> None:
    """Slurm itself holds a GPU job pinned to a node without GPUs."""
    slurm.drain("n1")
    fills, full, drained, impossible = held_jobs(slurm, "--exclusive", "-n1", "-n1", "--nodes=1 --gres=gpu:1")
    start(slurm, fills, "n2")
    slurm.wait_for_state(fills, "RUNNING", 10)
    cases = ((full, "n2", "Resources"), (drained, "n1", "ReqNodeNotAvail"), (impossible, "n2", "BadConstraints"))
    for job, node, reason in cases:
        start(slurm, job, node)
        slurm.wait_until(lambda job=job, reason=reason: slurm.job(job).reason.startswith(reason), 15, reason)
        assert slurm.job(job).held == (job == impossible)
        slurm.run("scancel", job)


def test_unknown_node_and_cancelled_job_are_errors(slurm: Slurm) -> None:
    job, cancelled = held_jobs(slurm, "-n1", "-n1")
    message = slurm.refused("scontrol", "update", f"JobId={job}", "ReqNodeList=n99", user="cpsched")
    assert "Invalid node name" in message
    assert slurm.job(job).held
    slurm.run("scancel", cancelled, user="alice")
    slurm.refused("scontrol", "update", f"JobId={cancelled}", "ReqNodeList=n1", user="cpsched")
    slurm.refused("scontrol", "release", cancelled, user="cpsched")
    assert slurm.states([cancelled]) in ({}, {cancelled: "CANCELLED"})


def test_killed_controller_keeps_saved_holds_pins_and_marks(slurm: Slurm) -> None:
    """slurmctld saves its state every few seconds, so SIGKILL loses only the changes of the last seconds."""
    (job,) = held_jobs(slurm, "-n1")
    slurm.restart("slurmctld")  # a controller that has never saved its accounting data cannot start again
    pin(slurm, job, "n2")
    slurm.wait_until_saved(job)
    slurm.kill("slurmctld")
    slurm.start("slurmctld")
    seen = slurm.job(job)
    assert (seen.held, seen.required_nodes, seen.admin_comment) == (True, "n2", "bridge:wait")


def test_operator_permissions(slurm: Slurm) -> None:
    """An operator may hold, pin, comment, prioritize, requeue, release and cancel other users' jobs, but no more."""
    job = slurm.sbatch("--time=10", "--begin=now+1hour", script="sleep 30")
    for change in ("Comment=seen", "ReqNodeList=n2", "ReqNodeList=", "SiteFactor=5", "TimeLimit=5", "NumNodes=1-1"):
        slurm.scontrol("update", f"JobId={job}", change, user="cpsched")
    slurm.scontrol("hold", job, user="cpsched")
    slurm.refused("scontrol", "release", job, user="alice")
    assert slurm.job(job).reason == "JobHeldAdmin"
    slurm.scontrol("update", f"JobId={job}", "StartTime=now", user="cpsched")
    slurm.scontrol("release", job, user="cpsched")
    slurm.wait_for_state(job, "RUNNING", 10)
    slurm.scontrol("requeue", job, user="cpsched")
    slurm.wait_for_state(job, "PENDING", 20)
    slurm.run("scancel", job, user="cpsched")
    slurm.wait_for_state(job, "CANCELLED", 10)
    slurm.refused("sacctmgr", "--immediate", "modify", "user", "alice", "set", "AdminLevel=Operator", user="cpsched")
    slurm.refused("scontrol", "reconfigure", user="cpsched")
