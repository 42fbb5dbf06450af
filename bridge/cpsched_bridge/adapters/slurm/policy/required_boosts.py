"""Compute boosts that place started jobs above unmanaged jobs in Slurm's order.

If a pending job that is not held gets no nodes, it blocks all jobs below it, even pinned ones, until Slurm's next pass.
This affects all partitions that share its nodes. Slurm sorts by tier before priority, so a boost has no effect against
a job in a higher tier.
"""

from __future__ import annotations

from collections.abc import Mapping

from cpsched.site.site_policy import SitePolicy
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import pending_reasons, slurm_states

BLOCKING_REASONS = frozenset({"", "None", "Priority", "Resources"})
"""Reasons of jobs that Slurm has tried or will try to start. A job with any other reason does not block others."""
_NO_NODES: frozenset[str] = frozenset()


def compute_start_boosts(
    starts: Mapping[int, tuple[SlurmJob, int]], seen: SlurmRecords, policy: SitePolicy, most: int
) -> dict[int, int]:
    """Return the boost, by job number, of each start that needs 1 to `most` points.

    `starts` contains records of held jobs, each with its computed priority. Unless the site configures otherwise, a
    release resets a job's age, so the points include the full weight of age.
    """
    if most <= 0:
        return {}
    highest: dict[str, int] = {}
    for job in seen.jobs:
        if _may_block_others(job):
            for name in job.partition.split(","):
                highest[name] = max(highest.get(name, 0), job.priority or 0)
    nodes = {partition.name: frozenset(expand_hostlist_or_empty(partition.nodes)) for partition in seen.partitions}
    lost = 0 if policy.priority.always_accrues else int(policy.priority.weights.age)
    found = {}
    for number, (job, priority) in starts.items():
        own = job.partition
        near = [name for name in highest if nodes.get(own, _NO_NODES) & nodes.get(name, _NO_NODES)]
        own_tier = policy.partition(own).tier
        above = [name for name in near if policy.partition(name).tier >= own_tier]
        if not above or any(policy.partition(name).tier > own_tier for name in above):
            continue
        # Slurm shows priorities below 1 as 1. The job's own nice value causes them.
        points = (priority if priority > 1 else -max(0, job.nice)) - lost
        needed = max(highest[name] for name in above) + 1 - points
        if 0 < needed <= most:
            found[number] = needed
    return found


def _may_block_others(job: SlurmJob) -> bool:
    """Return whether a pending job without a hold or a node list may block others."""
    return (
        job.state == slurm_states.PENDING
        and bool(job.priority)
        and not job.required_nodes
        and pending_reasons.normalize_reason_name(job.state_reason) in BLOCKING_REASONS
    )
