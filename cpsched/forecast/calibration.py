"""Calibrate start intervals with the outcomes of earlier ones, so that 8 in 10 contain the true start.

Sampled starts cover the variation of run times, but not later submissions and their priorities. Therefore, the median
sampled wait is multiplied by two quantiles of the ratio of true to predicted wait. The quantiles are taken over the
most similar earlier forecasts (split conformal prediction, made local). Each outcome also moves the quantiles. If an
interval misses the start, the missed end moves outward. If it contains the start, the ends move slightly inward
(adaptive conformal inference, Gibbs and Candes, NeurIPS 2021). In the long run, 8 in 10 intervals contain the start,
whatever users submit.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from cpsched.errors import require
from cpsched.model import IntArray, Job

COVERAGE = 0.8
"""Target share of intervals that contain the true start."""
HORIZONS_S = (900, 3600, 21600, 86400)
"""Upper bounds of the horizon classes: 15 min, an hour, six hours, a day; then later. Each has its own quantiles."""
_TAIL = (1 - COVERAGE) / 2
_FLOOR_S = 60
"""Seconds added to all waits before they are compared, so that differences of seconds do not matter."""
_REMEMBERS = 2000
"""Maximum number of stored outcomes."""
_ENOUGH = 30
"""Minimum number of outcomes before quantiles of outcomes are used."""
_NEAREST = 120
"""Number of most similar outcomes from which quantiles are taken."""
_UNLIKE = (1.0, 0.5, 0.3, 0.3, 0.3, 0.5)
"""Weight of a difference of one, for each logarithm in `StartTimeInterval.features`."""
_STEP = 0.005
"""Step by which an outcome moves a quantile."""
_BEYOND, _STEEP = 0.2, 5.0
"""How far a quantile may move beyond 0 or 1, and how steeply the logarithm of the ratio grows there."""
_MOST_LOG = 20.0
"""Maximum logarithm of a ratio."""
_FAR_S = 10**9
"""Maximum time from now to a sampled start, s."""
_AT_ONCE = 128
"""Number of intervals computed together, so that the distances stay in the processor's cache."""
_FIRST = (math.log(0.25), math.log(4.0))
"""Logarithms of the two ratios before any outcome is known."""

Outcome = Literal["held", "early", "late"]
INTERVAL_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""Outcomes of an interval: the true start is inside, before, or after it."""
Features = tuple[float, ...]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StartTimeInterval:
    """The interval in which a job is expected to start, in seconds of the cluster's clock, both ends included."""

    issued_at_s: int
    from_s: int
    to_s: int
    median_s: int
    """Median of the sampled starts."""
    calibrated: bool
    """Whether enough outcomes were known to calibrate the interval."""
    features: Features = field(repr=False)
    """The features that define the similarity of forecasts."""

    @property
    def horizon(self) -> int:
        """Index of the horizon class, from 0."""
        return int(_horizons(np.array([self.median_s - self.issued_at_s]))[0])

    def classify_outcome(self, start_s: int) -> Outcome:
        """Return the outcome for a job that started at `start_s`."""
        return "early" if start_s < self.from_s else "late" if start_s > self.to_s else "held"


@dataclass(slots=True)
class IntervalCalibrator:
    """Computes intervals from sampled starts, and learns from true starts."""

    _known: deque[tuple[Features, float]] = field(default_factory=lambda: deque(maxlen=_REMEMBERS))
    _below: list[float] = field(default_factory=lambda: [_TAIL] * (len(HORIZONS_S) + 1))
    """Quantiles of the lower end, by horizon class."""
    _above: list[float] = field(default_factory=lambda: [1 - _TAIL] * (len(HORIZONS_S) + 1))
    _columns: tuple[FloatArray, FloatArray] | None = None

    @property
    def past_errors(self) -> Sequence[tuple[Features, float]]:
        """Features of each recorded outcome, and the logarithm of true / predicted wait; oldest first."""
        return list(self._known)

    @property
    def lower_quantiles(self) -> list[float]:
        """Quantiles of the lower end, by horizon class."""
        return list(self._below)

    @property
    def upper_quantiles(self) -> list[float]:
        """Quantiles of the upper end, by horizon class."""
        return list(self._above)

    @classmethod
    def from_memory(
        cls, known: Sequence[tuple[Features, float]], below: Sequence[float], above: Sequence[float]
    ) -> IntervalCalibrator:
        """Restore a calibrator from its state; raise `InvalidValue` if the state is invalid."""
        found = cls()
        for features, _ in known:
            cls.require_features(features)
        for name, ends in (("below", below), ("above", above)):
            require(len(ends) == len(HORIZONS_S) + 1, name, ends, f"must have {len(HORIZONS_S) + 1} quantiles")
        require(all(-_BEYOND <= end <= 0.5 for end in below), "below", below, "must be quantiles of the lower end")
        require(all(0.5 <= end <= 1 + _BEYOND for end in above), "above", above, "must be quantiles of the upper end")
        found._known.extend(known)
        found._below, found._above = list(below), list(above)
        return found

    @staticmethod
    def require_features(features: Features) -> None:
        """Raise `InvalidValue` unless the number of features is right."""
        require(len(features) == len(_UNLIKE), "features", features, f"must have {len(_UNLIKE)} entries")

    def predict_intervals(
        self, now_s: int, jobs: Sequence[Job], plan_s: Sequence[int], drawn_s: IntArray
    ) -> list[StartTimeInterval]:
        """Return the interval of each job; `plan_s` are planned starts, `drawn_s` int64[draws, J] sampled starts."""
        if not jobs:
            return []
        low, middle, high = np.minimum(np.quantile(drawn_s, (0.1, 0.5, 0.9), axis=0), now_s + _FAR_S)
        features = [_features(now_s, job, plan_s[j], low[j], middle[j], high[j]) for j, job in enumerate(jobs)]
        calibrated = len(self._known) >= _ENOUGH
        wait_s = np.maximum(0, np.rint(middle).astype(np.int64) - now_s)
        ends = self._ends(np.array(features), _horizons(wait_s)) if calibrated else _FIRST
        from_s, to_s = (
            np.maximum(0.0, (wait_s + _FLOOR_S) * np.exp(np.minimum(end, _MOST_LOG)) - _FLOOR_S) for end in ends
        )
        rows = zip(np.floor(from_s).tolist(), np.ceil(to_s).tolist(), wait_s.tolist(), features, strict=True)
        return [
            StartTimeInterval(now_s, now_s + int(begin), now_s + int(end), now_s + wait, calibrated, known)
            for begin, end, wait, known in rows
        ]

    def _ends(self, features: FloatArray, horizons: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the logarithms of the ratios for the lower and upper ends of the intervals, float64[J] each.

        `features` float64[J, F] and `horizons` int64[J] describe the intervals.
        """
        if self._columns is None:
            self._columns = (np.array([each for each, _ in self._known]), np.array([ratio for _, ratio in self._known]))
        columns, ratios = self._columns
        below, above = np.array(self._below)[horizons], np.array(self._above)[horizons]
        low, high = np.empty(len(features)), np.empty(len(features))
        for first in range(0, len(features), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            near = _nearest(columns, ratios, features[part])
            low[part] = _quantiles(near, np.maximum(below[part], 0.0))
            high[part] = _quantiles(near, np.minimum(above[part], 1.0))
        return low + _STEEP * np.minimum(below, 0.0), high + _STEEP * np.maximum(above - 1.0, 0.0)

    def record_outcome(self, told: StartTimeInterval, start_s: int) -> None:
        """Record that the job with forecast `told` started at `start_s`."""
        told_s, wait_s = max(0, told.median_s - told.issued_at_s), max(0, start_s - told.issued_at_s)
        self._known.append((told.features, math.log((wait_s + _FLOOR_S) / (told_s + _FLOOR_S))))
        self._columns = None
        at = told.horizon
        below = self._below[at] + _STEP * (_TAIL - (start_s < told.from_s))
        above = self._above[at] - _STEP * (_TAIL - (start_s > told.to_s))
        self._below[at], self._above[at] = min(max(below, -_BEYOND), 0.5), max(min(above, 1 + _BEYOND), 0.5)


def _horizons(wait_s: IntArray) -> IntArray:
    """Return the horizon class, from 0, of each wait in seconds."""
    return np.searchsorted(HORIZONS_S, wait_s, side="left")


def _nearest(columns: FloatArray, ratios: FloatArray, features: FloatArray) -> FloatArray:
    """Return the ratios of the outcomes most similar to each row of `features`, ascending: float64[J, at most 120]."""
    if len(ratios) <= _NEAREST:
        return np.broadcast_to(np.sort(ratios), (len(features), len(ratios)))
    unlike = np.zeros((len(features), len(ratios)))
    for at, counts in enumerate(_UNLIKE):
        unlike += counts * np.abs(columns[:, at] - features[:, at, None])
    return np.sort(ratios[np.argpartition(unlike, _NEAREST, axis=1)[:, :_NEAREST]], axis=1)


def _quantiles(ascending: FloatArray, at: FloatArray) -> FloatArray:
    """Return the quantile `at` float64[J] of each row, by linear interpolation."""
    places = at * (ascending.shape[1] - 1)
    below = np.floor(places).astype(np.int64)
    rows, above = np.arange(len(ascending)), np.minimum(below + 1, ascending.shape[1] - 1)
    low, high = ascending[rows, below], ascending[rows, above]
    found: FloatArray = low + (places - below) * (high - low)
    return found


def _features(now_s: int, job: Job, plan_s: int, low: float, middle: float, high: float) -> Features:
    """Return the logarithms of median wait, spread of sampled waits, area, walltime, time in queue and planned wait."""
    waits = [max(0.0, start_s - now_s) + _FLOOR_S for start_s in (low, middle, high, min(plan_s, now_s + 10**8))]
    area = max(1, job.request.units * job.request.per_unit[0]) * job.walltime_s
    given = (waits[1], waits[2] / waits[0], area, job.walltime_s, max(0, now_s - job.submit_s) + _FLOOR_S, waits[3])
    return tuple(math.log(each) for each in given)
