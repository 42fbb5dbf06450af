"""What the study of the objective `waits` changes about it."""

import numpy as np
import pytest

from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.errors import InvalidValue
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay import replay
from cpsched_sim.traces.job import TraceJob
from tests.benchmarks.waits import Waits
from tests.builders import a_cluster, a_job

POOL = a_cluster(nodes=1, cores=100)


def starts(dispatcher, every_s=5):
    rng = np.random.default_rng(5)
    jobs = [
        TraceJob(a_job(i, 1, (int(rng.integers(1, 80)),), int(rng.integers(50, 900)), submit_s=every_s * i), 40)
        for i in range(1, 80)
    ]
    return replay(jobs, POOL, Policy(WalltimePredictor(), dispatcher)).start_s.tolist()


def test_with_what_was_chosen_jobs_start_as_under_waits():
    assert starts(Waits(by=1, bounded=0), 20) == starts(Lookahead("waits"), 20) != starts(Waits(), 20)


@pytest.mark.parametrize("other", [{"by": 20.0}, {"power": 1}, {"e": 0.5}, {"r": -1.0}, {"area": 3.0}])
def test_each_setting_is_another_schedule(other):
    assert starts(Waits(**other)) != starts(Waits())


def test_where_nothing_ages_the_bound_makes_a_difference():
    assert starts(Waits(by=1e4), 20) != starts(Waits(by=1e4, bounded=0), 20)


@pytest.mark.parametrize("wrong", [{"by": 0}, {"power": 0}, {"bounded": 2}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Waits(**wrong)
