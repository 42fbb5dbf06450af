"""The same jobs under Slurm's own backfill and under the bridge, on the same cluster, one after the other.

`make cluster`, then `python -m tests.slurm.compare [--jobs N] [--seeds N] [--dispatcher NAME]... [--without-slurm]`:
submits a seeded mix as ordinary users at seeded moments, waits for all of it, and prints mean and longest wait, mean
and 95th percentile of the bounded slowdown, and makespan, from the accounting records. After more than one seed come
the means over the seeds with their standard deviations, and in how many seeds a dispatcher was better than Slurm. The
bridge talks to Slurm as CPSCHED_TRANSPORT says: pyslurm, or cli.
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import dataclass

from cpsched.metrics import bounded_slowdown
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import TRANSPORT, Slurm, wait_until


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


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run of a workload came to; times in seconds."""

    wait: float
    longest: float
    slowdown: float
    late_slowdown: float
    span: float

    def row(self) -> list[float]:
        """The columns of a line, in order."""
        return [self.wait, self.longest, self.slowdown, self.late_slowdown, self.span]


SLURM = "Slurm's own backfill"
COLUMNS = ("mean wait s", "longest s", "mean slowdown", "p95 slowdown", "makespan s")


def measure(slurm: Slurm, jobs: list[Submission]) -> Figures:
    """Run all to their ends, and say what came of it."""
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
    return Figures(statistics.mean(waits), max(waits), statistics.mean(slowdowns), late, span_s)


def line(name: str, cells: list[str]) -> str:
    """One line of the table."""
    return f"{name:24} " + " ".join(f"{cell:>15}" for cell in cells)


def summary(found: dict[str, list[Figures]]) -> list[str]:
    """Means over the seeds with standard deviations, and how often a dispatcher did better than Slurm (the first)."""
    lines = [line("mean +- deviation", list(COLUMNS))]
    first = next(iter(found.values()))
    for name, runs in found.items():
        columns = list(zip(*(run.row() for run in runs), strict=True))
        lines.append(line(name, [f"{statistics.mean(of):.1f} +- {statistics.stdev(of):.1f}" for of in columns]))
        if runs is not first and SLURM in found:
            pairs = [zip(mine.row(), theirs.row(), strict=True) for mine, theirs in zip(runs, first, strict=True)]
            better = [sum(wins) for wins in zip(*([a < b for a, b in pair] for pair in pairs), strict=True)]
            lines.append(line("  better than Slurm in", [f"{count} of {len(runs)}" for count in better]))
    return lines


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=1, help="how many workloads, of seeds 1, 2, ...")
    parser.add_argument("--pause", type=float, default=0.7, help="mean seconds between two submissions")
    parser.add_argument("--dispatcher", action="append", help="default: easy, pcp20 and lookahead")
    parser.add_argument("--predictor", default="walltime")
    parser.add_argument("--without-slurm", action="store_true", help="the bridge alone, Slurm's own backfill left out")
    wanted = parser.parse_args()
    slurm = Slurm()
    found: dict[str, list[Figures]] = {}

    def run(name: str, jobs: list[Submission]) -> None:
        found.setdefault(name, []).append(measure(slurm, jobs))
        print(line(name, [f"{cell:.1f}" for cell in found[name][-1].row()]), flush=True)

    try:
        for seed in range(1, wanted.seeds + 1):
            jobs = workload(wanted.jobs, seed, wanted.pause)
            print(line(f"{len(jobs)} jobs, seed {seed}", list(COLUMNS)), flush=True)
            if not wanted.without_slurm:
                slurm.reset()
                slurm.plugin(on=False)
                run(SLURM, jobs)
            for dispatcher in wanted.dispatcher or ["easy", "pcp20", "lookahead"]:
                slurm.reset()
                slurm.plugin(on=True)
                policy = {"dispatcher": dispatcher, "predictor": wanted.predictor}
                with LiveBridge(slurm, "compare", policy=policy) as bridge:
                    run(f"{TRANSPORT}, {dispatcher}", jobs)
                    bridge.wait_for_rounds(1)
        if wanted.seeds > 1:
            print("\n".join(summary(found)))
    finally:
        slurm.close()


if __name__ == "__main__":
    main()
