import numpy as np

from cpsched.forecast import sample_hypothetical_start, sample_starts
from cpsched.model import NEVER, EndedJob, RunningJob, Snapshot
from cpsched.planning import plan
from cpsched.run_time_model import RunTimeModel
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def full(*queue):
    """Four cores on one node, all of them used by a job of 1,000 s that began 100 s ago."""
    running = a_running(a_job(50, 4, 1, 1000, user="ada"), ((0, 4),))
    return a_snapshot(a_cluster(1, 4), queue, [running], now_s=100)


def of_shares(*shares):
    """Ada's jobs of 1,000 s, and the site's, run such shares of their walltime."""
    times = RunTimeModel()
    for i, share in enumerate(shares * 40):
        times.learn(EndedJob(a_job(i, 4, 1, 1000, user="ada"), 0, round(1000 * share)))
    return times


def drawn(snapshot, times, draws=8, seed=1):
    return sample_starts(snapshot, plan(snapshot).plan_s, times, draws, seed)


def test_jobs_start_at_drawn_ends():
    snapshot = full(a_job(1, 4, 1, 1000, 10, user="ada"), a_job(2, 4, 1, 1000, 20, user="ada"))
    assert drawn(snapshot, of_shares(0.5)).tolist() == [[500, 1000]] * 8


def test_draws_vary_like_run_times_and_depend_on_seed():
    snapshot = full(a_job(1, 4, 1, 1000, 10, user="ada"))
    found = drawn(snapshot, of_shares(0.3, 0.9), draws=60)
    assert set(found[:, 0].tolist()) == {300, 900}
    assert (found == drawn(snapshot, of_shares(0.3, 0.9), draws=60)).all()
    assert (found != drawn(snapshot, of_shares(0.3, 0.9), draws=60, seed=2)).any()


def test_running_job_is_drawn_beyond_elapsed_time():
    """At second 100: the first of two has run 100 s, and outlives 40 s of its walltime; the other one began just now.

    A job that waits is drawn from its beginning.
    """
    cluster, times = a_cluster(2, 4), of_shares(0.04, 0.5)
    asked = {"walltime_s": 1000, "units": 4, "per_unit": 1, "user": "ada"}
    running = [RunningJob(a_job(50, **asked), 0, ((0, 4),)), RunningJob(a_job(51, **asked), 100, ((1, 4),))]
    queue = [a_job(1, submit_s=0, **asked), a_job(2, submit_s=0, **asked)]
    snapshot = Snapshot.of(100, cluster, [[0], [0]], queue, running, dict.fromkeys((50, 51, 1, 2), 1000))
    found = drawn(snapshot, times, draws=200)
    assert {tuple(row) for row in found.tolist()} == {(140, 180), (140, 500), (500, 600), (500, 540)}


def test_job_delays_none_planned_before_it():
    wide, small = a_job(1, 4, 1, 1000, 10, user="ada"), a_job(2, 1, 1, 1000, 20, user="ada")
    found = drawn(full(wide, small), of_shares(0.5))
    assert (set(found[:, 0].tolist()), found[:, 1].min() >= 1000) == ({500}, True)


def test_snapshot_is_unchanged():
    snapshot = full(a_job(1, 4, 1, 1000, 10, user="ada"))
    columns = (snapshot.table.estimate_s, snapshot.table.end_s, snapshot.running)
    before = [column.tolist() for column in columns]
    drawn(snapshot, of_shares(0.5))
    assert [column.tolist() for column in columns] == before


def test_empty_queue_has_no_starts():
    assert drawn(full(), of_shares(0.5)).shape == (8, 0)


def test_scales_wait_like_jobs_planned_at_that_time():
    plan_s = np.array([1000, 10_000, NEVER])
    drawn_s = np.array([[1000, 5050, 7], [1000, 10_000, 7]])
    assert (
        sample_hypothetical_start(100, 10_000, plan_s, np.repeat(drawn_s, [1, 2], axis=0)).tolist()
        == [[7525]] + [[10_000]] * 2
    )
    many = np.repeat([[1000, 10_000]], 20, axis=0).T.ravel()
    halves = np.tile(100 + (many - 100 + 60) // 2 - 60, (3, 1))
    assert (sample_hypothetical_start(100, 10_000, many, halves) == halves[0, -1]).all()
    assert sample_hypothetical_start(100, 50, plan_s, drawn_s).min() >= 100


def test_unplanned_jobs_give_no_samples():
    assert sample_hypothetical_start(0, 10, np.array([NEVER]), np.array([[5]])).shape == (0, 0)
    assert sample_hypothetical_start(0, 10, np.array([5]), np.array([[NEVER]])).size == 0
