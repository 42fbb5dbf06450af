"""Define the nodes, partitions, reservations and topologies that a reading of Slurm delivers.

Memory is in MiB, times are in Unix seconds, and time limits are in minutes. A field that Slurm does not set or that
cannot be read is None. Trackable resources have the form {"cpu": 4, "mem": 4000, "gres/gpu": 2}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cpsched.site.preemption import PreemptMode
from cpsched.slurm_text.gres import SharedGpus, is_gpu_part

NEVER_S = 0x7FFFFFFF
"""End time given to a reservation whose end cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmObject:
    """An object that administrators define: a node, a partition or a reservation."""

    name: str = ""
    unreadable: Mapping[str, str] | None = None
    """Why fields could not be read, by field, or None if all were read."""
    unknown: Mapping[str, str] | None = None
    """Slurm fields whose names or values the adapter does not list, or None if there are none."""

    @property
    def has_unusable_field(self) -> bool:
        """Return whether a field is unreadable or unknown."""
        return bool(self.unreadable or self.unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode(SlurmObject):
    """A node."""

    state: str = "UNKNOWN"
    """The state and its flags, such as "IDLE+DRAIN"."""
    total_cpus: int | None = None
    effective_cpus: int | None = None
    allocated_cpus: int | None = None
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    real_memory: int | None = None
    memory_reserved_for_system: int | None = None
    allocated_memory: int | None = None
    configured_gres: Mapping[str, int] | None = None
    allocated_tres: Mapping[str, object] | None = None
    """Amounts as numbers where possible."""
    used_gres: Mapping[str, int] | None = None
    """Generic resources in use, by name and type, or None if they were not read."""
    shared_gpus: SharedGpus | None = None
    """The GPUs that jobs may share, or None if there are none or Slurm does not show their state."""
    available_features: Sequence[str] | None = None
    active_features: Sequence[str] | None = None
    partitions: Sequence[str] | None = None
    slurm_version: str | None = None
    weight: int | None = None

    @property
    def has_gpu_types(self) -> bool:
        """Return whether the node has GPUs of several types."""
        return sum(name.startswith("gpu:") for name in self.configured_gres or ()) > 1

    @property
    def may_share_gpus(self) -> bool:
        """Return whether jobs may use parts of GPUs on the node."""
        return any(map(is_gpu_part, self.configured_gres or ()))

    @property
    def usable_memory(self) -> int:
        """Return the memory without the system's, which is negative for impossible settings."""
        return (self.real_memory or 0) - (self.memory_reserved_for_system or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPartition(SlurmObject):
    """A partition. A limit of None is unlimited, and a limit of 0 admits no job."""

    state: str | None = None
    nodes: str | None = None
    """Hostlist of the nodes."""
    max_time: int | None = None
    default_time: int | None = None
    max_nodes: int | None = None
    min_nodes: int | None = None
    priority_tier: int | None = None
    max_cpus_per_node: int | None = None
    max_cpus_per_socket: int | None = None
    max_memory_per_node: int | None = None
    max_memory_per_cpu: int | None = None
    oversubscribe: str | None = None
    """How jobs share nodes, in the form that Slurm releases before 26.05 print."""
    allowed_accounts: Sequence[str] | None = None
    denied_accounts: Sequence[str] | None = None
    allowed_qos: Sequence[str] | None = None
    denied_qos: Sequence[str] | None = None
    allowed_groups: Sequence[str] | None = None
    """["ALL"] or None if the list is not set."""
    is_root_only: bool | None = None
    is_user_exclusive: bool | None = None
    is_topology_exclusive: bool | None = None
    topology: str | None = None
    requires_reservation: bool | None = None
    job_defaults: str | None = None
    priority_factor: int | None = None
    qos: str | None = None
    """The QOS whose limits apply to the partition's jobs, or empty."""
    tres: Mapping[str, int] | None = None
    preempt_mode: PreemptMode | None = None
    """What happens to preempted jobs, or None for the cluster's mode."""
    grace_s: int | None = None

    @property
    def sharing(self) -> str:
        """Return `OverSubscribe` in upper case, such as "NO", "EXCLUSIVE" or "FORCE:4"."""
        return (self.oversubscribe or "NO").upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmReservation(SlurmObject):
    """A reservation."""

    nodes: str | None = None
    """Hostlist of the nodes."""
    cpu_ids_by_node: Mapping[str, str] | None = None
    """The reserved cores ("0-3,8") by node, or empty if whole nodes are reserved."""
    tres: Mapping[str, int] | None = None
    partition: str | None = None
    flags: Sequence[str] | None = ()
    """scontrol's flag names, or None if they cannot be read, such as a flag that the client library lacks."""
    start_time: int | None = None
    end_time: int | None = None
    users: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    accounts: Sequence[str] | None = None
    qos: Sequence[str] | None = None
    allowed_partitions: Sequence[str] | None = None
    licenses: Sequence[str] | None = None
    comment: str | None = None

    def with_strictest_values(self) -> SlurmReservation:
        """Return the reservation with the strictest values for unreadable fields.

        If its start or end is unreadable, the reservation counts as already begun or as never ending. If any field is
        unusable or a flag is unlisted, its flags count as unreadable.
        """
        unlisted = [flag for flag in self.flags or () if flag.partition("=")[0] not in RESERVATION_FLAGS]
        unknown = {**(self.unknown or {}), "flags": ",".join(unlisted)} if unlisted else self.unknown
        unreadable = self.unreadable or {}
        if not unreadable and not unknown:
            return self
        return replace(
            self,
            unknown=unknown,
            flags=None,
            start_time=0 if "start_time" in unreadable else self.start_time,
            end_time=NEVER_S if "end_time" in unreadable else self.end_time,
        )


@dataclass(frozen=True, slots=True)
class SlurmTopology:
    """A topology."""

    plugin: str = ""
    """The topology plugin, or empty if it accepts every set of nodes."""
    networks: Mapping[str, str] = field(default_factory=dict)
    """The topmost switch above each node, or the node's block, by node, or empty if unknown."""
    leaves: Mapping[str, int] = field(default_factory=dict)
    """The position of each node's leaf switch in Slurm's order, by node, or empty if unknown."""
    blocks: Mapping[str, int] = field(default_factory=dict)
    """The position of each node's base block in Slurm's order, by node, or empty if a node is in several."""
    block_count: int = 0
    """Number of base blocks, including those without nodes."""
    block_sizes: Sequence[int] = ()
    """Planned numbers of nodes of blocks in ascending order, base blocks first."""


RESERVATION_FLAGS = frozenset(
    {
        *(
            "ALL_NODES",
            "ANY",
            "ANY_NODES",
            "DAILY",
            "FLEX",
            "FORCE_START",
            "HOURLY",
            "IGNORE_JOBS",
            "MAGNETIC",
            "MAINT",
        ),
        *("NO_ANY_NODES", "NO_DAILY", "NO_HOLD_JOBS_AFTER_END", "NO_HOURLY", "NO_MAGNETIC", "NO_MAINT"),
        *("NO_PART_NODES", "NO_STATIC", "NO_USER_DELETE", "NO_WEEKLY", "OVERLAP", "PART_NODES", "PURGE_COMP"),
        *("REPLACE", "REPLACE_DOWN", "SPEC_NODES", "STATIC", "TIME_FLOAT", "USER_DELETE", "WEEKDAY", "WEEKEND"),
        "WEEKLY",
    }
)
"""All flags of reservations in Slurm 22.05 to 26.11 (`reservation_flags_string` in common/slurm_protocol_defs.c)."""
