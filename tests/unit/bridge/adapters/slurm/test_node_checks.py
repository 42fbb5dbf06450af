"""The doctor's findings about dynamic nodes, and about jobs that request removed nodes."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.node_checks import MAX_LISTED_ITEMS, run_node_checks
from cpsched_bridge.ports import ReadinessCheck
from tests.unit.bridge.adapters.slurm.scenes import Scene

GOOD = {
    "core selection": "SelectTypeParameters let jobs use all CPUs of their cores",
    "dynamic nodes": "no dynamic or cloud nodes",
    "power saving": "no nodes are powered down",
    "node weights": "all weights are equal",
    "partition settings": "all partition settings are modelled",
    "reservations": "2, all of them supported",
    "node lists": "pending jobs list only known nodes",
}


def checks(scene: Scene) -> dict[str, ReadinessCheck]:
    return {check.name: check for check in run_node_checks(scene.read())}


def failing(scene: Scene) -> dict[str, str]:
    found = checks(scene)
    assert not any(check.required for check in found.values())
    assert all(bool(check.fix) is not check.ok for check in found.values())
    return {name: check.detail for name, check in found.items() if not check.ok}


def test_ordinary_cluster_passes_all_checks() -> None:
    assert ({name: check.detail for name, check in checks(Scene()).items()}, failing(Scene())) == (GOOD, {})


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("IDLE+CLOUD", {"dynamic nodes": "dynamic or cloud nodes: n2"}),
        ("IDLE+DYNAMIC_NORM", {"dynamic nodes": "dynamic or cloud nodes: n2"}),
        ("mixed+dynamic_future", {"dynamic nodes": "dynamic or cloud nodes: n2"}),
        ("IDLE+POWERED_DOWN", {}),
        ("IDLE+DRAIN+NOT_RESPONDING", {}),
        ("DOWN", {}),
        ("IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN", {"dynamic nodes": "dynamic or cloud nodes: n2"}),
    ],
)
def test_reports_dynamic_nodes(state: str, told: dict[str, str]) -> None:
    assert failing(Scene().with_node("n2", state=state)) == told


@pytest.mark.parametrize(("cores", "names"), [(8, []), (4, ["n2"])])
def test_reports_cores_of_several_cpus_for_one_task(cores: int, names: list[str]) -> None:
    """CR_ONE_TASK_PER_CORE has no effect on nodes whose CPUs are cores."""
    scene = Scene().with_node("n2", threads_per_core=2, cores_per_socket=cores)
    check = {check.name: check for check in run_node_checks(scene.read(), ["CR_CORE", "CR_ONE_TASK_PER_CORE"])}
    left = [f"CR_ONE_TASK_PER_CORE: all jobs that may use {name} are left to Slurm" for name in names]
    assert ([check["core selection"].detail] if not check["core selection"].ok else []) == left
    assert checks(scene)["core selection"].ok


@pytest.mark.parametrize(
    ("facts", "name", "detail"),
    [
        ({"state": "IDLE+POWERED_DOWN"}, "power saving", "powered down or powering up: n2; "),
        ({"state": "MIXED+CLOUD+POWERING_UP"}, "power saving", "powered down or powering up: n2; "),
        ({"weight": 20}, "node weights", "from 1 to 20; nodes of lower weight are chosen first"),
    ],
)
def test_shows_settings_of_nodes(facts: dict[str, Any], name: str, detail: str) -> None:
    check = checks(Scene().with_node("n3", weight=None).with_node("n2", **facts))[name]
    assert (check.detail[: len(detail)], check.ok) == (detail, True)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"oversubscribe": "FORCE:4"}, "its nodes are oversubscribed (FORCE:4)"),
        ({"max_cpus_per_socket": 8}, "it sets MaxCPUsPerSocket, and other partitions use its nodes"),
        ({"max_cpus_per_node": 8, "max_memory_per_cpu": 9, "max_memory_per_node": 99}, None),
        ({"is_root_only": True}, "it is closed to ordinary jobs"),
        ({"oversubscribe": "EXCLUSIVE"}, None),
        ({"oversubscribe": "YES:4"}, None),
        ({"oversubscribe": "FORCE:1"}, "it sets OverSubscribe=FORCE:1, and other partitions use its nodes"),
    ],
)
def test_reports_partition_settings_that_leave_jobs(facts: dict[str, Any], why: str | None) -> None:
    scene = Scene().with_partition("main", **facts)
    assert failing(scene) == ({} if why is None else {"partition settings": f"jobs left to Slurm in main: {why}"})


def test_reports_reservations_that_leave_jobs_or_exclude_nodes() -> None:
    scene = Scene()
    for row, flags in zip(scene.rows["reservations"], (["MAGNETIC", "SPEC_NODES"], None), strict=True):
        row["flags"] = flags
    told = "magnetic reservations: maint; reservations with unreadable flags, whose nodes are not used: now"
    assert failing(scene) == {"reservations": told}


def test_names_at_most_a_few_of_many_nodes() -> None:
    scene = Scene()
    scene.rows["nodes"] = [{**scene.node("n2"), "name": f"d{at}", "state": "IDLE+CLOUD"} for at in range(500)]
    scene.rows["jobs"] = []
    assert failing(scene) == {
        "dynamic nodes": f"dynamic or cloud nodes: d0, d1, d2, d3, d4 and {500 - MAX_LISTED_ITEMS} more"
    }


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"required_nodes": "n[1-2]"}, None),
        ({"excluded_nodes": "n[3-4]"}, None),
        ({"required_nodes": "n[2-5]"}, "requests n5"),
        ({"excluded_nodes": "m1,n1"}, "excludes m1"),
        ({"required_nodes": "m1", "excluded_nodes": "m[2-9]"}, "requests m1, excludes m2, m3, m4, m5, m6 and 3 more"),
        ({"required_nodes": "n["}, None),
        ({"excluded_nodes": "m1", "state": "RUNNING"}, None),
    ],
)
def test_reports_pending_jobs_with_unknown_nodes(facts: dict[str, Any], problem: str | None) -> None:
    expected = {} if problem is None else {"node lists": f"unknown nodes: job 7 of alice {problem}"}
    assert failing(Scene().only("first").with_job("first", id=7, **facts)) == expected


def test_names_a_few_of_many_jobs_and_groups_array_tasks() -> None:
    scene = Scene().only("first")
    job = {**scene.job("first"), "excluded_nodes": "gone"}
    scene.rows["jobs"] = [{**job, "id": 10 + at} for at in range(7)]
    scene.rows["jobs"][0].update(array_id=10, array_task_id=3)
    shown = "; ".join(f"job {label} of alice excludes gone" for label in ("10_3", "11", "12", "13", "14"))
    assert failing(scene) == {"node lists": f"unknown nodes: {shown}; and 2 more"}
