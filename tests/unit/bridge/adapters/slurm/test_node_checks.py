"""What the doctor says of nodes that may leave, and of jobs that name nodes which have left."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.node_checks import MOST_NAMED, run_node_checks
from cpsched_bridge.ports import Check
from tests.unit.bridge.adapters.slurm.scenes import Scene

GOOD = {
    "dynamic nodes": "no dynamic or cloud nodes",
    "power saving": "none switched off",
    "node weights": "all equal",
    "reservations": "2, all of them understood",
    "node lists": "waiting jobs name known nodes only",
}


def checks(scene: Scene) -> dict[str, Check]:
    return {check.name: check for check in run_node_checks(scene.read())}


def failing(scene: Scene) -> dict[str, str]:
    found = checks(scene)
    assert not any(check.required for check in found.values())
    assert all(bool(check.mend) is not check.ok for check in found.values())
    return {name: check.detail for name, check in found.items() if not check.ok}


def test_an_ordinary_cluster_has_nothing_to_be_told() -> None:
    assert {name: check.detail for name, check in checks(Scene()).items()} == GOOD
    assert failing(Scene()) == {}


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("IDLE+CLOUD", {"dynamic nodes": "dynamic or cloud: n2"}),
        ("IDLE+DYNAMIC_NORM", {"dynamic nodes": "dynamic or cloud: n2"}),
        ("mixed+dynamic_future", {"dynamic nodes": "dynamic or cloud: n2"}),
        ("IDLE+POWERED_DOWN", {"power saving": "switched off by Slurm: n2"}),
        ("IDLE+POWERING_UP", {"power saving": "switched off by Slurm: n2"}),
        ("IDLE+DRAIN+NOT_RESPONDING", {}),
        ("DOWN", {}),
        (
            "IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN",
            {"dynamic nodes": "dynamic or cloud: n2", "power saving": "switched off by Slurm: n2"},
        ),
    ],
)
def test_nodes_that_come_and_go_or_sleep(state: str, told: dict[str, str]) -> None:
    scene = Scene()
    scene.node("n2")["state"] = state
    assert failing(scene) == told


def test_sleeping_nodes_leave_jobs_to_slurm() -> None:
    scene = Scene()
    scene.node("n2")["state"] = "IDLE+POWERED_DOWN"
    assert "fits only with such nodes is left to Slurm" in checks(scene)["power saving"].mend


def test_weights_that_differ_are_not_kept_in_control() -> None:
    scene = Scene()
    scene.node("n2")["weight"] = 20
    scene.node("n3")["weight"] = None
    assert failing(scene) == {"node weights": "from 1 to 20: the bridge chooses nodes without them"}
    assert checks(scene)["node weights"].mode == "control"


def test_reservations_that_leave_jobs_to_slurm_or_close_more_than_they_hold() -> None:
    scene = Scene()
    scene.rows["reservations"][0]["flags"] = ["MAGNETIC", "SPEC_NODES"]
    scene.rows["reservations"][1]["flags"] = None
    told = "magnetic, whose jobs are left to Slurm: maint; with flags that cannot be read, closed as a whole: now"
    assert failing(scene) == {"reservations": told}


def test_of_many_nodes_a_few_are_named() -> None:
    scene = Scene()
    scene.rows["nodes"] = [{**scene.node("n2"), "name": f"d{at}", "state": "IDLE+CLOUD"} for at in range(500)]
    scene.rows["jobs"] = []
    assert failing(scene) == {"dynamic nodes": f"dynamic or cloud: d0, d1, d2, d3, d4 and {500 - MOST_NAMED} more"}


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"required_nodes": "n[1-2]"}, None),
        ({"excluded_nodes": "n[3-4]"}, None),
        ({"required_nodes": "n[2-5]"}, "asks for n5"),
        ({"excluded_nodes": "m1,n1"}, "excludes m1"),
        ({"required_nodes": "m1", "excluded_nodes": "m[2-9]"}, "asks for m1, excludes m2, m3, m4, m5, m6 and 3 more"),
        ({"required_nodes": "n["}, None),
        ({"excluded_nodes": "m1", "state": "RUNNING"}, None),
    ],
)
def test_waiting_jobs_that_name_unknown_nodes_whoever_holds_them(facts: dict[str, Any], told: str | None) -> None:
    scene = Scene().only("first")
    scene.job("first").update({"id": 7, **facts})
    words = f"nodes that Slurm does not show: job 7 of alice {told}"
    assert failing(scene) == ({} if told is None else {"node lists": words})


def test_of_many_jobs_a_few_are_named_and_tasks_by_their_arrays() -> None:
    scene = Scene().only("first")
    job = {**scene.job("first"), "excluded_nodes": "gone"}
    scene.rows["jobs"] = [{**job, "id": 10 + at} for at in range(7)]
    scene.rows["jobs"][0].update(array_id=10, array_task_id=3)
    shown = "; ".join(f"job {label} of alice excludes gone" for label in ("10_3", "11", "12", "13", "14"))
    assert failing(scene) == {"node lists": f"nodes that Slurm does not show: {shown}; and 2 more"}
