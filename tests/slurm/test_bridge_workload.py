"""Test 300 mixed jobs of ordinary users: all run on the decided nodes, and the holds of other jobs stay unchanged."""

from __future__ import annotations

import random
import statistics

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

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


def test_300_mixed_jobs_complete_where_decided(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.plugin(on=True)
    with LiveBridge(slurm, "workload", start={"timeout_s": 15}) as bridge:
        script, lines = submissions(300, seed=7)
        held = slurm.burst(5, "-H", "-n1", "-t1")
        jobs = slurm.run("bash", "-s", user="alice", stdin=script, timeout_s=300).split()
        assert len(jobs) == lines
        wait_until(lambda: waiting_are(slurm, held), 240, "all jobs but the held ones have ended", every_s=1.0)
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
        replayed = bridge.cpsched("journal", "replay", "--all")
        assert ", 0 different" in replayed
        report(capsys, bridge, ran, decided, replayed)


def waiting_are(slurm: Slurm, held: list[str]) -> bool:
    """Return whether only the jobs in `held` are still in the queue."""
    return set(slurm.run("squeue", "-h", "-o", "%A").split()) == set(held)


def report(capsys, bridge: LiveBridge, ran, decided, replayed: str) -> None:
    late = sorted(bridge.latencies_s())
    phases = bridge.seconds()
    observed = [p["observe"] for p in phases if "observe" in p]
    span_s = max(j.end_s for j in ran.values()) - min(j.submit_s for j in ran.values())
    with capsys.disabled():
        print(f"\n{len(ran)} jobs in {span_s} s, {len(decided)} placed by the bridge, each on the nodes decided")
        print(
            f"decision to seen RUNNING, 1 s polling, n={len(late)}: median {statistics.median(late):.2f} s, "
            f"p99 {late[int(0.99 * (len(late) - 1))]:.2f} s, max {late[-1]:.2f} s"
        )
        print(f"observe: median {statistics.median(observed) * 1000:.0f} ms; replay: {replayed.strip()}")
