import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched_sim.workloads.lublin import lublin
from cpsched_sim.workloads.walltime_estimates import LONGEST_S, estimates_s, popularity


@pytest.fixture(scope="module")
def pair():
    records = lublin(30_000, 4)
    return np.array([record.run_s for record in records]), np.array([record.walltime_s for record in records])


def test_twenty_values_cover_89_percent_and_the_longest_leads(pair):
    _, walltimes_s = pair
    values, counts = np.unique(walltimes_s, return_counts=True)
    assert np.sort(counts)[-20:].sum() / len(walltimes_s) == pytest.approx(0.89, abs=0.005)
    assert values[counts.argmax()] == values.max() == LONGEST_S
    assert counts.max() / len(walltimes_s) == pytest.approx(0.2175, abs=0.005)


def test_there_are_about_as_many_values_as_published(pair):
    _, walltimes_s = pair
    assert len(np.unique(walltimes_s)) == pytest.approx(0.653566 * 30_000**0.547761, rel=0.05)


def test_popularity_falls_with_the_rank_and_sums_to_one():
    shares = popularity(185)
    assert shares.sum() == pytest.approx(1)
    assert shares[:20].sum() == pytest.approx(0.89)
    assert (np.diff(shares) < 0).all()
    assert shares[1] == pytest.approx((14.0491 * np.exp(-0.355062) + 0.462513) / 100)


def test_no_run_outlives_its_estimate_and_values_are_round(pair):
    runs_s, walltimes_s = pair
    assert (runs_s <= walltimes_s).all()
    assert (walltimes_s % 300 == 0).all()


def test_all_estimates_of_the_distribution_are_handed_out(pair):
    """A job without a long enough estimate would make the longest one more popular than its share."""
    _, walltimes_s = pair
    assert (walltimes_s == LONGEST_S).sum() <= round(popularity(185)[0] * 30_000) + 1


def test_where_runs_are_longer_than_most_estimates_the_longest_stands_in():
    runs_s = np.full(100, 170_000)
    assert (estimates_s(np.random.default_rng(0), runs_s) == LONGEST_S).all()


def test_short_machines_have_finer_values():
    runs_s = np.random.default_rng(0).integers(1, 3000, 2000)
    found = estimates_s(np.random.default_rng(1), runs_s, 3600)
    assert found.max() == 3600
    assert (found % 60 == 0).all()
    assert (found % 300 != 0).any()
    assert (found >= runs_s).all()


@pytest.mark.parametrize(("run_s", "longest_s"), [(10, 3599), (7201, 7200)])
def test_what_cannot_be_estimated_is_refused(run_s, longest_s):
    with pytest.raises(InvalidValue):
        estimates_s(np.random.default_rng(0), np.array([run_s]), longest_s)
