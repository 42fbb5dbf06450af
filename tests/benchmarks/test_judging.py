"""Run times drawn for many jobs at once, and whom the judged continuation lets go first."""

import numpy as np
import pytest

from cpsched.model import EndedJob
from cpsched.run_times import LOOK_EVERY, RunTimes
from tests.benchmarks import judging
from tests.benchmarks.judging import Draws, Judged
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def some_ended(count, seed):
    rng = np.random.default_rng(seed)
    for id in range(count):
        walltime_s = int(rng.choice([100, 3600, 86_400]))
        job = a_job(id, 1, (int(rng.choice([1, 8])),), walltime_s, user=str(rng.choice(["", "ann", "bob"])))
        yield EndedJob(job, 0, int(rng.integers(1, walltime_s + 20)))


@pytest.mark.parametrize("count", [0, 1, LOOK_EVERY, LOOK_EVERY + 1, 3 * LOOK_EVERY + 7])
def test_many_at_once_are_drawn_as_one_by_one(count):
    draws, times, rng = Draws(), RunTimes(), np.random.default_rng(1)
    for ended in some_ended(count, 2):
        draws.learn(ended)
        times.learn(ended)
        draws.drawn([ended.job], np.array([[0.5]]), np.array([0]))
    jobs = [ended.job for ended in some_ended(60, 3)]
    at, elapsed_s = rng.random((60, 6)), rng.choice([0, 50, 3000, 90_000], 60)
    found = draws.drawn(jobs, at, elapsed_s)
    each = [times.drawn(job, row, int(ran_s)) for job, row, ran_s in zip(jobs, at, elapsed_s, strict=True)]
    assert found.T.tolist() == [row.tolist() for row in each]


def test_a_job_has_one_draw_of_every_equal_part():
    asked = []

    class Asked(Draws):
        def drawn(self, jobs, at, elapsed_s):
            asked.append(at)
            return super().drawn(jobs, at, elapsed_s)

    judged = Judged(samples=10)
    judged.draws = Asked()
    jobs = [a_job(id, 1, (1,), 1000, user="ann") for id in (1, 2)]
    snapshot = a_snapshot(a_cluster(nodes=1, cores=4), jobs, now_s=0)
    found = judged.drawn(np.random.default_rng(0), snapshot, np.arange(2), np.array([0, 2000]))
    assert np.sort(asked[0] * 10, axis=1).astype(int).tolist() == [list(range(10))] * 2
    first, second = np.argsort(asked[0], axis=1).tolist()
    assert first != second, "no draw is short for all jobs"
    assert found.shape == (10, 2)
    assert set(found[:, 1].tolist()) == {2001}


def queue_and_plan():
    """Four processors, one long job of three that came first; the plan lets the short ones go before it."""
    jobs = [a_job(1, 1, (3,), 90_000, 0), a_job(2, 1, (2,), 60, 1), a_job(3, 1, (2,), 60, 2)]
    running = a_running(a_job(9, 1, (4,), 1000), ((0, 1),), 0)
    return a_snapshot(a_cluster(nodes=1, cores=4), jobs, [running], now_s=500)


def test_places_are_those_of_the_plan():
    judged, snapshot = Judged(), queue_and_plan()
    judged.plans[0].recall(judged.plans[0].memory() | {"order": [3, 1]})
    assert judged.places(snapshot).tolist() == [1, 2, 0]


@pytest.mark.parametrize(("behind", "first"), [("arrival", [3, 2, 2]), ("plan", [2, 2, 3])])
def test_who_goes_first_behind_what_starts(monkeypatch, behind, first):
    seen, judged, snapshot = [], Judged(behind=behind), queue_and_plan()
    made = judged.plans[0].decide(snapshot)
    monkeypatch.setattr(judging, "drained", lambda free, amount, *rest: seen.append(amount.tolist()) or 0.0)
    judged.plans[0].recall(judged.plans[0].memory() | {"order": [2, 3, 1]})
    assert judged.chosen(snapshot, [made, made]) is made
    assert seen == [first, first]
