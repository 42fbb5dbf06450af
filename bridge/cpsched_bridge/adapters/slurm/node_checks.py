"""What the doctor says of nodes that may leave the cluster, and of waiting jobs that name nodes which have left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from cpsched.errors import abbreviate
from cpsched_bridge.adapters.slurm.slurm_records import ClusterRecords, Record
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states, task_ranges
from cpsched_bridge.adapters.slurm.translation.unknown_nodes import LISTS
from cpsched_bridge.ports import Check

MOST_NAMED = 5
"""No check names more nodes or jobs than this."""
PASSING = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""Flags of nodes that come and go: of a cloud, or made by `scontrol create` or by a slurmd that registers itself."""


def node_checks(records: ClusterRecords) -> list[Check]:
    """The checks of one reading; none of them keeps the bridge from control."""
    found = [
        passing_nodes(records.nodes),
        sleeping_nodes(records.nodes),
        node_weights(records.nodes),
        reservations(records),
        node_lists(records),
    ]
    return [dataclasses.replace(check, mend="") if check.ok else check for check in found]


def passing_nodes(nodes: Iterable[Record]) -> Check:
    """A job that waits with a pin, or runs with one, is lost where its node leaves and slurmctld starts anew."""
    names = _flagged(nodes, PASSING)
    return Check(
        "dynamic nodes",
        not names,
        f"dynamic or cloud: {_some(names)}" if names else "no dynamic or cloud nodes",
        "drain such a node and wait until no job names it before it is deleted or leaves slurm.conf: "
        "Slurm gives up jobs that name it (safety page)",
        required=False,
    )


def sleeping_nodes(nodes: Iterable[Record]) -> Check:
    """The bridge starts jobs on nodes that are up; Slurm wakes nodes for jobs that it starts itself."""
    names = _flagged(nodes, slurm_states.POWER_FLAGS)
    return Check(
        "power saving",
        not names,
        f"switched off by Slurm: {_some(names)}" if names else "none switched off",
        "nothing has to be done: a job that fits only with such nodes is left to Slurm, which wakes them. To keep such "
        "jobs managed, exclude the nodes of managed partitions from power saving (SuspendExcParts)",
        required=False,
    )


def node_weights(nodes: Iterable[Record]) -> Check:
    """Slurm fills nodes of little weight first; a start of the bridge names its nodes."""
    weights = sorted({node.get("weight") or 1 for node in nodes})
    several = len(weights) > 1
    return Check(
        "node weights",
        not several,
        f"from {weights[0]} to {weights[-1]}: the bridge chooses nodes without them" if several else "all equal",
        "nothing has to be done; in control the dispatcher's choice counts",
        required=False,
        mode="control",
    )


def reservations(records: ClusterRecords) -> Check:
    """What the bridge leaves to Slurm for reservations."""
    found = [r for r in records.reservations if r.get("nodes")]
    odd = [r["name"] for r in found if r.get("flags", ()) is None]
    magnetic = [r["name"] for r in found if "MAGNETIC" in (r.get("flags") or ())]
    told = [f"magnetic, whose jobs are left to Slurm: {_some(magnetic)}"] if magnetic else []
    told += [f"with flags that cannot be read, closed as a whole: {_some(odd)}"] if odd else []
    return Check(
        "reservations",
        not told,
        "; ".join(told) or f"{len(found)}, all of them understood",
        "nothing has to be done: Slurm places the jobs that may use them",
        required=False,
    )


def node_lists(records: ClusterRecords) -> Check:
    """Slurm takes no change of a job whose list names a node that it does not know, also no release."""
    known = {node["name"] for node in records.nodes}
    found = [words for record in records.jobs if (words := _strange(record, known))]
    return Check(
        "node lists",
        not found,
        f"nodes that Slurm does not show: {_some(found, '; ')}" if found else "waiting jobs name known nodes only",
        "put the node back into slurm.conf (State=FUTURE will do) until the job is over or its list is changed: Slurm "
        "refuses to hold, release or change such a job, and ends one that asks for the node when slurmctld starts anew",
        required=False,
    )


def _strange(record: Record, known: set[str]) -> str:
    """A waiting job's nodes that Slurm does not show, in words; empty where there are none."""
    if record["state"] != slurm_states.PENDING:
        return ""
    lists = ((verb, task_ranges.expand_if_valid(record[field])) for field, verb in LISTS.items())
    parts = [f"{verb} {_some(lost)}" for verb, names in lists if (lost := [n for n in names if n not in known])]
    return (
        f"job {slurm_job_ids.label(slurm_job_ids.job_id_of_record(record))} of {record['user_name']} {', '.join(parts)}"
        if parts
        else ""
    )


def _flagged(nodes: Iterable[Record], flags: frozenset[str]) -> list[str]:
    return [node["name"] for node in nodes if not flags.isdisjoint(node["state"].upper().split("+")[1:])]


def _some(names: list[str], between: str = ", ") -> str:
    """A few of `names`, and how many more there are."""
    return abbreviate(names, MOST_NAMED, between)
