"""`lookahead` on whole traces: time per decision, and deep queues.

`python -m tests.benchmarks.lookahead [PART]...` with names from `PARTS`. CPU times are measured for each decision;
kernels are compiled before the clock starts.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpsched import registry
from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.list_dispatchers import ListDispatcher
from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.model import Cluster, Decision, Need, Snapshot
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from cpsched_sim.simulation import simulate
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.workloads.eurora_generator import generate_eurora_jobs
from cpsched_sim.workloads.workload_loader import Workload
from tests.benchmarks import lists, run_parts
from tests.benchmarks.lists import copied, grown

EURORA_DAYS = 14


def workload(name: str) -> Workload:
    """Return a shared trace with its system, or a generated Eurora."""
    if name == "Eurora":
        jobs = generate_eurora_jobs(days=EURORA_DAYS, seed=1)
        return Workload("generated", "eurora", System(load_system("eurora")).cluster, jobs, {}, ())
    return lists.workload(name)


@dataclass
class Timed(Dispatcher):
    """A dispatcher whose decisions are timed, in CPU seconds."""

    dispatcher: Dispatcher

    def __post_init__(self) -> None:
        self.learns, self.overrun = self.dispatcher.learns, self.dispatcher.overrun
        self.took_s: list[float] = []

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """Decide and record the time."""
        began = time.process_time()
        decision = self.dispatcher.decide(snapshot, need)
        self.took_s.append(time.process_time() - began)
        return decision

    def ms(self) -> npt.NDArray[np.float64]:
        """Return the milliseconds per decision."""
        return np.array(self.took_s) * 1e3


def speed() -> None:
    """Print CPU time per decision, and its growth with the machine."""
    for name, wanted in (("KTH", "mean 0.2"), ("KIT", "median 0.2, p99 20"), ("Eurora", "p99 20")):
        work = workload(name)
        timed = Timed(registry.DISPATCHERS.build("lookahead"))
        simulate(work, timed)
        ms = timed.ms()
        print(
            f"  {name:7} {len(ms)} decisions: mean {ms.mean():.3f} median {np.median(ms):.3f}"
            f" p99 {np.quantile(ms, 0.99):.2f} max {ms.max():.1f} ms CPU (to reach: {wanted})",
            flush=True,
        )
    work = workload("KIT")
    for times in (1, 9, 85):
        cluster, jobs = grown(work.cluster, work.jobs[:6000], times)
        timed = Timed(registry.DISPATCHERS.build("lookahead"))
        simulate(Workload("grown", "kit", cluster, jobs, {}, ()), timed)
        print(f"  KIT grown to {cluster.size:7} nodes: mean {timed.ms().mean():.3f} ms CPU", flush=True)


def deep() -> None:
    """Print the time of one whole plan on KIT's nodes as the queue grows."""
    print("  a plan by number of queued jobs, ms CPU:    260 (3)  1,126 (30)  10,099 (500)")
    work = workload("KIT")
    for dispatcher in (ListDispatcher(), registry.DISPATCHERS.build("lookahead"), registry.DISPATCHERS.build("easy")):
        row = []
        for length in (260, 1126, 10099):
            state = SimulatedCluster(work.cluster)
            for item in work.jobs[: length + 200]:
                state.submit(item.job, item.run_s)
            state.apply(registry.DISPATCHERS.build("easy").decide(state.snapshot(), "starts").starts)
            dispatcher.decide(state.snapshot())
            began = time.process_time()
            decision = dispatcher.decide(state.snapshot())
            planned = len(decision.plan_by_job(state.snapshot()))
            row.append(f"{(time.process_time() - began) * 1e3:8.1f} ({planned} planned of {state.queue_length})")
        print(f"  {type(dispatcher).__name__:18} {'  '.join(row)}", flush=True)


FRONTIER_NODES = 9408
MARGIN = 500
"""Jobs in addition to those that wait, since some start at once."""
DEEP_ROUNDS = 5


def deepest() -> None:
    """Print rounds after a job's end: 50,000 jobs waiting on KIT's nodes, 10,000 on Frontier's number of nodes."""
    work = workload("KIT")
    for waiting, nodes in ((50_000, work.cluster.size), (10_000, FRONTIER_NODES)):
        times = nodes // work.cluster.size
        jobs = [copied(id, work.jobs[id % len(work.jobs)], times) for id in range(waiting + MARGIN)]
        rows = np.resize(work.cluster.capacity, (nodes, len(work.cluster.resources)))
        cluster = Cluster.of(rows, work.cluster.resources)
        for dispatcher in (LookaheadDispatcher(), LookaheadDispatcher("large-jobs"), ListDispatcher()):
            state = SimulatedCluster(cluster)
            for item in jobs:
                state.submit(item.job, item.run_s)
            state.apply(registry.DISPATCHERS.build("easy").decide(state.snapshot(), "starts").starts)
            ms = []
            for _ in range(1 + DEEP_ROUNDS):
                for ended in state.advance(state.next_end_s() or state.now_s):
                    dispatcher.learn(ended)
                began = time.process_time()
                decision = dispatcher.decide(state.snapshot())
                ms.append((time.process_time() - began) * 1e3)
                state.apply(decision.starts)
            told = f"median {np.median(ms[1:]):.0f}, slowest {max(ms[1:]):.0f} ms CPU; first {ms[0]:.0f}"
            name = dispatcher._row.name if isinstance(dispatcher, LookaheadDispatcher) else "list-reg"  # noqa: SLF001
            print(f"  {state.queue_length} waiting on {cluster.size} nodes: {name:10} {told}", flush=True)


PARTS = {"speed": speed, "deep": deep, "deepest": deepest}


def main(words: list[str]) -> None:
    """Run the named parts; without names all, each in a process of its own."""
    run_parts("tests.benchmarks.lookahead", PARTS, words)


if __name__ == "__main__":
    main(sys.argv[1:])
