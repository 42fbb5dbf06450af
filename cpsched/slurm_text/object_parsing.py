"""Parse nodes, partitions, reservations and topologies, as `scontrol show` prints them.

Only administrators write this text. A record of the first three kinds begins on a line with its name and consists of
`Name=value` fields. See `known_fields`. An unreadable field has its default and is listed in the record's `unreadable`.
It affects only this record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from cpsched.errors import UnreadableOutput
from cpsched.slurm_text.gres import parse_shared_gpus
from cpsched.slurm_text.hostlist import expand_hostlist, expand_hostlist_or_empty
from cpsched.slurm_text.jobs import UNLIMITED
from cpsched.slurm_text.known_fields import (
    MAX_QUOTED_CHARS,
    NODE,
    PARTITION,
    RESERVATION,
    KnownScontrolFields,
    Words,
)
from cpsched.slurm_text.limits import parse_tres, parse_whole_number
from cpsched.slurm_text.objects import SlurmNode, SlurmObject, SlurmPartition, SlurmReservation, SlurmTopology
from cpsched.slurm_text.output_values import (
    parse_flag,
    parse_gres_counts,
    parse_names,
    parse_nonzero_or_none,
    parse_number_or_none,
    parse_text_or_none,
    parse_time_limit,
    parse_tres_amounts,
)
from cpsched.slurm_text.preemption import parse_preempt_mode

ObjectT = TypeVar("ObjectT", bound=SlurmObject)

NODES_COMMAND = ("scontrol", "--all", "show", "nodes")
NODE_DETAILS_COMMAND = ("scontrol", "--all", "--details", "show", "nodes")
"""Shows `GresUsed`, too, which takes slurmctld more time."""
PARTITIONS_COMMAND = ("scontrol", "--all", "show", "partitions")
RESERVATIONS_COMMAND = ("scontrol", "--all", "show", "reservations")
EMPTY_OUTPUTS = ("No reservations in the system", "No nodes in the system", "No partitions in the system")


class PrintedObject(NamedTuple):
    """The text of one object, and the number of its first line."""

    line: int
    text: str


def list_printed_objects(text: str, name: str) -> Iterator[PrintedObject]:
    """Yield the objects in a text from `scontrol show`, with or without `-o`. `name` is such as "NodeName"."""
    starts = [match.start() for match in re.finditer(f"^{name}=", text, re.MULTILINE)]
    line, before = 1, 0
    for start, end in pairwise([*starts, len(text)]):
        line += text.count("\n", before, start)
        before = start
        yield PrintedObject(line, text[start:end])


def split_output(printed: str, name: str) -> list[str]:
    """Return the text of each object in the whole output of `scontrol show` without `-o`.

    Raise `UnreadableOutput` if the output ends within an object or has an unexpected format.
    """
    if printed.strip() in ("", *EMPTY_OUTPUTS):
        return []
    beginning = f"\n{name}="
    before, *pieces = f"\n{printed}".split(beginning)
    if before.strip() or not pieces or not printed.endswith("\n\n"):
        raise UnreadableOutput(f"scontrol: the output with {name} ({len(printed)} characters) is truncated")
    return [f"{name}={piece}" for piece in pieces]


def _parse_object(
    kind: type[ObjectT],
    values: Mapping[str, Any],
    field_parsers: Mapping[str, Callable[[Any], Any]],
    known: KnownScontrolFields,
) -> ObjectT:
    """Return one object, including its `unreadable` and `unknown` fields."""
    fields: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for name, parse in field_parsers.items():
        try:
            fields[name] = parse(values)
        except KeyError as error:
            unreadable[name] = f"scontrol does not print {error.args[0]}"
        except (ValueError, IndexError) as error:
            unreadable[name] = str(error)[:MAX_QUOTED_CHARS]
    return kind(**fields, unreadable=unreadable or None, unknown=known.find_unsupported_fields(values) or None)


def _parse_limit(word: str) -> int | None:
    """Return a limit, or None if there is none. A limit of 0 admits no job."""
    return None if word in (UNLIMITED, "INFINITE", "-1") else parse_number_or_none(word)


def _parse_partition_time_limit(word: str) -> int | None:
    """Return a time limit in minutes, or None if there is none."""
    limit = parse_time_limit(word)
    return limit if isinstance(limit, int) else None


def _parse_node_list(word: str) -> str | None:
    """Return a hostlist as printed. Raise `ValueError` if it is invalid."""
    expand_hostlist(parse_text_or_none(word))
    return parse_text_or_none(word)


def _parse_text_or_empty(word: str) -> str:
    return "" if word in ("", "N/A", "(null)") else word


def _parse_names_or_all(word: str) -> list[str]:
    """Return a list of names, or ["ALL"] for an empty list in any printed form."""
    return ["ALL"] if word == "N/A" or parse_text_or_none(word) is None else word.split(",")


def _parse_allocated_tres(word: str) -> dict[str, Any]:
    """Return the amounts in a list such as "cpu=4,mem=4000M".

    They are numbers where possible.
    """
    pairs = [item.partition("=") for item in word.split(",") if "=" in item]
    return {name: int(amount) if amount.isdigit() else amount for name, _, amount in pairs}


_NODE_FIELD_PARSERS: dict[str, Callable[[Words], Any]] = {
    "name": lambda words: words["NodeName"],
    "state": lambda words: words["State"],
    "total_cpus": lambda words: parse_whole_number("CPUTot", words["CPUTot"]),
    "effective_cpus": lambda words: parse_whole_number("CPUEfctv", words.get("CPUEfctv", words["CPUTot"])),
    "allocated_cpus": lambda words: parse_whole_number("CPUAlloc", words["CPUAlloc"]),
    "sockets": lambda words: parse_nonzero_or_none(words.get("Sockets", "0")),
    "cores_per_socket": lambda words: parse_nonzero_or_none(words.get("CoresPerSocket", "0")),
    "threads_per_core": lambda words: parse_nonzero_or_none(words["ThreadsPerCore"]),
    "real_memory": lambda words: parse_nonzero_or_none(words["RealMemory"]),
    "memory_reserved_for_system": lambda words: parse_nonzero_or_none(words.get("MemSpecLimit", "0")),
    "allocated_memory": lambda words: int(words["AllocMem"]),
    "configured_gres": lambda words: parse_gres_counts(words.get("Gres", "")),
    "allocated_tres": lambda words: _parse_allocated_tres(words["AllocTRES"]),
    "used_gres": lambda words: parse_gres_counts(words.get("GresUsed", "")) or None,
    "shared_gpus": lambda words: parse_shared_gpus(words.get("GresUsed", "")),
    "available_features": lambda words: parse_names(words.get("AvailableFeatures", "")),
    "active_features": lambda words: parse_names(words["ActiveFeatures"]),
    "partitions": lambda words: parse_names(words.get("Partitions", "")),
    "slurm_version": lambda words: parse_text_or_none(words.get("Version", "")),
    "weight": lambda words: parse_number_or_none(words.get("Weight", "")),
}


def parse_nodes(printed: str) -> list[SlurmNode]:
    """Return the nodes in the whole output of `scontrol show nodes`."""
    return [parse_node(text) for text in split_output(printed, "NodeName")]


def parse_node(text: str) -> SlurmNode:
    """Return one node."""
    return _parse_object(SlurmNode, NODE.parse_fields(text), _NODE_FIELD_PARSERS, NODE)


_PARTITION_FIELD_PARSERS: dict[str, Callable[[Words], Any]] = {
    "name": lambda words: words["PartitionName"],
    "state": lambda words: words["State"],
    "nodes": lambda words: _parse_node_list(words["Nodes"]),
    "max_time": lambda words: _parse_partition_time_limit(words["MaxTime"]),
    "default_time": lambda words: _parse_partition_time_limit(words["DefaultTime"]),
    "max_nodes": lambda words: _parse_limit(words["MaxNodes"]),
    "min_nodes": lambda words: _parse_limit(words["MinNodes"]),
    "priority_tier": lambda words: parse_whole_number("PriorityTier", words.get("PriorityTier", ""), 1),
    "max_cpus_per_node": lambda words: _parse_limit(words["MaxCPUsPerNode"]),
    "max_cpus_per_socket": lambda words: _parse_limit(words.get("MaxCPUsPerSocket", UNLIMITED)),
    "max_memory_per_node": lambda words: _parse_limit(words.get("MaxMemPerNode", "")),
    "max_memory_per_cpu": lambda words: _parse_limit(words.get("MaxMemPerCPU", "")),
    "oversubscribe": lambda words: _normalize_partition_oversubscribe(words),
    "allowed_accounts": lambda words: _parse_names_or_all(words.get("AllowAccounts", "")),
    "denied_accounts": lambda words: _parse_names_or_all(words.get("DenyAccounts", "")),
    "allowed_qos": lambda words: _parse_names_or_all(words.get("AllowQos", "")),
    "denied_qos": lambda words: _parse_names_or_all(words.get("DenyQos", "")),
    "allowed_groups": lambda words: _parse_names_or_all(words["AllowGroups"]),
    "is_root_only": lambda words: parse_flag(words["RootOnly"]),
    "is_user_exclusive": lambda words: words.get("ExclusiveUser") == "YES" or words.get("Exclusive") == "USER",
    "is_topology_exclusive": lambda words: words.get("ExclusiveTopo") == "YES" or words.get("Exclusive") == "TOPO",
    "topology": lambda words: parse_text_or_none(words.get("Topology", "")),
    "requires_reservation": lambda words: parse_flag(words["ReqResv"]),
    "job_defaults": lambda words: parse_text_or_none(words.get("JobDefaults", "")),
    "priority_factor": lambda words: parse_whole_number("PriorityJobFactor", words.get("PriorityJobFactor", ""), 1),
    "qos": lambda words: _parse_text_or_empty(words.get("QoS", "")),
    "tres": lambda words: parse_tres(_parse_text_or_empty(words.get("TRES", ""))),
    "preempt_mode": lambda words: parse_preempt_mode(words.get("PreemptMode", "")),
    "grace_s": lambda words: parse_whole_number("GraceTime", words.get("GraceTime", "")),
}


def _normalize_partition_oversubscribe(values: Words) -> str:
    """Return how jobs share nodes, in the form that Slurm releases before 26.05 print.

    Release 26.05 has a separate field for whole nodes.
    """
    return "EXCLUSIVE" if values.get("Exclusive") in ("NODE", "TOPO") else values["OverSubscribe"]


def parse_partitions(printed: str) -> list[SlurmPartition]:
    """Return the partitions in the whole output of `scontrol show partitions`."""
    return [parse_partition(text) for text in split_output(printed, "PartitionName")]


def parse_partition(text: str) -> SlurmPartition:
    """Return one partition."""
    return _parse_object(SlurmPartition, PARTITION.parse_fields(text), _PARTITION_FIELD_PARSERS, PARTITION)


_CORES = re.compile(r"^     NodeName=(\S+) CoreIDs=(\S*) *$", re.MULTILINE)
"""Pattern of the line that a reservation of cores has for each of its nodes."""

_RESERVATION_FIELD_PARSERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "name": lambda words: words["ReservationName"],
    "nodes": lambda words: _parse_node_list(words["Nodes"]),
    "cpu_ids_by_node": lambda words: words["CoreIDs"],
    "tres": lambda words: parse_tres_amounts(words.get("TRES", "")),
    "partition": lambda words: parse_text_or_none(words.get("PartitionName", "")),
    "flags": lambda words: parse_names(words.get("Flags", "")),
    "start_time": lambda words: parse_nonzero_or_none(words["StartTime"]),
    "end_time": lambda words: parse_nonzero_or_none(words["EndTime"]),
    "users": lambda words: parse_names(words["Users"]),
    "groups": lambda words: parse_names(words.get("Groups", "")),
    "accounts": lambda words: parse_names(words["Accounts"]),
    "qos": lambda words: parse_names(words.get("QOS", "")),
    "allowed_partitions": lambda words: parse_names(words.get("AllowedPartitions", "")),
    "licenses": lambda words: parse_names(words.get("Licenses", "")),
    "comment": lambda words: parse_text_or_none(words.get("Comment", words.get("BurstBuffer", ""))),
}


def parse_reservations(printed: str) -> list[SlurmReservation]:
    """Return the reservations in `printed`.

    The burst buffer's text replaces a missing comment.
    """
    return [_parse_reservation(text) for text in split_output(printed, "ReservationName")]


def _parse_reservation(text: str) -> SlurmReservation:
    """Return one reservation.

    Only core lists above the TRES line are read, because lines in the comment may look like core lists.
    """
    above = text.partition("\n   TRES=")[0]
    values = {**RESERVATION.parse_fields(text), "CoreIDs": dict(_CORES.findall(above))}
    reservation = _parse_object(SlurmReservation, values, _RESERVATION_FIELD_PARSERS, RESERVATION)
    return reservation.with_strictest_values()


_SWITCH_OR_BLOCK = re.compile(r"^(SwitchName|BlockName|AggregatedBlock)=(\S+)((?: \S+=\S*)*) *$", re.MULTILINE)
_VALUE = re.compile(r" (Nodes|Switches|BlockSize)=(\S+)")


class _TopologyUnit(NamedTuple):
    """A switch, a base block or a block of several base blocks, with its hostlists."""

    kind: str
    name: str
    nodes: str | None
    switches: str | None
    size: int = 0


def parse_topology(plugin: str, printed: str) -> SlurmTopology:
    """Return the topology in the output of `scontrol show topology`."""
    units = []
    for kind, name, rest in _SWITCH_OR_BLOCK.findall(printed):
        values = dict(_VALUE.findall(rest))
        size = parse_number_or_none(values.get("BlockSize", "")) or 0
        units.append(_TopologyUnit(kind, name, values.get("Nodes"), values.get("Switches"), size))
    base_blocks = [unit for unit in units if unit.kind == "BlockName"]
    sizes = tuple(sorted({unit.size for unit in units} - {0}))
    lower_units = [unit for unit in units if unit.kind != "AggregatedBlock"]
    return SlurmTopology(
        plugin,
        _find_networks(lower_units),
        _find_leaf_switches(lower_units),
        _find_base_blocks(base_blocks),
        len(base_blocks),
        sizes,
    )


def _find_base_blocks(blocks: Sequence[_TopologyUnit]) -> dict[str, int]:
    """Return the position of each node's base block, or {} if a node is in several."""
    nodes = [(node, at) for at, unit in enumerate(blocks) for node in expand_hostlist_or_empty(unit.nodes)]
    return dict(nodes) if len(dict(nodes)) == len(nodes) else {}


def _find_networks(units: Sequence[_TopologyUnit]) -> dict[str, str]:
    """Return the topmost switch above each node, or its block, by node.

    A node below several topmost switches, or in several blocks, is omitted.
    """
    lower_switches = {name for unit in units for name in expand_hostlist_or_empty(unit.switches)}
    networks: dict[str, str] = {}
    for unit in units:
        if unit.kind == "BlockName" or unit.name not in lower_switches:
            for node in expand_hostlist_or_empty(unit.nodes):
                networks[node] = "" if node in networks else unit.name
    return {node: name for node, name in networks.items() if name}


def _find_leaf_switches(units: Sequence[_TopologyUnit]) -> dict[str, int]:
    """Return the position of each node's leaf switch by node.

    A node below several leaf switches is omitted.
    """
    leaves: dict[str, int] = {}
    for at, unit in enumerate(units):
        is_leaf = unit.kind == "SwitchName" and unit.switches is None
        for node in expand_hostlist_or_empty(unit.nodes) if is_leaf else ():
            leaves[node] = -1 if node in leaves else at
    return {node: at for node, at in leaves.items() if at >= 0}
