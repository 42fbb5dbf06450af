"""The running jobs that Slurm stops for one start.

Sources: `slurm_find_preemptable_jobs` in `interfaces/preempt.c` for the candidates and their order, and `_run_now` in
`select/cons_tres/job_test.c` for the victims.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from cpsched.feasibility import FreeAmounts
from cpsched.model import Placement, Request
from cpsched.site.preemption import VictimOrder
from cpsched.site.victims import PreemptibleJob, TentativeJobStops

MAX_RANK = 0xFFFF
"""Largest QOS priority, tier or number of nodes that Slurm compares."""


def sort_preemption_candidates(candidates: Sequence[PreemptibleJob], order: VictimOrder) -> list[PreemptibleJob]:
    """Return candidates, given in order of submission, in Slurm's order."""
    if order.youngest_first:
        return sorted(candidates, key=lambda each: -each.running.start_s)
    return sorted(candidates, key=lambda each: (min(each.rank, MAX_RANK), min(len(each.running.placement), MAX_RANK)))


def select_slurm_victims(
    trial: FreeAmounts, request: Request, candidates: Sequence[PreemptibleJob], order: VictimOrder
) -> list[PreemptibleJob]:
    """Return the victims that Slurm selects from a sufficient set of candidates.

    Slurm stops candidates in order until the job fits. Then it moves the last stopped candidate to the front. Without
    `strict_order`, it sorts the earlier ones by the number of nodes shared with the job. It repeats these steps
    `reorder_count` + 1 times. Candidates that hold none of the job's nodes are not stopped.
    """
    jobs, passes = list(candidates), 0
    while True:
        last, placement = _stop_until_it_fits(trial, request, jobs)
        chosen = {node for node, _ in placement}
        is_final = passes > order.reorder_count
        passes += 1
        if is_final or len(jobs) <= passes:
            return [victim for victim in jobs[: last + 1] if _count_shared_nodes(victim, chosen)]
        before = jobs[:last]
        if not order.strict_order:
            before.sort(key=lambda victim: -_count_shared_nodes(victim, chosen))
        jobs = [jobs[last], *before, *jobs[last + 1 :]]


def _count_shared_nodes(victim: PreemptibleJob, nodes: Container[int]) -> int:
    return sum(node in nodes for node, _ in victim.running.placement)


def _stop_until_it_fits(trial: FreeAmounts, request: Request, order: Sequence[PreemptibleJob]) -> tuple[int, Placement]:
    """Return the position of the last job to stop, and the placement that then fits."""
    stops, eligible = TentativeJobStops(trial, request), trial.cluster.node_sets[request.node_set]
    for at, victim in enumerate(order):
        stops.stop(victim.running)
        if stops.fits and any(eligible[node] for node, _ in victim.running.placement):
            return at, stops.amounts.find_placement(request)
    raise AssertionError("the candidates must suffice")
