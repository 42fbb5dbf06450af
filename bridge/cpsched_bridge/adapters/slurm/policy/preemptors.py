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
from typing import NamedTuple

import numpy as np

from cpsched.feasibility import FreeAmounts
from cpsched.model import PendingCode, PendingReason
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.site.preemption import PreemptionRules, PreemptMode, VictimOrder
from cpsched.site.preemption_plans import PreemptionPlan, PreemptionSearch, count_occupied_nodes
from cpsched.site.site_policy import SitePolicy
from cpsched.site.victims import PreemptibleJob, stop_price_node_s
from cpsched.slurm_text.jobs import SlurmJob, last_checkpoint_s
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.ports import (
    Hold,
    Observation,
    PendingJob,
    PreemptionOffer,
    PreemptionOptions,
    PreemptionUnderWay,
    UnmanagedJob,
    Victim,
    VictimMode,
)

WITHHELD_S = 300
"""Time in seconds for which capacity is kept for a job that Slurm starts by preemption.

This covers grace times and a cycle of Slurm's backfill. After that, Slurm probably will not start the job.
"""


@dataclass(frozen=True, slots=True)
class _EndangeredJob:
    """A running job that jobs of the classes `preemptors` may preempt.

    - `mode`: how the bridge stops it. None means that it does not, because the job has a grace time, is suspended, is
      in a reservation or in a larger job, or because its record is incomplete.
    - `is_exempt`: whether Slurm does not stop it yet.
    """

    stop: PreemptibleJob
    mode: VictimMode | None
    is_exempt: bool
    preemptors: tuple[str, ...]
    checkpoint_s: int | None

    @property
    def job_id(self) -> int:
        return self.stop.running.job.id


@dataclass(slots=True)
class PreemptorsLeftToSlurm:
    """The jobs left to Slurm because they may preempt, and since when."""

    _since_s: dict[int, int] = field(default_factory=dict)
    _marked: dict[int, tuple[PendingJob, PendingJob]] = field(default_factory=dict)
    """The jobs that may preempt, as read and as observed. An unchanged job remains the same object."""

    def leave(
        self,
        seen: Observation,
        records: Sequence[SlurmJob],
        policy: SitePolicy,
        options: PreemptionOptions | None = None,
    ) -> Observation:
        """Leave to Slurm the jobs that may preempt, with the capacity they will take."""
        rules = policy.preemption
        if rules is None:
            return seen
        classes = [rules.class_of(each.job) for each in seen.pending]
        victims = {name: rules.preemptible_classes_of(name) for name in set(classes)}
        able = [each for each, name in zip(seen.pending, classes, strict=True) if victims[name]]
        able.sort(key=_get_priority_sort_key)
        endangered = list(_list_endangered_jobs(seen, records, policy, rules))

        search = _PreemptorSearch.of(seen, rules, endangered, options)
        under_way = search.continue_preemptions(seen.pending)
        left = search.list_jobs_to_leave(able, self._since_s)
        self._since_s = {job_id: self._since_s.get(job_id, seen.now_s) for job_id in left}
        self._marked = {each.job.id: self._mark_may_preempt(each) for each in able if each.job.id not in left}

        free = FreeAmounts(seen.cluster, seen.free)
        for plan in under_way:
            free.take(plan.job.request, plan.placement)
        for pending, expected in left.values():
            if expected is not None and (expected.is_chosen or search.is_start_expected(pending, self._since_s)):
                free.take(pending.job.request, expected.placement)

        marked = {job_id: after for job_id, (_, after) in self._marked.items()}
        return dataclasses.replace(
            seen,
            free=np.maximum(free.free, 0),
            pending=tuple([marked.get(each.job.id, each) for each in seen.pending if each.job.id not in left]),
            unmanaged=(
                *seen.unmanaged,
                *(_make_unmanaged_job(pending, rules, victims) for pending, _ in left.values()),
            ),
            preemptors={each.job_id: format_preemption_classes(rules, each.preemptors) for each in endangered},
            checkpoints={each.job_id: each.checkpoint_s for each in endangered if each.checkpoint_s is not None},
            preemptions=tuple(search.offers),
            kill_wait_s=rules.kill_wait_s,
        )

    def _mark_may_preempt(self, pending: PendingJob) -> tuple[PendingJob, PendingJob]:
        """Return the job as read, and as observed."""
        before = self._marked.get(pending.job.id)
        if before is not None and before[0] is pending:
            return before
        return pending, dataclasses.replace(pending, may_preempt=True)


class _LeftJob(NamedTuple):
    """A job that is left to Slurm, and its expected start, if it fits after preemption."""

    pending: PendingJob
    expected: PreemptionPlan | None


@dataclass(slots=True)
class _PreemptorSearch:
    """The jobs to leave to Slurm, and the preemptions that the bridge offers for held jobs."""

    search: PreemptionSearch
    endangered: Mapping[int, _EndangeredJob]
    """The running jobs that Slurm may stop now, by job id."""
    rules: PreemptionRules
    now_s: int
    node_names: Sequence[str]
    options: PreemptionOptions | None
    """None if the bridge does not choose victims."""
    spared: Collection[int]
    offers: list[PreemptionOffer] = field(default_factory=list)
    _under_way: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        seen: Observation,
        rules: PreemptionRules,
        endangered: Sequence[_EndangeredJob],
        options: PreemptionOptions | None,
    ) -> _PreemptorSearch:
        """Return the search in an observation."""
        stoppable = [each for each in endangered if not each.is_exempt]
        stoppable.sort(key=lambda each: (each.stop.running.job.submit_s, each.job_id))
        order = rules.victim_order
        options = options if order is not None else None
        spared = {each.job_id for each in endangered if each.mode is None}
        return cls(
            PreemptionSearch(
                FreeAmounts(seen.cluster, seen.free),
                seen.limits or PendingJobLimitsAndUsage(),
                rules,
                order or VictimOrder(),
                lambda: [each.stop for each in stoppable],
            ),
            {each.job_id: each for each in stoppable},
            rules,
            seen.now_s,
            seen.cluster.node_names,
            options,
            spared if options is None else spared | options.spared,
        )

    def continue_preemptions(self, all_pending: Sequence[PendingJob]) -> list[PreemptionPlan]:
        """Offer what remains of the preemptions under way, and return these preemptions.

        The offers name only victims that Slurm may still stop for the job.
        """
        if self.options is None or not self.options.under_way:
            return []
        plans, index = list[PreemptionPlan](), {name: node for node, name in enumerate(self.node_names)}
        for pending in sorted(all_pending, key=_get_priority_sort_key):
            under_way = self.options.under_way.get(pending.job.id)
            if under_way is None or pending.hold is Hold.NONE or self.search.is_blocked_by_limit(pending.job):
                continue
            self._under_way.add(pending.job.id)
            if not all(name in index for name, _ in under_way.nodes):
                continue
            placement = tuple(sorted((index[name], units) for name, units in under_way.nodes))
            victims = self._list_remaining_victims(pending, under_way)
            plans.append(self.search.continue_preemption(pending.job, placement, victims))
            self._add_offer(pending, plans[-1])
        return plans

    def _list_remaining_victims(self, pending: PendingJob, under_way: PreemptionUnderWay) -> list[PreemptibleJob]:
        preemptor = self.rules.class_of(pending.job)
        found = [(victim, self.endangered.get(victim.job_id)) for victim in under_way.victims]
        return [
            running.stop
            for victim, running in found
            if running is not None
            and running.mode is not None
            and running.stop.running.start_s == victim.start_s
            and self.rules.may_preempt(preemptor, running.stop.preemption_class)
        ]

    def list_jobs_to_leave(self, able: Sequence[PendingJob], since_s: Mapping[int, int]) -> dict[int, _LeftJob]:
        """Return the jobs to leave to Slurm, by id. `since_s` are the times since when earlier ones have been left."""
        left = dict[int, _LeftJob]()
        for pending in able:
            if pending.job.id in self._under_way or pending.pinned or pending.job.ineligible is not None:
                continue
            if pending.hold in (Hold.USER, Hold.CLUSTER):
                continue
            if pending.awaits_hold and self.options is not None:  # the bridge chooses its victims once it is held
                continue

            is_held = pending.hold is not Hold.NONE
            stays = not is_held and pending.job.id in since_s
            if stays and not self.is_start_expected(pending, since_s):
                left[pending.job.id] = _LeftJob(pending, None)
                continue

            plan = self.search.plan_start(pending.job, is_held and self.options is not None, self.spared)
            if plan is not None and plan.is_chosen:
                self._add_offer(pending, plan)
            if stays or (plan is not None and plan.victims):
                left[pending.job.id] = _LeftJob(pending, plan)
        return left

    def is_start_expected(self, pending: PendingJob, since_s: Mapping[int, int]) -> bool:
        """Return whether Slurm probably starts a job that is left to it."""
        return not pending.refused and self.now_s - since_s.get(pending.job.id, self.now_s) <= WITHHELD_S

    def _add_offer(self, pending: PendingJob, plan: PreemptionPlan) -> None:
        stops = [self.endangered[each.running.job.id] for each in plan.victims]
        victims = tuple(Victim(each.job_id, each.stop.running.start_s, each.mode) for each in stops if each.mode)
        self.offers.append(PreemptionOffer(pending, plan.placement, victims, plan.free))


def _get_priority_sort_key(pending: PendingJob) -> tuple[int, int]:
    return -pending.job.tier, -pending.job.priority


def _list_endangered_jobs(
    seen: Observation, records: Sequence[SlurmJob], policy: SitePolicy, rules: PreemptionRules
) -> Iterator[_EndangeredJob]:
    """Yield the running and suspended jobs that Slurm may preempt, now or after their exempt time."""
    known, preemptors_of = slurm_job_ids.index_preemptible_jobs(records), dict[str, tuple[str, ...]]()
    for running in seen.running:
        job = known.get(running.job.id)
        if job is None:
            continue
        qos, partition = job.qos, job.partition
        name = rules.class_of_qos_or_partition(qos, partition)
        if name not in preemptors_of:
            preemptors_of[name] = rules.preempting_classes_of(name)
        if not preemptors_of[name]:
            continue

        grace_s, rank = rules.grace_s.get(name, 0), rules.ranks.get(name, 0)
        mode = _find_effective_preempt_mode(job, rules.mode_of(name))
        checkpoint_s = last_checkpoint_s(job.comment, running.start_s, seen.now_s)
        resumed_s = checkpoint_s if mode == "requeue" else None  # a cancelled job loses all its work
        share = count_occupied_nodes(running.job.request, running.placement, seen.cluster)
        price = stop_price_node_s(share, running.start_s, seen.now_s, resumed_s, grace_s)
        is_spared = grace_s or job.state != slurm_states.RUNNING or job.reservation or job.heterogeneous_id
        yield _EndangeredJob(
            PreemptibleJob(running, price, grace_s, rank, name),
            mode if mode in ("requeue", "cancel") and not is_spared else None,
            seen.now_s - running.start_s < policy.preempt_exempt_s(qos, partition),
            preemptors_of[name],
            checkpoint_s,
        )


def _find_effective_preempt_mode(job: SlurmJob, mode: PreemptMode) -> PreemptMode | None:
    """Return what Slurm does to a preempted job, or None if this is unknown.

    `slurm_job_preempt` cancels a job that `_job_requeue_op` refuses: without `Requeue`, or not a batch job.
    """
    if mode != "requeue":
        return mode
    requirements = (job.is_requeueable, job.is_batch_job)
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
