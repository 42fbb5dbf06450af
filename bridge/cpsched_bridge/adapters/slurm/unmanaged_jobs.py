"""Leave jobs to Slurm because of the site's policy, and compute the share of ended jobs that would have been left.

Jobs are left that depend on unreadable policy objects, or that only an operator can have permitted.

The accounting database does not record every request: task layouts, `--nodelist`, `--switches` and `--oversubscribe`
are missing. The share of ended jobs is therefore a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.errors import join_abbreviated
from cpsched.formatting import format_count, format_percent
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.slurm_text.accounts import UnreadablePolicyObject
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.site_policy import SitePolicyReading
from cpsched_bridge.adapters.shared.adapter_errors import UNREADABLE_FIELD_ERRORS, JobNotModelled
from cpsched_bridge.adapters.slurm.translation.gres_counts import gres_from_tres
from cpsched_bridge.adapters.slurm.translation.per_node_amounts import (
    EqualJobSplit,
    PossibleJobSplits,
    compute_allocated_per_node,
)
from cpsched_bridge.adapters.slurm.translation.slurm_jobs import (
    find_allowed_node_set,
    keep_placeable_splits,
    require_modelled_partition,
)
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import PartitionRules
from cpsched_bridge.adapters.slurm.translation.slurm_placed_jobs import has_run_and_ended_in_database
from cpsched_bridge.adapters.slurm.translation.unsupported_requests import require_supported_request
from cpsched_bridge.ports import Hold, PendingJob, ReadinessCheck, UnmanagedJob, UnusableObject

_MAX_QUOTED_CHARS = 80
"""Maximum length of a value quoted in a message."""


def list_unusable_policy_objects(reading: SitePolicyReading) -> list[UnusableObject]:
    """Return all unreadable objects of the policy."""
    return [_make_unusable_object(each) for each in reading.unreadable.list_objects()]


def _make_unusable_object(unreadable: UnreadablePolicyObject) -> UnusableObject:
    detail = ": ".join(filter(None, (unreadable.value, unreadable.rule)))
    return UnusableObject(unreadable.kind, unreadable.name, unreadable.field, "unreadable", detail[:_MAX_QUOTED_CHARS])


def find_jobs_of_unusable_policy(
    pending: Sequence[PendingJob], reading: SitePolicyReading
) -> dict[int, JobNotModelled]:
    """Return why jobs depend on an unusable association, QOS or partition, by job id."""
    if not list_unusable_policy_objects(reading):
        return {}
    faults = {}
    for each in pending:
        job = each.job
        unusable = reading.unreadable.find_object_of_job(job.user, job.account, job.queue, job.qos, reading.policy)
        if unusable is not None:
            detail = str(_make_unusable_object(unusable))
            faults[job.id] = JobNotModelled(f"{unusable.kind} {unusable.name}", detail)
    return faults


def find_jobs_above_own_limits(limits: PendingJobLimitsAndUsage) -> dict[int, JobNotModelled]:
    """Return why requests violate a limit per job, by job id.

    Slurm starts such a job if an operator has set the request, but does not show who has set it.
    """
    return {
        number: JobNotModelled("its request exceeds a limit per job", standing.barred or "")
        for number, standing in limits.standings.items()
        if standing.exceeds_own_limit
    }


def unmanage_jobs(
    pending: Sequence[PendingJob], faults: Mapping[int, JobNotModelled]
) -> tuple[list[PendingJob], list[UnmanagedJob]]:
    """Return the jobs without a fault, and the others as left to Slurm."""
    managed = [each for each in pending if each.job.id not in faults]
    left = [_make_unmanaged_job(each, faults[each.job.id]) for each in pending if each.job.id in faults]
    return managed, left


def _make_unmanaged_job(pending: PendingJob, fault: JobNotModelled) -> UnmanagedJob:
    return UnmanagedJob(
        pending.job.id,
        fault.reason,
        pending.label,
        pending.job.user,
        held_for_bridge=pending.waits_for_bridge,
        pinned=pending.pinned and pending.hold is Hold.NONE,
    )


MAX_LISTED_REASONS = 5
"""Maximum number of reasons that the check lists."""


@dataclass(slots=True)
class JobsAndNodeSeconds:
    """A number of jobs, and their node-seconds."""

    jobs: int = 0
    node_s: int = 0

    def add(self, job: SlurmJob) -> None:
        """Add an ended job."""
        self.jobs += 1
        self.node_s += max(1, job.num_nodes) * (job.end_time - job.start_time)

    def format_shares(self, total: JobsAndNodeSeconds) -> str:
        """Return the shares of jobs and node-hours as text."""
        hours = self.node_s / max(1, total.node_s)
        return f"{format_percent(self.jobs / total.jobs, 1)} of jobs, {format_percent(hours, 1)} of node-hours"


@dataclass(frozen=True, slots=True)
class UnmanagedShare:
    """All jobs that ran, and the jobs that the bridge would have left to Slurm."""

    total: JobsAndNodeSeconds = field(default_factory=JobsAndNodeSeconds)
    left: dict[str, JobsAndNodeSeconds] = field(default_factory=dict)

    @classmethod
    def of(
        cls, past: Iterable[SlurmJob], machine: SlurmNodeTable, partitions: Mapping[str, PartitionRules]
    ) -> UnmanagedShare:
        """Return the share for the jobs of the accounting database."""
        found = cls()
        for job in filter(has_run_and_ended_in_database, past):
            found.total.add(job)
            if (why := find_unmanaged_job_reason(job, machine, partitions)) is not None:
                found.left.setdefault(why, JobsAndNodeSeconds()).add(job)
        return found

    def check(self, days: float) -> ReadinessCheck:
        """Return the share as a line of `cpsched doctor`."""
        what = f"{format_count(self.total.jobs, 'job')} in the last {days:g} days"
        by_hours = sorted(self.left.items(), key=lambda each: (-each[1].node_s, each[0]))
        whys = [f"{why} ({amount.format_shares(self.total)})" for why, amount in by_hours]
        left = self.left.values()
        every = JobsAndNodeSeconds(sum(each.jobs for each in left), sum(each.node_s for each in left))
        return ReadinessCheck(
            "accounting share",
            not self.left,
            f"at least {every.format_shares(self.total)}, among {what}: "
            f"{join_abbreviated(whys, MAX_LISTED_REASONS, '; ')}"
            if self.left
            else f"none known among {what}",
            "no action needed: Slurm starts these jobs. The page on managed jobs lists the reasons",
            required=False,
            mode="control",
        )


def find_unmanaged_job_reason(
    job: SlurmJob, machine: SlurmNodeTable, partitions: Mapping[str, PartitionRules]
) -> str | None:
    """Return why the bridge would have left an ended job to Slurm, or None if unknown."""
    partition, nodes = partitions.get(job.partition), job.num_nodes
    request = job._replace(ntasks=nodes, requested_tres=job.allocated_tres)
    try:
        require_supported_request(request)
        if partition is None:
            raise JobNotModelled(f"unknown partition {job.partition}")
        require_modelled_partition(partition, gres_from_tres(job.allocated_tres))
        mask = machine.rows[find_allowed_node_set(request, machine, partition, ())]
        share = EqualJobSplit(nodes, compute_allocated_per_node(request, machine, nodes), True)
        keep_placeable_splits(PossibleJobSplits(share, None), machine, mask, partition)
    except JobNotModelled as error:
        return str(error.reason.arguments[-1])
    except UNREADABLE_FIELD_ERRORS:
        return "cannot be read"
    return None
