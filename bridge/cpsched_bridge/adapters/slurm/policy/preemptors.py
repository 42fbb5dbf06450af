"""Leave to Slurm the jobs that can start only by preemption.

Dispatchers see only idle capacity. A job that may preempt is left to Slurm if it does not fit into idle capacity, but
would fit if Slurm stopped other jobs. It stays with Slurm until it runs, and the capacity that it will take is not
available to other jobs. The bridge does not hold a job that may preempt, because Slurm may already be stopping jobs for
it.

If the bridge chooses victims (`PreemptionOptions`), the observation also contains a preemption offer for each of these
jobs that is held. The bridge does not stop jobs that have a grace time in Slurm, because scontrol and scancel do not
grant it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from cpsched.feasibility import FreeAmounts
from cpsched.model import Cluster, PendingCode, PendingReason, Placement, Request, RunningJob
from cpsched.parsing.checkpoints import last_checkpoint_s
from cpsched.site.admission import add_job_usage, first_exceeded_limit
from cpsched.site.limit_checks import ApplicableJobLimits
from cpsched.site.preemption import PreemptionRules, PreemptMode
from cpsched.site.preemption_plans import PreemptionPlan, count_occupied_nodes, plan_preemption
from cpsched.site.slurm_victims import VictimOrder
from cpsched.site.victims import PreemptibleJob, stop_price_node_s
from cpsched_bridge.adapters.slurm.policy.site_policy_parsing import SitePolicySnapshot
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.ports import (
    Hold,
    Observation,
    PendingJob,
    PreemptionOffer,
    PreemptionOptions,
    UnmanagedJob,
    Victim,
    VictimMode,
)

WITHHELD_S = 300
"""Time in seconds for which capacity is kept for a job that Slurm starts by preemption.

This covers grace times and a cycle of Slurm's backfill. After that, Slurm probably will not start the job.
"""


_GET_REQUEST_FIELDS = attrgetter(*(field.name for field in dataclasses.fields(Request)))
"""Getter of a request's fields as a tuple, which is hashed and compared more than twice as fast as the request."""
_EndangeredJob = tuple[RunningJob, int | None, tuple[str, ...], Record]
"""A running job that Slurm may preempt: job, last checkpoint, classes whose jobs may stop it, and record."""


@dataclass(slots=True)
class PreemptorsLeftToSlurm:
    """The jobs left to Slurm because they may preempt, and since when."""

    _since_s: dict[int, int] = field(default_factory=dict)
    _marked: dict[int, tuple[PendingJob, PendingJob]] = field(default_factory=dict)
    """The jobs that may preempt, as read and as observed. An unchanged job remains the same object."""

    def leave(
        self,
        seen: Observation,
        records: Sequence[Record],
        policy_snapshot: SitePolicySnapshot,
        options: PreemptionOptions | None = None,
    ) -> Observation:
        """Leave to Slurm the jobs that may preempt, with the capacity they will take."""
        rules = policy_snapshot.preemption
        if rules is None:
            return seen
        classes = [rules.class_of(each.job) for each in seen.pending]
        victims = {name: rules.preemptible_classes_of(name) for name in set(classes)}
        able = [each for each, name in zip(seen.pending, classes, strict=True) if victims[name]]
        endangered = list(_list_endangered_jobs(seen, records, rules))
        preemptible = _find_preemptible_jobs(seen, records, policy_snapshot, rules)
        chooser = None
        if options is not None and policy_snapshot.victim_order is not None:
            pool = _VictimPool.build(seen, endangered, policy_snapshot, rules, policy_snapshot.victim_order)
            chooser = _PreemptionOfferBuilder(seen, options, pool)
        found = _PreemptorSearch(seen, rules, victims, able, preemptible, self._since_s, chooser)
        left = {each.job.id: each for each in found.search()}
        self._since_s = {number: self._since_s.get(number, seen.now_s) for number in left}
        self._marked = {each.job.id: self._mark_may_preempt(each) for each in able if each.job.id not in left}
        marked = {number: after for number, (_, after) in self._marked.items()}
        trial = FreeAmounts(seen.cluster, seen.free)
        if chooser is not None:
            chooser.reserve(trial)
        offered = {each.pending.job.id for each in chooser.offers} if chooser is not None else set()
        for number, placement in found.placements.items():
            is_recent = seen.now_s - self._since_s[number] <= WITHHELD_S and not left[number].refused
            if is_recent or number in offered:
                trial.take(left[number].job.request, placement)
        return dataclasses.replace(
            seen,
            free=np.maximum(trial.free, 0),
            pending=tuple([marked.get(each.job.id, each) for each in seen.pending if each.job.id not in left]),
            left=(*seen.left, *(_make_unmanaged_job(each, rules, victims) for each in left.values())),
            preemptors={job.job.id: format_preemption_classes(rules, names) for job, _, names, _ in endangered},
            checkpoints={job.job.id: at_s for job, at_s, _, _ in endangered if at_s is not None},
            preemptions=tuple(chooser.offers) if chooser is not None else (),
            kill_wait_s=policy_snapshot.kill_wait_s,
        )

    def _mark_may_preempt(self, pending: PendingJob) -> tuple[PendingJob, PendingJob]:
        """Return the job as read, and as observed."""
        before = self._marked.get(pending.job.id)
        if before is not None and before[0] is pending:
            return before
        return pending, dataclasses.replace(pending, may_preempt=True)


@dataclass(frozen=True, slots=True)
class _VictimPool:
    """The price, mode and rank of each preemptible job, and Slurm's order of victims."""

    prices: Mapping[int, PreemptibleJob]
    modes: Mapping[int, VictimMode]
    """Modes of the jobs that are not spared."""
    ranks: Mapping[int, int]
    spared: frozenset[int]
    """The jobs that the bridge does not stop: with a grace time, in a reservation, in a larger job, or unreadable."""
    order: VictimOrder

    @classmethod
    def build(
        cls,
        seen: Observation,
        endangered: Sequence[_EndangeredJob],
        policy_snapshot: SitePolicySnapshot,
        rules: PreemptionRules,
        order: VictimOrder,
    ) -> _VictimPool:
        """Return the pool of all running jobs that may be preempted."""
        prices, ranks = dict[int, PreemptibleJob](), dict[int, int]()
        modes, spared = dict[int, VictimMode](), set[int]()
        by_qos, qos, partitions = rules.kind == "qos", policy_snapshot.site.qos, policy_snapshot.partitions
        for running, checkpoint_s, _, record in endangered:
            number = running.job.id
            name = rules.class_of_qos_or_partition(record["qos"] or "", record["partition"] or "")
            if by_qos:
                grace_s, ranks[number] = (qos[name].grace_s, qos[name].priority) if name in qos else (0, 0)
            else:
                grace_s = partitions[name].grace_s if name in partitions else 0
                ranks[number] = rules.tiers.get(name, 0)
            share = count_occupied_nodes(running.job.request, running.placement, seen.cluster)
            mode = _find_effective_preempt_mode(record, rules.mode_of(name))
            resumed_s = checkpoint_s if mode == "requeue" else None  # a cancelled job loses all its work
            price = stop_price_node_s(share, running.start_s, seen.now_s, resumed_s, grace_s)
            prices[number] = PreemptibleJob(running, price, grace_s)
            is_apart = bool(record.get("reservation") or record.get("heterogeneous_id"))
            if mode in ("requeue", "cancel") and not grace_s and not is_apart:
                modes[number] = mode
            else:
                spared.add(number)
        return cls(prices, modes, ranks, frozenset(spared), order)


@dataclass(slots=True)
class _PreemptionOfferBuilder:
    """The offers of one observation: preemptions under way, then new ones."""

    seen: Observation
    options: PreemptionOptions
    pool: _VictimPool
    offers: list[PreemptionOffer] = field(default_factory=list)

    def offer_preemption_under_way(
        self, pending: PendingJob, stopped: Sequence[RunningJob], trial: FreeAmounts
    ) -> bool:
        """Offer a held job's preemption under way, and return whether there is one.

        Reserve the preemption's nodes. Offer only the victims that are still running and that Slurm may stop.
        """
        under_way = self.options.under_way.get(pending.job.id)
        if under_way is None or pending.hold is Hold.NONE:
            return False
        index = {name: node for node, name in enumerate(self.seen.cluster.node_names)}
        if all(name in index for name, _ in under_way.nodes):
            since_s = {each.job.id: each.start_s for each in stopped if each.job.id in self.pool.modes}
            victims = tuple(each for each in under_way.victims if since_s.get(each.job_id) == each.start_s)
            placement = tuple(sorted((index[name], units) for name, units in under_way.nodes))
            self._add_offer(pending, placement, victims, trial)
            ending = {each.job_id for each in victims}
            trial.take_after_stops(pending.job.request, placement, [each for each in stopped if each.job.id in ending])
        return True

    def offer_cheapest_preemption(
        self, pending: PendingJob, stopped: Sequence[RunningJob], trial: FreeAmounts
    ) -> PreemptionPlan | None:
        """Offer the cheapest preemption of these jobs for a held job.

        Return it, or None if there is none.
        """
        jobs = sorted(stopped, key=lambda each: (each.job.submit_s, each.job.id))
        plan = plan_preemption(
            trial,
            pending.job.request,
            [self.pool.prices[each.job.id] for each in jobs],
            self.pool.ranks,
            self.pool.order,
            self.options.spared | self.pool.spared,
        )
        if plan is not None:
            modes = self.pool.modes
            victims = tuple(Victim(each.job.id, each.start_s, modes[each.job.id]) for each in plan.victims)
            self._add_offer(pending, plan.placement, victims, trial)
        return plan

    def _add_offer(
        self, pending: PendingJob, placement: Placement, victims: tuple[Victim, ...], trial: FreeAmounts
    ) -> None:
        self.offers.append(PreemptionOffer(pending, placement, victims, trial.free.copy()))

    def reserve(self, trial: FreeAmounts) -> None:
        """Subtract the amounts of preemptions under way from `trial`."""
        for each in self.offers:
            if each.pending.job.id in self.options.under_way:
                trial.take(each.pending.job.request, each.placement)


class _PreemptibleCapacity:
    """The amounts that preempting running jobs would free, by preemption class.

    Jobs that are already victims of another start are excluded.
    """

    def __init__(
        self, cluster: Cluster, preemptible: Mapping[str, Sequence[RunningJob]], given: Collection[int]
    ) -> None:
        self.given = set(given)
        self._cluster = cluster
        self._classes = {job.job.id: name for name, jobs in preemptible.items() for job in jobs}
        self._on_node: dict[int, list[RunningJob]] = {}
        self._freed: dict[str, FreeAmounts] = {}
        for name, jobs in preemptible.items():
            for job in jobs:
                for node, _ in job.placement:
                    self._on_node.setdefault(node, []).append(job)
            self._freed[name] = FreeAmounts(cluster, np.zeros_like(cluster.capacity))
            self._freed[name].release_all([job for job in jobs if job.job.id not in self.given])

    def compute_free_after_preemption(self, amounts: FreeAmounts, names: Sequence[str]) -> FreeAmounts:
        """Return the free amounts after all jobs of these classes have ended."""
        without = amounts.copy()
        for name in names:
            if name in self._freed:
                without.free += self._freed[name].free
        return without

    def list_victims_on(self, node: int, names: Sequence[str]) -> list[RunningJob]:
        """Return the jobs of these classes on a node."""
        return [job for job in self._on_node.get(node, ()) if self._classes[job.job.id] in names]

    def give(self, victims: Sequence[RunningJob]) -> None:
        """Give jobs to a start, so that they do not make room for another start."""
        new = dict[str, list[RunningJob]]()
        for job in victims:
            if job.job.id not in self.given:
                self.given.add(job.job.id)
                new.setdefault(self._classes[job.job.id], []).append(job)
        for name, jobs in new.items():
            self._freed[name].take_all(jobs)


@dataclass(slots=True)
class _PreemptorSearch:
    """A search for the jobs to leave to Slurm."""

    seen: Observation
    rules: PreemptionRules
    victims: Mapping[str, Sequence[str]]
    """The classes whose jobs each class may preempt."""
    able: Sequence[PendingJob]
    """The jobs whose class may preempt."""
    preemptible: Mapping[str, Sequence[RunningJob]]
    """The running jobs that Slurm may stop now, by class."""
    before: Collection[int]
    """The jobs that were left to Slurm in the last reading."""
    chooser: _PreemptionOfferBuilder | None = None
    placements: dict[int, Placement] = field(default_factory=dict)
    """Placements of the jobs to leave to Slurm, by job number."""
    _used: list[int] = field(default_factory=list)
    """Usage of the site's limits, including that of the jobs that the search has placed."""

    def search(self) -> Iterator[PendingJob]:
        """Yield the jobs to leave to Slurm, by tier and priority.

        Each job takes the capacity that it needs from the later ones. Capacity only shrinks during the search, so a
        request that did not fit is not tried again.
        """
        trial = FreeAmounts(self.seen.cluster, self.seen.free)
        self._used = list(self.seen.limits.used) if self.seen.limits is not None else []
        hopeless = set[tuple[object, ...]]()
        under_way = self._offer_preemptions_under_way(trial)
        given = {victim.job_id for offer in (self.chooser.offers if self.chooser else ()) for victim in offer.victims}
        room = _PreemptibleCapacity(self.seen.cluster, self.preemptible, given)
        for each in sorted(self.able, key=_get_priority_sort_key):
            if each.job.id in under_way:
                continue
            if each.pinned or each.job.ineligible is not None or each.hold in (Hold.USER, Hold.CLUSTER):
                continue
            if each.awaits_hold and self.chooser is not None:  # the bridge chooses its victims once it is held
                continue
            request = each.job.request
            kind = self.rules.class_of(each.job), *_GET_REQUEST_FIELDS(request)
            stays = each.hold is Hold.NONE and each.job.id in self.before
            if kind in hopeless or self._is_blocked_by_limit(each):
                if stays:
                    yield each
                continue
            placement, victims = trial.find_placement(request), list[RunningJob]()
            is_left = stays or not placement
            if not placement:
                placement, victims = self._place_with_victims(each, trial, room)
            if placement:
                trial.take_after_stops(request, placement, victims)
                self._add_usage(each)
            else:
                hopeless.add(kind)
            if is_left and placement:
                self.placements[each.job.id] = placement
            if stays or (is_left and placement):
                yield each

    def _offer_preemptions_under_way(self, trial: FreeAmounts) -> set[int]:
        """Offer the preemptions under way.

        Return the ids of the held jobs for which others are being stopped.
        """
        if self.chooser is None or not self.chooser.options.under_way:
            return set()
        decided = [each for each in self.seen.pending if each.job.id in self.chooser.options.under_way]
        found = set[int]()
        for each in sorted(decided, key=_get_priority_sort_key):
            if self._is_blocked_by_limit(each):
                continue
            if self.chooser.offer_preemption_under_way(each, self._list_victims(each), trial):
                found.add(each.job.id)
                self._add_usage(each)
        return found

    def _place_with_victims(
        self, pending: PendingJob, trial: FreeAmounts, room: _PreemptibleCapacity
    ) -> tuple[Placement, list[RunningJob]]:
        """Return the placement of a job after its victims have ended, and the victims that the bridge would choose.

        Give the victims to the job. The placement is empty if the job does not fit.
        """
        names = self._get_victim_classes(pending)
        placement = room.compute_free_after_preemption(trial, names).find_placement(pending.job.request)
        if not placement:
            return (), []
        plan = None
        if self.chooser is not None and pending.hold is not Hold.NONE:
            stopped = [job for job in self._list_victims(pending) if job.job.id not in room.given]
            plan = self.chooser.offer_cheapest_preemption(pending, stopped, trial)
        if plan is None:
            room.give([job for node, _ in placement for job in room.list_victims_on(node, names)])
            return placement, []
        room.give(plan.victims)
        return plan.placement, list(plan.victims)

    def _get_victim_classes(self, pending: PendingJob) -> Sequence[str]:
        """Return the classes whose jobs a job may preempt."""
        return self.victims[self.rules.class_of(pending.job)]

    def _list_victims(self, pending: PendingJob) -> list[RunningJob]:
        """Return the running jobs that Slurm may stop now for a job."""
        return [job for name in self._get_victim_classes(pending) for job in self.preemptible.get(name, ())]

    def _is_blocked_by_limit(self, pending: PendingJob) -> bool:
        """Return whether one of the site's limits blocks the job."""
        limits = self._get_applicable_limits(pending)
        return limits is not None and bool(limits.barred or first_exceeded_limit(limits, self._used))

    def _add_usage(self, pending: PendingJob) -> None:
        """Count a job that will start, so that later jobs respect the same limits."""
        if (limits := self._get_applicable_limits(pending)) is not None:
            add_job_usage(limits, self._used)

    def _get_applicable_limits(self, pending: PendingJob) -> ApplicableJobLimits | None:
        return self.seen.limits.standings.get(pending.job.id) if self.seen.limits is not None else None


def _get_priority_sort_key(pending: PendingJob) -> tuple[int, int]:
    return -pending.job.tier, -pending.job.priority


def _find_preemptible_jobs(
    seen: Observation, records: Sequence[Record], policy_snapshot: SitePolicySnapshot, rules: PreemptionRules
) -> dict[str, list[RunningJob]]:
    """Return the running jobs whose exempt time has passed, by class."""
    known, found = slurm_job_ids.index_running_records(records), dict[str, list[RunningJob]]()
    for running in seen.running:
        record = known.get(running.job.id)
        if record is None:
            continue
        all_qos = policy_snapshot.site.qos_by_precedence(record["qos"] or "", record["partition"] or "")
        times = [qos.preempt_exempt_s for qos in all_qos if qos.preempt_exempt_s is not None]
        if seen.now_s - running.start_s >= (times[0] if times else policy_snapshot.exempt_s):
            found.setdefault(
                rules.class_of_qos_or_partition(record["qos"] or "", record["partition"] or ""), []
            ).append(running)
    return found


def _list_endangered_jobs(
    seen: Observation, records: Sequence[Record], rules: PreemptionRules
) -> Iterator[_EndangeredJob]:
    """Yield the running jobs that Slurm may preempt."""
    known, classes = slurm_job_ids.index_running_records(records), dict[str, tuple[str, ...]]()
    for running in seen.running:
        if (record := known.get(running.job.id)) is None:
            continue
        name = rules.class_of_qos_or_partition(record["qos"] or "", record["partition"] or "")
        if name not in classes:
            classes[name] = rules.preempting_classes_of(name)
        if classes[name]:
            checkpoint_s = last_checkpoint_s(record["comment"] or "", running.start_s, seen.now_s)
            yield running, checkpoint_s, classes[name], record


def _find_effective_preempt_mode(record: Record, mode: PreemptMode) -> PreemptMode | None:
    """Return what Slurm does to a preempted job, or None if this is unknown.

    `slurm_job_preempt` cancels a job that `_job_requeue_op` refuses: without `Requeue`, or not a batch job.
    """
    if mode != "requeue":
        return mode
    requirements = (record["is_requeueable"], record["is_batch_job"])
    return None if None in requirements else "requeue" if all(requirements) else "cancel"


def format_preemption_classes(rules: PreemptionRules, names: Sequence[str]) -> str:
    """Return these classes as text, such as `QOS low, scavenger`."""
    return f"{'QOS' if rules.kind == 'qos' else 'partition'} {', '.join(names)}"


def _make_unmanaged_job(
    pending: PendingJob, rules: PreemptionRules, victims: Mapping[str, Sequence[str]]
) -> UnmanagedJob:
    whose = format_preemption_classes(rules, victims[rules.class_of(pending.job)])
    reason = PendingReason(PendingCode.PREEMPTION, (whose,))
    return UnmanagedJob(
        pending.job.id, reason, pending.label, pending.job.user, held_for_bridge=pending.waits_for_bridge
    )
