"""What replayed windows are worth: figures of all windows together, and intervals of how two settings differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from cpsched.goals import Goal, ratios
from cpsched.metrics import FloatArray, Measures

RESAMPLES = 2000
HELD = 0.95
"""What share of intervals is to hold what they are of."""
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Quantiles of Student's t at 0.975, by degrees of freedom from 1."""


@dataclass(frozen=True, slots=True)
class FigureSums:
    """Sums over the judged jobs of a window, float64; figures of several windows are made of their sums."""

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
    def of(cls, measures: Measures, from_s: int, to_s: int) -> FigureSums:
        """The sums over jobs that arrived from `from_s` on and before `to_s`."""
        judged = (measures.submit_s >= from_s) & (measures.submit_s < to_s)
        F, W, r = measures.response_s[judged], measures.wait_s[judged], measures.processors[judged].astype(np.float64)
        area = r * measures.run_s[judged]
        return cls(
            float(judged.sum()), float(W.sum()), float(measures.bounded_slowdown[judged].sum()), float(F.sum()),
            float(area.sum()), float((area * F).sum()), float((r * (F**4 - W**4)).sum()),
            float((r * (F**3 - W**3)).sum()), float(W.max(initial=0.0)),
        )  # fmt: skip


def figures(tallies: Sequence[FigureSums]) -> dict[str, float]:
    """The figures of `cpsched.goals.FIGURES`, over all jobs of these windows."""
    return {name: float(value) for name, value in _figures(_rows(tallies)).items()}


def _rows(tallies: Sequence[FigureSums]) -> FloatArray:
    """The tallies as float64[windows, sums]."""
    return np.array([astuple(tally) for tally in tallies])


def _figures(rows: FloatArray) -> dict[str, FloatArray]:
    """Figures of float64[..., windows, sums], each float64[...]."""
    jobs, wait_s, slowdown, response_s, area, area_response, upper, lower = np.moveaxis(rows[..., :-1].sum(-2), -1, 0)
    return {
        "mean_wait": wait_s / jobs,
        "bsld": slowdown / jobs,
        "af": response_s / jobs,
        "awf": area_response / area,
        "p2sf": 0.75 * upper / lower,
        "longest": rows[..., -1].max(-1),
    }


def mean_of(tallies: Sequence[FigureSums]) -> FigureSums:
    """The mean over replays of one window with several seeds."""
    return FigureSums(*_rows(tallies).mean(axis=0).tolist())


class Estimate(NamedTuple):
    """A ratio, with the ends of its interval."""

    ratio: float
    low: float
    high: float


def paired(goal: Goal, these: Sequence[FigureSums], those: Sequence[FigureSums]) -> dict[str, Estimate]:
    """The `score` of these windows against the same windows of another setting, and each figure as a ratio.

    Intervals are by the bootstrap: windows are drawn with replacement, the same ones for both settings. Their ends are
    the expanded percentiles of Hesterberg 2015 (The American Statistician 69:371-386, section 5.3), since a handful of
    windows varies less than what it was drawn from. With fewer than two windows the interval is all there is.
    """

    mine, others = _rows(these), _rows(those)
    centre = _scored(goal, ratios(figures(these), figures(those)))
    if len(these) < 2:
        return {name: Estimate(ratio, 0.0, math.inf) for name, ratio in centre.items()}
    drawn = np.random.default_rng(0).integers(len(these), size=(RESAMPLES, len(these)))
    resampled = _scored(goal, ratios(_figures(mine[drawn]), _figures(others[drawn])))
    ends = _ends(len(these))
    return {
        name: Estimate(ratio, *(float(np.quantile(resampled[name], end)) for end in ends))
        for name, ratio in centre.items()
    }


def _scored(goal: Goal, found: dict[str, Any]) -> dict[str, Any]:
    """Ratios, with the goal's score of them."""
    total = sum(goal.weights.values())
    score = np.exp(sum(weight * np.log(found[name]) for name, weight in goal.weights.items()) / total)
    return {"score": score, **found}


def _ends(windows: int) -> tuple[float, float]:
    """At which quantiles of the resampled values an interval ends."""
    freedom = windows - 1
    wide = math.sqrt(windows / freedom) * (_T[freedom - 1] if freedom <= len(_T) else 2.0)
    low = NormalDist().cdf(-wide)
    return low, 1 - low


def each_window(goal: Goal, these: Sequence[FigureSums], those: Sequence[FigureSums]) -> list[float]:
    """The score of each window by itself."""
    return [goal.score(ratios(figures([a]), figures([b]))) for a, b in zip(these, those, strict=True)]


Progress = Callable[[float, int], None]
"""Called with (replays done, replays in all)."""
