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
from tests.unit.bridge.adapters.slurm.scenes import Scene, observe


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
    scene = Scene().only("six", "first")
    assert {each.job.name: each.start_settings.restore for each in observe(scene).pending} == {
        "six": "TasksPerNode=0 NumTasks=6", "first": "",
    }  # fmt: skip
    scene.with_partition("main", max_nodes=4).with_job("six", ntasks=21, cpus=21, max_nodes=21)
    told = pending(scene, "six").start_settings
    assert (told.tasks_per_node, told.restore) == (7, "TasksPerNode=0 NumNodes=1-4 NumTasks=21")


@pytest.mark.parametrize(
    ("job", "partition", "why"),
    [
        ({}, {}, None),
        ({"licenses": ["matlab:1"]}, {}, "requests licenses whose number is unknown: matlab"),
        ({"heterogeneous_id": 12}, {}, "is a heterogeneous job"),
        ({"reservation": "maint"}, {}, "requests a reservation"),
        ({"unreadable": ["gpus"]}, {}, "cannot be read: gpus"),
        ({}, {"max_nodes": 0}, "requests more nodes than its partition allows"),
        ({}, {"min_nodes": 2}, "requests fewer nodes than its partition requires"),
        ({}, {"oversubscribe": "FORCE:2"}, "partition main: its nodes are oversubscribed (FORCE:2)"),
        ({}, {"max_cpus_per_socket": 4},
         "partition main: it sets MaxCPUsPerSocket, and other partitions use its nodes"),
        ({}, {"is_user_exclusive": True}, "partition main: its nodes are exclusive to one user at a time"),
        ({}, {"requires_reservation": True}, "partition main: it is closed to ordinary jobs"),
        ({}, {"is_root_only": True}, "partition main: it is closed to ordinary jobs"),
        ({}, {"nodes": "n[1-"}, "partition main: nodes cannot be read: node list 'n[1-': brackets do not match"),
        ({}, {"oversubscribe": "FORCE:1"},
         "partition main: it sets OverSubscribe=FORCE:1, and other partitions use its nodes"),
        # Only jobs that may share cores are left.
        ({"resource_sharing": "YES"}, {"oversubscribe": "NO"}, None),
        ({"resource_sharing": "OK"}, {"oversubscribe": "YES:4"}, None),
        ({"resource_sharing": "YES"}, {"oversubscribe": "YES:4"},
         "requests to share its cores (--oversubscribe) in partition main"),
    ],
)  # fmt: skip
def test_leaves_job_that_only_slurm_can_place(job: dict[str, Any], partition: dict[str, Any], why: str | None) -> None:
    seen = observe(Scene().with_job("first", **job).with_partition("main", **partition))
    if why is None:
        assert pending(Scene(), "first", seen).job.queue == "main"
    else:
        found = left(Scene(), "first", seen)
        assert (words(found.reason), found.held_for_bridge) == (why, True)


def test_forced_sharing_without_common_nodes_leaves_no_job() -> None:
    scene = Scene().with_partition("short", nodes=None).with_partition("main", oversubscribe="FORCE:1")
    assert pending(scene.with_job("first", resource_sharing="YES"), "first").job.queue == "main"


def test_job_avoids_nodes_reserved_before_its_end() -> None:
    """`maint` takes n3 in two hours; `first` runs five minutes at most, `memory` without a limit."""
    seen = observe(Scene())
    assert "n3" in allowed(seen, pending(Scene(), "first", seen))
    assert "n3" not in allowed(seen, pending(Scene(), "memory", seen))


def test_names_only_reservations_that_block_job() -> None:
    """Also where several take its nodes; one elsewhere, or of nodes that it may not use, is none of them."""
    scene = Scene().with_job("two-nodes", ntasks=4, num_nodes=4, max_nodes=4, time_limit=60 * 24)
    blocked = "its allowed nodes cannot hold it on 4 nodes, even if they are empty, before "
    assert words(pending(scene, "two-nodes").job.ineligible) == f"{blocked}reservation maint ends"
    maint = next(row for row in scene.rows["reservations"] if row["name"] == "maint")
    scene.rows["reservations"].append(maint | {"name": "elsewhere", "nodes": "other[1-2]"})
    seen = observe(scene.with_job("first", time_limit=60 * 24))
    parts = seen.cluster.conditions_of_node_set(pending(scene, "first", seen).job.request.node_set)
    assert {"maint", "elsewhere"} & {part.name for part in parts if part.kind == "reservation"} == {"maint"}
    scene.rows["reservations"].append(maint | {"name": "course", "nodes": "n1"})
    assert words(pending(scene, "two-nodes").job.ineligible) == f"{blocked}reservations course, maint end"


def test_job_or_partition_requests_whole_nodes() -> None:
    requested = [pending(Scene(), name).job.request.exclusive for name in ("exclusive", "first")]
    assert requested == [True, False]
    assert pending(Scene().with_partition("main", oversubscribe="EXCLUSIVE"), "first").job.request.exclusive


@pytest.mark.parametrize(("memory_mib", "allowed"), [(1, True), (1_000_000, False)])
def test_linear_selection_gives_each_job_whole_nodes(memory_mib: int, allowed: bool) -> None:
    """Slurm needs the memory per CPU for all CPUs of a node."""
    scene = Scene().only("first").with_job("first", memory_per_cpu=memory_mib).with_node("n1", real_memory=64_000_000)
    seen = SlurmTranslator(SelectRules(whole_nodes=True)).observe(scene.read())
    request = pending(scene, "first", seen).job.request
    nodes = seen.cluster.node_sets[request.node_set].tolist()
    assert (request.exclusive, nodes) == (True, [True, allowed, allowed, allowed])


def test_array_task_keeps_id_when_split_and_running() -> None:
    """pyslurm shows no index for task 0."""
    scene = Scene()
    array = scene.job("throttled")
    before = {p.label: p.job.id for p in observe(scene).pending}
    apart = {**array, "id": 900, "array_task_id": None, "array_tasks_waiting": None}
    array["array_tasks_waiting"] = "1-9"
    scene.rows["jobs"].append(apart)
    assert {p.label: p.job.id for p in observe(scene).pending} == before
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


DOWN = "DOWN+NOT_RESPONDING"
DRAINED = ("drained", "ALLOCATED+DRAIN", (0,), 0, None)


@pytest.mark.parametrize(
    ("states", "unavailable"),
    [
        ({}, [DRAINED]),
        # Reserved nodes are reported once, and others by state.
        ({"n4": "IDLE+MAINTENANCE+DRAIN", "n1": DOWN, "n2": DOWN}, [("down", DOWN, (0, 1), 0, None)]),
        # A node that is down is also reported for its future reservation.
        ({"n3": DOWN}, [DRAINED, ("down", DOWN, (2,), 0, None)]),
    ],
)
def test_outages_are_reservations_and_unavailable_nodes(states: dict[str, str], unavailable: list[object]) -> None:
    """n1 is drained, n4 reserved, n3 soon, and nodes of another cluster."""
    scene = Scene()
    for name, state in states.items():
        scene.with_node(name, state=state)
    scene.rows["reservations"].append(scene.rows["reservations"][0] | {"name": "elsewhere", "nodes": "other[1-2]"})
    assert [
        (each.kind, each.name, each.nodes, each.from_s - scene.now_s, each.to_s and each.to_s - scene.now_s)
        for each in observe(scene).outages
    ] == [("reserved", "now", (3,), -5, 595), ("reserved", "maint", (2,), 7194, 10794), *unavailable]


@pytest.mark.parametrize(
    "state",
    ["IDLE+DRAIN", "DOWN+NOT_RESPONDING", "IDLE+NOT_RESPONDING", "MIXED+MAINTENANCE", "IDLE+POWERING_DOWN", "UNKNOWN"],
)
def test_unavailable_nodes_offer_and_free_no_resources(state: str) -> None:
    seen = observe(Scene().with_node("n2", state=state))
    placed = {node for running in seen.running for node, _ in running.placement}
    assert (seen.free[1].tolist(), 1 in placed) == ([0, 0, 0], False)


@pytest.mark.parametrize("state", ["IDLE", "MIXED+PLANNED", "ALLOCATED+COMPLETING"])
def test_harmless_flags_leave_node_usable(state: str) -> None:
    assert observe(Scene().with_node("n3", state=state)).free[2].tolist() == [16, 16000, 0]


@pytest.mark.parametrize("state", ["COMPLETING", "REQUEUED", "CONFIGURING", "SUSPENDED"])
def test_completing_or_requeued_job_runs_until_released(state: str) -> None:
    scene = Scene()
    next(job for job in scene.rows["jobs"] if job["name"] == "gpu" and job["allocated_nodes"])["state"] = state
    assert "gpu" in {running.job.name for running in observe(scene).running}


@pytest.mark.parametrize(
    ("facts", "has_run"),
    [
        ({"state": "COMPLETED", "end_time": -5}, True),
        ({"state": "CANCELLED", "start_time": -5, "end_time": -5, "allocated_nodes": None}, False),
        ({"state": "CANCELLED", "start_time": -5, "end_time": -5, "allocated_nodes": "n2"}, True),
    ],
)
def test_first_reading_reports_jobs_that_ran_before_it(facts: dict[str, Any], has_run: bool) -> None:
    """A job that was cancelled while it was pending has equal times, as one that ran within a second, but no nodes."""
    scene = Scene()
    times = {name: scene.now_s + value for name, value in facts.items() if name.endswith("time")}
    seen = observe(scene.with_job("two-by-two", **facts | times))
    assert ("two-by-two" in {ended.job.name for ended in seen.ended}) is has_run


def test_unchanged_records_are_the_same_objects() -> None:
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


@pytest.mark.parametrize("index", [2**31, 2**63, 2**80, -1])
def test_task_with_invalid_index_has_record_id(index: int) -> None:
    scene = Scene()
    scene.job("first").update(array_id=scene.job("first")["id"], array_task_id=index)
    assert pending(scene, "first").job.id == scene.job("first")["id"]


def limited() -> Scene:
    """Nodes n2 and n3 of 16 cores; jobs of `main` may use 6 of each, and one uses 3 of n2."""
    scene = Scene().with_partition("main", max_cpus_per_node=6, nodes="n[2-3]").with_partition("short", nodes="n[2-3]")
    scene.rows["reservations"] = []
    running = scene.job("serial")
    tres = {"cpu": 3, "mem": 3000, "node": 1}
    running.update(allocated_nodes="n2", cpus=3, allocated_tres=tres, requested_tres=tres)
    scene.rows["jobs"] = [running, {**scene.job("first"), "priority": 0, "time_limit": 30}]
    facts = {"state": "MIXED", "allocated_cpus": 3, "allocated_memory": 3000, "allocated_tres": {}}
    scene.with_node("n2", **facts).with_node(
        "n3", **facts | {"state": "IDLE", "allocated_cpus": 0, "allocated_memory": 0}
    )
    return scene


@pytest.mark.parametrize(
    ("partition", "cpus", "units"),
    [("main", 3, [1, 1]), ("main", 4, [0, 1]), ("main", 6, [0, 1]), ("short", 13, [1, 1]), ("short", 14, [0, 1])],
)
def test_a_partition_gives_its_jobs_together_so_many_cpus_of_a_node(
    partition: str, cpus: int, units: list[int]
) -> None:
    scene = limited().with_job("first", partition=partition, cpus_per_task=cpus, cpus=cpus, memory_per_cpu=1)
    seen = observe(scene)
    job = pending(scene, "first", seen).job
    assert units_fitting_by_node(job.request, seen.cluster, seen.free)[1:3].tolist() == units
    assert seen.cluster.resources == ("cores", "memory_mib", "cores@main", "gpu")
    (running,) = seen.running
    assert running.job.request.per_unit == (3, 3000, 3, 0), "the profile gives them back"


@pytest.mark.parametrize(("nodes", "cpus", "units"), [("n4", 3, [1, 1]), ("n4", 4, [0, 1]), ("n[3-4]", 3, None)])
def test_limits_cpus_per_socket_if_no_other_partition_has_the_nodes(
    nodes: str, cpus: int, units: list[int] | None
) -> None:
    """Two sockets with at most 3 CPUs each; one job uses 3 CPUs of n2."""
    scene = limited().with_partition("main", max_cpus_per_node=None, max_cpus_per_socket=3)
    for other in scene.rows["partitions"]:
        other["nodes"] = other["nodes"] if other["name"] == "main" else nodes
    seen = observe(scene.with_job("first", cpus_per_task=cpus, cpus=cpus, memory_per_cpu=1))
    if units is None:
        why = "partition main: it sets MaxCPUsPerSocket, and other partitions use its nodes"
        assert words(left(scene, "first").reason) == why
        return
    assert (
        units_fitting_by_node(pending(scene, "first", seen).job.request, seen.cluster, seen.free)[1:3].tolist() == units
    )


TOO_LARGE = "its allowed nodes cannot hold it on 1 node, even if they are empty"


@pytest.mark.parametrize(
    ("facts", "most_memory", "why"),
    [
        ({"cpus_per_task": 7, "cpus": 7}, None, TOO_LARGE),
        ({"resource_sharing": "NO"}, None, "requests whole nodes of a partition that limits CPUs per node"),
        ({"memory_per_cpu": 2000}, 2000, None),
        ({"memory_per_cpu": 2000}, 1999, TOO_LARGE),
    ],
)
def test_job_that_can_never_keep_a_limit_of_its_partition_is_left(
    facts: dict[str, object], most_memory: int | None, why: str | None
) -> None:
    seen = observe(limited().with_job("first", **facts).with_partition("main", max_memory_per_node=most_memory))
    assert ([words(each.reason) for each in seen.unmanaged], len(seen.pending)) == (([why], 0) if why else ([], 1))


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
    assert bool(SlurmTranslator().observe(scene.read()).free[1].any()) is not closed


def test_undecidable_record_affects_no_other_job() -> None:
    scene = Scene().only("first", "six").with_job("first", time_limit="soon")
    seen = observe(scene)
    left_jobs = [(each.job_id, each.user, each.held_for_bridge) for each in seen.unmanaged]
    assert left_jobs == [(scene.job("first")["id"], "alice", True)]
    assert [each.job.name for each in seen.pending] == ["six"]


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
    found = allowed(seen, pending(scene, "first", seen)), seen.free[2].tolist() == [0, 0, 0]
    assert found == (nodes, starts_in_s == 0)


@pytest.mark.parametrize(("asked_s", "begins_s"), [(0, None), (1_000_000_000, None), (5_000_000_000, 5_000_000_000)])
def test_delayed_job_begins_when_its_owner_requests(asked_s: int, begins_s: int | None) -> None:
    """The submit plugin delays it only until the bridge holds it, or releases a job that it does not model."""
    scene = Scene().only("first")
    delayed = {"priority": 1, "state_reason": "BeginTime", "eligible_time": scene.now_s + 120}
    scene.job("first").update(delayed | {"admin_comment": "bridge:wait", "comment": f"bridge:begin({asked_s})"})
    (pending,) = SlurmTranslator().observe(scene.read()).pending
    reason = None if begins_s is None else PendingReason(PendingCode.BEGINS_AT, (begins_s,))
    assert (pending.hold, pending.awaits_hold, pending.job.ineligible) == (Hold.NONE, True, reason)
    assert left(scene.with_job("first", required_nodes="n9"), "first").held_for_bridge
