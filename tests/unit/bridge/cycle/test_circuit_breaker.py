"""When the bridge pauses itself, whose failures never pause it, and whose commands a cycle sends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.model import RunningJob
from cpsched_bridge.backoff_groups import make_equivalence_class_key
from cpsched_bridge.cycle.circuit_breaker import FAILURE_WINDOW_S, MAX_FAILED_DECISIONS, CircuitBreaker
from cpsched_bridge.cycle.start_outcomes import CAUSE_KINDS, FailureCause, ObservedStartOutcomes, StartFailure
from cpsched_bridge.ports import Hold, PendingJob
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.builders import a_cluster, a_job, a_pending, an_observation
from tests.reach import entries


def decided(watch: CircuitBreaker, bad: int) -> CircuitBreaker:
    for _ in range(bad):
        watch.record_decision(False)
    return watch


def test_fifth_failed_decision_trips_breaker():
    reasons = [decided(CircuitBreaker(3), MAX_FAILED_DECISIONS + more).trip_reason(0) for more in (-1, 0, 1)]
    assert reasons == [None, "5 consecutive decisions failed", "6 consecutive decisions failed"]


@pytest.mark.parametrize("reset", [lambda watch: watch.record_decision(True), CircuitBreaker.reset])
def test_successful_decision_or_resume_resets_failed_ones(reset):
    watch = decided(CircuitBreaker(3), MAX_FAILED_DECISIONS)
    reset(watch)
    assert decided(watch, MAX_FAILED_DECISIONS - 1).trip_reason(0) is None
    assert decided(watch, 1).trip_reason(0) is not None


# ---------------------------------------------------------------------------------------------------------- starts

USERS = ("ann", "bob", "cy", "dee", "eve")


def a_start(user: str, node: str = "n0", beside: tuple[str, ...] = (), alone: bool = False, **job: Any) -> StartFailure:
    """One that failed, of a user whose jobs differ from those of others in everything."""
    differs = {"account": f"of {user}", "queue": f"p {user}", "qos": f"q {user}", "walltime_s": 60 + ord(user[0])}
    pending = PendingJob(replace(a_job(1), user=user, **{**differs, **job}), Hold.PLUGIN)
    suspects = {
        *zip(CAUSE_KINDS, make_equivalence_class_key(pending.job).name, strict=False),
        ("node", node),
        *(("user", each) for each in beside),
    }
    cause = FailureCause.PRECEDENCE if alone else FailureCause.UNKNOWN
    return StartFailure(pending, cause, make_equivalence_class_key(pending.job), suspects=frozenset(suspects))


TWO_OF_ALL = an_observation(
    *map(
        a_pending,
        (replace(a_job(i), user=f"u{i}", account=f"a{i}", queue=f"p{i}", qos=f"q{i}", walltime_s=i) for i in (1, 2)),
    ),
    cluster=a_cluster(2),
)


NOTHING = an_observation(cluster=a_cluster(1))


def came_true(users: Iterable[str]) -> ObservedStartOutcomes:
    return ObservedStartOutcomes(dict(enumerate(users)))


def a_watch(failing_users: int = 3) -> CircuitBreaker:
    """Of a site with two of each kind."""
    watch = CircuitBreaker(failing_users)
    watch.record_reading(TWO_OF_ALL, ObservedStartOutcomes(), 0)
    return watch


def failed(watch: CircuitBreaker, *starts: StartFailure, at_s: float = 0, times: int = 3) -> CircuitBreaker:
    watch.record_reading(NOTHING, ObservedStartOutcomes(failed=starts * times), at_s)
    return watch


def all_over(user: str, **what: Any) -> StartFailure:
    return a_start(user, node=f"n {user}", **what)


def test_failed_starts_of_all_users_trip_breaker():
    assert failed(a_watch(), *(all_over(user) for user in USERS[:3]), times=2).trip_reason(0) is None
    watch = failed(a_watch(), *(all_over(user) for user in USERS[:3]))
    assert watch.trip_reason(0) == "all starts by 3 of 3 users failed within 300 s"


@pytest.mark.parametrize("starts", [1, 10, 1000])
def test_many_failed_starts_of_one_user_count_as_one_user(starts: int):
    several = [all_over("ann", walltime_s=1 + i, account=f"a{i}", queue=f"p{i}", qos=f"q{i}") for i in range(starts)]
    watch = failed(a_watch(failing_users=2), *several)
    assert watch.trip_reason(0) is None
    assert watch.list_failing_users(0) == ["ann"]


def test_two_users_or_too_few_starts_do_not_trip():
    assert failed(a_watch(), *map(all_over, USERS[:2])).trip_reason(0) is None
    assert failed(a_watch(), *map(all_over, USERS[:3]), times=1).trip_reason(0) is None


def test_successful_start_clears_its_user():
    watch = failed(a_watch(), *map(all_over, USERS[:3]))
    watch.record_reading(NOTHING, came_true(("ann",)), 1)
    assert watch.list_failing_users(1) == ["bob", "cy"]
    assert watch.trip_reason(1) is None


def test_majority_of_users_must_fail():
    watch = failed(a_watch(), *map(all_over, USERS[:3]))
    watch.record_reading(NOTHING, came_true(("v", "w")), 0)
    assert watch.trip_reason(0) is not None, "three of five"
    for user, users in (("x", "six"), ("y", "seven")):
        watch.record_reading(NOTHING, came_true((user,)), 0)
        assert watch.trip_reason(0) is None, f"three of {users}"


@pytest.mark.parametrize(
    "shared",
    [
        {"account": "lab"},
        {"queue": "main"},
        {"qos": "fast"},
        {"node": "n1"},
        {"beside": ("mallory",)},
        {"walltime_s": 60, "queue": ""},
    ],
)
def test_common_attribute_of_failures_does_not_trip(shared: dict[str, Any]):
    watch = failed(a_watch(), *(a_start(user, **{"node": f"n {user}", **shared}) for user in USERS))
    assert watch.trip_reason(0) is None


@pytest.mark.parametrize("shared", [{"account": "lab"}, {"queue": "main"}, {"qos": "fast"}, {"node": "n1"}])
def test_one_failure_outside_common_cause_does_not_trip(shared: dict[str, Any]):
    """Without the jobs of the account in question one user less must be left, and not four less."""
    common = [a_start(user, **{"node": f"n {user}", **shared}) for user in USERS[1:]]
    assert failed(a_watch(), *common, all_over("ann")).trip_reason(0) is None
    assert failed(a_watch(), *common, all_over("ann"), all_over("abe")).trip_reason(0) is not None


def test_sole_partition_or_account_is_no_common_cause():
    """All start in the one partition, with one account, QOS and shape, on the one node."""
    one = {"account": "lab", "queue": "main", "qos": "fast", "walltime_s": 60}
    watch = CircuitBreaker(3)
    failed(watch, *(a_start(user, **one) for user in USERS))
    for queue, trips in (("main", True), ("other", False)):  # there is another partition
        pending = a_pending(replace(a_job(1), user="ann", **{**one, "queue": queue}))
        watch.record_reading(an_observation(pending, cluster=a_cluster(1)), ObservedStartOutcomes(), 0)
        assert (watch.trip_reason(0) is not None) == trips, queue


def test_counts_attributes_of_running_and_pending_jobs():
    one = {"account": "lab", "queue": "main", "qos": "fast", "walltime_s": 60}
    watch = CircuitBreaker(3)
    here = an_observation(a_pending(replace(a_job(1), user="ann", **one)), cluster=a_cluster(1))
    there = RunningJob(replace(a_job(2), user="bob", **{**one, "account": "other"}), 0, ((0, 1),))
    watch.record_reading(replace(here, running=(there,)), ObservedStartOutcomes(), 0)
    assert failed(watch, *(a_start(user, **one) for user in USERS)).trip_reason(0) is None


def test_failure_counts_until_end_of_window():
    watch = failed(a_watch(), *map(all_over, USERS[:3]), at_s=10)
    assert watch.trip_reason(10 + FAILURE_WINDOW_S) is not None
    assert watch.trip_reason(10.5 + FAILURE_WINDOW_S) is None
    assert watch.list_failing_users(10.5 + FAILURE_WINDOW_S) == []


def test_resume_resets_failed_starts():
    watch = failed(a_watch(), *map(all_over, USERS))
    watch.reset()
    assert watch.trip_reason(0) is None
    assert failed(watch, *map(all_over, USERS), times=1).trip_reason(0) is None


def test_bounds_memory():
    watch = a_watch()
    empty, sizes = entries(watch), set()
    for number in range(5_000):
        watch.record_reading(NOTHING, ObservedStartOutcomes(failed=(all_over("ann", walltime_s=1 + number),)), 0)
        if number in (7, 8, 4_999):
            sizes.add(entries(watch))
    assert len(sizes) == 1, "eight failures of a user are kept, and no more"
    for number in range(100):
        watch.record_reading(NOTHING, came_true((f"u{number}",)), number)
    assert watch.trip_reason(1000) is None
    assert entries(watch) == empty


names = st.sampled_from("abc")
NAMED = st.fixed_dictionaries({"account": names, "queue": names, "qos": names, "walltime_s": st.integers(1, 3)})


@scaled_example_settings(300)
@given(st.data(), st.sampled_from(("user", "account", "queue", "qos", "walltime_s", "node")), st.integers(2, 4))
def test_no_single_common_attribute_trips_breaker(data, kind, failing_users):
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
