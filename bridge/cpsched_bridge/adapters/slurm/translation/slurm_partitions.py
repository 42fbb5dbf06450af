"""Translate Slurm's partitions: their nodes and limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cpsched.model import BoolArray
from cpsched_bridge.adapters.slurm.slurm_records import Record, is_unusable
from cpsched_bridge.adapters.slurm.translation import task_ranges
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.unusable_objects import make_unusable_object


@dataclass(slots=True)
class SlurmPartition:
    """The nodes and limits of a partition; a limit is None if not set."""

    name: str
    state: str
    members: BoolArray
    max_time_min: int | None
    default_time_min: int | None
    max_nodes: int | None
    min_nodes: int
    exclusive: bool
    unmodelled: str | None
    """Why jobs of this partition are left to Slurm."""
    allowed_accounts: frozenset[str] | None = None
    denied_accounts: frozenset[str] = frozenset()
    allowed_qos: frozenset[str] | None = None
    denied_qos: frozenset[str] = frozenset()
    """Names of accounts and QOS are in lower case, because Slurm ignores their case."""
    allowed_groups: frozenset[str] | None = None
    topology: str | None = None
    """Name of the partition's own topology in topology.yaml."""
    job_defaults: str | None = None
    """Slurm's defaults for jobs that request GPUs."""


@dataclass(slots=True)
class PartitionTranslator:
    """A translator of partitions that does not translate unchanged records again."""

    _known: dict[str, tuple[Record, SlurmPartition]] = field(default_factory=dict)

    def read(
        self, machine: SlurmNodeTable, table: Sequence[Record], job_defaults: str | None = None
    ) -> dict[str, SlurmPartition]:
        """Return the partitions of one reading by name; `job_defaults` are those in slurm.conf."""
        for record in table:
            known = self._known.get(record["name"])
            if known is None or known[0] != record:
                self._known[record["name"]] = (record, translate_partition(record, machine, job_defaults))
        return {record["name"]: self._known[record["name"]][1] for record in table}

    def clear(self) -> None:
        """Discard the translations, which belong to another machine."""
        self._known.clear()


def translate_partition(record: Record, machine: SlurmNodeTable, job_defaults: str | None = None) -> SlurmPartition:
    """Return one partition; `job_defaults` apply if the partition sets none."""
    sharing = str(record["oversubscribe"] or "NO").upper()
    return SlurmPartition(
        name=record["name"],
        state=str(record["state"]),
        members=machine.mask_of_names(task_ranges.expand_if_valid(record["nodes"])),
        max_time_min=_number(record["max_time"]),
        default_time_min=_number(record["default_time"]),
        max_nodes=_number(record["max_nodes"]),
        min_nodes=_number(record["min_nodes"]) or 0,
        exclusive=sharing == "EXCLUSIVE",
        unmodelled=_unmodelled(record, sharing),
        allowed_accounts=_allowed(record, "allowed_accounts", str.lower),
        denied_accounts=_denied(record, "denied_accounts"),
        allowed_qos=_allowed(record, "allowed_qos", str.lower),
        denied_qos=_denied(record, "denied_qos"),
        allowed_groups=_allowed(record, "allowed_groups", str),
        job_defaults=record.get("job_defaults") or job_defaults,
        topology=record.get("topology"),
    )


def _allowed(record: Record, name: str, spelled: Callable[[str], str]) -> frozenset[str] | None:
    names = record.get(name) or ["ALL"]
    return None if "ALL" in names else frozenset(map(spelled, names))


def _denied(record: Record, name: str) -> frozenset[str]:
    return frozenset(each.lower() for each in record.get(name) or () if each != "ALL")


def _unmodelled(record: Record, sharing: str) -> str | None:
    """Return why jobs of the partition are left to Slurm, or None if they are not."""
    if is_unusable(record):
        return make_unusable_object("partition", record).why
    per_node = [record[f] for f in ("max_cpus_per_node", "max_cpus_per_socket", "max_memory_per_node")]
    if sharing not in ("NO", "EXCLUSIVE"):
        return f"oversubscribed nodes ({sharing})"
    if any(_number(limit) for limit in (*per_node, record["max_memory_per_cpu"])):
        return "limits per node"
    if record["is_user_exclusive"]:
        return "nodes exclusive to a user"
    if record.get("is_topology_exclusive"):
        return "parts of the topology exclusive to a job"
    if record["requires_reservation"] or record["is_root_only"]:
        return "closed to ordinary jobs"
    return None


def _number(value: object) -> int | None:
    """Return a limit as a number; None for "UNLIMITED"."""
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
