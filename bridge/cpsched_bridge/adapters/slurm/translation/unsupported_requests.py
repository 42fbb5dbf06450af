"""Detect requests that only Slurm can place.

The bridge leaves such jobs to Slurm and reports why. Slurm's fields are named as in
`cpsched_bridge.adapters.slurm.slurm_records`. Slurm's own reasons for a pending job, such as `Licenses`, are in
`pending_reasons`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from cpsched.model import PendingReason
from cpsched_bridge.adapters.shared.job_not_modelled import JobNotModelled
from cpsched_bridge.adapters.slurm.slurm_records import Record

NOT_MODELLED_FIELDS = {
    "heterogeneous_id": "is a heterogeneous job",
    "reservation": "requests a reservation",
    "preferred_features": "prefers features",
    "burst_buffer": "requests a burst buffer",
    "network": "requests network resources",
    "deadline": "has a deadline",
    "time_limit_min": "has a minimum time limit",
    "requires_contiguous_nodes": "requests contiguous nodes",
    "requires_node_reboot": "requests a reboot of its nodes",
    "spreads_over_nodes": "requests to be spread over nodes",
    "required_switches": "requests a maximum number of switches",
    "segment_size": "requests topology segments",
    "extra": "filters nodes by --extra (extra_constraints)",
    "node_counts": "lists several numbers of nodes",
    "cores_reserved_for_system": "requests core specialisation",
    "threads_reserved_for_system": "requests core specialisation",
    "boards_per_node": "requests a number of boards per node",
    "sockets_per_board": "requests a number of sockets per board",
    "sockets_per_node": "requests a number of sockets per node",
    "cores_per_socket": "requests a number of cores per socket",
    "threads_per_core": "requests a number of threads per core",
    "ntasks_per_board": "requests a number of tasks per board",
    "ntasks_per_socket": "requests a number of tasks per socket",
    "ntasks_per_core": "requests a number of tasks per core",
    "ntasks_per_gpu": "requests a number of tasks per GPU",
    "tres_per_socket": "requests resources per socket",
    "temporary_disk_per_node": "requests local disk",
    "cluster_constraints": "requests cluster features",
    "mcs_label": "uses multi-category security",
    "is_cronjob": "is a scrontab job",
}
"""Fields that cause a job to be left to Slurm if they are set, with the reason."""
ENFORCED_BINDING = "enforce-binding"
"""`gres_binding` of a job with `--gres-flags=enforce-binding`, which ENFORCE_BINDING_GRES makes the default."""

ONE_TASK_PER_CORE = "ntasks_per_core", 1
"""A field and its value that have no effect on nodes whose cores have one CPU.

Slurm shows it for every job if `SelectTypeParameters` contains CR_ONE_TASK_PER_CORE.
"""
_LICENSE = re.compile(r"([\w.@/+-]+)(?:[:=](\d{1,9}))?", re.ASCII)


def parse_requested_licenses(licenses: Sequence[str] | None) -> dict[str, int] | None:
    """Return the number of each license that a job requests or that a reservation holds.

    Return None for alternative licenses or node licenses.
    """
    found: dict[str, int] = {}
    for text in licenses or ():
        match = _LICENSE.fullmatch(text)
        if match is None:
            return None
        found[match[1]] = found.get(match[1], 0) + int(match[2] or 1)
    return found


def count_held_licenses(record: Record) -> dict[str, int]:
    """Return the licenses that a job with nodes may hold. Of alternatives, it may hold each."""
    found: dict[str, int] = {}
    for text in record.get("licenses") or ():
        for match in filter(None, map(_LICENSE.fullmatch, text.split("|"))):
            found[match[1]] = found.get(match[1], 0) + int(match[2] or 1)
    return found


def find_uncounted_licenses_reason(record: Record, known: Collection[str]) -> PendingReason | None:
    """Return why a job's licenses require Slurm to place it.

    Return None if all of them are `known`.
    """
    asked = parse_requested_licenses(record["licenses"])
    if asked is None:
        return JobNotModelled("requests alternative licenses").reason
    unknown = [name for name in asked if name not in known]
    what = f"requests licenses whose number is unknown: {', '.join(unknown)}"
    return JobNotModelled("requests licenses", what).reason if unknown else None


class JobNeverFits(JobNotModelled):
    """An error for a job that does not fit on the bridge's model of an empty machine."""


def require_supported_request(record: Record) -> None:
    """Raise `JobNotModelled` for a request that only Slurm can place."""
    if record["unreadable"]:
        raise JobNotModelled("cannot be read", f"cannot be read: {', '.join(record['unreadable'])}")
    for name, reason in NOT_MODELLED_FIELDS.items():
        if record[name] and record[name] != "UNLIMITED" and (name, record[name]) != ONE_TASK_PER_CORE:
            raise JobNotModelled(reason)
    if (
        record["gres_binding"] == ENFORCED_BINDING
        and record["requested_tres"]
        and any(name.startswith("gres/") for name in record["requested_tres"])
    ):
        raise JobNotModelled("requests generic resources on the sockets of its CPUs")
    if record["cpus_per_task"] is None:
        raise JobNotModelled("requests CPUs per GPU")
    if record["resource_sharing"] not in ("OK", "NO", "YES", None):
        raise JobNotModelled(f"requests nodes that are exclusive per {str(record['resource_sharing']).lower()}")
