"""Leave to Slurm the jobs that depend on unreadable policy objects, or that only an operator can have permitted."""

from __future__ import annotations

import dataclasses

from cpsched.slurm_text.accounts import UnreadablePolicyObject
from cpsched.slurm_text.site_policy import SitePolicyReading
from cpsched_bridge.adapters.shared.job_not_modelled import JobNotModelled
from cpsched_bridge.ports import Hold, Observation, PendingJob, UnmanagedJob, UnusableObject

_MAX_QUOTED_CHARS = 80
"""Maximum length of a value quoted in a message."""


def list_unusable_policy_objects(reading: SitePolicyReading) -> list[UnusableObject]:
    """Return all unreadable objects of the policy."""
    return [_make_unusable_object(each) for each in reading.unreadable.list_objects()]


def _make_unusable_object(unreadable: UnreadablePolicyObject) -> UnusableObject:
    detail = ": ".join(filter(None, (unreadable.value, unreadable.rule)))
    return UnusableObject(unreadable.kind, unreadable.name, unreadable.field, "unreadable", detail[:_MAX_QUOTED_CHARS])


def unmanage_jobs_of_unusable_policy(seen: Observation, reading: SitePolicyReading) -> Observation:
    """Leave to Slurm the jobs that depend on unusable policy objects.

    The objects are associations, QOS and partitions. The returned observation lists them.
    """
    unusable = list_unusable_policy_objects(reading)
    if not unusable:
        return seen
    why = {
        each.job.id: reading.unreadable.find_object_of_job(
            each.job.user, each.job.account, each.job.queue, each.job.qos, reading.policy
        )
        for each in seen.pending
    }
    return dataclasses.replace(
        seen,
        pending=tuple(each for each in seen.pending if why[each.job.id] is None),
        unmanaged=(
            *seen.unmanaged,
            *(
                _make_unmanaged_job(each, f"{found.kind} {found.name}", str(_make_unusable_object(found)))
                for each in seen.pending
                if (found := why[each.job.id])
            ),
        ),
        unusable=(*seen.unusable, *unusable),
    )


def unmanage_jobs_above_own_limits(seen: Observation) -> Observation:
    """Leave to Slurm the jobs whose request violates a limit per job.

    Slurm starts such a job if an operator has set the request, but does not show who has set it.
    """
    assert seen.limits is not None
    above = {
        number: standing.barred or ""
        for number, standing in seen.limits.standings.items()
        if standing.exceeds_own_limit
    }
    if not above:
        return seen
    what = "its request exceeds a limit per job"
    return dataclasses.replace(
        seen,
        pending=tuple(each for each in seen.pending if each.job.id not in above),
        unmanaged=(
            *seen.unmanaged,
            *(_make_unmanaged_job(each, what, above[each.job.id]) for each in seen.pending if each.job.id in above),
        ),
    )


def _make_unmanaged_job(pending: PendingJob, what: str, full: str) -> UnmanagedJob:
    return UnmanagedJob(
        pending.job.id,
        JobNotModelled(what, full).reason,
        pending.label,
        pending.job.user,
        held_for_bridge=pending.waits_for_bridge,
        pinned=pending.pinned and pending.hold is Hold.NONE,
    )
