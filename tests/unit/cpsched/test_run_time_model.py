import json

import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.model import EndedJob
from cpsched.run_time_model import MeanRunToWalltimeRatios, RunTimeModel
from tests.builders import a_job

HALVES = np.array([0.1, 0.5, 0.9])


def taught(*ran, **facts):
    """Jobs of ada, of 100 s each, that ran for these times."""
    times = RunTimeModel()
    for i, run_s in enumerate(ran):
        times.learn(EndedJob(a_job(i, user="ada", **facts), 0, run_s))
    return times


@pytest.mark.parametrize(
    ("ran", "job", "elapsed_s", "drawn_s"),
    [
        ([], a_job(user="ada", walltime_s=70), 0, 70),
        ([20, 80] * 30, a_job(99, user="ada"), 20, 80),
        ([20, 80] * 30, a_job(99, user="ada"), 85, 100),
        ([20, 80] * 30, a_job(99, user="ada"), 130, 131),
    ],
)
def test_draws_remaining_times_up_to_walltime(ran, job, elapsed_s, drawn_s):
    assert taught(*ran).run_times_at_quantiles_s(job, HALVES, elapsed_s=elapsed_s).tolist() == [drawn_s] * 3


def test_draws_run_times_of_user():
    drawn = taught(*[20, 80] * 30).run_times_at_quantiles_s(a_job(99, user="ada"), np.linspace(0.01, 0.99, 99))
    assert (set(drawn.tolist()), 0.35 < (drawn == 20).mean() < 0.65) == ({20, 80}, True)


def test_ended_job_is_in_next_draw():
    times = taught(*[50] * 60)
    before = times.run_times_at_quantiles_s(a_job(99, user="ada"), HALVES)
    for i in range(40):
        times.learn(EndedJob(a_job(i, user="ada"), 0, 10))
    assert before.tolist() == [50, 50, 50]
    assert times.run_times_at_quantiles_s(a_job(99, user="ada"), HALVES).tolist()[:2] == [10, 10]


def test_rejects_zero_memory():
    with pytest.raises(InvalidValue, match="remember=0"):
        RunTimeModel(remember=0)


def test_shares_survive_json():
    shares, known = MeanRunToWalltimeRatios(), MeanRunToWalltimeRatios()
    for run_s in (10, 70, 30):
        shares.learn(EndedJob(a_job(user=f"u{run_s}", walltime_s=100), 0, run_s))
    known.recall(json.loads(json.dumps(shares.memory())))
    assert (known, list(known.users)) == (shares, list(shares.users))


def test_bounds_number_of_users(monkeypatch):
    monkeypatch.setattr("cpsched.run_time_model.MAX_USERS", 2)
    shares = MeanRunToWalltimeRatios()
    for user in ("ada", "bob", "ada", "cat"):
        shares.learn(EndedJob(a_job(user=user), 0, 1))
    assert list(shares.users) == ["ada", "cat"]


def test_computes_weight_of_ended_job():
    """By likeness and age; a job that outran its walltime counts as one that ran all of it."""
    times = RunTimeModel(remember=4)
    for run_s, facts in (
        (1, {}), (20, {"walltime_s": 200}), (150, {"units": 2}), (50, {"name": "x"}), (7, {"user": ""}),
        (60, {"walltime_s": 200, "units": 2, "name": "x"}),
    ):  # fmt: skip
        times.learn(EndedJob(a_job(1, **{"user": "ada", "walltime_s": 100, **facts}), 0, run_s))
    fades = [0.5 ** (age / 10) for age in range(4)]
    history = dict(zip((0.3, 0.5, 1.0, 0.1), np.array([0.2 * 0.5 * 0.4, 0.4, 0.5, 0.2]) * fades, strict=True))
    assert times.weigh_user_history(a_job(9, user="ada", walltime_s=100)) == [
        (share, pytest.approx(weight)) for share, weight in history.items()
    ]
    assert times.weigh_user_history(a_job(9, user="")) == []
    assert (list(times.site), times.ended) == ([0.01, 0.1, 1.0, 0.5, 0.07, 0.3], 6)
    shares, weights = times.distribution(a_job(9, user="ada", walltime_s=100))
    assert shares.tolist() == [0.01] * 20 + [0.1, 0.3, 0.5, 1.0]
    total = 3 + sum(history.values())
    assert weights.tolist() == pytest.approx([0.15 / total] * 20 + [history[s] / total for s in (0.1, 0.3, 0.5, 1.0)])


@pytest.mark.parametrize("facts", [{"user": "bob"}, {"walltime_s": 200}, {"units": 2}, {"name": "x"}])
def test_each_job_attribute_changes_distribution(facts):
    times = taught(*[20, 80] * 30)
    plain, other = a_job(9, user="ada"), a_job(9, **{"user": "ada", **facts})
    alone = RunTimeModel.distribution(taught(*[20, 80] * 30), other)
    times.distribution(plain)
    assert [each.tolist() for each in times.distribution(other)] == [each.tolist() for each in alone]
    assert times.distribution(other)[1].tolist() != times.distribution(plain)[1].tolist()


def test_computes_mean_run_shares():
    """A job that outran its walltime ran all of it: no share is above 1."""
    shares, fade, site_fade = MeanRunToWalltimeRatios(), 0.5**0.1, 1 - 1 / 400
    for run_s, user in ((250, "ada"), (50, "ada"), (10, "")):
        shares.learn(EndedJob(a_job(user=user, walltime_s=100), 0, run_s))
    assert shares.users == {"ada": (pytest.approx(fade + 1), pytest.approx(fade + 0.5))}
    count, total = (1 * site_fade + 1) * site_fade + 1, (1 * site_fade + 0.5) * site_fade + 0.1
    assert shares.site == pytest.approx((count, total))
    ratios = [shares.mean_run_to_walltime_ratio(user) for user in ("ada", "bob")]
    assert ratios == pytest.approx([(fade + 0.5 + 3 * total / count) / (fade + 1 + 3), total / count])
