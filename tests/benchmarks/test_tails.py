"""What the study of the longest waits changes about ageing."""

import numpy as np
import pytest

from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.errors import InvalidValue
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay import replay
from cpsched_sim.traces.job import TraceJob
from tests.benchmarks.narrow import FIRST
from tests.benchmarks.tails import Tails, by_expected_ends, gathered_s
from tests.builders import a_cluster, a_job, a_running, a_snapshot

POOL = a_cluster(nodes=1, cores=100)
SMALL, LARGE = a_job(1, 1, (10,), 100), a_job(2, 1, (80,), 4000)
HOUR_S = 3600
ELSEWHERE = a_running(a_job(9, 1, (100,), 10 * HOUR_S), ((0, 1),), 0)


class Seen(Tails):
    """`Tails`, which shows its factors and its ageing."""

    def _site_factors(self, snapshot, expected_s):
        self.factors = super()._site_factors(snapshot, expected_s)
        self.ageing = (self._objective.aged_s, self._objective.ageing_power, self._row.aged_by)
        self.overdue_s = self._search.settings.overdue_s
        return self.factors


def decided(dispatcher, now_s=HOUR_S):
    """Both jobs came at 0 and wait behind one that has the whole pool."""
    dispatcher.decide(a_snapshot(POOL, [SMALL, LARGE], [ELSEWHERE], now_s=now_s))
    return dispatcher


def test_without_settings_nothing_is_another_job_than_under_lookahead():
    assert decided(Seen()).factors.tolist() == [1.0, 1.0]
    rng = np.random.default_rng(5)
    jobs = [TraceJob(a_job(i, 1, (int(rng.integers(1, 80)),), 400, submit_s=5 * i), 90) for i in range(1, 60)]
    schedules = [replay(jobs, POOL, Policy(WalltimePredictor(), each)) for each in (Lookahead(), Tails())]
    assert schedules[0].start_s.tolist() == schedules[1].start_s.tolist()


def test_ageing_by_area_lifts_large_jobs_most():
    seen = decided(Seen(wide=1))
    row, area = OBJECTIVES["default"], np.array([10 * 100, 80 * 4000])
    alone = np.array([100.0, 4000.0]) ** row.e
    by_area = area * alone.sum() / area.sum()
    age = (HOUR_S / seen.ageing[0]) ** row.ageing_power
    assert seen.factors == pytest.approx(1 + by_area * age / ((alone + row.area * by_area) * (1 + age)))
    assert seen.factors[1] > seen.factors[0] > 1


def test_ageing_is_as_steep_and_as_late_as_asked():
    seen = decided(Seen(by=0.5, power=8))
    assert seen.ageing == (pytest.approx(0.5 * seen.longest_s), 8, 0.5)


def test_what_is_to_come_counts_as_much_as_asked():
    half, whole, nothing = (decided(Seen(come=come)) for come in (0.5, 1, 0))
    assert whole.longest_s > whole.been_s
    assert half.ageing[0] == pytest.approx(0.3 * (whole.been_s + whole.longest_s) / 2)
    assert nothing.ageing[0] == max(60, 0.3 * whole.been_s)


def test_old_jobs_go_first_by_arrival_beyond_the_share():
    young, old = (decided(Seen(arrival=arrival)) for arrival in (0.1, 2))
    assert young.overdue_s == int(0.1 * young.longest_s)
    assert old.overdue_s == int(2 * old.longest_s)
    assert decided(Seen(arrival=1000)).overdue_s == 168 * HOUR_S
    assert decided(Seen()).overdue_s == 168 * HOUR_S


def late(**settings):
    """At 0 `easy` starts both jobs, which really wait for one that came from elsewhere."""
    seen = Seen(**settings)
    seen.decide(a_snapshot(POOL, [SMALL, LARGE], now_s=0))
    elsewhere = a_running(a_job(9, 1, (100,), 1000), ((0, 1),), 100)
    seen.decide(a_snapshot(POOL, [SMALL, LARGE], [elsewhere], now_s=100))
    return seen.factors.tolist()


def test_a_job_that_easy_had_started_goes_first_after_the_longest_wait():
    assert late(promise=1) == [FIRST, FIRST]
    assert late(promise=2) == [1.0, 1.0]
    assert decided(Seen(promise=0.01)).factors.tolist() == [1.0, 1.0]


def late_by(*wide, **settings):
    """At 0 and at 10 `easy` starts jobs of so many processors, each of which really waits for another one until 100."""
    seen, jobs = Seen(**settings), [a_job(i, 1, (r,), 100, submit_s=10 * (i - 1)) for i, r in enumerate(wide, start=1)]
    elsewhere = a_running(a_job(9, 1, (100,), 1000), ((0, 1),), 0)
    seen.decide(a_snapshot(POOL, jobs[:1], now_s=0))
    seen.decide(a_snapshot(POOL, jobs, now_s=10))
    seen.decide(a_snapshot(POOL, jobs, [elsewhere], now_s=100))
    return seen.factors.tolist()


def test_wide_jobs_go_first_by_their_virtual_starts():
    assert late_by(40, 50, first=0.4) == [FIRST, 1.0]
    assert late_by(40, 50, first=0.5) == [1.0, FIRST]
    assert late_by(40, 50, first=0.4, count=2) == [2 * FIRST, FIRST]
    assert late_by(40, 50, first=0.6) == [1.0, 1.0]
    assert late_by(40, 50) == [1.0, 1.0]


def test_wide_jobs_go_first_only_once_they_are_late_enough():
    """They are late by 100 and 90 s, and the longest wait under `easy` is 105 s with what is to come."""
    assert late_by(40, 50, first=0.4, late=0.94) == [FIRST, 1.0]
    assert late_by(40, 50, first=0.4, late=0.96) == [1.0, 1.0]


@pytest.mark.parametrize(("since", "factor"), [(1.4, FIRST), (1.6, 1.0)])
def test_with_a_share_of_the_longest_wait_wide_jobs_go_first_from_then_on(since, factor):
    """The wide job has waited for 150 s, and another one for 100 s under `easy`."""
    seen, jobs = Seen(first=0.6, since=since), [a_job(1, 1, (80,), 100), a_job(2, 1, (50,), 100, submit_s=10)]
    elsewhere = a_running(a_job(9, 1, (100,), 1000), ((0, 1),), 0)
    seen.decide(a_snapshot(POOL, jobs[:1], now_s=0))
    for now_s in (50, 100, 150):
        seen.decide(a_snapshot(POOL, jobs, [elsewhere], now_s=now_s))
    assert seen.been_s == 100
    assert seen.factors.tolist() == [factor, 1.0]


def a_half_free(now_s=50):
    """Sixty processors run until 200 by walltime, and until 100 as is expected."""
    running = [a_running(a_job(8, 1, (60,), 200), ((0, 1),), 0)]
    seen = Seen(gather=1)
    snapshot = a_snapshot(POOL, [SMALL, LARGE], running, now_s=now_s)
    seen.decide(snapshot)
    seen.lateness.expected_s = lambda snapshot, slots: np.full(len(slots), 100.0)
    return snapshot, seen


def test_wide_jobs_wait_for_the_expected_ends_of_running_ones():
    snapshot, seen = a_half_free()
    assert gathered_s(snapshot, np.array([10, 80]), seen.lateness).tolist() == [0.0, 50.0]
    snapshot, seen = a_half_free(now_s=120)
    assert gathered_s(snapshot, np.array([10, 80]), seen.lateness).tolist() == [0.0, 80.0]


def test_while_draining_ends_are_the_expected_ones():
    snapshot, seen = a_half_free()
    planned_on, slots = by_expected_ends(snapshot, seen.lateness)
    assert planned_on.table.end_s[planned_on.running].tolist() == [100]
    assert [planned_on.table.jobs[at].id for at in planned_on.queue] == [1, 2]
    assert slots.tolist() == [*snapshot.queue.tolist(), *snapshot.running.tolist()]


@pytest.mark.parametrize("drain", [0.001, 1000])
def test_draining_starts_jobs_of_the_real_table(drain):
    rng = np.random.default_rng(6)
    jobs = [TraceJob(a_job(i, 1, (int(rng.integers(1, 80)),), 400, submit_s=5 * i), 90) for i in range(1, 60)]
    schedule = replay(jobs, POOL, Policy(WalltimePredictor(), Tails(drain=drain)))
    assert not schedule.violations
    usual = replay(jobs, POOL, Policy(WalltimePredictor(), Tails()))
    assert (schedule.start_s.tolist() == usual.start_s.tolist()) is (drain > 1)


@pytest.mark.parametrize("wrong", [{"by": 0}, {"power": 0}, {"wide": -1}, {"gather": -0.1}])
def test_shares_are_not_negative(wrong):
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Tails(**wrong)
