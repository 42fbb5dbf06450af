"""When the bridge pauses itself, and for which users it never does; whose commands a cycle sends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.model import Job, RunningJob
from cpsched_bridge.cycle.circuit_breaker import FAILED_DECISIONS, WINDOW_S, CircuitBreaker
from cpsched_bridge.cycle.start_outcomes import KINDS, FailedStart, StartOutcomes
from cpsched_bridge.equivalence import equivalence_key
from cpsched_bridge.ports import Hold, Observation, PendingJob
from cpsched_sim.testing.example_counts import tries
from tests.builders import a_cluster, a_job
from tests.reach import entries


def test_one_good_decision_clears_the_bad_ones():
    watch = CircuitBreaker(3)
    for good in (False, True, *[False] * (FAILED_DECISIONS - 1)):
        watch.record_decision(good)
    assert watch.trip_reason(0) is None
    watch.record_decision(False)
    assert watch.trip_reason(0) == "5 consecutive decisions failed"


def test_after_a_resume_bad_decisions_are_counted_from_zero():
    watch = CircuitBreaker(3)
    for _ in range(FAILED_DECISIONS):
        watch.record_decision(False)
    assert watch.trip_reason(0) is not None
    watch.reset()
    assert watch.trip_reason(0) is None


# ---------------------------------------------------------------------------------------------------------- starts

USERS = ("ann", "bob", "cy", "dee", "eve")


def a_start(user: str, node: str = "n0", beside: tuple[str, ...] = (), alone: bool = False, **job: Any) -> FailedStart:
    """One that failed, of a user whose jobs differ from those of others in everything."""
    differs = {"account": f"of {user}", "queue": f"p {user}", "qos": f"q {user}", "walltime_s": 60 + ord(user[0])}
    pending = PendingJob(replace(a_job(1), user=user, **{**differs, **job}), Hold.PLUGIN)
    suspects = {
        *zip(KINDS, equivalence_key(pending.job).name, strict=False),
        ("node", node),
        *(("user", each) for each in beside),
    }
    return FailedStart(pending, equivalence_key(pending.job), explained=alone, suspects=frozenset(suspects))


def seen(*jobs: Job, nodes: int = 2) -> Observation:
    cluster = a_cluster(nodes)
    pending = tuple(PendingJob(job, Hold.PLUGIN) for job in jobs)
    return Observation(0, cluster, np.array(cluster.capacity), pending)


TWO_OF_ALL = seen(
    *(replace(a_job(i), user=f"u{i}", account=f"a{i}", queue=f"p{i}", qos=f"q{i}", walltime_s=i) for i in (1, 2))
)


NOTHING = seen(nodes=1)


def came_true(users: Iterable[str]) -> StartOutcomes:
    return StartOutcomes(dict(enumerate(users)))


def a_watch(failing_users: int = 3) -> CircuitBreaker:
    """Of a site with two of each kind."""
    watch = CircuitBreaker(failing_users)
    watch.record_reading(TWO_OF_ALL, StartOutcomes(), 0)
    return watch


def failed(watch: CircuitBreaker, *starts: FailedStart, at_s: float = 0, times: int = 3) -> CircuitBreaker:
    watch.record_reading(NOTHING, StartOutcomes(failed=starts * times), at_s)
    return watch


def all_over(user: str, **what: Any) -> FailedStart:
    return a_start(user, node=f"n {user}", **what)


def test_a_cluster_on_which_nobodys_starts_come_true_makes_the_bridge_stand_down():
    assert failed(a_watch(), *(all_over(user) for user in USERS[:3]), times=2).trip_reason(0) is None
    watch = failed(a_watch(), *(all_over(user) for user in USERS[:3]))
    assert watch.trip_reason(0) == "all starts of 3 of 3 users failed within 300 s"


@pytest.mark.parametrize("starts", [1, 10, 1000])
def test_one_user_is_one_witness_however_many_their_starts(starts: int):
    several = [all_over("ann", walltime_s=1 + i, account=f"a{i}", queue=f"p{i}", qos=f"q{i}") for i in range(starts)]
    watch = failed(a_watch(failing_users=2), *several)
    assert watch.trip_reason(0) is None
    assert watch.list_failing_users(0) == ["ann"]


def test_two_users_and_too_few_starts_are_not_enough():
    assert failed(a_watch(), *map(all_over, USERS[:2])).trip_reason(0) is None
    assert failed(a_watch(), *map(all_over, USERS[:3]), times=1).trip_reason(0) is None


def test_a_start_that_comes_true_clears_its_user():
    watch = failed(a_watch(), *map(all_over, USERS[:3]))
    watch.record_reading(NOTHING, came_true(("ann",)), 1)
    assert watch.list_failing_users(1) == ["bob", "cy"]
    assert watch.trip_reason(1) is None


def test_most_users_must_fail():
    watch = failed(a_watch(), *map(all_over, USERS[:3]))
    watch.record_reading(NOTHING, came_true(("v", "w")), 0)
    assert watch.trip_reason(0) is not None, "three of five"
    watch.record_reading(NOTHING, came_true(("x",)), 0)
    assert watch.trip_reason(0) is None, "three of six"


@pytest.mark.parametrize(
    "shared",
    [{"account": "lab"}, {"queue": "main"}, {"qos": "fast"}, {"node": "n1"}, {"beside": ("mallory",)}],
)
def test_what_they_all_have_in_common_may_be_behind_it(shared: dict[str, Any]):
    watch = failed(a_watch(), *(a_start(user, **{"node": f"n {user}", **shared}) for user in USERS))
    assert watch.trip_reason(0) is None


def test_a_shape_that_they_all_have_in_common_may_be_behind_it():
    watch = failed(a_watch(), *(a_start(user, node=user, walltime_s=60, queue="") for user in USERS))
    assert watch.trip_reason(0) is None


@pytest.mark.parametrize("shared", [{"account": "lab"}, {"queue": "main"}, {"qos": "fast"}, {"node": "n1"}])
def test_one_beside_them_that_fails_too_is_not_enough(shared: dict[str, Any]):
    """Without the jobs of the account in question one user less must be left, and not four less."""
    common = [a_start(user, **{"node": f"n {user}", **shared}) for user in USERS[1:]]
    assert failed(a_watch(), *common, all_over("ann")).trip_reason(0) is None
    assert failed(a_watch(), *common, all_over("ann"), all_over("abe")).trip_reason(0) is not None


def test_a_site_with_one_of_a_kind_learns_nothing_from_it():
    """All start in the one partition, with one account, QOS and shape, on the one node."""
    one = {"account": "lab", "queue": "main", "qos": "fast", "walltime_s": 60}
    watch = CircuitBreaker(3)
    watch.record_reading(seen(replace(a_job(1), user="ann", **one), nodes=1), StartOutcomes(), 0)
    assert failed(watch, *(a_start(user, **one) for user in USERS)).trip_reason(0) is not None
    watch.record_reading(seen(replace(a_job(1), user="ann", **{**one, "queue": "other"}), nodes=1), StartOutcomes(), 0)
    assert watch.trip_reason(0) is None, "there is another partition"


def test_whom_and_what_there_is_runs_or_waits():
    one = {"account": "lab", "queue": "main", "qos": "fast", "walltime_s": 60}
    watch = CircuitBreaker(3)
    here = seen(replace(a_job(1), user="ann", **one), nodes=1)
    there = RunningJob(replace(a_job(2), user="bob", **{**one, "account": "other"}), 0, ((0, 1),))
    watch.record_reading(replace(here, running=(there,)), StartOutcomes(), 0)
    assert failed(watch, *(a_start(user, **one) for user in USERS)).trip_reason(0) is None


def test_a_start_that_something_else_explains_is_no_sign():
    assert failed(a_watch(), *(all_over(user, alone=True) for user in USERS)).trip_reason(0) is None


def test_a_failure_counts_to_the_end_of_the_window_and_no_longer():
    watch = failed(a_watch(), *map(all_over, USERS[:3]), at_s=10)
    assert watch.trip_reason(10 + WINDOW_S) is not None
    assert watch.trip_reason(10.5 + WINDOW_S) is None
    assert watch.list_failing_users(10.5 + WINDOW_S) == []


def test_after_a_resume_everything_begins_at_nothing():
    watch = failed(a_watch(), *map(all_over, USERS))
    watch.reset()
    assert watch.trip_reason(0) is None
    assert failed(watch, *map(all_over, USERS), times=1).trip_reason(0) is None


def test_what_is_remembered_has_a_bound():
    watch = a_watch()
    empty, sizes = entries(watch), set()
    for number in range(5_000):
        watch.record_reading(NOTHING, StartOutcomes(failed=(all_over("ann", walltime_s=1 + number),)), 0)
        if number in (7, 8, 4_999):
            sizes.add(entries(watch))
    assert len(sizes) == 1, "eight failures of a user are kept, and no more"
    for number in range(100):
        watch.record_reading(NOTHING, came_true((f"u{number}",)), number)
    assert watch.trip_reason(1000) is None
    assert entries(watch) == empty


names = st.sampled_from("abc")
NAMED = st.fixed_dictionaries({"account": names, "queue": names, "qos": names, "walltime_s": st.integers(1, 3)})


@tries(300)
@given(st.data(), st.sampled_from(("user", "account", "queue", "qos", "walltime_s", "node")), st.integers(2, 4))
def test_no_single_user_account_partition_qos_shape_or_node_makes_the_bridge_stand_down(data, kind, failing_users):
    """However much fails for a common cause, and however many of the others succeed."""
    starts = []
    for _ in range(data.draw(st.integers(1, 40))):
        job = data.draw(NAMED)
        user = "mallory" if kind == "user" else data.draw(st.sampled_from(USERS))
        node = "n0" if kind == "node" else data.draw(st.sampled_from(("n0", "n1")))
        if kind in job:
            job[kind] = {"walltime_s": 7}.get(kind, "x")
            job |= {"queue": "q"} if kind == "walltime_s" else {}  # which is a part of the shape
        starts.append(a_start(user, node, data.draw(st.sampled_from(((), ("mallory",)))), **job))
    watch = failed(a_watch(failing_users), *starts)
    watch.record_reading(NOTHING, came_true(tuple(data.draw(st.lists(st.sampled_from(("x", "y", "z")))))), 1)
    assert watch.trip_reason(1) is None
