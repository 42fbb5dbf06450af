"""How far a start must be raised in Slurm's order, so that no job that nobody manages stands before it.

A pending job that nobody holds, and that gets no nodes, blocks every job below it in the partitions that share its
nodes until Slurm's next pass; pinned jobs are no exception. Slurm sorts by tier before priority, so that nothing helps
against a job of a higher tier.
"""

from __future__ import annotations

from collections.abc import Mapping

from cpsched_bridge.adapters.slurm.policy.policy_parsing import PartitionPolicy, SitePolicySnapshot
from cpsched_bridge.adapters.slurm.slurm_records import ClusterRecords, Record
from cpsched_bridge.adapters.slurm.translation import pending_reasons, slurm_states, task_ranges

BLOCKS = frozenset({"", "None", "Priority", "Resources"})
"""Reasons of a job that Slurm has tried to start, or is about to try; any other keeps a job from blocking others."""
_NO_NODES: frozenset[str] = frozenset()


def boosts(
    starts: Mapping[int, tuple[Record, int]], seen: ClusterRecords, picture: SitePolicySnapshot, most: int
) -> dict[int, int]:
    """By job number, the points that a start needs; at most `most`, and none where that does not do.

    `starts` are records of held jobs, each with the priority that is worked out for it. A release lets the age of a job
    start over, unless the site says otherwise: so the whole weight of age is made good.
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
        # Priorities below 1 are shown as 1, and the job's own nice value is what brings one there.
        points = (priority if priority > 1 else -max(0, record.get("nice") or 0)) - lost
        needed = max(highest[name] for name in above) + 1 - points
        if 0 < needed <= most:
            found[number] = needed
    return found


def _blocks(record: Record) -> bool:
    """Whether a job may block others: nobody holds it, and its nodes are not chosen already."""
    return (
        record["state"] == slurm_states.PENDING
        and bool(record["priority"])
        and not record["required_nodes"]
        and pending_reasons.reason_name(record["state_reason"] or "") in BLOCKS
    )


def _tier(partition: str, picture: SitePolicySnapshot) -> int:
    return picture.partitions.get(partition, PartitionPolicy()).tier
