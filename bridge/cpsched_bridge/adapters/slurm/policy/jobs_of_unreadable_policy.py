"""Leave to Slurm the jobs that depend on unreadable policy objects."""

from __future__ import annotations

import dataclasses

from cpsched_bridge.adapters.shared.job_not_modelled import JobNotModelled
from cpsched_bridge.adapters.slurm.policy.site_policy_parsing import SitePolicySnapshot
from cpsched_bridge.ports import Hold, Observation, PendingJob, UnmanagedJob, UnusableObject


def unmanage_jobs_of_unusable_policy(seen: Observation, policy_snapshot: SitePolicySnapshot) -> Observation:
    """Leave to Slurm the jobs that depend on unusable policy objects.

    The objects are associations, QOS and partitions. The returned observation lists them.
    """
    unusable = policy_snapshot.trouble.list_objects()
    if not unusable:
        return seen
    why = {
        each.job.id: policy_snapshot.trouble.find_unusable_object_of_job(
            each.job.user, each.job.account, each.job.queue, each.job.qos, policy_snapshot.site
        )
        for each in seen.pending
    }
    return dataclasses.replace(
        seen,
        pending=tuple(each for each in seen.pending if why[each.job.id] is None),
        left=(*seen.left, *(_make_unmanaged_job(each, found) for each in seen.pending if (found := why[each.job.id]))),
        unusable=(*seen.unusable, *unusable),
    )


def _make_unmanaged_job(pending: PendingJob, why: UnusableObject) -> UnmanagedJob:
    return UnmanagedJob(
        pending.job.id,
        JobNotModelled(f"{why.kind} {why.name}", str(why)).reason,
        pending.label,
        pending.job.user,
        held_for_bridge=pending.waits_for_bridge,
        pinned=pending.pinned and pending.hold is Hold.NONE,
    )
