"""Test the removal of a node from slurm.conf while jobs have the bridge's node lists.

When slurmctld restarts, it fails every job whose `ReqNodeList` contains the removed node. `docs/safety.md` describes
this, and how to remove a node. The first test checks that page. The second test shows that a restarted bridge removes
these lists, and the third that a job held by its owner also loses its list.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.slurm.bridges import FIRST_CYCLE_S, LiveBridge
from tests.slurm.harness import Slurm, wait_until

CYCLE_S = 4.0
"""Seconds between cycles, which leave time to kill the bridge before it checks its last start."""
SLOW = {"cycle": {"interval_s": CYCLE_S}, "options": {"site_policy": False}}
"""Settings without the site's policy, so that the bridge ignores a limit and starts a job that Slurm does not start."""
SMALL = ("-p", "short", "-n2", "-t30", "--requeue")
"""Options of a job on n1 or n2, the nodes of partition short."""


@pytest.fixture
def killed(slurm: Slurm) -> Iterator[tuple[LiveBridge, dict[str, str]]]:
    """Yield a bridge killed right after a start, and the jobs by name; n1 is full, so the bridge chose n2."""
    jobs = {
        "fills n1": slurm.sbatch("-p", "short", "-w", "n1", "-n16", "-t30", script="sleep 1800", user="bob"),
        "meets the limit": slurm.sbatch("-w", "n3", "-n1", "-t30", script="sleep 1800"),
        "runs unpinned": slurm.sbatch(*SMALL, "-C", "rack2", script="sleep 1800", user="bob"),
    }
    slurm.wait_for_state(jobs.values(), "RUNNING")
    slurm.limit("alice", MaxJobs="1")
    slurm.plugin(on=True)
    bridge = LiveBridge(slurm, "killed", **SLOW)
    try:
        bridge.start()
        jobs["runs pinned"] = slurm.sbatch(*SMALL, script="sleep 1800", user="bob")
        slurm.wait_for_state(jobs["runs pinned"], "RUNNING")
        jobs["waits pinned"] = slurm.sbatch(*SMALL)
        wait_until(lambda: slurm.job(jobs["waits pinned"]).required_nodes, 30, "the start is sent", every_s=0.0)
        bridge.kill()
        jobs["waits unpinned"] = slurm.sbatch(*SMALL)
        seen = slurm.squeue()
        assert (seen[jobs["waits pinned"]].state, seen[jobs["waits pinned"]].required_nodes) == ("PENDING", "n2")
        assert (seen[jobs["runs pinned"]].nodes, seen[jobs["runs pinned"]].required_nodes) == ("n2", "n2")
        assert seen[jobs["runs unpinned"]].nodes == "n2"
        yield bridge, jobs
    finally:
        bridge.stop()
        print(f"bridge log, its end:\n{bridge.log()[-4000:]}")


def test_slurm_drops_only_jobs_pinned_by_dead_bridge(slurm: Slurm, killed: tuple[LiveBridge, dict[str, str]]) -> None:
    _, jobs = killed
    with slurm.without_node("n2"):
        found = slurm.states(jobs.values())
        assert {what: found[job] for what, job in jobs.items()} == {
            "fills n1": "RUNNING",
            "meets the limit": "RUNNING",
            "runs unpinned": "PENDING",  # Slurm requeues a job whose node is gone
            "runs pinned": "NODE_FAIL",
            "waits pinned": "NODE_FAIL",
            "waits unpinned": "PENDING",
        }
    assert slurm.states([jobs["waits pinned"]]) == {jobs["waits pinned"]: "NODE_FAIL"}, "for ever"


def test_restarted_bridge_removes_old_pins_and_jobs_survive(
    slurm: Slurm, killed: tuple[LiveBridge, dict[str, str]]
) -> None:
    """One job has a pin from a start that failed, and one was requeued while no bridge ran."""
    bridge, jobs = killed
    ours = [jobs["waits pinned"], jobs["runs pinned"]]
    slurm.scontrol("requeue", jobs["runs pinned"])
    slurm.wait_for_state(jobs["runs pinned"], "PENDING")
    assert [slurm.job(job).required_nodes for job in ours] == ["n2", "n2"]
    slurm.drain("n2")  # as the page requires, so that no job starts there any more
    bridge.start(wait=False)
    began_s = time.monotonic()
    wait_until(lambda: not any(slurm.job(job).required_nodes for job in ours), FIRST_CYCLE_S, "no lists")
    print(f"old pins are gone {time.monotonic() - began_s:.1f} s after the bridge was started")
    shy = slurm.sbatch("-p", "short", "-n16", "-t5", "-x", "n2")
    wait_until(lambda: shy in bridge.ledger(), FIRST_CYCLE_S, "the bridge has it")
    with slurm.without_node("n2"):
        assert set(slurm.states([*ours, shy]).values()) == {"PENDING"}
        left = f"{shy}.*excludes n2, which the cluster does not have"
        wait_until(lambda: re.search(left, bridge.cpsched("unmanaged", check=False)), 120, "the bridge says why")
        assert f"job {shy} of alice excludes n2" in bridge.cpsched("doctor", check=False)
        slurm.limit("alice", MaxJobs="-1")
        slurm.run("scancel", jobs["fills n1"], jobs["runs unpinned"])
        slurm.scontrol("update", f"JobId={jobs['runs pinned']}", "StartTime=now", "TimeLimit=1")
        wait_until(lambda: slurm.job(jobs["runs pinned"]).nodes == "n1", 60, "the requeued job runs elsewhere")
        slurm.wait_for_state(jobs["waits pinned"], "COMPLETED", 60)
        slurm.run("scancel", jobs["runs pinned"])
    slurm.wait_for_state(shy, "COMPLETED", 90)
    assert slurm.wait_for_accounting([shy])[shy].nodes == ("n1",)


def test_removes_pin_of_owner_held_job_and_keeps_hold(slurm: Slurm, killed: tuple[LiveBridge, dict[str, str]]) -> None:
    """`release-all` clears the pin, so that the job survives the removal of its node."""
    bridge, jobs = killed
    held = jobs["waits pinned"]
    slurm.run("scontrol", "hold", held, user="alice")
    assert slurm.job(held).required_nodes == "n2"
    assert "the bridge no longer holds any job" in bridge.cpsched("release-all")
    job = slurm.job(held)
    assert (job.required_nodes, job.held, job.reason) == ("", True, "JobHeldUser")
