"""List schedulers: jobs per CPU second in both loops, time per round by machine and queue, memory; with targets.

`python -m tests.benchmarks.lists [speed] [command] [nodes] [queue] [memory]`. But for `command`: CPU time of this
process only, with kernels compiled, traces read and columns built before the clock starts; the best of two runs.
"""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cpsched import registry
from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.list_dispatchers import ListDispatcher
from cpsched.model import Cluster
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched_sim import simulation
from cpsched_sim.cluster.replay import Schedule, TraceReplay
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from cpsched_sim.simulation import ReplaySpec
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import Workload, load
from tests.benchmarks import run_parts
from tests.builders import a_job
from tests.traces import BLUE, GAIA, KIT, KTH, trace

SPEED: tuple[tuple[str, str, str, int, int], ...] = (
    ("KTH", "easy", "counted", 150, 1000),
    ("KTH", "list-reg", "counted", 120, 700),
    ("BLUE", "list-reg", "counted", 100, 450),
    ("BLUE", "list-laf", "counted", 25, 100),
    ("KIT", "easy", "nodes", 80, 150),
    ("KIT", "list-reg", "nodes", 25, 40),
)
"""Trace, dispatcher, level, and target in thousand jobs per CPU second: ordinary loop, compiled loop."""

ROUND_US = {1: 20, 9: 60, 85: 250}
"""Target in microseconds per decided round of EASY, by number of tiles of KIT ForHLR II."""

ROUND_JOBS = 25_000
"""Number of jobs of the trace that are replayed on every size."""

FOR_GOOD_S = 10**9
"""A run time longer than any trace."""


def workload(name: str) -> Workload:
    """Return a shared trace with its system."""
    files = {"KTH": (KTH, None), "BLUE": (BLUE, None), "Gaia": (GAIA, None), "KIT": (KIT, "kit-forhlr2")}
    file, system = files[name]
    return load(trace(file), system)


MILLION = 1_000_000
"""Jobs of which the memory is measured."""

Run = Callable[[TraceReplay], Schedule]
"""The loop of a replay."""


def best(jobs: Sequence[TraceJob], cluster: Cluster, make: Callable[[], Dispatcher], run: Run) -> Schedule:
    """Return the faster of two replays."""
    walltime = registry.PREDICTORS.build("walltime")
    runs = [run(TraceReplay(jobs, cluster, Policy(walltime, make()))) for _ in range(2)]
    return min(runs, key=lambda schedule: schedule.cpu_s)


def speed() -> None:
    """Print thousand jobs per CPU second."""
    print("thousand jobs per CPU second        ordinary (target)    compiled (target)   same starts  violations")
    for name, dispatcher, level, ordinary_target, fast_target in SPEED:
        work = workload(name)

        def make(name: str = dispatcher) -> Dispatcher:
            return registry.DISPATCHERS.build(name)

        ordinary = best(work.jobs, work.cluster, make, TraceReplay.run)
        compiled = best(work.jobs, work.cluster, make, TraceReplay.run_compiled)
        same = np.array_equal(ordinary.start_s, compiled.start_s)
        rates = [len(work.jobs) / schedule.cpu_s / 1000 for schedule in (ordinary, compiled)]
        violations = len(ordinary.violations) + len(compiled.violations)
        print(
            f"  {name:5}{dispatcher:10}{level:8} {len(work.jobs):8} {rates[0]:10.0f} ({ordinary_target:4})"
            f" {rates[1]:13.0f} ({fast_target:5})   {same!s:>10} {violations:10}",
            flush=True,
        )


def nodes() -> None:
    """Print EASY on tiled KIT ForHLR II, in two ways that preserve the queue and the load.

    `grown`: every job requests proportionally more units, so that its start takes more nodes. `filled`: the jobs are
    unchanged, and one endless job holds what the tiling added, so that they compete for the same number of nodes,
    scattered over the machine. Partitions are ignored; every size gets the same jobs.
    """
    print("EASY, a decided round as the machine grows:    nodes   ordinary us    compiled us   (target)   mean queue")
    work = workload("KIT")
    for tiles, target_us in ROUND_US.items():
        for name, tile in (("grown", grown), ("filled", filled)):
            cluster, jobs = tile(work.cluster, work.jobs[:ROUND_JOBS], tiles)
            us = []
            for run in (TraceReplay.run, TraceReplay.run_compiled):
                schedule = best(jobs, cluster, lambda: registry.DISPATCHERS.build("easy"), run)
                decided = sum(n for path, n in schedule.paths.items() if path != "nothing-fits")
                us.append(schedule.cpu_s / decided * 1e6)
            waits_s = sum(max(0, start - item.job.submit_s) for start, item in zip(schedule.start_s, jobs, strict=True))
            mean_queue = waits_s / (schedule.start_s.max() - jobs[0].job.submit_s)
            print(
                f"{name:>43} {cluster.size:8} {us[0]:13.1f} {us[1]:14.1f}   {f'({target_us})':>8} {mean_queue:12.1f}",
                flush=True,
            )


def grown(cluster: Cluster, jobs: Sequence[TraceJob], times: int) -> tuple[Cluster, list[TraceJob]]:
    """Repeat every node and every unit `times` times."""
    larger = Cluster.of(np.repeat(cluster.capacity, times, axis=0), cluster.resources)
    return larger, [copied(i, item, times) for i, item in enumerate(jobs)]


def filled(cluster: Cluster, jobs: Sequence[TraceJob], times: int) -> tuple[Cluster, list[TraceJob]]:
    """Repeat every node, and hold all but the last copy of each permanently."""
    taken = [node for node in range(times * cluster.size) if (node + 1) % times]
    rows = np.repeat(cluster.capacity, times, axis=0)
    larger = Cluster.of(rows, cluster.resources, node_sets={"taken": taken} if taken else None)
    held = []
    if taken:
        one_each = (1,) + (0,) * (len(cluster.resources) - 1)
        begins_s = jobs[0].job.submit_s
        held = [TraceJob(a_job(len(jobs), len(taken), one_each, FOR_GOOD_S, begins_s, True, True, 1), FOR_GOOD_S)]
    return larger, held + [copied(i, item, 1) for i, item in enumerate(jobs)]


def copied(id: int, item: TraceJob, times: int) -> TraceJob:
    """Return a job with a multiple of the units, on any nodes."""
    job, request = item.job, item.job.request
    return TraceJob(a_job(id, request.units * times, request.per_unit, job.walltime_s, job.submit_s), item.run_s)


def queue() -> None:
    """Print one decision on full KIT ForHLR II as the queue grows."""
    print("one decision as the queue grows:   jobs      EASY us   8 reservations us   every job us")
    work = workload("KIT")
    for length in (100, 1_000, 10_000):
        took = []
        for dispatcher in (registry.DISPATCHERS.build("easy"), ListDispatcher(reservations=8), ListDispatcher()):
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


def command() -> None:
    """Print the CPU seconds of `cpsched simulate` on SDSC-BLUE, and of its parts in this process."""
    print("SDSC-BLUE, CPU seconds (target)     read         simulate, jobs read     whole command")
    for name in ("fcfs", "easy"):
        setup = ReplaySpec(PolicySpec.of(name, "walltime"))
        simulation.replay_workload(workload("BLUE"), setup)  # loads the kernels
        began = time.process_time()
        work = workload("BLUE")
        read = time.process_time()
        simulation.replay_workload(work, setup)
        ended = time.process_time()
        words = ["simulate", str(trace(BLUE)), "--dispatcher", name, "--quiet"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "cpsched_bridge.program.cli", *words], check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"  {name:27}{read - began:10.2f} {ended - read:17.2f} (0.35) {whole:16.2f} (1.5)", flush=True)


def memory() -> None:
    """Print the memory of reading and simulating a million jobs, SDSC-BLUE several times in a row, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.swf"
        repeat_trace(trace(BLUE), path, MILLION)
        found = simulation.replay_workload(load(path), ReplaySpec(PolicySpec.of("easy", "walltime")))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory: {len(found.schedule.start_s):,} jobs, read and simulated: {peak_mb:.0f} MB (target 400)")


def repeat_trace(source: Path, target: Path, jobs: int) -> None:
    """Write `jobs` jobs: those of a trace again and again, each time after the last of the time before."""
    with gzip.open(source, "rt") as file:
        lines = file.read().splitlines(keepends=True)
    header = [line for line in lines if line.startswith(";")]
    fields = [line.split() for line in lines if not line.startswith(";")]
    span_s = int(fields[-1][1]) + 1
    with target.open("w") as file:
        file.writelines(header)
        for at in range(jobs):
            again, which = divmod(at, len(fields))
            words = fields[which]
            file.write(" ".join([str(at + 1), str(int(words[1]) + again * span_s), *words[2:]]) + "\n")


PARTS = {"speed": speed, "command": command, "nodes": nodes, "queue": queue, "memory": memory}


def main(words: list[str]) -> None:
    """Run the named parts, by default all, each in its own process."""
    run_parts("tests.benchmarks.lists", PARTS, words)


if __name__ == "__main__":
    main(sys.argv[1:])
