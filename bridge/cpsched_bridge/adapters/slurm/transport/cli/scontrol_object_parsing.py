"""Parse nodes, partitions, reservations and the configuration from scontrol.

Only administrators write this text. A record of the first three kinds begins on a line with its name and consists of
`Name=value` fields. See `scontrol_field_uses`. An unreadable field is None and is listed in the record's `unreadable`.
It affects only this record.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.jobs import UNLIMITED
from cpsched.slurm_text.objects import SlurmNode, SlurmObject, SlurmPartition, SlurmReservation
from cpsched.slurm_text.option_lists import parse_config
from cpsched_bridge.adapters.slurm.translation import node_and_task_lists, slurm_states
from cpsched_bridge.adapters.slurm.transport.cli import slurm_output_values
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_field_uses import (
    MAX_QUOTED_CHARS,
    NODE,
    PARTITION,
    RESERVATION,
    KnownScontrolFields,
    Words,
)
from cpsched_bridge.errors import AnswerNotUnderstood

ObjectT = TypeVar("ObjectT", bound=SlurmObject)

NODES_COMMAND = ("scontrol", "--all", "show", "nodes")
PARTITIONS_COMMAND = ("scontrol", "--all", "show", "partitions")
RESERVATIONS_COMMAND = ("scontrol", "--all", "show", "reservations")
CONFIG_COMMAND = ("scontrol", "show", "config")
EMPTY_OUTPUTS = ("No reservations in the system", "No nodes in the system", "No partitions in the system")


def _split_object_records(printed: str, name: str) -> list[str]:
    """Return the text of each record in an answer.

    Each record begins with `name`, such as "NodeName". Raise `AnswerNotUnderstood` if the answer ends within a record
    or has an unexpected format.
    """
    if printed.strip() in ("", *EMPTY_OUTPUTS):
        return []
    beginning = f"\n{name}="
    before, *pieces = f"\n{printed}".split(beginning)
    if before.strip() or not pieces or not printed.endswith("\n\n"):
        raise AnswerNotUnderstood(f"scontrol: the output with {name} ({len(printed)} characters) is truncated")
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
    return None if word in (UNLIMITED, "INFINITE", "-1") else slurm_output_values.parse_number_or_none(word)


def _parse_partition_time_limit(word: str) -> int | None:
    """Return a time limit in minutes, or None if there is none."""
    limit = slurm_output_values.parse_time_limit(word)
    return limit if isinstance(limit, int) else None


def _parse_node_list(word: str) -> str | None:
    """Return a hostlist as printed. Raise `ValueError` if it is invalid."""
    node_and_task_lists.expand_hostlist(slurm_output_values.parse_text_or_none(word))
    return slurm_output_values.parse_text_or_none(word)


def _parse_names_or_all(word: str) -> list[str]:
    """Return a list of names, or ["ALL"] for an empty list in any printed form."""
    return ["ALL"] if word == "N/A" or slurm_output_values.parse_text_or_none(word) is None else word.split(",")


def _parse_allocated_tres(word: str) -> dict[str, Any]:
    """Return the amounts in a list such as "cpu=4,mem=4000M".

    They are numbers where possible.
    """
    pairs = [item.partition("=") for item in word.split(",") if "=" in item]
    return {name: int(amount) if amount.isdigit() else amount for name, _, amount in pairs}


_NODE_FIELD_PARSERS: dict[str, Callable[[Words], Any]] = {
    "name": lambda words: words["NodeName"],
    "state": lambda words: words["State"],
    "total_cpus": lambda words: int(words["CPUTot"]),
    "effective_cpus": lambda words: int(words.get("CPUEfctv", words["CPUTot"])),
    "allocated_cpus": lambda words: int(words["CPUAlloc"]),
    "sockets": lambda words: slurm_output_values.parse_nonzero_or_none(words.get("Sockets", "0")),
    "cores_per_socket": lambda words: slurm_output_values.parse_nonzero_or_none(words.get("CoresPerSocket", "0")),
    "threads_per_core": lambda words: slurm_output_values.parse_nonzero_or_none(words["ThreadsPerCore"]),
    "real_memory": lambda words: slurm_output_values.parse_nonzero_or_none(words["RealMemory"]),
    "memory_reserved_for_system": lambda words: slurm_output_values.parse_nonzero_or_none(
        words.get("MemSpecLimit", "0")
    ),
    "allocated_memory": lambda words: int(words["AllocMem"]),
    "configured_gres": lambda words: slurm_output_values.parse_gres_counts(words["Gres"]),
    "allocated_tres": lambda words: _parse_allocated_tres(words["AllocTRES"]),
    "active_features": lambda words: slurm_output_values.parse_names(words["ActiveFeatures"]),
    "partitions": lambda words: slurm_output_values.parse_names(words.get("Partitions", "")),
    "slurm_version": lambda words: slurm_output_values.parse_text_or_none(words.get("Version", "")),
    "weight": lambda words: slurm_output_values.parse_number_or_none(words.get("Weight", "")),
}


@dataclass(slots=True)
class CachingNodeParser:
    """A parser of nodes that does not parse the text of an unchanged node again."""

    _known: dict[str, SlurmNode] = field(default_factory=dict)

    def read(self, printed: str) -> list[SlurmNode]:
        """Return the nodes in `printed`."""
        texts = _split_object_records(printed, "NodeName")
        self._known = {text: self._known.get(text) or _parse_node(text) for text in texts}
        return [self._known[text] for text in texts]


def parse_nodes(printed: str) -> list[SlurmNode]:
    """Return the nodes in `printed`."""
    return CachingNodeParser().read(printed)


def _parse_node(text: str) -> SlurmNode:
    node = _parse_object(SlurmNode, NODE.parse_fields(text), _NODE_FIELD_PARSERS, NODE)
    node = slurm_states.mark_unusable_node(node)
    cpus = node.effective_cpus or 0
    idle = cpus - (node.allocated_cpus or 0)
    if node.has_unusable_field or idle in (0, cpus):
        return node
    _, *flags = node.state.split("+")
    # scontrol itself prints this, unless the node's state has changed since
    return dataclasses.replace(node, state="+".join(("MIXED", *flags)))


_PARTITION_FIELD_PARSERS: dict[str, Callable[[Words], Any]] = {
    "name": lambda words: words["PartitionName"],
    "state": lambda words: words["State"],
    "nodes": lambda words: _parse_node_list(words["Nodes"]),
    "max_time": lambda words: _parse_partition_time_limit(words["MaxTime"]),
    "default_time": lambda words: _parse_partition_time_limit(words["DefaultTime"]),
    "max_nodes": lambda words: _parse_limit(words["MaxNodes"]),
    "min_nodes": lambda words: _parse_limit(words["MinNodes"]),
    "priority_tier": lambda words: slurm_output_values.parse_number_or_none(words.get("PriorityTier", "")),
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
    "is_root_only": lambda words: slurm_output_values.parse_flag(words["RootOnly"]),
    "is_user_exclusive": lambda words: words.get("ExclusiveUser") == "YES" or words.get("Exclusive") == "USER",
    "is_topology_exclusive": lambda words: words.get("ExclusiveTopo") == "YES" or words.get("Exclusive") == "TOPO",
    "topology": lambda words: slurm_output_values.parse_text_or_none(words.get("Topology", "")),
    "requires_reservation": lambda words: slurm_output_values.parse_flag(words["ReqResv"]),
    "job_defaults": lambda words: slurm_output_values.parse_text_or_none(words.get("JobDefaults", "")),
}


def _normalize_partition_oversubscribe(values: Words) -> str:
    """Return how jobs share nodes, in the form that Slurm releases before 26.05 print.

    Release 26.05 has a separate field for whole nodes.
    """
    return "EXCLUSIVE" if values.get("Exclusive") in ("NODE", "TOPO") else values["OverSubscribe"]


def parse_partitions(printed: str) -> list[SlurmPartition]:
    """Return the partitions in `printed`."""
    return [
        _parse_object(SlurmPartition, PARTITION.parse_fields(text), _PARTITION_FIELD_PARSERS, PARTITION)
        for text in _split_object_records(printed, "PartitionName")
    ]


_CORES = re.compile(r"^     NodeName=(\S+) CoreIDs=(\S*) *$", re.MULTILINE)
"""Pattern of the line that a reservation of cores has for each of its nodes."""

_RESERVATION_FIELD_PARSERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "name": lambda words: words["ReservationName"],
    "nodes": lambda words: _parse_node_list(words["Nodes"]),
    "cpu_ids_by_node": lambda words: words["CoreIDs"],
    "tres": lambda words: slurm_output_values.parse_tres_amounts(words.get("TRES", "")),
    "partition": lambda words: slurm_output_values.parse_text_or_none(words.get("PartitionName", "")),
    "flags": lambda words: slurm_output_values.parse_names(words.get("Flags", "")),
    "start_time": lambda words: slurm_output_values.parse_nonzero_or_none(words["StartTime"]),
    "end_time": lambda words: slurm_output_values.parse_nonzero_or_none(words["EndTime"]),
    "users": lambda words: slurm_output_values.parse_names(words["Users"]),
    "groups": lambda words: slurm_output_values.parse_names(words.get("Groups", "")),
    "accounts": lambda words: slurm_output_values.parse_names(words["Accounts"]),
    "qos": lambda words: slurm_output_values.parse_names(words.get("QOS", "")),
    "allowed_partitions": lambda words: slurm_output_values.parse_names(words.get("AllowedPartitions", "")),
    "licenses": lambda words: slurm_output_values.parse_names(words.get("Licenses", "")),
    "comment": lambda words: slurm_output_values.parse_text_or_none(words.get("Comment", words.get("BurstBuffer", ""))),
}


def parse_reservations(printed: str) -> list[SlurmReservation]:
    """Return the reservations in `printed`.

    The burst buffer's text replaces a missing comment.
    """
    return [_parse_reservation(text) for text in _split_object_records(printed, "ReservationName")]


def _parse_reservation(text: str) -> SlurmReservation:
    """Return one reservation.

    Only core lists above the TRES line are read, because lines in the comment may look like core lists.
    """
    above = text.partition("\n   TRES=")[0]
    values = {**RESERVATION.parse_fields(text), "CoreIDs": dict(_CORES.findall(above))}
    reservation = _parse_object(SlurmReservation, values, _RESERVATION_FIELD_PARSERS, RESERVATION)
    return reservation.with_strictest_values()


def _parse_upper_names(word: str) -> list[str]:
    return [] if word in ("none", "(null)", "") else word.upper().split(",")


_CONFIG_FIELD_PARSERS: dict[str, Callable[[Words], Any]] = {
    "accounting_storage_enforce": lambda words: _parse_upper_names(words["AccountingStorageEnforce"]),
    "accounting_storage_tres": lambda words: slurm_output_values.parse_names(words["AccountingStorageTRES"]),
    "accounting_storage_type": lambda words: slurm_output_values.parse_text_or_none(words["AccountingStorageType"]),
    "cluster_name": lambda words: slurm_output_values.parse_text_or_none(words["ClusterName"]),
    "gres_types": lambda words: slurm_output_values.parse_names(words["GresTypes"]),
    "job_defaults": lambda words: slurm_output_values.parse_text_or_none(words.get("JobDefaults", "")),
    "job_submit_plugins": lambda words: slurm_output_values.parse_names(words["JobSubmitPlugins"]),
    "min_job_age": lambda words: slurm_output_values.parse_nonzero_or_none(words["MinJobAge"].split()[0]),
    "preempt_mode": lambda words: slurm_output_values.parse_text_or_none(words["PreemptMode"]),
    "preempt_type": lambda words: _parse_preempt_type(words["PreemptType"]),
    "priority_site_factor_plugin": lambda words: slurm_output_values.parse_text_or_none(
        words.get("PrioritySiteFactorPlugin", "")
    ),
    "priority_type": lambda words: slurm_output_values.parse_text_or_none(words.get("PriorityType", "")),
    "scheduler_parameters": lambda words: words["SchedulerParameters"],
    "scheduler_type": lambda words: slurm_output_values.parse_text_or_none(words["SchedulerType"]),
    "select_type": lambda words: slurm_output_values.parse_text_or_none(words["SelectType"]),
    "select_type_parameters": lambda words: slurm_output_values.parse_names(words["SelectTypeParameters"]),
    "slurm_user_name": lambda words: words["SlurmUser"].partition("(")[0],
    "topology_parameters": lambda words: slurm_output_values.parse_names(words.get("TopologyParam", "")),
    "topology_plugin": lambda words: slurm_output_values.parse_text_or_none(words.get("TopologyPlugin", "")),
    "version": lambda words: slurm_output_values.parse_text_or_none(words["SLURM_VERSION"]),
}


def _parse_preempt_type(word: str) -> str | None:
    """Return the preemption plugin, or None if there is none.

    Releases before 23.11 print "preempt/none".
    """
    return None if word == "preempt/none" else slurm_output_values.parse_text_or_none(word)


def parse_controller_config(printed: str) -> SlurmConfig:
    """Return the configuration in `printed`.

    Raise `AnswerNotUnderstood` if a setting is unreadable.
    """
    values: Words = parse_config(printed)
    settings: dict[str, Any] = {}
    for name, parse in _CONFIG_FIELD_PARSERS.items():
        try:
            settings[name] = parse(values)
        except (KeyError, ValueError, IndexError) as error:
            raise AnswerNotUnderstood(
                f"scontrol show config: {name} cannot be read: {type(error).__name__}: {error}"
            ) from error
    return SlurmConfig(**settings)
