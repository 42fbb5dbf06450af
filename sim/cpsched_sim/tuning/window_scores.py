"""Score replayed windows: metrics, and intervals for ratios of two settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np

from cpsched.goal_presets import Goal, ratios_to_baseline
from cpsched.metrics import FloatArray, ScheduleData
from cpsched_sim.experiments.bootstrap_statistics import bootstrap_interval, draw_resample_counts


@dataclass(frozen=True, slots=True)
class WindowMetricSums:
    """Sums over a window's judged jobs, float64.

    Metrics over several windows are computed from these sums.
    """

    jobs: float
    wait_s: float
    slowdown: float
    response_s: float
    area: float
    area_response: float
    upper: float
    lower: float
    longest_s: float

    @classmethod
    def of(cls, measures: ScheduleData, from_s: int, to_s: int) -> WindowMetricSums:
        """Compute the sums over jobs that arrived in [`from_s`, `to_s`)."""
        judged = (measures.submit_s >= from_s) & (measures.submit_s < to_s)
        F, W, r = measures.response_s[judged], measures.wait_s[judged], measures.processors[judged].astype(np.float64)
        area = r * measures.run_s[judged]
        return cls(
            float(judged.sum()), float(W.sum()), float(measures.bounded_slowdown[judged].sum()), float(F.sum()),
            float(area.sum()), float((area * F).sum()), float((r * (F**4 - W**4)).sum()),
            float((r * (F**3 - W**3)).sum()), float(W.max(initial=0.0)),
        )  # fmt: skip


def goal_metric_values(tallies: Sequence[WindowMetricSums]) -> dict[str, float]:
    """Return the metrics in `goal_presets.GOAL_METRICS` over all jobs of the windows."""
    rows = _sums_by_window(tallies)
    found = _metrics_from_sums(rows[:, :-1].sum(axis=0), rows[:, -1].max())
    return {name: float(value) for name, value in found.items()}


def _sums_by_window(tallies: Sequence[WindowMetricSums]) -> FloatArray:
    """Return the sums as float64[windows, sums]."""
    return np.array([astuple(tally) for tally in tallies])


def _resample_metrics(tallies: Sequence[WindowMetricSums]) -> dict[str, FloatArray]:
    """Return the metrics for each bootstrap draw of windows."""
    rows, weights = _sums_by_window(tallies), draw_resample_counts(len(tallies))
    return _metrics_from_sums(weights @ rows[:, :-1], np.where(weights > 0, rows[:, -1], 0.0).max(axis=1))


def _metrics_from_sums(sums: FloatArray, longest_s: FloatArray) -> dict[str, FloatArray]:
    """Return the metrics from sums, float64[..., sums], and the longest waits."""
    jobs, wait_s, slowdown, response_s, area, area_response, upper, lower = np.moveaxis(sums, -1, 0)
    return {
        "mean_wait": wait_s / jobs,
        "bsld": slowdown / jobs,
        "af": response_s / jobs,
        "awf": area_response / area,
        "p2sf": 0.75 * upper / lower,
        "longest": longest_s,
    }


def mean_metric_sums(tallies: Sequence[WindowMetricSums]) -> WindowMetricSums:
    """Return the mean over replays of one window with different seeds."""
    return WindowMetricSums(*_sums_by_window(tallies).mean(axis=0).tolist())


class RatioEstimate(NamedTuple):
    """A ratio with its confidence interval."""

    ratio: float
    low: float
    high: float


def paired_ratios(
    goal: Goal, these: Sequence[WindowMetricSums], those: Sequence[WindowMetricSums]
) -> dict[str, RatioEstimate]:
    """Return the `score` and each metric of one setting as ratios to another's.

    Both settings were replayed on the same windows.

    The intervals are bootstrap intervals: windows are drawn with replacement, the same for both settings. With fewer
    than two windows, the interval is unbounded.
    """
    centre = _add_score(goal, ratios_to_baseline(goal_metric_values(these), goal_metric_values(those)))
    if len(these) < 2:
        return {name: RatioEstimate(ratio, 0.0, math.inf) for name, ratio in centre.items()}
    resampled = _add_score(goal, ratios_to_baseline(_resample_metrics(these), _resample_metrics(those)))
    ends = {name: bootstrap_interval(draws, len(these)) or (0.0, math.inf) for name, draws in resampled.items()}
    return {name: RatioEstimate(ratio, *ends[name]) for name, ratio in centre.items()}


def _add_score(goal: Goal, found: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios, with the goal's score added."""
    total = sum(goal.weights.values())
    score = np.exp(sum(weight * np.log(found[name]) for name, weight in goal.weights.items()) / total)
    return {"score": score, **found}


def scores_by_window(goal: Goal, these: Sequence[WindowMetricSums], those: Sequence[WindowMetricSums]) -> list[float]:
    """Return the score of `these` relative to `those` for each window."""
    return [
        goal.score(ratios_to_baseline(goal_metric_values([a]), goal_metric_values([b])))
        for a, b in zip(these, those, strict=True)
    ]


Progress = Callable[[float, int], None]
"""A callback that receives the number of finished replays and the total number of replays."""
