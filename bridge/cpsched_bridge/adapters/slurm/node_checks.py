"""Check for nodes that may disappear, and for jobs that name missing nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from cpsched.errors import abbreviate
from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states, task_ranges
from cpsched_bridge.adapters.slurm.translation.unknown_nodes import LISTS
from cpsched_bridge.ports import Check

MOST_NAMED = 5
"""Maximum number of nodes or jobs that a check names."""
PASSING = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""State flags of temporary nodes: cloud nodes, nodes created by `scontrol create`, and nodes registered by slurmd."""


def run_node_checks(records: SlurmRecords) -> list[Check]:
    """Return the node checks for one reading; control mode requires none of them."""
    found = [
        check_passing_nodes(records.nodes),
        check_sleeping_nodes(records.nodes),
        check_node_weights(records.nodes),
        check_reservations(records),
        check_node_lists(records),
    ]
    return [dataclasses.replace(check, mend="") if check.ok else check for check in found]


def check_passing_nodes(nodes: Iterable[Record]) -> Check:
    """Report dynamic nodes. If one disappears, a restart of slurmctld ends the jobs pinned to it."""
    names = _flagged(nodes, PASSING)
    return Check(
        "dynamic nodes",
        not names,
        f"dynamic or cloud: {_some(names)}" if names else "no dynamic or cloud nodes",
        "drain such a node and wait until no job names it before it is deleted or leaves slurm.conf: "
        "Slurm gives up jobs that name it (safety page)",
        required=False,
    )


def check_sleeping_nodes(nodes: Iterable[Record]) -> Check:
    """Report nodes that Slurm powered down. Slurm wakes them only for jobs that it places itself."""
    names = _flagged(nodes, slurm_states.POWER_FLAGS)
    return Check(
        "power saving",
        not names,
        f"switched off by Slurm: {_some(names)}" if names else "none switched off",
        "no action needed: a job that fits only with such nodes is left to Slurm, which wakes them. To keep such "
        "jobs managed, exclude the nodes of managed partitions from power saving (SuspendExcParts)",
        required=False,
    )


def check_node_weights(nodes: Iterable[Record]) -> Check:
    """Report differing node weights. The bridge chooses nodes itself and ignores weights."""
    weights = sorted({node.get("weight") or 1 for node in nodes})
    several = len(weights) > 1
    return Check(
        "node weights",
        not several,
        f"from {weights[0]} to {weights[-1]}: the bridge chooses nodes without them" if several else "all equal",
        "no action needed: in control mode, the dispatcher chooses the nodes",
        required=False,
        mode="control",
    )


def check_reservations(records: SlurmRecords) -> Check:
    """Report the reservations that make the bridge leave jobs to Slurm."""
    found = [r for r in records.reservations if r.get("nodes")]
    odd = [r["name"] for r in found if r.get("flags", ()) is None]
    magnetic = [r["name"] for r in found if "MAGNETIC" in (r.get("flags") or ())]
    told = [f"magnetic, whose jobs are left to Slurm: {_some(magnetic)}"] if magnetic else []
    told += [f"with flags that cannot be read, closed as a whole: {_some(odd)}"] if odd else []
    return Check(
        "reservations",
        not told,
        "; ".join(told) or f"{len(found)}, all of them understood",
        "no action needed: Slurm places the jobs that may use them",
        required=False,
    )


def check_node_lists(records: SlurmRecords) -> Check:
    """Report jobs whose node lists name unknown nodes.

    Slurm rejects every change to such a job, even a release.
    """
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
    """Return a description of the missing nodes that a pending job names; empty if there are none."""
    if record["state"] != slurm_states.PENDING:
        return ""
    lists = ((verb, task_ranges.expand_if_valid(record[field])) for field, verb in LISTS.items())
    parts = [f"{verb} {_some(lost)}" for verb, names in lists if (lost := [n for n in names if n not in known])]
    return (
        f"job {slurm_job_ids.format_job_id(slurm_job_ids.job_id_of_record(record))} of {record['user_name']} {', '.join(parts)}"  # noqa: E501
        if parts
        else ""
    )


def _flagged(nodes: Iterable[Record], flags: frozenset[str]) -> list[str]:
    return [node["name"] for node in nodes if not flags.isdisjoint(node["state"].upper().split("+")[1:])]


def _some(names: list[str], between: str = ", ") -> str:
    """Return the first of `names` joined by `between`, followed by the number of names left out."""
    return abbreviate(names, MOST_NAMED, between)
