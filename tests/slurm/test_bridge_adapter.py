"""Test the Slurm adapter on a real cluster: what Slurm does with its commands, and how they are undone."""

from __future__ import annotations

import pytest

from tests.backend_contract import CHECKS
from tests.slurm.harness import EndedJob, Slurm, wait_until
from tests.slurm.inside import adapter


def submit(slurm: Slurm, *requests: str, script: str = "sleep 60") -> list[str]:
    """Submit jobs as alice, which the plugin holds, and return their ids in order."""
    slurm.plugin(on=True, begin_delay_s=0)
    lines = " ; ".join(f"sbatch --parsable -o /dev/null -t 5 {request} --wrap '{script}'" for request in requests)
    return slurm.run("bash", "-c", lines, user="alice").split()


@pytest.mark.conformance
@pytest.mark.parametrize("check", CHECKS)
def test_slurm_keeps_promise_of_backends(slurm: Slurm, check: str) -> None:
    submit(slurm, "-n1", "-n1", "-n1")
    slurm.call(adapter.check_contract, check)


SHAPES = (
    "-n1", "-n6", "-N2 -n4", "-N4 -n8 -c2", "-n20", "-N2", "--gpus=1", "--gres=gpu:1", "-n2 --gpus-per-task=1",
    "-N1 --mem=3G", "-n2 --mem-per-cpu=500", "-C rack1", "-p gpu -n3", "-p short", "-x n1",
    "-N1 -n4 --ntasks-per-node=4", "--array=0-3",
)  # fmt: skip


@pytest.mark.conformance
@pytest.mark.parametrize(("shapes", "least"), [(SHAPES, 14), (("--exclusive", "-N2 --exclusive"), 2)])
def test_slurm_allocates_what_was_decided(slurm: Slurm, shapes: tuple[str, ...], least: int) -> None:
    """Accounting confirms the nodes and cores of every modelled kind of request, and the nodes confirm all amounts."""
    submit(slurm, *shapes)
    told = slurm.call(adapter.start_all)
    assert len(told["decided"]) >= least
    assert set(told["outcomes"]) == {"done"}
    assert told["seen"] == told["decided"]
    assert told["free"] == told["expected"]
    starts = told["decided"]

    def accounted() -> dict[str, EndedJob] | None:
        jobs = slurm.sacct(starts)
        return jobs if jobs.keys() >= starts.keys() and {job.state for job in jobs.values()} == {"RUNNING"} else None

    records = wait_until(accounted, 20, "accounting has the starts")
    assert {job: sorted(records[job].nodes) for job in starts} == starts
    assert {job: records[job].cpus for job in told["cores"]} == told["cores"]


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
def test_ended_jobs_are_reported_and_in_history(slurm: Slurm) -> None:
    jobs = submit(slurm, "-n2", "-N2", "--array=0-1", script="sleep 2")
    told = slurm.call(adapter.start_until_ended)
    assert set(told) == {jobs[0], jobs[1], f"{jobs[2]}_0", f"{jobs[2]}_1"}
    assert all(1 <= run_s <= 10 and known and user == "alice" for run_s, known, user in told.values())


@pytest.mark.conformance
def test_doctor_accepts_documented_cluster_and_names_faults(slurm: Slurm) -> None:
    told = slurm.call(adapter.run_checks)
    assert [name for name, (ok, _, _) in told.items() if not ok] == [], told
    as_nobody = slurm.call(adapter.run_checks, user="alice")
    assert [name for name, (ok, required, _) in as_nobody.items() if required and not ok] == ["privilege"]
    assert "AdminLevel=Operator" in as_nobody["privilege"][2]
