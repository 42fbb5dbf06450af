"""List schedulers: jobs per CPU second on both lanes, a round as machine and queue grow, memory; beside the targets.

`python -m tests.benchmarks.lists [speed] [nodes] [queue] [memory]`. CPU time of this process alone, kernels compiled,
traces read and columns built before the clock starts; the best of two runs.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from cpsched import catalogue
from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.list_scheduler import ListDispatcher
from cpsched.model import Cluster, Request
from cpsched.policy import Policy
from sim.cluster import SimulatedCluster
from sim.engine import Lane, Schedule, replay
from sim.reading import Workload, load
from sim.trace import TraceJob
from tests.builders import a_job
from tests.traces import BLUE, KIT, KTH, trace

SPEED: tuple[tuple[str, str, str, int, int], ...] = (
    ("KTH", "easy", "counted", 150, 1000),
    ("KTH", "list-reg", "counted", 120, 700),
    ("BLUE", "list-reg", "counted", 100, 450),
    ("BLUE", "list-laf", "counted", 25, 100),
    ("KIT", "easy", "nodes", 80, 150),
    ("KIT", "list-reg", "nodes", 25, 40),
)
"""Trace, dispatcher, level, and thousand jobs per CPU second to reach: ordinary loop, fast lane."""

ROUND_US = {1: 20, 9: 60, 85: 250}
"""Microseconds per decided round of EASY to reach, by how often KIT ForHLR II is tiled."""


def workload(name: str) -> Workload:
    """A shared trace, with its system."""
    files = {"KTH": (KTH, None), "BLUE": (BLUE, None), "KIT": (KIT, "kit-forhlr2")}
    file, system = files[name]
    return load(trace(file), system)


def best(jobs: list[TraceJob], cluster: Cluster, make: Callable[[], Dispatcher], lane: Lane) -> Schedule:
    """The faster of two replays."""
    walltime = catalogue.predictor("walltime")
    runs = [replay(jobs, cluster, Policy(walltime, make()), lane=lane) for _ in range(2)]
    return min(runs, key=lambda schedule: schedule.cpu_s)


def speed() -> None:
    """Thousand jobs per CPU second."""
    print("thousand jobs per CPU second        ordinary (target)   fast lane (target)   same starts  violations")
    for name, dispatcher, level, ordinary_target, fast_target in SPEED:
        work = workload(name)

        def make(name: str = dispatcher) -> Dispatcher:
            return catalogue.dispatcher(name)

        ordinary = best(work.jobs, work.cluster, make, "ordinary")
        fast = best(work.jobs, work.cluster, make, "fast")
        same = np.array_equal(ordinary.start_s, fast.start_s)
        rates = [len(work.jobs) / schedule.cpu_s / 1000 for schedule in (ordinary, fast)]
        violations = len(ordinary.violations) + len(fast.violations)
        print(
            f"  {name:5}{dispatcher:10}{level:8} {len(work.jobs):8} {rates[0]:10.0f} ({ordinary_target:4})"
            f" {rates[1]:13.0f} ({fast_target:5})   {same!s:>10} {violations:10}",
            flush=True,
        )


def nodes() -> None:
    """EASY on KIT ForHLR II tiled: the trace and its nodes as often as said, so that the load stays."""
    print("EASY, a decided round as the machine grows:    nodes   ordinary us   fast lane us   (target)")
    work = workload("KIT")
    for tiles, target_us in ROUND_US.items():
        rows = np.tile(work.cluster.capacity, (tiles, 1))
        cluster = Cluster.of(rows, work.cluster.resources)
        jobs = tiled(work.jobs[: 25_000 // tiles], tiles)
        found = []
        for lane in ("ordinary", "fast"):
            schedule = best(jobs, cluster, lambda: catalogue.dispatcher("easy"), lane)  # type: ignore[arg-type]
            decided = sum(n for path, n in schedule.paths.items() if path != "nothing-fits")
            found.append(schedule.cpu_s / decided * 1e6)
        print(f"{'':44}{len(rows):8} {found[0]:13.1f} {found[1]:14.1f}   ({target_us})", flush=True)


def tiled(jobs: list[TraceJob], tiles: int) -> list[TraceJob]:
    """Every job as often as the machine was tiled, at the same second; partitions are left aside."""
    copies = []
    for item in jobs:
        request = Request(item.job.request.units, item.job.request.per_unit)
        for _ in range(tiles):
            job = a_job(len(copies), request.units, request.per_unit, item.job.walltime_s, item.job.submit_s)
            copies.append(TraceJob(job, item.run_s))
    return copies


def queue() -> None:
    """One decision on KIT ForHLR II, full, as the queue grows."""
    print("one decision as the queue grows:   jobs      EASY us   8 reservations us   every job us")
    work = workload("KIT")
    for length in (100, 1_000, 10_000):
        took = []
        for dispatcher in (catalogue.dispatcher("easy"), ListDispatcher(reservations=8), ListDispatcher()):
            state = SimulatedCluster(work.cluster)
            for item in work.jobs[: length + 200]:
                state.submit(item.job, item.run_s)
            state.table.estimate_s[: len(state.jobs)] = state.table.walltime_s[: len(state.jobs)]
            state.apply(dispatcher.decide(state.snapshot(), "starts").starts)
            began = time.process_time()
            rounds = 0
            while time.process_time() - began < 0.5:
                dispatcher.decide(state.snapshot(), "starts")
                rounds += 1
            took.append((time.process_time() - began) / rounds * 1e6)
        print(f"{'':31}{length:8} {took[0]:12.1f} {took[1]:19.1f} {took[2]:14.1f}", flush=True)


def memory() -> None:
    """SDSC-BLUE read and replayed in this process alone."""
    work = workload("BLUE")
    schedule = replay(work.jobs, work.cluster, Policy(catalogue.predictor("walltime"), catalogue.dispatcher("easy")))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory: SDSC-BLUE, {len(schedule.start_s)} jobs, read and replayed: {peak_mb:.0f} MB (target 600)")


PARTS = {"speed": speed, "nodes": nodes, "queue": queue, "memory": memory}


def main(words: list[str]) -> None:
    """Run the named parts; without names all, each in a process of its own."""
    for word in words:
        try:
            PARTS[word]()
        except pytest.skip.Exception as absent:
            print(f"{word}: skipped: {absent}")
    for word in PARTS if not words else ():
        subprocess.run([sys.executable, "-m", "tests.benchmarks.lists", word], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
