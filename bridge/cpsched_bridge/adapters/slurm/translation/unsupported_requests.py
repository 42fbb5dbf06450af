"""Detect requests that only Slurm can place.

The bridge leaves such jobs to Slurm and reports why. Slurm's fields are named as in
`cpsched_bridge.adapters.slurm.slurm_records`. Slurm's own reasons for a pending job, such as `Licenses`, are rows of
`pending_reasons`.
"""

from __future__ import annotations

from cpsched_bridge.adapters.shared.not_modelled import JobNotModelled
from cpsched_bridge.adapters.slurm.slurm_records import Record

NOT_MODELLED = {
    "heterogeneous_id": "heterogeneous job",
    "reservation": "asks for a reservation",
    "preferred_features": "prefers features",
    "licenses": "asks for licenses",
    "burst_buffer": "asks for a burst buffer",
    "network": "asks for network resources",
    "deadline": "has a deadline",
    "time_limit_min": "has a minimum time limit",
    "requires_contiguous_nodes": "asks for contiguous nodes",
    "requires_node_reboot": "asks for a reboot of its nodes",
    "spreads_over_nodes": "asks to be spread over nodes",
    "required_switches": "asks for a number of switches",
    "segment_size": "asks for segments of the topology",
    "cores_reserved_for_system": "core specialisation",
    "threads_reserved_for_system": "core specialisation",
    "boards_per_node": "asks for a layout of boards",
    "sockets_per_board": "asks for a layout of sockets",
    "sockets_per_node": "asks for a layout of sockets",
    "cores_per_socket": "asks for a layout of sockets",
    "threads_per_core": "asks for a layout of threads",
    "ntasks_per_board": "tasks per board",
    "ntasks_per_socket": "tasks per socket",
    "ntasks_per_core": "tasks per core",
    "ntasks_per_gpu": "tasks per GPU",
    "tres_per_socket": "resources per socket",
    "temporary_disk_per_node": "asks for local disk",
    "cluster_constraints": "asks for other clusters",
    "mcs_label": "multi-category security",
    "is_cronjob": "scrontab job",
}
"""Fields that leave a job to Slurm if they are set, with the reason."""


class JobNeverFits(JobNotModelled):
    """An error for a job that does not fit on the empty machine, according to the bridge's model."""


def require_supported(record: Record) -> None:
    """Raise `JobNotModelled` for a request that only Slurm can place."""
    if record["unreadable"]:
        raise JobNotModelled("cannot be read", f"cannot be read: {', '.join(record['unreadable'])}")
    for name, reason in NOT_MODELLED.items():
        if record[name] and record[name] != "UNLIMITED":
            raise JobNotModelled(reason)
    if record["cpus_per_task"] is None:
        raise JobNotModelled("CPUs counted per GPU")
    if record["resource_sharing"] not in ("OK", "NO", "YES", None):
        raise JobNotModelled(f"shares nodes by {str(record['resource_sharing']).lower()}")
