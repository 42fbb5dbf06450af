"""Define the values that the steps of a cycle pass on, each built once and complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from cpsched.model import Decision, EndedJob, Job, PendingReason, Placement, Snapshot
from cpsched_bridge.cycle_report import JobsInBackoff, Mode, PriorityBoostReport
from cpsched_bridge.ports import Lease, Observation, PendingJob, ReadinessCheck
from cpsched_bridge.store.ledger import ManagedJobEntry


@dataclass(frozen=True, slots=True)
class BridgeRole:
    """What the bridge may do in a cycle."""

    mode: Mode
    other_leader: Lease | None = None
    """The lease of another bridge that controls this cluster."""


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


@dataclass(frozen=True, slots=True)
class JobChanges:
    """The jobs that started or ended, each reported once."""

    started: Sequence[tuple[Job, int]] = ()
    ended: Sequence[EndedJob] = ()
    past: Sequence[EndedJob] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Everything that a decision depends on, except the policy."""

    observation: Observation
    role: BridgeRole
    backoff: JobsInBackoff
    entries: Mapping[int, ManagedJobEntry]
    """The ledger's entries before the pins of failed starts were removed, by job id."""


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """The decision of a cycle, or how far it got; `CycleReport` documents the fields."""

    snapshot: Snapshot | None = None
    decision: Decision | None = None
    starts: Mapping[int, Placement] = field(default_factory=dict)
    limited: Mapping[int, str] = field(default_factory=dict)
    recorded: Any = None
    memory: Any = None
    replayable: bool = True
    fallback: bool = False
    policy_failure: str = ""
    waits_for: str = ""

    def list_waiting_jobs(self) -> list[Job]:
        """Return the jobs for which a decision was made."""
        return [] if self.snapshot is None else list(self.snapshot.queued_jobs())


@dataclass(frozen=True, slots=True, eq=False)
class CycleValues:
    """What the steps of a cycle returned before it ended or failed; `CycleReport` documents the fields."""

    role: BridgeRole
    paused: str
    observation: Observation | None
    changes: JobChanges
    backoff: JobsInBackoff
    decided: Decided
    boosts: PriorityBoostReport | None
    checks: Sequence[ReadinessCheck] | None
    overdue: int
    failing_users: int
