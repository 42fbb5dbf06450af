"""The same jobs under Slurm's own backfill and under the bridge, on the same cluster, one after the other.

`make cluster`, then `python -m tests.slurm.compare [--jobs N] [--dispatcher NAME]...`: submits a seeded mix as ordinary
users at seeded moments, waits for all of it, and prints mean wait, mean and 95th percentile of the bounded slowdown,
and makespan, from the accounting records.
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import dataclass

from cpsched.metrics import bounded_slowdown
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import EndedJob, Slurm, wait_until


@dataclass(frozen=True, slots=True)
class Submission:
    """One sbatch: when, as whom, asking for what, and how long it runs."""

    pause_s: float
    user: str
    options: str
    run_s: int


def workload(count: int, seed: int, mean_pause_s: float) -> list[Submission]:
    """Small and large jobs, short and long; limits are given in whole minutes, as Slurm wants them."""
    choose = random.Random(seed)
    shapes = ["-n1", "-n2", "-n4", "-n8", "-n16", "-N2 -n8", "-N2 -n32", "-N4 -n16", "-n4 --gres=gpu:1", "-n1 --mem=6G"]
    found = []
    for _ in range(count):
        run_s = choose.choice([2, 3, 5, 8, 13, 21, 34])
        limit = 1 if run_s < 30 or choose.random() < 0.3 else 2
        shape = choose.choices(shapes, [6, 5, 5, 4, 2, 3, 1, 1, 3, 2])[0]
        pause_s = choose.expovariate(1 / mean_pause_s)
        found.append(Submission(pause_s, choose.choice(["alice", "bob"]), f"{shape} -t{limit}", run_s))
    return found


def submit(slurm: Slurm, jobs: list[Submission]) -> list[str]:
    """Submit all, at their moments; ids in order."""
    lines = [
        f"sleep {job.pause_s:.2f}; runuser -u {job.user} -- sbatch --chdir=/tmp --parsable -o /dev/null {job.options} "
        f"--wrap 'sleep {job.run_s}'"
        for job in jobs
    ]
    return slurm.run("bash", "-s", user="root", stdin="\n".join(lines), timeout_s=900).split()


def measure(slurm: Slurm, jobs: list[Submission], name: str) -> dict[str, EndedJob]:
    """Run all to their ends, and print what came of it."""
    ids = submit(slurm, jobs)
    wait_until(lambda: not slurm.run("squeue", "-h").strip(), 900, "all jobs have ended", every_s=1.0)
    ran = slurm.sacct(ids)
    assert len(ran) == len(jobs), f"{len(ran)} of {len(jobs)} jobs are in the accounting database"
    assert {job.state for job in ran.values()} == {"COMPLETED"}
    waits, slowdowns = [], []
    for job in ran.values():
        assert job.start_s is not None
        assert job.end_s is not None
        waits.append(job.start_s - job.submit_s)
        slowdowns.append(float(bounded_slowdown(waits[-1], job.end_s - job.start_s)))
    span_s = max(job.end_s or 0 for job in ran.values()) - min(job.submit_s for job in ran.values())
    late = sorted(slowdowns)[int(0.95 * (len(slowdowns) - 1))]
    print(
        f"{name:24} {statistics.mean(waits):10.1f} {statistics.mean(slowdowns):13.2f} {late:12.2f} {span_s:10d}",
        flush=True,
    )
    return ran


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.7, help="mean seconds between two submissions")
    parser.add_argument("--dispatcher", action="append", help="default: easy and pcp20")
    parser.add_argument("--predictor", default="walltime")
    wanted = parser.parse_args()
    slurm = Slurm()
    jobs = workload(wanted.jobs, wanted.seed, wanted.pause)
    print(
        f"{len(jobs)} jobs, seed {wanted.seed}\n{'':24} mean wait s mean slowdown p95 slowdown makespan s", flush=True
    )
    try:
        slurm.reset()
        slurm.plugin(on=False)
        measure(slurm, jobs, "Slurm's own backfill")
        for dispatcher in wanted.dispatcher or ["easy", "pcp20"]:
            slurm.reset()
            slurm.plugin(on=True)
            policy = {"dispatcher": dispatcher, "predictor": wanted.predictor}
            with LiveBridge(slurm, "compare", policy=policy) as bridge:
                measure(slurm, jobs, f"bridge, {dispatcher}")
                bridge.wait_for_rounds(1)
    finally:
        slurm.close()


if __name__ == "__main__":
    main()
