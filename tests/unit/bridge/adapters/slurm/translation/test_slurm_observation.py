"""Recorded Slurm records into observations."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.ports import Observation, PendingJob, UnmanagedJob
from tests.builders import words
from tests.unit.bridge.adapters.slurm.scenes import Scene


def observe(scene: Scene, **options: Any) -> Observation:
    return SlurmTranslator().observe(scene.read(), **options)


def pending(scene: Scene, name: str, seen: Observation | None = None) -> PendingJob:
    wanted = scene.job(name)["id"]
    seen = seen or observe(scene)
    return next(p for p in seen.pending if slurm_job_ids.split_task_id(p.job.id)[0] == wanted)


def left(scene: Scene, name: str, seen: Observation | None = None) -> UnmanagedJob:
    wanted = scene.job(name)["id"]
    return next(left for left in (seen or observe(scene)).left if left.job_id == wanted)


def allowed(seen: Observation, job: PendingJob) -> set[str]:
    """Names of the nodes that a job may use."""
    mask = seen.cluster.node_sets[job.job.request.node_set]
    return {name for name, ok in zip(seen.cluster.node_names, mask, strict=True) if ok}


def test_a_pin_says_how_to_give_the_record_back() -> None:
    scene, translator = Scene(), SlurmTranslator()
    translator.observe(scene.read())
    assert translator.queue.asked[scene.job("six")["id"]].told.restore == "TasksPerNode=0 NumTasks=6"
    assert translator.queue.asked[scene.job("first")["id"]].told.restore == ""


def test_a_pin_of_several_nodes_gives_their_number_back_within_what_the_partition_allows() -> None:
    scene, translator = Scene().only("six"), SlurmTranslator()
    scene.partition("main")["max_nodes"] = 4
    scene.job("six").update(ntasks=21, cpus=21, max_nodes=21)
    translator.observe(scene.read())
    told = translator.queue.asked[scene.job("six")["id"]].told
    assert (told.tasks_per_node, told.restore) == (7, "TasksPerNode=0 NumNodes=1-4 NumTasks=21")


@pytest.mark.parametrize(
    ("field", "value"),
    [("licenses", ["matlab:1"]), ("heterogeneous_id", 12), ("reservation", "maint"), ("unreadable", ["gpus"])],
)
def test_any_field_that_is_not_modelled_leaves_the_job(field: str, value: object) -> None:
    scene = Scene()
    scene.job("first")[field] = value
    assert left(scene, "first").held_for_us


def test_a_job_avoids_nodes_whose_reservation_begins_before_it_would_end() -> None:
    """`maint` takes n3 in two hours; `first` runs five minutes at most, `memory` without a limit."""
    scene = Scene()
    seen = observe(scene)
    assert "n3" in allowed(seen, pending(scene, "first", seen))
    assert "n3" not in allowed(seen, pending(scene, "memory", seen))


@pytest.mark.parametrize(("change", "why"), [({"max_nodes": 0}, "more nodes"), ({"min_nodes": 2}, "fewer nodes")])
def test_a_number_of_nodes_that_the_partition_does_not_have_leaves_the_job(change: dict[str, object], why: str) -> None:
    scene = Scene()
    scene.partition("main").update(change)
    assert why in words(left(scene, "first").reason)


def test_a_job_that_fits_but_for_a_reservation_to_come_waits_for_its_end() -> None:
    """Four nodes, of which `maint` takes n3 in two hours."""
    scene = Scene()
    scene.job("two-nodes").update(ntasks=4, num_nodes=4, max_nodes=4, time_limit=60 * 24)
    reason = words(pending(scene, "two-nodes").job.ineligible)
    assert reason == "no 4 node(s) that it may use can hold it, even empty, before reservation maint is over"


def test_the_reservations_that_a_job_would_run_into_are_named_and_no_others() -> None:
    """Also where several take its nodes; one elsewhere, or of nodes that it may not use, is none of them."""
    scene = Scene()
    maint = next(row for row in scene.rows["reservations"] if row["name"] == "maint")
    scene.rows["reservations"].append(maint | {"name": "elsewhere", "nodes": "other[1-2]"})
    scene.job("first")["time_limit"] = 60 * 24
    seen = observe(scene)
    job = next(each.job for each in seen.pending if each.job.name == "first")
    parts = seen.cluster.parts_of(job.request.node_set)
    assert "maint" in {part.name for part in parts if part.kind == "reservation"}
    assert "elsewhere" not in {part.name for part in parts}
    scene.rows["reservations"].append(maint | {"name": "course", "nodes": "n1"})
    scene.job("two-nodes").update(ntasks=4, num_nodes=4, max_nodes=4, time_limit=60 * 24)
    reason = words(pending(scene, "two-nodes").job.ineligible) or ""
    assert reason.startswith("no 4 node(s) that it may use can hold it, even empty, before reservations ")
    assert {"maint", "course"} <= set(reason.removesuffix(" are over").replace(",", "").split())
    assert "elsewhere" not in reason


def test_whole_nodes_are_asked_for_by_the_job_or_by_its_partition() -> None:
    scene = Scene()
    assert pending(scene, "exclusive").job.request.exclusive
    assert not pending(scene, "first").job.request.exclusive
    scene.partition("main")["oversubscribe"] = "EXCLUSIVE"
    assert pending(scene, "first").job.request.exclusive


def test_a_task_keeps_its_number_when_its_record_is_split_off_and_when_it_runs() -> None:
    """pyslurm shows no index for task 0."""
    scene = Scene()
    array = scene.job("throttled")
    before = {p.label: p.job.id for p in observe(scene).pending}
    apart = {**array, "id": 900, "array_task_id": None, "array_tasks_waiting": None}
    array["array_tasks_waiting"] = "1-9"
    scene.rows["jobs"].append(apart)
    after = {p.label: p.job.id for p in observe(scene).pending}
    assert after == before
    apart.update(state="RUNNING", allocated_nodes="n2", start_time=scene.now_s)
    assert before[f"{array['id']}_0"] in {r.job.id for r in observe(scene).running}


def test_free_is_what_usable_nodes_have_left() -> None:
    """n1 is drained, n4 reserved. On n2 a job that Slurm split unevenly counts with an equal share; one has a GPU."""
    seen = observe(Scene())
    assert dict(zip(seen.cluster.node_names, seen.free.tolist(), strict=True)) == {
        "n1": [0, 0, 0],
        "n2": [3, 3000, 1],
        "n3": [16, 16000, 0],
        "n4": [0, 0, 0],
    }


def test_outages_are_reservations_active_or_to_come_and_nodes_that_take_no_jobs() -> None:
    """n1 is drained, n4 reserved, n3 soon."""
    scene = Scene()
    rows = {row["name"]: row for row in scene.rows["reservations"]}
    told = {each.nodes: each for each in observe(scene).outages}
    assert set(told) == {(0,), (2,), (3,)}
    assert (told[(0,)].kind, told[(0,)].to_s) == ("drained", None)
    for node, begun in (((2,), False), ((3,), True)):
        row = rows[told[node].name]
        assert (told[node].kind, told[node].from_s, told[node].to_s) == ("reserved", row["start_time"], row["end_time"])
        assert (told[node].from_s <= scene.now_s) is begun


def test_nodes_under_an_active_reservation_are_told_once_and_nodes_of_one_state_together() -> None:
    scene = Scene()
    for name, state in (("n4", "IDLE+MAINTENANCE+DRAIN"), ("n1", "DOWN+NOT_RESPONDING"), ("n2", "DOWN+NOT_RESPONDING")):
        scene.node(name)["state"] = state
    told = [(each.kind, each.name, each.nodes) for each in observe(scene).outages if each.from_s <= scene.now_s]
    assert [kind for kind, _, nodes in told if nodes == (3,)] == ["reserved"]
    assert ("down", "DOWN+NOT_RESPONDING", (0, 1)) in told
    assert len(told) == 2


def test_a_node_that_is_down_now_is_told_though_a_reservation_will_come_and_one_without_nodes_is_none() -> None:
    scene = Scene()
    scene.node("n3")["state"] = "DOWN+NOT_RESPONDING"
    elsewhere = dict(scene.rows["reservations"][0], name="elsewhere", nodes="other[1-2]")
    scene.rows["reservations"].append(elsewhere)
    told = [(each.kind, each.nodes) for each in observe(scene).outages]
    assert ("down", (2,)) in told
    assert ("reserved", (2,)) in told
    assert all(nodes for _, nodes in told)


@pytest.mark.parametrize(
    "state",
    ["IDLE+DRAIN", "DOWN+NOT_RESPONDING", "IDLE+NOT_RESPONDING", "MIXED+MAINTENANCE", "IDLE+POWERED_DOWN", "UNKNOWN"],
)
def test_nodes_that_take_no_jobs_have_nothing_free_and_give_nothing_back(state: str) -> None:
    scene = Scene()
    scene.node("n2")["state"] = state
    seen = observe(scene)
    assert seen.free[1].tolist() == [0, 0, 0]
    assert all(node != 1 for running in seen.running for node, _ in running.placement)


@pytest.mark.parametrize("state", ["IDLE", "MIXED+PLANNED", "ALLOCATED+COMPLETING"])
def test_harmless_flags_leave_a_node_usable(state: str) -> None:
    scene = Scene()
    scene.node("n3")["state"] = state
    assert observe(scene).free[2].tolist() == [16, 16000, 0]


def test_a_completing_or_requeued_job_still_runs_until_slurm_lets_go_of_it() -> None:
    scene = Scene()
    for state in ("COMPLETING", "REQUEUED", "CONFIGURING", "SUSPENDED"):
        scene.job("gpu")
        next(job for job in scene.rows["jobs"] if job["name"] == "gpu" and job["allocated_nodes"]).update(state=state)
        assert any(r.job.name == "gpu" for r in observe(scene).running), state
        next(job for job in scene.rows["jobs"] if job["name"] == "gpu" and job["allocated_nodes"]).update(
            state="RUNNING"
        )


def test_an_ended_job_is_told_once_under_the_request_it_had_when_it_ran() -> None:
    scene, translator = Scene(), SlurmTranslator()
    first = translator.observe(scene.read())
    asked = next(r.job.request for r in first.running if r.job.name == "two-by-two")
    scene.job("two-by-two").update(state="COMPLETED", end_time=scene.now_s + 5)
    second = translator.observe(scene.read())
    assert [(e.job.name, e.job.request, e.end_s) for e in second.ended] == [("two-by-two", asked, scene.now_s + 5)]
    assert translator.observe(scene.read()).ended == ()


def test_the_first_reading_tells_of_all_that_ended_while_nobody_looked() -> None:
    scene = Scene()
    scene.job("two-by-two").update(state="COMPLETED", end_time=scene.now_s - 5)
    assert any(e.job.name == "two-by-two" for e in observe(scene).ended)


def test_unchanged_records_keep_their_job_objects_and_the_cluster() -> None:
    scene, translator = Scene(), SlurmTranslator()
    first, second = translator.observe(scene.read()), translator.observe(scene.read())
    assert first.cluster is second.cluster
    plain = [
        (a.job, b.job)
        for a, b in zip(first.pending, second.pending, strict=True)
        if slurm_job_ids.split_task_id(a.job.id)[1] is None
    ]
    assert plain
    assert all(a is b for a, b in plain if words(a.ineligible) not in ("begin time", "dependency"))


def test_a_changed_record_is_translated_anew() -> None:
    scene, translator = Scene(), SlurmTranslator()
    translator.observe(scene.read())
    scene.job("first")["time_limit"] = 11
    assert pending(scene, "first", translator.observe(scene.read())).job.walltime_s == 660


def test_a_new_node_makes_a_new_cluster() -> None:
    scene, translator = Scene(), SlurmTranslator()
    translator.observe(scene.read())
    scene.rows["nodes"].append({**scene.node("n3"), "name": "n5"})
    assert translator.observe(scene.read()).cluster.node_names[-1] == "n5"


def test_a_job_that_was_cancelled_while_it_waited_neither_started_nor_ended() -> None:
    scene = Scene()
    over = {"state": "CANCELLED", "start_time": scene.now_s - 5, "end_time": scene.now_s - 5}
    job = scene.job("two-by-two")
    job.update(over, allocated_nodes=None)
    assert not any(e.job.name == "two-by-two" for e in observe(scene).ended)
    job["allocated_nodes"] = "n2"
    assert any(e.job.name == "two-by-two" for e in observe(scene).ended), "this one did, within a second"


def test_a_dependency_is_met_with_the_reading_in_which_the_other_job_has_ended() -> None:
    """The record itself, which Slurm looks at once a minute, is unchanged."""
    scene, translator = Scene(), SlurmTranslator()
    on = scene.job("two-by-two")
    wish = {"after": [], "afterany": [], "aftercorr": [], "afternotok": []}
    scene.job("first")["dependencies"] = {**wish, "afterok": [f"{on['id']}(unfulfilled)"], "satisfy": "all"}
    assert words(pending(scene, "first", translator.observe(scene.read())).job.ineligible) == "dependency"
    on.update(state="COMPLETED", end_time=scene.now_s)
    assert pending(scene, "first", translator.observe(scene.read())).job.ineligible is None


def test_a_reason_is_told_with_whom_it_lies() -> None:
    scene = Scene()
    scene.job("first").update(priority=7, state_reason="AssocMaxJobsLimit", account="lab")
    found = pending(scene, "first")
    assert found.obstacle is not None
    assert (found.obstacle.reason, str(found.obstacle.scope)) == ("AssocMaxJobsLimit", "user alice of account lab")
    assert found.groups[0] == ("job", (found.label,))
    assert found.obstacle.scope in found.groups


@pytest.mark.parametrize("index", [2**31, 2**63, 2**80, -1])
def test_a_task_that_no_array_can_have_has_the_number_of_its_record(index: int) -> None:
    scene = Scene()
    scene.job("first").update(array_id=scene.job("first")["id"], array_task_id=index)
    assert pending(scene, "first").job.id == scene.job("first")["id"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"oversubscribe": "FORCE:2"}, "oversubscribed nodes (FORCE:2)"),
        ({"max_cpus_per_node": 4}, "limits per node"),
        ({"max_cpus_per_socket": 4}, "limits per node"),
        ({"max_memory_per_node": 4}, "limits per node"),
        ({"max_memory_per_cpu": 4}, "limits per node"),
        ({"is_user_exclusive": True}, "nodes exclusive to a user"),
        ({"requires_reservation": True}, "closed to ordinary jobs"),
        ({"is_root_only": True}, "closed to ordinary jobs"),
        ({"nodes": "n[1-"}, "nodes cannot be read: node list 'n[1-': brackets do not match"),
    ],
)
def test_jobs_of_a_partition_that_is_not_modelled_are_left_to_slurm(change: dict[str, Any], why: str) -> None:
    scene = Scene()
    assert pending(scene, "first").job.queue == "main"
    scene.partition("main").update(change)
    assert words(left(scene, "first").reason) == f"partition main: {why}"


def test_a_record_that_cannot_be_decided_on_concerns_no_other() -> None:
    scene = Scene().only("first", "six")
    scene.job("first").update(time_limit="soon")
    seen = observe(scene)
    (found,) = seen.left
    assert (found.job_id, found.user, found.held_for_us) == (scene.job("first")["id"], "alice", True)
    assert [p.label for p in seen.pending] == [str(scene.job("six")["id"])]


@pytest.mark.parametrize(("ahead_s", "why"), [(1, "begin time"), (0, None), (-1, None)])
def test_a_job_waits_until_its_begin_time(ahead_s: int, why: str | None) -> None:
    scene = Scene().only("first")
    scene.job("first")["eligible_time"] = scene.now_s + ahead_s
    assert words(pending(scene, "first").job.ineligible) == why
    scene.job("first")["eligible_time"] = None
    assert pending(scene, "first").job.ineligible is None


@pytest.mark.parametrize(
    ("starts_in_s", "nodes"),
    [(299, {"n1", "n2", "n4"}), (300, {"n1", "n2", "n3", "n4"}), (0, {"n1", "n2", "n3", "n4"})],
)
def test_a_reservation_is_in_the_way_if_it_begins_while_the_job_would_run(starts_in_s: int, nodes: set[str]) -> None:
    """One that has begun keeps its nodes by having nothing free there."""
    scene = Scene()
    first = scene.rows["reservations"][0]
    times = {"start_time": scene.now_s + starts_in_s, "end_time": scene.now_s + 9000}
    scene.rows["reservations"] = [{**first, "name": "r", "nodes": "n3", **times}]
    scene.job("first")["time_limit"] = 5
    seen = observe(scene)
    assert allowed(seen, pending(scene, "first", seen)) == nodes
    assert (seen.free[2].tolist() == [0, 0, 0]) is (starts_in_s == 0)


def test_a_job_in_special_exit_is_left_with_its_reason():
    """`scontrol requeuehold` by an administrator: the job is in no other list, and would be unknown."""
    scene = Scene()
    record = scene.job("six")
    record["state"] = "SPECIAL_EXIT"
    seen = observe(scene)
    (left,) = (each for each in seen.left if each.job_id == record["id"])
    assert (words(left.reason).partition(":")[0], left.held_for_us, left.user) == (
        "SPECIAL_EXIT",
        False,
        record["user_name"],
    )
    assert record["id"] not in {each.job.id for each in seen.pending}
