"""Compute how far to raise a start in Slurm's order so that it ranks above unmanaged jobs.

A pending job that is not held and cannot get nodes blocks every job below it in the partitions that share its nodes,
even pinned jobs, until Slurm's next pass. Slurm sorts by tier before priority, so a boost has no effect against a job
in a higher tier.
"""

from __future__ import annotations

from collections.abc import Mapping

from cpsched_bridge.adapters.slurm.policy.policy_parsing import PartitionPriorityPolicy, SitePolicySnapshot
from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.adapters.slurm.translation import pending_reasons, slurm_states, task_ranges

BLOCKS = frozenset({"", "None", "Priority", "Resources"})
"""Reasons of jobs that Slurm has tried or will try to start. A job with any other reason does not block others."""
_NO_NODES: frozenset[str] = frozenset()


def compute_start_boosts(
    starts: Mapping[int, tuple[Record, int]], seen: SlurmRecords, picture: SitePolicySnapshot, most: int
) -> dict[int, int]:
    """Return the boost in points by job number, for starts that need from 1 to `most` points.

    `starts` contains records of held jobs, each with its computed priority. Unless the site configures otherwise, a
    release resets a job's age, so the points include the full weight of age.
    """
    if most <= 0:
        return {}
    highest: dict[str, int] = {}
    for record in seen.jobs:
        if _blocks(record):
            for name in (record["partition"] or "").split(","):
                highest[name] = max(highest.get(name, 0), record["priority"])
    nodes = {str(record["name"]): frozenset(task_ranges.expand_if_valid(record["nodes"])) for record in seen.partitions}
    lost = 0 if picture.rules.always_accrues else int(picture.rules.weights.age)
    found = {}
    for number, (record, priority) in starts.items():
        own = record["partition"]
        near = [name for name in highest if nodes.get(own, _NO_NODES) & nodes.get(name, _NO_NODES)]
        above = [name for name in near if _tier(name, picture) >= _tier(own, picture)]
        if not above or any(_tier(name, picture) > _tier(own, picture) for name in above):
            continue
        # Slurm shows priorities below 1 as 1; the job's own nice value causes such priorities.
        points = (priority if priority > 1 else -max(0, record.get("nice") or 0)) - lost
        needed = max(highest[name] for name in above) + 1 - points
        if 0 < needed <= most:
            found[number] = needed
    return found


def _blocks(record: Record) -> bool:
    """Return whether a job may block others: it is neither held nor restricted to chosen nodes."""
    return (
        record["state"] == slurm_states.PENDING
        and bool(record["priority"])
        and not record["required_nodes"]
        and pending_reasons.reason_name(record["state_reason"] or "") in BLOCKS
    )


def _tier(partition: str, picture: SitePolicySnapshot) -> int:
    return picture.partitions.get(partition, PartitionPriorityPolicy()).tier
