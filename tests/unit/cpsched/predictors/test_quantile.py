import pytest

from cpsched.errors import InvalidValue
from cpsched.model import EndedJob
from cpsched.predictors import quantile as quantiles
from cpsched.predictors.quantile import QuantilePredictor, weighted_quantile
from tests.builders import a_job


def taught(quantile, *ran, **facts):
    """A predictor that saw jobs of ada, of 100 s each, run for these times."""
    predictor = QuantilePredictor(quantile)
    for i, run_s in enumerate(ran):
        predictor.learn(EndedJob(a_job(i, user="ada", **facts), 0, run_s))
    return predictor


def test_uses_walltime_without_data():
    assert QuantilePredictor().predict(a_job(user="ada", walltime_s=77)) == 77


def test_predicts_quantile_of_run_shares_of_user():
    ran = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100] * 4
    low, high = taught(0.2, *ran), taught(0.9, *ran)
    job = a_job(99, user="ada", walltime_s=100)
    assert 10 <= low.predict(job) <= 30
    assert 80 <= high.predict(job) <= 100
    assert low.predict(a_job(99, user="ada", walltime_s=1000)) == 10 * low.predict(job)


def test_jobs_of_same_shape_weigh_more():
    predictor = QuantilePredictor(0.5)
    for i in range(20):
        predictor.learn(EndedJob(a_job(i, units=4, user="ada", name="wide"), 0, 90))
        predictor.learn(EndedJob(a_job(i, units=1, user="ada", name="test"), 0, 2))
    assert predictor.predict(a_job(99, units=4, user="ada", name="wide")) == 90
    assert predictor.predict(a_job(99, units=1, user="ada", name="test")) == 2


def test_recent_jobs_weigh_more():
    assert taught(0.5, *[90] * 15, *[10] * 15).predict(a_job(99, user="ada")) == 10


def test_unknown_user_uses_site_data():
    predictor = taught(0.5, *[25] * 60)
    assert predictor.predict(a_job(99, user="bob", walltime_s=200)) == 50


def test_share_is_at_most_walltime():
    assert taught(0.5, *[500] * 60).predict(a_job(99, user="ada")) == 100


@pytest.mark.parametrize(("quantile", "value"), [(0.01, 1.0), (0.5, 2.0), (0.6, 3.0), (1.0, 3.0)])
def test_computes_weighted_quantile(quantile, value):
    assert weighted_quantile([(3.0, 2.0), (1.0, 1.0), (2.0, 1.0)], quantile) == value


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


def heard(monkeypatch, predictor, job):
    """What a prediction is the quantile of: (share, weight) of the site and of each of the user's jobs."""
    asked = []

    def noted(weighed, quantile):
        asked.append((list(weighed), quantile))
        return 0.5

    monkeypatch.setattr(quantiles, "weighted_quantile", noted)
    assert predictor.predict(job) == max(1, round(job.walltime_s / 2))
    monkeypatch.undo()
    ((weighed, quantile),) = asked
    assert quantile == predictor.quantile
    return weighed


@pytest.mark.parametrize(
    ("facts", "weight"),
    [
        ({}, 1.0),
        ({"walltime_s": 101}, 0.2),
        ({"units": 2}, 0.5),
        ({"name": "other"}, 0.4),
        ({"walltime_s": 99, "units": 2}, 0.1),
        ({"walltime_s": 99, "units": 2, "name": "other"}, 0.04),
    ],
)
def test_differences_reduce_weight_of_job(monkeypatch, facts, weight):
    predictor = taught(0.5, 30, name="run")
    job = a_job(99, **{"user": "ada", "name": "run", "walltime_s": 100, **facts})
    assert heard(monkeypatch, predictor, job) == [(0.3, 3.0), (0.3, pytest.approx(weight))]


def test_site_has_weight_3_and_older_jobs_decay(monkeypatch):
    predictor = taught(0.5, *range(1, 22))
    site, *weighed = heard(monkeypatch, predictor, a_job(99, user="ada"))
    assert site == (0.01, 3.0), "as at the first job, at which it was looked at"
    assert [share for share, _ in weighed] == [run_s / 100 for run_s in range(21, 0, -1)], "the last one first"
    assert [weight for _, weight in weighed] == [pytest.approx(0.5 ** (age / 10)) for age in range(21)]
    assert (weighed[10][1], weighed[20][1]) == (0.5, 0.25)


def test_remembers_bounded_number_of_jobs_per_user(monkeypatch):
    for remember in (1, 3):
        predictor = QuantilePredictor(remember=remember)
        for run_s in (10, 20, 30, 40):
            predictor.learn(EndedJob(a_job(user="ada"), 0, run_s))
        weighed = heard(monkeypatch, predictor, a_job(99, user="ada"))[1:]
        assert [share for share, _ in weighed] == [0.4, 0.3, 0.2][:remember]
    default = QuantilePredictor()
    for _ in range(50):
        default.learn(EndedJob(a_job(user="ada"), 0, 10))
    assert len(heard(monkeypatch, default, a_job(99, user="ada"))) == 1 + 40
    assert default.quantile == 0.8


def test_job_without_user_uses_site_only(monkeypatch):
    predictor = QuantilePredictor()
    predictor.learn(EndedJob(a_job(user=""), 0, 40))
    assert heard(monkeypatch, predictor, a_job(99, user="")) == [(0.4, 3.0)]


def test_reads_site_at_first_job_and_every_50():
    predictor = QuantilePredictor(1.0)
    seen = []
    for run_s in [10, *[20] * 49, *[30] * 50, 40]:
        predictor.learn(EndedJob(a_job(user="ada"), 0, run_s))
        seen.append(predictor.predict(a_job(99, user="bob", walltime_s=100)))
    assert seen == [10] * 50 + [30] * 50 + [40]


def test_site_remembers_last_400_jobs():
    predictor = QuantilePredictor(1.0)
    for run_s in [90, *[10] * 450]:
        predictor.learn(EndedJob(a_job(user="ada"), 0, run_s))
    assert predictor.predict(a_job(99, user="bob", walltime_s=100)) == 10
    predictor = QuantilePredictor(1.0)
    for run_s in [90, *[10] * 350]:
        predictor.learn(EndedJob(a_job(user="ada"), 0, run_s))
    assert predictor.predict(a_job(99, user="bob", walltime_s=100)) == 90


@pytest.mark.parametrize(
    ("walltime_s", "run_s", "seconds"), [(100, 0, 1), (1, 1, 1), (3, 50, 2), (10, 25, 2), (10, 35, 4)]
)
def test_prediction_is_at_least_one_whole_second(walltime_s, run_s, seconds):
    predictor = taught(1.0, run_s)
    assert predictor.predict(a_job(99, user="bob", walltime_s=walltime_s)) == seconds


def test_learns_and_accepts_inclusive_bounds():
    assert QuantilePredictor(1.0, 1).learns
    assert QuantilePredictor(0.001).quantile == 0.001


@pytest.mark.parametrize(
    ("weighed", "quantile", "value"),
    [
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
