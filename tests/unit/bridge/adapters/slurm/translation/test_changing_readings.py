"""One translator for changing observations equals a new one for each, and reports each end once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.translation.slurm_observation import MAX_UNUSED_NODE_SETS, SlurmTranslator
from cpsched_bridge.ports import Observation
from tests.reach import entries
from tests.unit.bridge.adapters.slurm.scenes import Scene
from tests.unit.bridge.adapters.slurm.test_odd_records import job, node


def plain(seen: Observation) -> dict[str, Any]:
    """What an observation says of nodes and pending jobs, with node sets by the names of their nodes."""
    names = seen.cluster.node_names
    sets = [tuple(n for n, ok in zip(names, mask, strict=True) if ok) for mask in seen.cluster.node_sets]

    def spelled(job: Any) -> Any:
        request = dataclasses.replace(job.request, node_set=0)
        return dataclasses.replace(job, request=request), sets[job.request.node_set]

    return {
        "nodes": (names, seen.cluster.resources, seen.cluster.capacity.tolist(), str(seen.cluster.weights)),
        "free": seen.free.tolist(),
        "pending": [(p.label, p.hold, p.pinned, p.cluster_reason, p.groups, *spelled(p.job)) for p in seen.pending],
        "left": seen.unmanaged,
        "running": [(r.start_s, r.placement, r.job.id) for r in seen.running],
    }


def partition(name: str, **facts: Any) -> Callable[[Scene], None]:
    return lambda scene: scene.partition(name).update(facts)


def later(seconds: int) -> Callable[[Scene], None]:
    def change(scene: Scene) -> None:
        scene.now_s += seconds

    return change


def featured(scene: Scene) -> None:
    scene.node("n3")["active_features"] = scene.job("features")["constraints"][0].split("&")


def begun(scene: Scene) -> None:
    scene.now_s = scene.job("begin")["eligible_time"]


def dependent(scene: Scene) -> None:
    wish = {"after": [], "afterany": [], "aftercorr": [], "afternotok": [], "satisfy": "all"}
    scene.with_job("first", dependencies={**wish, "afterok": [f"{scene.job('two-by-two')['id']}(unfulfilled)"]})


def ended(scene: Scene) -> None:
    scene.with_job("two-by-two", state="COMPLETED", end_time=scene.now_s)


def a_reservation(scene: Scene) -> None:
    first = scene.rows["reservations"][0]
    times = {"start_time": scene.now_s + 60, "end_time": scene.now_s + 9000}
    scene.rows["reservations"].append({**first, "name": "fresh", "nodes": "n2", **times})


def moved_reservation(scene: Scene) -> None:
    scene.rows["reservations"][-1]["nodes"] = "n2,n3"


def without_reservations(scene: Scene) -> None:
    scene.rows["reservations"] = []


def unguarded(scene: Scene) -> None:
    scene.guarded = False


def fewer_nodes(scene: Scene) -> None:
    scene.rows["nodes"] = [each for each in scene.rows["nodes"] if each["name"] != "n4"]


CHANGES: dict[str, Callable[[Scene], None]] = {
    "a partition is set DOWN": partition("main", state="DOWN"),
    "and UP again": partition("main", state="UP"),
    "a partition's greatest time shrinks": partition("main", max_time=1),
    "and its nodes": partition("main", max_time=None, nodes="n[2-3]"),
    "a job's QOS": job("first", qos="chemistry"),
    "a partition's jobs get some CPUs of each node": partition("main", max_cpus_per_node=6),
    "and more of them": partition("main", max_cpus_per_node=8),
    "and all": partition("main", max_cpus_per_node="UNLIMITED"),
    "a partition's QOS": partition("main", allowed_qos=["physics"]),
    "which all may use again": partition("main", allowed_qos=["ALL"]),
    "a time limit is changed": job("first", time_limit=3),
    "an amount is changed": job("six", memory_per_cpu=None, memory_per_node=123),
    "a job asks for what is not modelled": job("first", licenses=["matlab:1"]),
    "and no longer": job("first", licenses=None),
    "a job depends on another": dependent,
    "which ends, and the record of the first is unchanged": ended,
    "a job is put into another partition": job("six", partition="nowhere"),
    "a job gets a node list": job("two-nodes", required_nodes="n2,n3"),
    "a job has no partition": job("memory", partition=None),
    "a job's begin time comes": begun,
    "a reservation appears": a_reservation,
    "it takes more nodes": moved_reservation,
    "its time comes": later(61),
    "all reservations go": without_reservations,
    "an administrator holds a job": job("first", state_reason="JobHeldAdmin"),
    "the plugin says that the bridge does": job("first", comment="bridge:wait"),
    "the plugin is gone": unguarded,
    "a node is drained": node("n2", state="IDLE+DRAIN"),
    "and resumed": node("n2", state="IDLE"),
    "a node sleeps": node("n2", state="IDLE+CLOUD+POWERED_DOWN"),
    "and wakes up": node("n2", state="IDLE+CLOUD"),
    "a node gets memory": node("n3", real_memory=99_000),
    "a node keeps memory to itself": node("n3", memory_reserved_for_system=1000),
    "a node gets a feature": featured,
    "a node has threads": node("n4", threads_per_core=2, cores_per_socket=4),
    "a node has GPUs": node("n4", configured_gres={"gpu": 3}),
    "a node's GPUs have a type": node("n4", configured_gres={"gpu:a100": 3}),
    "a node goes": fewer_nodes,
}


def test_used_translator_equals_fresh_one() -> None:
    scene, translator = Scene(), SlurmTranslator()
    scene.job("several")["partition"] = "main"
    before = plain(translator.observe(scene.read()))
    for name, change in CHANGES.items():
        change(scene)
        seen = plain(translator.observe(scene.read()))
        assert seen == plain(SlurmTranslator().observe(scene.read())), name
        assert seen != before, f"{name}: the change shows"
        assert plain(translator.observe(scene.read())) == seen, f"{name}: and stays"
        before = seen


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "TIMEOUT"])
def test_reports_each_end_once_with_recorded_times(state: str) -> None:
    scene, translator = Scene(), SlurmTranslator()
    asked = {pending.job.name: pending.job.request for pending in translator.observe(scene.read()).pending}
    start_s, end_s = scene.now_s - 40, scene.now_s + 5
    scene.job("gpu-node").update(state=state, start_time=start_s, end_time=end_s, allocated_nodes="n2,n3", priority=1)
    told = [each for _ in range(3) for each in translator.observe(scene.read()).ended]
    assert [(e.job.name, e.job.request, e.start_s, e.end_s) for e in told] == [
        ("gpu-node", asked["gpu-node"], start_s, end_s)  # the request that it had while it waited
    ]
    again = [(each.end_s, each.job.name) for each in translator.list_remembered_ended_jobs(scene.read())]
    assert ((end_s, "gpu-node") in again, [times for times, _ in again]) == (True, sorted(times for times, _ in again))


def test_forgets_all_data_of_jobs_purged_by_controller() -> None:
    scene, translator = Scene(), SlurmTranslator()
    translator.observe(scene.read())
    all_jobs = entries(translator)
    scene.only("first")
    translator.observe(scene.read())
    one_job = entries(translator)
    assert list(translator.queue.asked) == [scene.job("first")["id"]]
    scene.rows["jobs"] = []
    assert translator.observe(scene.read()).pending == ()
    no_job, fresh = entries(translator), SlurmTranslator()
    fresh.observe(scene.read())
    assert no_job - entries(fresh) == 122, "the node sets that jobs once asked for stay for a while"
    assert all_jobs - no_job > 2500
    assert one_job - no_job == 71


def test_forgets_unused_node_sets() -> None:
    """Each reading another list of excluded nodes: what no job needs any more is given up now and then."""
    scene, translator = Scene().only("first"), SlurmTranslator()
    scene.rows["nodes"] = [{**scene.node("n1"), "name": f"m{at}"} for at in range(9)]
    scene.partition("main")["nodes"] = "m[0-8]"
    sets = []
    for number in range(1, 500):
        excluded = [f"m{at}" for at in range(9) if number >> at & 1]
        scene.job("first")["excluded_nodes"] = ",".join(excluded)
        seen = translator.observe(scene.read())
        assert plain(seen) == plain(SlurmTranslator().observe(scene.read()))
        sets.append(len(seen.cluster.node_sets))
    assert max(sets) < MAX_UNUSED_NODE_SETS + 10
    assert sets.count(max(sets)) < 10, "and not at every reading"
