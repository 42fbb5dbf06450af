"""Test the behaviour of Slurm on which the bridge relies, on a real cluster and without a bridge.

If a test fails after an upgrade of Slurm, an assumption of the bridge no longer holds: read the test's docstring, then
the adapter. Commands that the bridge would send run as the bridge's own user (a Slurm operator).
"""

import time

import pytest

from tests.slurm.harness import Slurm

PYSLURM = """
import json, sys
import pyslurm
from pyslurm import Job, JobSubmitDescription as Wish
RELEASE = 0xffffffff

def attempt(action):
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"
"""


def start(slurm: Slurm, job: str, *nodes: str) -> str:
    """Pin and release a job in one command, as the bridge does, and return "done" or the error."""
    code = (
        f"print(json.dumps(attempt(lambda: Job({job}).modify(Wish(required_nodes={list(nodes)}, priority=RELEASE)))))"
    )
    return slurm.python(PYSLURM + code)


def held_job(slurm: Slurm, *options: str, script: str = "sleep 30") -> str:
    slurm.plugin(on=True, begin_delay_s=0)
    job = slurm.sbatch("--time=10", *options, script=script)
    slurm.plugin(on=False)
    assert slurm.job(job).held
    return job


def cpus_by_node(slurm: Slurm, job: str) -> dict[str, int]:
    """Return the number of CPUs that a running job has on each node, as the controller reports it."""
    shares: dict[str, int] = {}
    for word in slurm.run("scontrol", "--oneliner", "--details", "show", "job", job).split():
        if word.startswith("Nodes="):
            nodes = slurm.run("scontrol", "show", "hostnames", word.removeprefix("Nodes=")).split()
        elif word.startswith("CPU_IDs="):
            ids = word.removeprefix("CPU_IDs=").split(",")
            count = sum(int(b or a) - int(a) + 1 for a, _, b in (i.partition("-") for i in ids))
            shares.update(dict.fromkeys(nodes, count))
    return shares


# Starting


def test_one_command_pins_and_releases(slurm: Slurm) -> None:
    """A single change of required_nodes and priority (INFINITE) starts a held job on the chosen node."""
    job = held_job(slurm)
    assert start(slurm, job, "n3") == "done"
    slurm.wait_for_state(job, "RUNNING", 10)
    assert slurm.job(job).nodes == "n3"


def test_multi_node_start_is_exact(slurm: Slurm) -> None:
    """A node list with a node count and tasks per node gives each of these nodes exactly that number of tasks."""
    job = held_job(slurm, "--ntasks=6")
    slurm.scontrol("update", f"JobId={job}", "ReqNodeList=n1,n2,n4", "NumNodes=3-3", "TasksPerNode=2", user="cpsched")
    slurm.scontrol("release", job, user="cpsched")
    slurm.wait_for_state(job, "RUNNING", 10)
    assert cpus_by_node(slurm, job) == {"n1": 2, "n2": 2, "n4": 2}


def test_slurm_fills_first_node_without_tasks_per_node(slurm: Slurm) -> None:
    """Six tasks pinned to two nodes are split 5 and 1, so the bridge must request any other split."""
    job = held_job(slurm, "--ntasks=6", "--nodes=2")
    assert start(slurm, job, "n1", "n2") == "done"
    slurm.wait_for_state(job, "RUNNING", 10)
    assert cpus_by_node(slurm, job) == {"n1": 5, "n2": 1}


def test_slurm_may_use_fewer_nodes_without_node_count(slurm: Slurm) -> None:
    """Three tasks pinned to three nodes run on one node without --nodes, so the bridge must also set a node count."""
    job = held_job(slurm, "--ntasks=3")
    assert start(slurm, job, "n1", "n2", "n3") == "done"
    slurm.wait_for_state(job, "RUNNING", 10)
    assert cpus_by_node(slurm, job) == {"n1": 3}


def test_gpus_are_on_pinned_node(slurm: Slurm) -> None:
    job = held_job(slurm, "--nodes=1", "--gres=gpu:2")
    assert start(slurm, job, "n4") == "done"
    slurm.wait_for_state(job, "RUNNING", 10)
    used = slurm.python(
        "import json, pyslurm; print(json.dumps({n: x.allocated_gres for n, x in pyslurm.Nodes.load().items()}))"
    )
    assert used["n4"] == {"gpu": 2}
    assert used["n3"] in ({}, {"gpu": 0})


def test_pin_of_released_pending_job_can_be_moved(slurm: Slurm) -> None:
    """Slurm accepts a new node list for any pending job, whether it is held or not."""
    slurm.drain("n1")
    job = slurm.sbatch("--nodelist=n1", "--time=10", script="sleep 30")
    slurm.scontrol("update", f"JobId={job}", "ReqNodeList=n2", user="cpsched")
    slurm.wait_for_state(job, "RUNNING", 15)
    assert slurm.job(job).nodes == "n2"


# Impossible starts


def test_rejects_unknown_node(slurm: Slurm) -> None:
    job = held_job(slurm)
    assert "Invalid node name" in start(slurm, job, "n99")
    assert slurm.job(job).held


def test_drained_node_leaves_job_pending_and_others_start(slurm: Slurm) -> None:
    """A job pinned to a drained node waits with ReqNodeNotAvail, until the bridge holds it and clears its pin."""
    slurm.drain("n1")
    stuck, other = held_job(slurm), held_job(slurm)
    assert start(slurm, stuck, "n1") == "done"
    assert start(slurm, other, "n2") == "done"
    slurm.wait_for_state(other, "RUNNING", 10)
    slurm.wait_until(lambda: slurm.job(stuck).reason.startswith("ReqNodeNotAvail"), 15, "the reason says so")
    slurm.scontrol("hold", stuck, user="cpsched")
    slurm.scontrol("update", f"JobId={stuck}", "ReqNodeList=", user="cpsched")
    job = slurm.job(stuck)
    assert (job.state, job.reason, job.held, job.required_nodes) == ("PENDING", "JobHeldAdmin", True, "")


def test_full_node_leaves_job_pending(slurm: Slurm) -> None:
    first, second = held_job(slurm, "--exclusive"), held_job(slurm)
    start(slurm, first, "n1")
    slurm.wait_for_state(first, "RUNNING", 10)
    start(slurm, second, "n1")
    slurm.wait_until(lambda: slurm.job(second).reason == "Resources", 15, "the reason says so")
    assert slurm.job(second).state == "PENDING"


def test_slurm_holds_job_with_impossible_pin(slurm: Slurm) -> None:
    """Slurm itself holds a GPU job pinned to a node without GPUs, with the reason BadConstraints."""
    job = held_job(slurm, "--nodes=1", "--gres=gpu:1")
    start(slurm, job, "n1")
    slurm.wait_until(lambda: slurm.job(job).reason == "BadConstraints", 15, "the reason says so")
    assert slurm.job(job).held


def test_start_of_cancelled_job_is_error(slurm: Slurm) -> None:
    """Starting a cancelled job is an error and does not revive the job."""
    job = held_job(slurm)
    slurm.run("scancel", job, user="alice")
    assert start(slurm, job, "n1") != "done"
    assert slurm.states([job]) in ({}, {job: "CANCELLED"})


# Holding


def test_hold_of_running_job_changes_nothing(slurm: Slurm) -> None:
    """The job continues to run with priority 0 and JobHeldAdmin, so only its state shows that it is not held."""
    job = slurm.sbatch("--time=10", script="sleep 4")
    slurm.wait_for_state(job, "RUNNING", 10)
    outcome = slurm.python(PYSLURM + f"print(json.dumps(attempt(lambda: Job({job}).hold())))")
    seen = slurm.job(job)
    assert (outcome, seen.state, seen.reason, seen.priority) == ("done", "RUNNING", "JobHeldAdmin", 0)
    slurm.wait_for_state(job, "COMPLETED", 15)


def test_slurm_rejects_priority_of_held_job(slurm: Slurm) -> None:
    job = held_job(slurm)
    outcome = slurm.python(PYSLURM + f"print(json.dumps(attempt(lambda: Job({job}).modify(Wish(priority=77)))))")
    assert "held" in outcome
    assert slurm.job(job).held


def test_owner_cannot_release_admin_hold(slurm: Slurm) -> None:
    job = slurm.sbatch("--begin=now+1hour", "--time=10")
    slurm.scontrol("hold", job, user="cpsched")
    slurm.refused("scontrol", "release", job, user="alice")
    assert slurm.job(job).reason == "JobHeldAdmin"


@pytest.mark.parametrize("empty", ["[]", "''"])
def test_empty_node_list_from_pyslurm_clears_nothing(slurm: Slurm, empty: str) -> None:
    """pyslurm does not send an empty node list as a change, but scontrol's empty ReqNodeList clears the list."""
    job = held_job(slurm)
    code = f"a = attempt(lambda: Job({job}).modify(Wish(required_nodes=['n2'])))\n"
    code += f"b = attempt(lambda: Job({job}).modify(Wish(required_nodes={empty})))\n"
    slurm.python(PYSLURM + code + "print(json.dumps([a, b]))")
    assert slurm.job(job).required_nodes == "n2"
    slurm.scontrol("update", f"JobId={job}", "ReqNodeList=", user="cpsched")
    assert slurm.job(job).required_nodes == ""


def test_one_scontrol_releases_many_jobs(slurm: Slurm) -> None:
    slurm.plugin(on=True, begin_delay_s=0)
    jobs = slurm.burst(30, "--time=10", script="true")
    slurm.plugin(on=False)
    assert all(slurm.squeue()[j].held for j in jobs)
    slurm.scontrol("release", ",".join(jobs), user="cpsched")
    slurm.wait_for_state(jobs, "COMPLETED", 60)


# Arrays


def test_pending_array_is_one_record(slurm: Slurm) -> None:
    """The array's record lists its waiting tasks, and releasing a single task by scontrol splits off that task."""
    array = held_job(slurm, "--array=1-4")
    code = "import json, pyslurm; j = pyslurm.Jobs.load()\n"
    code += f"print(json.dumps([x.array_tasks_waiting for x in j.values() if x.array_id == {array}]))"
    assert slurm.python(code) == ["1-4"]
    slurm.scontrol("update", f"JobId={array}_3", "ReqNodeList=n2", user="cpsched")
    slurm.scontrol("release", f"{array}_3", user="cpsched")
    slurm.wait_until(lambda: slurm.squeue(tasks=True)[f"{array}_3"].state == "RUNNING", 10, "task 3 runs")
    tasks = slurm.squeue(tasks=True)
    assert tasks[f"{array}_3"].nodes == "n2"
    assert all(tasks[f"{array}_{i}"].held for i in (1, 2, 4))


def test_change_by_array_id_changes_all_pending_tasks(slurm: Slurm) -> None:
    array = held_job(slurm, "--array=1-3")
    assert start(slurm, array, "n2") == "done"
    tasks = [f"{array}_{i}" for i in (1, 2, 3)]

    def all_run() -> bool:
        present = slurm.squeue(tasks=True)
        return all(present[t].state == "RUNNING" and present[t].nodes == "n2" for t in tasks)

    slurm.wait_until(all_run, 15, "all three tasks run on n2")


# Failures


def test_job_is_requeued_without_hold_after_node_failure(slurm: Slurm) -> None:
    """The requeued job is not held and keeps its old node list, so the bridge must hold it and clear the list."""
    job = held_job(slurm, script="sleep 300")
    start(slurm, job, "n2")
    slurm.wait_for_state(job, "RUNNING", 10)
    slurm.kill("n2")
    slurm.wait_for_state(job, "PENDING", 120)
    seen = slurm.job(job)
    assert not seen.held
    assert seen.required_nodes == "n2"
    assert slurm.record(job)["Restarts"] == "1"


def test_restarted_controller_keeps_holds_and_pins(slurm: Slurm) -> None:
    """slurmctld saves its state before an orderly restart."""
    job = held_job(slurm)
    slurm.scontrol("update", f"JobId={job}", "ReqNodeList=n2", user="cpsched")
    slurm.restart("slurmctld")
    seen = slurm.job(job)
    assert seen.held
    assert (seen.required_nodes, seen.admin_comment) == ("n2", "bridge:wait")


def test_killed_controller_loses_only_last_seconds(slurm: Slurm) -> None:
    """slurmctld saves its state every few seconds, so SIGKILL loses only the changes of the last seconds."""
    job = held_job(slurm)
    slurm.scontrol("update", f"JobId={job}", "ReqNodeList=n2", user="cpsched")
    time.sleep(10)
    slurm.kill("slurmctld")
    slurm.start("slurmctld")
    slurm.wait_for_controller()
    seen = slurm.job(job)
    assert seen.held
    assert (seen.required_nodes, seen.admin_comment) == ("n2", "bridge:wait")


# Privilege


def test_operator_permissions(slurm: Slurm) -> None:
    """An operator may hold, pin, comment, prioritize, requeue, release and cancel other users' jobs."""
    job = slurm.sbatch("--time=10", "--begin=now+1hour", script="sleep 30")
    for change in ("Comment=seen", "ReqNodeList=n2", "ReqNodeList=", "SiteFactor=5", "TimeLimit=5", "NumNodes=1-1"):
        slurm.scontrol("update", f"JobId={job}", change, user="cpsched")
    slurm.scontrol("hold", job, user="cpsched")
    slurm.scontrol("update", f"JobId={job}", "StartTime=now", user="cpsched")
    slurm.scontrol("release", job, user="cpsched")
    slurm.wait_for_state(job, "RUNNING", 10)
    slurm.scontrol("requeue", job, user="cpsched")
    slurm.wait_for_state(job, "PENDING", 20)
    slurm.run("scancel", job, user="cpsched")
    slurm.wait_for_state(job, "CANCELLED", 10)


def test_operator_cannot_write_admin_comments_or_manage_users(slurm: Slurm) -> None:
    """The bridge's marks are admin comments, which only the plugin and administrators may write."""
    job = slurm.sbatch("--hold", "--time=10")
    slurm.refused("scontrol", "update", f"JobId={job}", "AdminComment=x", user="cpsched")
    slurm.refused("sacctmgr", "--immediate", "modify", "user", "alice", "set", "AdminLevel=Operator", user="cpsched")
    slurm.refused("scontrol", "reconfigure", user="cpsched")
    assert slurm.job(job).admin_comment == ""


def test_ordinary_user_has_no_operator_permission(slurm: Slurm) -> None:
    job = slurm.sbatch("--hold", "--time=10", user="alice")
    slurm.refused("scontrol", "update", f"JobId={job}", "ReqNodeList=n2", user="bob")
    slurm.refused("scontrol", "hold", job, user="bob")


def test_configuration_is_as_documented(slurm: Slurm) -> None:
    config = slurm.run("scontrol", "show", "config")
    for setting in ("batch_sched_delay=0", "default_queue_depth=10000", "sched_interval=5", "disable_job_shrink"):
        assert setting in config
