"""Translate the nodes and limits of Slurm's partitions, and decide which jobs may use them.

If a list of allowed accounts, QOS or groups is set, Slurm ignores the list of denied names. A job is not excluded
because of an unknown fact: Slurm then accepts or rejects its start. These facts may be unknown:

- whether the controller checks accounts (since 23.02, only if associations are enforced),
- the parents of accounts (since 23.02, a partition that allows an account also allows its child accounts),
- the groups of a user who does not exist on this host,
- the hosts from which a partition accepts jobs (`AllocNodes`), which the bridge does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cpsched.errors import escape_controls, join_abbreviated
from cpsched.model import BoolArray, PendingCode, PendingReason
from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmPartition
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import PartitionCpusPerNodeLimit, SlurmNodeTable


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
        return slurm_states.make_unusable_object("partition", partition).why
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


_MAX_LISTED_NAMES = 5
"""Maximum number of names that a reason lists."""
_CHILD_ACCOUNTS_SINCE = (23, 2)
"""First release in which a partition that allows an account also allows its child accounts."""


@dataclass(frozen=True, slots=True)
class PartitionAccessContext:
    """Facts about access that neither the job's nor the partition's record contains.

    - `checks_accounts`: whether the controller checks accounts, or None if unknown.
    - `includes_child_accounts`: whether an account includes its child accounts.
    - `above`: the parent of each account, or None if unknown.
    - `outside`: the groups that each user is known not to belong to, by user.
    """

    checks_accounts: bool | None = None
    includes_child_accounts: bool = True
    above: Mapping[str, str] | None = None
    outside: Mapping[str, Collection[str]] = field(default_factory=dict)


def find_account_check_rules(config: SlurmConfig) -> tuple[bool | None, bool]:
    """Return a configuration's `checks_accounts` and `includes_child_accounts`."""
    version, enforced = _parse_version(config.version), config.accounting_storage_enforce
    if version is not None and version < _CHILD_ACCOUNTS_SINCE:
        return True, False
    if version is None or enforced is None:
        return None, True
    text = " ".join(enforced).lower()
    return any(word in text for word in ("associations", "limits", "qos", "safe", "wckeys")), True


def _parse_version(text: str | None) -> tuple[int, int] | None:
    parts = (text or "").split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else None


def find_access_denied_reason(
    job: SlurmJob, partition: PartitionRules, access_context: PartitionAccessContext
) -> PendingReason | None:
    """Return why a job may not use its partition.

    Return None if it may, or if this is unknown. The reason begins with Slurm's name for it.
    """
    return (
        _find_qos_denial_reason(job.qos, partition)
        or _find_account_denial_reason(job.account, partition, access_context)
        or _find_group_denial_reason(job, partition, access_context)
    )


def _find_qos_denial_reason(qos: str, partition: PartitionRules) -> PendingReason | None:
    if not qos:
        return None
    if partition.allowed_qos is not None:
        kept_out = qos.lower() not in partition.allowed_qos
        return (
            _make_denied_reason("QOSNotAllowed", partition, "allows QOS", partition.allowed_qos, qos)
            if kept_out
            else None
        )
    return (
        _make_denied_reason("QOSNotAllowed", partition, "denies QOS", [qos])
        if qos.lower() in partition.denied_qos
        else None
    )


def _find_account_denial_reason(
    account: str, partition: PartitionRules, access_context: PartitionAccessContext
) -> PendingReason | None:
    if not account or not access_context.checks_accounts:
        return None
    line = list(_list_accounts_for_access(account.lower(), access_context))
    if partition.allowed_accounts is not None:
        unknown = access_context.includes_child_accounts and account.lower() not in (access_context.above or {})
        if unknown or not partition.allowed_accounts.isdisjoint(line):
            return None
        return _make_denied_reason(
            "AccountNotAllowed", partition, "allows accounts", partition.allowed_accounts, account
        )
    denied = [each for each in line if each in partition.denied_accounts]
    return _make_denied_reason("AccountNotAllowed", partition, "denies account", denied) if denied else None


def _list_accounts_for_access(account: str, access_context: PartitionAccessContext) -> Iterator[str]:
    """Yield the account and, if parents count, its ancestors."""
    return _walk_account_and_ancestors(
        account,
        access_context.above if access_context.includes_child_accounts and access_context.above is not None else {},
    )


def _walk_account_and_ancestors(account: str, above: Mapping[str, str]) -> Iterator[str]:
    seen: set[str] = set()
    while account and account not in seen:
        seen.add(account)
        yield account
        account = above.get(account, "")


def list_account_and_ancestors(account: str, access_context: PartitionAccessContext) -> list[str]:
    """Return the account and its known ancestors, in lower case."""
    return list(_walk_account_and_ancestors(account.lower(), access_context.above or {}))


def _find_group_denial_reason(
    job: SlurmJob, partition: PartitionRules, access_context: PartitionAccessContext
) -> PendingReason | None:
    user = job.user_name
    if partition.allowed_groups is None or job.user_id == 0 or user not in access_context.outside:
        return None
    if not partition.allowed_groups.issubset(access_context.outside[user]):
        return None
    return _make_denied_reason(
        "AccountNotAllowed", partition, "allows groups", partition.allowed_groups, f"user {user}"
    )


def _make_denied_reason(
    name: str, partition: PartitionRules, rule: str, names: Collection[str], other: str = ""
) -> PendingReason:
    listed = join_abbreviated(sorted(names), _MAX_LISTED_NAMES)
    what = escape_controls(f"partition {partition.name} {rule} {listed or 'none'}" + (other and f", not {other}"))
    return PendingReason(PendingCode.CLUSTER, (name, what))
