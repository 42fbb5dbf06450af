import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched_sim.workloads.lublin_generator import generate_lublin_records
from cpsched_sim.workloads.walltime_estimates import MAX_ESTIMATE_S, draw_walltime_estimates_s, popularity_by_rank


@pytest.fixture(scope="module")
def pair():
    records = generate_lublin_records(30_000, 4)
    return np.array([record.run_s for record in records]), np.array([record.walltime_s for record in records])


def test_twenty_values_cover_89_percent_with_longest_first(pair):
    _, walltimes_s = pair
    values, counts = np.unique(walltimes_s, return_counts=True)
    assert np.sort(counts)[-20:].sum() / len(walltimes_s) == pytest.approx(0.89, abs=0.005)
    assert values[counts.argmax()] == values.max() == MAX_ESTIMATE_S
    assert counts.max() / len(walltimes_s) == pytest.approx(0.2175, abs=0.005)


def test_number_of_values_is_as_published(pair):
    _, walltimes_s = pair
    assert len(np.unique(walltimes_s)) == pytest.approx(0.653566 * 30_000**0.547761, rel=0.05)


def test_popularity_decreases_with_rank_and_sums_to_1():
    shares = popularity_by_rank(185)
    assert shares.sum() == pytest.approx(1)
    assert shares[:20].sum() == pytest.approx(0.89)
    assert (np.diff(shares) < 0).all()
    assert shares[1] == pytest.approx((14.0491 * np.exp(-0.355062) + 0.462513) / 100)


def test_runs_end_within_round_estimates(pair):
    runs_s, walltimes_s = pair
    assert (runs_s <= walltimes_s).all()
    assert (walltimes_s % 300 == 0).all()


def test_assigns_all_estimates_of_distribution(pair):
    """A job without a long enough estimate would make the longest one more popular than its share."""
    _, walltimes_s = pair
    assert (walltimes_s == MAX_ESTIMATE_S).sum() <= round(popularity_by_rank(185)[0] * 30_000) + 1


def test_long_runs_get_longest_estimate():
    runs_s = np.full(100, 170_000)
    assert (draw_walltime_estimates_s(np.random.default_rng(0), runs_s) == MAX_ESTIMATE_S).all()


def test_short_walltimes_have_finer_values():
    runs_s = np.random.default_rng(0).integers(1, 3000, 2000)
    found = draw_walltime_estimates_s(np.random.default_rng(1), runs_s, 3600)
    assert found.max() == 3600
    assert (found % 60 == 0).all()
    assert (found % 300 != 0).any()
    assert (found >= runs_s).all()


@pytest.mark.parametrize(("run_s", "longest_s"), [(10, 3599), (7201, 7200)])
def test_rejects_invalid_run_times(run_s, longest_s):
    with pytest.raises(InvalidValue):
        draw_walltime_estimates_s(np.random.default_rng(0), np.array([run_s]), longest_s)
