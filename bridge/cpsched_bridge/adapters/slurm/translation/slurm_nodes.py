"""Translate Slurm's nodes into a table of names, capacities and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cpsched.errors import join_abbreviated
from cpsched.model import BlockTopology, BoolArray, IntArray
from cpsched.model.gpu_parts import node_amounts, whole_gpus_resource_name
from cpsched.model.value_bounds import AMOUNT_BOUND
from cpsched.slurm_text.configuration import SelectRules, SlurmConfig
from cpsched.slurm_text.gres import is_gpu_part
from cpsched.slurm_text.hostlist import expand_hostlist, expand_hostlist_or_empty
from cpsched.slurm_text.objects import SlurmNode, SlurmTopology
from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled
from cpsched_bridge.adapters.shared.node_table import CORES, FIRST_OTHER_RESOURCE, MEMORY, ConfiguredNodeTable
from cpsched_bridge.adapters.slurm.translation.gres_counts import Amounts, parse_gres_amounts, parse_no_consume_amounts

FLAT_TOPOLOGIES = frozenset({"", "topology/flat", "topology/none", "topology/default"})
"""Topology plugins that reject no set of nodes."""
BLOCK_PLUGIN = "topology/block"
TOPOLOGIES_WITH_ANY_NODE = frozenset(f"topology/{name}" for name in ("tree", "block", "ring", "3d_torus", "hypercube"))
"""Topology plugins that accept any single node. topology/torus3d accepts only its own placements."""


MAX_BLOCK_WIDTH = 1 << 15
"""Maximum number of base blocks in a block (`MAX_BLOCK_LEVELS` in topology/block/block_record.h)."""


def find_restricting_topology_plugins(config: SlurmConfig, named: Mapping[str, str]) -> dict[str, str]:
    """Return topology plugins by topology name.

    A plugin is "" if it accepts every set of nodes.
    The name "" is for partitions that name no topology. `named` contains the topologies in topology.yaml, with the
    default first. If that file exists, Slurm ignores TopologyPlugin, but `scontrol show config` still prints it. With
    TopoOptional, topology/tree decides only for jobs that request it.
    """
    words = {word.lower() for word in config.topology_parameters or ()}
    optional = {"topology/tree"} if "topooptional" in words else set()
    default = next(iter(named.values()), config.topology_plugin or "")
    plugins = {"": default, **(named or {"default": default})}
    return {name: "" if plugin in FLAT_TOPOLOGIES | optional else plugin for name, plugin in plugins.items()}


@dataclass(frozen=True, slots=True)
class Topology:
    """A topology, whose plugin is empty if every set of nodes is accepted."""

    plugin: str
    networks: tuple[str, ...] = ()
    """The topmost switch above each node, or the node's block, or empty if unknown."""
    leaves: tuple[int, ...] = ()
    """The position of each node's leaf switch in Slurm's order, or () if unknown for any node."""
    blocks: BlockTopology | None = None
    """The blocks, or None if unknown."""

    @classmethod
    def of_nodes(cls, topology: SlurmTopology, names: Sequence[str]) -> Topology:
        """Return the topology of these nodes."""
        leaves = tuple(topology.leaves[name] for name in names if name in topology.leaves)
        networks = tuple(topology.networks.get(name, "") for name in names)
        return cls(topology.plugin, networks, leaves if len(leaves) == len(names) else (), _get_blocks(topology, names))


def _get_blocks(topology: SlurmTopology, names: Sequence[str]) -> BlockTopology | None:
    """Return the blocks of these nodes, or None if they are unknown.

    Slurm refuses sizes other than powers of two of the first (`_list_to_bitmap` in topology/block/block_record.c).
    """
    widths = [size // topology.block_sizes[0] for size in topology.block_sizes]
    if not topology.blocks or not widths or max(widths) > MAX_BLOCK_WIDTH:
        return None
    positions = tuple(topology.blocks.get(name, -1) for name in names)
    return BlockTopology(positions, topology.block_sizes[0], sum(widths), topology.block_count)


class PartitionCpusPerNodeLimit(NamedTuple):
    """A partition's limits on CPUs per node and socket, and its nodes (hostlist)."""

    cpus: int | None
    cpus_per_socket: int | None
    nodes: str | None

    def on_node(self, node: SlurmNode) -> int:
        """Return how many of a node's CPUs jobs may use, in whole cores."""
        core, cpus = count_cpus_per_core(node), node.effective_cpus or 0
        in_sockets = (self.cpus_per_socket or cpus) // core * core * (node.sockets or 1)
        most = cpus if self.cpus is None else self.cpus
        return min(cpus, most // core * core, in_sockets)


def count_cpus_per_core(node: SlurmNode) -> int:
    """Return how many CPUs Slurm allocates with each core of a node.

    Slurm allocates threads only if the node has more CPUs than cores (`_init_node_record` in src/common/node_conf.c).
    Many sites set `CPUs` to the number of cores although `ThreadsPerCore` is 2.
    """
    cores = (node.sockets or 0) * (node.cores_per_socket or 0)
    cpus = node.total_cpus or node.effective_cpus or 0
    return 1 if cores >= cpus else max(1, node.threads_per_core or 1)


NodeChoice = BoolArray | Sequence[int] | slice
"""A mask or indices of nodes."""
DEFAULT_RULES = SelectRules()
MAX_LISTED_NODES = 3
"""Maximum number of unknown nodes that a reason names."""
WEIGHT_RANGE = 1 << 32
"""Number of different weights, which Slurm stores in 32 bits."""
UNKNOWN_TOPOLOGY = Topology("unknown")
"""Placeholder for a named topology that Slurm has not shown yet."""


@dataclass(slots=True)
class SlurmNodeTable(ConfiguredNodeTable):
    """The nodes of the cluster as configured.

    `from_records` builds a table, which later readings of the same configuration reuse. Cores are Slurm's CPUs. The
    columns of generic resources follow the columns of cores and memory.
    """

    core_cpus: IntArray
    """CPUs of each node's cores, or of its sockets if Slurm allocates whole sockets, int64[N].

    Slurm allocates only multiples of these numbers.
    """
    ids_per_cpu: IntArray
    """Ids per CPU of each node in the layouts of jobs, int64[N].

    scontrol prints ids for all hardware threads of a core (`_threads_per_core` in src/scontrol/info_job.c).
    """
    features: dict[str, BoolArray]
    own_weights: IntArray
    """`Weight` of each node, int64[N]. `weights` also includes the nodes' wake-up ranks."""
    rules: SelectRules
    sockets: IntArray
    """Sockets of each node if Slurm allocates whole sockets, otherwise 0, int64[N].

    0 if jobs cannot use all CPUs of the sockets.
    """
    shares_gpus: BoolArray
    """Mask of the nodes on which jobs may share GPUs, bool[N]."""
    gpu_parts: dict[str, IntArray]
    """Parts of each GPU on each node, int64[N], or 0 if Slurm does not show their use, by generic resource."""
    shared: dict[str, IntArray]
    """Amounts on each node, int64[N], of generic resources that jobs share (`no_consume`), by name."""
    topologies: Mapping[str, Topology] = field(default_factory=dict)
    """Topologies by the name that partitions use. See `SlurmRecords.topologies`."""
    core_limits: Mapping[str, PartitionCpusPerNodeLimit] = field(default_factory=dict)
    """Limits on the total CPUs that a partition's jobs use on a node, by partition."""

    @classmethod
    def from_records(
        cls,
        nodes: Sequence[SlurmNode],
        rules: SelectRules = DEFAULT_RULES,
        previous: SlurmNodeTable | None = None,
        topologies: Mapping[str, SlurmTopology] | None = None,
        core_limits: Mapping[str, PartitionCpusPerNodeLimit] | None = None,
    ) -> SlurmNodeTable:
        """Return `previous` if it still matches the nodes, otherwise a new table.

        Names, capacities, features, weights, topologies and limits must be the same.
        """
        limits = core_limits or {}
        names = tuple(node.name for node in nodes)
        found = {name: Topology.of_nodes(each, names) for name, each in (topologies or {}).items()}
        leaves = found.get("", Topology("")).leaves
        blocks = dict.fromkeys(each.blocks for each in found.values() if each.blocks is not None)
        key = tuple(map(_get_node_key, nodes))
        same = previous is not None and previous.topologies == found and previous.core_limits == limits
        if previous is not None and same and previous.key == key:
            return previous
        gpu_parts = _count_gpu_parts(nodes)
        resources, capacity = _compute_capacities(nodes, rules.counts_memory, limits, gpu_parts)
        weights = np.array([_get_node_weight(node) for node in nodes], np.int64)
        shapes = [_get_socket_shape(node) if rules.whole_sockets else (0, count_cpus_per_core(node)) for node in nodes]
        sockets, core_cpus = np.array(shapes, np.int64).reshape(len(nodes), 2).T
        return cls(
            key=key,
            names=names,
            index={name: row for row, name in enumerate(names)},
            resources=resources,
            capacity=capacity,
            core_cpus=core_cpus,
            ids_per_cpu=np.array(
                [max(1, (node.threads_per_core or 1) // count_cpus_per_core(node)) for node in nodes], np.int64
            ),
            rules=rules,
            sockets=sockets,
            features=_mask_nodes_by_feature(nodes),
            shares_gpus=np.array([node.may_share_gpus for node in nodes], np.bool_),
            gpu_parts=gpu_parts,
            shared=_count_no_consume_gres(nodes),
            topologies=found,
            core_limits=limits,
            own_weights=weights,
            weights=weights if nodes else None,
            leaf_switches=np.array(leaves, np.int64) if leaves else None,
            block_topologies=tuple(blocks),
        )

    def set_weights_by_wakeup_rank(self, ranks: Sequence[int]) -> None:
        """Make `weights` order nodes by rank, and nodes of equal rank by `Weight`."""
        weights = self.own_weights + np.array(ranks, np.int64) * WEIGHT_RANGE
        if len(weights) and (self.weights is None or not np.array_equal(weights, self.weights)):
            self.weights, self._cluster = weights, None

    def topology(self, name: str | None) -> Topology:
        """Return the topology that a partition names, or the default topology."""
        return self.topologies.get(name or "", UNKNOWN_TOPOLOGY if name else Topology(""))

    def accepts_any_node_combination(self, mask: BoolArray, topology: Topology) -> bool:
        """Return whether Slurm accepts every combination of these nodes for a job.

        topology/tree rejects nodes without a common switch, and topology/block rejects nodes that do not fill blocks.
        Nodes below one switch, or in one block, are never rejected. Measured, and read in the source of 22.05 to 26.05.
        """
        if not topology.plugin:
            return True
        found = {network for network, ok in zip(topology.networks, mask, strict=False) if ok}
        return bool(topology.networks) and len(found) < 2 and "" not in found

    def mask_nodes_with_gpu_parts(self) -> BoolArray:
        """Return a mask of the nodes on which Slurm shows the parts of each GPU, bool[N]."""
        mask = np.zeros(len(self.names), np.bool_)
        for parts in self.gpu_parts.values():
            mask |= parts > 0
        return mask

    def gpu_columns(self) -> list[int]:
        """Return the columns for whole GPUs of any type."""
        return [column for column, name in enumerate(self.resources) if name.partition(":")[0] == "gpu"]

    def core_limit_column(self, partition: str | None) -> int | None:
        """Return the column for a partition's limit on CPUs per node, or None."""
        name = core_limit_resource_name(partition or "")
        return self.resources.index(name) if name in self.resources else None

    def to_amount_vector(
        self, cpus: int, memory_mib: int, gres: Mapping[str, int], partition: str | None = None
    ) -> tuple[int, ...] | None:
        """Return a job's amounts in the order of `resources`, without `shared` resources.

        `cpus` are whole cores. Return None if the cluster lacks one of the generic resources.
        """
        if self.core_limit_column(partition) is not None:
            gres = {**gres, core_limit_resource_name(partition or ""): cpus}
        for name, parts in self.gpu_parts.items():
            used = gres.get("gpu", 0) * int(parts.max()) + gres.get(name, 0)
            gres = {**gres, whole_gpus_resource_name(name): used}
        if any(name not in self.resources and name not in self.shared for name in gres):
            return None
        memory_mib = memory_mib if self.rules.counts_memory else 0
        return (
            cpus,
            memory_mib,
            *(gres.get(name, 0) for name in self.resources[FIRST_OTHER_RESOURCE:]),
        )

    def mask_nodes_with_no_consume_gres(self, gres: Amounts) -> BoolArray:
        """Return a mask of the nodes that have these `shared` resources, bool[N].

        Raise `JobNotModelled` if jobs use up a resource on other nodes, or if some nodes have less than requested.
        """
        mask = np.ones(len(self.names), np.bool_)
        for name, count in gres.items():
            if name in self.shared:
                have = self.shared[name]
                if name in self.resources or (count > have[have > 0]).any():
                    what = f"requests {name}, which jobs share"
                    raise JobNotModelled(what, f"{what} (no_consume) and whose amount differs between nodes")
                mask &= have > 0
        return mask

    def mask_nodes_with_memory_per_cpu(self, memory_mib: int) -> BoolArray:
        """Return a mask of the nodes that have this memory for each CPU, bool[N].

        `_job_count_bitmap` in select_linear.c multiplies a job's memory per CPU by all CPUs of the node.
        """
        return np.asarray(self.capacity[:, CORES] * memory_mib <= self.capacity[:, MEMORY], np.bool_)

    def round_up_to_cores(self, cpus: int, nodes: NodeChoice, tasks: int = 1) -> IntArray:
        """Return `cpus` rounded up to whole cores or sockets, as Slurm allocates them on each of `nodes`.

        Slurm distributes tasks over sockets cyclically by default, and allocates each socket that has a task
        (`_cyclic_sync_core_bitmap` in cons_tres/dist_tasks.c). With another distribution, or if fewer sockets are free,
        the job gets fewer sockets.
        """
        core_cpus = self.core_cpus[nodes]
        found: IntArray = np.maximum(-(-cpus // core_cpus), np.minimum(tasks, self.sockets[nodes])) * core_cpus
        return found


def _get_node_key(node: SlurmNode) -> tuple[object, ...]:
    return (
        node.name,
        node.total_cpus,
        node.effective_cpus,
        node.sockets,
        node.cores_per_socket,
        node.threads_per_core,
        node.real_memory,
        node.memory_reserved_for_system,
        tuple(sorted((node.configured_gres or {}).items())),
        tuple(node.active_features or ()),
        node.has_unusable_field,
        _get_node_weight(node),
        node.shared_gpus and (node.shared_gpus.name, node.shared_gpus.parts, len(node.shared_gpus.used)),
    )


def _get_socket_shape(node: SlurmNode) -> tuple[int, int]:
    """Return the sockets, and the CPUs per socket.

    If jobs cannot use all CPUs of the sockets, return 0, and the CPUs per core.
    """
    sockets, core_cpus = node.sockets or 0, count_cpus_per_core(node)
    cpus = (node.cores_per_socket or 0) * core_cpus
    is_whole = cpus > 0 and sockets * cpus == (node.effective_cpus or 0)
    return (sockets, cpus) if is_whole else (0, core_cpus)


def _get_node_weight(node: SlurmNode) -> int:
    """Return the node's `Weight`, which is 1 by default, as in slurm.conf."""
    return 1 if node.weight is None else min(max(0, int(node.weight)), WEIGHT_RANGE - 1)


def core_limit_resource_name(partition: str) -> str:
    """Return the name of the resource that counts the CPUs of a partition's jobs."""
    return f"cores@{partition}"


def _count_gpu_parts(nodes: Sequence[SlurmNode]) -> dict[str, IntArray]:
    found: dict[str, IntArray] = {}
    for row, node in enumerate(nodes):
        gpus = parse_gres_amounts(node.configured_gres or {}).get("gpu")
        if node.shared_gpus is not None and len(node.shared_gpus.used) == gpus:
            parts = found.setdefault(node.shared_gpus.name, np.zeros(len(nodes), np.int64))
            parts[row] = node.shared_gpus.parts
    return found


def _add_gpu_parts(amounts: Amounts, row: int, gpu_parts: Mapping[str, IntArray]) -> None:
    """Replace a node's shards and MPS by the amounts of `cpsched.model.gpu_parts`."""
    gpus = amounts.get("gpu", 0)
    amounts.update({name: 0 for name in amounts if is_gpu_part(name)})
    for name, parts in gpu_parts.items():
        found = node_amounts(name, gpus, int(parts[row]), int(parts.max()))
        typed = {key: found.get(name, 0) for key in amounts if key.partition(":")[0] == name}
        amounts.update({**typed, **found})


def _compute_capacities(
    nodes: Sequence[SlurmNode],
    counts_memory: bool,
    core_limits: Mapping[str, PartitionCpusPerNodeLimit],
    gpu_parts: Mapping[str, IntArray],
) -> tuple[tuple[str, ...], IntArray]:
    """Return the names of the resources, and their amounts by node, int64[N, R].

    `MaxCPUsPerNode` limits the CPUs that all jobs of a partition use on a node, so it is a separate resource. A new job
    may use up to `MaxCPUsPerSocket` on each socket where others do not reach it (`_allocate_sc` in
    cons_tres/job_test.c). So a job fits if all jobs together use at most this number times the number of sockets.

    A node with impossible amounts (such as more reserved memory than present) or with an unusable field has capacity 0.
    Jobs that fit only on nodes with capacity 0 are left to Slurm.
    """
    gres = [parse_gres_amounts(node.configured_gres or {}) for node in nodes]
    for row, amounts in enumerate(gres):
        _add_gpu_parts(amounts, row, gpu_parts)
    for partition, limit in core_limits.items():
        members = set(expand_hostlist_or_empty(limit.nodes))
        for node, amounts in zip(nodes, gres, strict=True):
            if node.name in members:
                amounts[core_limit_resource_name(partition)] = limit.on_node(node)
    resources = ("cores", "memory_mib", *sorted({name for amounts in gres for name in amounts}))
    capacity = np.zeros((len(nodes), len(resources)), np.int64)
    for row, (node, amounts) in enumerate(zip(nodes, gres, strict=True)):
        memory_mib = node.usable_memory if counts_memory else 0
        found = {"cores": node.effective_cpus or 0, "memory_mib": memory_mib, **amounts}
        if not node.has_unusable_field and all(0 <= amount < AMOUNT_BOUND for amount in found.values()):
            capacity[row] = [found.get(name, 0) for name in resources]
    return resources, capacity


def _count_no_consume_gres(nodes: Sequence[SlurmNode]) -> dict[str, IntArray]:
    found: dict[str, IntArray] = {}
    for row, node in enumerate(nodes):
        for name, count in (
            parse_no_consume_amounts(node.configured_gres or {}).items() if not node.has_unusable_field else ()
        ):
            found.setdefault(name, np.zeros(len(nodes), np.int64))[row] = min(count, AMOUNT_BOUND)
    return found


def _mask_nodes_by_feature(nodes: Sequence[SlurmNode]) -> dict[str, BoolArray]:
    """Return a mask of the nodes with each feature, bool[N], by feature."""
    features: dict[str, BoolArray] = {}
    for row, node in enumerate(nodes):
        for feature in node.active_features or ():
            features.setdefault(feature, np.zeros(len(nodes), np.bool_))[row] = True
    return features


def describe_unknown_nodes(verb: str, nodes: str, machine: SlurmNodeTable) -> str | None:
    """Describe the unknown nodes in a list that a job requests or excludes, or return None if all nodes exist.

    Slurm rejects every change to a job that requests or excludes such a node: a hold, a release, another list, an empty
    list. Once the node is back, the job can be changed again. If `ReqNodeList` contains the node, slurmctld ends the
    job as NODE_FAIL when it restarts. Measured on Slurm 26.05, and read in the source of 24.11 (`_update_job`,
    `_sync_detail_bitmaps`).

    Raise `ValueError` if the list cannot be read.
    """
    names = [name for name in expand_hostlist(nodes) if name not in machine.index]
    return f"{verb} {join_abbreviated(names, MAX_LISTED_NODES)}, which the cluster does not have" if names else None
