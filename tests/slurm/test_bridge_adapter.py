"""Test the Slurm adapter on a real cluster: commands, their undoing, arrays, and faults of the child or controller."""

from __future__ import annotations

import re
import time

import pytest

from tests.slurm.harness import TRANSPORT, Slurm, wait_until
from tests.slurm.inside import adapter

pytestmark = pytest.mark.slurm


def submit(slurm: Slurm, *requests: str, script: str = "sleep 60") -> list[str]:
    """Submit jobs as alice, which the plugin holds, and return their ids in order."""
    slurm.plugin(on=True, begin_delay_s=0)
    lines = " ; ".join(f"sbatch --parsable -o /dev/null -t 5 {request} --wrap '{script}'" for request in requests)
    return slurm.run("bash", "-c", lines, user="alice").split()


@pytest.mark.conformance
def test_slurm_allocates_what_was_decided(slurm: Slurm) -> None:
    """Accounting confirms the nodes and cores of every modelled kind of request, and the nodes confirm all amounts."""
    shapes = [
        "-n1", "-n6", "-N2 -n4", "-N4 -n8 -c2", "-n20", "-N2", "--gpus=1", "--gres=gpu:1", "-n2 --gpus-per-task=1",
        "-N1 --mem=3G", "-n2 --mem-per-cpu=500", "-C rack1", "-p gpu -n3", "-p short", "-x n1",
        "-N1 -n4 --ntasks-per-node=4", "--array=0-3",
    ]  # fmt: skip
    submit(slurm, *shapes)
    told = slurm.call(adapter.start_all)
    assert len(told["decided"]) >= len(shapes) - 3
    assert set(told["outcomes"]) == {"done"}
    assert told["seen"] == told["decided"]
    assert told["free"] == told["expected"]
    starts = told["decided"]
    records = wait_until(
        lambda: (
            (seen := slurm.sacct(starts)).keys() >= starts.keys() and all(job.nodes for job in seen.values()) and seen
        ),
        20,
        "accounting has the starts",
    )
    assert {job: sorted(records[job].nodes) for job in told["decided"]} == told["decided"]
    assert {job: records[job].cpus for job in told["cores"]} == told["cores"]


@pytest.mark.conformance
def test_exclusive_job_takes_whole_node(slurm: Slurm) -> None:
    job, _ = submit(slurm, "--exclusive", "-N2 --exclusive")
    told = slurm.call(adapter.start_all)
    assert told["seen"] == told["decided"]
    assert len(told["decided"]) == 2
    taken = [node for nodes in told["decided"].values() for node in nodes]
    assert len(taken) == len(set(taken)) == 3
    assert told["free"] == told["expected"]
    assert job in told["decided"]


def settings(record: dict[str, str]) -> dict[str, str]:
    """Return the fields of a job's request."""
    fields = ("NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "ReqNodeList", "NtasksPerN:B:S:C", "Priority", "JobState")
    found = {field: record[field] for field in fields if field in record}
    # No maximum number of nodes is equivalent to one node per task. Slurm cannot clear the maximum once it is set.
    least, _, most = found["NumNodes"].partition("-")
    return found | {"NumNodes": f"{least}-{most or found['NumTasks']}"}


@pytest.mark.conformance
def test_failed_start_is_undone_completely(slurm: Slurm) -> None:
    """On drained nodes, released jobs stay pending. Held again, they have their original requests."""
    jobs = submit(slurm, "-n4", "-N2 -n4", "-n1", "-n20", "-n3 -c2", "-N2 -n4 -c2", "-n4 --ntasks-per-node=4")
    before = [settings(slurm.record(job)) for job in jobs]
    for node in ("n1", "n2", "n3", "n4"):
        slurm.drain(node)
    assert slurm.call(adapter.start_and_hold_again) == [["done", ""]] * len(jobs)
    assert [settings(slurm.record(job)) for job in jobs] == before


@pytest.mark.conformance
def test_keeps_owner_holds_and_node_lists(slurm: Slurm) -> None:
    held, chosen, plain = submit(slurm, "-H -n1", "-w n2", "-n1")
    told = slurm.call(adapter.hold_and_release, held, chosen, plain)
    assert told["hold"] == ["refused", "done", "done"]
    assert told["back"] == ["refused", "done", "done"]
    assert chosen in told["unmanaged"]
    slurm.wait_for_state([chosen, plain], "RUNNING", 15)
    assert slurm.job(held).held
    assert slurm.job(chosen).nodes == "n2"


@pytest.mark.conformance
def test_neither_starts_nor_holds_running_job(slurm: Slurm) -> None:
    """Setting a node list on a running job would shrink the job to those nodes."""
    (job,) = submit(slurm, "-N2")
    told = slurm.call(adapter.start_and_hold_running_job)
    assert told == ["done", "refused", "refused"]
    assert slurm.record(job)["NumNodes"] == "2"
    assert slurm.record(job)["JobState"] == "RUNNING"


@pytest.mark.conformance
def test_requeued_job_with_old_pin_is_adopted(slurm: Slurm) -> None:
    (job,) = submit(slurm, "-n2 --requeue")
    told = slurm.call(adapter.requeue_pinned_job)
    found, result, after = told
    assert found == [["none", True]]
    assert result == "done"
    assert after == [["plugin", False]]
    assert slurm.job(job).held


@pytest.mark.conformance
def test_some_array_tasks_start_and_others_wait(slurm: Slurm) -> None:
    (array,) = submit(slurm, "--array=0-5%3 -n2")
    told = slurm.call(adapter.start_two_eligible_jobs)
    eligible, running, waiting = told
    tasks = [f"{array}_{task}" for task in range(6)]
    assert eligible == tasks[:3]
    assert running == tasks[:2]
    assert waiting == {tasks[2]: ["plugin", True], **{task: ["plugin", False] for task in tasks[3:]}}


@pytest.mark.conformance
def test_ended_jobs_are_reported_and_in_history(slurm: Slurm) -> None:
    jobs = submit(slurm, "-n2", "-N2", "--array=0-1", script="sleep 2")
    told = slurm.call(adapter.start_until_ended)
    assert set(told) == {jobs[0], jobs[1], f"{jobs[2]}_0", f"{jobs[2]}_1"}
    assert all(1 <= run_s <= 10 and known and user == "alice" for run_s, known, user in told.values())


@pytest.mark.skipif(TRANSPORT == "cli", reason="the transport has no process that stays")
def test_killed_or_hung_child_fails_one_call(slurm: Slurm) -> None:
    told = slurm.call(adapter.stop_and_kill_child, 5.0)
    kinds, waited, children, nodes = told
    assert kinds == ["BackendTimeout", "BackendDied"]
    assert 4 < waited < 8
    assert (children, nodes) == (3, 4)


def test_stopped_controller_is_error_within_deadline(slurm: Slurm) -> None:
    assert slurm.call(adapter.observe_within, 20.0)[0] == "answered"
    slurm.pause("slurmctld")
    try:
        kind, waited = slurm.call(adapter.observe_within, 5.0)
    finally:
        slurm.unpause("slurmctld")
    assert kind == "BackendTimeout"
    assert waited < 8
    slurm.wait_for_controller()
    began_s = time.monotonic()
    slurm.stop("slurmctld")
    try:
        kind, waited = slurm.call(adapter.observe_within, 5.0)
    finally:
        slurm.start("slurmctld")
    assert kind in ("BackendUnavailable", "BackendTimeout")
    assert waited < 8
    slurm.wait_for_controller()
    assert slurm.call(adapter.observe_within, 5.0)[0] == "answered"
    assert time.monotonic() - began_s < 60


@pytest.mark.conformance
def test_doctor_accepts_documented_cluster_and_names_faults(slurm: Slurm) -> None:
    told = slurm.call(adapter.run_checks)
    assert [name for name, (ok, _, _) in told.items() if not ok] == [], told
    as_nobody = slurm.call(adapter.run_checks, user="alice")
    assert [name for name, (ok, required, _) in as_nobody.items() if required and not ok] == ["privilege"]
    assert re.search("AdminLevel=Operator", as_nobody["privilege"][2])
