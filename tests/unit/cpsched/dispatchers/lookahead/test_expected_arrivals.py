import json

import numpy as np
import pytest

from cpsched.dispatchers.lookahead.expected_arrivals import MAX_EXPECTED_JOBS, MAX_EXPECTED_PER_USER, ExpectedArrivals
from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.model import EndedJob, Starts
from tests.builders import a_cluster, a_job, a_running, a_snapshot

HOUR = 3600
CLUSTER = a_cluster(nodes=1, cores=4)
NOW_S = 200 * HOUR


def learn_runs(learner, share, count=20):
    """Start and end `count` jobs that use this share of their estimates."""
    for id in range(100, 100 + count):
        job = a_job(id, walltime_s=100)
        snapshot = a_snapshot(CLUSTER, [job])
        if isinstance(learner, LookaheadDispatcher):
            assert learner.decide(snapshot).starts
        else:
            learner.record_start_estimates(snapshot, Starts.of({0: ((0, 1),)}))
        learner.learn(EndedJob(job, 0, round(100 * share)))


def test_estimates_are_accurate_once_enough_jobs_ran_for_as_long_as_estimated():
    arrivals = ExpectedArrivals(HOUR)
    learn_runs(arrivals, 1.0, count=9)
    assert not arrivals.are_estimates_accurate
    learn_runs(arrivals, 1.0, count=1)
    assert arrivals.are_estimates_accurate


@pytest.mark.parametrize("share", [0.8, 1.25])
def test_estimates_that_are_too_long_or_too_short_are_not_accurate(share):
    arrivals = ExpectedArrivals(HOUR)
    learn_runs(arrivals, share)
    assert not arrivals.are_estimates_accurate


def test_jobs_that_another_scheduler_started_do_not_count():
    arrivals = ExpectedArrivals(HOUR)
    for id in range(20):
        arrivals.learn(EndedJob(a_job(id), 0, 100))
    assert not arrivals.are_estimates_accurate


def test_queued_running_and_ended_jobs_are_expected_one_period_later():
    arrivals = ExpectedArrivals(HOUR)
    arrivals.learn(EndedJob(a_job(1, 2, submit_s=NOW_S - HOUR + 1), NOW_S - 60, NOW_S - 10))
    arrivals.learn(EndedJob(a_job(2, submit_s=NOW_S - HOUR), NOW_S - 60, NOW_S - 10))
    running = [a_running(a_job(3, 3, walltime_s=900, submit_s=NOW_S - 100), ((0, 3),), NOW_S - 50)]
    queue = [a_job(4, submit_s=0), a_job(5, 4, walltime_s=700, submit_s=NOW_S)]
    found = arrivals.expected_jobs(a_snapshot(CLUSTER, queue, running, NOW_S))
    assert found.tolist() == [[4, 700, NOW_S + HOUR], [3, 900, NOW_S + HOUR - 100], [2, 50, NOW_S + 1]]


def test_the_expected_jobs_of_a_user_and_of_all_users_are_limited():
    queue = [a_job(id, submit_s=NOW_S - 10, user=f"user{id % 20}" if id < 400 else "many") for id in range(1000)]
    snapshot = a_snapshot(CLUSTER, queue, now_s=NOW_S)
    assert len(ExpectedArrivals(HOUR).expected_jobs(snapshot)) == MAX_EXPECTED_JOBS
    of_one = a_snapshot(CLUSTER, queue[400:], now_s=NOW_S)
    assert len(ExpectedArrivals(HOUR).expected_jobs(of_one)) == MAX_EXPECTED_PER_USER


def test_a_recalled_memory_expects_the_same_jobs():
    arrivals, recalled = ExpectedArrivals(HOUR), ExpectedArrivals(HOUR)
    learn_runs(arrivals, 1.0)
    arrivals.learn(EndedJob(a_job(1, submit_s=NOW_S - 10, user="ada b"), NOW_S - 5, NOW_S - 1))
    waiting = a_snapshot(CLUSTER, [a_job(2, submit_s=0)], now_s=NOW_S)
    arrivals.record_start_estimates(waiting, Starts.of({0: ((0, 1),)}))
    recalled.recall(json.loads(json.dumps(arrivals.memory())))
    assert recalled.memory() == arrivals.memory()
    assert recalled.are_estimates_accurate
    assert np.array_equal(recalled.expected_jobs(waiting), arrivals.expected_jobs(waiting))


def short_job_just_ended():
    """It needs the three free cores; it is expected again before one of the queued jobs could end."""
    return EndedJob(a_job(1, 3, walltime_s=60, submit_s=NOW_S - 600), NOW_S - 600, NOW_S - 540)


def two_long_jobs(running=True, submit_s=NOW_S - 60):
    busy = [a_running(a_job(9, walltime_s=20 * HOUR, submit_s=0), ((0, 1),))] if running else []
    queue = [a_job(7, 3, walltime_s=2 * HOUR, submit_s=submit_s), a_job(8, 2, walltime_s=3 * HOUR, submit_s=submit_s)]
    return a_snapshot(CLUSTER, queue, busy, NOW_S)


def decided(share, snapshot, recalled=False, objective="bsld"):
    dispatcher = LookaheadDispatcher(objective)
    learn_runs(dispatcher, share)
    dispatcher.learn(short_job_just_ended())
    if recalled:
        memory = json.loads(json.dumps(dispatcher.memory()))
        dispatcher = LookaheadDispatcher(objective)
        dispatcher.recall(memory)
    return dispatcher.decide(snapshot)


@pytest.mark.parametrize("objective", ["bsld", "slowdown"])
@pytest.mark.parametrize("recalled", [False, True])
@pytest.mark.parametrize(("share", "starts"), [(1.0, set()), (0.5, {7})])
def test_long_jobs_leave_room_for_expected_ones_if_estimates_are_accurate(share, starts, recalled, objective):
    snapshot = two_long_jobs()
    decision = decided(share, snapshot, recalled, objective)
    assert set(decision.starts_by_job(snapshot)) == starts
    assert set(decision.plan_by_job(snapshot)) == {7, 8}, "expected jobs are not part of the published plan"


def test_on_an_idle_cluster_nothing_waits_for_expected_jobs():
    snapshot = two_long_jobs(running=False)
    assert decided(1.0, snapshot).starts


def test_an_overdue_job_does_not_wait_for_expected_jobs():
    snapshot = two_long_jobs(submit_s=NOW_S - 169 * HOUR)
    assert 7 in decided(1.0, snapshot).starts_by_job(snapshot)
