import numpy as np
import pytest

from cpsched.model import EndedJob, JobTable
from cpsched.predictors.last_two import LastTwoPredictor
from cpsched.predictors.walltime import WalltimePredictor
from tests.builders import a_cluster, a_job


def ended(run_s, user="ada", submit_s=0):
    return EndedJob(a_job(user=user), submit_s, submit_s + run_s)


def test_walltime_predicts_what_was_asked_for():
    table = JobTable.of(a_cluster(), [a_job(1, walltime_s=7), a_job(2, walltime_s=9)], (), {1: 1, 2: 1})
    WalltimePredictor().fill(table, np.array([0, 1]))
    assert table.estimate_s.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("history", "expected"),
    [([], 100), ([30], 30), ([30, 50], 40), ([90, 30, 50], 40), ([500, 700], 100)],
)
def test_last_two_is_the_mean_of_the_last_two_capped_by_the_walltime(history, expected):
    predictor = LastTwoPredictor()
    for run_s in history:
        predictor.learn(ended(run_s))
    assert predictor.predict(a_job(user="ada", walltime_s=100)) == expected


def test_last_two_keeps_users_apart_and_knows_nothing_of_the_nameless():
    predictor = LastTwoPredictor()
    predictor.learn(ended(10, user="ada"))
    predictor.learn(ended(10, user=""))
    assert predictor.predict(a_job(user="bob", walltime_s=100)) == 100
    assert predictor.predict(a_job(user="", walltime_s=100)) == 100
