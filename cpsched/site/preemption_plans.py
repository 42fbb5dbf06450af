"""Plan which pending jobs start by stopping running jobs, and which jobs to stop for each.

The bridge applies these plans, and the simulator simulates them. `verify_preemption` checks a plan with the fit rule
and shares no code with the search.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from cpsched.feasibility import FreeAmounts, Violation, verify
from cpsched.model import Cluster, Decision, Effort, IntArray, Job, Placement, Request, RunningJob, Snapshot, Starts
from cpsched.site.admission import PendingJobLimitsAndUsage, add_job_usage, first_exceeded_limit
from cpsched.site.preemption import PreemptionRules, VictimOrder
from cpsched.site.victims import PreemptibleJob, TentativeJobStops, cheapest_victims

_GET_REQUEST_FIELDS = attrgetter(*(field.name for field in dataclasses.fields(Request)))
"""Getter of a request's fields as a tuple, which is hashed and compared more than twice as fast as the request."""


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """The start of a job after its victims, if any, have ended.

    - `free`: the amounts that neither running jobs nor earlier plans need.
    - `is_chosen`: whether the victims lose the least work. Otherwise, they are those that Slurm stops.
    """

    job: Job
    placement: Placement
    victims: tuple[PreemptibleJob, ...]
    free: IntArray
    is_chosen: bool = False

    @property
    def stopped(self) -> list[RunningJob]:
        """The runs of the victims."""
        return [each.running for each in self.victims]


class PreemptionSearch:
    """A search for the starts of one moment. Use it for all jobs that may preempt, in the order of the queue.

    Each planned start takes amounts, usage of limits and victims from the later ones. Victims take time to end. What
    they leave beyond the need of their preemptor is free only afterwards, so a job that fits there waits, and stops no
    further jobs. Amounts only shrink during the search, so a request that did not fit is not tried again.

    `list_candidates` returns the running jobs that Slurm may stop now, in order of submission. It is called at most
    once, and only if a job does not fit on free nodes.
    """

    def __init__(
        self,
        amounts: FreeAmounts,
        limits: PendingJobLimitsAndUsage,
        rules: PreemptionRules,
        order: VictimOrder,
        list_candidates: Callable[[], Sequence[PreemptibleJob]],
    ) -> None:
        self.amounts = amounts
        """The amounts that no plan needs."""
        self._amounts_after_stops = amounts.copy()
        self._standings, self._used = limits.standings, list(limits.used)
        self._rules, self._order, self._list_candidates = rules, order, list_candidates
        self._candidates: Sequence[PreemptibleJob] | None = None
        self._by_preemptor = dict[str, list[PreemptibleJob]]()
        self._ending = set[int]()
        self._hopeless = set[tuple[object, ...]]()

    def is_blocked_by_limit(self, job: Job) -> bool:
        """Return whether one of the site's limits blocks a job, together with the starts that are planned."""
        standing = self._standings.get(job.id)
        return standing is not None and bool(standing.barred or first_exceeded_limit(standing, self._used))

    def continue_preemption(self, job: Job, placement: Placement, victims: Sequence[PreemptibleJob]) -> PreemptionPlan:
        """Reserve the amounts of an earlier plan, and return it with those of its victims that still run."""
        return self._reserve(PreemptionPlan(job, placement, tuple(victims), self.amounts.free.copy(), True))

    def plan_start(self, job: Job, choose: bool, spared: Container[int] = ()) -> PreemptionPlan | None:
        """Return the start of a job, without victims if it fits on free nodes, or None if it must wait.

        With `choose`, the victims lose the least work, are at most as many as Slurm would stop, and are not in
        `spared`. If no permitted jobs suffice, the plan has Slurm's victims.
        """
        request, name = job.request, self._rules.class_of(job)
        kind = name, *_GET_REQUEST_FIELDS(request)
        if kind in self._hopeless or self.is_blocked_by_limit(job):
            return None

        if placement := self.amounts.find_placement(request):
            return self._reserve(PreemptionPlan(job, placement, (), self.amounts.free.copy()))
        if self._ending and (placement := self._amounts_after_stops.find_placement(request)):
            self._reserve_for_waiting_job(job, placement)
            return None

        candidates = self._find_candidates(name, request)
        if not _placement_after_stops(self.amounts, request, candidates):
            self._hopeless.add(kind)
            return None

        victims = select_slurm_victims(
            self.amounts, request, sort_preemption_candidates(candidates, self._order), self._order
        )
        if choose:
            permitted = [each for each in candidates if each.running.job.id not in spared]
            cheapest = cheapest_victims(self.amounts, request, permitted, victims).victims
            choose = not any(each.running.job.id in spared for each in cheapest)
            victims = list(cheapest) if choose else victims
        placement = _placement_after_stops(self.amounts, request, victims)
        return self._reserve(PreemptionPlan(job, placement, tuple(victims), self.amounts.free.copy(), choose))

    def _find_candidates(self, preemptor: str, request: Request) -> list[PreemptibleJob]:
        """Return the jobs that a job of this class may preempt, on nodes that the request permits."""
        if self._candidates is None:
            self._candidates = self._list_candidates()
        if preemptor not in self._by_preemptor:
            classes = self._rules.preemptible_classes_of(preemptor)
            self._by_preemptor[preemptor] = [each for each in self._candidates if each.preemption_class in classes]
        eligible = set(np.flatnonzero(self.amounts.cluster.node_sets[request.node_set]).tolist())
        return [
            each
            for each in self._by_preemptor[preemptor]
            if each.running.job.id not in self._ending and any(node in eligible for node, _ in each.running.placement)
        ]

    def _reserve(self, plan: PreemptionPlan) -> PreemptionPlan:
        """Take the amounts, the usage of limits and the victims of a plan from later starts."""
        stopped = plan.stopped
        self.amounts.take_after_stops(plan.job.request, plan.placement, stopped)
        self._amounts_after_stops.release_all(stopped)
        self._amounts_after_stops.take(plan.job.request, plan.placement)
        self._ending.update(each.job.id for each in stopped)
        self._add_usage(plan.job)
        return plan

    def _reserve_for_waiting_job(self, job: Job, placement: Placement) -> None:
        """Reserve the nodes of a job that fits after the victims of other jobs have ended."""
        self._amounts_after_stops.take(job.request, placement)
        np.minimum(self.amounts.free, self._amounts_after_stops.free, out=self.amounts.free)
        self._add_usage(job)

    def _add_usage(self, job: Job) -> None:
        if standing := self._standings.get(job.id):
            add_job_usage(standing, self._used)


def _placement_after_stops(amounts: FreeAmounts, request: Request, victims: Sequence[PreemptibleJob]) -> Placement:
    """Return a request's placement after jobs stop, which is empty if it does not fit."""
    without = amounts.copy()
    without.release_all([each.running for each in victims])
    return without.find_placement(request)


def count_occupied_nodes(request: Request, placement: Placement, cluster: Cluster) -> float:
    """Return how many nodes a job occupies, as shares of the resource of which it leaves the least on each node."""
    if request.exclusive:
        return float(len(placement))
    return sum(
        max(
            units * (amount / most) if amount else 0.0
            for amount, most in zip(request.per_unit, cluster.capacity[node].tolist(), strict=True)
        )
        for node, units in placement
    )


def verify_preemption(
    start: RunningJob, cluster: Cluster, free: IntArray, victims: Sequence[RunningJob]
) -> list[Violation]:
    """Return all rules that a start violates after `victims` have ended.

    `free` contains amounts that neither running jobs nor other starts need. The result treats negative sums as 0.
    """
    idle = free.copy()
    for victim in victims:
        for node, units in victim.placement:
            request = victim.job.request
            idle[node] += cluster.capacity[node] if request.exclusive else units * np.array(request.per_unit, np.int64)
    job = replace(start.job, ineligible=None)
    estimates = {job.id: job.walltime_s}
    after = Snapshot.of(start.start_s, cluster, np.maximum(idle, 0), (job,), estimates=estimates)
    found = verify(
        Decision(Starts.of({int(after.queue[0]): start.placement}), Effort("preemption", 1), None, {}), after
    )
    nodes = {node for node, _ in start.placement}
    return found + [
        Violation(job.id, f"victim {victim.job.id} holds none of the job's nodes")
        for victim in victims
        if nodes.isdisjoint(node for node, _ in victim.placement)
    ]


MAX_RANK = 0xFFFF
"""Largest QOS priority, tier or number of nodes that Slurm compares."""


def sort_preemption_candidates(candidates: Sequence[PreemptibleJob], order: VictimOrder) -> list[PreemptibleJob]:
    """Return candidates, given in order of submission, in Slurm's order.

    Source: `slurm_find_preemptable_jobs` in `interfaces/preempt.c`.
    """
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

    Source: `_run_now` in `select/cons_tres/job_test.c`.
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
