"""Nodes that power saving has switched off: Slurm wakes them, so what fits only there is left to it."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.translation.slurm_pending_jobs import ASLEEP
from cpsched_bridge.ports import Observation, UnmanagedJob
from tests.unit.bridge.adapters.slurm.scenes import Scene

OFF = "IDLE+CLOUD+POWERED_DOWN"


@pytest.mark.parametrize(
    ("state", "takes", "sleeps"),
    [
        ("IDLE", True, False),
        ("MIXED+PLANNED", True, False),
        ("IDLE+CLOUD", True, False),
        ("IDLE+POWERED_DOWN", False, True),
        ("idle+cloud+powered_down", False, True),
        ("IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", False, True),
        ("MIXED+CLOUD+POWERING_UP", False, True),
        ("IDLE+POWERING_DOWN", False, True),
        ("IDLE+POWER_DOWN", False, True),
        ("IDLE+DRAIN+POWERED_DOWN", False, False),
        ("DOWN+POWERED_DOWN", False, False),
        ("IDLE+MAINTENANCE+POWERED_DOWN", False, False),
        ("IDLE+RESERVED+POWERED_DOWN", False, False),
        *((f"IDLE+{flag}", False, False) for flag in ("NOT_RESPONDING", "FAIL", "BLOCKED", "INVALID_REG", "RESERVED")),
        *((f"IDLE+{flag}", False, False) for flag in ("REBOOT_REQUESTED", "REBOOT_ISSUED", "MAINTENANCE", "EXTERNAL")),
        ("FUTURE", False, False),
        ("UNKNOWN", False, False),
    ],
)
def test_which_nodes_take_jobs_and_which_are_woken(state: str, takes: bool, sleeps: bool) -> None:
    assert (slurm_states.node_takes_jobs(state), slurm_states.is_node_sleeping(state)) == (takes, sleeps)


def scene_of(*jobs: dict[str, Any], **node_states: str) -> Scene:
    """Jobs of one node of 16 cores unless they say otherwise; four nodes of 16 cores, idle unless said otherwise."""
    scene = Scene().only("first")
    model = {**scene.job("first"), "cpus": 16, "cpus_per_task": 16, "min_cpus_per_node": 16, "memory_per_cpu": 100}
    scene.rows["jobs"] = [{**model, "id": 500 + at, "submit_time": 10 + at, **job} for at, job in enumerate(jobs)]
    for name, state in node_states.items():
        scene.node(name)["state"] = state
        if state == "ALLOCATED":
            scene.node(name)["allocated_cpus"] = 16
    return scene


def observe(scene: Scene) -> Observation:
    return SlurmTranslator().observe(scene.read())


def split(scene: Scene) -> tuple[list[int], list[int]]:
    """The jobs that are decided on, and those left to Slurm, from 0."""
    seen = observe(scene)
    assert {each.reason for each in seen.left} <= {ASLEEP}
    return [each.job.id - 500 for each in seen.pending], [each.job_id - 500 for each in seen.left]


HALF = {"n1": "ALLOCATED", "n2": OFF, "n3": OFF, "n4": "IDLE"}
THREE = {"ntasks": 3, "num_nodes": 3, "max_nodes": 3, "cpus": 48}
FREE = {"priority": 9, "admin_comment": None, "comment": None, "state_reason": "Priority"}


@pytest.mark.parametrize(
    ("jobs", "nodes", "managed", "left"),
    [
        ([{}], HALF, [0], []),
        ([{}], {**HALF, "n4": "ALLOCATED"}, [], [0]),
        ([{}, {}, {}], {**HALF, "n4": "ALLOCATED"}, [2], [0, 1]),
        ([{}, {}, FREE], {**HALF, "n4": "ALLOCATED"}, [1], [0, 2]),
        ([THREE], HALF, [], [0]),
        ([THREE, {}], HALF, [1], [0]),
        ([THREE], {**HALF, "n4": "ALLOCATED"}, [0], []),
        ([THREE], {**HALF, "n1": "IDLE", "n3": "IDLE+DRAIN+POWERED_DOWN"}, [], [0]),
        ([THREE], {**HALF, "n2": "IDLE", "n3": "IDLE+DRAIN+POWERED_DOWN"}, [0], []),
        ([{"eligible_time": 2_000_000_000}], {**HALF, "n4": "ALLOCATED"}, [0], []),
        ([{"admin_comment": None, "state_reason": "JobHeldUser"}], {**HALF, "n4": "ALLOCATED"}, [0], []),
        ([{"partition": "short"}, {}], {**HALF, "n3": "ALLOCATED", "n4": "ALLOCATED"}, [0], [1]),
        ([{"resource_sharing": "NO"}], {**HALF, "n4": "ALLOCATED"}, [], [0]),
    ],
)
def test_a_job_that_fits_only_with_sleeping_nodes_is_left(
    jobs: list[dict[str, Any]], nodes: dict[str, str], managed: list[int], left: list[int]
) -> None:
    """No more of them than there are such nodes, those first that Slurm may be waking nodes for already."""
    assert split(scene_of(*jobs, **nodes)) == (managed, left)


def test_of_an_array_as_many_tasks_are_left_as_sleeping_nodes_take() -> None:
    array = {"array_id": 500, "array_tasks_waiting": "0-4"}
    seen = observe(scene_of(array, **{**HALF, "n4": "ALLOCATED"}))
    assert seen.left == tuple(
        UnmanagedJob(each, ASLEEP, f"500_{task}", "alice", held_for_us=True)
        for task, each in enumerate(left.job_id for left in seen.left)
    )
    assert [each.label for each in seen.pending] == ["500_2", "500_3", "500_4"]


def test_a_sleeping_node_under_a_reservation_is_not_woken() -> None:
    scene = scene_of({}, n1="ALLOCATED", n2="IDLE+POWERED_DOWN+RESERVED", n3="ALLOCATED", n4="ALLOCATED")
    record = dict.fromkeys(scene.tables["reservations"]["fields"]) | {"flags": [], "name": "r", "nodes": "n2"}
    scene.rows["reservations"] = [record | {"start_time": scene.now_s - 5, "end_time": scene.now_s + 5}]
    assert split(scene) == ([0], [])
