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

import numpy as np

from cpsched.feasibility import FreeAmounts
from cpsched.model import PendingCode, PendingReason, Placement, RunningJob
from cpsched.parsing.checkpoints import last_checkpoint_s
from cpsched.site.admission import first_exceeded_limit
from cpsched.site.preemption import PreemptionRules, PreemptMode
from cpsched.site.preemption_plans import PreemptionPlan, node_share, plan_preemption
from cpsched.site.slurm_victims import VictimOrder
from cpsched.site.victims import PreemptibleJob, price_of
from cpsched_bridge.adapters.slurm.policy.policy_parsing import SitePolicySnapshot
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
"""How long capacity is kept for a job that Slurm starts by preemption, in seconds.

This covers grace times and a cycle of Slurm's backfill. After that, Slurm probably will not start the job.
"""


@dataclass(slots=True)
class PreemptorsLeftToSlurm:
    """The jobs left to Slurm because they may preempt, and when each was first left."""

    _since_s: dict[int, int] = field(default_factory=dict)

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
        victims = {name: rules.victims_of(name) for name in {rules.class_of(each.job) for each in seen.pending}}
        preemptible = _find_preemptible_jobs(seen, records, policy_snapshot, rules)
        chooser = None
        if options is not None and policy_snapshot.victim_order is not None:
            pool = _VictimPool.build(seen, records, policy_snapshot, rules, policy_snapshot.victim_order)
            chooser = _PreemptionOffers(seen, options, pool)
        found = _PreemptorSearch(seen, rules, victims, preemptible, self._since_s, chooser)
        left = {each.job.id: each for each in found.search()}
        self._since_s = {number: self._since_s.get(number, seen.now_s) for number in left}
        endangered = list(_list_preemptor_classes(seen, records, rules))
        trial = FreeAmounts(seen.cluster, seen.free)
        if chooser is not None:
            chooser.reserve(trial)
        for number, placement in found.placements.items():
            if seen.now_s - self._since_s[number] <= WITHHELD_S and not left[number].refused:
                trial.take(left[number].job.request, placement)
        return dataclasses.replace(
            seen,
            free=np.maximum(trial.free, 0),
            pending=tuple(
                dataclasses.replace(each, may_preempt=True) if victims[rules.class_of(each.job)] else each
                for each in seen.pending
                if each.job.id not in left
            ),
            left=(*seen.left, *(_make_unmanaged_job(each, rules, victims) for each in left.values())),
            preemptors={job.job.id: describe_classes(rules, names) for job, _, names in endangered},
            checkpoints={job.job.id: at_s for job, at_s, _ in endangered if at_s is not None},
            preemptions=tuple(chooser.offers) if chooser is not None else (),
        )


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
        records: Sequence[Record],
        policy_snapshot: SitePolicySnapshot,
        rules: PreemptionRules,
        order: VictimOrder,
    ) -> _VictimPool:
        """Return the pool of all running jobs that may be preempted."""
        prices, ranks = dict[int, PreemptibleJob](), dict[int, int]()
        modes, spared = dict[int, VictimMode](), set[int]()
        known, by_qos = slurm_job_ids.index_running_records(records), rules.kind == "qos"
        qos, partitions = policy_snapshot.site.qos, policy_snapshot.partitions
        for running, checkpoint_s, _ in _list_preemptor_classes(seen, records, rules):
            number, record = running.job.id, known[running.job.id]
            name = rules.class_named(record["qos"] or "", record["partition"] or "")
            if by_qos:
                grace_s, ranks[number] = (qos[name].grace_s, qos[name].priority) if name in qos else (0, 0)
            else:
                grace_s = partitions[name].grace_s if name in partitions else 0
                ranks[number] = rules.tiers.get(name, 0)
            share = node_share(running, seen.cluster)
            price = price_of(share, running.start_s, seen.now_s, checkpoint_s, grace_s)
            prices[number] = PreemptibleJob(running, price, grace_s)
            mode = _mode_of(record, rules.mode_of(name))
            is_apart = bool(record.get("reservation") or record.get("heterogeneous_id"))
            if mode in ("requeue", "cancel") and not grace_s and not is_apart:
                modes[number] = mode
            else:
                spared.add(number)
        return cls(prices, modes, ranks, frozenset(spared), order)


@dataclass(slots=True)
class _PreemptionOffers:
    """The offers of one observation: preemptions under way, then new ones."""

    seen: Observation
    options: PreemptionOptions
    pool: _VictimPool
    offers: list[PreemptionOffer] = field(default_factory=list)

    def offer_under_way(self, pending: PendingJob, stopped: Sequence[RunningJob], trial: FreeAmounts) -> bool:
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
            self._add(pending, placement, victims, trial)
            trial.take(pending.job.request, placement)
        return True

    def offer_new(
        self, pending: PendingJob, stopped: Sequence[RunningJob], trial: FreeAmounts
    ) -> PreemptionPlan | None:
        """Offer and return the cheapest preemption for a held job, or return None."""
        if pending.hold is Hold.NONE:
            return None
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
            self._add(pending, plan.placement, victims, trial)
        return plan

    def _add(self, pending: PendingJob, placement: Placement, victims: tuple[Victim, ...], trial: FreeAmounts) -> None:
        self.offers.append(PreemptionOffer(pending, placement, victims, trial.free.copy()))

    def reserve(self, trial: FreeAmounts) -> None:
        """Subtract the amounts of preemptions under way from `trial`."""
        for each in self.offers:
            if each.pending.job.id in self.options.under_way:
                trial.take(each.pending.job.request, each.placement)


@dataclass(slots=True)
class _PreemptorSearch:
    """A search for the jobs to leave to Slurm."""

    seen: Observation
    rules: PreemptionRules
    victims: Mapping[str, Sequence[str]]
    """The classes whose jobs each class may preempt."""
    preemptible: Mapping[str, Sequence[RunningJob]]
    """The running jobs that Slurm may stop now, by class."""
    before: Collection[int]
    """The jobs that were left to Slurm in the last reading."""
    chooser: _PreemptionOffers | None = None
    placements: dict[int, Placement] = field(default_factory=dict)
    """Placements of the jobs to leave to Slurm, by job number."""

    def search(self) -> Iterator[PendingJob]:
        """Yield the jobs to leave; higher tiers and priorities take capacity first."""
        trial, given = FreeAmounts(self.seen.cluster, self.seen.free), set[int]()
        order = sorted(self.seen.pending, key=lambda each: (-each.job.tier, -each.job.priority))
        under_way = set[int]()
        if self.chooser is not None:
            able = [each for each in order if not self._is_limited(each)]
            under_way = {
                each.job.id for each in able if self.chooser.offer_under_way(each, self._list_victims(each), trial)
            }
            given |= {victim.job_id for offer in self.chooser.offers for victim in offer.victims}
        for each in order:
            if each.job.id in under_way:
                continue
            victims = self.victims[self.rules.class_of(each.job)]
            if not victims or each.pinned or each.job.ineligible is not None or each.hold in (Hold.USER, Hold.CLUSTER):
                continue
            stays = each.hold is Hold.NONE and each.job.id in self.before
            if self._is_limited(each):
                if stays:
                    yield each
                continue
            placement = trial.place(each.job.request)
            if placement and not stays:
                trial.take(each.job.request, placement)
                continue
            if not placement:
                stopped = [job for job in self._list_victims(each) if job.job.id not in given]
                without = trial.copy()
                for job in stopped:
                    without.release(job.job.request, job.placement)
                if placement := without.place(each.job.request):
                    plan = self.chooser.offer_new(each, stopped, trial) if self.chooser is not None else None
                    if plan is not None:
                        placement, stopped = plan.placement, list(plan.victims)
                    nodes = {node for node, _ in placement}
                    given |= {job.job.id for job in stopped if not nodes.isdisjoint(node for node, _ in job.placement)}
            if placement:
                self.placements[each.job.id] = placement
                trial.take(each.job.request, placement)
            if placement or stays:
                yield each

    def _list_victims(self, pending: PendingJob) -> list[RunningJob]:
        """Return the running jobs that Slurm may stop now for a job."""
        victims = self.victims[self.rules.class_of(pending.job)]
        return [job for name in victims for job in self.preemptible.get(name, ())]

    def _is_limited(self, pending: PendingJob) -> bool:
        """Return whether one of the site's limits blocks the job."""
        limits = self.seen.limits
        standing = limits.standings.get(pending.job.id) if limits is not None else None
        if limits is None or standing is None:
            return False
        return bool(standing.barred or first_exceeded_limit(standing, limits.used))


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
            found.setdefault(rules.class_named(record["qos"] or "", record["partition"] or ""), []).append(running)
    return found


def _list_preemptor_classes(
    seen: Observation, records: Sequence[Record], rules: PreemptionRules
) -> Iterator[tuple[RunningJob, int | None, tuple[str, ...]]]:
    """Yield each preemptible job, its last checkpoint, and its preemptors' classes."""
    known, classes = slurm_job_ids.index_running_records(records), dict[str, tuple[str, ...]]()
    for running in seen.running:
        if (record := known.get(running.job.id)) is None:
            continue
        name = rules.class_named(record["qos"] or "", record["partition"] or "")
        if name not in classes:
            classes[name] = rules.preemptors_of(name)
        if classes[name]:
            yield running, last_checkpoint_s(record["comment"] or "", running.start_s, seen.now_s), classes[name]


def _mode_of(record: Record, mode: PreemptMode) -> PreemptMode | None:
    """Return what Slurm does to a preempted job; None if it is unknown whether the job can be requeued.

    `slurm_job_preempt` cancels a job that `_job_requeue_op` refuses: without `Requeue`, or not a batch job.
    """
    if mode != "requeue":
        return mode
    requirements = (record["is_requeueable"], record["is_batch_job"])
    return None if None in requirements else "requeue" if all(requirements) else "cancel"


def describe_classes(rules: PreemptionRules, names: Sequence[str]) -> str:
    """Return these classes as text, such as `QOS low, scavenger`."""
    return f"{'QOS' if rules.kind == 'qos' else 'partition'} {', '.join(names)}"


def _make_unmanaged_job(
    pending: PendingJob, rules: PreemptionRules, victims: Mapping[str, Sequence[str]]
) -> UnmanagedJob:
    whose = describe_classes(rules, victims[rules.class_of(pending.job)])
    reason = PendingReason(PendingCode.PREEMPTION, (whose,))
    held = pending.hold is Hold.PLUGIN
    return UnmanagedJob(pending.job.id, reason, pending.label, pending.job.user, held_for_bridge=held)
