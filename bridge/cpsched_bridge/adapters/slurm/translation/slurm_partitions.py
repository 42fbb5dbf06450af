"""Translate the nodes and limits of Slurm's partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cpsched.model import BoolArray
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmPartition
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import PartitionCpusPerNodeLimit, SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.unusable_objects import make_unusable_object


@dataclass(slots=True)
class PartitionRules:
    """A partition's nodes and limits. A limit that is not set is None."""

    name: str
    state: str
    members: BoolArray
    max_time_min: int | None
    default_time_min: int | None
    max_nodes: int | None
    min_nodes: int
    exclusive: bool
    unmodelled: str | None
    """Why jobs in this partition are left to Slurm, or None if they are not."""
    allowed_accounts: frozenset[str] | None = None
    denied_accounts: frozenset[str] = frozenset()
    allowed_qos: frozenset[str] | None = None
    denied_qos: frozenset[str] = frozenset()
    """Account and QOS names are in lower case, because Slurm ignores their case."""
    allowed_groups: frozenset[str] | None = None
    topology: str | None = None
    """Name of the partition's own topology in topology.yaml."""
    cpus_per_gpu: int = 0
    """`DefCpuPerGPU`, or 0 if not set."""
    memory_per_gpu_mib: int = 0
    """`DefMemPerGPU`, or 0 if not set."""
    job_defaults: str | None = None
    """Slurm's other defaults for jobs that request GPUs."""
    tier: int = 0
    """`PriorityTier`. Slurm tries a job's partitions in descending order of their tiers."""
    max_memory_mib: int | None = None
    """Maximum memory of a job on a node, in MiB."""
    sharing: str = "NO"
    """`OverSubscribe`, such as "YES:4"."""

    @property
    def may_share_cores(self) -> bool:
        """Whether jobs in the partition may share cores."""
        return self.sharing.startswith(("YES", "FORCE")) and self.sharing != ONE_JOB_PER_CORE

    def may_job_share_cores(self, job: SlurmJob) -> bool:
        """Return whether Slurm may let this job share cores with other jobs."""
        return self.may_share_cores and (job.resource_sharing == "YES" or not self.sharing.startswith("YES"))


DEFAULTS_PER_GPU = ("DefCpuPerGPU", "DefMemPerGPU")
ONE_JOB_PER_CORE = "FORCE:1"
"""`OverSubscribe` of a partition in which each core runs one job at a time."""


def find_partitions_sharing_nodes(partitions: Sequence[SlurmPartition]) -> frozenset[str]:
    """Return the names of the partitions with `FORCE:1` or `MaxCPUsPerSocket` that share nodes with other partitions.

    With `FORCE:1`, Slurm starts no job of such a partition on a node that runs a job of a partition with
    `OverSubscribe=NO`. It may start the job on cores that jobs in partitions of lower tiers use (`_verify_node_state`
    and `_job_test` in cons_tres/job_test.c). With `MaxCPUsPerSocket`, other partitions' jobs may leave it free cores on
    one socket only.
    """
    limited = [
        row
        for row, partition in enumerate(partitions)
        if partition.sharing == ONE_JOB_PER_CORE or partition.max_cpus_per_socket
    ]
    if not limited:
        return frozenset()
    nodes = [frozenset(expand_hostlist_or_empty(partition.nodes)) for partition in partitions]
    return frozenset(
        partitions[row].name
        for row in limited
        if any(nodes[row] & others for others in (*nodes[:row], *nodes[row + 1 :]))
    )


class _TranslationKey(NamedTuple):
    partition: SlurmPartition
    shares_nodes: bool


@dataclass(slots=True)
class CachingPartitionTranslator:
    """A translator of partitions that does not translate unchanged partitions again."""

    _known: dict[str, tuple[_TranslationKey, PartitionRules]] = field(default_factory=dict)

    def read(
        self, machine: SlurmNodeTable, partitions: Sequence[SlurmPartition], job_defaults: str | None = None
    ) -> dict[str, PartitionRules]:
        """Return a reading's partitions by name, with slurm.conf's `job_defaults`."""
        sharing = find_partitions_sharing_nodes(partitions)
        for partition in partitions:
            key = _TranslationKey(partition, partition.name in sharing)
            known = self._known.get(partition.name)
            if known is None or known[0] != key:
                self._known[partition.name] = (key, translate_partition(*key, machine, job_defaults))
        return {partition.name: self._known[partition.name][1] for partition in partitions}

    def clear(self) -> None:
        """Discard all translations, which are valid only for the previous machine."""
        self._known.clear()


def translate_partition(
    partition: SlurmPartition, shares_nodes: bool, machine: SlurmNodeTable, job_defaults: str | None = None
) -> PartitionRules:
    """Return a partition's rules. The partition may override each of slurm.conf's `job_defaults`.

    `shares_nodes`: whether `find_partitions_sharing_nodes` found the partition.
    """
    defaults = _parse_job_defaults(job_defaults) | _parse_job_defaults(partition.job_defaults)
    cpus, memory = (int(defaults.pop(n)) if defaults.get(n, "").isdecimal() else 0 for n in DEFAULTS_PER_GPU)
    return PartitionRules(
        name=partition.name,
        state=str(partition.state),
        members=machine.mask_of_names(expand_hostlist_or_empty(partition.nodes)),
        max_time_min=partition.max_time,
        default_time_min=partition.default_time,
        max_nodes=partition.max_nodes,
        min_nodes=partition.min_nodes or 0,
        exclusive=partition.sharing == "EXCLUSIVE",
        max_memory_mib=partition.max_memory_per_node or None,
        sharing=partition.sharing,
        unmodelled=find_unmodelled_partition_reason(partition, shares_nodes),
        allowed_accounts=_to_allowed_names(partition.allowed_accounts, str.lower),
        denied_accounts=_to_denied_names(partition.denied_accounts),
        allowed_qos=_to_allowed_names(partition.allowed_qos, str.lower),
        denied_qos=_to_denied_names(partition.denied_qos),
        allowed_groups=_to_allowed_names(partition.allowed_groups, str),
        cpus_per_gpu=cpus,
        memory_per_gpu_mib=memory,
        job_defaults=",".join("=".join(each) for each in defaults.items()) or None,
        topology=partition.topology,
        tier=partition.priority_tier or 0,
    )


def _parse_job_defaults(text: str | None) -> dict[str, str]:
    """Return `JobDefaults` by name, such as {"DefCpuPerGPU": "4"}."""
    pairs = (each.partition("=") for each in (text or "").split(",") if each)
    return {name: value for name, _, value in pairs}


def list_core_limits(partitions: Sequence[SlurmPartition]) -> dict[str, PartitionCpusPerNodeLimit]:
    """Return `MaxCPUsPerNode` and `MaxCPUsPerSocket` by partition, if one is set."""
    return {
        partition.name: PartitionCpusPerNodeLimit(
            partition.max_cpus_per_node, partition.max_cpus_per_socket, partition.nodes
        )
        for partition in partitions
        if partition.max_cpus_per_node is not None or partition.max_cpus_per_socket is not None
    }


def _to_allowed_names(names: Sequence[str] | None, spelled: Callable[[str], str]) -> frozenset[str] | None:
    return None if not names or "ALL" in names else frozenset(map(spelled, names))


def _to_denied_names(names: Sequence[str] | None) -> frozenset[str]:
    return frozenset(name.lower() for name in names or () if name != "ALL")


def find_unmodelled_partition_reason(partition: SlurmPartition, shares_nodes: bool) -> str | None:
    """Return why jobs in the partition are left to Slurm, or None if they are not.

    See `translate_partition` for `shares_nodes`. Without gang scheduling, `OverSubscribe=YES` affects only the jobs
    that request it.
    """
    if partition.has_unusable_field:
        return make_unusable_object("partition", partition).why
    sharing = partition.sharing
    if sharing == ONE_JOB_PER_CORE and shares_nodes:
        return f"it sets OverSubscribe={ONE_JOB_PER_CORE}, and other partitions use its nodes"
    if sharing not in ("NO", "EXCLUSIVE", ONE_JOB_PER_CORE) and not sharing.startswith("YES"):
        return f"its nodes are oversubscribed ({sharing})"
    if partition.max_cpus_per_socket and shares_nodes:
        return "it sets MaxCPUsPerSocket, and other partitions use its nodes"
    if partition.is_user_exclusive:
        return "its nodes are exclusive to one user at a time"
    if partition.is_topology_exclusive:
        return "it gives each job exclusive parts of the topology"
    if partition.requires_reservation or partition.is_root_only:
        return "it is closed to ordinary jobs"
    return None
