"""Track the outcomes of starts: running jobs, latencies, failures and suspects.

A failed start indicates a broken cluster only if there is no more specific explanation. Three explanations are more
specific: the cluster's reason concerns the job or its group, other jobs start first, or the chosen nodes are not free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from cpsched.feasibility import amounts_by_node
from cpsched.model import Placement
from cpsched_bridge.backoff_groups import BackoffGroupKey, make_equivalence_class_key
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.ports import Hold, Holder, Observation, PendingJob
from cpsched_bridge.store.ledger import LedgerState, LedgerTransition

Suspect = tuple[str, str]
"""A possible cause of a failure, as a kind (one of `CAUSE_KINDS`) and a name."""

CAUSE_KINDS = ("user", "account", "partition", "QOS", "shape", "node")
START_FAILED_REASON = "StartFailed"
"""Reason for a failed start if the cluster gives no reason. Slurm does not use this reason."""
_EVENT_KIND_BY_STATE = {LedgerState.ROLLING_BACK: "start_failed", LedgerState.GONE: "job_gone"}
"""Event kind of a transition, by the job's new state."""
_SENT_STATES = frozenset({LedgerState.STARTING, LedgerState.ROLLING_BACK})
"""States of a job whose start was sent. Any other job that disappears was deleted, or ran after its release."""


class FailureCause(StrEnum):
    """The cause of a failed start."""

    LIMIT = "limit"
    """The cluster names a limit on running jobs. Each end of a job in the group permits another start."""
    CLUSTER = "cluster"
    """The cluster names another reason that concerns the job or its group."""
    OWNER = "owner"
    """The job's owner held it after the start."""
    PRECEDENCE = "precedence"
    """The cluster starts other jobs first, or the chosen nodes are not free. Any job could fail this way."""
    UNKNOWN = "unknown"
    """There is no more specific explanation than a broken cluster."""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """A failed start, after which the job is pending again.

    - `group`: the group that backs off.
    - `suspects`: possible causes of a failure without a known cause, such as the job's user, its nodes, and the users
      of those nodes.
    """

    pending: PendingJob
    cause: FailureCause
    group: BackoffGroupKey
    reason: str = START_FAILED_REASON
    suspects: frozenset[Suspect] = frozenset()


@dataclass(frozen=True, slots=True)
class ObservedStartOutcomes:
    """The outcomes of starts in one observation."""

    began: dict[int, str] = field(default_factory=dict)
    """Users of the jobs whose starts succeeded, by job id. The jobs run or have ended."""
    failed: tuple[StartFailure, ...] = ()


@dataclass(slots=True)
class StartOutcomeTracker:
    """A tracker of starts, from the decision until the job runs or the start fails."""

    _decided_at_s: dict[int, float] = field(default_factory=dict)
    """Monotonic time of the decision to start each job, by job id."""
    refused: Sequence[LedgerTransition] = ()
    """Transitions of the jobs whose starts the cluster refused, from the last cycle that sent starts."""

    def record_decided_starts(self, job_ids: Iterable[int], now_s: float) -> None:
        """Record that the start of these jobs was decided at monotonic time `now_s`."""
        self._decided_at_s.update((id, now_s) for id in job_ids)

    def report_transitions(
        self, transitions: Sequence[LedgerTransition], now_s: float, recorder: CycleRecorder
    ) -> None:
        """Report the latencies and events of transitions seen at monotonic time `now_s`."""
        for transition in transitions:
            entry, before = transition.entry, transition.before
            decided_at_s = self._decided_at_s.pop(entry.job_id, None)  # also if the start was refused immediately
            ran = before is LedgerState.STARTING and entry.state in (LedgerState.RUNNING, LedgerState.ENDED)
            if ran and decided_at_s is not None:
                recorder.latencies_s.append(now_s - decided_at_s)
            if ran and entry.state is LedgerState.RUNNING and transition.event != "as_decided":
                recorder.add_event("started_elsewhere", entry.why, entry.job_id)
            if transition.event == "still_managed":
                recorder.add_event("still_managed", entry.why, entry.job_id)
            newly_unmanaged = transition.event == "unmanaged" and before is not LedgerState.RELEASING
            backed_off = (
                transition.cluster_reason is not None and entry.state is LedgerState.ROLLING_BACK
            )  # the group is reported instead
            gone_quietly = entry.state is LedgerState.GONE and before not in _SENT_STATES
            if (entry.state in _EVENT_KIND_BY_STATE and not backed_off and not gone_quietly) or newly_unmanaged:
                recorder.add_event(_EVENT_KIND_BY_STATE.get(entry.state, "unmanaged"), entry.why, entry.job_id)

    def classify_outcomes(self, transitions: Sequence[LedgerTransition], seen: Observation) -> ObservedStartOutcomes:
        """Return the outcomes of starts, with refusals since the previous observation.

        A start also counts as failed if the job's owner has since held the job. Jobs that are gone or held by an
        administrator do not count as failed.
        """
        users = {each.job.id: each.job.user for each in seen.ended}
        users |= {each.job.id: each.job.user for each in seen.running}
        began = {
            each.entry.job_id: users.get(each.entry.job_id, "")
            for each in transitions
            if each.before is LedgerState.STARTING and each.entry.state in (LedgerState.RUNNING, LedgerState.ENDED)
        }
        pending = {each.job.id: each for each in seen.pending}
        steps = [(pending.get(each.entry.job_id), each) for each in (*transitions, *self.refused)]
        failures = [find_start_failure(job, step, seen) for job, step in steps if job is not None]
        self.refused = ()
        return ObservedStartOutcomes(began, tuple(each for each in failures if each is not None))


def find_start_failure(pending: PendingJob, transition: LedgerTransition, seen: Observation) -> StartFailure | None:
    """Return the failed start of a pending job, or None if no start failed.

    `transition` is what the cluster's reply or the observation changed in the ledger.
    """
    own_group, equivalence_class = make_job_backoff_key(pending), make_equivalence_class_key(pending.job)
    suspects = frozenset(zip(CAUSE_KINDS, equivalence_class.name, strict=False))
    if transition.entry.cause == "refused":
        return StartFailure(pending, FailureCause.UNKNOWN, equivalence_class, suspects=suspects)
    if (why := transition.cluster_reason) is not None:
        cause = FailureCause.LIMIT if why.clears_on_end else FailureCause.CLUSTER
        return StartFailure(pending, cause, why.scope, why.reason)
    if transition.before is not LedgerState.STARTING:
        return None
    if pending.hold is Hold.USER and pending.holder is Holder.OWNER:
        return StartFailure(pending, FailureCause.OWNER, own_group)
    if not transition.failed:
        return None
    index = {name: node for node, name in enumerate(seen.cluster.node_names)}
    nodes = {index[name]: units for name, units in transition.entry.nodes if name in index}
    are_nodes_known = len(nodes) == len(transition.entry.nodes)
    if pending.lower_priority or not are_nodes_known or not _are_nodes_free(pending, tuple(nodes.items()), seen):
        return StartFailure(pending, FailureCause.PRECEDENCE, own_group)
    names = {("node", name) for name, _ in transition.entry.nodes}
    neighbors = {("user", each.job.user) for each in seen.running if any(node in nodes for node, _ in each.placement)}
    return StartFailure(pending, FailureCause.UNKNOWN, equivalence_class, suspects=suspects | names | neighbors)


def make_job_backoff_key(pending: PendingJob) -> BackoffGroupKey:
    """Return the backoff key that covers only this job."""
    return pending.groups[0] if pending.groups else BackoffGroupKey("job", (str(pending.job.id),))


def _are_nodes_free(pending: PendingJob, placement: Placement, seen: Observation) -> bool:
    used = amounts_by_node(pending.job.request, placement, seen.cluster.capacity)
    return all((seen.free[node] >= amounts).all() for node, amounts in used.items())
