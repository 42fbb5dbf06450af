"""The library's objects as records: an unreadable object affects only itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cpsched.slurm_text.objects import SlurmNode, SlurmReservation
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_reader import UnlimitedJobLookup
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_rows import (
    list_fields,
    parse_cluster_records,
    table_to_records,
    to_job_table,
    to_partition_table,
    to_table,
)


class Node:
    """A node whose generic resources the library cannot read, and of which an older library lacks a field."""

    name, state, effective_cpus, partitions = "n1", "IDLE", 16, ["main"]

    @property
    def configured_gres(self) -> dict[str, int]:
        raise ValueError("invalid literal for int(): 'no_consume'")


class Reservation:
    name, start_time, end_time, users, accounts, comment = "r", 5, 9, ["root"], None, None

    def __init__(self, nodes: str) -> None:
        self.nodes = nodes


def snapshot(*reservations: Reservation) -> dict[str, Any]:
    empty: dict[str, Any] = {"fields": [], "rows": []}
    return {
        "now_s": 7,
        "nodes": to_table([Node()], list_fields(SlurmNode)),
        "partitions": empty,
        "reservations": to_table(reservations, list_fields(SlurmReservation)),
        "jobs": to_job_table([]),
    }


def test_node_unreadable_for_library_is_unusable() -> None:
    (node,) = parse_cluster_records(snapshot()).nodes
    assert (node.state, node.effective_cpus, node.configured_gres) == ("UNKNOWN", 16, None)
    assert node.unreadable == {"configured_gres": "pyslurm cannot read it"}
    assert (node.slurm_version, node.unknown) == (None, None)


def test_broken_node_list_is_unreadable() -> None:
    whole, broken = parse_cluster_records(snapshot(Reservation("n[1-2]"), Reservation("n[1-"))).reservations
    assert (whole.nodes, whole.unreadable) == ("n[1-2]", None)
    assert (broken.nodes, list(broken.unreadable)) == (None, ["nodes"])


def test_takes_singleton_dependency_from_squeue() -> None:
    """None if squeue has no value."""
    kinds = {"afterok": ["7(unfulfilled)"], "singleton": False, "satisfy": "all"}
    asked = [kinds, {**kinds, "singleton": True}, kinds, kinds]
    rows = [[number, "PENDING", dict(each)] for number, each in enumerate(asked)]
    jobs = {"fields": ["id", "state", "dependencies"], "rows": rows}
    told = {**snapshot(), "jobs": jobs, "singletons": {"2": True, "3": False}}
    assert [job["dependencies"]["singleton"] for job in parse_cluster_records(told).jobs] == [None, True, True, False]


def test_takes_missing_time_limit_from_squeue() -> None:
    """pyslurm shows None for a job without a limit and for one with its partition's limit."""
    shown = "5 UNLIMITED\n6 NOT_SET\n7 1:00:00\n"
    jobs = [{"id": number, "state": "PENDING", "time_limit": None, "dependencies": None} for number in (5, 6)]
    told = {
        **snapshot(),
        "jobs": {"fields": list(jobs[0]), "rows": [list(job.values()) for job in jobs]},
        "unlimited": UnlimitedJobLookup(lambda _: shown).read(jobs),
    }
    assert [job["time_limit"] for job in parse_cluster_records(told).jobs] == ["UNLIMITED", None]


def test_reads_job_defaults_of_partitions() -> None:
    none, both = ({"name": "main", "default_cpus_per_gpu": cpus, "default_memory_per_gpu": cpus} for cpus in (None, 2))
    found = table_to_records(
        to_partition_table([SimpleNamespace(**none), SimpleNamespace(**both), SimpleNamespace(name="old")])
    )
    assert [each["job_defaults"] for each in found] == [None, "DefCpuPerGPU=2,DefMemPerGPU=2", None]
