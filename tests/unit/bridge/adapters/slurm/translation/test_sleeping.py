"""Nodes that power saving has switched off: Slurm powers them up for jobs, so they are chosen last."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from tests.unit.bridge.adapters.slurm.scenes import Scene, observe

OFF = "IDLE+CLOUD+POWERED_DOWN"


@pytest.mark.parametrize(
    ("state", "takes", "rank"),
    [
        ("IDLE", True, 0),
        ("MIXED+PLANNED", True, 0),
        ("IDLE+CLOUD", True, 0),
        ("IDLE+POWERED_DOWN", True, 2),
        ("idle+cloud+powered_down", True, 2),
        ("IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", True, 1),
        ("MIXED+CLOUD+POWERING_UP", True, 1),
        ("IDLE+POWERED_DOWN+POWER_UP", True, 2),
        ("IDLE+POWERING_DOWN", False, 0),
        ("IDLE+POWER_DOWN", False, 0),
        ("IDLE+DRAIN+POWERED_DOWN", False, 2),
        ("DOWN+POWERED_DOWN", False, 2),
        ("IDLE+MAINTENANCE+POWERED_DOWN", False, 2),
        ("IDLE+RESERVED+POWERED_DOWN", False, 2),
        *((f"IDLE+{flag}", False, 0) for flag in ("NOT_RESPONDING", "FAIL", "BLOCKED", "INVALID_REG", "RESERVED")),
        *((f"IDLE+{flag}", False, 0) for flag in ("REBOOT_REQUESTED", "REBOOT_ISSUED", "MAINTENANCE", "EXTERNAL")),
        ("FUTURE", False, 0),
        ("UNKNOWN", False, 0),
    ],
)
def test_node_state_gives_availability_and_rank(state: str, takes: bool, rank: int) -> None:
    assert (slurm_states.node_takes_jobs(state), slurm_states.compute_wakeup_rank(state)) == (takes, rank)


def scene_of(**node_states: str) -> Scene:
    """One pending job, and four nodes of 16 cores, idle unless their states are given."""
    scene = Scene().only("first")
    for name, state in node_states.items():
        scene.node(name)["state"] = state
    return scene


def test_sleeping_nodes_are_free_but_chosen_last() -> None:
    scene = scene_of(n1=OFF, n2="IDLE+POWERING_UP", n3="IDLE", n4="IDLE+POWERING_DOWN")
    for name, weight in {"n1": 0, "n2": 5, "n3": 1 << 40, "n4": 1}.items():
        scene.node(name)["weight"] = weight
    seen = observe(scene)
    assert ((seen.free > 0).any(axis=1).tolist(), seen.unmanaged) == ([True, True, True, False], ())
    assert seen.cluster.weights is not None
    assert [seen.cluster.node_names[at] for at in seen.cluster.weights.argsort()] == ["n4", "n3", "n2", "n1"]


def test_time_of_job_counts_from_when_its_nodes_are_up() -> None:
    scene, translator = scene_of(n1="ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP"), SlurmTranslator()
    facts: dict[str, Any] = {"allocated_nodes": "n1", "start_time": scene.now_s - 100, "cpus": 1}
    scene.job("first").update(facts | {"state": "CONFIGURING", "allocated_tres": {"cpu": 1, "mem": 100}})
    for later_s in (0, 7):
        scene.now_s += later_s
        (running,) = translator.observe(scene.read()).running
        assert (running.start_s, [node for node, _ in running.placement]) == (scene.now_s, [0])
    scene.rows["jobs"][0]["state"] = "RUNNING"
    (running,) = translator.observe(scene.read()).running
    assert running.start_s == facts["start_time"]


def test_reserved_sleeping_node_is_not_woken() -> None:
    scene = scene_of(n2="IDLE+POWERED_DOWN+RESERVED")
    record = dict.fromkeys(scene.tables["reservations"]["fields"]) | {"flags": [], "name": "r", "nodes": "n2"}
    scene.rows["reservations"] = [record | {"start_time": scene.now_s - 5, "end_time": scene.now_s + 5}]
    assert not observe(scene).free[1].any()


@pytest.mark.parametrize("back", [OFF, "IDLE+CLOUD+POWERING_UP", "IDLE+CLOUD"])
@pytest.mark.parametrize("readings_of_failure", [1, 3])
def test_node_returned_to_service_after_failed_wakeup_is_used_at_once(back: str, readings_of_failure: int) -> None:
    """As Slurm does. Only an administrator, or a program of the site, can resume or power up a node that is DOWN."""
    scene, translator = scene_of(n1=OFF), SlurmTranslator()
    for _ in range(6):
        for state in ("IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", *["DOWN+CLOUD+POWERED_DOWN"] * readings_of_failure):
            scene.node("n1")["state"] = state
            seen = translator.observe(scene.read())
        assert not seen.free[0].any()
        seen = translator.observe(scene.with_node("n1", state=back).read())
        assert (seen.free[0].all(), seen.outages) == (True, ())
