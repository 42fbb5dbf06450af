"""Define the values that the steps of a cycle pass on, each built once and complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cpsched.model import EndedJob, PendingReason
from cpsched_bridge.cycle_report import BridgeRole, JobsInBackoff
from cpsched_bridge.ports import Observation, PendingJob
from cpsched_bridge.store.ledger import ManagedJobEntry


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
