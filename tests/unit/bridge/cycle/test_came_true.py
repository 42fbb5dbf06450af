"""Which starts came true, which failed, and who may be behind those that failed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cpsched.model import EndedJob, RunningJob
from cpsched_bridge.cycle.came_true import came_true
from cpsched_bridge.likes import BackoffKey
from cpsched_bridge.ports import Hold, Holder, Observation, Obstacle, PendingJob
from cpsched_bridge.store.ledger import FOLLOWS, Entry, State, Transition
from tests.builders import a_cluster, a_job

CLUSTER = a_cluster(nodes=3, cores=4)
JOB = replace(a_job(1, per_unit=2), user="ann", account="lab", queue="main", qos="fast")
ITS_OWN = {("user", "ann"), ("account", "lab"), ("partition", "main"), ("QOS", "fast")}


def observed(**facts: object) -> Observation:
    plain = Observation(9, CLUSTER, np.array(CLUSTER.capacity), (PendingJob(JOB, Hold.ADMIN),))
    return replace(plain, **facts)  # type: ignore[arg-type]


def a_failure(*nodes: str, after: State = State.ROLLING_BACK, id: int = 1) -> Transition:
    entry = Entry(id, after, 9, nodes=tuple((node, 1) for node in nodes), why="not running after 16 s")
    return Transition(State.STARTING, entry, failed=True)


def test_a_failed_start_lies_with_its_job_its_nodes_or_whoever_runs_there() -> None:
    running = tuple(
        RunningJob(replace(a_job(id), user=user), 0, ((node, 1),))
        for id, user, node in ((2, "bob", 0), (3, "cy", 1), (4, "dee", 2))
    )
    (found,) = came_true([a_failure("n0", "n1")], (), observed(running=running)).failed
    shapes = {suspect for suspect in found.suspects if suspect[0] == "shape"}
    assert len(shapes) == 1
    others = {("node", "n0"), ("node", "n1"), ("user", "bob"), ("user", "cy")}
    assert found.suspects - shapes == ITS_OWN | others
    assert not found.alone
    assert found.why == "not running after 16 s"


@pytest.mark.parametrize(
    ("change", "alone"),
    [
        ({}, False),
        ({"free": np.array([[2], [0], [0]])}, False),
        ({"free": np.array([[1], [4], [4]])}, True),
        ({"pending": (PendingJob(JOB, Hold.ADMIN, outranked=True),)}, True),
    ],
)
def test_a_start_whose_nodes_are_taken_or_that_comes_after_others_is_one_of_its_job_alone(
    change: dict[str, object], alone: bool
) -> None:
    (found,) = came_true([a_failure("n0")], (), observed(**change)).failed
    assert found.alone is found.ordinary is alone


def test_a_node_that_has_gone_explains_it() -> None:
    (found,) = came_true([a_failure("n0", "n9")], (), observed()).failed
    assert found.alone


@pytest.mark.parametrize("after", sorted(FOLLOWS[State.STARTING]))
def test_what_comes_of_a_start(after: State) -> None:
    """Seen running, or to have run, it came true; with a failure told it failed; else somebody stepped in."""
    plain = came_true([Transition(State.STARTING, Entry(1, after, 9))], (), observed())
    assert plain.true == (("",) if after in (State.RUNNING, State.ENDED) else ())
    assert plain.failed == ()
    assert len(came_true([a_failure("n0", after=after)], (), observed()).failed) == 1


def test_the_users_of_starts_that_came_true_are_known_from_the_reading() -> None:
    moves = [Transition(State.STARTING, Entry(id, state, 9)) for id, state in ((1, State.RUNNING), (2, State.ENDED))]
    running = (RunningJob(JOB, 8, ((0, 1),)),)
    ended = (EndedJob(replace(a_job(2), user="bob"), 7, 8),)
    assert came_true(moves, (), observed(pending=(), running=running, ended=ended)).true == ("ann", "bob")


def test_what_has_an_obstacle_or_was_not_on_its_way_is_no_failed_start() -> None:
    limit = replace(
        a_failure("n0"), failed=False, obstacle=Obstacle("AssocMaxJobsLimit", BackoffKey("association", ("ann", "")))
    )
    a_hold = Transition(State.HOLDING, Entry(1, State.HOLDING, 9), failed=True)
    assert came_true([limit, a_hold], (), observed()).failed == ()


def test_a_start_that_was_refused_failed_if_the_job_still_waits() -> None:
    found = came_true([], (1, 7), observed()).failed
    assert [(each.pending.job.id, each.alone, each.why) for each in found] == [(1, False, "refused")]


def test_a_start_that_its_owner_takes_back_is_in_vain_and_no_sign_of_anything() -> None:
    free = Transition(State.STARTING, Entry(1, State.FREE, 9))
    (found,) = came_true([free], (), observed(pending=(PendingJob(JOB, Hold.USER),))).failed
    assert (found.alone, found.ordinary) == (True, False)
    for held in (PendingJob(JOB, Hold.ADMIN, pinned=True), PendingJob(JOB, Hold.USER, holder=Holder.ADMINISTRATOR)):
        assert came_true([free], (), observed(pending=(held,))).failed == ()


def test_a_job_that_is_gone_failed_nothing() -> None:
    assert came_true([a_failure("n0", id=5)], (), observed()).failed == ()
