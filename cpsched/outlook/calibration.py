"""What became of earlier intervals: how much wider, or later, those of now must be to hold as often as they say.

Drawn starts know how run times vary. They do not know what will be submitted, and whom the dispatcher will then put
first. So a job is told the middle of its drawn waits times what such middles came to: the ratio of real to told wait,
at two quantiles of those told starts that were most like this one (split conformal prediction, made local). The two
quantiles move with what comes true: an interval that fails moves its side outward, one that holds a little inward
(adaptive conformal inference, Gibbs and Candes, NeurIPS 2021). In the long run 8 in 10 hold, whatever users submit.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cpsched.model import IntArray, Job

HOLDS = 0.8
"""The share of intervals that are to hold."""
HORIZONS_S = (900, 3600, 21600, 86400)
"""How far ahead starts are told: up to 15 min, an hour, six hours, a day, or later. Each has quantiles of its own."""
TOLD_EVERY_S = 3600
"""A job that waits is told an interval, to be learned from, when it is first seen, and so often afterwards."""
_TAIL = (1 - HOLDS) / 2
_FLOOR_S = 60
"""Waits are compared as if all were a minute longer: seconds do not matter."""
_REMEMBERS = 2000
"""Told starts that are kept."""
_ENOUGH = 30
"""Told starts that must have come true before any quantile is taken."""
_NEAREST = 120
"""Told starts, most like the one in question, that its quantiles are taken of."""
_UNLIKE = (1.0, 0.5, 0.3, 0.3, 0.3, 0.5)
"""What a difference of one in each logarithm of `Told.features` counts."""
_STEP = 0.005
"""How far a quantile moves with each start."""
_BEYOND, _STEEP = 0.2, 5.0
"""A quantile may move from a half to so far beyond all that is known; there a logarithm of the ratio grows so fast."""
_FIRST = (math.log(0.25), math.log(4.0))
"""Logarithms of the ratios where nothing is known."""

Features = tuple[float, ...]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """When a job is expected to start, in seconds of the cluster's clock, both ends included."""

    told_at_s: int
    from_s: int
    to_s: int
    middle_s: int
    """The middle of the drawn starts."""
    calibrated: bool
    """Whether enough told starts have come true."""
    features: Features = field(repr=False)
    """What makes told starts alike."""

    @property
    def horizon(self) -> int:
        """Which of the horizons it belongs to, from 0."""
        wait_s = self.middle_s - self.told_at_s
        return sum(wait_s > most_s for most_s in HORIZONS_S)


@dataclass(slots=True)
class Calibration:
    """Makes intervals out of drawn starts, and learns from the real ones."""

    _known: deque[tuple[Features, float]] = field(default_factory=lambda: deque(maxlen=_REMEMBERS))
    _below: list[float] = field(default_factory=lambda: [_TAIL] * (len(HORIZONS_S) + 1))
    """The quantile of the lower end, by horizon; it moves."""
    _above: list[float] = field(default_factory=lambda: [1 - _TAIL] * (len(HORIZONS_S) + 1))
    _columns: tuple[FloatArray, FloatArray] | None = None

    def intervals(self, now_s: int, jobs: Sequence[Job], plan_s: Sequence[int], drawn_s: IntArray) -> list[Interval]:
        """The interval of each job: `plan_s` are their planned starts, `drawn_s` int64[draws, J] the drawn ones."""
        if not jobs:
            return []
        low, middle, high = np.quantile(drawn_s, (0.1, 0.5, 0.9), axis=0)
        return [
            self._interval(now_s, round(middle[j]), _features(now_s, job, plan_s[j], low[j], middle[j], high[j]))
            for j, job in enumerate(jobs)
        ]

    def _interval(self, now_s: int, middle_s: int, features: Features) -> Interval:
        bare = Interval(now_s, now_s, now_s, middle_s, len(self._known) >= _ENOUGH, features)
        ends = self._ends(features, bare.horizon) if bare.calibrated else _FIRST
        wait_s = max(0, middle_s - now_s) + _FLOOR_S
        from_s, to_s = (max(0.0, wait_s * math.exp(min(end, 20.0)) - _FLOOR_S) for end in ends)
        return Interval(now_s, now_s + math.floor(from_s), now_s + math.ceil(to_s), middle_s, bare.calibrated, features)

    def _ends(self, features: Features, horizon: int) -> tuple[float, float]:
        """Logarithms of the ratios that the ends of an interval are made with."""
        if self._columns is None:
            self._columns = (np.array([each for each, _ in self._known]), np.array([ratio for _, ratio in self._known]))
        columns, ratios = self._columns
        unlike = np.abs(columns - np.array(features)) @ np.array(_UNLIKE)
        near = ratios if len(ratios) <= _NEAREST else ratios[np.argpartition(unlike, _NEAREST)[:_NEAREST]]
        below, above = self._below[horizon], self._above[horizon]
        low, high = np.quantile(near, (max(below, 0.0), min(above, 1.0)))
        return float(low) + _STEEP * min(below, 0.0), float(high) + _STEEP * max(above - 1.0, 0.0)

    def came_true(self, told: Interval, start_s: int) -> None:
        """Learn that a job which was told `told` started at `start_s`."""
        told_s, wait_s = max(0, told.middle_s - told.told_at_s), max(0, start_s - told.told_at_s)
        self._known.append((told.features, math.log((wait_s + _FLOOR_S) / (told_s + _FLOOR_S))))
        self._columns = None
        at = told.horizon
        below = self._below[at] + _STEP * (_TAIL - (start_s < told.from_s))
        above = self._above[at] - _STEP * (_TAIL - (start_s > told.to_s))
        self._below[at], self._above[at] = min(max(below, -_BEYOND), 0.5), max(min(above, 1 + _BEYOND), 0.5)


def _features(now_s: int, job: Job, plan_s: int, low: float, middle: float, high: float) -> Features:
    """Logarithms of: the middle wait, the spread of drawn waits, area, walltime, time in the queue, planned wait."""
    waits = [max(0.0, start_s - now_s) + _FLOOR_S for start_s in (low, middle, high, min(plan_s, now_s + 10**8))]
    area = max(1, job.request.units * job.request.per_unit[0]) * job.walltime_s
    given = (waits[1], waits[2] / waits[0], area, job.walltime_s, max(0, now_s - job.submit_s) + _FLOOR_S, waits[3])
    return tuple(math.log(each) for each in given)
