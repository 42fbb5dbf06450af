"""An odd job or node affects only itself, never the cycle: recorded Slurm output in the bridge's loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.cycle_report import CycleReport
from tests.bridges import a_bridge
from tests.builders import words
from tests.unit.bridge.adapters.slurm.scenes import Scene
from tests.unit.bridge.adapters.slurm.test_slurm_backend import Played

Change = Callable[[Scene], object]


def cycle(scene: Scene, tmp_path: Path) -> CycleReport:
    """What one cycle makes of a scene, in shadow mode; the second one, which knows records of the first."""
    backend = SlurmBackend(Played(scene))
    bridge = a_bridge(tmp_path, backend, dispatcher=EasyDispatcher(), mode="shadow")
    bridge.cycle()
    report = bridge.cycle()
    assert report.result == "ok", report.bridge_events
    return report


def job(name: str, /, **facts: Any) -> Change:
    return lambda scene: scene.job(name).update(facts)


def node(name: str, **facts: Any) -> Change:
    return lambda scene: scene.node(name).update(facts)


def again(name: str, **facts: Any) -> Change:
    """A second record of a job."""
    return lambda scene: scene.rows["jobs"].append({**scene.job(name), **facts})


def table(name: str, **facts: Any) -> Change:
    """A second record like the first of a table."""
    return lambda scene: scene.rows[name].append({**scene.rows[name][0], "name": "odd", **facts})


ODD_PENDING = {
    "negative limit": {"time_limit": -1},
    "endless limit": {"time_limit": 2**60},
    "a limit in words": {"time_limit": "soon"},
    "submitted beyond all time": {"submit_time": 2**60},
    "more cores than there are": {"cpus_per_task": 2**50},
    "more memory than there is": {"memory_per_cpu": None, "memory_per_node": 2**50},
    "negative memory": {"memory_per_cpu": None, "memory_per_node": -5},
    "negative tasks": {"ntasks": -3, "num_nodes": 1, "max_nodes": 1},
    "no tasks": {"ntasks": 0, "num_nodes": 1, "max_nodes": 1},
    "no nodes": {"num_nodes": 0, "max_nodes": 0},
    "a negative number of nodes": {"num_nodes": -2, "max_nodes": -2},
    "broken excluded nodes": {"excluded_nodes": "n[1-"},
    "broken array": {"array_id": 77, "array_tasks_waiting": "1-x"},
    "an array without tasks": {"array_id": 77, "array_tasks_waiting": "5-1"},
    "array steps of nothing": {"array_id": 77, "array_tasks_waiting": "0-4:0"},
    "GPUs beyond number": {"gres_per_node": {"gres:gpu": 2**62}},
}

ODD: dict[str, Change] = {
    **{f"pending: {name}": job("six", **facts) for name, facts in ODD_PENDING.items()},
    "left: half a character in names": job("chosen", user_name="\udc80", account="\udc80"),
    "pending: half a character in names": job("six", user_name="\udc80", account="\udc80", comment="\udc80"),
    "left: half a character in its reason": job("six", partition="\udc80"),
    "pending twice": again("six"),
    "pending and running": again("six", state="RUNNING", allocated_nodes="n3", allocated_tres={}),
    "running: endless limit": job("two-by-two", time_limit=2**60),
    "running: submitted beyond all time": job("two-by-two", submit_time=2**60),
    "running: starts in the future": lambda s: s.job("two-by-two").update(start_time=s.now_s + 10**6),
    "running: started beyond all time": job("two-by-two", start_time=-(2**60)),
    "running: unknown nodes": job("two-by-two", allocated_nodes="elsewhere[1-2]"),
    "running: broken nodes": job("two-by-two", allocated_nodes="n[2-"),
    "running: the same node twice": job("two-by-two", allocated_nodes="n2,n2"),
    "running: more cores than a node": job("two-by-two", cpus=4000, allocated_tres={"cpu": 4000, "mem": 10}),
    "running: more cores than there are": job("two-by-two", cpus=2**50),
    "running: negative memory": job("two-by-two", allocated_tres={"cpu": 4, "mem": -4000}),
    "running: twice": again("two-by-two"),
    "ended: endless limit": again("two-by-two", id=990, state="COMPLETED", end_time=2**60, time_limit=2**60),
    "ended: broken nodes": again("two-by-two", id=991, state="FAILED", end_time=2**31, allocated_nodes="n["),
    "node: memory over-allocated": node("n3", allocated_memory=10**7),
    "node: more cores allocated than it has": node("n3", allocated_cpus=999),
    "node: configuration shrunk": node("n2", effective_cpus=1, real_memory=10),
    "node: more memory reserved than it has": node("n3", memory_reserved_for_system=10**6),
    "node: negative cores": node("n3", effective_cpus=-1),
    "node: memory beyond number": node("n3", real_memory=2**50),
    "node: GPUs beyond number": node("n3", configured_gres={"gpu": 2**50}),
    "node: negative allocation": node("n3", allocated_cpus=-8, allocated_memory=-1),
    "partition: broken nodes": table("partitions", nodes="n["),
    "reservation: broken nodes": table("reservations", nodes="n["),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_record_does_not_fail_cycle(name: str, tmp_path: Path) -> None:
    scene = Scene()
    ODD[name](scene)
    report = cycle(scene, tmp_path)
    assert scene.job("first")["id"] in {job.id for job in report.decided.waiting}, "the others are decided on"


@pytest.mark.parametrize("name", [name for name in ODD if name.startswith("node") and "negative alloc" not in name])
def test_odd_node_gets_no_job_and_frees_no_resources(name: str, tmp_path: Path) -> None:
    scene = Scene()
    ODD[name](scene)
    at = 1 if name == "node: configuration shrunk" else 2
    report = cycle(scene, tmp_path)
    assert report.decided.snapshot is not None
    assert report.decided.snapshot.free[at].tolist() == [0, 0, 0]
    placements = [running.placement for running in report.decided.snapshot.running_jobs()]
    assert at not in {node for placed in (*report.decided.starts.values(), *placements) for node, _ in placed}


@pytest.mark.parametrize("name", ODD_PENDING)
def test_odd_pending_job_is_left_or_has_pending_reason(name: str, tmp_path: Path) -> None:
    scene = Scene()
    number = scene.job("six")["id"]
    scene.job("six").update(ODD_PENDING[name])
    seen = cycle(scene, tmp_path).observation
    assert seen is not None
    reasons = [words(each.reason) for each in seen.unmanaged if each.job_id == number]
    reasons += [words(each.job.ineligible) for each in seen.pending if each.job.id == number]
    assert {bool(reason) for reason in reasons} == {True}


@pytest.mark.parametrize(
    "facts", [{"time_limit": 2**60}, {"allocated_tres": {"cpu": 4, "mem": -4000}}, {"start_time": -(2**60)}]
)
def test_unreadable_running_job_holds_whole_nodes(facts: dict[str, Any], tmp_path: Path) -> None:
    report = cycle(Scene().with_job("two-by-two", **facts), tmp_path)
    assert report.observation is not None
    assert report.decided.snapshot is not None
    found = next(each for each in report.observation.running if each.job.name == "two-by-two")
    assert found.placement != ()
    assert all(report.decided.snapshot.free[node].sum() == 0 for node, _ in found.placement)
