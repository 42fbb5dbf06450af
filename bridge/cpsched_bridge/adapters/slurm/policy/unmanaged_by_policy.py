"""Leave to Slurm the jobs that depend on unreadable policy objects, or that only an operator can have permitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.slurm_text.accounts import UnreadablePolicyObject
from cpsched.slurm_text.site_policy import SitePolicyReading
from cpsched_bridge.adapters.shared.job_not_modelled import JobNotModelled
from cpsched_bridge.ports import Hold, PendingJob, UnmanagedJob, UnusableObject

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
