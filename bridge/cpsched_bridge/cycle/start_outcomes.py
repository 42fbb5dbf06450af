"""Track the outcomes of starts: running jobs, latencies, failures and suspects.

A failed start indicates a broken cluster only if there is no more specific explanation. Three explanations are more
specific: the cluster's reason concerns the job or its group, other jobs start first, or the chosen nodes are not free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cpsched.feasibility import amounts_by_node
from cpsched.model import Placement
from cpsched_bridge.backoff_groups import BackoffGroupKey, make_equivalence_class_key
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.ports import Hold, Holder, Observation, PendingJob
from cpsched_bridge.store.ledger import LedgerState, LedgerTransition, ManagedJobEntry

Suspect = tuple[str, str]
"""A possible cause of a failure, as a kind (one of `CAUSE_KINDS`) and a name."""

CAUSE_KINDS = ("user", "account", "partition", "QOS", "shape", "node")
START_FAILED_REASON = "StartFailed"
"""Reason for a failed start if the cluster gives no reason. Slurm does not use this reason."""
_EVENT_KIND_BY_STATE = {LedgerState.ROLLING_BACK: "start_failed", LedgerState.GONE: "job_gone"}
"""Event kind of a transition, by the job's new state."""
_SENT_STATES = frozenset({LedgerState.STARTING, LedgerState.ROLLING_BACK})
"""States of a job whose start was sent. Any other job that disappears was deleted, or ran after its release."""


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A failed start, after which the job is pending again."""

    pending: PendingJob
    key: BackoffGroupKey
    """The group that backs off."""
    reason: str = START_FAILED_REASON
    is_limit: bool = False
    """Whether each end of a job in the group permits another start."""
    explained: bool = True
    """Whether the failure has an explanation other than a broken cluster."""
    benign: bool = False
    """Whether any job could fail this way, because other jobs start first or the nodes are not free."""
    suspects: frozenset[Suspect] = frozenset()
    """Possible causes of an unexplained failure, such as the job's user, its nodes, and the users of those nodes."""


@dataclass(frozen=True, slots=True)
class ObservedStartOutcomes:
    """The outcomes of starts in one observation."""

    began: dict[int, str] = field(default_factory=dict)
    """Users of the jobs whose starts succeeded, by job id. The jobs run or have ended."""
    failed: tuple[FailedStart, ...] = ()


@dataclass(slots=True)
class StartOutcomeTracker:
    """A tracker of starts, from the decision until the job runs or the start fails."""

    _decided_at_s: dict[int, float] = field(default_factory=dict)
    """Monotonic time of the decision to start each job, by job id."""
    refused: Sequence[int] = ()
    """Ids of jobs whose starts the cluster refused, from the last cycle that sent starts."""

    def record_decided_starts(self, job_ids: Iterable[int], now_s: float) -> None:
        """Record that the start of these jobs was decided at monotonic time `now_s`."""
        self._decided_at_s.update((id, now_s) for id in job_ids)

    def report_transitions(self, transitions: Sequence[LedgerTransition], now_s: float, report: CycleReport) -> None:
        """Report the latencies and events of transitions seen at monotonic time `now_s`."""
        for transition in transitions:
            entry, before = transition.entry, transition.before
            decided_at_s = self._decided_at_s.pop(entry.job_id, None)  # also if the start was refused immediately
            ran = before is LedgerState.STARTING and entry.state in (LedgerState.RUNNING, LedgerState.ENDED)
            if ran and decided_at_s is not None:
                report.latencies_s.append(now_s - decided_at_s)
            if ran and entry.state is LedgerState.RUNNING and transition.event != "as_decided":
                report.add_event("started_elsewhere", entry.why, entry.job_id)
            if transition.event == "kept_on":
                report.add_event("not_left", entry.why, entry.job_id)
            newly_left = transition.event == "left" and before is not LedgerState.HANDING_BACK
            backed_off = (
                transition.obstacle is not None and entry.state is LedgerState.ROLLING_BACK
            )  # the group is reported instead
            gone_quietly = entry.state is LedgerState.GONE and before not in _SENT_STATES
            if (entry.state in _EVENT_KIND_BY_STATE and not backed_off and not gone_quietly) or newly_left:
                report.add_event(_EVENT_KIND_BY_STATE.get(entry.state, "left_to_cluster"), entry.why, entry.job_id)

    def classify_outcomes(self, transitions: Sequence[LedgerTransition], seen: Observation) -> ObservedStartOutcomes:
        """Return the outcomes of starts, with refusals since the previous observation.

        A start also counts as failed if the job's owner has since held the job. Jobs that are gone or held by an
        administrator do not count as failed.
        """
        users = {each.job.id: each.job.user for each in seen.ended}
        users |= {each.job.id: each.job.user for each in seen.running}
        pending = {each.job.id: each for each in seen.pending}
        began: dict[int, str] = {}
        limited, failed, taken_back = [], [], []
        for transition in transitions:
            entry, each = transition.entry, pending.get(transition.entry.job_id)
            if transition.before is LedgerState.STARTING and entry.state in (LedgerState.RUNNING, LedgerState.ENDED):
                began[entry.job_id] = users.get(entry.job_id, "")
            if each is None:
                continue
            if transition.obstacle is not None:
                obstacle = transition.obstacle
                limited.append(FailedStart(each, obstacle.scope, obstacle.reason, obstacle.clears_on_end))
            if transition.before is LedgerState.STARTING and transition.failed:
                failed.append(_make_failed_start(each, entry, seen))
            if transition.before is LedgerState.STARTING and each.hold is Hold.USER and each.holder is Holder.OWNER:
                taken_back.append(FailedStart(each, make_job_backoff_key(each)))
        refused = [_make_unexplained_failure(pending[id]) for id in sorted(self.refused) if id in pending]
        self.refused = ()
        return ObservedStartOutcomes(began, (*limited, *failed, *refused, *taken_back))


def make_job_backoff_key(pending: PendingJob) -> BackoffGroupKey:
    """Return the backoff key that covers only this job."""
    return pending.groups[0] if pending.groups else BackoffGroupKey("job", (str(pending.job.id),))


def _make_failed_start(pending: PendingJob, entry: ManagedJobEntry, seen: Observation) -> FailedStart:
    index = {name: node for node, name in enumerate(seen.cluster.node_names)}
    nodes = {index[name]: units for name, units in entry.nodes if name in index}
    if (
        pending.lower_priority
        or len(nodes) < len(entry.nodes)
        or not _are_nodes_free(pending, tuple(nodes.items()), seen)
    ):
        return FailedStart(pending, make_job_backoff_key(pending), benign=True)
    names = {("node", name) for name, _ in entry.nodes}
    neighbors = {("user", each.job.user) for each in seen.running if any(node in nodes for node, _ in each.placement)}
    return _make_unexplained_failure(pending, names | neighbors)


def _make_unexplained_failure(pending: PendingJob, others: Iterable[Suspect] = ()) -> FailedStart:
    key = make_equivalence_class_key(pending.job)
    suspects = frozenset((*zip(CAUSE_KINDS, key.name, strict=False), *others))
    return FailedStart(pending, key, explained=False, suspects=suspects)


def _are_nodes_free(pending: PendingJob, placement: Placement, seen: Observation) -> bool:
    used = amounts_by_node(pending.job.request, placement, seen.cluster.capacity)
    return all((seen.free[node] >= amounts).all() for node, amounts in used.items())
