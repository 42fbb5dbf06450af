"""The ended jobs in the accounting database that the bridge would not have managed."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmTopology
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.unmanaged_jobs import UnmanagedShare
from tests.builders import a_slurm_job
from tests.unit.bridge.adapters.slurm.scenes import Scene


def ended(**facts: Any) -> SlurmJob:
    """A job of one hour on one node of the partition main."""
    return a_slurm_job(
        state="COMPLETED",
        **{
            "user_name": "alice", "partition": "main", "cpus": 2, "allocated_nodes": "n1",
            "start_time": 1000, "end_time": 4600, "allocated_tres": {"cpu": 2, "mem": 100, "node": 1}, **facts,
        },
    )  # fmt: skip


def share(scene: Scene, *past: SlurmJob) -> UnmanagedShare:
    return UnmanagedShare.of(past, *SlurmTranslator().translate_machine_and_partitions(scene.read()))


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, None),
        ({"constraints": ["a&b"]}, None),
        ({"constraints": ["a|b"]}, None),
        ({"constraints": ["[a*2]"]}, "requests features '[a*2]' with counts"),
        ({"reservation": "maint"}, "requests a reservation"),
        ({"allocated_tres": {"cpu": 2, "license/matlab": 1}}, None),
        ({"partition": "gone"}, "unknown partition gone"),
    ],
)
def test_judges_ended_jobs_by_rules_for_pending_jobs(facts: dict[str, Any], why: str | None) -> None:
    assert list(share(Scene(), ended(**facts)).left) == ([] if why is None else [why])


def test_partition_and_topology_settings_leave_jobs() -> None:
    scene = Scene()
    scene.topologies = {"": SlurmTopology("topology/tree", {})}
    assert list(share(scene, ended()).left) == []
    wide = ended(num_nodes=2, allocated_nodes="n[1-2]")
    assert list(share(scene, wide).left) == ["the topology plugin may reject its combination of nodes"]
    scene.partition("main")["max_cpus_per_socket"] = 4
    assert list(share(scene, ended(), wide).left) == [
        "partition main: it sets MaxCPUsPerSocket, and other partitions use its nodes"
    ]


def test_shares_count_jobs_and_node_hours_of_started_jobs() -> None:
    past = [
        ended(),
        ended(num_nodes=2, allocated_nodes="n[1-2]", reservation="maint"),
        ended(constraints=["a*2"]),
        ended(allocated_nodes="", constraints=["a*2"]),
    ]
    check = share(Scene(), *past).check(7)
    assert check.detail == (
        "at least 66.7 % of jobs, 75.0 % of node-hours, among 3 jobs in the last 7 days: "
        "requests a reservation (33.3 % of jobs, 50.0 % of node-hours); "
        "requests features 'a*2' with counts (33.3 % of jobs, 25.0 % of node-hours)"
    )
    assert (check.ok, check.required, check.mode) == (False, False, "control")
    assert share(Scene(), ended()).check(2.5).detail == "none known among 1 job in the last 2.5 days"
    assert share(Scene()).check(1).ok
