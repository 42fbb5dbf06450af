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


def test_unknown_user_runs_to_walltime():
    assert RunTimeModel().run_times_at_quantiles_s(a_job(user="ada", walltime_s=70), HALVES).tolist() == [70, 70, 70]


def test_draws_run_times_of_user():
    drawn = taught(*[20, 80] * 30).run_times_at_quantiles_s(a_job(99, user="ada"), np.linspace(0.01, 0.99, 99))
    assert set(drawn.tolist()) == {20, 80}
    assert 0.35 < (drawn == 20).mean() < 0.65


def test_running_job_is_drawn_from_remaining_times():
    times = taught(*[20, 80] * 30)
    assert times.run_times_at_quantiles_s(a_job(99, user="ada"), HALVES, elapsed_s=20).tolist() == [80, 80, 80]
    assert times.run_times_at_quantiles_s(a_job(99, user="ada"), HALVES, elapsed_s=85).tolist() == [100, 100, 100]
    assert times.run_times_at_quantiles_s(a_job(99, user="ada"), HALVES, elapsed_s=130).tolist() == [131, 131, 131]


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
    assert known == shares
    assert list(known.users) == list(shares.users)


def test_bounds_number_of_users(monkeypatch):
    monkeypatch.setattr("cpsched.run_time_model.MAX_USERS", 2)
    shares = MeanRunToWalltimeRatios()
    for user in ("ada", "bob", "ada", "cat"):
        shares.learn(EndedJob(a_job(user=user), 0, 1))
    assert list(shares.users) == ["ada", "cat"]


def test_computes_weight_of_ended_job():
    """By likeness and age; a job that outran its walltime counts as one that ran all of it."""
    times = RunTimeModel(remember=3)
    for run_s, facts in ((1, {}), (20, {"walltime_s": 200}), (150, {"units": 2}), (50, {"name": "x"})):
        times.learn(EndedJob(a_job(1, **{"user": "ada", "walltime_s": 100, **facts}), 0, run_s))
    fade = 0.5**0.1
    assert times.weigh_user_history(a_job(9, user="ada", walltime_s=100)) == [
        (0.5, pytest.approx(0.4)), (1.0, pytest.approx(0.5 * fade)), (0.1, pytest.approx(0.2 * fade**2)),
    ]  # fmt: skip
    assert (list(times.site), times.ended) == ([0.01, 0.1, 1.0, 0.5], 4)
    shares, weights = times.distribution(a_job(9, user="ada", walltime_s=100))
    assert shares.tolist() == [0.01] * 20 + [0.1, 0.5, 1.0]
    total = 3 + 0.4 + 0.5 * fade + 0.2 * fade**2
    assert weights.tolist() == pytest.approx(
        [0.15 / total] * 20 + [0.2 * fade**2 / total, 0.4 / total, 0.5 * fade / total]
    )


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
    assert shares.site == (pytest.approx(count), pytest.approx(total))
    assert shares.mean_run_to_walltime_ratio("ada") == pytest.approx((fade + 0.5 + 3 * total / count) / (fade + 1 + 3))
    assert shares.mean_run_to_walltime_ratio("bob") == pytest.approx(total / count)
