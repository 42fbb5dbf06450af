"""Test which user may change which field of a job, and that no user can forge the marks that job_submit.lua sets.

`docs/safety.md` states the rule. A field counts as proof only if Slurm rejects changes to it by every ordinary user.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from tests.slurm.harness import Slurm

USERS = ("alice", "cpsched", "root")
"""The job's owner, a Slurm operator, and an administrator."""

ALL, OPERATORS, ADMINISTRATORS = ["yes", "yes", "yes"], ["no", "yes", "yes"], ["no", "no", "yes"]

WRITERS = {
    # settings of `scontrol update`, and whether the owner, an operator and an administrator may change them
    "AdminComment=bridge:wait": ADMINISTRATORS,
    "SystemComment=bridge:wait": ["no", "no", "no"],
    "SiteFactor=5": OPERATORS,
    "Nice=-3": OPERATORS,
    "Deadline=now+2days": OPERATORS,
    "TasksPerNode=1": OPERATORS,
    "Contiguous=yes": OPERATORS,
    "OverSubscribe=yes": OPERATORS,
    "Reboot=yes": ADMINISTRATORS,
    "Comment=bridge:wait": ALL,
    "Extra=bridge:wait": ALL,
    "JobName=bridge:wait": ALL,
    "WCKey=bridge:wait": ALL,
    "Nice=3": ALL,
    "Priority=0": ALL,
    "ReqNodeList=n2": ALL,
    "ExcNodeList=n1": ALL,
    "Dependency=singleton": ALL,
    "StartTime=now+2hours": ALL,
    "TimeLimit=3": ALL,
    "NumNodes=2": ALL,
    "NumCPUs=2": ALL,
    "MinMemoryNode=100": ALL,
    "Gres=gpu:1": ALL,
    "Features=rack1": ALL,
    "Partition=gpu": ALL,
    "QOS=quick": ALL,
    "Licenses=matlab": ALL,
    "Requeue=0": ALL,
    "ResetAccrueTime": ALL,
}

SUBMIT = """
import json, sys
from pyslurm import JobSubmitDescription
told = {}
for field, value in json.loads(sys.argv[1]).items():
    wish = JobSubmitDescription(name="x", script="#!/bin/sh\\nsleep 1\\n", working_directory="/tmp", time_limit=2,
        standard_output="/dev/null", environment={"A": "b"}, begin_time="now+3600", **{field: value})
    try:
        told[field] = wish.submit()
    except Exception as error:
        told[field] = str(error)
print(json.dumps(told))
"""
"""Code that submits through the library instead of sbatch, as any user can, with any field of the protocol."""

PLUGIN = ("on", "off", "absent")


@pytest.fixture(params=PLUGIN)
def plugin(slurm: Slurm, request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the cluster with the plugin on, switched off, or not configured; yield which."""
    slurm.plugin(on=request.param == "on", begin_delay_s=0)
    if request.param == "absent":
        with slurm.configured("JobSubmitPlugins="):
            yield request.param
    else:
        yield request.param


def may_each(slurm: Slurm, user: str, commands: list[list[str]]) -> list[str]:
    """Run a user's commands in one shell, and return whether each succeeds (yes or no)."""
    lines = [f"{shlex.join(command)} >/dev/null 2>&1 </dev/null && echo yes || echo no" for command in commands]
    return slurm.run("bash", "-s", user=user, stdin="\n".join(lines)).split()


def fields(slurm: Slurm, job: str) -> dict[str, str]:
    """Return a job's record without the fields that Slurm's scheduler changes as time passes."""
    noted = ("AccrueTime", "LastSchedEval", "Scheduler", "Reason")
    return {name: value for name, value in slurm.record(job).items() if name not in noted}


def test_user_permissions_on_pending_job(slurm: Slurm, plugin: str) -> None:
    """They are the same with the plugin on, off and absent, but no user sets the priority of a job that it holds."""
    expected = WRITERS | {"Priority=55": ["no"] * 3 if plugin == "on" else OPERATORS}
    answers = []
    for user in USERS:
        jobs = slurm.burst(len(expected), "--begin=now+1hour", "--time=2")
        changes = [["scontrol", "update", f"JobId={job}", change] for job, change in zip(jobs, expected, strict=True)]
        answers.append(may_each(slurm, user, changes))
    assert dict(zip(expected, map(list, zip(*answers, strict=True)), strict=True)) == expected


@pytest.mark.usefixtures("plugin")
def test_no_user_changes_job_of_another(slurm: Slurm) -> None:
    job = slurm.sbatch("--begin=now+1hour", "--time=2", user="bob")
    before = fields(slurm, job)
    tries = [["scontrol", "update", f"JobId={job}", change] for change in WRITERS]
    tries += [["scontrol", word, job] for word in ("hold", "release", "requeue", "requeuehold", "suspend", "top")]
    assert may_each(slurm, "alice", tries) == ["no"] * len(tries)
    assert fields(slurm, job) == before


def test_submission_cannot_set_marks(slurm: Slurm, plugin: str) -> None:
    """A user's own admin comment is rejected, and a user's own site factor has no effect."""
    fields = {"admin_comment": "bridge:wait", "site_factor": 500, "nice": -5, "priority": 4000, "extra": "bridge:wait"}
    told = slurm.python(SUBMIT, json.dumps(fields), user="alice")
    assert "denied" in told["admin_comment"]
    assert "nice" in told["nice"]
    seen = slurm.squeue()
    for field in ("site_factor", "priority", "extra"):
        job = seen[str(told[field])]
        assert (job.admin_comment, job.held) == (("bridge:wait", True) if plugin == "on" else ("", False))
    factor = slurm.run("squeue", "--noheader", f"--jobs={told['site_factor']}", "--Format=priority")
    assert factor == slurm.run("squeue", "--noheader", f"--jobs={told['extra']}", "--Format=priority")


def test_long_user_comment_does_not_prevent_hold(slurm: Slurm) -> None:
    """Slurm rejects a hold if its mark extends the comment beyond 1,024 bytes, so the plugin truncates the comment."""
    slurm.plugin(on=True, begin_delay_s=0)
    for size in (1000, 1024):
        job = slurm.sbatch("--begin=now+1hour", "--comment=" + "ä" * (size // 2))
        slurm.scontrol("hold", job, user="root")
        assert slurm.job(job).comment.startswith("bridge:admin-held ää")
        slurm.refused("scontrol", "release", job, user="cpsched")
        pinned = slurm.sbatch("--comment=" + "x" * size, "--nodelist=n[1-2]", "--nodes=2")
        slurm.scontrol("update", f"JobId={pinned}", "ReqNodeList=n3,n4", user="cpsched")
        assert slurm.job(pinned).comment.startswith("bridge:asked(n[1-2]) bridge:pinned(n[1-2]) x")
