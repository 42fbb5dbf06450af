"""Test jobs of ordinary users: 300 mixed ones, bursts with the default policy and a rate limit, and dependencies."""

from __future__ import annotations

import random
import statistics

import pytest

from cpsched_bridge.settings import PolicySettings
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import RELEASE, Slurm, wait_until
from tests.slurm.inside import bridge_files

pytestmark = pytest.mark.usefixtures("plugin_on")

KINDS = {
    "one core": ["-n1"],
    "some cores": ["-n6"],
    "two nodes": ["-N2", "-n4"],
    "four nodes": ["-N4", "-n8"],
    "more than a node": ["-n20"],
    "GPU": ["--gres=gpu:1"],
    "GPUs per task": ["-n2", "--gpus-per-task=1"],
    "memory": ["-n1", "--mem=5G"],
    "memory per core": ["-n3", "--mem-per-cpu=2G"],
    "whole node": ["-N1", "--exclusive"],
    "feature": ["-n2", "-C", "rack1"],
    "short partition": ["-n2", "-p", "short"],
    "array": ["-n1", "--array=0-3"],
    "limited array": ["-n1", "--array=0-5%2"],
    "left to Slurm": ["-w", "n2", "-n1"],
    "left to Slurm, too": ["-N2", "-n3"],
}
WEIGHTS = [8, 4, 3, 1, 1, 4, 1, 2, 2, 1, 3, 2, 1, 1, 1, 1]
TASKS = {"array": 4, "limited array": 6}


def submissions(count: int, seed: int) -> tuple[str, int]:
    """Return shell lines that submit `count` jobs and array tasks, some with dependencies, and the number of lines."""
    choose = random.Random(seed)
    lines, jobs, last_seconds = [], 0, (1, 2, 2, 3)
    while jobs < count:
        kind = choose.choices(list(KINDS), WEIGHTS)[0]
        jobs += TASKS.get(kind, 1)
        options = " ".join(KINDS[kind])
        depends = '-d "afterany:$j"' if choose.random() < 0.07 and lines else ""
        sleep = choose.choice(last_seconds)
        lines.append(f"j=$(sbatch --parsable -o /dev/null -t 1 {options} {depends} --wrap 'sleep {sleep}') && echo $j")
    return "j=\n" + "\n".join(lines), len(lines)


def test_300_mixed_jobs_complete_where_decided(slurm: Slurm) -> None:
    """The holds of other jobs stay unchanged."""
    with LiveBridge(slurm, "workload", start={"timeout_s": 15}) as bridge:
        script, lines = submissions(300, seed=7)
        held = slurm.burst(5, "-H", "-n1", "-t1")
        jobs = slurm.run("bash", "-s", user="alice", stdin=script, timeout_s=300).split()
        assert len(jobs) == lines

        def waiting_are_held() -> bool:
            return set(slurm.run("squeue", "-h", "-o", "%A").split()) == set(held)

        wait_until(waiting_are_held, 240, "all jobs but the held ones have ended", every_s=1.0)
        bridge.wait_for_rounds(2)
        wait_until(lambda: {job.state for job in slurm.sacct(jobs).values()} == {"COMPLETED"}, 60, "accounting has all")
        ran = slurm.sacct(jobs)
        assert len(ran) >= 300
        assert all(slurm.job(job).held and not slurm.job(job).required_nodes for job in held)
        ledger = bridge.ledger()
        decided = {job: ledger[job].nodes for job in ran if job in ledger and ledger[job].nodes}
        assert len(decided) > 250
        assert {job: tuple(sorted(ran[job].nodes)) for job in decided} == decided
        assert {job.restarts for job in ran.values()} == {0}
        assert not [job for job in held if job in ledger and ledger[job].state != "free"]
        assert ", 0 different" in bridge.cpsched("journal", "replay", "--all")


FAILURES = "select detail from events where kind = 'fallback' and detail like 'the fallback decides:%'"
ENOUGH = 5
"""Minimum number of rounds with pending jobs that the default policy decides."""


@pytest.mark.conformance
def test_default_policy_decides_without_fallback(slurm: Slurm) -> None:
    """Other live tests use `easy`, which starts quickly and runs in the bridge's process.

    If a policy fails, the fallback decides and jobs still start, so only an event reports the failure.
    """
    default = PolicySettings().dispatcher
    with LiveBridge(slurm, "default", policy={}) as bridge:

        def decided() -> list[tuple[str, str]]:
            """Return the dispatcher and error of each round since the default policy first decided."""
            found = bridge.files.call(bridge_files.dispatchers, bridge.state)
            names = [dispatcher for dispatcher, _ in found]
            return found[names.index(default) :] if default in names else []

        def failures() -> list[list[str]]:
            return bridge.query("journal", FAILURES)

        jobs = slurm.burst(60, "-N3", "--exclusive", "-t1", script="sleep 3")
        bridge.wait_until(lambda: failures() or len(decided()) >= ENOUGH, 300, f"{default} decides")
        slurm.run("scancel", *jobs, user="alice")
        assert failures() == []
        assert {(dispatcher, failure) for dispatcher, failure in decided()} == {(default, "")}


@pytest.mark.conformance
@pytest.mark.skipif(RELEASE["slurm"] == "22.05", reason="slurmctld limits calls from 23.02 on")
def test_burst_starts_under_slurm_rate_limit(slurm: Slurm) -> None:
    """No start fails under Slurm's default limit: 30 calls, and 2 more per second."""
    limited = LiveBridge(slurm, "limited", options={"transport": "auto"})
    with slurm.configured("SlurmctldParameters=rl_enable"), limited as bridge:
        jobs = slurm.burst(40, "-n1", "-t5", script="sleep 120")
        slurm.wait_for_state(jobs, "RUNNING", 120)
        assert "cli: " in bridge.log()
        assert not bridge.events("start_failed", "start_refused")


DEPENDENCIES = ("afterok", "afterany", "afternotok", "after", "aftercorr", "singleton")


def test_dependent_jobs_do_not_wait_for_check_of_slurmctld(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    """slurmctld checks the dependencies of held jobs once a minute, so they would wait for half a minute on average."""
    with LiveBridge(slurm, "dependencies"):
        pairs = [_pair(slurm, kind) for kind in DEPENDENCIES for _ in range(3)]
        slurm.wait_for_state([child for child, _, _ in pairs], "COMPLETED", 90)
        ran = slurm.sacct()
        waits = {kind: [] for kind in DEPENDENCIES}
        for child, parent, kind in pairs:
            since_s = ran[parent].start_s if kind == "after" else ran[parent].end_s
            waits[kind].append(ran[child].start_s - since_s)
        with capsys.disabled():
            print(f"\nfrom the parent's end to the dependent's start, in whole seconds: {waits}")
        assert all(wait >= 0 for each in waits.values() for wait in each), "none started before it might"
        assert statistics.median(wait for each in waits.values() for wait in each) < 15


def _pair(slurm: Slurm, kind: str) -> tuple[str, str, str]:
    """Submit a job that depends on another. Return both ids and the kind; for arrays, the ids of one task each."""
    options = ("-n1", "-t1")
    end = "exit 1" if kind == "afternotok" else "exit 0"
    script = f"sleep 2; {end}"
    if kind == "aftercorr":
        parent = slurm.sbatch("--array=1-2", *options, script=script)
        child = slurm.sbatch("--array=1-2", f"--dependency=aftercorr:{parent}", *options, script="true")
        return f"{child}_2", f"{parent}_2", kind
    if kind == "singleton":
        name = f"--job-name=only-{slurm.sbatch('--begin=now+1hour')}"
        parent = slurm.sbatch(name, *options, script=script)
        return slurm.sbatch(name, "--dependency=singleton", *options, script="true"), parent, kind
    parent = slurm.sbatch(*options, script=script)
    return slurm.sbatch(f"--dependency={kind}:{parent}", *options, script="true"), parent, kind
