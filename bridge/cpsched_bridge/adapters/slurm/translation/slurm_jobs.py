"""Translate a Slurm record into a `Job`, as requested or as allocated.

- `translate_pending_job` reads a pending record. Slurm must start a job exactly as decided, node by node. The function
  therefore raises `JobNotModelled` for a request that Slurm might place differently.
- `translate_placed_job` reads the record of a job that has or had nodes: a running job, an ended job, or a job in the
  accounting database.
- `translate_unreadable_job` handles contradictory facts: the job's nodes count as in use for a year.

`per_node_amounts` splits amounts over nodes, and `layout_queries` reads a placed job's resources on each node. Other
modules set three fields of a `Job`: `slurm_pending_jobs` sets `ineligible` for temporary reasons (begin time,
dependency, array task limit), and this adapter's `policy/priority_ranking.py` sets `tier` and `priority`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cpsched.feasibility import choose_nodes_in_blocks, units_fitting_by_row
from cpsched.kernels.block_selection import MOST_LOWER, find_block_level
from cpsched.model import BlockRule, BoolArray, Job, NodeSetCondition, PendingCode, PendingReason, Request
from cpsched.model.gpu_parts import GPU_PART_KINDS
from cpsched.site.accounts import PartitionLimit
from cpsched.slurm_text.gres import is_gpu_part
from cpsched.slurm_text.hostlist import expand_hostlist
from cpsched.slurm_text.jobs import UNLIMITED, SlurmJob
from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled
from cpsched_bridge.adapters.shared.node_table import CORES
from cpsched_bridge.adapters.slurm.translation.gres_counts import Amounts
from cpsched_bridge.adapters.slurm.translation.per_node_amounts import (
    EqualJobSplit,
    PossibleJobSplits,
    SplitLimits,
    compute_allocated_per_node,
    compute_max_gres_per_share,
    compute_requested_no_consume_gres,
    find_split_choices,
    is_limited_to_one_node,
)
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import (
    BLOCK_PLUGIN,
    TOPOLOGIES_WITH_ANY_NODE,
    SlurmNodeTable,
    describe_unknown_nodes,
)
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import PartitionRules
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import ReservedNodes
from cpsched_bridge.adapters.slurm.translation.start_pins import make_equal_split_settings, make_task_split_settings
from cpsched_bridge.adapters.slurm.translation.unsupported_requests import JobNeverFits, require_supported_request
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, StartSettings


@dataclass(frozen=True, slots=True)
class SlurmJobWithStartSettings:
    """A pending job, and what its start sets besides the nodes."""

    job: Job
    settings: StartSettings
    task_by_task: SlurmJobWithStartSettings | None = None
    """The same job split into tasks that may share nodes, if it can also run in equal shares."""


@dataclass(frozen=True, slots=True)
class PartitionTerms:
    """The rules of a partition that apply to one job."""

    partition: PartitionRules
    conflicts: tuple[ReservedNodes, ...] = ()
    """The reservations that begin before the job would end."""
    exempt_from: frozenset[PartitionLimit] = frozenset()
    """The partition's limits that do not apply to the job's QOS."""

    def is_same(self, other: PartitionTerms) -> bool:
        """Return whether a job has the same translation under the other terms."""
        return (
            self.partition is other.partition
            and self.exempt_from == other.exempt_from
            and [r.name for r in self.conflicts] == [r.name for r in other.conflicts]
            and all((a.members == b.members).all() for a, b in zip(self.conflicts, other.conflicts, strict=True))
        )

    def limit_split(self, job: SlurmJob) -> SplitLimits:
        """Return the limits on how a job is split over nodes."""
        partition = self.partition
        min_nodes = 0 if "PartitionMinNodes" in self.exempt_from else partition.min_nodes
        # The partition's maximum remains the default (`get_node_cnts` in node_scheduler.c).
        has_own_maximum = "PartitionMaxNodes" in self.exempt_from and job.max_nodes is not None
        return SplitLimits(min_nodes, None if has_own_maximum else partition.max_nodes, partition.max_memory_mib)


def translate_pending_job(
    job: SlurmJob, job_id: int, machine: SlurmNodeTable, terms: PartitionTerms
) -> SlurmJobWithStartSettings:
    """Return the job in a pending record, or raise `JobNotModelled`.

    `ineligible` covers the partition's state, but not begin times and dependencies, which change. A job that does not
    fit on the empty machine is left to Slurm, not marked ineligible, because the bridge's model may be wrong.
    """
    partition = terms.partition
    job = with_defaults_per_gpu(job, partition)
    _require_modelled_request(job, machine, partition)

    node_set = find_allowed_node_set(job, machine, partition, terms.conflicts)
    requests_gpu_parts = any(map(is_gpu_part, compute_max_gres_per_share(job)))
    if requests_gpu_parts and not (machine.rows[node_set] & machine.mask_nodes_with_gpu_parts()).any():
        raise JobNotModelled("requests parts of GPUs", "requests parts of GPUs, whose use its nodes do not show")

    walltime_s = get_walltime_s(job, partition)
    if "PartitionTimeLimit" not in terms.exempt_from:
        require_walltime_within_partition_limit(partition, walltime_s)

    splits, reservation_reason = _find_splits_on_unreserved_nodes(job, machine, terms, node_set)
    reason = find_partition_state_reason(partition) or reservation_reason

    exclusive = machine.rules.whole_nodes or partition.exclusive or job.resource_sharing == "NO"
    if exclusive:
        _require_whole_nodes(machine, partition, node_set)
    splits = keep_placeable_splits(splits, machine, machine.rows[node_set], partition, job.segment_size)
    if requests_gpu_parts:
        splits, node_set = find_node_set_with_gpu_parts(splits, machine, node_set)
    if splits.equal is not None and splits.equal.units > 1:
        node_set = find_node_set_in_blocks(job, splits.equal, machine, node_set, partition)

    def build_split_job(split: EqualJobSplit, distinct: bool) -> Job:
        request = Request(split.units, split.amounts, distinct, exclusive, node_set)
        return _build_job(job, job_id, walltime_s, request, reason)

    most_nodes = terms.limit_split(job).max_nodes
    by_task = None
    if splits.tasks is not None:
        settings = make_task_split_settings(job, most_nodes)
        by_task = SlurmJobWithStartSettings(build_split_job(splits.tasks, False), settings)
    if splits.equal is None:
        assert by_task is not None
        return by_task

    nodes = splits.equal.units
    settings = make_equal_split_settings(job, nodes, most_nodes, needs_cpus=machine.rules.equal_shares_need_cpus)
    return SlurmJobWithStartSettings(build_split_job(splits.equal, nodes > 1), settings, None if exclusive else by_task)


def _require_modelled_request(job: SlurmJob, machine: SlurmNodeTable, partition: PartitionRules) -> None:
    """Raise `JobNotModelled` if only Slurm can place the job, wherever it fits."""
    require_supported_request(job)
    if (lost := describe_unknown_nodes("excludes", job.excluded_nodes, machine)) is not None:
        raise JobNotModelled(lost)
    require_modelled_partition(partition, compute_max_gres_per_share(job))
    if partition.may_job_share_cores(job):
        what = "requests to share its cores"
        raise JobNotModelled(what, f"{what} (--oversubscribe) in partition {partition.name}")


def _find_splits_on_unreserved_nodes(
    job: SlurmJob, machine: SlurmNodeTable, terms: PartitionTerms, node_set: int
) -> tuple[PossibleJobSplits, PendingReason | None]:
    """Return the splits of a job, and why it waits if it fits only on nodes that are reserved before it would end.

    `node_set` contains the partition's nodes outside these reservations.
    """
    limits, conflicts = terms.limit_split(job), terms.conflicts
    try:
        return find_split_choices(job, machine, node_set, limits), None
    except JobNeverFits as too_large:
        if not conflicts:
            raise
        anywhere = find_allowed_node_set(job, machine, terms.partition, ())
        splits = find_split_choices(job, machine, anywhere, limits)
        met = [each.name for each in conflicts if (machine.rows[anywhere] & each.members).any()]
        text = f"reservation {met[0]} ends" if len(met) == 1 else f"reservations {', '.join(met)} end"
        return splits, PendingReason(PendingCode.BEFORE_RESERVATION, (str(too_large), text))


def _require_whole_nodes(machine: SlurmNodeTable, partition: PartitionRules, node_set: int) -> None:
    """Raise `JobNotModelled` if the partition limits the cores that a job may use on one of the nodes."""
    column = machine.core_limit_column(partition.name)
    if column is not None:
        capacity = machine.capacity[machine.rows[node_set]]
        if (capacity[:, column] < capacity[:, CORES]).any():
            raise JobNotModelled("requests whole nodes of a partition that limits CPUs per node")


def with_defaults_per_gpu(job: SlurmJob, partition: PartitionRules) -> SlurmJob:
    """Return the record with the partition's defaults per GPU, if they apply to the job.

    Slurm applies `DefMemPerGPU` to jobs without a memory request (`gres_select_util_job_mem_set` in cons_tres). A
    record does not show whether its memory is a request or another default, so the job may get less than planned.

    Slurm applies `DefCpuPerGPU` to jobs without `--cpus-per-task` (`_set_gpu_defaults` in cons_tres/job_test.c).
    Release 26.05 shows this option in `tres_per_task`. Earlier releases do not distinguish a value of 1 from no option,
    so the job may get fewer CPUs than planned. Once Slurm has tested a job, it shows the default as if the job had
    requested CPUs per GPU. However, only a request changes the total number of CPUs.
    """
    has_defaults = partition.memory_per_gpu_mib or partition.cpus_per_gpu
    if not has_defaults or "gpu" not in compute_max_gres_per_share(job):
        return job
    is_tested = job.cpus_per_task == 0 and job.cpus == job.ntasks
    is_unset = (is_tested or job.cpus_per_task == 1) and "cpu" not in job.tres_per_task
    job = job._replace(memory_per_gpu=partition.memory_per_gpu_mib)
    if partition.cpus_per_gpu and is_unset:
        job = job._replace(cpus_per_task=1, cpus_per_gpu=partition.cpus_per_gpu)
    return job


def require_modelled_partition(partition: PartitionRules, gres: Amounts) -> None:
    """Raise `JobNotModelled` if the partition leaves jobs with this `gres` to Slurm."""
    if partition.unmodelled:
        what = f"partition {partition.name}"
        raise JobNotModelled(what, f"{what}: {partition.unmodelled}")
    if partition.job_defaults and any(name.partition(":")[0] == "gpu" for name in gres):
        raise JobNotModelled(f"requests GPUs on partition {partition.name}, which sets {partition.job_defaults}")


def translate_placed_job(job: SlurmJob, job_id: int, machine: SlurmNodeTable, nodes: int) -> Job:
    """Return a job that has or had `nodes` nodes, in equal shares of its allocation."""
    exclusive = job.resource_sharing == "NO"
    amounts = compute_allocated_per_node(job, machine, nodes)
    request = Request(nodes, amounts, distinct=nodes > 1, exclusive=exclusive)
    return _build_job(job, job_id, get_placed_walltime_s(job), request)


def get_placed_walltime_s(job: SlurmJob) -> int:
    """Return how many seconds a job that has or had nodes may run."""
    limit_min = job.time_limit
    return limit_min * 60 if isinstance(limit_min, int) and limit_min > 0 else UNLIMITED_WALLTIME_S


def translate_unreadable_job(job: SlurmJob, job_id: int, machine: SlurmNodeTable, nodes: int) -> Job:
    """Return a job that occupies its nodes exclusively for `UNLIMITED_WALLTIME_S`."""
    amounts = machine.to_amount_vector(1, 0, {})
    assert amounts is not None
    request = Request(nodes, amounts, distinct=nodes > 1, exclusive=True)
    return _build_job(job._replace(submit_time=0), job_id, UNLIMITED_WALLTIME_S, request)


def _build_job(
    job: SlurmJob, job_id: int, walltime_s: int, request: Request, ineligible: PendingReason | None = None
) -> Job:
    return Job(
        id=job_id,
        submit_s=job.submit_time,
        walltime_s=walltime_s,
        request=request,
        user=job.user_name or str(job.user_id),
        name=job.name,
        queue=job.partition,
        account=job.account,
        qos=job.qos,
        ineligible=ineligible,
    )


_MAY_BE_REJECTED = "the topology plugin may reject its combination of nodes"


def keep_placeable_splits(
    parts: PossibleJobSplits,
    machine: SlurmNodeTable,
    mask: BoolArray,
    partition: PartitionRules,
    segment_size: int = 0,
) -> PossibleJobSplits:
    """Return the splits that Slurm accepts on these nodes, or raise `JobNotModelled`."""
    spread = machine.rules.spreads_gpu_parts and bool((mask & machine.shares_gpus).any())
    for each in (parts.equal, parts.tasks):
        if each is not None and spread and _requests_any_gres(GPU_PART_KINDS, each.amounts, machine):
            where = "requests parts of GPUs on nodes where one job may share several GPUs"
            raise JobNotModelled("requests parts of GPUs", where)
        if each is not None and spread and _requests_any_gres({"gpu"}, each.amounts, machine):
            what = "requests GPUs on nodes where one job may share several GPUs"
            raise JobNotModelled(what, f"{what} (MULTIPLE_SHARING_GRES_PJ)")
    topology = machine.topology(partition.topology)
    if machine.accepts_any_node_combination(mask, topology) and not (segment_size and topology.plugin == BLOCK_PLUGIN):
        return parts
    if topology.plugin not in TOPOLOGIES_WITH_ANY_NODE:
        raise JobNotModelled("the topology plugin may reject its nodes")
    if parts.equal is None or (parts.equal.units > 1 and topology.blocks is None):
        raise JobNotModelled(_MAY_BE_REJECTED)
    return PossibleJobSplits(parts.equal, None)


def find_node_set_with_gpu_parts(
    parts: PossibleJobSplits, machine: SlurmNodeTable, node_set: int
) -> tuple[PossibleJobSplits, int]:
    """Return the split of a job that requests parts of GPUs, and the row of its nodes whose GPUs have enough parts.

    Raise `JobNotModelled` if a node may get several parts of it, or if it requests several kinds.
    """
    if parts.equal is None:
        raise JobNotModelled("requests parts of GPUs for tasks that Slurm distributes")
    if sum(_requests_any_gres({name}, parts.equal.amounts, machine) for name in ("gpu", *GPU_PART_KINDS)) > 1:
        raise JobNotModelled("requests parts of GPUs in addition to other GPUs")
    mask = machine.rows[node_set].copy()
    for name, parts_of_gpu in machine.gpu_parts.items():
        mask &= parts_of_gpu >= parts.equal.amounts[machine.resources.index(name)]
    if int(mask.sum()) < parts.equal.units:
        raise JobNeverFits("requests more parts of a GPU than its nodes have")
    condition = NodeSetCondition("resource", "parts of a GPU")
    conditions = machine.get_node_set_conditions(node_set)
    return PossibleJobSplits(parts.equal, None), machine.intern_node_set(mask, *conditions, condition)


def find_node_set_in_blocks(
    job: SlurmJob, parts: EqualJobSplit, machine: SlurmNodeTable, node_set: int, partition: PartitionRules
) -> int:
    """Return the row of a job's nodes with the rule by which several of them fill blocks, or `node_set` without one.

    Raise `JobNotModelled` if Slurm rejects its segments, or might drop nodes until the lightest fill few lower blocks.
    """
    topology, mask = machine.topology(partition.topology), machine.rows[node_set]
    needs_rule = job.segment_size > 0 or not machine.accepts_any_node_combination(mask, topology)
    if topology.blocks is None or not needs_rule:
        return node_set
    rule = BlockRule(machine.block_topologies.index(topology.blocks))
    if 0 < job.segment_size < parts.units:
        rule = BlockRule(rule.topology, job.segment_size, job.spread_segments, job.consolidate_segments)
    row, blocks = np.array(rule.to_row(topology.blocks), np.int64), np.array(topology.blocks.blocks, np.int64)
    mask = mask & (blocks >= 0)
    if find_block_level(row, parts.units)[MOST_LOWER] > 0 and len(set(machine.own_weights[mask].tolist())) > 1:
        raise JobNotModelled(_MAY_BE_REJECTED)
    room = np.where(mask, units_fitting_by_row(Request(parts.units, parts.amounts, True), machine.capacity), 0)
    if not choose_nodes_in_blocks(room, parts.units, machine.own_weights, blocks, row):
        raise JobNeverFits("its nodes never fill blocks as the topology requires")
    condition = NodeSetCondition("blocks", f"segments of {rule.segment} in blocks" if rule.segment else "blocks")
    return machine.intern_node_set(mask, *machine.get_node_set_conditions(node_set), condition, blocks=rule)


def _requests_any_gres(kinds: Collection[str], amounts: Sequence[int], machine: SlurmNodeTable) -> bool:
    names = zip(machine.resources, amounts, strict=True)
    return any(amount and name.partition(":")[0] in kinds for name, amount in names)


def get_walltime_s(job: SlurmJob, partition: PartitionRules) -> int:
    """Return how many seconds a pending job may run.

    The job's own limit comes first, then its partition's default, then its partition's maximum. "UNLIMITED" is a limit
    of the job's own.
    """
    if job.time_limit == UNLIMITED:
        return UNLIMITED_WALLTIME_S
    for minutes in (job.time_limit, partition.default_time_min, partition.max_time_min):
        if minutes:
            return int(minutes) * 60
    return UNLIMITED_WALLTIME_S


def find_allowed_node_set(
    job: SlurmJob, machine: SlurmNodeTable, partition: PartitionRules, conflicts: tuple[ReservedNodes, ...]
) -> int:
    """Return the row of the node set that a job may use.

    The node set depends on the partition, features, shared resources, memory, excluded nodes and reservations.
    """
    mask = partition.members
    parts = [NodeSetCondition("partition", partition.name)]
    for constraint in job.constraints:
        plain = constraint.split("&")
        for part in plain if all(plain) and not set("|[()]*:") & set(constraint) else [constraint]:
            brackets = "[" in part and is_limited_to_one_node(job)
            mask = mask & mask_of_features(part, machine.features, len(mask), brackets)
            parts.append(NodeSetCondition("feature", part))
    if job.excluded_nodes:
        mask = mask & ~machine.mask_of_names(expand_hostlist(job.excluded_nodes))
        parts.append(NodeSetCondition("excluded", "excluded nodes"))
    if shared := compute_requested_no_consume_gres(job, machine):
        mask = mask & machine.mask_nodes_with_no_consume_gres(shared)
        parts += [NodeSetCondition("resource", name) for name in shared]
    if machine.rules.whole_nodes and machine.rules.counts_memory and job.memory_per_cpu:
        mask = mask & machine.mask_nodes_with_memory_per_cpu(job.memory_per_cpu)
        parts.append(NodeSetCondition("resource", "memory for all CPUs"))
    for reservation in conflicts:
        if (mask & reservation.members).any():
            mask = mask & ~reservation.members
            parts.append(NodeSetCondition("reservation", reservation.name))
    return machine.intern_node_set(mask, *parts)


def find_partition_state_reason(partition: PartitionRules) -> PendingReason | None:
    """Return the partition's state, or its node limit of 0, that blocks the job, or None."""
    if partition.max_nodes == 0:
        return PendingReason(PendingCode.CLUSTER, ("PartitionNodeLimit", f"partition {partition.name} sets MaxNodes=0"))
    if partition.state not in ("UP", "DRAIN"):
        name = "PartitionInactive" if partition.state == "INACTIVE" else "PartitionDown"
        return PendingReason(PendingCode.CLUSTER, (name, f"partition {partition.name} is {partition.state}"))
    return None


def require_walltime_within_partition_limit(partition: PartitionRules, walltime_s: int) -> None:
    """Raise `JobNotModelled` for a time limit above the partition's.

    Slurm starts such a job if an operator has set its time limit (`job_limits_check` in slurmctld/job_mgr.c), but does
    not show who has set it.
    """
    if partition.max_time_min is not None and walltime_s > partition.max_time_min * 60:
        what = f"its time limit exceeds the limit of partition {partition.name}"
        raise JobNotModelled(what, f"PartitionTimeLimit: {what}")


_TOKEN = re.compile(r"[&|()\[\]]|[^&|()\[\]*:]+")
_CLOSING = {"(": ")", "[": "]"}


def mask_of_features(expression: str, features: Mapping[str, BoolArray], nodes: int, brackets: bool) -> BoolArray:
    """Return a mask of the nodes that satisfy a feature expression, bool[N].

    Slurm evaluates parentheses first, then `&` and `|` from left to right with equal precedence
    (`_foreach_valid_feature_counts` in slurmctld/node_scheduler.c). All nodes of a job with `[a|b]` must share one of
    the features, so on a single node `[a|b]` means `a|b`. A count such as `a*2` applies to several nodes.

    Raise `JobNotModelled` for counts, for brackets unless `brackets` is True, and for expressions that Slurm rejects.
    """
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != expression:
        raise _make_not_modelled_error(expression, "counts")
    if "[" in tokens and not brackets:
        raise _make_not_modelled_error(expression, "brackets, but is not limited to one node")
    none = np.zeros(nodes, np.bool_)

    def parse_group_mask(rest: Iterator[str], opening: str) -> BoolArray:
        mask = parse_operand_mask(rest, opening)
        while (sign := next(rest, "")) != _CLOSING.get(opening, ""):
            if sign not in ("|", "&") or (sign == "&" and opening == "["):
                raise _make_not_modelled_error(expression, "unsupported syntax")
            other = parse_operand_mask(rest, opening)
            mask = mask | other if sign == "|" else mask & other
        return mask

    def parse_operand_mask(rest: Iterator[str], opening: str) -> BoolArray:
        token = next(rest, "")
        if token and token not in "&|()[]":
            return features.get(token, none)
        if (token == "(" and opening != "(") or (token == "[" and not opening):
            return parse_group_mask(rest, token)
        raise _make_not_modelled_error(expression, "unsupported syntax")

    return parse_group_mask(iter(tokens), "")


def _make_not_modelled_error(expression: str, what: str) -> JobNotModelled:
    return JobNotModelled(f"requests features with {what}", f"requests features {expression!r} with {what}")
