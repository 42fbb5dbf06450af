"""Intervals contain the true value about as often as they state."""

from itertools import combinations

import numpy as np
import pytest

from cpsched_sim.experiments.bootstrap_statistics import (
    BOOTSTRAP_DRAWS,
    bootstrap_interval,
    draw_resample_counts,
    margins_of_error,
    mean_interval,
)


def test_draws_have_equal_size_and_are_reproducible():
    weights = draw_resample_counts(5)
    assert (weights.shape, set(weights.sum(axis=1))) == ((BOOTSTRAP_DRAWS, 5), {5.0})
    draw_resample_counts.cache_clear()
    assert np.array_equal(weights, draw_resample_counts(5))
    assert not np.array_equal(weights, draw_resample_counts(5, seed=1))


@pytest.mark.parametrize(
    ("units", "low"), [(2, 0.0), (3, 6.8e-8), (4, 1.194e-4), (8, 5.729e-3), (16, 0.01388), (17, 0.01962), (41, 0.02145)]
)
def test_intervals_of_few_units_are_wider(units, low):
    """They end at the expanded percentiles: Student's t at 0.975, wider by the root of n / (n - 1)."""
    assert bootstrap_interval(np.arange(1001.0), units) == pytest.approx(
        (1000 * low, 1000 * (1 - low)), rel=0.01, abs=1e-4
    )


def test_interval_skips_draws_without_value_and_needs_two_units():
    assert bootstrap_interval(np.array([np.nan, 7.0, np.inf, 7.0]), 5) == (7.0, 7.0)
    assert bootstrap_interval(np.array([np.nan]), 5) is None
    assert bootstrap_interval(np.array([7.0]), 1) is None


@pytest.mark.parametrize("units", [6, 12])
def test_intervals_have_stated_coverage(units):
    draw, held = np.random.default_rng(units), np.zeros(2)
    for _ in range(400):
        sample = draw.normal(size=units)
        low, high = bootstrap_interval(draw_resample_counts(units) @ sample / units, units)
        held += low <= 0 <= high, abs(sample.mean()) <= margins_of_error([sample])[0]
    assert (held / 400 > 0.91).all()
    assert (held / 400 < 0.99).all()


def test_margins_hold_simultaneously():
    """Of four equal policies, none of the six differences is significant in 95 of 100 studies."""
    draw, wrong = np.random.default_rng(1), 0
    for _ in range(200):
        figures = draw.normal(size=(4, 10))
        samples = [one - other for one, other in combinations(figures, 2)]
        wrong += any(
            abs(sample.mean()) > margin for sample, margin in zip(samples, margins_of_error(samples), strict=True)
        )
    assert wrong <= 16


def test_margin_of_one_sample_equals_bootstrap():
    """By hand: a factor of the standard error that 95 of 100 studentized draws stay below."""
    sample = np.array([0.1, 0.4, 0.2, 0.7, 0.3, 0.5])
    draws = np.random.default_rng(0).multinomial(6, np.full(6, 1 / 6), size=BOOTSTRAP_DRAWS)
    units = [np.repeat(sample, counts) for counts in draws]
    off = [abs(each.mean() - sample.mean()) / (each.std(ddof=1) / 6**0.5 or np.inf) for each in units]
    expected = np.quantile(off, 0.95) * sample.std(ddof=1) / 6**0.5
    assert margins_of_error([sample])[0] == pytest.approx(expected, rel=0.02)


def test_few_units_have_no_margin_unless_equal():
    assert margins_of_error([np.array([1.0]), np.array([1.0, 2.0])]) == [np.inf, np.inf]
    assert margins_of_error([np.array([0.5, 0.5])]) == [0.0]


def test_interval_of_mean_is_students():
    """The quantile for two degrees of freedom is 4.303."""
    assert mean_interval([1.0, 2.0, 6.0]) == pytest.approx((3 - 4.303 * (7 / 3) ** 0.5, 3 + 4.303 * (7 / 3) ** 0.5))
    assert mean_interval([1.0]) is None
