"""Translate a Slurm record into a `Job`, as requested or as allocated.

- `translate_pending_job` reads a record of the queue. A start must match its decision exactly, node by node. The
  function therefore raises `JobNotModelled` for a request that cannot be sent to Slurm exactly.
- `translate_placed_job` reads the record of a job that has or had nodes: a running job, an ended job, or a job in the
  accounting database.
- `translate_unreadable_job` replaces a record with contradictory facts; its nodes count as in use for a year.

`per_node_amounts` splits amounts over nodes, and `layout_queries` reads a placed job's resources on each node. Other
modules set three fields of a `Job`: `slurm_pending_jobs` sets `ineligible` for temporary reasons (begin time,
dependency, a full array), and this adapter's `policy/priority_ranking.py` sets `tier` and `priority`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpsched.model import BoolArray, Job, NodeSetPart, PendingCode, PendingReason, Request
from cpsched_bridge.adapters.shared.not_modelled import JobNotModelled
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import task_ranges
from cpsched_bridge.adapters.slurm.translation.per_node_amounts import (
    EqualNodeShares,
    JobSplitChoices,
    allocated_per_node,
    find_split_choices,
    requested_gres_per_share,
    requested_shared_gres,
)
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SHARING, TAKE_ANY_NODE, SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import SlurmPartition
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import SlurmReservation
from cpsched_bridge.adapters.slurm.translation.start_pins import StartPinSettings, make_start_pins, make_task_start_pins
from cpsched_bridge.adapters.slurm.translation.unknown_nodes import describe_unknown_nodes
from cpsched_bridge.adapters.slurm.translation.unsupported_requests import JobNeverFits, require_supported

FOREVER_S = 365 * 86400
"""Walltime in seconds of a job without a time limit, in a partition without a limit."""


@dataclass(frozen=True, slots=True)
class TranslatedSlurmJob:
    """A pending job, and the settings that its start sends in addition to the nodes.

    If its units are tasks that may share nodes, a start also sets the number of its nodes.
    """

    job: Job
    told: StartPinSettings
    task_by_task: TranslatedSlurmJob | None = None
    """The same job split into tasks that may share nodes, if it can also run in equal shares."""


def translate_pending_job(
    record: Record,
    job_id: int,
    machine: SlurmNodeTable,
    partition: SlurmPartition,
    conflicts: tuple[SlurmReservation, ...],
) -> TranslatedSlurmJob:
    """Return a pending record as a job, or raise `JobNotModelled`.

    `conflicts` are reservations that begin before the job would end. `ineligible` covers limits, but not times and
    dependencies, which change. A job that does not fit the empty machine is left to Slurm instead of being marked
    ineligible, because the bridge's model may be wrong.
    """
    require_supported(record)
    if (lost := describe_unknown_nodes("excluded_nodes", record, machine)) is not None:
        raise JobNotModelled(lost)
    if partition.unmodelled:
        what = f"partition {partition.name}"
        raise JobNotModelled(what, f"{what}: {partition.unmodelled}")
    if partition.job_defaults and any(name.partition(":")[0] == "gpu" for name in requested_gres_per_share(record)):
        raise JobNotModelled(
            f"asks for GPUs on partition {partition.name}, which has {partition.job_defaults} for them"
        )
    node_set = find_allowed_node_set(record, machine, partition, conflicts)
    walltime_s = get_walltime_s(record, partition)
    reason = partition_limit_reason(partition, walltime_s)
    try:
        parts = find_split_choices(record, machine, node_set, partition.min_nodes, partition.max_nodes)
    except JobNeverFits as too_large:
        if not conflicts:
            raise
        anywhere = find_allowed_node_set(record, machine, partition, ())
        parts = find_split_choices(record, machine, anywhere, partition.min_nodes, partition.max_nodes)
        met = [each.name for each in conflicts if (machine.rows[anywhere] & each.members).any()]
        words = f"reservation {met[0]} is" if len(met) == 1 else f"reservations {', '.join(met)} are"
        reason = reason or PendingReason(PendingCode.BEFORE_RESERVATION, (str(too_large), f"{words} over"))
    exclusive = partition.exclusive or record["resource_sharing"] == "NO"
    parts = keep_placeable_splits(parts, machine, machine.rows[node_set], partition)

    def asked(parts: EqualNodeShares, distinct: bool) -> Job:
        request = Request(parts.units, parts.amounts, distinct, exclusive, node_set)
        return _job(record, job_id, walltime_s, request, reason)

    by_task = None
    if parts.tasks is not None:
        by_task = TranslatedSlurmJob(asked(parts.tasks, False), make_task_start_pins(record, partition.max_nodes))
    if parts.equal is None:
        assert by_task is not None
        return by_task
    told = make_start_pins(record, parts.equal.units, partition.max_nodes)
    return TranslatedSlurmJob(asked(parts.equal, parts.equal.units > 1), told, None if exclusive else by_task)


def translate_placed_job(record: Record, job_id: int, machine: SlurmNodeTable, nodes: int) -> Job:
    """Return a job that has or had `nodes` nodes, as equal shares of its allocation."""
    limit_min = record["time_limit"]
    walltime_s = limit_min * 60 if isinstance(limit_min, int) and limit_min > 0 else FOREVER_S
    exclusive = record.get("resource_sharing") == "NO"
    amounts = allocated_per_node(record, machine, nodes)
    request = Request(nodes, amounts, distinct=nodes > 1, exclusive=exclusive)
    return _job(record, job_id, walltime_s, request)


def translate_unreadable_job(record: Record, job_id: int, machine: SlurmNodeTable, nodes: int) -> Job:
    """Return a job with contradictory facts that exclusively occupies its nodes for `FOREVER_S`."""
    amounts = machine.to_amount_vector(1, 0, {})
    assert amounts is not None
    request = Request(nodes, amounts, distinct=nodes > 1, exclusive=True)
    return _job({**record, "submit_time": 0}, job_id, FOREVER_S, request)


def _job(
    record: Record, job_id: int, walltime_s: int, request: Request, ineligible: PendingReason | None = None
) -> Job:
    return Job(
        id=job_id,
        submit_s=record["submit_time"] or 0,
        walltime_s=walltime_s,
        request=request,
        user=record["user_name"] or str(record["user_id"]),
        name=record["name"] or "",
        queue=record["partition"] or "",
        account=record["account"] or "",
        qos=record.get("qos") or "",
        ineligible=ineligible,
    )


def keep_placeable_splits(
    parts: JobSplitChoices, machine: SlurmNodeTable, mask: BoolArray, partition: SlurmPartition
) -> JobSplitChoices:
    """Return the splits that Slurm accepts on these nodes, or raise `JobNotModelled`."""
    shared = machine.shares_gpus(mask)
    for each in (parts.equal, parts.tasks):
        if each is not None and shared and _asks_for_gpus(each.amounts, machine):
            what = "GPUs of nodes that give them out in parts"
            raise JobNotModelled(what, f"{what} (shard, mps), too")
    topology = machine.topology(partition.topology)
    if machine.may_allocate_together(mask, topology):
        return parts
    if topology.plugin not in TAKE_ANY_NODE:
        raise JobNotModelled("nodes, which the topology plugin may not take")
    if parts.equal is None or parts.equal.units > 1:
        raise JobNotModelled("several nodes, which the topology plugin may not take together")
    return JobSplitChoices(parts.equal, None)


def _asks_for_gpus(amounts: Sequence[int], machine: SlurmNodeTable) -> bool:
    names = zip(machine.resources, amounts, strict=True)
    return any(amount and name.partition(":")[0] in {"gpu", *SHARING} for name, amount in names)


def get_walltime_s(record: Record, partition: SlurmPartition) -> int:
    """Return how many seconds a pending job may run.

    This is its own limit, otherwise its partition's default, otherwise its partition's maximum.
    """
    for minutes in (record["time_limit"], partition.default_time_min, partition.max_time_min):
        if minutes:
            return int(minutes) * 60
    return FOREVER_S


def find_allowed_node_set(
    record: Record, machine: SlurmNodeTable, partition: SlurmPartition, conflicts: tuple[SlurmReservation, ...]
) -> int:
    """Return the row of the node set that a job may use.

    It depends on the partition, features, shared resources, excluded nodes and reservations.
    """
    mask = partition.members
    parts = [NodeSetPart("partition", partition.name)]
    for constraint in record["constraints"] or ():
        for feature in constraint.split("&"):
            if not feature or any(sign in feature for sign in "|[]()*:"):
                raise JobNotModelled("features in brackets or with counts", f"features {constraint!r}")
            mask = mask & machine.features.get(feature, np.zeros_like(mask))
            parts.append(NodeSetPart("feature", feature))
    if record["excluded_nodes"]:
        mask = mask & ~machine.mask_of_names(task_ranges.expand_hostlist(record["excluded_nodes"]))
        parts.append(NodeSetPart("excluded", "excluded nodes"))
    if shared := requested_shared_gres(record, machine):
        mask = mask & machine.mask_with_shared(shared)
        parts += [NodeSetPart("resource", name) for name in shared]
    for reservation in conflicts:
        if (mask & reservation.members).any():
            mask = mask & ~reservation.members
            parts.append(NodeSetPart("reservation", reservation.name))
    return machine.intern_node_set(mask, *parts)


def partition_limit_reason(partition: SlurmPartition, walltime_s: int) -> PendingReason | None:
    """Return the partition's state or limit that blocks the job, or None if the job may run."""
    if partition.state not in ("UP", "DRAIN"):
        name = "PartitionInactive" if partition.state == "INACTIVE" else "PartitionDown"
        return PendingReason(PendingCode.CLUSTER, (name, f"partition {partition.name} is {partition.state}"))
    if partition.max_time_min is not None and walltime_s > partition.max_time_min * 60:
        what = f"time limit above that of partition {partition.name}"
        return PendingReason(PendingCode.CLUSTER, ("PartitionTimeLimit", what))
    return None
