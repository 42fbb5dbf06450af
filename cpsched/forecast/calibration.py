"""Calibrate start forecasts so that each quantile holds as often as stated.

Sampled starts cover the variation of run times, but not later submissions and their priorities. Therefore, the median
sampled wait is multiplied by quantiles of the ratio of true to sampled wait. The quantiles are taken over the most
similar earlier forecasts (localized split conformal prediction). Each outcome of a calibrated forecast also moves the
levels at which the quantiles are taken: a missed quantile moves outward, and the others move inward (adaptive conformal
inference, Gibbs and Candes, NeurIPS 2021). In the long run, each interval contains the start as often as stated,
whatever users submit.

A user reads the forecast at submission. Therefore, the first forecast of each job has levels of its own, and forecasts
count as calibrated only after enough first forecasts have had an outcome.

A job that still waits has a right-censored outcome: its wait is longer than now. Therefore, the quantiles of the ratios
follow Kaplan and Meier. Otherwise, the longest waits, which become known last, would be under-represented.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from cpsched.errors import require
from cpsched.model import BoolArray, IntArray, Job

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
"""Probabilities that a job starts no later than each of its quantiles."""
MEDIAN = LEVELS.index(0.5)
INTERVALS = {50: (LEVELS.index(0.25), LEVELS.index(0.75)), 80: (LEVELS.index(0.1), LEVELS.index(0.9)), 95: (0, -1)}
"""Positions in `LEVELS` of the two ends of each interval, by nominal coverage in percent."""
HORIZONS_S = (600, 3600, 21600, 86400)
"""Upper bounds of all horizon classes except the last: 10 min, 1 h, 6 h, 1 d. Each class has its own levels."""
FIRST_CLASS = len(HORIZONS_S) + 1
"""Index of the class of first forecasts, after the horizon classes of later forecasts."""
_ADDED_WAIT_S = 60
"""Seconds added to all waits before a comparison, so that differences of a few seconds do not matter."""
_MAX_OUTCOMES = 4000
"""Maximum number of stored outcomes."""
_MIN_OUTCOMES = 30
"""Minimum number of outcomes before quantiles of outcomes are used."""
MIN_FIRST_OUTCOMES = 100
"""Minimum number of outcomes of first forecasts before forecasts count as calibrated."""
_NEAREST_OUTCOMES = 60
"""Number of most similar outcomes from which quantiles are taken."""
_FEATURE_WEIGHTS = (1.0, 0.5, 0.3, 0.3, 0.3, 0.5)
"""Weight of a difference of one, for each logarithm in `StartForecast.features`."""
_LEVEL_STEP = 0.1
"""Step by which an outcome moves a level q, as a multiple of q (1 - q): the outermost levels move least."""
_MAX_PER_BURST = 2
"""Maximum number of outcomes to learn from per user, hour and horizon, because the outcomes of a burst are alike."""
_MAX_BURSTS = 10_000
"""Maximum number of bursts that are counted at a time. The oldest is dropped first."""
_MIN_OUTCOMES_FOR_LIMIT = 400
"""Minimum number of outcomes before bursts are limited, so that the first days of a site are learned quickly."""
_MAX_LEVEL_EXCESS, _EXCESS_SLOPE = 0.2, 1.0
"""Maximum excess of a level above 1 or below 0, and growth of the ratio's logarithm per unit of excess."""
_CENSORED_SLOPE = 2.0
"""Growth of the ratio's logarithm above the largest known ratio if longer waits are censored."""
_MAX_LOG_RATIO = 20.0
"""Maximum logarithm of a ratio."""
_MAX_HORIZON_S = 10**9
"""Maximum time from now to a sampled start, in seconds."""
_MAX_PLAN_HORIZON_S = 10**8
"""Maximum time from now to a planned start, in seconds."""
_BATCH_SIZE = 128
"""Number of forecasts computed together, so that the distances stay in the processor's cache."""
_INITIAL_LOG_RATIOS = math.log(4.0) * np.array((-1.53, -1.28, -1.0, -0.53, 0.0, 0.53, 1.0, 1.28, 1.53))
"""Logarithms of the ratios before any outcome is known: a normal distribution, 80 % within a factor of four."""

IntervalResult = Literal["covered", "early", "late"]
INTERVAL_OUTCOMES: tuple[IntervalResult, ...] = get_args(IntervalResult)
"""Outcomes of an interval: the true start is inside, before, or after it."""
Features = tuple[float, ...]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StartForecast:
    """The forecast start of a job, in seconds on the cluster's clock."""

    issued_at_s: int
    quantiles_s: tuple[int, ...]
    """One start per level in `LEVELS`, ascending."""
    calibrated: bool
    """Whether enough first forecasts had an outcome to call the forecast calibrated."""
    learned: bool = field(repr=False)
    """Whether the quantiles were taken over outcomes, at the calibrator's levels."""
    first: bool
    """Whether it is the job's first forecast, which the user reads at submission."""
    user: str = field(repr=False)
    features: Features = field(repr=False)
    """The features that define the similarity of forecasts."""

    @property
    def median_s(self) -> int:
        """The median: the job is equally likely to start before or after it."""
        return self.quantiles_s[MEDIAN]

    @property
    def from_s(self) -> int:
        """Start of the 80 % interval, inclusive."""
        return self.interval(80)[0]

    @property
    def to_s(self) -> int:
        """End of the 80 % interval, inclusive."""
        return self.interval(80)[1]

    def at(self, now_s: int) -> StartForecast | None:
        """Return the forecast of a job that still waits at `now_s`: no quantile is in the past.

        Return None if the 80 % interval is over, until the job gets a new forecast.
        """
        if self.to_s < now_s:
            return None
        return replace(self, quantiles_s=tuple(max(now_s, each_s) for each_s in self.quantiles_s))

    @property
    def published_quantiles_s(self) -> list[int]:
        """The 5, 10, 25, 50, 75, 90 and 95 % quantiles."""
        return list(self.quantiles_s[1:-1])

    def interval(self, percent: int) -> tuple[int, int]:
        """Return both ends of the interval with coverage `percent`, a key of `INTERVALS`."""
        low, high = INTERVALS[percent]
        return self.quantiles_s[low], self.quantiles_s[high]

    @property
    def horizon_class(self) -> int:
        """Index of the horizon class, from 0."""
        return int(_horizon_classes(np.array([self.median_s - self.issued_at_s]))[0])

    @property
    def outcome_class(self) -> int:
        """Index of the class in which the outcome is counted: `FIRST_CLASS`, or a later forecast's horizon class."""
        return FIRST_CLASS if self.first else self.horizon_class

    def classify_outcome(self, start_s: int) -> IntervalResult:
        """Return whether a start is before, after or within the 80 % interval."""
        return "early" if start_s < self.from_s else "late" if start_s > self.to_s else "covered"

    def pinball_s(self, start_s: int) -> float:
        """Return the mean pinball loss in seconds of the 5 to 95 % quantiles."""
        return pinball_loss_s(self.quantiles_s, start_s)


def pinball_loss_s(quantiles_s: Sequence[int], start_s: int) -> float:
    """Return the mean pinball loss in seconds, without the two outermost quantiles."""
    pairs = list(zip(LEVELS, quantiles_s, strict=True))[1:-1]
    return sum(max(at * (start_s - told_s), (at - 1) * (start_s - told_s)) for at, told_s in pairs) / len(pairs)


def select_one_per_class(forecasts: Iterable[StartForecast]) -> list[StartForecast]:
    """Return a job's oldest forecast of each class, so that a job that waits for long does not count more."""
    found: dict[int, StartForecast] = {}
    for forecast in forecasts:
        found.setdefault(forecast.outcome_class, forecast)
    return list(found.values())


def _nominal_levels() -> list[list[float]]:
    return [list(LEVELS) for _ in range(2 * (len(HORIZONS_S) + 1))]


def _level_row(horizon_class: int, first: bool) -> int:
    """Return the index of the levels that a forecast uses: by horizon, those of later and then of first forecasts."""
    return horizon_class + (len(HORIZONS_S) + 1 if first else 0)


@dataclass(slots=True, eq=False)
class StartCalibrator:
    """Computes start-time quantiles from sampled starts, and learns from actual ones."""

    _features: FloatArray = field(default_factory=lambda: np.zeros((_MAX_OUTCOMES, len(_FEATURE_WEIGHTS))))
    """Features of the stored outcomes. The newest outcome replaces the oldest one."""
    _ratios: FloatArray = field(default_factory=lambda: np.zeros(_MAX_OUTCOMES))
    """log(true / sampled wait) of the stored outcomes."""
    _count: int = 0
    """Number of outcomes so far."""
    _levels: list[list[float]] = field(default_factory=_nominal_levels)
    """Levels at which the quantiles of the ratios are taken; see `_level_row`."""
    first_outcomes: int = 0
    """Number of outcomes of first forecasts so far."""
    _bursts: Counter[tuple[str | Features, int, int]] = field(default_factory=Counter)
    """Number of outcomes by user, or area and walltime, by horizon class and by hour of the start."""
    _waiting: tuple[FloatArray, FloatArray] = (np.empty((0, len(_FEATURE_WEIGHTS))), np.empty(0))
    """Features and log(elapsed / sampled wait) of the forecasts of waiting jobs."""

    @property
    def past_errors(self) -> Sequence[tuple[Features, float]]:
        """Features and log(true / sampled wait) of each recorded outcome, oldest first."""
        order = np.arange(max(0, self._count - _MAX_OUTCOMES), self._count) % _MAX_OUTCOMES
        return [(tuple(self._features[at].tolist()), float(self._ratios[at])) for at in order]

    @property
    def is_calibrated(self) -> bool:
        """Whether enough outcomes of first forecasts are known to call forecasts calibrated."""
        return self.first_outcomes >= MIN_FIRST_OUTCOMES

    @property
    def levels_by_class(self) -> list[list[float]]:
        """Levels of the quantiles by horizon class, those of later and then of first forecasts."""
        return [list(each) for each in self._levels]

    @classmethod
    def from_memory(
        cls, known: Sequence[tuple[Features, float]], levels: Sequence[Sequence[float]], first_outcomes: int
    ) -> StartCalibrator:
        """Restore a calibrator. Raise `InvalidValue` if its state is invalid."""
        found = cls(first_outcomes=first_outcomes)
        for features, ratio in known:
            cls.require_feature_count(features)
            found._store(features, ratio)
        require(
            [len(each) for each in levels] == [len(LEVELS)] * len(found._levels)
            and all(-_MAX_LEVEL_EXCESS <= level <= 1 + _MAX_LEVEL_EXCESS for each in levels for level in each),
            "levels", levels, "must list the quantile levels of each class",
        )  # fmt: skip
        found._levels = [list(each) for each in levels]
        return found

    @staticmethod
    def require_feature_count(features: Features) -> None:
        """Raise `InvalidValue` unless the number of features is correct."""
        require(
            len(features) == len(_FEATURE_WEIGHTS), "features", features, f"must have {len(_FEATURE_WEIGHTS)} entries"
        )

    def forecast(
        self, now_s: int, jobs: Sequence[Job], plan_s: Sequence[int], drawn_s: IntArray, is_first: Sequence[bool]
    ) -> list[StartForecast]:
        """Return the forecast of each job from planned and sampled starts, in seconds.

        `is_first` states which jobs have had no forecast before. `drawn_s` is int64[draws, J]. The caller must omit
        jobs with a sampled start at `NEVER`, which have no forecast.
        """
        if not jobs:
            return []
        low, middle, high = np.minimum(np.quantile(drawn_s, (0.1, 0.5, 0.9), axis=0), now_s + _MAX_HORIZON_S)
        starts_s = zip(low, middle, high, np.minimum(plan_s, now_s + _MAX_PLAN_HORIZON_S).tolist(), strict=True)
        features = [_compute_features(now_s, job, each) for job, each in zip(jobs, starts_s, strict=True)]
        calibrated, learned = self.is_calibrated, self._count >= _MIN_OUTCOMES
        logs = (
            self._log_ratio_quantiles(np.array(features), np.array(is_first))
            if learned
            else np.tile(_INITIAL_LOG_RATIOS, (len(jobs), 1))
        )
        told = _waits_from_log_ratios(np.array(features)[:, :1], logs)
        # Levels move independently, so they can cross. A running maximum would raise all quantiles above a late one.
        # Sorting never increases the pinball loss (Chernozhukov et al., Econometrica 2010).
        told = np.sort(np.rint(told).astype(np.int64), axis=1)
        return [
            StartForecast(
                now_s, tuple((now_s + told[j]).tolist()), calibrated, learned, is_first[j], job.user, features[j]
            )
            for j, job in enumerate(jobs)
        ]

    def _log_ratio_quantiles(self, features: FloatArray, is_first: BoolArray) -> FloatArray:
        """Return quantiles of log ratios, float64[J, levels], for features float64[J, F]."""
        columns, ratios = self._features[: self._count], self._ratios[: self._count]
        found, levels = np.empty((len(features), len(LEVELS))), np.array(self._levels)
        for first in range(0, len(features), _BATCH_SIZE):
            part = slice(first, first + _BATCH_SIZE)
            nearest = _nearest_ratios((columns, ratios), self._waiting, features[part])
            for row, (near, shares) in enumerate(nearest, first):
                middle = np.interp(LEVELS[MEDIAN : MEDIAN + 1], shares, near)
                horizon = _horizon_classes(np.rint(_waits_from_log_ratios(features[row, :1], middle)))[0]
                at = levels[_level_row(horizon, is_first[row])]
                inside = np.clip(at, 0.0, 1.0)
                beyond = _EXCESS_SLOPE * (at - inside) + _CENSORED_SLOPE * np.maximum(0.0, inside - shares[-1])
                found[row] = np.interp(inside, shares, near) + beyond
        return found

    def observe_waiting(self, now_s: int, forecasts: Sequence[StartForecast]) -> None:
        """Compute the censored outcomes of the jobs that are still waiting at `now_s`.

        If there are too many, keep those with the longest waits. The others show less about long waits.
        """
        known = [told for told in forecasts if now_s > told.issued_at_s + _ADDED_WAIT_S]
        known = sorted(known, key=lambda told: told.issued_at_s)[:_MAX_OUTCOMES]
        features = np.array([told.features for told in known]).reshape(-1, len(_FEATURE_WEIGHTS))
        waits_s = now_s - np.array([told.issued_at_s for told in known], np.int64)
        self._waiting = features, np.log(waits_s + _ADDED_WAIT_S) - features[:, 0]

    def record_outcome(self, told: StartForecast, start_s: int) -> None:
        """Record that the job with forecast `told` started at `start_s`."""
        if self._exceeds_burst_limit(told, start_s):
            return
        self.first_outcomes += told.first
        wait_s = max(0, start_s - told.issued_at_s)
        self._store(told.features, math.log(wait_s + _ADDED_WAIT_S) - told.features[0])
        if not told.learned:
            return  # The quantiles did not come from the levels.
        levels = self._levels[_level_row(told.horizon_class, told.first)]
        for q, (level, quantile_s) in enumerate(zip(LEVELS, told.quantiles_s, strict=True)):
            step = _LEVEL_STEP * level * (1 - level)
            if q < MEDIAN:
                levels[q] = min(max(levels[q] + step * (level - (start_s < quantile_s)), -_MAX_LEVEL_EXCESS), 0.5)
            elif q > MEDIAN:
                levels[q] = min(max(levels[q] + step * (level - (start_s <= quantile_s)), 0.5), 1 + _MAX_LEVEL_EXCESS)

    def _store(self, features: Features, ratio: float) -> None:
        at = self._count % _MAX_OUTCOMES
        self._features[at], self._ratios[at] = features, ratio
        self._count += 1

    def _exceeds_burst_limit(self, told: StartForecast, start_s: int) -> bool:
        """Count an outcome, and return whether it exceeds the limit for a burst.

        In a trace without users, jobs with the same area and walltime form a burst. There is no limit while few
        outcomes are known. Starts are not always reported in order, so several hours are counted at a time.
        """
        burst = (told.user or told.features[2:4], told.horizon_class, start_s // 3600)
        self._bursts[burst] += 1
        if len(self._bursts) > _MAX_BURSTS:
            del self._bursts[next(iter(self._bursts))]
        return self._bursts[burst] > _MAX_PER_BURST and self._count >= _MIN_OUTCOMES_FOR_LIMIT


def _waits_from_log_ratios(middle: FloatArray, logs: FloatArray) -> FloatArray:
    """Return waits in seconds from the logarithms of sampled waits and of ratios."""
    found: FloatArray = np.maximum(0.0, np.exp(np.minimum(middle + logs, _MAX_LOG_RATIO + 5)) - _ADDED_WAIT_S)
    return found


def _horizon_classes(wait_s: npt.NDArray[np.generic]) -> IntArray:
    """Return the horizon class, from 0, of each wait in seconds."""
    return np.searchsorted(HORIZONS_S, wait_s, side="left")


def _nearest_ratios(
    known: tuple[FloatArray, FloatArray], waiting: tuple[FloatArray, FloatArray], features: FloatArray
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield each row's nearest ratios, ascending, and the share of waits before each.

    Waiting jobs that are as similar count as censored outcomes (Kaplan and Meier, JASA 1958).
    """
    count, most = min(_NEAREST_OUTCOMES, len(known[1])), min(_NEAREST_OUTCOMES, len(waiting[1]))
    ended, distances = _nearest(known[0], features, count)
    pending, pending_distances = _nearest(waiting[0], features, most)
    censored = np.where(pending_distances <= distances.max(axis=1, keepdims=True), waiting[1][pending], -np.inf)
    values = np.concatenate((known[1][ended], censored), axis=1)
    order = np.argsort(values, axis=1, kind="stable")
    is_start = order < count
    left = np.cumprod(1 - is_start / (count + most - np.arange(count + most)), axis=1)
    for row in range(len(features)):
        after = left[row, is_start[row]]
        shares = 1 - np.concatenate(((1.0,), after[:-1]))
        if after[-1] < 1e-9 and shares[-1] > 0:  # no longer wait is censored
            shares /= shares[-1]
        yield values[row, order[row, is_start[row]]], shares


def _nearest(columns: FloatArray, features: FloatArray, count: int) -> tuple[IntArray, FloatArray]:
    """Return indices and distances of each row's `count` nearest rows in `columns`."""
    distances = np.zeros((len(features), len(columns)))
    for at, weight in enumerate(_FEATURE_WEIGHTS):
        distances += weight * np.abs(columns[:, at] - features[:, at, None])
    if count < len(columns):
        found = np.argpartition(distances, count, axis=1)[:, :count]
    else:
        found = np.broadcast_to(np.arange(count), (len(features), count))
    return found, np.take_along_axis(distances, found, 1)


def _compute_features(now_s: int, job: Job, starts_s: tuple[float, float, float, float]) -> Features:
    """Return the logarithms of waits, their spread, area, walltime and time in queue.

    `starts_s` contains the 10 %, 50 % and 90 % quantiles of the start, and the planned start.
    """
    waits = [max(0.0, start_s - now_s) + _ADDED_WAIT_S for start_s in starts_s]
    area = max(1, job.request.units * job.request.per_unit[0]) * job.walltime_s
    given = (
        waits[1],
        waits[2] / waits[0],
        area,
        job.walltime_s,
        max(0, now_s - job.submit_s) + _ADDED_WAIT_S,
        waits[3],
    )
    return tuple(math.log(each) for each in given)
