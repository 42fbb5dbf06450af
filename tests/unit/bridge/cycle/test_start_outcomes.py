"""Which starts succeeded, which failed, what may be behind those, and what is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cpsched.model import EndedJob, RunningJob
from cpsched_bridge.cycle.start_outcomes import StartOutcomes, StartTracker
from cpsched_bridge.cycle_report import CycleEvent, CycleReport
from cpsched_bridge.equivalence import BackoffKey
from cpsched_bridge.ports import ClusterReason, Hold, Holder, Observation, PendingJob
from cpsched_bridge.store.ledger import FOLLOWS, LedgerState, LedgerTransition, ManagedJobEntry
from tests.builders import a_cluster, a_job

CLUSTER = a_cluster(nodes=3, cores=4)
JOB = replace(a_job(1, per_unit=2), user="ann", account="lab", queue="main", qos="fast")
ITS_OWN = {("user", "ann"), ("account", "lab"), ("partition", "main"), ("QOS", "fast")}


def observed(**facts: object) -> Observation:
    plain = Observation(9, CLUSTER, np.array(CLUSTER.capacity), (PendingJob(JOB, Hold.ADMIN),))
    return replace(plain, **facts)  # type: ignore[arg-type]


def outcomes(transitions: Sequence[LedgerTransition], seen: Observation) -> StartOutcomes:
    return StartTracker().classify_outcomes(transitions, seen)


def a_failure(*nodes: str, after: LedgerState = LedgerState.ROLLING_BACK, id: int = 1) -> LedgerTransition:
    entry = ManagedJobEntry(id, after, 9, nodes=tuple((node, 1) for node in nodes), why="not running after 16 s")
    return LedgerTransition(LedgerState.STARTING, entry, failed=True)


def test_a_failed_start_lies_with_its_job_its_nodes_or_whoever_runs_there() -> None:
    running = tuple(
        RunningJob(replace(a_job(id), user=user), 0, ((node, 1),))
        for id, user, node in ((2, "bob", 0), (3, "cy", 1), (4, "dee", 2))
    )
    (found,) = outcomes([a_failure("n0", "n1")], observed(running=running)).failed
    shapes = {suspect for suspect in found.suspects if suspect[0] == "shape"}
    assert len(shapes) == 1
    others = {("node", "n0"), ("node", "n1"), ("user", "bob"), ("user", "cy")}
    assert found.suspects - shapes == ITS_OWN | others
    assert not found.explained


@pytest.mark.parametrize(
    ("change", "alone"),
    [
        ({}, False),
        ({"free": np.array([[2], [0], [0]])}, False),
        ({"free": np.array([[1], [4], [4]])}, True),
        ({"pending": (PendingJob(JOB, Hold.ADMIN, lower_priority=True),)}, True),
    ],
)
def test_a_start_whose_nodes_are_taken_or_that_comes_after_others_is_one_of_its_job_alone(
    change: dict[str, object], alone: bool
) -> None:
    (found,) = outcomes([a_failure("n0")], observed(**change)).failed
    assert found.explained is found.benign is alone
    assert (found.key.kind == "job") == alone


def test_a_node_that_has_gone_explains_it() -> None:
    (found,) = outcomes([a_failure("n0", "n9")], observed()).failed
    assert found.explained


@pytest.mark.parametrize("after", sorted(FOLLOWS[LedgerState.STARTING]))
def test_what_comes_of_a_start(after: LedgerState) -> None:
    """Seen running, or to have run, it succeeded; with a failure it failed; else neither."""
    plain = outcomes([LedgerTransition(LedgerState.STARTING, ManagedJobEntry(1, after, 9))], observed())
    assert plain.began == ({1: ""} if after in (LedgerState.RUNNING, LedgerState.ENDED) else {})
    assert plain.failed == ()
    assert len(outcomes([a_failure("n0", after=after)], observed()).failed) == 1


def test_the_users_of_starts_that_came_true_are_known_from_the_reading() -> None:
    moves = [
        LedgerTransition(LedgerState.STARTING, ManagedJobEntry(id, state, 9))
        for id, state in ((1, LedgerState.RUNNING), (2, LedgerState.ENDED))
    ]
    running = (RunningJob(JOB, 8, ((0, 1),)),)
    ended = (EndedJob(replace(a_job(2), user="bob"), 7, 8),)
    assert outcomes(moves, observed(pending=(), running=running, ended=ended)).began == {1: "ann", 2: "bob"}


def test_an_obstacle_explains_a_failed_start_and_backs_off_its_group() -> None:
    limit = replace(
        a_failure("n0"),
        failed=False,
        obstacle=ClusterReason("AssocMaxJobsLimit", BackoffKey("association", ("ann", ""))),
    )
    a_hold = LedgerTransition(LedgerState.HOLDING, ManagedJobEntry(1, LedgerState.HOLDING, 9), failed=True)
    (found,) = outcomes([limit, a_hold], observed()).failed
    assert (found.key.kind, found.reason, found.is_limit, found.explained) == (
        "association",
        "AssocMaxJobsLimit",
        True,
        True,
    )


def test_a_start_that_was_refused_failed_once_if_the_job_still_waits() -> None:
    tracker = StartTracker(refused=(1, 7))
    found = tracker.classify_outcomes([], observed()).failed
    assert [(each.pending.job.id, each.explained) for each in found] == [(1, False)]
    assert tracker.classify_outcomes([], observed()).failed == ()


def test_a_start_that_its_owner_takes_back_is_in_vain_and_no_sign_of_anything() -> None:
    free = LedgerTransition(LedgerState.STARTING, ManagedJobEntry(1, LedgerState.FREE, 9))
    (found,) = outcomes([free], observed(pending=(PendingJob(JOB, Hold.USER),))).failed
    assert (found.key.kind, found.explained, found.benign) == ("job", True, False)
    for held in (PendingJob(JOB, Hold.ADMIN, pinned=True), PendingJob(JOB, Hold.USER, holder=Holder.ADMINISTRATOR)):
        assert outcomes([free], observed(pending=(held,))).failed == ()


def test_a_job_that_is_gone_failed_nothing() -> None:
    assert outcomes([a_failure("n0", id=5)], observed()).failed == ()


# ------------------------------------------------------------------------------------- what is timed and reported


LIMIT = ClusterReason("AssocMaxJobsLimit", BackoffKey("association", ("ada", "")))


@pytest.fixture
def tracker():
    return StartTracker()


def noted(tracker, *transitions, now_s=7.5):
    report = CycleReport(1, "control", 0.0)
    tracker.report_transitions(transitions, now_s, report)
    return report


def step(before, after, event="", obstacle=None, id=1):
    return LedgerTransition(before, ManagedJobEntry(id, after, 0, why="for people"), obstacle, event=event)


@pytest.mark.parametrize("obstacle", [None, LIMIT])
@pytest.mark.parametrize("after", sorted(FOLLOWS[LedgerState.STARTING]))
def test_every_end_of_a_start_is_timed_once(tracker, after, obstacle):
    tracker.record_decided([1], 5.0)
    report = noted(tracker, step(LedgerState.STARTING, after, "as_decided", obstacle))
    ran = after in (LedgerState.RUNNING, LedgerState.ENDED)
    assert report.latencies_s == ([2.5] if ran else [])
    again = noted(tracker, step(LedgerState.STARTING, LedgerState.RUNNING, "as_decided"))
    assert again.latencies_s == [], "when that start was decided is forgotten"


@pytest.mark.parametrize("before", [None, *(state for state in LedgerState if state is not LedgerState.STARTING)])
def test_what_was_not_on_its_way_is_no_start(tracker, before):
    for after in FOLLOWS[before]:
        tracker.record_decided([1], 5.0)
        report = noted(tracker, step(before, after))
        assert report.latencies_s == []
        again = noted(tracker, step(LedgerState.STARTING, LedgerState.RUNNING, "as_decided"))
        assert again.latencies_s == [], "a start that was refused is over"


@pytest.mark.parametrize(
    ("transition", "told"),
    [
        (step(LedgerState.STARTING, LedgerState.RUNNING, "as_decided"), []),
        (step(LedgerState.STARTING, LedgerState.RUNNING), ["started_elsewhere"]),
        (step(LedgerState.STARTING, LedgerState.ENDED), []),
        (step(LedgerState.HELD, LedgerState.RUNNING), []),
        (step(LedgerState.STARTING, LedgerState.ROLLING_BACK), ["start_failed"]),
        (step(LedgerState.STARTING, LedgerState.ROLLING_BACK, obstacle=LIMIT), []),
        (step(LedgerState.HELD, LedgerState.GONE), ["job_gone"]),
        (step(LedgerState.STARTING, LedgerState.GONE, obstacle=LIMIT), ["job_gone"]),
        (step(LedgerState.HELD, LedgerState.HANDING_BACK, "left"), ["left_to_cluster"]),
        (step(LedgerState.STARTING, LedgerState.ROLLING_BACK, "kept_on"), ["not_left", "start_failed"]),
        (step(LedgerState.HANDING_BACK, LedgerState.HOLDING, "kept_on"), ["not_left"]),
        (step(LedgerState.HELD, LedgerState.HANDING_BACK), []),
        (step(LedgerState.HANDING_BACK, LedgerState.FREE, "left"), []),
        (step(LedgerState.STARTING, LedgerState.FREE, "left", LIMIT), ["left_to_cluster"]),
        (step(LedgerState.HELD, LedgerState.FREE), []),
    ],
)
def test_what_is_worth_telling_of_a_transition(tracker, transition, told):
    report = noted(tracker, transition)
    assert report.happenings == [CycleEvent(kind, transition.entry.why, 1) for kind in told]


def test_of_several_jobs_each_has_its_own_time(tracker):
    tracker.record_decided([1, 2], 1.0)
    tracker.record_decided([3], 4.0)
    starts = [step(LedgerState.STARTING, LedgerState.RUNNING, "as_decided", id=id) for id in (3, 1, 9)]
    assert noted(tracker, *starts).latencies_s == [3.5, 6.5]
    last = step(LedgerState.STARTING, LedgerState.RUNNING, "as_decided", id=2)
    assert noted(tracker, last, now_s=11.0).latencies_s == [10.0]
