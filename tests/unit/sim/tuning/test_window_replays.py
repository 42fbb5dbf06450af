"""Metrics over windows are computed over all their jobs, and intervals contain the true value."""

import math

import numpy as np
import pytest

from cpsched.goal_presets import Goal
from cpsched.metrics import ScheduleData
from cpsched_sim.tuning.window_replays import (
    WindowMetricSums,
    goal_metric_values,
    mean_metric_sums,
    paired_ratios,
    scores_by_window,
)


def measures(seed, jobs=60, slower=1.0):
    draw = np.random.default_rng(seed)
    submit_s = np.sort(draw.integers(0, 10_000, jobs))
    wait_s = (draw.exponential(500, jobs) * slower).astype(np.int64)
    run_s = draw.integers(1, 3000, jobs)
    return ScheduleData(submit_s, submit_s + wait_s, submit_s + wait_s + run_s, draw.integers(1, 9, jobs))


def test_window_figures_equal_those_of_all_jobs():
    whole = measures(1)
    parts = [WindowMetricSums.of(whole, begin, begin + 2500) for begin in range(0, 10_000, 2500)]
    found = goal_metric_values(parts)
    assert (found["mean_wait"], found["longest"]) == (pytest.approx(whole.wait_s.mean()), whole.wait_s.max())
    for name in ("bsld", "af", "awf", "p2sf"):
        assert found[name] == pytest.approx(getattr(whole, name))


def test_computes_sums_of_window():
    """A job that arrives as the window begins is judged, one that arrives as it ends is not."""
    submit_s, wait_s, run_s, cores = np.array([[9, 10, 19, 20], [1, 5, 30, 1], [1, 20, 10, 1], [1, 2, 3, 1]])
    whole = ScheduleData(submit_s, submit_s + wait_s, submit_s + wait_s + run_s, cores)
    slowdown = float(whole.bounded_slowdown[1:3].sum())
    upper = 2 * (25**4 - 5**4) + 3 * (40**4 - 30**4)
    lower = 2 * (25**3 - 5**3) + 3 * (40**3 - 30**3)
    area = 2 * 20 + 3 * 10
    expected = WindowMetricSums(2, 35, slowdown, 65, area, 40 * 25 + 30 * 40, upper, lower, 30)
    assert WindowMetricSums.of(whole, 10, 20) == expected


def test_several_seeds_count_as_their_mean():
    one, two = WindowMetricSums.of(measures(1), 0, 10_000), WindowMetricSums.of(measures(1, slower=3), 0, 10_000)
    assert mean_metric_sums([one, two]).wait_s == (one.wait_s + two.wait_s) / 2


def tallies(seeds, slower=1.0):
    return [WindowMetricSums.of(measures(seed, slower=slower), 0, 10_000) for seed in seeds]


def test_equal_sides_have_no_difference():
    these = tallies(range(6))
    assert all(tuple(each) == (1.0, 1.0, 1.0) for each in paired_ratios(Goal.of("waits"), these, these).values())
    assert scores_by_window(Goal.of("waits"), these, these) == [1.0] * 6


def test_paired_windows_show_consistent_gain():
    found = paired_ratios(Goal.of({"mean_wait": 1}), tallies(range(6), 0.5), tallies(range(6)))
    assert found["score"].ratio == pytest.approx(0.5, abs=0.01)
    assert 0.49 < found["score"].low < found["score"].high < 0.51


def test_one_window_gives_no_finite_interval():
    found = paired_ratios(Goal.of("waits"), tallies([1], 0.5), tallies([1]))
    assert (found["score"].low, found["score"].high) == (0.0, math.inf)
