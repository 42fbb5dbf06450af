"""Which jobs the study of fillers keeps back."""

import numpy as np
import pytest

from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.errors import InvalidValue
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay import replay
from cpsched_sim.traces.job import TraceJob
from tests.benchmarks.fillers import Fillers
from tests.builders import a_cluster, a_job, a_running, a_snapshot

POOL = a_cluster(nodes=1, cores=10)
HOUR_S = 3600
ELSEWHERE = a_running(a_job(9, 1, (10,), 10 * HOUR_S), ((0, 1),), 0)
SMALL = [a_job(1, 1, (1,), 1000, submit_s=100), a_job(2, 1, (1,), 1000, submit_s=300)]
LARGE = [a_job(3, 1, (10,), 4000), a_job(4, 1, (10,), 4000)]


class Seen(Fillers):
    """`Fillers`, which shows its factors."""

    def _site_factors(self, snapshot, expected_s):
        self.factors = super()._site_factors(snapshot, expected_s)
        return self.factors


def factors(**settings):
    """The four jobs wait behind one that has the whole pool."""
    seen = Seen(**settings)
    seen.decide(a_snapshot(POOL, [*SMALL, *LARGE], [ELSEWHERE], now_s=400))
    return seen.factors.tolist()


def test_the_youngest_small_jobs_are_kept_as_far_as_the_stock_asks_for():
    assert factors(stock=100, patience=9) == [1.0, 0.1, 1.0, 1.0]
    assert factors(stock=200, patience=9) == [0.1, 0.1, 1.0, 1.0]
    assert factors(stock=99, patience=9) == [1.0, 1.0, 1.0, 1.0]
    assert factors(stock=200, patience=9, aside=0.5) == [0.5, 0.5, 1.0, 1.0]


def test_large_jobs_are_kept_only_where_they_count_as_small():
    assert factors(stock=1e6, patience=9, small=1) == [0.1] * 4


def test_nothing_is_kept_of_a_short_queue():
    assert factors(stock=200, patience=9, over=8000) == [0.1, 0.1, 1.0, 1.0]
    assert factors(stock=200, patience=9, over=9000) == [1.0] * 4


def test_a_job_that_has_waited_for_long_is_not_kept():
    assert factors(stock=200, patience=0.0) == [1.0] * 4


def test_without_settings_jobs_start_as_under_lookahead():
    rng = np.random.default_rng(5)
    jobs = [TraceJob(a_job(i, 1, (int(rng.integers(1, 8)),), 400, submit_s=5 * i), 90) for i in range(1, 60)]
    schedules = [
        replay(jobs, POOL, Policy(WalltimePredictor(), each)).start_s.tolist()
        for each in (Lookahead(), Fillers(), Fillers(stock=2000, over=0))
    ]
    assert schedules[0] == schedules[1] != schedules[2]


@pytest.mark.parametrize("wrong", ["stock", "small", "aside", "over", "patience"])
def test_settings_are_not_negative(wrong):
    with pytest.raises(InvalidValue, match=wrong):
        Fillers(**{wrong: -1})
