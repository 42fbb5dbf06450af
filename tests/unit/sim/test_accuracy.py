import numpy as np
import pytest

from cpsched.predictors.last_two import LastTwoPredictor
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.accuracy import Accuracy, ecdf, predictions_s
from cpsched_sim.traces.job import TraceJob
from tests.builders import a_job


def ran(submit_s, run_s, user="ada"):
    return TraceJob(a_job(id=submit_s + 1, submit_s=submit_s, walltime_s=1000, user=user), run_s)


def test_a_job_teaches_from_the_second_of_its_end_on():
    trace = [ran(0, 50), ran(49, 1), ran(50, 1), ran(60, 1, user="bob")]
    assert predictions_s(trace, LastTwoPredictor()).tolist() == [1000, 1000, 25, 1000]


def test_predictors_that_learn_nothing_are_asked_all_the_same():
    assert predictions_s([ran(0, 50), ran(1, 2)], WalltimePredictor()).tolist() == [1000, 1000]


def test_rates_by_hand():
    found = Accuracy.of(np.array([60, 75, 125, 300]), np.array([60, 100, 100, 60]))
    assert found == Accuracy(4, pytest.approx((0 + 25 + 25 + 240) / 4 / 60), under=0.5, over=0.25, close=0.75)


def test_ecdf_rises_to_one():
    points = ecdf(np.array([10, 20, 20, 40]), np.array([20, 20, 20, 20]))
    assert points == [(0.5, 0.25), (1.0, 0.75), (1.0, 0.75), (2.0, 1.0)]
