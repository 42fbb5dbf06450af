"""Translate the nodes and limits of Slurm's partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cpsched.model import BoolArray
from cpsched_bridge.adapters.slurm.slurm_records import Record, has_unusable_field
from cpsched_bridge.adapters.slurm.translation import node_and_task_lists
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import PartitionCpusPerNodeLimit, SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.unusable_objects import make_unusable_object


@dataclass(slots=True)
class SlurmPartition:
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
    """`OverSubscribe` in a record that `mark_partitions_sharing_nodes` returned."""

    @property
    def may_share_cores(self) -> bool:
        """Whether jobs in the partition may share cores."""
        return self.sharing.startswith(("YES", "FORCE")) and self.sharing != ONE_JOB_PER_CORE

    def may_job_share_cores(self, job: Record) -> bool:
        """Return whether Slurm may let this job share cores with other jobs."""
        return self.may_share_cores and (job["resource_sharing"] == "YES" or not self.sharing.startswith("YES"))


DEFAULTS_PER_GPU = ("DefCpuPerGPU", "DefMemPerGPU")
SHARES_NODES = "shares_nodes"
"""Field of a record that `mark_partitions_sharing_nodes` has marked."""
ONE_JOB_PER_CORE = "FORCE:1"
"""`OverSubscribe` of a partition in which each core runs one job at a time."""


def mark_partitions_sharing_nodes(table: Sequence[Record]) -> list[Record]:
    """Return the records, with partitions that share nodes marked.

    These are partitions with `FORCE:1` or `MaxCPUsPerSocket` whose nodes also belong to other partitions.

    With `FORCE:1`, Slurm starts no job of a marked partition on a node that runs a job of a partition with
    `OverSubscribe=NO`. It may start the job on cores that jobs in partitions of lower tiers use (`_verify_node_state`
    and `_job_test` in cons_tres/job_test.c). With `MaxCPUsPerSocket`, other partitions' jobs may leave it free cores on
    one socket only.
    """
    limited = [
        at for at, record in enumerate(table) if _is_forced(record) or _parse_limit(record["max_cpus_per_socket"])
    ]
    if not limited:
        return list(table)
    nodes = [frozenset(node_and_task_lists.expand_hostlist_or_empty(record["nodes"])) for record in table]
    found = list(table)
    for at in limited:
        if any(nodes[at] & other for other in (*nodes[:at], *nodes[at + 1 :])):
            found[at] = {**table[at], SHARES_NODES: True}
    return found


def _is_forced(record: Record) -> bool:
    return _get_oversubscribe(record) == ONE_JOB_PER_CORE


@dataclass(slots=True)
class CachingPartitionTranslator:
    """A translator of partitions that does not translate unchanged records again."""

    _known: dict[str, tuple[Record, SlurmPartition]] = field(default_factory=dict)

    def read(
        self, machine: SlurmNodeTable, table: Sequence[Record], job_defaults: str | None = None
    ) -> dict[str, SlurmPartition]:
        """Return a reading's partitions by name, with slurm.conf's `job_defaults`."""
        table = mark_partitions_sharing_nodes(table)
        for record in table:
            known = self._known.get(record["name"])
            if known is None or known[0] != record:
                self._known[record["name"]] = (record, translate_partition(record, machine, job_defaults))
        return {record["name"]: self._known[record["name"]][1] for record in table}

    def clear(self) -> None:
        """Discard all translations, which are valid only for the previous machine."""
        self._known.clear()


def translate_partition(record: Record, machine: SlurmNodeTable, job_defaults: str | None = None) -> SlurmPartition:
    """Return a partition, which may override each of slurm.conf's `job_defaults`."""
    defaults = _parse_job_defaults(job_defaults) | _parse_job_defaults(record.get("job_defaults"))
    cpus, memory = (int(defaults.pop(n)) if defaults.get(n, "").isdecimal() else 0 for n in DEFAULTS_PER_GPU)
    return SlurmPartition(
        name=record["name"],
        state=str(record["state"]),
        members=machine.mask_of_names(node_and_task_lists.expand_hostlist_or_empty(record["nodes"])),
        max_time_min=_parse_limit(record["max_time"]),
        default_time_min=_parse_limit(record["default_time"]),
        max_nodes=_parse_limit(record["max_nodes"]),
        min_nodes=_parse_limit(record["min_nodes"]) or 0,
        exclusive=_get_oversubscribe(record) == "EXCLUSIVE",
        max_memory_mib=_parse_limit(record["max_memory_per_node"]) or None,
        sharing=_get_oversubscribe(record),
        unmodelled=find_unmodelled_partition_reason(record),
        allowed_accounts=_get_allowed_names(record, "allowed_accounts", str.lower),
        denied_accounts=_get_denied_names(record, "denied_accounts"),
        allowed_qos=_get_allowed_names(record, "allowed_qos", str.lower),
        denied_qos=_get_denied_names(record, "denied_qos"),
        allowed_groups=_get_allowed_names(record, "allowed_groups", str),
        cpus_per_gpu=cpus,
        memory_per_gpu_mib=memory,
        job_defaults=",".join("=".join(each) for each in defaults.items()) or None,
        topology=record.get("topology"),
        tier=_parse_limit(record.get("priority_tier")) or 0,
    )


def _parse_job_defaults(text: str | None) -> dict[str, str]:
    """Return `JobDefaults` by name, such as {"DefCpuPerGPU": "4"}."""
    pairs = (each.partition("=") for each in (text or "").split(",") if each)
    return {name: value for name, _, value in pairs}


def list_core_limits(table: Sequence[Record]) -> dict[str, PartitionCpusPerNodeLimit]:
    """Return `MaxCPUsPerNode` and `MaxCPUsPerSocket` by partition, if one is set."""
    found = {}
    for record in table:
        cpus, per_socket = (_parse_limit(record[f"max_cpus_per_{where}"]) for where in ("node", "socket"))
        if cpus is not None or per_socket is not None:
            found[record["name"]] = PartitionCpusPerNodeLimit(cpus, per_socket, record["nodes"])
    return found


def _get_allowed_names(record: Record, name: str, spelled: Callable[[str], str]) -> frozenset[str] | None:
    names = record.get(name) or ["ALL"]
    return None if "ALL" in names else frozenset(map(spelled, names))


def _get_denied_names(record: Record, name: str) -> frozenset[str]:
    return frozenset(each.lower() for each in record.get(name) or () if each != "ALL")


def find_unmodelled_partition_reason(record: Record) -> str | None:
    """Return why jobs in the partition are left to Slurm, or None if they are not.

    `record` comes from `mark_partitions_sharing_nodes`. Without gang scheduling, `OverSubscribe=YES` affects only the
    jobs that request it.
    """
    if has_unusable_field(record):
        return make_unusable_object("partition", record).why
    sharing = _get_oversubscribe(record)
    if sharing == ONE_JOB_PER_CORE and record.get(SHARES_NODES):
        return f"it sets OverSubscribe={ONE_JOB_PER_CORE}, and other partitions use its nodes"
    if sharing not in ("NO", "EXCLUSIVE", ONE_JOB_PER_CORE) and not sharing.startswith("YES"):
        return f"its nodes are oversubscribed ({sharing})"
    if _parse_limit(record["max_cpus_per_socket"]) and record.get(SHARES_NODES):
        return "it sets MaxCPUsPerSocket, and other partitions use its nodes"
    if record["is_user_exclusive"]:
        return "its nodes are exclusive to one user at a time"
    if record.get("is_topology_exclusive"):
        return "it gives each job exclusive parts of the topology"
    if record["requires_reservation"] or record["is_root_only"]:
        return "it is closed to ordinary jobs"
    return None


def _get_oversubscribe(record: Record) -> str:
    """Return the partition's `OverSubscribe`, such as "NO", "EXCLUSIVE" or "FORCE:4"."""
    return str(record["oversubscribe"] or "NO").upper()


def _parse_limit(value: object) -> int | None:
    """Return a limit as a number, or None for "UNLIMITED"."""
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
