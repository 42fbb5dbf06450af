import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.forecast import FIRST_CLASS, LEVELS, StartCalibrator, pinball_loss_s, select_one_per_class
from cpsched.model import NEVER
from tests.builders import a_job

SLOW = pytest.mark.slow


def told(calibration, middle_s, now_s=0, first=True, **facts):
    """The interval of one job, all of whose drawn starts are the same."""
    drawn_s = np.full((5, 1), middle_s, np.int64)
    (found,) = calibration.forecast(now_s, [a_job(1, **facts)], [middle_s], drawn_s, [first])
    return found


def lived(waits, percent=80):
    """A calibration, and how many of its last half held, where jobs wait as drawn from `waits` times 3000 s."""
    calibration, held = StartCalibrator(), []
    for at, share in enumerate(waits):
        now_s = 10_000 * at
        forecast = told(calibration, now_s + 3000, now_s, submit_s=now_s)
        start_s = now_s + round(share * 3000)
        low_s, high_s = forecast.interval(percent)
        held.append(low_s <= start_s <= high_s)
        calibration.record_outcome(forecast, start_s)
    return calibration, np.mean(held[len(held) // 2 :])


def uniform(seed, low, high, count=400):
    """A calibration after this number of jobs whose waits are drawn between two shares."""
    return lived(np.random.default_rng(seed).uniform(low, high, count))[0]


def test_uncalibrated_interval_is_wide_and_marked():
    found = told(StartCalibrator(), 3600)
    assert (found.calibrated, found.from_s, found.median_s, found.to_s) == (False, 855, 3600, 14580)
    assert list(found.quantiles_s) == sorted(found.quantiles_s)


@pytest.mark.parametrize(
    ("seed", "percent"),
    [(1, 80), *(pytest.param(*case, marks=SLOW) for case in ((2, 80), (3, 80), (10, 50), (10, 95)))],
)
def test_intervals_hold_at_stated_rate_despite_biased_draws(seed, percent):
    """Real waits are up to five times the drawn ones, and mostly shorter."""
    calibration, held = lived(np.exp(np.random.default_rng(seed).normal(-0.5, 1.0, 2000)), percent)
    assert 100 * held == pytest.approx(percent, abs=4)
    assert told(calibration, 3000).calibrated


def test_intervals_hold_again_after_change():
    rng = np.random.default_rng(4)
    assert lived(np.concatenate((rng.uniform(0.5, 1.0, 800), rng.uniform(4, 9, 1600))))[1] >= 0.75


def test_accurate_draws_give_narrow_intervals():
    found = told(uniform(5, 0.95, 1.05), 3000)
    assert 2700 < found.from_s <= found.to_s < 3300


def test_distant_forecasts_do_not_learn_from_near_ones():
    """Near starts come as forecast, far ones late: the nearest forecasts are of the same kind."""
    calibration = StartCalibrator()
    for at in range(200):
        now_s = 1_000_000 * at
        near, far = told(calibration, now_s + 600, now_s), told(calibration, now_s + 40_000, now_s)
        calibration.record_outcome(near, now_s + 600)
        calibration.record_outcome(far, now_s + 120_000)
    assert told(calibration, 600).to_s < 700
    assert told(calibration, 40_000).from_s > 100_000


def test_interval_starts_after_now_and_ends_after_start():
    found = told(uniform(6, 0, 0.01, 300), 0)
    assert 0 <= found.from_s <= found.to_s


@pytest.mark.parametrize("wait_s", [0, 10**6])
def test_one_sided_errors_do_not_reverse_interval(wait_s):
    """Starts that are all as forecast, and then all far off to one side."""
    calibration = StartCalibrator()
    for at in range(3000):
        now_s = 10**7 * at
        calibration.record_outcome(told(calibration, now_s + 3000, now_s), now_s + (3000 if at < 2500 else wait_s))
    found = told(calibration, 3000)
    assert found.from_s <= found.to_s


def test_crossed_levels_are_sorted():
    """The lowest level has moved above the next three: the quantiles are those of the levels in ascending order."""
    known = uniform(11, 0.5, 1.5, 200).past_errors
    crossed, ascending = [0.4, 0.05, 0.1, 0.25, *LEVELS[4:]], [0.05, 0.1, 0.25, 0.4, *LEVELS[4:]]
    found, sorted_ = (
        told(StartCalibrator.from_memory(known, [levels] * 10, 100), 3000) for levels in (crossed, ascending)
    )
    assert (found.quantiles_s, len(set(found.quantiles_s))) == (sorted_.quantiles_s, len(LEVELS))


def test_no_jobs_give_no_intervals():
    assert StartCalibrator().forecast(0, [], [], np.zeros((5, 0), np.int64), []) == []


def test_batch_of_intervals_equals_single_ones():
    calibration, _ = lived(np.exp(np.random.default_rng(7).normal(0, 1, 700)))
    rng = np.random.default_rng(8)
    jobs = [a_job(id, walltime_s=int(rng.integers(60, 90_000))) for id in range(300)]
    drawn_s = rng.integers(0, 200_000, (15, 300))
    plan_s = drawn_s[0].tolist()
    found = calibration.forecast(0, jobs, plan_s, drawn_s, [False, True] * 150)
    alone = [
        calibration.forecast(0, [job], [plan_s[at]], drawn_s[:, [at]], [at % 2 == 1])[0] for at, job in enumerate(jobs)
    ]  # fmt: skip
    assert found == alone
    assert len({each.to_s for each in found}) > 200


def test_impossible_start_has_interval_far_in_future():
    found = told(lived([1.0] * 100)[0], NEVER)
    assert 10**8 < found.from_s <= found.to_s


@pytest.mark.parametrize("outcomes", [29, 30, 99, 100])
def test_interval_is_calibrated_after_100_first_forecasts(outcomes):
    """Outcomes are used from 30 on. The user reads the first forecast, so later ones do not make it calibrated."""
    calibration, _ = lived([1.0] * outcomes)
    found = told(calibration, 3000)
    assert (found.learned, found.calibrated) == (outcomes >= 30, outcomes >= 100)
    for _ in range(100 - outcomes):
        calibration.record_outcome(told(calibration, 3000, first=False), 3000)
    assert told(calibration, 3000, first=False).calibrated is (outcomes >= 100)


def test_job_counts_once_per_class():
    """A job that waits for long has a first forecast and several later ones of one horizon: the oldest counts."""
    calibration = StartCalibrator()
    forecasts = [told(calibration, at_s + 3000, at_s, at_s == 0) for at_s in (0, 600, 2400)]
    forecasts.append(told(calibration, 9600 + 60, 9600, False))
    assert select_one_per_class(forecasts) == [forecasts[0], forecasts[1], forecasts[3]]
    assert [each.outcome_class for each in forecasts] == [FIRST_CLASS, 1, 1, 0]


def test_waiting_job_has_no_quantile_in_the_past():
    found = told(StartCalibrator(), 3600)
    assert (found.at(1000).from_s, found.at(1000).to_s, found.at(0)) == (1000, found.to_s, found)
    assert (found.at(found.to_s).from_s, found.at(found.to_s + 1)) == (found.to_s, None)


@pytest.mark.parametrize("level", [2, 6])
def test_start_at_a_quantile_is_not_beyond_it(level):
    """Just equal: the interval holds, so its end moves inward."""
    calibration, _ = lived(np.linspace(0.5, 1.5, 100))
    found = told(calibration, 3000)
    before = calibration.levels_by_class[6][level]
    calibration.record_outcome(found, found.quantiles_s[level])
    assert found.classify_outcome(found.quantiles_s[level]) == "covered"
    assert abs(calibration.levels_by_class[6][level] - 0.5) < abs(before - 0.5)


def test_one_start_adjusts_only_its_quantiles_and_horizon():
    """A missed quantile moves outward and the others inward, at its horizon alone; the median stays."""
    known = lived(np.linspace(0.5, 1.5, 30))[0].past_errors
    calibration = StartCalibrator.from_memory(known, [LEVELS] * 10, 100)
    found = told(calibration, 3000)
    assert (found.issued_at_s, found.calibrated, found.horizon_class) == (0, True, 1)
    start_s = found.quantiles_s[2] - 1
    assert found.quantiles_s[1] < start_s
    calibration.record_outcome(found, start_s)
    missed = {2: 0.1 - 0.009 * 0.9, 3: 0.25 - 0.01875 * 0.75}
    learned = [
        missed.get(at, level - 0.1 * level * (1 - level) * (min(level, 1 - level) if at > 4 else -level) * (at != 4))
        for at, level in enumerate(LEVELS)
    ]
    assert calibration.levels_by_class[6] == pytest.approx(learned)
    assert [*calibration.levels_by_class[:6], *calibration.levels_by_class[7:]] == [list(LEVELS)] * 9
    features, ratio = calibration.past_errors[-1]
    assert (features, ratio) == (found.features, pytest.approx(np.log((start_s + 60) / 3060)))
    again = StartCalibrator.from_memory(
        calibration.past_errors, calibration.levels_by_class, calibration.first_outcomes
    )
    assert (again.past_errors, again.levels_by_class) == (calibration.past_errors, calibration.levels_by_class)
    assert again.first_outcomes == calibration.first_outcomes == 101


def test_uncalibrated_forecast_moves_no_level():
    """Its quantiles are the initial ones, so they show nothing about the levels."""
    calibration = StartCalibrator()
    for found in [told(calibration, 3000)] * 300:
        calibration.record_outcome(found, 3000)
    assert (len(calibration.past_errors), calibration.levels_by_class) == (300, [list(LEVELS)] * 10)


def test_burst_of_one_user_hardly_affects_calibration():
    """A burst of late starts counts as two outcomes, so bob's forecast hardly changes."""
    calibration = uniform(9, 0.8, 1.2)
    before, now_s = told(calibration, 3000, user="bob"), 10_000_000
    burst = told(calibration, now_s + 3000, now_s, user="ada")
    for _ in range(1000):
        calibration.record_outcome(burst, now_s + 100_000)
    assert len(calibration.past_errors) == 402
    assert abs(told(calibration, 3000, user="bob").median_s - before.median_s) < 200
    calibration.record_outcome(told(calibration, now_s + 3000, now_s, user="bob"), now_s + 100_000)
    assert len(calibration.past_errors) == 403


def test_burst_is_limited_when_starts_are_out_of_order():
    """After a restart, the bridge reads the starts of several hours in the order of job ids."""
    calibration = uniform(9, 0.8, 1.2)
    burst = told(calibration, 10_003_000, 10_000_000, user="ada")
    for at in range(1000):
        calibration.record_outcome(burst, 10_100_000 + 3600 * (at % 2))
    assert len(calibration.past_errors) == 404
    calibration.record_outcome(burst, 10**12)
    calibration.record_outcome(burst, 10_200_000)
    assert len(calibration.past_errors) == 406, "a start in the far future must not end the counting of later hours"


@pytest.mark.parametrize(("walltimes_s", "known"), [((3600, 3600), 402), ((3600, 7200), 404)])
def test_burst_without_user_is_of_equal_jobs(walltimes_s, known):
    calibration = uniform(9, 0.8, 1.2)
    for walltime_s in walltimes_s:
        burst = told(calibration, 3000, user="", walltime_s=walltime_s)
        for _ in range(10):
            calibration.record_outcome(burst, 10_000_000)
    assert len(calibration.past_errors) == known


def test_all_outcomes_count_while_few_are_known():
    """Otherwise, forecasts for a few users would be calibrated late."""
    calibration = StartCalibrator()
    for _ in range(500):
        calibration.record_outcome(told(calibration, 3000), 4000)
    assert len(calibration.past_errors) == 400


def test_waiting_jobs_count_as_censored_outcomes():
    """All known jobs waited at most 1.5 times as long as drawn. Of 30 alike, none has started after 1.2 times."""
    calibration = uniform(12, 0.5, 1.5)
    before, now_s = told(calibration, 3000), 10_000_000
    calibration.observe_waiting(now_s + 3600, [told(calibration, now_s + 3000, now_s, submit_s=now_s)] * 30)
    after = told(calibration, 3000)
    assert after.median_s > before.median_s + 300
    assert list(after.quantiles_s) == sorted(after.quantiles_s)
    calibration.observe_waiting(now_s + 4000, [])
    assert told(calibration, 3000) == before


def test_longest_waits_are_kept_beyond_bound():
    """The 30 longest waits of 4,030 count, wherever their jobs are in the queue."""
    calibration = uniform(12, 0.5, 1.5)
    before, now_s = told(calibration, 3000), 10_000_000
    early = [told(calibration, now_s + 3000, now_s, submit_s=now_s)] * 30
    recent = [told(calibration, now_s + 6500, now_s + 3500, submit_s=now_s + 3500)] * 4000
    for waiting in (early + recent, recent + early):
        calibration.observe_waiting(now_s + 3600, waiting)
        assert told(calibration, 3000).median_s > before.median_s + 300


def test_pinball_loss_of_one_estimate_is_half_its_error():
    assert pinball_loss_s((100,) * 9, 300) == pinball_loss_s((500,) * 9, 300) == pytest.approx(100)
    assert told(StartCalibrator(), 3600).pinball_s(3600) < 3600


def test_computes_interval_features():
    """Middle wait, spread, area, walltime, time in the queue, and planned wait: logarithms, waits a minute longer."""
    drawn_s = np.array([[1100], [1200], [1300], [1400], [1500]])
    job = a_job(1, 3, 2, 500, 400)
    (found,) = StartCalibrator().forecast(1000, [job], [1250], drawn_s, [True])
    assert np.exp(found.features) == pytest.approx([360, 520 / 200, 3000, 500, 660, 310])


@pytest.mark.parametrize(
    ("wait_s", "horizon"),
    [(600, 0), (601, 1), (3600, 1), (3601, 2), (21600, 2), (21601, 3), (86400, 3), (86401, 4)],
)  # fmt: skip
def test_horizon_includes_its_last_second(wait_s, horizon):
    assert told(StartCalibrator(), wait_s).horizon_class == horizon


@pytest.mark.parametrize("levels", [[LEVELS] * 9, [LEVELS[1:]] * 10, [(-0.21, *LEVELS[1:])] * 10])
def test_rejects_invalid_levels(levels):
    assert StartCalibrator.from_memory([], [LEVELS] * 10, 0).past_errors == []
    with pytest.raises(InvalidValue, match="levels"):
        StartCalibrator.from_memory([], levels, 0)
