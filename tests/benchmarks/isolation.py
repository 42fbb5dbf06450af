"""The cost of a cycle's decision around the dispatcher: CPU time of the bridge and of the dispatcher's process.

`python -m tests.benchmarks.isolation [JOBS]...`: numbers of queued jobs, on 500 nodes of which half are in use. Each
round replaces one job in a hundred. Estimates, snapshot and the decision of `easy` are timed, in-process and with a
separate process. Printed are medians of the rounds in milliseconds.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np

from cpsched.model import Cluster, ClusterState, Job, Request, RunningJob
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.registry import DISPATCHERS, PREDICTORS
from cpsched_bridge.cycle.isolated_dispatcher import IsolatedDispatcher

NODES, CORES, ROUNDS = 500, 16, 40


def scenes(queued: int) -> list[ClusterState]:
    """Successive instants."""
    random = np.random.default_rng(1)
    cluster = Cluster.of([[CORES]] * NODES, ["cores"])

    def job(id: int) -> Job:
        units, cores, minutes = (int(random.integers(*bounds)) for bounds in ((1, 40), (1, CORES + 1), (5, 600)))
        return Job(id, id, 60 * minutes, Request(units, (cores,)), f"user{id % 50}", f"job{id}", "main", "physics")

    running = tuple(RunningJob(job(node), 0, ((node, 1),)) for node in range(NODES // 2))
    free = cluster.capacity.copy()
    for each in running:
        free[each.placement[0][0]] -= each.job.request.per_unit
    queue, id, found = [job(NODES + i) for i in range(queued)], NODES + queued, []
    for now_s in range(ROUNDS):
        found.append(ClusterState(1 + now_s, cluster, free, tuple(queue), running))
        for _ in range(max(1, queued // 100)):
            queue.pop(int(random.integers(len(queue))))
            queue.append(job(id))
            id += 1
    return found


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of another process so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def rounds(policy: Policy, queued: int) -> tuple[float, float]:
    """Return the milliseconds of a round in this process and in the dispatcher's."""
    here, there = [], []
    apart = policy.dispatcher if isinstance(policy.dispatcher, IsolatedDispatcher) else None
    for scene in scenes(queued):
        before = 0.0 if apart is None or apart.pid is None else cpu_of(apart.pid)
        began = time.process_time()
        policy.decide(policy.add_estimates(scene))
        here.append(1000 * (time.process_time() - began))
        there.append(0.0 if apart is None or apart.pid is None else 1000 * (cpu_of(apart.pid) - before))
    return statistics.median(here[1:]), statistics.median(there[1:])


def main(words: list[str]) -> None:
    """Print a row for each length of the queue."""
    print("CPU ms of a round's decision       jobs   in the bridge   with a process of its own: bridge + process")
    for queued in [int(word) for word in words] or [1_000, 10_000]:
        alone, _ = rounds(Policy(PREDICTORS.build("walltime"), DISPATCHERS.build("easy")), queued)
        apart = IsolatedDispatcher(PolicySpec("easy"))
        try:
            while apart.not_ready_reason():
                time.sleep(0.1)
            here, there = rounds(Policy(PREDICTORS.build("walltime"), apart), queued)
        finally:
            apart.close()
        print(f"{'':28}{queued:11} {alone:15.2f} {here:37.2f} + {there:.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
