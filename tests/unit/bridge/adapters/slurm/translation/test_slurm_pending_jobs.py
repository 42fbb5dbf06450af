"""Pending records in an observation: managed jobs in order, unmanaged jobs, and jobs to read again."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cpsched.site.accounts import PARTITION_LIMITS, PartitionLimit
from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.ports import Hold, PendingJob, UnmanagedJob
from tests.builders import a_slurm_job, words
from tests.unit.bridge.adapters.slurm.scenes import Scene, observe


def one(**facts: Any) -> Scene:
    """A scene with `first` alone, with other facts; a job of number 100 that the bridge holds."""
    return Scene().only("first").with_job("first", id=100, submit_time=50, **facts)


def the_pending(scene: Scene, **options: Any) -> PendingJob:
    seen = observe(scene, **options)
    assert (len(seen.pending), seen.unmanaged) == (1, ())
    return seen.pending[0]


def the_left(scene: Scene, **options: Any) -> UnmanagedJob:
    seen = observe(scene, **options)
    assert (len(seen.unmanaged), seen.pending) == (1, ())
    return seen.unmanaged[0]


HELD = {"priority": 0, "admin_comment": "bridge:wait", "state_reason": "JobHeldAdmin", "comment": "bridge:wait"}
FREE = {"priority": 9, "admin_comment": None, "state_reason": "Priority", "comment": None}
BY_OWNER = {"priority": 0, "admin_comment": None, "state_reason": "JobHeldUser", "comment": None}


@pytest.mark.parametrize(
    ("facts", "hold", "for_us"), [(HELD, Hold.PLUGIN, True), (FREE, Hold.NONE, False), (BY_OWNER, Hold.USER, False)]
)
def test_reports_holder_of_managed_and_unmanaged_jobs(facts: dict[str, Any], hold: Hold, for_us: bool) -> None:
    assert the_pending(one(**facts)).hold is hold
    left = the_left(one(**facts, deadline=1))
    assert left == UnmanagedJob(100, JobNotModelled("has a deadline").reason, "100", "alice", for_us)


@pytest.mark.parametrize(("guarded", "hold"), [(True, Hold.USER), (False, Hold.ADMIN)])
def test_plugin_mark_is_no_hold_without_plugin(guarded: bool, hold: Hold) -> None:
    scene = one(priority=0, admin_comment=None, state_reason="JobHeldAdmin", comment="bridge:user-held")
    scene.guarded = guarded
    assert the_pending(scene).hold is hold


def test_unmanaged_job_has_readable_label_and_safe_reason() -> None:
    task = {"array_id": 19, "array_task_id": 3, "array_tasks_waiting": None}
    left = the_left(one(**task, user_name="", partition="a\x1bb"))
    assert (left.job_id, left.label, left.user) == (slurm_job_ids.make_task_id(19, 3), "19_3", "")
    assert words(left.reason).startswith("unknown partition a")
    assert "\x1b" not in words(left.reason)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"partition": "nowhere"}, "unknown partition nowhere"),
        ({"partition": None}, "unknown partition "),
        ({"partition": ""}, "unknown partition "),
        ({"partition": "main,nowhere"}, "unknown partition nowhere"),
        ({"partition": "main,a b"}, "requests several partitions"),
        ({"partition": "main,a/b"}, "requests several partitions"),
        ({"array_id": 19, "array_tasks_waiting": "1-x"}, "its pending tasks cannot be read"),
        ({"array_id": 19, "array_tasks_waiting": "5-1"}, "its pending tasks cannot be read"),
        ({"time_limit": "soon"}, "cannot be read: "),
        ({"excluded_nodes": "n[1-"}, "cannot be read: "),
        ({"required_nodes": "n2"}, "its owner chose its nodes"),
        ({"required_nodes": "n2", "licenses": ["matlab:1"]}, "its owner chose its nodes"),
        ({"licenses": ["matlab:1"]}, "requests licenses whose number is unknown: matlab"),
        ({"licenses": ["matlab:1|ansys:1"]}, "requests alternative licenses"),
        ({"licenses": ["matlab(n1):1"]}, "requests alternative licenses"),
        ({"preferred_features": "fast"}, "prefers features"),
        ({"constraints": ["a*2&b*2"]}, "requests features 'a*2&b*2' with counts"),
        ({"constraints": ["[a*1&b*1]"]}, "requests features '[a*1&b*1]' with counts"),
        (
            {"constraints": ["[a|b]"], "max_nodes": 2, "ntasks": 2},
            "requests features '[a|b]' with brackets, but is not limited to one node",
        ),
    ],
)
def test_gives_reason_why_job_is_left(facts: dict[str, Any], reason: str) -> None:
    left = the_left(one(**facts))
    told = words(left.reason) or ""
    assert (told[: len(reason)] if reason.endswith(": ") else told, left.held_for_bridge) == (reason, True)


def test_keeps_jobs_whose_licenses_are_counted() -> None:
    scene = one(licenses=["matlab:2", "flex@server"])
    assert the_pending(scene, licenses=["matlab", "flex@server"]).hold is Hold.PLUGIN
    assert "unknown: flex@server" in words(the_left(scene, licenses=["matlab"]).reason)


MAIN, SHORT = "main", "short"
SEVERAL = f"{MAIN},{SHORT}"


def planned_in(scene: Scene, readings: int = 1) -> list[str]:
    """The partition in which the one pending job is planned at each reading."""
    translator = SlurmTranslator()
    return [translator.observe(scene.read()).pending[0].job.queue for _ in range(readings)]


@pytest.mark.parametrize(
    ("main", "short", "planned"),
    [
        ({}, {}, MAIN),
        ({}, {"priority_tier": 5}, SHORT),
        ({"state": "DOWN"}, {}, SHORT),
        ({"allowed_qos": ["gold"]}, {}, SHORT),
        ({"denied_qos": ["silver"]}, {}, SHORT),
        ({"denied_qos": ["ALL"], "allowed_groups": ["ALL"]}, {}, MAIN),
        ({"allowed_qos": ["gold"], "oversubscribe": "FORCE:2"}, {}, SHORT),
        ({"max_time": 1}, {"priority_tier": 0}, SHORT),
        ({"max_nodes": 1, "min_nodes": 2}, {}, SHORT),
        ({"nodes": "n1"}, {}, SHORT),
        ({"state": "DOWN"}, {"state": "DOWN"}, MAIN),
    ],
)
def test_plans_job_in_first_allowed_partition(main: dict[str, Any], short: dict[str, Any], planned: str) -> None:
    """`n1` is too small for the job."""
    scene = one(partition=SEVERAL, qos="silver", time_limit=30, memory_per_cpu=5000)
    scene.node("n1")["real_memory"] = 4000
    scene.partition(MAIN).update(main)
    scene.partition(SHORT).update(short)
    assert planned_in(scene) == [planned]


@pytest.mark.parametrize(("limits_min", "planned"), [((10, 20), MAIN), ((20, 10), SHORT), ((10, 10), MAIN)])
def test_plans_job_in_partition_of_earliest_start(limits_min: tuple[int, int], planned: str) -> None:
    """Each partition has one node, with a running job that uses all of it."""
    scene = one(partition=SEVERAL, time_limit=30)
    for at, (name, limit_min) in enumerate(zip((MAIN, SHORT), limits_min, strict=True)):
        node, tres = f"n{at + 1}", {"cpu": 16, "mem": 1000, "node": 1}
        scene.partition(name)["nodes"] = node
        scene.node(node).update(state="ALLOCATED", allocated_cpus=16)
        facts = {"id": 200 + at, "start_time": scene.now_s, "time_limit": limit_min, "cpus": 16, "state": "RUNNING"}
        scene.rows["jobs"].append({**Scene().job("serial"), **facts, "allocated_nodes": node, "allocated_tres": tres})
    assert planned_in(scene) == [planned]


@pytest.mark.parametrize(("facts", "planned"), [(HELD, [MAIN, SHORT, MAIN]), (FREE, [MAIN] * 3)])
def test_plans_unstarted_job_in_next_partition(facts: dict[str, Any], planned: list[str]) -> None:
    assert planned_in(one(**facts, partition=SEVERAL, time_limit=30), 3) == planned
    assert planned_in(one(**facts, partition=MAIN, time_limit=30), 3) == [MAIN] * 3


def test_leaves_job_if_any_partition_is_unmodelled() -> None:
    scene = one(partition=SEVERAL, time_limit=30)
    scene.partition(SHORT)["oversubscribe"] = "FORCE:2"
    assert words(the_left(scene).reason) == "partition short: its nodes are oversubscribed (FORCE:2)"


@pytest.mark.parametrize(
    ("comment", "guarded", "pinned", "ours"),
    [
        (None, True, (), False),
        (None, True, (100,), True),
        (None, True, (101,), False),
        (None, False, (100,), True),
        ("bridge:wait bridge:pinned()", True, (), True),
        ("bridge:wait bridge:pinned(n1)", True, (), True),
        ("bridge:wait", True, (), False),
    ],
)
def test_ledger_or_plugin_identifies_own_pin(
    comment: str | None, guarded: bool, pinned: tuple[int, ...], ours: bool
) -> None:
    scene = one(required_nodes="n2", comment=comment)
    scene.guarded = guarded
    seen = observe(scene, pinned=pinned)
    assert [(each.job.id, each.pinned) for each in seen.pending] == [(100, True)] * ours
    assert [words(left.reason) for left in seen.unmanaged] == ["its owner chose its nodes"] * (not ours)
    assert not the_pending(one(required_nodes=None), pinned=pinned).pinned


def test_shared_array_record_has_one_node_list() -> None:
    scene = one(array_id=19, array_tasks_waiting="1-3", required_nodes="n2")
    seen = observe(scene, pinned={slurm_job_ids.make_task_id(19, 3)})
    assert [(p.label, p.pinned) for p in seen.pending] == [("19_1", True), ("19_2", True), ("19_3", True)]
    assert words(the_left(scene, pinned={slurm_job_ids.make_task_id(19, 4)}).reason) == "its owner chose its nodes"


@pytest.mark.parametrize(
    ("limit", "running", "waits"),
    [
        (None, 0, [None, None, None]),
        (0, 5, [None, None, None]),
        (3, 0, [None, None, None]),
        (2, 0, [None, None, slurm_job_ids.TASK_LIMIT_REASON]),
        (2, 1, [None, slurm_job_ids.TASK_LIMIT_REASON, slurm_job_ids.TASK_LIMIT_REASON]),
        (2, 2, [slurm_job_ids.TASK_LIMIT_REASON] * 3),
        (2, 3, [slurm_job_ids.TASK_LIMIT_REASON] * 3),
    ],
)
def test_array_limit_bounds_startable_tasks(limit: int | None, running: int, waits: list[str | None]) -> None:
    scene = one(array_id=19, array_tasks_waiting="1-3", array_tasks_parallel=limit)
    placed = {"state": "RUNNING", "allocated_nodes": "n2", "array_tasks_waiting": None, "start_time": 60}
    rows = scene.rows["jobs"]
    rows += [{**rows[0], **placed, "id": 200 + i, "array_task_id": 10 + i} for i in range(running)]
    jobs = [pending.job for pending in observe(scene).pending]
    numbers = [slurm_job_ids.make_task_id(19, task) for task in (1, 2, 3)]
    assert [(job.id, job.ineligible) for job in jobs] == list(zip(numbers, waits, strict=True))
    assert len({job.request for job in jobs}) == 1


UNMET = {"dependencies": {"afterok": ["100(unfulfilled)"]}}
"""The job waits for itself."""


def late(scene: Scene, by_s: int = 1) -> dict[str, Any]:
    return {"eligible_time": scene.now_s + by_s}


def test_request_reason_precedes_other_reasons() -> None:
    scene = one()
    throttled = {"array_id": 19, "array_tasks_waiting": "1-2", "array_tasks_parallel": 1}

    def reasons(state: str = "UP", **facts: Any) -> list[str | None]:
        scene.partition("main")["state"] = state
        scene.rows["jobs"][0] = {**one().job("first"), **throttled, **facts}
        return [words(p.job.ineligible) for p in observe(scene).pending]

    assert reasons() == [None, words(slurm_job_ids.TASK_LIMIT_REASON)]
    assert {(text or "").partition(" is ")[0] for text in reasons(**late(scene))} == {"its begin time"}
    assert reasons(**late(scene, 0)) == [None, words(slurm_job_ids.TASK_LIMIT_REASON)]
    unmet = {"dependencies": {"afterok": ["19_1(unfulfilled)"]}}
    assert reasons(**unmet) == ["depends on job 19_1"] * 2
    assert reasons(**unmet, **late(scene)) == ["depends on job 19_1"] * 2
    assert reasons("DOWN", **unmet, **late(scene)) == ["PartitionDown: partition main is DOWN"] * 2


@pytest.mark.parametrize(
    ("limit", "name", "flag", "left"),
    [
        ({"max_time": 1}, "first", "PartitionTimeLimit", "PartitionTimeLimit: its time limit exceeds the limit of"),
        ({"max_nodes": 1}, "two-nodes", "PartitionMaxNodes", "requests more nodes than its partition allows"),
        ({"min_nodes": 2}, "first", "PartitionMinNodes", "requests fewer nodes than its partition requires"),
    ],
)
def test_qos_exempts_from_partition_limit(limit: dict[str, int], name: str, flag: PartitionLimit, left: str) -> None:
    """Otherwise, the job is left to Slurm: an operator may have raised its limit, and Slurm does not show it."""
    scene, translator = Scene().only(name), SlurmTranslator()
    scene.partition("main").update(limit)
    scene.job(name)["qos"] = "long"

    def find_reasons(*exempt_from: PartitionLimit) -> list[str]:
        seen = translator.observe(scene.read(), exempt_qos={"long": frozenset(exempt_from)})
        assert len(seen.pending) + len(seen.unmanaged) == 1
        return [str(words(each.reason)) for each in seen.unmanaged]

    assert find_reasons(flag) == []
    for exempt_from in ((), [each for each in PARTITION_LIMITS if each != flag]):
        assert find_reasons(*exempt_from)[0].startswith(left)


def test_each_task_has_reason_under_its_own_name() -> None:
    scene = one(array_id=19, array_tasks_waiting="1-2", state_reason="Dependency", account="physics", qos="normal")
    found = [
        (pending.label, str(pending.cluster_reason and pending.cluster_reason.scope), pending.groups)
        for pending in observe(scene).pending
    ]
    assert [(label, scope) for label, scope, _ in found] == [("19_1", "job 19_1"), ("19_2", "job 19_2")]
    assert [("job", ("19_1",)) in groups for *_, groups in found] == [True, False]
    assert all(("array", ("19",)) in groups for *_, groups in found)


def test_sorts_by_arrival_and_id_with_unknown_times_first() -> None:
    scene = one()
    template = scene.job("first")
    order = ((8, 1), (3, 70), (1, 70), (2, 60), (9, None), (4, 10**9))
    scene.rows["jobs"] = [{**template, "id": id, "submit_time": time} for id, time in order]
    scene.rows["jobs"].append({**template, "id": 5, "state": "RUNNING", "allocated_nodes": "n2"})
    seen = observe(scene)
    assert [p.job.id for p in seen.pending] == [9, 8, 2, 1, 3, 4]
    assert [r.job.id for r in seen.running] == [5]


# ------------------------------------------------------------------------------------------ what is read once


def reading(scene: Scene, translator: SlurmTranslator, number: int = 100) -> object:
    translator.observe(scene.read())
    return translator.queue.asked[number]


def test_unchanged_record_is_not_translated_again() -> None:
    scene, translator = one(), SlurmTranslator()
    own = scene.job("first")["account"]
    found = []
    for later_s, account in ((0, own), (10, own), (0, "other"), (0, own)):
        scene.now_s += later_s
        found.append(reading(scene.with_job("first", account=account), translator))
    assert [after is before for before, after in itertools.pairwise(found)] == [True, False, False]


def test_changed_partition_or_reservation_invalidates_record() -> None:
    scene, translator = one(), SlurmTranslator()
    scene.rows["reservations"] = Scene().rows["reservations"][:1]
    booked = scene.rows["reservations"][0]
    booked.update(name="a", nodes="n2", start_time=scene.now_s + 60, end_time=scene.now_s + 9000)
    seen = [reading(scene, translator)]

    def changed() -> bool:
        seen.append(reading(scene, translator))
        return seen[-1] is not seen[-2]

    assert not changed()
    booked["end_time"] += 1
    assert not changed(), "until when nodes are set aside makes no difference"
    booked["nodes"] = "n3"
    assert changed()
    booked["name"] = "b"
    assert changed()
    booked["start_time"] = scene.now_s + 10**6
    assert changed(), "it is not in the way any more"
    assert not changed()
    scene.partition("main")["max_time"] = 12345
    assert changed()


def test_keeps_requests_by_job_id_until_job_is_gone() -> None:
    scene, translator = one(array_id=19, array_tasks_waiting="1-2"), SlurmTranslator()
    translator.observe(scene.read())
    numbers = [slurm_job_ids.make_task_id(19, task) for task in (1, 2)]
    assert list(translator.queue.get_modelled_jobs()) == numbers
    assert [translator.queue.get_modelled_jobs()[number].id for number in numbers] == numbers
    scene.job("first")["array_tasks_waiting"] = "2"
    translator.observe(scene.read())
    assert list(translator.queue.get_modelled_jobs()) == list(translator.queue.asked) == numbers[1:]
    scene.rows["nodes"] = scene.rows["nodes"][:-1]
    before = translator.queue.asked[numbers[1]]
    translator.observe(scene.read())
    assert translator.queue.asked[numbers[1]] is not before, "another machine: all is available again"


def test_array_above_its_lowered_limit_has_no_remaining_tasks() -> None:
    """Its owner has lowered the limit."""
    limits = slurm_job_ids.RememberedArrayTaskLimits()
    assert limits.count_startable_tasks(a_slurm_job(array_id=19, array_tasks_parallel=2), {19: 5}) == 0
    assert limits.count_startable_tasks(a_slurm_job(array_id=19), {19: 1}) == 1, "the limit is remembered"
    assert limits.count_startable_tasks(a_slurm_job(array_id=20), {}) is None


ON_ITS_WAY = {**FREE, "required_nodes": "n2"}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({**HELD, "excluded_nodes": "n[3-5]"}, "excludes n5, which the cluster does not have"),
        ({**HELD, "excluded_nodes": "x[1-9]"}, "excludes x1, x2, x3 and 6 more, which the cluster does not have"),
        ({**ON_ITS_WAY, "required_nodes": "n[4-5]"}, "requests n5, which the cluster does not have"),
        ({**ON_ITS_WAY, "required_nodes": "n[4-"}, "cannot be read: node list 'n[4-': brackets do not match"),
    ],
)
def test_leaves_job_with_unknown_node_in_list(facts: dict[str, Any], reason: str) -> None:
    """Slurm refuses every change of such a job, so that a start could only fail."""
    assert words(the_left(one(**facts), pinned=[100]).reason) == reason


def test_leaves_pinned_job_whose_node_disappears() -> None:
    translator, scene = SlurmTranslator(), one(**HELD)
    translator.observe(scene.read())
    scene.job("first").update(ON_ITS_WAY)
    assert translator.observe(scene.read(), [100]).pending[0].pinned
    scene.rows["nodes"] = [node for node in scene.rows["nodes"] if node["name"] != "n2"]
    (left,) = translator.observe(scene.read(), [100]).unmanaged
    assert (words(left.reason), left.pinned) == ("requests n2, which the cluster does not have", True)


@pytest.mark.parametrize(
    ("facts", "pinned", "told"),
    [
        (ON_ITS_WAY, [100], True),
        (ON_ITS_WAY, [], False),
        ({**ON_ITS_WAY, "required_nodes": None}, [100], False),
        ({**HELD, "required_nodes": "n2"}, [100], False),
        ({**BY_OWNER, "required_nodes": "n2"}, [100], False),
        ({**ON_ITS_WAY, "comment": "bridge:pinned()"}, [], True),
    ],
)
def test_reports_whether_unmanaged_job_has_our_pin(facts: dict[str, Any], pinned: list[int], told: bool) -> None:
    assert the_left(one(**facts, licenses=["matlab:1"]), pinned=pinned).pinned is told


@pytest.mark.parametrize(
    ("reason", "refused", "outranked"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:n1", "ReqNodeNotAvail", False),
        ("ReqNodeNotAvail,_UnavailableNodes:n1", "ReqNodeNotAvail", False),
        ("ReqNodeNotAvail, May be reserved for other job", "", True),
        ("Resources", "", False),
        ("Priority", "", True),
        (None, "", False),
    ],
)
def test_detects_refused_nodes_and_lower_priority(reason: str | None, refused: str, outranked: bool) -> None:
    seen = the_pending(one(**{**FREE, "state_reason": reason, "required_nodes": "n1"}), pinned=[100])
    assert (seen.refused, seen.lower_priority) == (refused, outranked)
