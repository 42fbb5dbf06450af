import pytest

from cpsched.errors import InvalidValue
from cpsched.model import EndedJob
from cpsched.predictors.quantile import QuantilePredictor, weighted_quantile
from tests.builders import a_job


def taught(quantile, *ran, **facts):
    """A predictor that saw jobs of ada, of 100 s each, run for these times."""
    predictor = QuantilePredictor(quantile)
    for i, run_s in enumerate(ran):
        predictor.learn(EndedJob(a_job(i, user="ada", **facts), 0, run_s))
    return predictor


TENTHS = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


@pytest.mark.parametrize(
    ("quantile", "ran", "user", "walltime_s", "predicted_s"),
    [
        (0.8, [], "ada", 77, 77),
        (0.2, TENTHS * 4, "ada", 100, 10),
        (0.2, TENTHS * 4, "ada", 1000, 100),
        (0.9, TENTHS * 4, "ada", 100, 100),
        (0.5, [90] * 15 + [10] * 15, "ada", 100, 10),  # recent jobs weigh more
        (0.5, [500] * 60, "ada", 100, 100),
        # An unknown user gets the site's quantile, of at most 400 jobs, and at least one whole second.
        (0.5, [25] * 60, "bob", 200, 50),
        (1.0, [90, *[10] * 450], "bob", 100, 10),
        (1.0, [90, *[10] * 350], "bob", 100, 90),
        (1.0, [0], "bob", 100, 1),
        (1.0, [1], "bob", 1, 1),
        (1.0, [50], "bob", 3, 2),
        (1.0, [25], "bob", 10, 2),
        (1.0, [35], "bob", 10, 4),
    ],
)
def test_predicts_quantile_of_run_shares(quantile, ran, user, walltime_s, predicted_s):
    assert taught(quantile, *ran).predict(a_job(99, user=user, walltime_s=walltime_s)) == predicted_s


def test_jobs_of_same_shape_weigh_more():
    predictor = QuantilePredictor(0.5)
    wide, test = (a_job(99, units=units, user="ada", name=name) for units, name in ((4, "wide"), (1, "test")))
    for _ in range(20):
        predictor.learn(EndedJob(wide, 0, 90))
        predictor.learn(EndedJob(test, 0, 2))
    assert (predictor.predict(wide), predictor.predict(test)) == (90, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantile": 0}, "quantile=0: must be above 0"),
        ({"quantile": 1.1}, "quantile=1.1"),
        ({"remember": 0}, "remember=0"),
    ],
)
def test_rejects_invalid_settings(settings, message):
    with pytest.raises(InvalidValue, match=message):
        QuantilePredictor(**settings)


@pytest.mark.parametrize(("quantile", "remember", "predicted_s"), [(0.1, 1, 50), (0.1, 2, 10), (0.3, 2, 50)])
def test_weighs_last_jobs_of_user_and_site(quantile, remember, predicted_s):
    """The site's share is that of the first job, and weighs as much as three jobs."""
    predictor = QuantilePredictor(quantile, remember)
    for run_s in (90, 10, 50):
        predictor.learn(EndedJob(a_job(user="ada"), 0, run_s))
    assert predictor.predict(a_job(99, user="ada")) == predicted_s


def test_reads_site_at_first_job_and_every_50():
    predictor = QuantilePredictor(1.0)
    seen = []
    for run_s in [10, *[20] * 49, *[30] * 50, 40]:
        predictor.learn(EndedJob(a_job(user="ada"), 0, run_s))
        seen.append(predictor.predict(a_job(99, user="bob", walltime_s=100)))
    assert seen == [10] * 50 + [30] * 50 + [40]


def test_accepts_inclusive_bounds_and_has_defaults():
    found = [QuantilePredictor(*given) for given in ((1.0, 1), (0.001,), ())]
    assert [(each.learns, each.quantile, each.remember) for each in found] == [
        (True, 1.0, 1),
        (True, 0.001, 40),
        (True, 0.8, 40),
    ]


@pytest.mark.parametrize(
    ("weighed", "quantile", "value"),
    [
        ([(3.0, 2.0), (1.0, 1.0), (2.0, 1.0)], 0.01, 1.0),
        ([(3.0, 2.0), (1.0, 1.0), (2.0, 1.0)], 0.5, 2.0),
        ([(3.0, 2.0), (1.0, 1.0), (2.0, 1.0)], 0.6, 3.0),
        ([(3.0, 2.0), (1.0, 1.0), (2.0, 1.0)], 1.0, 3.0),
        ([(5.0, 1.0)], 0.01, 5.0),
        ([(1.0, 1.0), (2.0, 1.0)], 0.5, 1.0),
        ([(1.0, 1.0), (2.0, 1.0)], 0.51, 2.0),
        ([(1.0, 3.0), (2.0, 1.0)], 0.75, 1.0),
        ([(1.0, 3.0), (2.0, 1.0)], 0.76, 2.0),
        ([(2.0, 0.0), (1.0, 0.0)], 0.5, 1.0),
    ],
)
def test_weighted_quantile_is_least_value_reaching_share(weighed, quantile, value):
    assert weighted_quantile(weighed, quantile) == value
