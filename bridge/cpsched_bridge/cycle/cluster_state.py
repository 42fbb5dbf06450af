"""Define the cluster's state as a cycle reads it, and build the cluster state for a decision.

The observation describes the cluster, and the ledger describes the bridge's jobs. Together, they determine which jobs
may start and which nodes are reserved for starting jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np

from cpsched.feasibility import amounts_by_node
from cpsched.model import (
    Cluster,
    ClusterState,
    EndedJob,
    IntArray,
    PendingCode,
    PendingReason,
    RunningJob,
    to_pending_reason,
)
from cpsched_bridge.cycle_report import NO_BACKOFF, BridgeRole, Decided, JobsInBackoff, UnscheduledReason
from cpsched_bridge.ports import Hold, Observation, PendingJob
from cpsched_bridge.store.journal_reader import BACKOFF_KIND, UnscheduledJob
from cpsched_bridge.store.ledger import MANAGED_STATES, LedgerState, ManagedJobEntry
from cpsched_bridge.telemetry.reason_kinds import UNMANAGED, format_reason

T = TypeVar("T")

_UNMANAGED_BY_HOLD = {
    Hold.NONE: "not held: the cluster's own scheduler may start it",
    Hold.PLUGIN: "held for the bridge, which has not adopted it yet",
    Hold.ADMIN: "held by an administrator, not by the bridge",
}
"""Why the bridge does not schedule a job that is missing from the ledger, by kind of hold."""
_HELD_BY_CLUSTER = "held by the cluster until the job is released or changed"


@dataclass(frozen=True, slots=True)
class SelectedPreemptions:
    """The jobs whose starts the bridge makes possible by preemption."""

    adopted: Mapping[int, PendingJob] = field(default_factory=dict)
    """Jobs of new preemptions, by job id, which the observation leaves to the cluster."""
    reasons: Mapping[int, PendingReason] = field(default_factory=dict)
    """Why each of these jobs and of the held jobs of earlier preemptions waits, by job id."""


class ClusterReading(NamedTuple):
    """The cluster's state as read, and the ended jobs that were not processed before."""

    observation: Observation
    ended: tuple[EndedJob, ...]
    """The observation's ended jobs, and in the first cycle those that ended while no bridge was running."""
    past: Sequence[EndedJob] = ()
    """Jobs that ended before the bridge started."""

    def to_observation(self, preemptions: SelectedPreemptions) -> Observation:
        """Return the complete observation of a cycle.

        Jobs of selected preemptions are no longer left to the cluster, but are ineligible, so that no decision starts
        them. They count towards the site's limits.
        """
        seen, reasons = self.observation, preemptions.reasons
        if not reasons and len(self.ended) == len(seen.ended):
            return seen
        return replace(
            seen,
            ended=self.ended,
            pending=tuple(
                _mark_ineligible(each, reasons[each.job.id]) if each.job.id in reasons else each
                for each in (*seen.pending, *preemptions.adopted.values())
            ),
            unmanaged=tuple(each for each in seen.unmanaged if each.job_id not in preemptions.adopted),
            limits=seen.limits.add_job_usage(list(reasons)) if seen.limits is not None else None,
        )


def _mark_ineligible(pending: PendingJob, reason: PendingReason) -> PendingJob:
    return replace(pending, job=replace(pending.job, ineligible=reason))


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Everything that a decision depends on, except the policy."""

    observation: Observation
    role: BridgeRole
    backoff: JobsInBackoff
    entries: Mapping[int, ManagedJobEntry]
    """The ledger's entries before the pins of failed starts were removed, by job id."""


def build_cluster_state(
    seen: Observation, entries: Mapping[int, ManagedJobEntry], controlling: bool, backoff: JobsInBackoff = NO_BACKOFF
) -> ClusterState:
    """Return the cluster state for an observation and the ledger's `entries`.

    - In control mode, the queue contains the jobs that may start. Starting jobs (released, not yet running) count as
      running on the nodes of their starts.
    - In other modes, the queue contains the jobs that the bridge would manage in control mode.
    - Jobs in backoff are omitted. Those that may be tried or wait for resources are last, without priority and as if
      submitted now.
    - For any observation, no job occurs twice and free amounts are never negative.
    """
    may_start = _is_managed_and_held if controlling else _may_be_planned
    jobs = [each.job for each in seen.pending if each.job.id not in backoff.reasons and may_start(each, entries)]
    tried = [replace(job, submit_s=seen.now_s, priority=0, tier=0) for job in jobs if job.id in backoff.last]
    queue = (*(job for job in jobs if job.id not in backoff.last), *tried)
    free, coming = _reserve_for_starting_jobs(seen, entries) if controlling else (seen.free, [])
    running = _drop_duplicate_ids((*seen.running, *coming), lambda running: running.job.id)
    busy = {each.job.id for each in running}
    waiting = _drop_duplicate_ids((job for job in queue if job.id not in busy), lambda job: job.id)
    return ClusterState(seen.now_s, seen.cluster, np.maximum(free, 0), waiting, running)


def _drop_duplicate_ids(jobs: Iterable[T], id_of: Callable[[T], int]) -> tuple[T, ...]:
    """Return `jobs` in order without duplicates, which could start a job twice."""
    first: dict[int, T] = {}
    for job in jobs:
        first.setdefault(id_of(job), job)
    return tuple(first.values())


def _is_managed_and_held(pending: PendingJob, entries: Mapping[int, ManagedJobEntry]) -> bool:
    """Return whether both the ledger and the cluster show the job as held."""
    entry = entries.get(pending.job.id)
    return entry is not None and entry.state is LedgerState.HELD and pending.hold in (Hold.PLUGIN, Hold.ADMIN)


def _may_be_planned(pending: PendingJob, entries: Mapping[int, ManagedJobEntry]) -> bool:
    entry = entries.get(pending.job.id)
    ours = entry is not None and entry.state in MANAGED_STATES
    return pending.hold in (Hold.NONE, Hold.PLUGIN) or (pending.hold is Hold.ADMIN and ours)


def _reserve_for_starting_jobs(
    seen: Observation, entries: Mapping[int, ManagedJobEntry]
) -> tuple[IntArray, list[RunningJob]]:
    """Return the free amounts after reservations, and the starting jobs.

    A job whose nodes are gone or taken is omitted because its start will fail.
    """
    free = seen.free.copy()
    coming = []
    index = _index_nodes_by_name(seen.cluster)
    for pending in seen.pending:
        entry = entries.get(pending.job.id)
        if entry is None or entry.state is not LedgerState.STARTING:
            continue
        if any(name not in index for name, _ in entry.nodes):
            continue
        placement = tuple(sorted((index[name], units) for name, units in entry.nodes))
        used = amounts_by_node(pending.job.request, placement, seen.cluster.capacity)
        if all((free[node] >= amounts).all() for node, amounts in used.items()):
            for node, amounts in used.items():
                free[node] -= amounts
            coming.append(RunningJob(pending.job, entry.since_s, placement))
    return free, coming


def _index_nodes_by_name(cluster: Cluster) -> dict[str, int]:
    return {name: node for node, name in enumerate(cluster.node_names)}


def explain_unscheduled_jobs(
    observation: Observation | None,
    decided: Decided,
    entries: Mapping[int, ManagedJobEntry],
    backoff: JobsInBackoff = NO_BACKOFF,
) -> dict[int, UnscheduledReason]:
    """Return why the bridge does not schedule each pending job without a decision, by job id."""
    if observation is None:
        return {}
    reasons = {left.job_id: UnscheduledReason(UNMANAGED, left.reason) for left in observation.unmanaged}
    waiting = {job.id for job in decided.waiting}
    for pending in observation.pending:
        id = pending.job.id
        if id not in waiting:
            limit = decided.limited.get(id)
            kind, reason = _explain_unscheduled(pending, entries.get(id), limit, backoff.reasons.get(id))
            reasons[id] = UnscheduledReason(kind, to_pending_reason(reason))
    return reasons


def _explain_unscheduled(
    pending: PendingJob, entry: ManagedJobEntry | None, limit: str | None, backoff: PendingReason | None
) -> tuple[str, PendingReason | str]:
    if pending.hold is Hold.USER:
        return "held", pending.holder_reason
    if pending.hold is Hold.CLUSTER:
        if pending.cluster_reason is None:
            return "held", _HELD_BY_CLUSTER
        return "held", PendingReason(PendingCode.CLUSTER, (_HELD_BY_CLUSTER, pending.cluster_reason.reason))
    if pending.job.ineligible is not None:
        return "ineligible", pending.job.ineligible
    if backoff is not None:
        return BACKOFF_KIND, backoff
    if limit is not None:
        return "ineligible", limit
    if entry is None:
        return "held" if pending.hold is Hold.ADMIN else "free", _UNMANAGED_BY_HOLD[pending.hold]
    return entry.state.value, entry.unmanaged_text or entry.why


def list_unscheduled_jobs(seen: Observation, reasons: Mapping[int, UnscheduledReason]) -> list[UnscheduledJob]:
    """Return the jobs that have a reason from `explain_unscheduled_jobs`, as the journal records them."""
    pending = [(each.job.id, each.label, each.job.user) for each in seen.pending if each.job.id in reasons]
    left = [(each.job_id, each.label, each.user) for each in seen.unmanaged]
    return [
        UnscheduledJob(id, reasons[id].kind, format_reason(reasons[id].reason), label, user)
        for id, label, user in (*left, *pending)
    ]
