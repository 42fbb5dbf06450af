"""PCP'20 on whole replays: what a decision costs, by which path it came, and how much memory the process takes.

`python -m tests.benchmarks.pcp20 [kit|eurora] [walltime|oracle]`; without words, all four, each in a process of its
own. Published means per decision (pcp20, tables 1 and 2): KIT ForHLR II 537 ms, Eurora 252 ms. To reach: 10 ms.
"""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys

import pytest

from cpsched_sim.compiling import warm_up
from cpsched_sim.experiment import Simulation, simulate
from cpsched_sim.systems.system import System, load_system
from cpsched_sim.workloads.eurora import eurora_jobs
from cpsched_sim.workloads.load import Workload, load
from tests.traces import KIT, trace

EURORA_JOBS = 20_000
PUBLISHED_MS = {"kit": 537, "eurora": 252}


def workload(name: str) -> Workload:
    """KIT's first 25,000 jobs, or a generated Eurora at its published load."""
    if name == "kit":
        return load(trace(KIT), "kit-forhlr2")
    jobs = eurora_jobs(days=32, seed=1)[:EURORA_JOBS]
    return Workload("generated", "eurora", System(load_system("eurora")).cluster, jobs, {}, ())


def report(name: str, predictor: str, outcome: Simulation) -> None:
    """One line of figures, one of paths."""
    summary = outcome.summary()
    dispatch, rounds = summary["dispatch"], summary["rounds"]
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    per_round_ms = float(outcome.schedule.dispatch_s.sum()) * 1000 / rounds
    print(
        f"pcp20 {name:6} {predictor:8} {summary['jobs']} jobs, {summary['violations']} violations;"
        f" a decision: mean {dispatch['mean_ms']:.2f} median {dispatch['median_ms']:.3f}"
        f" p99 {dispatch['p99_ms']:.1f} max {dispatch['max_ms']:.0f} ms (published mean {PUBLISHED_MS[name]});"
        f" all rounds: mean {per_round_ms:.2f} ms; {summary['cpu_s']:.0f} s CPU, {memory_mb:.0f} MB"
    )
    print(f"      {rounds} rounds: {summary['paths']}", flush=True)


def main(words: list[str]) -> None:
    """Run what the words name."""
    if len(words) == 2:
        name, predictor = words
        warm_up()
        try:
            report(name, predictor, simulate(workload(name), "pcp20", predictor))
        except pytest.skip.Exception as absent:
            print(f"pcp20 {name}: skipped: {absent}")
        return
    for name, predictor in itertools.product(words or PUBLISHED_MS, ("walltime", "oracle")):
        subprocess.run([sys.executable, "-m", "tests.benchmarks.pcp20", name, predictor], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
