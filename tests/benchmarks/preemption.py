"""The cost of preemption per decision: `python -m tests.benchmarks.preemption`.

10,000 jobs wait and 2,000 run. Half of them have a QOS that the others may preempt. In each round, the Slurm
adapter finds the jobs to leave to Slurm and their victims, and `lookahead` decides. Then the jobs that preempt start,
and a job ends. Printed: CPU time for both steps without preemption, with jobs left to Slurm, and with victims chosen
(target: 1.3 times the first). In the first round, all jobs that may preempt are new.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.model import Job, RunningJob, Snapshot
from cpsched.site.accounts import Qos
from cpsched.site.preemption import PreemptionRules
from cpsched.site.site_policy import SitePolicy
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.policy.preemptors import PreemptorsLeftToSlurm
from cpsched_bridge.ports import Hold, Observation, PendingJob, PreemptionOptions
from tests.builders import a_cluster, a_job, free_beside

NODES, CORES = 1000, 64
QUEUED, RUNNING = 10_000, 2_000
ROUNDS = 10
WITHOUT = SitePolicy(qos={"high": Qos("high"), "low": Qos("low")})
RULES = PreemptionRules("qos", "requeue", {"high": frozenset({"low"})})
WITH = replace(WITHOUT, preemption=RULES)
CASES = (("no preemption", WITHOUT, None), ("left to Slurm", WITH, None), ("victims chosen", WITH, PreemptionOptions()))


def job(id: int, rng: random.Random, units: Sequence[int] = (1, 1, 1, 2, 4, 8, 32)) -> Job:
    """Return a job of a random size, walltime and QOS."""
    return a_job(
        id, rng.choice(units), CORES // 2, rng.choice((3600, 14_400, 86_400)),
        submit_s=id, user=f"u{id % 50}", qos=rng.choice(("high", "low")),
    )  # fmt: skip


def record(running: Job) -> SlurmJob:
    """Return what the adapter reads of a running job, as far as preemption depends on it."""
    return SlurmJob(running.id, "RUNNING", qos=running.qos, partition="main", is_requeueable=True, is_batch_job=True)


def observation(now_s: int, running: Sequence[RunningJob], pending: Sequence[PendingJob]) -> Observation:
    """Return an observation of the cluster with these jobs."""
    cluster = a_cluster(NODES, CORES)
    return Observation(now_s, cluster, free_beside(cluster, running), tuple(pending), tuple(running))


class Case:
    """A policy, with its decisions so far."""

    def __init__(self, policy: SitePolicy, options: PreemptionOptions | None) -> None:
        self.policy, self.options = policy, options
        self.leaver, self.dispatcher = PreemptorsLeftToSlurm(), LookaheadDispatcher()
        self.took_ms: list[tuple[float, float]] = []

    def decide(self, seen: Observation, records: Sequence[SlurmJob]) -> Observation:
        """Record the CPU time for the jobs that may preempt, and for the decision. Return the observation for it."""
        began = time.process_time()
        seen = self.leaver.leave(seen, records, self.policy, self.options)
        read = time.process_time()
        jobs = [each.job for each in seen.pending]
        estimates = {each.id: each.walltime_s for each in (*jobs, *(each.job for each in seen.running))}
        snapshot = Snapshot.of(seen.now_s, seen.cluster, seen.free, jobs, seen.running, estimates=estimates)
        built = time.process_time()
        self.dispatcher.decide(snapshot)
        self.took_ms.append(((read - began) * 1e3, (time.process_time() - built) * 1e3))
        return seen


def play(rounds: int) -> list[Case]:
    """Return the cases after rounds in which the chosen victims stop, the jobs that preempt start, and a job ends."""
    rng, cases = random.Random(1), [Case(policy, options) for _, policy, options in CASES]
    running = [RunningJob(job(id, rng, (1,)), rng.randrange(3000), ((id % NODES, 1),)) for id in range(RUNNING)]
    pending = [PendingJob(job(RUNNING + id, rng), Hold.PLUGIN) for id in range(QUEUED)]
    for number in range(rounds):
        seen, records = observation(4000 + number, running, pending), [record(each.job) for each in running]
        offers = [case.decide(seen, records) for case in cases][-1].preemptions
        stopped = {victim.job_id for offer in offers for victim in offer.victims}
        started = {offer.pending.job.id for offer in offers}
        running = [each for each in running if each.job.id not in stopped]
        running += [RunningJob(offer.pending.job, seen.now_s, offer.placement) for offer in offers]
        pending = [each for each in pending if each.job.id not in started]
        running.pop(rng.randrange(len(running)))
    return cases


def main() -> None:
    """Print a line for each case, with the fastest of the later rounds."""
    play(1)  # compile the kernels
    cases = play(1 + ROUNDS)
    base_ms = np.min(np.sum(cases[0].took_ms[1:], axis=1))
    for (name, _, _), case in zip(CASES, cases, strict=True):
        step_ms, decision_ms = np.min(case.took_ms[1:], axis=0)
        ratio = np.min(np.sum(case.took_ms[1:], axis=1)) / base_ms
        print(
            f"  {name:15} {step_ms:6.1f} and {decision_ms:6.1f} ms CPU: {ratio:.2f} times;"
            f" first round {sum(case.took_ms[0]):.0f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
