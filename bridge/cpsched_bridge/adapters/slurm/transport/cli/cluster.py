"""Nodes, partitions, reservations and the configuration as `scontrol` prints them; administrators write all of it.

Records of the first three begin at a line with their name, and are words `Name=value`; where a name stands twice in a
record, the first one counts, since what administrators write freely (reasons, comments) comes last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cpsched_bridge.adapters.slurm.records import (
    CONFIG_FIELDS,
    NODE_FIELDS,
    PARTITION_FIELDS,
    RESERVATION_FIELDS,
    Record,
)
from cpsched_bridge.adapters.slurm.transport.cli import wording
from cpsched_bridge.errors import BackendUnavailable

NODES = ("scontrol", "--all", "show", "nodes")
PARTITIONS = ("scontrol", "--all", "show", "partitions")
RESERVATIONS = ("scontrol", "--all", "show", "reservations")
CONFIG = ("scontrol", "show", "config")
NOTHING = ("No reservations in the system", "No nodes in the system", "No partitions in the system")

_SETTING = re.compile(r"^([A-Za-z_]+) *= ?(.*)$", re.MULTILINE)
_WORD = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w:/-]*)=(\S*)")

Words = dict[str, str]


def records_in(printed: str, name: str) -> list[Words]:
    """The records of an answer as their words; a record begins with `name`, such as "NodeName".

    Raises `BackendUnavailable` where the answer ends within a record, or is something else.
    """
    return [_words(text) for text in _texts(printed, name)]


def _texts(printed: str, name: str) -> list[str]:
    """The records of an answer, see `records_in`."""
    if printed.strip() in ("", *NOTHING):
        return []
    beginning = f"\n{name}="
    before, *pieces = f"\n{printed}".split(beginning)
    if before.strip() or not pieces or not printed.endswith("\n\n"):
        raise BackendUnavailable(f"scontrol: its answer with {name} of {len(printed)} signs ends early")
    return [f"{name}={piece}" for piece in pieces]


def _words(text: str) -> Words:
    words: Words = {}
    for key, value in _WORD.findall(text):
        words.setdefault(key, value)
    return words


def _read(words: Words, fields: Sequence[str], how: dict[str, Callable[[Words], Any]], what: str) -> Record:
    try:
        return {field: how[field](words) for field in fields}
    except (KeyError, ValueError) as error:
        raise BackendUnavailable(f"scontrol: {what} cannot be read: {type(error).__name__}: {error}") from error


def _limit(word: str) -> int | str | None:
    """A limit as a number; 0 and what is not set are none, infinity is "UNLIMITED"."""
    return wording.UNLIMITED if word in (wording.UNLIMITED, "INFINITE", "-1") else wording.count(word)


def _time_limit(word: str) -> int | str | None:
    return wording.UNLIMITED if word in (wording.UNLIMITED, "INFINITE") else wording.minutes(word)


def _at_least(word: str) -> int | str | None:
    return wording.UNLIMITED if word == wording.UNLIMITED else wording.number(word)


def _everybody(word: str | None) -> list[str]:
    return ["ALL"] if word is None or wording.text(word) is None else word.split(",")


def _amounts(word: str) -> dict[str, Any]:
    """ "cpu=4,mem=4000M" with numbers as such, and other amounts as they are printed."""
    pairs = [item.partition("=") for item in word.split(",") if "=" in item]
    return {name: int(amount) if amount.isdigit() else amount for name, _, amount in pairs}


_NODE: dict[str, Callable[[Words], Any]] = {
    "name": lambda words: words["NodeName"],
    "state": lambda words: words["State"],
    "effective_cpus": lambda words: int(words.get("CPUEfctv", words["CPUTot"])),
    "allocated_cpus": lambda words: int(words["CPUAlloc"]),
    "threads_per_core": lambda words: wording.count(words["ThreadsPerCore"]),
    "real_memory": lambda words: wording.count(words["RealMemory"]),
    "memory_reserved_for_system": lambda words: wording.count(words.get("MemSpecLimit", "0")),
    "allocated_memory": lambda words: int(words["AllocMem"]),
    "configured_gres": lambda words: wording.gres(words["Gres"]),
    "allocated_tres": lambda words: _amounts(words["AllocTRES"]),
    "active_features": lambda words: wording.names(words["ActiveFeatures"]),
    "partitions": lambda words: wording.names(words.get("Partitions", "")),
    "slurm_version": lambda words: wording.text(words.get("Version", "")),
}


@dataclass(slots=True)
class NodeRecords:
    """Makes records of nodes; one that is printed as in the answer before is the same object."""

    _known: dict[str, Record] = field(default_factory=dict)

    def read(self, printed: str) -> list[Record]:
        """Records of `NODE_FIELDS`."""
        texts = _texts(printed, "NodeName")
        self._known = {text: self._known.get(text) or _node(_words(text)) for text in texts}
        return [self._known[text] for text in texts]


def nodes(printed: str) -> list[Record]:
    """Records of `NODE_FIELDS`."""
    return NodeRecords().read(printed)


def _node(words: Words) -> Record:
    record = _read(words, NODE_FIELDS, _NODE, f"node {words.get('NodeName')}")
    idle = record["effective_cpus"] - record["allocated_cpus"]
    base, *flags = record["state"].split("+")
    if idle and idle != record["effective_cpus"]:
        base = "MIXED"  # as scontrol itself says, unless the node's state has changed meanwhile
    return record | {"state": "+".join((base, *flags))}


_PARTITION: dict[str, Callable[[Words], Any]] = {
    "name": lambda words: words["PartitionName"],
    "state": lambda words: words["State"],
    "nodes": lambda words: wording.text(words["Nodes"]),
    "max_time": lambda words: _time_limit(words["MaxTime"]),
    "default_time": lambda words: _time_limit(words["DefaultTime"]),
    "max_nodes": lambda words: _limit(words["MaxNodes"]),
    "min_nodes": lambda words: _at_least(words["MinNodes"]),
    "max_cpus_per_node": lambda words: _limit(words["MaxCPUsPerNode"]),
    "max_cpus_per_socket": lambda words: _limit(words.get("MaxCPUsPerSocket", wording.UNLIMITED)),
    "max_memory_per_node": lambda words: _limit(words.get("MaxMemPerNode", "0")),
    "max_memory_per_cpu": lambda words: _limit(words.get("MaxMemPerCPU", "0")),
    "oversubscribe": lambda words: words["OverSubscribe"],
    "allowed_accounts": lambda words: _everybody(words.get("AllowAccounts")),
    "denied_accounts": lambda words: _everybody(words.get("DenyAccounts")),
    "allowed_qos": lambda words: _everybody(words.get("AllowQos")),
    "denied_qos": lambda words: _everybody(words.get("DenyQos")),
    "allowed_groups": lambda words: _everybody(words["AllowGroups"]),
    "is_root_only": lambda words: wording.flag(words["RootOnly"]),
    "is_user_exclusive": lambda words: words.get("ExclusiveUser") == "YES" or words.get("Exclusive") == "USER",
    "requires_reservation": lambda words: wording.flag(words["ReqResv"]),
}


def partitions(printed: str) -> list[Record]:
    """Records of `PARTITION_FIELDS`."""
    found = records_in(printed, "PartitionName")
    return [_read(words, PARTITION_FIELDS, _PARTITION, f"partition {words.get('PartitionName')}") for words in found]


_RESERVATION: dict[str, Callable[[Words], Any]] = {
    "name": lambda words: words["ReservationName"],
    "nodes": lambda words: wording.text(words["Nodes"]),
    "start_time": lambda words: wording.count(words["StartTime"]),
    "end_time": lambda words: wording.count(words["EndTime"]),
    "users": lambda words: wording.names(words["Users"]),
    "accounts": lambda words: wording.names(words["Accounts"]),
    "comment": lambda words: wording.text(words.get("Comment", words.get("BurstBuffer", ""))),
}


def reservations(printed: str) -> list[Record]:
    """Records of `RESERVATION_FIELDS`; of a comment the first word, and where there is none, the burst buffer's."""
    found = records_in(printed, "ReservationName")
    return [_read(w, RESERVATION_FIELDS, _RESERVATION, f"reservation {w.get('ReservationName')}") for w in found]


def _parameters(word: str) -> dict[str, Any]:
    if wording.text(word) is None:
        return {}
    pairs = [item.partition("=") for item in word.split(",")]
    return {name: (int(value) if value.isdigit() else value) if equals else True for name, equals, value in pairs}


def _upper(word: str) -> list[str]:
    return [] if word in ("none", "(null)", "") else word.upper().split(",")


_CONFIG: dict[str, Callable[[Words], Any]] = {
    "accounting_storage_enforce": lambda words: _upper(words["AccountingStorageEnforce"]),
    "accounting_storage_tres": lambda words: wording.names(words["AccountingStorageTRES"]),
    "accounting_storage_type": lambda words: wording.text(words["AccountingStorageType"]),
    "cluster_name": lambda words: wording.text(words["ClusterName"]),
    "gres_types": lambda words: wording.names(words["GresTypes"]),
    "job_submit_plugins": lambda words: wording.names(words["JobSubmitPlugins"]),
    "min_job_age": lambda words: wording.count(words["MinJobAge"].split()[0]),
    "preempt_mode": lambda words: wording.text(words["PreemptMode"]),
    "preempt_type": lambda words: _preempt_type(words["PreemptType"]),
    "priority_site_factor_plugin": lambda words: wording.text(words.get("PrioritySiteFactorPlugin", "")),
    "priority_type": lambda words: wording.text(words.get("PriorityType", "")),
    "scheduler_parameters": lambda words: _parameters(words["SchedulerParameters"]),
    "scheduler_type": lambda words: wording.text(words["SchedulerType"]),
    "select_type": lambda words: wording.text(words["SelectType"]),
    "select_type_parameters": lambda words: wording.names(words["SelectTypeParameters"]),
    "slurm_user_name": lambda words: words["SlurmUser"].partition("(")[0],
    "version": lambda words: wording.text(words["SLURM_VERSION"]),
}


def _preempt_type(word: str) -> str | None:
    """ "preempt/none" before 23.11 is what later releases do not set."""
    return None if word == "preempt/none" else wording.text(word)


def config(printed: str) -> Record:
    """A record of `CONFIG_FIELDS`; `Configuration data as of` is the controller's clock, see `clock`."""
    words: Words = {}
    for name, value in _SETTING.findall(printed):
        words.setdefault(name, value.rstrip())
    return _read(words, CONFIG_FIELDS, _CONFIG, "the configuration")
