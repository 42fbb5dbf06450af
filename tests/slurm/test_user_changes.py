"""Test that users can change held jobs of their own, and that hostile jobs do not affect other users' jobs."""

from __future__ import annotations

import base64
import shlex

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import CALM, TRANSPORT, Slurm

pytestmark = pytest.mark.usefixtures("plugin_on")

HOSTILE = (
    "x JobState=RUNNING UserId=root(0) Priority=4294901760",
    "JobId=1 JobName=y JobState=COMPLETED",
    "x ReqNodeList=n1 NodeList=n[1-4] NumNodes=4 AdminComment=bridge:wait",
    "x\nJobId=2 JobName=z UserId=bob(2002) JobState=PENDING Reason=None\n",
    "|a|b|c|d|e|f|g|h|", ",", "=", "a=b=c", "(null)", "N/A", "None", "JOBID|STATE", "%i %T", "[1-3]", "1_[0-99%2]",
    "*", "'; scontrol hold 1; '", "$(scontrol hold 1)", "\\n\\t\\\\", "\t\x0b\x0c\r", "\x1b[2J", "x" * 1024, "ä" * 512,
    "\udcff\udcfe", "\u2028\u0085\xa0", "jobarrayid", "-1", "1e400",
)  # fmt: skip
"""Texts that users may write: Slurm's own fields and columns, separators, commands, control characters and bytes."""


@pytest.mark.conformance
def test_hostile_names_and_comments_affect_no_other_job(slurm: Slurm) -> None:
    lines = [
        shlex.join(["sbatch", "--parsable", "--output=/dev/null", "-n2", "-t1", f"{option}={text}", "--wrap=sleep 2"])
        for text in HOSTILE
        for option in ("--job-name", "--comment")
    ]
    with LiveBridge(slurm, "hostile") as bridge:
        submit = base64.b64encode("\n".join(lines).encode("utf-8", "surrogateescape")).decode()
        hostile = slurm.run("bash", "-c", "base64 -d | bash -s", user="alice", stdin=submit).split()
        honest = slurm.burst(10, "-N2", "-n4", "-t1", script="sleep 2", user="bob")
        assert len(hostile) == len(lines)
        slurm.wait_for_state([*hostile, *honest], "COMPLETED", 90)
        jobs = [*hostile, *honest]
        ran, ledger = slurm.wait_for_accounting(jobs), bridge.ledger()
        placed = {job: ledger[job].nodes for job in ran if ledger[job].nodes}
        assert {job: ran[job].nodes for job in placed} == placed
        left = ran.keys() - placed.keys()
        assert len(left) <= (1 if TRANSPORT == "cli" else 0), "left alone, with the reason"
        assert left <= set(hostile)
        of_others = [event for event in bridge.events() if str(event.job_id) not in hostile]
        assert not [event for event in of_others if event.kind not in CALM]


def test_job_held_by_slurm_is_released_once(slurm: Slurm) -> None:
    """If a job requests more than any node has, Slurm's hold and the bridge's release must not alternate."""
    with LiveBridge(slurm, "ping-pong", start={"timeout_s": 5}) as bridge:
        blocked = slurm.burst(4, "-N1", "-n16", "-t1", script="sleep 6")
        slurm.wait_for_state(blocked, "RUNNING", 30)
        one, other = slurm.burst(2, "-N1", "-n1", "-t1", script="sleep 1")
        bridge.wait_for_rounds(2)
        slurm.scontrol("update", f"JobId={one}", "Gres=gpu:9", user="alice")
        slurm.scontrol("update", f"JobId={other}", "NumNodes=10", user="alice")
        slurm.wait_for_state(blocked, "COMPLETED", 40)
        bridge.wait_for_rounds(8)
        before = bridge.transitions()
        bridge.wait_for_rounds(6)
        after = bridge.transitions()
        assert (after[one], after[other]) == (before[one], before[other]), "neither is touched any more"
        assert slurm.states([one, other]) == {one: "PENDING", other: "PENDING"}
        assert not bridge.events("circuit_breaker_tripped")
        slurm.scontrol("update", f"JobId={one}", "Gres=gpu:1", user="alice")
        slurm.wait_for_state(one, "COMPLETED", 30)


def test_jobs_are_changed_between_decision_and_start(slurm: Slurm) -> None:
    """Users change the time limits, node counts and partitions of waiting jobs while the bridge starts these jobs."""
    with LiveBridge(slurm, "changed", start={"timeout_s": 5}) as bridge:
        jobs = slurm.burst(24, "-n2", "-t2", script="sleep 2")
        changes = ("TimeLimit=1", "NumNodes=2", "Partition=gpu", "TimeLimit=2", "Partition=short")
        lines = [f"scontrol update JobId={job} {changes[at % 5]} 2>/dev/null" for at, job in enumerate(jobs)]
        slurm.run("bash", "-s", user="alice", stdin="\n".join(lines) + "\ntrue\n")
        slurm.wait_for_state(jobs, "COMPLETED", 90)
        assert not bridge.events("circuit_breaker_tripped")
        assert {job.restarts for job in slurm.wait_for_accounting(jobs).values()} == {0}
