"""The dependencies that are met, given the other jobs in an observation, as in Slurm's own test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cpsched.model import PendingCode, PendingReason
from cpsched.slurm_text.jobs import JobDependencies, SlurmJob
from cpsched_bridge.adapters.slurm.translation.job_dependencies import UNMET_DEPENDENCY_REASON, JobDependencyTargets
from cpsched_bridge.telemetry.reason_kinds import format_reason
from tests.builders import a_slurm_job

NOW_S = 10_000


def job(number: int, state: str, **facts: Any) -> SlurmJob:
    return a_slurm_job(number, state, **{"name": "x", "user_id": 1, "start_time": NOW_S - 100, **facts})


def task(number: int, array: int, index: int | None, state: str) -> SlurmJob:
    return job(number, state, array_id=array, array_task_id=index)


def wishes(satisfy: str = "all", singleton: bool | None = False, **kinds: Sequence[str]) -> JobDependencies:
    """Dependencies by kind."""
    conditions = tuple((kind, target) for kind, targets in kinds.items() for target in targets)
    return JobDependencies(conditions, singleton, satisfy == "any")


def met(others: list[SlurmJob], facts: dict[str, Any] | None = None, **kinds: Any) -> bool:
    own = job(50, "PENDING", dependencies=wishes(**kinds), **(facts or {}))
    return JobDependencyTargets([*others, own], NOW_S).are_dependencies_met(own)


@pytest.mark.parametrize(
    ("kind", "by_state"),
    [
        ("after", {"PENDING": False, "CONFIGURING": False, "RUNNING": True, "COMPLETED": True, "CANCELLED": True}),
        ("afterany", {"PENDING": False, "RUNNING": False, "COMPLETING": False, "COMPLETED": True, "TIMEOUT": True}),
        ("afterok", {"PENDING": False, "RUNNING": False, "COMPLETED": True, "FAILED": False, "REQUEUED": False}),
        ("afternotok", {"PENDING": False, "RUNNING": False, "COMPLETED": False, "FAILED": True, "NODE_FAIL": True}),
        ("aftercorr", {"PENDING": False, "RUNNING": False, "COMPLETED": True, "FAILED": False}),
        ("afterburstbuffer", {"COMPLETED": False, "RUNNING": False}),
    ],
)
def test_each_dependency_type_depends_on_target_state(kind: str, by_state: dict[str, bool]) -> None:
    assert {state: met([job(7, state)], **{kind: ["7(unfulfilled)"]}) for state in by_state} == by_state


def test_job_without_dependencies_is_independent() -> None:
    own = job(50, "PENDING")
    assert JobDependencyTargets([own], NOW_S).are_dependencies_met(own)


ENDED, RUNS = job(7, "COMPLETED"), job(8, "RUNNING")
BOTH = {"afterok": ["7(unfulfilled)"], "afterany": ["8(unfulfilled)"]}
BEGAN = job(7, "RUNNING", start_time=NOW_S - 300)
TASKS = [task(8, 7, None, "COMPLETED"), task(9, 7, 1, "FAILED"), task(10, 7, 2, "RUNNING")]
COMMON = job(7, "PENDING", array_id=7, array_tasks_waiting="3-9")
WHOLE = ["7_*(unfulfilled)"]


@pytest.mark.parametrize(
    ("others", "kinds", "expected"),
    [
        # All or any
        ([ENDED, RUNS], BOTH, False),
        ([ENDED, RUNS], BOTH | {"satisfy": "any"}, True),
        ([RUNS], {"afterok": ["8"], "afterany": ["8"], "satisfy": "any"}, False),
        ([ENDED], {"afterok": ["7(failed)"]}, False),
        # Minutes after the start
        ([BEGAN], {"after": ["7+4(unfulfilled)"]}, True),
        ([BEGAN], {"after": ["7+5(unfulfilled)"]}, True),
        ([BEGAN], {"after": ["7+6(unfulfilled)"]}, False),
        # Unreadable dependencies
        *(([ENDED], {"afterok": [odd]}, False)
          for odd in ("7@other", "x", "", "7_", "7_[1-2]", "-7", "7" * 30, "7(unfulfilled) ")),
        # One task of an array, of which some wait in the common record
        ([*TASKS, COMMON], {"afterok": ["7_0(unfulfilled)"]}, True),
        ([*TASKS, COMMON], {"afterok": ["7_1(unfulfilled)"]}, False),
        ([*TASKS, COMMON], {"afternotok": ["7_1(unfulfilled)"]}, True),
        ([*TASKS, COMMON], {"afterany": ["7_2(unfulfilled)"]}, False),
        ([*TASKS, COMMON], {"afterany": ["7_5(unfulfilled)"]}, False),
        # All tasks of an array, which fails if all have ended and one failed
        ([*TASKS, COMMON], {"after": WHOLE}, False),
        (TASKS, {"after": WHOLE}, True),
        (TASKS, {"afterany": WHOLE}, False),
        (TASKS[:2], {"afterany": WHOLE}, True),
        (TASKS[:2], {"afterok": WHOLE}, False),
        (TASKS[:2], {"afternotok": WHOLE}, True),
        ([TASKS[0], task(9, 7, 1, "COMPLETED")], {"afternotok": WHOLE}, False),
        (TASKS[1:], {"afternotok": WHOLE}, False),
    ],
)  # fmt: skip
def test_dependency_is_met_by_other_jobs(others: list[SlurmJob], kinds: dict[str, Any], expected: bool) -> None:
    assert met(others, **kinds) is expected


def test_aftercorr_compares_corresponding_array_tasks() -> None:
    others = [task(8, 7, None, "COMPLETED"), task(9, 7, 1, "RUNNING")]
    own = [met(others, {"array_id": 60, "array_task_id": index}, aftercorr=WHOLE) for index in (None, 1)]
    assert own == [True, False]


def test_dependency_on_purged_job_is_met() -> None:
    assert all(met([], **{kind: ["7(unfulfilled)"]}) for kind in ("after", "afterany", "afterok", "afternotok"))


@pytest.mark.parametrize(
    ("single", "satisfy", "expected"),
    [(True, "all", False), (False, "all", True), (None, "all", False), (True, "any", True), (None, "any", True)],
)
def test_singleton_counts_with_other_dependencies(single: bool | None, satisfy: str, expected: bool) -> None:
    """None: the library has lost whether the word is there, so the job waits until Slurm has looked."""
    own = job(50, "PENDING", dependencies=wishes(satisfy, single, afterok=["7"]))
    others = [job(7, "COMPLETED", name="y"), job(8, "RUNNING")]
    assert JobDependencyTargets([*others, own], NOW_S).are_dependencies_met(own) is expected
    assert JobDependencyTargets([others[0], own], NOW_S).are_dependencies_met(own)


@pytest.mark.parametrize(("name", "expected"), [("y", True), ("x", False)])
def test_singleton_alone_satisfies_any(name: str, expected: bool) -> None:
    own = job(50, "PENDING", dependencies=wishes("any", True, afterok=["7"]))
    assert JobDependencyTargets([job(7, "RUNNING", name=name), own], NOW_S).are_dependencies_met(own) is expected


@pytest.mark.parametrize(
    ("other", "single"),
    [
        (job(7, "COMPLETED"), True),
        (job(7, "RUNNING"), False),
        (job(7, "SUSPENDED"), False),
        (job(7, "PENDING"), False),
        (job(70, "PENDING"), True),
        (job(7, "RUNNING", name="y"), True),
        (job(7, "RUNNING", user_id=2), True),
    ],
)
def test_singleton_waits_for_unfinished_job_of_same_name(other: SlurmJob, single: bool) -> None:
    """pyslurm loses the word while it is not fulfilled: nothing else is named then."""
    assert met([other]) is single


class Counted(SlurmJob):
    """A job that counts how often it is looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        Counted.looks += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    "wanted",
    [
        wishes(),
        wishes(afterany=[f"{number}(unfulfilled)" for number in range(400, 800)]),
        wishes(aftercorr=["7_*(unfulfilled)"]),
        wishes(afterok=["7_*(unfulfilled)"]),
        wishes(afterok=[f"7_{index}(unfulfilled)" for index in range(400)]),
    ],
    ids=["singleton", "many others", "corresponding tasks", "a whole array", "many tasks"],
)
def test_dependency_checks_scale_to_1000_jobs(wanted: JobDependencies) -> None:
    """One more job costs a few more looks, not one at each of the others."""
    own = [
        job(1000 + at, "PENDING", name=f"x{at}", array_id=60, array_task_id=at, dependencies=wanted)
        for at in range(400)
    ]
    others = [job(number, "COMPLETED") for number in range(400, 800)]
    array = [task(2000 + at, 7, at, "COMPLETED") for at in range(400)]
    records = [Counted(*record) for record in (*own, *others, *array)]
    Counted.looks = 0
    seen = JobDependencyTargets(records, NOW_S)
    assert all(seen.are_dependencies_met(record) for record in records)
    assert Counted.looks < 30 * len(records)


@pytest.mark.parametrize(
    ("dependencies", "expected"),
    [
        ({"afterok": ["12(unfulfilled)"]}, PendingReason(PendingCode.DEPENDS_ON, ("12",))),
        ({"afterok": ["12(unfulfilled)", "99(unfulfilled)"]}, PendingReason(PendingCode.DEPENDS_ON, ("12",))),
        (
            {"afterok": ["13(failed)"], "satisfy": "any", "afterany": ["12"]},
            PendingReason(PendingCode.DEPENDS_ON, ("12",)),
        ),
        ({"singleton": True}, UNMET_DEPENDENCY_REASON),
        ({"afterok": ["99(unfulfilled)"]}, None),
    ],
)
def test_the_reason_names_the_jobs_that_must_end(dependencies, expected):
    """Jobs 12 and 13 run, and Slurm has forgotten job 99."""
    own = job(7, "PENDING", dependencies=wishes(**dependencies))
    assert (
        JobDependencyTargets([job(12, "RUNNING"), job(13, "RUNNING"), own], NOW_S).find_unmet_dependency_reason(own)
        == expected
    )


def test_a_job_with_a_failed_dependency_can_never_start():
    own = job(7, "PENDING", dependencies=wishes(afterok=["12(failed)"]))
    reason = JobDependencyTargets([own], NOW_S).find_unmet_dependency_reason(own)
    assert format_reason(reason) == "can never run here: it depends on job 12, which did not end as required"
