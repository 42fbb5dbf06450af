"""Recorded Slurm records, translated into observations."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched.feasibility import units_fitting_by_node
from cpsched.formatting import format_cluster_time
from cpsched.model import PendingCode, PendingReason
from cpsched.slurm_text.configuration import SelectRules
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.ports import Hold, Observation, PendingJob, UnmanagedJob
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
    return next(left for left in (seen or observe(scene)).unmanaged if left.job_id == wanted)


def allowed(seen: Observation, job: PendingJob) -> set[str]:
    """Names of the nodes that a job may use."""
    mask = seen.cluster.node_sets[job.job.request.node_set]
    return {name for name, ok in zip(seen.cluster.node_names, mask, strict=True) if ok}


def test_pin_records_how_to_restore_job() -> None:
    scene, translator = Scene(), SlurmTranslator()
    restores = {each.job.id: each.start_settings.restore for each in translator.observe(scene.read()).pending}
    assert restores[scene.job("six")["id"]] == "TasksPerNode=0 NumTasks=6"
    assert restores[scene.job("first")["id"]] == ""


def test_multi_node_pin_restores_node_count_within_partition() -> None:
    scene, translator = Scene().only("six"), SlurmTranslator()
    scene.partition("main")["max_nodes"] = 4
    scene.job("six").update(ntasks=21, cpus=21, max_nodes=21)
    (pending,) = translator.observe(scene.read()).pending
    told = pending.start_settings
    assert (told.tasks_per_node, told.restore) == (7, "TasksPerNode=0 NumNodes=1-4 NumTasks=21")


@pytest.mark.parametrize(
    ("field", "value"),
    [("licenses", ["matlab:1"]), ("heterogeneous_id", 12), ("reservation", "maint"), ("unreadable", ["gpus"])],
)
def test_leaves_job_with_unmodelled_field(field: str, value: object) -> None:
    scene = Scene()
    scene.job("first")[field] = value
    assert left(scene, "first").held_for_bridge


def test_job_avoids_nodes_reserved_before_its_end() -> None:
    """`maint` takes n3 in two hours; `first` runs five minutes at most, `memory` without a limit."""
    scene = Scene()
    seen = observe(scene)
    assert "n3" in allowed(seen, pending(scene, "first", seen))
    assert "n3" not in allowed(seen, pending(scene, "memory", seen))


@pytest.mark.parametrize(("change", "why"), [({"max_nodes": 0}, "more nodes"), ({"min_nodes": 2}, "fewer nodes")])
def test_leaves_job_whose_node_count_exceeds_partition(change: dict[str, object], why: str) -> None:
    scene = Scene()
    scene.partition("main").update(change)
    assert why in words(left(scene, "first").reason)


def test_job_blocked_by_future_reservation_waits_for_its_end() -> None:
    """Four nodes, of which `maint` takes n3 in two hours."""
    scene = Scene()
    scene.job("two-nodes").update(ntasks=4, num_nodes=4, max_nodes=4, time_limit=60 * 24)
    reason = words(pending(scene, "two-nodes").job.ineligible)
    assert reason == (
        "its allowed nodes cannot hold it on 4 nodes, even if they are empty, before reservation maint ends"
    )


def test_names_only_reservations_that_block_job() -> None:
    """Also where several take its nodes; one elsewhere, or of nodes that it may not use, is none of them."""
    scene = Scene()
    maint = next(row for row in scene.rows["reservations"] if row["name"] == "maint")
    scene.rows["reservations"].append(maint | {"name": "elsewhere", "nodes": "other[1-2]"})
    scene.job("first")["time_limit"] = 60 * 24
    seen = observe(scene)
    job = next(each.job for each in seen.pending if each.job.name == "first")
    parts = seen.cluster.conditions_of_node_set(job.request.node_set)
    assert "maint" in {part.name for part in parts if part.kind == "reservation"}
    assert "elsewhere" not in {part.name for part in parts}
    scene.rows["reservations"].append(maint | {"name": "course", "nodes": "n1"})
    scene.job("two-nodes").update(ntasks=4, num_nodes=4, max_nodes=4, time_limit=60 * 24)
    reason = words(pending(scene, "two-nodes").job.ineligible) or ""
    assert reason.startswith(
        "its allowed nodes cannot hold it on 4 nodes, even if they are empty, before reservations "
    )
    assert {"maint", "course"} <= set(reason.removesuffix(" end").replace(",", "").split())
    assert "elsewhere" not in reason


def test_job_or_partition_requests_whole_nodes() -> None:
    scene = Scene()
    assert pending(scene, "exclusive").job.request.exclusive
    assert not pending(scene, "first").job.request.exclusive
    scene.partition("main")["oversubscribe"] = "EXCLUSIVE"
    assert pending(scene, "first").job.request.exclusive


def test_linear_selection_gives_each_job_whole_nodes() -> None:
    scene = Scene().only("first")
    for memory_mib, allowed in ((1, True), (1_000_000, False)):
        scene.job("first")["memory_per_cpu"] = memory_mib
        scene.rows["nodes"][0]["real_memory"] = 64_000_000
        seen = SlurmTranslator(SelectRules(whole_nodes=True)).observe(scene.read())
        (job,) = [each.job for each in seen.pending]
        assert job.request.exclusive
        # Slurm needs the memory per CPU for all CPUs of a node.
        assert seen.cluster.node_sets[job.request.node_set].tolist() == [True, allowed, allowed, allowed]


def test_array_task_keeps_id_when_split_and_running() -> None:
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


def test_free_resources_are_those_of_usable_nodes() -> None:
    """n1 is drained, n4 reserved. On n2 a job that Slurm split unevenly counts with an equal share; one has a GPU."""
    seen = observe(Scene())
    assert dict(zip(seen.cluster.node_names, seen.free.tolist(), strict=True)) == {
        "n1": [0, 0, 0],
        "n2": [3, 3000, 1],
        "n3": [16, 16000, 0],
        "n4": [0, 0, 0],
    }


def test_outages_are_reservations_and_unavailable_nodes() -> None:
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


def test_reports_reserved_nodes_once_and_groups_by_state() -> None:
    scene = Scene()
    for name, state in (("n4", "IDLE+MAINTENANCE+DRAIN"), ("n1", "DOWN+NOT_RESPONDING"), ("n2", "DOWN+NOT_RESPONDING")):
        scene.node(name)["state"] = state
    told = [(each.kind, each.name, each.nodes) for each in observe(scene).outages if each.from_s <= scene.now_s]
    assert [kind for kind, _, nodes in told if nodes == (3,)] == ["reserved"]
    assert ("down", "DOWN+NOT_RESPONDING", (0, 1)) in told
    assert len(told) == 2


def test_reports_down_node_and_its_future_reservation() -> None:
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
    ["IDLE+DRAIN", "DOWN+NOT_RESPONDING", "IDLE+NOT_RESPONDING", "MIXED+MAINTENANCE", "IDLE+POWERING_DOWN", "UNKNOWN"],
)
def test_unavailable_nodes_offer_and_free_no_resources(state: str) -> None:
    scene = Scene()
    scene.node("n2")["state"] = state
    seen = observe(scene)
    assert seen.free[1].tolist() == [0, 0, 0]
    assert all(node != 1 for running in seen.running for node, _ in running.placement)


@pytest.mark.parametrize("state", ["IDLE", "MIXED+PLANNED", "ALLOCATED+COMPLETING"])
def test_harmless_flags_leave_node_usable(state: str) -> None:
    scene = Scene()
    scene.node("n3")["state"] = state
    assert observe(scene).free[2].tolist() == [16, 16000, 0]


def test_completing_or_requeued_job_runs_until_released() -> None:
    scene = Scene()
    for state in ("COMPLETING", "REQUEUED", "CONFIGURING", "SUSPENDED"):
        scene.job("gpu")
        next(job for job in scene.rows["jobs"] if job["name"] == "gpu" and job["allocated_nodes"]).update(state=state)
        assert any(r.job.name == "gpu" for r in observe(scene).running), state
        next(job for job in scene.rows["jobs"] if job["name"] == "gpu" and job["allocated_nodes"]).update(
            state="RUNNING"
        )


def test_reports_ended_job_once_with_its_request() -> None:
    scene, translator = Scene(), SlurmTranslator()
    first = translator.observe(scene.read())
    asked = next(r.job.request for r in first.running if r.job.name == "two-by-two")
    scene.job("two-by-two").update(state="COMPLETED", end_time=scene.now_s + 5)
    second = translator.observe(scene.read())
    assert [(e.job.name, e.job.request, e.end_s) for e in second.ended] == [("two-by-two", asked, scene.now_s + 5)]
    assert translator.observe(scene.read()).ended == ()


def test_first_reading_reports_jobs_ended_before_it() -> None:
    scene = Scene()
    scene.job("two-by-two").update(state="COMPLETED", end_time=scene.now_s - 5)
    assert any(e.job.name == "two-by-two" for e in observe(scene).ended)


def test_unchanged_records_keep_job_objects_and_cluster() -> None:
    scene, translator = Scene(), SlurmTranslator()
    scene.job("several")["partition"] = "main"
    first, second = translator.observe(scene.read()), translator.observe(scene.read())
    assert first.cluster is second.cluster
    plain = [
        (a.job, b.job)
        for a, b in zip(first.pending, second.pending, strict=True)
        if slurm_job_ids.split_task_id(a.job.id)[1] is None
    ]
    assert plain
    assert all(a is b for a, b in plain if (words(a.ineligible) or "").split(" ")[0] not in ("depends", "its"))


def test_translates_changed_record_again() -> None:
    scene, translator = Scene(), SlurmTranslator()
    translator.observe(scene.read())
    scene.job("first")["time_limit"] = 11
    assert pending(scene, "first", translator.observe(scene.read())).job.walltime_s == 660


def test_new_node_makes_new_cluster() -> None:
    scene, translator = Scene(), SlurmTranslator()
    translator.observe(scene.read())
    scene.rows["nodes"].append({**scene.node("n3"), "name": "n5"})
    assert translator.observe(scene.read()).cluster.node_names[-1] == "n5"


def test_job_cancelled_while_pending_did_not_run() -> None:
    scene = Scene()
    over = {"state": "CANCELLED", "start_time": scene.now_s - 5, "end_time": scene.now_s - 5}
    job = scene.job("two-by-two")
    job.update(over, allocated_nodes=None)
    assert not any(e.job.name == "two-by-two" for e in observe(scene).ended)
    job["allocated_nodes"] = "n2"
    assert any(e.job.name == "two-by-two" for e in observe(scene).ended), "this one did, within a second"


def test_dependency_is_met_once_target_has_ended() -> None:
    """The record itself, which Slurm looks at once a minute, is unchanged."""
    scene, translator = Scene(), SlurmTranslator()
    on = scene.job("two-by-two")
    wish = {"after": [], "afterany": [], "aftercorr": [], "afternotok": []}
    scene.job("first")["dependencies"] = {**wish, "afterok": [f"{on['id']}(unfulfilled)"], "satisfy": "all"}
    assert (
        words(pending(scene, "first", translator.observe(scene.read())).job.ineligible) == f"depends on job {on['id']}"
    )
    on.update(state="COMPLETED", end_time=scene.now_s)
    assert pending(scene, "first", translator.observe(scene.read())).job.ineligible is None


def test_pending_job_has_backoff_groups_of_its_reason() -> None:
    scene = Scene()
    scene.job("first").update(priority=7, state_reason="AssocMaxJobsLimit", account="lab")
    found = pending(scene, "first")
    reason = found.cluster_reason
    assert reason is not None
    assert (reason.reason, str(reason.scope)) == ("AssocMaxJobsLimit", "user alice in account lab")
    assert found.groups[0] == ("job", (found.label,))
    assert reason.scope in found.groups


@pytest.mark.parametrize("index", [2**31, 2**63, 2**80, -1])
def test_task_with_invalid_index_has_record_id(index: int) -> None:
    scene = Scene()
    scene.job("first").update(array_id=scene.job("first")["id"], array_task_id=index)
    assert pending(scene, "first").job.id == scene.job("first")["id"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"oversubscribe": "FORCE:2"}, "its nodes are oversubscribed (FORCE:2)"),
        ({"max_cpus_per_socket": 4}, "it sets MaxCPUsPerSocket, and other partitions use its nodes"),
        ({"is_user_exclusive": True}, "its nodes are exclusive to one user at a time"),
        ({"requires_reservation": True}, "it is closed to ordinary jobs"),
        ({"is_root_only": True}, "it is closed to ordinary jobs"),
        ({"nodes": "n[1-"}, "nodes cannot be read: node list 'n[1-': brackets do not match"),
    ],
)
def test_leaves_jobs_of_unmodelled_partition(change: dict[str, Any], why: str) -> None:
    scene = Scene()
    assert pending(scene, "first").job.queue == "main"
    scene.partition("main").update(change)
    assert words(left(scene, "first").reason) == f"partition main: {why}"


def limited(scene: Scene) -> None:
    """Nodes n2 and n3 of 16 cores; jobs of `main` may use 6 of each, and one uses 3 of n2."""
    scene.rows["reservations"] = []
    scene.partition("main").update(max_cpus_per_node=6, nodes="n[2-3]")
    scene.partition("short").update(nodes="n[2-3]")
    running = scene.job("serial")
    tres = {"cpu": 3, "mem": 3000, "node": 1}
    running.update(allocated_nodes="n2", cpus=3, allocated_tres=tres, requested_tres=tres)
    scene.rows["jobs"] = [running, {**scene.job("first"), "priority": 0, "time_limit": 30}]
    facts = {"state": "MIXED", "allocated_cpus": 3, "allocated_memory": 3000, "allocated_tres": {}}
    scene.node("n2").update(facts)
    scene.node("n3").update({**facts, "state": "IDLE", "allocated_cpus": 0, "allocated_memory": 0})


@pytest.mark.parametrize(
    ("partition", "cpus", "units"),
    [("main", 3, [1, 1]), ("main", 4, [0, 1]), ("main", 6, [0, 1]), ("short", 13, [1, 1]), ("short", 14, [0, 1])],
)
def test_a_partition_gives_its_jobs_together_so_many_cpus_of_a_node(
    partition: str, cpus: int, units: list[int]
) -> None:
    scene = Scene()
    limited(scene)
    scene.job("first").update(partition=partition, cpus_per_task=cpus, cpus=cpus, memory_per_cpu=1)
    seen = observe(scene)
    job = pending(scene, "first", seen).job
    assert units_fitting_by_node(job.request, seen.cluster, seen.free)[1:3].tolist() == units
    assert seen.cluster.resources == ("cores", "memory_mib", "cores@main", "gpu")
    (running,) = seen.running
    assert running.job.request.per_unit == (3, 3000, 3, 0), "the profile gives them back"


def test_a_limit_of_a_partition_that_changes_counts_at_once() -> None:
    scene, translator = Scene(), SlurmTranslator()
    limited(scene)
    columns = []
    for most in (6, 8, "UNLIMITED"):
        scene.partition("main")["max_cpus_per_node"] = most
        cluster = translator.observe(scene.read()).cluster
        columns.append((cluster.resources[2], int(cluster.capacity[2, 2])))
    assert columns == [("cores@main", 6), ("cores@main", 8), ("gpu", 0)]


@pytest.mark.parametrize(("nodes", "cpus", "units"), [("n4", 3, [1, 1]), ("n4", 4, [0, 1]), ("n[3-4]", 3, None)])
def test_limits_cpus_per_socket_if_no_other_partition_has_the_nodes(
    nodes: str, cpus: int, units: list[int] | None
) -> None:
    """Two sockets with at most 3 CPUs each; one job uses 3 CPUs of n2."""
    scene = Scene()
    limited(scene)
    scene.partition("main").update(max_cpus_per_node=None, max_cpus_per_socket=3)
    for other in scene.rows["partitions"]:
        other["nodes"] = other["nodes"] if other["name"] == "main" else nodes
    scene.job("first").update(cpus_per_task=cpus, cpus=cpus, memory_per_cpu=1)
    seen = observe(scene)
    if units is None:
        why = "partition main: it sets MaxCPUsPerSocket, and other partitions use its nodes"
        assert words(left(scene, "first").reason) == why
        return
    assert (
        units_fitting_by_node(pending(scene, "first", seen).job.request, seen.cluster, seen.free)[1:3].tolist() == units
    )


def test_a_job_that_can_never_keep_a_limit_of_its_partition_is_left_to_slurm() -> None:
    scene = Scene()
    limited(scene)
    job = scene.job("first")
    job.update(cpus_per_task=7, cpus=7)
    assert "its allowed nodes cannot hold it" in words(left(scene, "first").reason)
    job.update(cpus_per_task=1, cpus=1, resource_sharing="NO")
    assert words(left(scene, "first").reason) == "requests whole nodes of a partition that limits CPUs per node"
    job.update(resource_sharing="OK", memory_per_cpu=2000)
    for most, kept in ((2000, True), (1999, False)):
        scene.partition("main")["max_memory_per_node"] = most
        assert bool(observe(scene).pending) is kept


@pytest.mark.parametrize(
    ("sharing", "asks", "why"),
    [
        ("NO", True, None),
        ("YES:4", False, None),
        ("YES:4", True, "requests to share its cores (--oversubscribe) in partition main"),
        ("FORCE:1", True, None),
    ],
)
def test_leaves_only_jobs_that_may_share_cores(sharing: str, asks: bool, why: str | None) -> None:
    scene = Scene()
    scene.partition("short")["nodes"] = None
    scene.partition("main")["oversubscribe"] = sharing
    scene.job("first")["resource_sharing"] = "YES" if asks else "OK"
    if why is None:
        assert pending(scene, "first").job.queue == "main"
    else:
        assert words(left(scene, "first").reason) == why


def test_leaves_forced_sharing_partition_with_common_nodes() -> None:
    scene = Scene()
    scene.partition("main")["oversubscribe"] = "FORCE:1"
    told = "partition main: it sets OverSubscribe=FORCE:1, and other partitions use its nodes"
    assert words(left(scene, "first").reason) == told


@pytest.mark.parametrize(
    ("sharing", "asks", "closed"),
    [("NO", "YES", False), ("YES:4", "OK", False), ("YES:4", "YES", True), ("FORCE:1", "OK", False),
     ("FORCE:2", "OK", True)],
)  # fmt: skip
def test_nodes_with_shareable_job_accept_no_other_job(sharing: str, asks: str, closed: bool) -> None:
    scene = Scene()
    scene.rows["reservations"], scene.partition("short")["nodes"] = [], None
    scene.partition("main")["oversubscribe"] = sharing
    running = scene.job("serial")
    running.update(allocated_nodes="n2", resource_sharing=asks)
    scene.rows["jobs"] = [running]
    scene.node("n2").update(state="MIXED", allocated_cpus=1, allocated_memory=1000, allocated_tres={})
    seen = SlurmTranslator().observe(scene.read())
    assert bool(seen.free[1].any()) is not closed


def test_undecidable_record_affects_no_other_job() -> None:
    scene = Scene().only("first", "six")
    scene.job("first").update(time_limit="soon")
    seen = observe(scene)
    (found,) = seen.unmanaged
    assert (found.job_id, found.user, found.held_for_bridge) == (scene.job("first")["id"], "alice", True)
    assert [p.label for p in seen.pending] == [str(scene.job("six")["id"])]


@pytest.mark.parametrize("ahead_s", [1, 0, -1])
def test_job_waits_until_begin_time(ahead_s: int) -> None:
    scene = Scene().only("first")
    scene.job("first")["eligible_time"] = scene.now_s + ahead_s
    begins = f"its begin time is {format_cluster_time(scene.now_s + ahead_s)}"
    assert words(pending(scene, "first").job.ineligible) == (begins if ahead_s > 0 else None)
    scene.job("first")["eligible_time"] = None
    assert pending(scene, "first").job.ineligible is None


@pytest.mark.parametrize(
    ("starts_in_s", "nodes"),
    [(299, {"n1", "n2", "n4"}), (300, {"n1", "n2", "n3", "n4"}), (0, {"n1", "n2", "n3", "n4"})],
)
def test_reservation_beginning_during_job_blocks_it(starts_in_s: int, nodes: set[str]) -> None:
    """One that has begun keeps its nodes by having nothing free there."""
    scene = Scene()
    first = scene.rows["reservations"][0]
    times = {"start_time": scene.now_s + starts_in_s, "end_time": scene.now_s + 9000}
    scene.rows["reservations"] = [{**first, "name": "r", "nodes": "n3", **times}]
    scene.job("first")["time_limit"] = 5
    seen = observe(scene)
    assert allowed(seen, pending(scene, "first", seen)) == nodes
    assert (seen.free[2].tolist() == [0, 0, 0]) is (starts_in_s == 0)


def test_leaves_special_exit_job_with_reason():
    """`scontrol requeuehold` by an administrator: the job is in no other list, and would be unknown."""
    scene = Scene()
    record = scene.job("six")
    record["state"] = "SPECIAL_EXIT"
    seen = observe(scene)
    (left,) = (each for each in seen.unmanaged if each.job_id == record["id"])
    assert (words(left.reason).partition(":")[0], left.held_for_bridge, left.user) == (
        "SPECIAL_EXIT",
        False,
        record["user_name"],
    )
    assert record["id"] not in {each.job.id for each in seen.pending}


@pytest.mark.parametrize(("asked_s", "begins_s"), [(0, None), (1_000_000_000, None), (5_000_000_000, 5_000_000_000)])
def test_delayed_job_begins_when_its_owner_requests(asked_s: int, begins_s: int | None) -> None:
    """The submit plugin delays it only until the bridge holds it, or releases a job that it does not model."""
    scene = Scene().only("first")
    delayed = {"priority": 1, "state_reason": "BeginTime", "eligible_time": scene.now_s + 120}
    scene.job("first").update(delayed | {"admin_comment": "bridge:wait", "comment": f"bridge:begin({asked_s})"})
    (pending,) = SlurmTranslator().observe(scene.read()).pending
    reason = None if begins_s is None else PendingReason(PendingCode.BEGINS_AT, (begins_s,))
    assert (pending.hold, pending.awaits_hold, pending.job.ineligible) == (Hold.NONE, True, reason)
    scene.job("first")["required_nodes"] = "n9"
    (left,) = SlurmTranslator().observe(scene.read()).unmanaged
    assert left.held_for_bridge
