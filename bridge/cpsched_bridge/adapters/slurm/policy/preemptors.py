"""Leave jobs to Slurm that can start only by preemption, because only Slurm preempts.

Dispatchers see only idle capacity. A job that may preempt is left to Slurm if it does not fit into idle capacity, but
would fit if Slurm stopped jobs for it. It stays with Slurm until it runs, and the capacity that it will take is not
available to other jobs. The bridge does not hold a job that may preempt, because Slurm may already be stopping jobs for
it.
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
from cpsched.site.preemption import PreemptionRules
from cpsched_bridge.adapters.slurm.policy.policy_parsing import SitePolicySnapshot
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.ports import Hold, Observation, PendingJob, UnmanagedJob

WITHHELD_S = 300
"""How long capacity is kept for a job that Slurm starts by preemption, in seconds.

This covers grace times and a cycle of Slurm's backfill. After that, Slurm probably does not start the job at all.
"""


@dataclass(slots=True)
class PreemptorsLeftToSlurm:
    """The jobs left to Slurm because they may preempt, and since when."""

    _since_s: dict[int, int] = field(default_factory=dict)

    def leave(self, seen: Observation, records: Sequence[Record], policy_snapshot: SitePolicySnapshot) -> Observation:
        """Return the observation with these jobs left to Slurm and without the capacity that they will take."""
        rules = policy_snapshot.preemption
        if rules is None:
            return seen
        victims = {name: rules.victims_of(name) for name in {rules.class_of(each.job) for each in seen.pending}}
        found = _PreemptorSearch(
            seen, rules, victims, _find_preemptible_jobs(seen, records, policy_snapshot, rules), self._since_s
        )
        left = {each.job.id: each for each in found.search()}
        self._since_s = {number: self._since_s.get(number, seen.now_s) for number in left}
        endangered = list(_list_preemptor_classes(seen, records, rules))
        trial = FreeAmounts(seen.cluster, seen.free)
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
        )


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
    placements: dict[int, Placement] = field(default_factory=dict)
    """Placements of the jobs to leave to Slurm, by job number."""

    def search(self) -> Iterator[PendingJob]:
        """Yield the jobs to leave, by tier and priority. Each takes the capacity that it needs from the later ones."""
        trial, given = FreeAmounts(self.seen.cluster, self.seen.free), set[int]()
        order = sorted(self.seen.pending, key=lambda each: (-each.job.tier, -each.job.priority))
        for each in order:
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
                stopped = [job for name in victims for job in self.preemptible.get(name, ()) if job.job.id not in given]
                without = trial.copy()
                for job in stopped:
                    without.release(job.job.request, job.placement)
                if placement := without.place(each.job.request):
                    nodes = {node for node, _ in placement}
                    given |= {job.job.id for job in stopped if not nodes.isdisjoint(node for node, _ in job.placement)}
            if placement:
                self.placements[each.job.id] = placement
                trial.take(each.job.request, placement)
            if placement or stays:
                yield each

    def _is_limited(self, pending: PendingJob) -> bool:
        """Return whether one of the site's limits blocks the job."""
        limits = self.seen.limits
        standing = limits.standings.get(pending.job.id) if limits is not None else None
        if limits is None or standing is None:
            return False
        return bool(standing.barred or first_exceeded_limit(standing, limits.used))


def _index_running_records(records: Sequence[Record]) -> dict[int, Record]:
    return {slurm_job_ids.job_id_of_record(record): record for record in records if record["state"] == "RUNNING"}


def _find_preemptible_jobs(
    seen: Observation, records: Sequence[Record], policy_snapshot: SitePolicySnapshot, rules: PreemptionRules
) -> dict[str, list[RunningJob]]:
    """Return the running jobs whose exempt time has passed, by class."""
    known, found = _index_running_records(records), dict[str, list[RunningJob]]()
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
    """Yield the running jobs that Slurm may preempt: job, last checkpoint, and the classes whose jobs may stop it."""
    known, classes = _index_running_records(records), dict[str, tuple[str, ...]]()
    for running in seen.running:
        if (record := known.get(running.job.id)) is None:
            continue
        name = rules.class_named(record["qos"] or "", record["partition"] or "")
        if name not in classes:
            classes[name] = rules.preemptors_of(name)
        if classes[name]:
            yield running, last_checkpoint_s(record["comment"] or "", running.start_s, seen.now_s), classes[name]


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
