"""Pending records of a reading: which are decided on, in which order, which are left, and which are read again."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.shared.not_modelled import JobNotModelled
from cpsched_bridge.adapters.slurm.translation import array_tasks, job_dependencies, slurm_job_ids
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.ports import Hold, Observation, PendingJob, UnmanagedJob
from tests.builders import words
from tests.unit.bridge.adapters.slurm.scenes import Scene


def one(**facts: Any) -> Scene:
    """A scene with `first` alone, with other facts; a job of number 100 that the bridge holds."""
    scene = Scene().only("first")
    scene.job("first").update({"id": 100, "submit_time": 50, **facts})
    return scene


def observe(scene: Scene, **options: Any) -> Observation:
    return SlurmTranslator().observe(scene.read(), **options)


def the_pending(scene: Scene, **options: Any) -> PendingJob:
    seen = observe(scene, **options)
    assert (len(seen.pending), seen.left) == (1, ())
    return seen.pending[0]


def the_left(scene: Scene, **options: Any) -> UnmanagedJob:
    seen = observe(scene, **options)
    assert (len(seen.left), seen.pending) == (1, ())
    return seen.left[0]


HELD = {"priority": 0, "admin_comment": "bridge:wait", "state_reason": "JobHeldAdmin", "comment": "bridge:wait"}
FREE = {"priority": 9, "admin_comment": None, "state_reason": "Priority", "comment": None}
BY_OWNER = {"priority": 0, "admin_comment": None, "state_reason": "JobHeldUser", "comment": None}


@pytest.mark.parametrize(
    ("facts", "hold", "for_us"), [(HELD, Hold.PLUGIN, True), (FREE, Hold.NONE, False), (BY_OWNER, Hold.USER, False)]
)
def test_who_holds_a_job_is_told_of_those_decided_on_and_of_those_left(
    facts: dict[str, Any], hold: Hold, for_us: bool
) -> None:
    assert the_pending(one(**facts)).hold is hold
    left = the_left(one(**facts, licenses=["matlab:1"]))
    assert left == UnmanagedJob(100, JobNotModelled("asks for licenses").reason, "100", "alice", for_us)


def test_the_plugins_words_hold_nothing_where_there_is_no_plugin_to_guard_them() -> None:
    facts = {"priority": 0, "admin_comment": None, "state_reason": "JobHeldAdmin", "comment": "bridge:user-held"}
    for guarded, hold in ((True, Hold.USER), (False, Hold.ADMIN)):
        scene = one(**facts)
        scene.guarded = guarded
        assert the_pending(scene).hold is hold


def test_a_job_that_is_left_is_named_as_people_do_and_its_reason_can_be_printed() -> None:
    task = {"array_id": 19, "array_task_id": 3, "array_tasks_waiting": None}
    left = the_left(one(**task, user_name=None, partition="a\x1bb"))
    assert (left.job_id, left.label, left.user) == (slurm_job_ids.make_task_id(19, 3), "19_3", "")
    assert words(left.reason).startswith("unknown partition a")
    assert "\x1b" not in words(left.reason)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"partition": "nowhere"}, "unknown partition nowhere"),
        ({"partition": None}, "unknown partition None"),
        ({"partition": ""}, "unknown partition "),
        ({"partition": "main,nowhere"}, "several partitions"),
        ({"array_id": 19, "array_tasks_waiting": "1-x"}, "its waiting tasks cannot be read"),
        ({"array_id": 19, "array_tasks_waiting": "5-1"}, "its waiting tasks cannot be read"),
        ({"time_limit": "soon"}, "cannot be read: "),
        ({"excluded_nodes": "n[1-"}, "cannot be read: "),
        ({"required_nodes": "n2"}, "its owner chose its nodes"),
        ({"required_nodes": "n2", "licenses": ["matlab:1"]}, "its owner chose its nodes"),
        ({"licenses": ["matlab:1"]}, "asks for licenses"),
    ],
)
def test_why_a_job_is_left_to_slurm(facts: dict[str, Any], reason: str) -> None:
    left = the_left(one(**facts))
    assert words(left.reason).startswith(reason)
    assert words(left.reason) == reason or reason.endswith(": ")
    assert left.held_for_us


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
def test_a_node_list_is_ours_if_ledger_or_plugin_say_so(
    comment: str | None, guarded: bool, pinned: tuple[int, ...], ours: bool
) -> None:
    scene = one(required_nodes="n2", comment=comment)
    scene.guarded = guarded
    if ours:
        found = the_pending(scene, pinned=pinned)
        assert (found.job.id, found.pinned) == (100, True)
    else:
        assert words(the_left(scene, pinned=pinned).reason) == "its owner chose its nodes"
    assert not the_pending(one(required_nodes=None), pinned=pinned).pinned


def test_a_node_list_of_one_task_is_that_of_the_record_that_it_shares() -> None:
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
        (2, 0, [None, None, array_tasks.FULL]),
        (2, 1, [None, array_tasks.FULL, array_tasks.FULL]),
        (2, 2, [array_tasks.FULL] * 3),
        (2, 3, [array_tasks.FULL] * 3),
    ],
)
def test_so_many_tasks_may_start_as_the_array_has_room_for(
    limit: int | None, running: int, waits: list[str | None]
) -> None:
    scene = one(array_id=19, array_tasks_waiting="1-3", array_tasks_parallel=limit)
    placed = {"state": "RUNNING", "allocated_nodes": "n2", "array_tasks_waiting": None, "start_time": 60}
    rows = scene.rows["jobs"]
    rows += [{**rows[0], **placed, "id": 200 + i, "array_task_id": 10 + i} for i in range(running)]
    seen = observe(scene)
    assert [p.job.ineligible for p in seen.pending] == waits
    assert [p.job.id for p in seen.pending] == [slurm_job_ids.make_task_id(19, task) for task in (1, 2, 3)]
    assert len({p.job.request for p in seen.pending}) == 1


BEYOND = {"time_limit": 10**6}
"""More than the partition allows: a reason that lies with what is asked."""
UNMET = {"dependencies": {"afterok": ["100(unfulfilled)"]}}
"""The job waits for itself."""


def late(scene: Scene, by_s: int = 1) -> dict[str, Any]:
    return {"eligible_time": scene.now_s + by_s}


def test_of_several_reasons_to_wait_that_of_the_request_comes_first_and_that_of_the_array_last() -> None:
    scene = one()
    scene.partition("main")["max_time"] = 1000
    throttled = {"array_id": 19, "array_tasks_waiting": "1-2", "array_tasks_parallel": 1}

    def reasons(**facts: Any) -> list[str | None]:
        scene.rows["jobs"][0] = {**one().job("first"), **throttled, **facts}
        return [words(p.job.ineligible) for p in observe(scene).pending]

    beyond = "PartitionTimeLimit: time limit above that of partition main"
    assert reasons() == [None, words(array_tasks.FULL)]
    assert reasons(**late(scene)) == ["begin time"] * 2
    assert reasons(**late(scene, 0)) == [None, words(array_tasks.FULL)]
    unmet = {"dependencies": {"afterok": ["19_1(unfulfilled)"]}}
    assert reasons(**unmet) == [words(job_dependencies.UNMET)] * 2
    assert reasons(**unmet, **late(scene)) == [words(job_dependencies.UNMET)] * 2
    assert reasons(**BEYOND, **unmet, **late(scene)) == [beyond] * 2


def test_a_reason_lies_with_each_task_by_its_own_name() -> None:
    scene = one(array_id=19, array_tasks_waiting="1-2", state_reason="Dependency", account="physics", qos="normal")
    seen = observe(scene)
    assert [p.label for p in seen.pending] == ["19_1", "19_2"]
    assert [str(p.obstacle.scope) for p in seen.pending if p.obstacle] == ["job 19_1", "job 19_2"]
    assert [("job", ("19_1",)) in p.groups for p in seen.pending] == [True, False]
    assert all(("array", ("19",)) in p.groups for p in seen.pending)


def test_jobs_come_in_order_of_arrival_and_of_number_and_those_without_a_time_first() -> None:
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


def test_a_record_that_stays_as_it_was_is_not_translated_again() -> None:
    scene, translator = one(), SlurmTranslator()
    first = reading(scene, translator)
    scene.now_s += 10
    assert reading(scene, translator) is first
    scene.job("first")["account"] = "other"
    second = reading(scene, translator)
    assert second is not first
    scene.job("first")["account"] = one().job("first")["account"]
    assert reading(scene, translator) is not second


def test_another_partition_or_reservation_makes_a_record_read_anew() -> None:
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


def test_what_asks_for_it_is_told_by_number_and_forgotten_with_the_job() -> None:
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
    assert translator.queue.asked[numbers[1]] is not before, "another machine: all is read again"


def test_an_array_that_runs_more_tasks_than_it_may_has_no_room_and_not_less() -> None:
    """Its owner has lowered the limit."""
    limits = array_tasks.ArrayTaskLimits()
    assert limits.remaining_tasks({"array_id": 19, "array_tasks_parallel": 2}, {19: 5}) == 0
    assert limits.remaining_tasks({"array_id": 19, "array_tasks_parallel": None}, {19: 1}) == 1, (
        "the limit is remembered"
    )
    assert limits.remaining_tasks({"array_id": 20, "array_tasks_parallel": None}, {}) is None


ON_ITS_WAY = {**FREE, "required_nodes": "n2"}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({**HELD, "excluded_nodes": "n[3-5]"}, "excludes n5, which the cluster does not know"),
        ({**HELD, "excluded_nodes": "x[1-9]"}, "excludes x1, x2, x3 and 6 more, which the cluster does not know"),
        ({**ON_ITS_WAY, "required_nodes": "n[4-5]"}, "asks for n5, which the cluster does not know"),
        ({**ON_ITS_WAY, "required_nodes": "n[4-"}, "cannot be read: node list 'n[4-': brackets do not match"),
    ],
)
def test_a_job_whose_list_names_an_unknown_node_is_left_with_the_reason(facts: dict[str, Any], reason: str) -> None:
    """Slurm refuses every change of such a job, so that a start could only fail."""
    assert words(the_left(one(**facts), pinned=[100]).reason) == reason


def test_a_job_on_its_way_whose_node_goes_is_left_although_it_was_read_before() -> None:
    translator, scene = SlurmTranslator(), one(**HELD)
    translator.observe(scene.read())
    scene.job("first").update(ON_ITS_WAY)
    assert translator.observe(scene.read(), [100]).pending[0].pinned
    scene.rows["nodes"] = [node for node in scene.rows["nodes"] if node["name"] != "n2"]
    (left,) = translator.observe(scene.read(), [100]).left
    assert (words(left.reason), left.pinned) == ("asks for n2, which the cluster does not know", True)


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
def test_of_a_job_that_is_left_it_is_told_whether_it_is_released_with_our_pin(
    facts: dict[str, Any], pinned: list[int], told: bool
) -> None:
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
def test_whether_slurm_refuses_the_nodes_of_a_start(reason: str | None, refused: str, outranked: bool) -> None:
    seen = the_pending(one(**{**FREE, "state_reason": reason, "required_nodes": "n1"}), pinned=[100])
    assert (seen.refused, seen.lower_priority) == (refused, outranked)
