"""Parse nodes, partitions, reservations and the configuration from `scontrol` output.

Administrators write all of this text. Each record of the first three kinds begins on a line with its name and consists
of `Name=value` fields, see `known_fields`. An unreadable field is None and is named in the record's `unreadable`; it
affects only this record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cpsched_bridge.adapters.slurm.slurm_records import (
    CONFIG_FIELDS,
    NODE_FIELDS,
    PARTITION_FIELDS,
    RESERVATION_FIELDS,
    Record,
    is_unusable,
    to_closed_node,
    to_closed_reservation,
)
from cpsched_bridge.adapters.slurm.translation import task_ranges
from cpsched_bridge.adapters.slurm.transport.cli import slurm_value_parsers
from cpsched_bridge.adapters.slurm.transport.cli.known_fields import (
    LONGEST_VALUE,
    NODE,
    PARTITION,
    RESERVATION,
    KnownScontrolFields,
    Words,
)
from cpsched_bridge.errors import AnswerNotUnderstood

NODES = ("scontrol", "--all", "show", "nodes")
PARTITIONS = ("scontrol", "--all", "show", "partitions")
RESERVATIONS = ("scontrol", "--all", "show", "reservations")
CONFIG = ("scontrol", "show", "config")
NOTHING = ("No reservations in the system", "No nodes in the system", "No partitions in the system")

_SETTING = re.compile(r"^([A-Za-z_]+) *= ?(.*)$", re.MULTILINE)


def _texts(printed: str, name: str) -> list[str]:
    """Return the text of each record in an answer; each begins with `name`, such as "NodeName".

    Raise `AnswerNotUnderstood` if the answer ends within a record, or has another form.
    """
    if printed.strip() in ("", *NOTHING):
        return []
    beginning = f"\n{name}="
    before, *pieces = f"\n{printed}".split(beginning)
    if before.strip() or not pieces or not printed.endswith("\n\n"):
        raise AnswerNotUnderstood(f"scontrol: its answer with {name} of {len(printed)} signs ends early")
    return [f"{name}={piece}" for piece in pieces]


def _read(
    text: str, fields: Sequence[str], how: Mapping[str, Callable[[Words], Any]], known: KnownScontrolFields
) -> Record:
    """Return one record, with its `unreadable` fields and the fields `unknown` to the lists."""
    return _read_words(known.parse_fields(text), fields, how, known)


def _read_words(
    words: Mapping[str, Any], fields: Sequence[str], how: Mapping[str, Callable[[Any], Any]], known: KnownScontrolFields
) -> Record:
    record: Record = dict.fromkeys(fields)
    unreadable: dict[str, str] = {}
    for name, read in how.items():
        try:
            record[name] = read(words)
        except KeyError as error:
            unreadable[name] = f"scontrol shows no {error.args[0]}"
        except (ValueError, IndexError) as error:
            unreadable[name] = str(error)[:LONGEST_VALUE]
    return record | {"unreadable": unreadable or None, "unknown": known.find_unsupported(words) or None}


def _limit(word: str) -> int | str | None:
    """Return a limit as a number; None for 0 or if not set, "UNLIMITED" for infinity."""
    return (
        slurm_value_parsers.UNLIMITED
        if word in (slurm_value_parsers.UNLIMITED, "INFINITE", "-1")
        else slurm_value_parsers.parse_count(word)
    )


def _time_limit(word: str) -> int | str | None:
    return (
        slurm_value_parsers.UNLIMITED
        if word in (slurm_value_parsers.UNLIMITED, "INFINITE")
        else slurm_value_parsers.parse_minutes(word)
    )


def _at_least(word: str) -> int | str | None:
    return (
        slurm_value_parsers.UNLIMITED
        if word == slurm_value_parsers.UNLIMITED
        else slurm_value_parsers.parse_number(word)
    )


def _nodes(word: str) -> str | None:
    """Return a hostlist as printed; raise `ValueError` if it is invalid."""
    task_ranges.expand_hostlist(slurm_value_parsers.parse_text(word))
    return slurm_value_parsers.parse_text(word)


def _everybody(word: str) -> list[str]:
    """Return a list of names; ["ALL"] if none is set, in any printed form."""
    return ["ALL"] if word == "N/A" or slurm_value_parsers.parse_text(word) is None else word.split(",")


def _amounts(word: str) -> dict[str, Any]:
    """Return the amounts in a list such as "cpu=4,mem=4000M", as numbers where possible."""
    pairs = [item.partition("=") for item in word.split(",") if "=" in item]
    return {name: int(amount) if amount.isdigit() else amount for name, _, amount in pairs}


_NODE: dict[str, Callable[[Words], Any]] = {
    "name": lambda words: words["NodeName"],
    "state": lambda words: words["State"],
    "effective_cpus": lambda words: int(words.get("CPUEfctv", words["CPUTot"])),
    "allocated_cpus": lambda words: int(words["CPUAlloc"]),
    "threads_per_core": lambda words: slurm_value_parsers.parse_count(words["ThreadsPerCore"]),
    "real_memory": lambda words: slurm_value_parsers.parse_count(words["RealMemory"]),
    "memory_reserved_for_system": lambda words: slurm_value_parsers.parse_count(words.get("MemSpecLimit", "0")),
    "allocated_memory": lambda words: int(words["AllocMem"]),
    "configured_gres": lambda words: slurm_value_parsers.parse_gres_counts(words["Gres"]),
    "allocated_tres": lambda words: _amounts(words["AllocTRES"]),
    "active_features": lambda words: slurm_value_parsers.parse_names(words["ActiveFeatures"]),
    "partitions": lambda words: slurm_value_parsers.parse_names(words.get("Partitions", "")),
    "slurm_version": lambda words: slurm_value_parsers.parse_text(words.get("Version", "")),
    "weight": lambda words: slurm_value_parsers.parse_number(words.get("Weight", "")),
}


@dataclass(slots=True)
class NodeRecordBuilder:
    """A builder of node records; the record of an unchanged node stays the same object."""

    _known: dict[str, Record] = field(default_factory=dict)

    def read(self, printed: str) -> list[Record]:
        """Return the nodes in `printed` as records of `NODE_FIELDS`."""
        texts = _texts(printed, "NodeName")
        self._known = {text: self._known.get(text) or _node(text) for text in texts}
        return [self._known[text] for text in texts]


def parse_nodes(printed: str) -> list[Record]:
    """Return the nodes in `printed` as records of `NODE_FIELDS`."""
    return NodeRecordBuilder().read(printed)


def _node(text: str) -> Record:
    record = to_closed_node(_read(text, NODE_FIELDS, _NODE, NODE))
    if is_unusable(record):
        return record
    idle = record["effective_cpus"] - record["allocated_cpus"]
    base, *flags = record["state"].split("+")
    if idle and idle != record["effective_cpus"]:
        base = "MIXED"  # as scontrol itself reports, unless the node's state has changed since
    return record | {"state": "+".join((base, *flags))}


_PARTITION: dict[str, Callable[[Words], Any]] = {
    "name": lambda words: words["PartitionName"],
    "state": lambda words: words["State"],
    "nodes": lambda words: _nodes(words["Nodes"]),
    "max_time": lambda words: _time_limit(words["MaxTime"]),
    "default_time": lambda words: _time_limit(words["DefaultTime"]),
    "max_nodes": lambda words: _limit(words["MaxNodes"]),
    "min_nodes": lambda words: _at_least(words["MinNodes"]),
    "max_cpus_per_node": lambda words: _limit(words["MaxCPUsPerNode"]),
    "max_cpus_per_socket": lambda words: _limit(words.get("MaxCPUsPerSocket", slurm_value_parsers.UNLIMITED)),
    "max_memory_per_node": lambda words: _limit(words.get("MaxMemPerNode", "0")),
    "max_memory_per_cpu": lambda words: _limit(words.get("MaxMemPerCPU", "0")),
    "oversubscribe": lambda words: _sharing(words),
    "allowed_accounts": lambda words: _everybody(words.get("AllowAccounts", "")),
    "denied_accounts": lambda words: _everybody(words.get("DenyAccounts", "")),
    "allowed_qos": lambda words: _everybody(words.get("AllowQos", "")),
    "denied_qos": lambda words: _everybody(words.get("DenyQos", "")),
    "allowed_groups": lambda words: _everybody(words["AllowGroups"]),
    "is_root_only": lambda words: slurm_value_parsers.parse_flag(words["RootOnly"]),
    "is_user_exclusive": lambda words: words.get("ExclusiveUser") == "YES" or words.get("Exclusive") == "USER",
    "is_topology_exclusive": lambda words: words.get("ExclusiveTopo") == "YES" or words.get("Exclusive") == "TOPO",
    "topology": lambda words: slurm_value_parsers.parse_text(words.get("Topology", "")),
    "requires_reservation": lambda words: slurm_value_parsers.parse_flag(words["ReqResv"]),
    "job_defaults": lambda words: slurm_value_parsers.parse_text(words.get("JobDefaults", "")),
}


def _sharing(words: Words) -> str:
    """Return how jobs share nodes, as Slurm releases before 26.05 print it.

    Release 26.05 has a separate field for whole nodes.
    """
    return "EXCLUSIVE" if words.get("Exclusive") in ("NODE", "TOPO") else words["OverSubscribe"]


def parse_partitions(printed: str) -> list[Record]:
    """Return the partitions in `printed` as records of `PARTITION_FIELDS`."""
    return [_read(text, PARTITION_FIELDS, _PARTITION, PARTITION) for text in _texts(printed, "PartitionName")]


_CORES = re.compile(r"^     NodeName=(\S+) CoreIDs=(\S*) *$", re.MULTILINE)
"""Pattern of the line that a reservation of cores has for each of its nodes."""

_RESERVATION: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "name": lambda words: words["ReservationName"],
    "nodes": lambda words: _nodes(words["Nodes"]),
    "cpu_ids_by_node": lambda words: words["CoreIDs"],
    "tres": lambda words: slurm_value_parsers.parse_resources(words.get("TRES", "")),
    "partition": lambda words: slurm_value_parsers.parse_text(words.get("PartitionName", "")),
    "flags": lambda words: slurm_value_parsers.parse_names(words.get("Flags", "")),
    "start_time": lambda words: slurm_value_parsers.parse_count(words["StartTime"]),
    "end_time": lambda words: slurm_value_parsers.parse_count(words["EndTime"]),
    "users": lambda words: slurm_value_parsers.parse_names(words["Users"]),
    "groups": lambda words: slurm_value_parsers.parse_names(words.get("Groups", "")),
    "accounts": lambda words: slurm_value_parsers.parse_names(words["Accounts"]),
    "qos": lambda words: slurm_value_parsers.parse_names(words.get("QOS", "")),
    "allowed_partitions": lambda words: slurm_value_parsers.parse_names(words.get("AllowedPartitions", "")),
    "comment": lambda words: slurm_value_parsers.parse_text(words.get("Comment", words.get("BurstBuffer", ""))),
}


def parse_reservations(printed: str) -> list[Record]:
    """Return the reservations in `printed` as records of `RESERVATION_FIELDS`.

    The burst buffer's text replaces a missing comment.
    """
    return [_reservation(text) for text in _texts(printed, "ReservationName")]


def _reservation(text: str) -> Record:
    """Return the record of one reservation.

    Lines in its comment that look like cores are ignored, because the comment follows the true ones.
    """
    above = text.partition("\n   TRES=")[0]
    words = {**RESERVATION.parse_fields(text), "CoreIDs": dict(_CORES.findall(above))}
    return to_closed_reservation(_read_words(words, RESERVATION_FIELDS, _RESERVATION, RESERVATION))


def _parameters(word: str) -> dict[str, Any]:
    if slurm_value_parsers.parse_text(word) is None:
        return {}
    pairs = [item.partition("=") for item in word.split(",")]
    return {name: (int(value) if value.isdigit() else value) if equals else True for name, equals, value in pairs}


def _upper(word: str) -> list[str]:
    return [] if word in ("none", "(null)", "") else word.upper().split(",")


_CONFIG: dict[str, Callable[[Words], Any]] = {
    "accounting_storage_enforce": lambda words: _upper(words["AccountingStorageEnforce"]),
    "accounting_storage_tres": lambda words: slurm_value_parsers.parse_names(words["AccountingStorageTRES"]),
    "accounting_storage_type": lambda words: slurm_value_parsers.parse_text(words["AccountingStorageType"]),
    "cluster_name": lambda words: slurm_value_parsers.parse_text(words["ClusterName"]),
    "gres_types": lambda words: slurm_value_parsers.parse_names(words["GresTypes"]),
    "job_defaults": lambda words: slurm_value_parsers.parse_text(words.get("JobDefaults", "")),
    "job_submit_plugins": lambda words: slurm_value_parsers.parse_names(words["JobSubmitPlugins"]),
    "min_job_age": lambda words: slurm_value_parsers.parse_count(words["MinJobAge"].split()[0]),
    "preempt_mode": lambda words: slurm_value_parsers.parse_text(words["PreemptMode"]),
    "preempt_type": lambda words: _preempt_type(words["PreemptType"]),
    "priority_site_factor_plugin": lambda words: slurm_value_parsers.parse_text(
        words.get("PrioritySiteFactorPlugin", "")
    ),
    "priority_type": lambda words: slurm_value_parsers.parse_text(words.get("PriorityType", "")),
    "scheduler_parameters": lambda words: _parameters(words["SchedulerParameters"]),
    "scheduler_type": lambda words: slurm_value_parsers.parse_text(words["SchedulerType"]),
    "select_type": lambda words: slurm_value_parsers.parse_text(words["SelectType"]),
    "select_type_parameters": lambda words: slurm_value_parsers.parse_names(words["SelectTypeParameters"]),
    "slurm_user_name": lambda words: words["SlurmUser"].partition("(")[0],
    "topology_parameters": lambda words: slurm_value_parsers.parse_names(words.get("TopologyParam", "")),
    "topology_plugin": lambda words: slurm_value_parsers.parse_text(words.get("TopologyPlugin", "")),
    "version": lambda words: slurm_value_parsers.parse_text(words["SLURM_VERSION"]),
}


def _preempt_type(word: str) -> str | None:
    """Return the preemption plugin, or None if there is none.

    Releases before 23.11 print "preempt/none".
    """
    return None if word == "preempt/none" else slurm_value_parsers.parse_text(word)


def parse_config(printed: str) -> Record:
    """Return the configuration in `printed` as a record of `CONFIG_FIELDS`.

    Raise `AnswerNotUnderstood` if a field is unreadable.
    """
    words: Words = {}
    for name, value in _SETTING.findall(printed):
        words.setdefault(name, value.rstrip())
    record: Record = {}
    for field_name in CONFIG_FIELDS:
        try:
            record[field_name] = _CONFIG[field_name](words)
        except (KeyError, ValueError, IndexError) as error:
            raise AnswerNotUnderstood(
                f"scontrol show config: {field_name} cannot be read: {type(error).__name__}: {error}"
            ) from error
    return record
