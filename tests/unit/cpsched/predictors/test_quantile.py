import pytest

from cpsched.errors import InvalidValue
from cpsched.model import EndedJob
from cpsched.predictors.quantile import QuantilePredictor, at_quantile
from tests.builders import a_job


def taught(quantile, *ran, **facts):
    """A predictor that saw jobs of ada, of 100 s each, run so many seconds."""
    predictor = QuantilePredictor(quantile)
    for i, run_s in enumerate(ran):
        predictor.learn(EndedJob(a_job(i, user="ada", **facts), 0, run_s))
    return predictor


def test_of_a_user_and_a_site_that_nothing_is_known_of_the_walltime_counts():
    assert QuantilePredictor().predict(a_job(user="ada", walltime_s=77)) == 77


def test_a_quantile_of_what_the_users_jobs_ran_of_their_walltimes():
    ran = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100] * 4
    low, high = taught(0.2, *ran), taught(0.9, *ran)
    job = a_job(99, user="ada", walltime_s=100)
    assert 10 <= low.predict(job) <= 30
    assert 80 <= high.predict(job) <= 100
    assert low.predict(a_job(99, user="ada", walltime_s=1000)) == 10 * low.predict(job)


def test_jobs_of_the_same_shape_count_for_more():
    predictor = QuantilePredictor(0.5)
    for i in range(20):
        predictor.learn(EndedJob(a_job(i, units=4, user="ada", name="wide"), 0, 90))
        predictor.learn(EndedJob(a_job(i, units=1, user="ada", name="test"), 0, 2))
    assert predictor.predict(a_job(99, units=4, user="ada", name="wide")) == 90
    assert predictor.predict(a_job(99, units=1, user="ada", name="test")) == 2


def test_recent_jobs_count_for_more():
    assert taught(0.5, *[90] * 15, *[10] * 15).predict(a_job(99, user="ada")) == 10


def test_of_an_unknown_user_the_site_tells():
    predictor = taught(0.5, *[25] * 60)
    assert predictor.predict(a_job(99, user="bob", walltime_s=200)) == 50


def test_more_than_the_walltime_is_no_share():
    assert taught(0.5, *[500] * 60).predict(a_job(99, user="ada")) == 100


@pytest.mark.parametrize(("quantile", "value"), [(0.01, 1.0), (0.5, 2.0), (0.6, 3.0), (1.0, 3.0)])
def test_the_weighed_quantile(quantile, value):
    assert at_quantile([(3.0, 2.0), (1.0, 1.0), (2.0, 1.0)], quantile) == value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantile": 0}, "quantile=0: must be above 0"),
        ({"quantile": 1.1}, "quantile=1.1"),
        ({"remember": 0}, "remember=0"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings, message):
    with pytest.raises(InvalidValue, match=message):
        QuantilePredictor(**settings)
