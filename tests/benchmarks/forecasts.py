"""CPU cost of start forecasts for a bridge with many pending jobs: `python -m tests.benchmarks.forecasts`.

A synthetic machine of 500 nodes is full, and 10,000 jobs of 200 users wait. Printed, each as the best of three:

- the loop's share of a cycle (`StartForecaster.__call__`),
- a renewal of all intervals, which a thread does once a minute,
- `estimate_start` with alternatives for smaller requests, and `backfill_windows`, once the queue is placed; and placing
it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from cpsched.dispatchers.list_dispatchers import ListDispatcher
from cpsched.forecast import planned_queue
from cpsched.model import Cluster, EndedJob, Job, Request, RunningJob, Snapshot
from cpsched_bridge.telemetry.start_forecasts import HypotheticalSubmission, StartForecaster
from tests.builders import a_cycle_report

NODES, CORES, USERS = 500, 64, 200
NOW_S = 1_000_000


def site(
    pending: int, seed: int = 1, nodes: tuple[int, ...] = (1, 1, 1, 2, 4, 16, 64), busy: int = NODES
) -> tuple[Snapshot, list[EndedJob]]:
    """Return `pending` jobs on a machine with `busy` full nodes of `nodes`, and jobs that ended before."""
    rng = np.random.default_rng(seed)
    cluster = Cluster.of([[CORES, 256]] * NODES, ["cores", "memory_gib"])

    def job(id: int, submit_s: int, nodes: int) -> Job:
        walltime_s = int(rng.choice([1800, 3600, 7200, 14400, 43200, 86400]))
        cores = int(rng.choice([1, 4, 16, 64]))
        request = Request(nodes, (cores, cores), nodes > 1)
        return Job(id, submit_s, walltime_s, request, user=f"u{rng.integers(USERS)}", name=f"run{rng.integers(5)}")

    queue = [job(id, NOW_S - int(rng.integers(86400)), int(rng.choice(nodes))) for id in range(pending)]
    running = []
    for node in range(busy):
        each = Job(10**6 + node, 0, 86400, Request(1, (CORES, 64), False), user=f"u{rng.integers(USERS)}", name="run1")
        running.append(RunningJob(each, NOW_S - int(rng.integers(80000)), ((node, 1),)))
    estimates = {each.id: each.walltime_s for each in (*queue, *(r.job for r in running))}
    free = np.array([[0, 192]] * busy + [[CORES, 256]] * (NODES - busy))
    past = []
    for at in range(8000):
        ended = job(2 * 10**6 + at, 0, 1)
        past.append(EndedJob(ended, 0, max(1, int(ended.walltime_s * rng.beta(1, 3)))))
    return Snapshot.of(NOW_S, cluster, free, queue, running, estimates), past


def best(act: Callable[[], object], times: int = 3) -> float:
    """Return the CPU seconds of this thread, the minimum of several runs."""
    found = []
    for _ in range(times):
        began_s = time.thread_time()
        act()
        found.append(time.thread_time() - began_s)
    return min(found)


def main() -> None:
    """Print the figures."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--pending", type=int, default=10_000)
    pending = words.parse_args().pending
    snapshot, past = site(pending)
    decision = ListDispatcher().decide(snapshot)
    forecaster = StartForecaster()
    forecaster(a_cycle_report(mode="shadow", snapshot=snapshot, decision=decision, past=past))
    forecaster.refresh()  # compiled, and everything learned
    report = a_cycle_report(mode="shadow", snapshot=snapshot, decision=decision)

    def refresh() -> None:
        forecaster(report)
        forecaster.refresh()

    assert decision.plan_s is not None
    for interval in list(forecaster.intervals.values())[:2000]:
        forecaster._calibration.record_outcome(interval, interval.median_s + 60)  # noqa: SLF001
    question = HypotheticalSubmission(4, "2:00:00", amounts={"cores": 16})
    rows = {
        "a cycle": lambda: forecaster(report),
        "all intervals": refresh,
        "when": lambda: forecaster.estimate_start(question),
        "when, 300 nodes": lambda: forecaster.estimate_start(
            HypotheticalSubmission(300, "2:00:00", amounts={"cores": 16})
        ),
        "windows": forecaster.backfill_windows,
    }
    idle = site(pending, seed=2, nodes=(400,), busy=250)[0]
    decided = ListDispatcher().decide(idle)
    half = StartForecaster()
    half(a_cycle_report(mode="shadow", snapshot=idle, decision=decided, past=past))
    rows["placing the queue"] = lambda: planned_queue(snapshot, decision.plan_s)
    half.backfill_windows()
    rows["windows, 250 idle"] = half.backfill_windows
    for name, act in rows.items():
        print(f"{name:>20} {1e3 * best(act):>10,.1f} ms", flush=True)


if __name__ == "__main__":
    main()
