"""Plan which jobs to stop for one start, and where the job then runs.

`verify_preemption` checks a plan with the fit rule and shares no code with the search.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cpsched.feasibility import FreeAmounts, Violation, verify
from cpsched.model import Cluster, Decision, Effort, IntArray, Job, Placement, Request, RunningJob, Snapshot, Starts
from cpsched.site.slurm_victims import VictimOrder, select_slurm_victims, sort_preemption_candidates
from cpsched.site.victims import PreemptibleJob, cheapest_victims


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """The jobs to stop for one start, and the placement after they have ended."""

    victims: tuple[RunningJob, ...]
    placement: Placement


def plan_preemption(
    amounts: FreeAmounts,
    request: Request,
    candidates: Sequence[PreemptibleJob],
    ranks: Mapping[int, int],
    order: VictimOrder,
    spared: Container[int] = (),
) -> PreemptionPlan | None:
    """Return the cheapest preemption for a request, or None if there is none.

    `candidates` are the jobs that Slurm may stop for the request, in order of submission. For `ranks`, see
    `sort_preemption_candidates`. The plan stops at most as many jobs as Slurm would, and no job whose id is in
    `spared`.
    """
    eligible = amounts.cluster.node_sets[request.node_set]
    priced = {
        each.running.job.id: each for each in candidates if any(eligible[node] for node, _ in each.running.placement)
    }
    jobs = [each.running for each in priced.values()]
    if not _placement_after_stops(amounts, request, jobs):
        return None
    theirs = select_slurm_victims(amounts, request, sort_preemption_candidates(jobs, ranks, order), order)
    permitted = [each for id, each in priced.items() if id not in spared]
    found = cheapest_victims(amounts, request, permitted, [priced[victim.job.id] for victim in theirs])
    victims = tuple(each.running for each in found.victims)
    if any(victim.job.id in spared for victim in victims):
        return None
    return PreemptionPlan(victims, _placement_after_stops(amounts, request, victims))


def _placement_after_stops(amounts: FreeAmounts, request: Request, stopped: Sequence[RunningJob]) -> Placement:
    """Return a request's placement after jobs stop, which is empty if it does not fit."""
    without = amounts.copy()
    without.release_all(stopped)
    return without.find_placement(request)


def count_occupied_nodes(request: Request, placement: Placement, cluster: Cluster) -> float:
    """Return how many nodes a job occupies, as shares of each node's first resource."""
    if request.exclusive:
        return float(len(placement))
    amount = request.per_unit[0]
    return sum(units * (amount / capacity) for node, units in placement if (capacity := int(cluster.capacity[node, 0])))


def verify_preemption(
    now_s: int, cluster: Cluster, free: IntArray, job: Job, placement: Placement, victims: Sequence[RunningJob]
) -> list[Violation]:
    """Return all rules that the start of `job` violates after `victims` have ended.

    `free` contains amounts that neither running jobs nor other starts need. The result treats negative sums as 0.
    """
    idle = free.copy()
    for victim in victims:
        for node, units in victim.placement:
            request = victim.job.request
            idle[node] += cluster.capacity[node] if request.exclusive else units * np.array(request.per_unit, np.int64)
    job = replace(job, ineligible=None)
    after = Snapshot.of(now_s, cluster, np.maximum(idle, 0), (job,), estimates={job.id: job.walltime_s})
    found = verify(Decision(Starts.of({int(after.queue[0]): placement}), Effort("preemption", 1), None, {}), after)
    nodes = {node for node, _ in placement}
    return found + [
        Violation(job.id, f"victim {victim.job.id} holds none of the job's nodes")
        for victim in victims
        if nodes.isdisjoint(node for node, _ in victim.placement)
    ]
