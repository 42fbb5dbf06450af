import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.forecast import IntervalCalibrator
from cpsched.model import NEVER
from tests.builders import a_job


def told(calibration, middle_s, now_s=0, **facts):
    """The interval of one job, all of whose drawn starts are the same."""
    drawn_s = np.full((5, 1), middle_s, np.int64)
    (found,) = calibration.predict_intervals(now_s, [a_job(1, **facts)], [middle_s], drawn_s)
    return found


def lived(waits, middle_s=3000, horizon_s=None):
    """A calibration, and how many of its last half held, where jobs wait as drawn from `waits` times their middle."""
    calibration, held = IntervalCalibrator(), []
    for at, share in enumerate(waits):
        now_s = 10_000 * at
        interval = told(calibration, now_s + middle_s, now_s, submit_s=now_s)
        start_s = now_s + round(share * middle_s)
        held.append(interval.from_s <= start_s <= interval.to_s)
        calibration.record_outcome(interval, start_s)
    return calibration, np.mean(held[len(held) // 2 :])


def test_before_anything_came_true_an_interval_is_wide_and_says_so():
    found = told(IntervalCalibrator(), 3600)
    assert not found.calibrated
    assert (found.from_s, found.to_s) == (855, 14580)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_eight_in_ten_hold_whatever_the_draws_miss(seed):
    """Real waits are up to five times the drawn ones, and mostly shorter."""
    waits = np.exp(np.random.default_rng(seed).normal(-0.5, 1.0, 1500))
    calibration, held = lived(waits)
    assert 0.75 <= held <= 0.85
    assert told(calibration, 3000).calibrated


def test_after_a_change_of_the_times_intervals_hold_again():
    rng = np.random.default_rng(4)
    waits = np.concatenate((rng.uniform(0.5, 1.0, 800), rng.uniform(4, 9, 1600)))
    _, held = lived(waits)
    assert held >= 0.75


def test_intervals_are_narrow_where_draws_are_right():
    calibration, _ = lived(np.random.default_rng(5).uniform(0.95, 1.05, 400))
    found = told(calibration, 3000)
    assert found.from_s > 2700
    assert found.to_s < 3300


def test_what_is_far_ahead_does_not_learn_from_what_is_near():
    """Near starts come as forecast, far ones late: the nearest forecasts are of the same kind."""
    calibration = IntervalCalibrator()
    for at in range(200):
        now_s = 1_000_000 * at
        near, far = told(calibration, now_s + 600, now_s), told(calibration, now_s + 40_000, now_s)
        calibration.record_outcome(near, now_s + 600)
        calibration.record_outcome(far, now_s + 120_000)
    assert told(calibration, 600).to_s < 700
    assert told(calibration, 40_000).from_s > 100_000


def test_no_interval_begins_in_the_past_or_ends_before_it_begins():
    calibration, _ = lived(np.random.default_rng(6).uniform(0, 0.01, 300))
    found = told(calibration, 0)
    assert 0 <= found.from_s <= found.to_s


@pytest.mark.parametrize("wait_s", [0, 10**6])
def test_ends_do_not_change_places_where_one_side_alone_fails(wait_s):
    """Starts that are all as forecast, and then all far off to one side."""
    calibration = IntervalCalibrator()
    for at in range(3000):
        now_s = 10**7 * at
        calibration.record_outcome(told(calibration, now_s + 3000, now_s), now_s + (3000 if at < 2500 else wait_s))
    found = told(calibration, 3000)
    assert found.from_s <= found.to_s


def test_no_jobs_have_no_intervals():
    assert IntervalCalibrator().predict_intervals(0, [], [], np.zeros((5, 0), np.int64)) == []


def test_many_intervals_at_once_are_what_each_is_alone():
    calibration, _ = lived(np.exp(np.random.default_rng(7).normal(0, 1, 700)))
    rng = np.random.default_rng(8)
    jobs = [a_job(id, walltime_s=int(rng.integers(60, 90_000))) for id in range(300)]
    drawn_s = rng.integers(0, 200_000, (15, 300))
    plan_s = drawn_s[0].tolist()
    found = calibration.predict_intervals(0, jobs, plan_s, drawn_s)
    alone = [
        calibration.predict_intervals(0, [job], [plan_s[at]], drawn_s[:, [at]])[0] for at, job in enumerate(jobs)
    ]  # fmt: skip
    assert found == alone
    assert len({each.to_s for each in found}) > 200


def test_a_job_that_never_starts_has_no_interval_before_now():
    calibration, _ = lived([1.0] * 100)
    found = told(calibration, NEVER)
    assert 10**8 < found.from_s <= found.to_s


@pytest.mark.parametrize("true", [0, 29, 30, 31])
def test_an_interval_is_calibrated_after_thirty_starts(true):
    calibration, _ = lived([1.0] * true)
    assert told(calibration, 3000).calibrated is (true >= 30)


def test_what_one_start_teaches_as_a_whole():
    """An interval that fails to one side moves the quantile of that side, of its horizon alone."""
    for start_s, below, above in ((855, 0.1005, 0.8995), (854, 0.0955, 0.8995), (14581, 0.1005, 0.9045)):
        calibration = IntervalCalibrator()
        interval = told(calibration, 3600)
        assert (interval.issued_at_s, interval.median_s, interval.horizon) == (0, 3600, 1)
        calibration.record_outcome(interval, start_s)
        assert calibration.lower_quantiles == pytest.approx([0.1, below, 0.1, 0.1, 0.1])
        assert calibration.upper_quantiles == pytest.approx([0.9, above, 0.9, 0.9, 0.9])
        ((features, ratio),) = calibration.past_errors
        assert (features, ratio) == (interval.features, pytest.approx(np.log((start_s + 60) / 3660)))
        again = IntervalCalibrator.from_memory(
            calibration.past_errors, calibration.lower_quantiles, calibration.upper_quantiles
        )
        assert (again.past_errors, again.lower_quantiles, again.upper_quantiles) == (
            calibration.past_errors,
            calibration.lower_quantiles,
            calibration.upper_quantiles,
        )


def test_features_of_an_interval_as_a_whole():
    """Middle wait, spread, area, walltime, time in the queue, and planned wait: logarithms, waits a minute longer."""
    drawn_s = np.array([[1100], [1200], [1300], [1400], [1500]])
    job = a_job(1, 3, 2, 500, 400)
    (found,) = IntervalCalibrator().predict_intervals(1000, [job], [1250], drawn_s)
    assert np.exp(found.features) == pytest.approx([360, 520 / 200, 3000, 500, 660, 310])


@pytest.mark.parametrize(
    ("wait_s", "horizon"),
    [(900, 0), (901, 1), (3600, 1), (3601, 2), (21600, 2), (21601, 3), (86400, 3), (86401, 4)],
)  # fmt: skip
def test_horizons_end_with_their_last_second(wait_s, horizon):
    assert told(IntervalCalibrator(), wait_s).horizon == horizon


@pytest.mark.parametrize(
    ("below", "above", "field"),
    [([0.1] * 4, [0.9] * 5, "below"), ([0.1] * 5, [0.9] * 6, "above"), ([0.1] * 4 + [0.51], [0.9] * 5, "below"),
     ([-0.21] * 5, [0.9] * 5, "below"), ([0.1] * 5, [0.49] * 5, "above"), ([0.1] * 5, [1.21] * 5, "above")],
)  # fmt: skip
def test_quantiles_that_none_can_have_are_refused(below, above, field):
    assert IntervalCalibrator.from_memory([], [-0.2, 0.5] + [0.1] * 3, [0.5, 1.2] + [0.9] * 3).past_errors == []
    with pytest.raises(InvalidValue, match=field):
        IntervalCalibrator.from_memory([], below, above)
