"""The cost of the journal: bytes and CPU time per round, with a changing queue of 2,000 jobs.

    python -m tests.benchmarks.journal [--segments 2] [--queued 2000] [--priorities 300] [DISPATCHER]...

One cycle per second; every two seconds a job ends, others start, and as many are submitted. `remembers` is a dispatcher
that stores an order of the whole queue between rounds and changes it slightly each time. A month is 30 days. Only
growing data is counted, in whole segments of rounds; plan and reasons, kept for the newest rounds only, are separate.
With `--priorities`, all jobs are ranked again periodically, by age and their user's fair share, as beside a
Slurm whose PriorityCalcPeriod is that.
"""

from __future__ import annotations

import random
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Cluster, ClusterState, Decision, EndedJob, Job, Need, Request, RunningJob, Snapshot
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.predictors.walltime import WalltimePredictor
from cpsched.registry import DISPATCHERS
from cpsched_bridge.cycle_report import BridgeRole, CycleReport, Decided, JobChanges
from cpsched_bridge.store.journal import MAX_SEGMENT_ROUNDS, Journal
from cpsched_bridge.store.round_records import decision_to_json, round_trip_json
from cpsched_bridge.store.round_replay import replay_round

MONTH_S = 30 * 86400
NODES = 256
USERS = 60
HEADINGS = ("bytes a round", "GB a month", "CPU ms a round", "explained MiB", "decided again")


class Remembers(Dispatcher):
    """EASY that also stores an order of the queue, in which a few jobs move each round, like a search."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self._easy, self._rng = DISPATCHERS.build("easy"), random.Random(7)

    def memory(self) -> Any:
        return {"order": self.order}

    def recall(self, memory: Any) -> None:
        self.order = memory["order"]

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        here = [job.id for job in snapshot.queued_jobs()]
        known, waiting = set(self.order), set(here)
        self.order = [id for id in self.order if id in waiting] + [id for id in here if id not in known]
        for _ in range(3):
            self.order.insert(self._rng.randrange(100), self.order.pop(self._rng.randrange(100)))
        return self._easy.decide(snapshot, need)


class World:
    """A full cluster and a queue, second by second."""

    def __init__(self, queued: int, period_s: int = 0) -> None:
        self._rng, self._queued, self._made, self._period_s = random.Random(1), queued, 0, period_s
        self._fair_share = [random.Random(user).random() for user in range(USERS)]
        self.cluster = Cluster.of([[16, 64_000]] * NODES, ["cores", "memory_mib"])
        self.free, self.queue, self.running = self.cluster.capacity.copy(), [], []  # type: ignore[var-annotated]
        self.now_s = 0

    def next_scene(self) -> tuple[ClusterState, list[EndedJob]]:
        """Advance by a second."""
        self.now_s += 1
        ended = []
        if self.now_s % 2 == 0 and self.running:
            over = self.running.pop(self._rng.randrange(len(self.running)))
            self._take(over, -1)
            ended.append(EndedJob(over.job, over.start_s, self.now_s))
        while len(self.queue) < self._queued:
            self.queue.append(self._new_job())
        if self._period_s and self.now_s % self._period_s == 0:
            self._rank()
        free, queue, running = self.free.copy(), tuple(self.queue), tuple(self.running)
        return ClusterState(self.now_s, self.cluster, free, queue, running), ended

    def start(self, starts: dict[int, Any]) -> list[tuple[Job, int]]:
        """Start the jobs of a decision."""
        begun = [RunningJob(job, self.now_s, starts[job.id]) for job in self.queue if job.id in starts]
        for each in begun:
            self._take(each, 1)
        self.running += begun
        self.queue = [job for job in self.queue if job.id not in starts]
        return [(each.job, each.start_s) for each in begun]

    def _take(self, each: RunningJob, sign: int) -> None:
        for node, units in each.placement:
            self.free[node] -= sign * units * np.array(each.job.request.per_unit)

    def _rank(self) -> None:
        """Increase ages, and change every user's fair share slightly."""
        self._fair_share = [min(1.0, max(0.0, share + self._rng.gauss(0, 0.002))) for share in self._fair_share]
        self.queue = [replace(job, priority=self._priority(job.submit_s, int(job.user[4:]))) for job in self.queue]

    def _priority(self, submit_s: int, user: int) -> int:
        if not self._period_s:
            return 0
        return int(10_000 * (self.now_s - submit_s) / (7 * 86_400) + 100_000 * self._fair_share[user])

    def _new_job(self) -> Job:
        self._made += 1
        choose, cores = self._rng.choice, self._rng.choice([1, 2, 4, 8, 16])
        request = Request(choose([1, 1, 1, 2, 4, 8, 16]), (cores, 2000 * cores))
        walltime_s, user = choose([600, 3600, 7200, 36_000, 86_400]), self._rng.randrange(USERS)
        names = (f"user{user:02}", f"run-{self._made % 977}.sh", "batch", f"project{user % 12}")
        priority = self._priority(self.now_s, user)
        return Job(1_000_000 + self._made, self.now_s, walltime_s, request, *names, priority=priority)


def lasting_bytes(journal: Journal) -> int:
    """Return the size of a copy of the journal without plans and reasons."""
    copy = Journal(":memory:")
    journal._db.backup(copy._db)  # noqa: SLF001
    with copy._db:  # noqa: SLF001
        copy._db.execute("delete from explanations")  # noqa: SLF001
    size = copy.compute_used_size_bytes()
    copy.close()
    return size


def main(words: Sequence[str] | None = None) -> None:
    """Print a line for each dispatcher."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=2)
    parser.add_argument("--queued", type=int, default=2000)
    parser.add_argument("--priorities", type=int, default=0)
    parser.add_argument("names", nargs="*", metavar="DISPATCHER", default=["easy", "remembers", "list-reg", "pcp20"])
    asked = parser.parse_args(words)
    first, rounds = 3 * MAX_SEGMENT_ROUNDS, asked.segments * MAX_SEGMENT_ROUNDS
    print(f"{asked.queued} queued, {NODES} nodes, {rounds} rounds after {first} to warm up")
    print(f"{'dispatcher':12}" + "".join(f"{heading:>16}" for heading in HEADINGS))
    for name in asked.names:
        print(measured(name, asked.queued, first, rounds, asked.priorities), flush=True)


def measured(name: str, queued: int, first: int, rounds: int, period_s: int = 0) -> str:
    """Return the line of one dispatcher."""
    own = name == "remembers"
    settings = {"effort": "50"} if name == "pcp20" else {"reservations": "100"} if name == "list-reg" else {}
    spec = PolicySpec(f"{__name__}:Remembers" if own else name, "walltime", settings)
    policy = Policy(WalltimePredictor(), Remembers()) if own else spec.build()
    world, sizes, spent_s = World(queued, period_s), [0, 0], 0.0
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.sqlite")
        begun: list[tuple[Job, int]] = []
        for number in range(1, first + rounds + 1):
            scene, ended = world.next_scene()
            for each in ended:
                policy.learn(each)
            snapshot, memory = policy.add_estimates(scene), policy.memory()
            decision = policy.decide(snapshot)
            began_s = time.process_time()
            report = CycleReport(
                number,
                BridgeRole("control"),
                1e9 + number,
                changes=JobChanges(begun, ended),
                decided=Decided(
                    snapshot=snapshot,
                    decision=decision,
                    starts=decision.starts_by_job(snapshot),
                    recorded=decision_to_json(decision, snapshot),
                    memory=round_trip_json(memory),
                ),
                seconds={"observe": 0.01 * random.random(), "decide": 0.01 * random.random()},
            )
            journal.write_round(report, spec)
            spent_s += (time.process_time() - began_s) * (number > first)
            begun = world.start(report.decided.starts)
            if number in (first, first + rounds):
                sizes[number > first] = lasting_bytes(journal)
        numbers = range(max(1, first - 20), first + rounds, max(1, rounds // 20))
        same = sum(replay_round(journal.read_round(number)).is_same_decision for number in numbers)
        again = f"{same} of {len(numbers)}"
        explained_mib = (journal.compute_used_size_bytes() - sizes[1]) / 2**20
    bytes_a_round = (sizes[1] - sizes[0]) / rounds
    month = bytes_a_round * MONTH_S / 1e9
    cpu_ms = 1e3 * spent_s / rounds
    cells = (f"{bytes_a_round:.0f}", f"{month:.2f}", f"{cpu_ms:.2f}", f"{explained_mib:.1f}", again)
    return f"{name:12}" + "".join(f"{cell:>16}" for cell in cells)


if __name__ == "__main__":
    main()
