"""Estimate by paired bootstrap how much a value varies between workloads or weeks.

Units (workloads, windows, or blocks of a window) are drawn with replacement; each draw has as many units as the sample.
Both sides of a comparison use the same draws. Blocks of a window are consecutive (a block bootstrap: Künsch, "The
jackknife and the bootstrap for general stationary observations", Annals of Statistics 17, 1989).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, stdev

import numpy as np
import numpy.typing as npt

from cpsched.model import IntArray

FloatArray = npt.NDArray[np.float64]
BOOTSTRAP_DRAWS = 2000
CONFIDENCE_LEVEL = 0.95
"""The confidence level of all intervals."""
_T_QUANTILES = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)
"""Quantiles of Student's t distribution at 0.975, for 1, 2, ... degrees of freedom."""
_ROUNDING = 1e-12


@cache
def draw_resample_counts(units: int, seed: int = 0) -> FloatArray:
    """Return how often each unit occurs in each draw, float64[DRAWS, units]."""
    found = (
        np.random.default_rng(seed)
        .multinomial(units, np.full(units, 1 / units), size=BOOTSTRAP_DRAWS)
        .astype(np.float64)
    )
    found.flags.writeable = False
    return found


def bootstrap_interval(draws: FloatArray, units: int) -> tuple[float, float] | None:
    """Return a value's confidence interval, given its value in each draw.

    Return None if no draw is finite, or with fewer than two units.

    The bounds are the expanded percentiles of Hesterberg 2015 (The American Statistician 69:371-386, section 5.3),
    because a small sample varies less than its population.
    """
    known = draws[np.isfinite(draws)]
    if not len(known) or units < 2:
        return None
    freedom = units - 1
    wide = math.sqrt(units / freedom) * _t_quantile(freedom)
    end = NormalDist().cdf(-wide)
    low, high = np.quantile(known, (end, 1 - end))
    return float(low), float(high)


def mean_interval(sample: Sequence[float]) -> tuple[float, float] | None:
    """Return the confidence interval of the mean of independent values by Student's t, or None for fewer than two."""
    if len(sample) < 2:
        return None
    margin = _t_quantile(len(sample) - 1) * stdev(sample) / math.sqrt(len(sample))
    return fmean(sample) - margin, fmean(sample) + margin


def _t_quantile(freedom: int) -> float:
    return _T_QUANTILES[freedom - 1] if freedom <= len(_T_QUANTILES) else 2.0


def finite_or_none(value: float) -> float | None:
    """Return a number for JSON, or None for NaN and infinities."""
    return float(value) if math.isfinite(value) else None


def margins_of_error(samples: Sequence[FloatArray]) -> list[float]:
    """Return the margin of error of each sample's mean.

    It is infinite for a sample with fewer than two units.

    All intervals `mean ± margin` hold simultaneously with probability `CONFIDENCE_LEVEL`. They are studentized: in this
    share of the draws, the largest deviation is at most a common factor times the standard error.
    """
    found = [_studentize_mean(sample) for sample in samples]
    factor = float(
        np.quantile(np.max([deviations for _, deviations in found], axis=0), CONFIDENCE_LEVEL, method="higher")
    )
    return [error * factor if error > _ROUNDING else 0.0 for error, _ in found]


def _studentize_mean(sample: FloatArray) -> tuple[float, FloatArray]:
    """Return a mean's standard error, and the deviation of each draw.

    The deviation is in units of the draw's own standard error.
    """
    units = len(sample)
    if units < 2:
        return math.inf, np.full(BOOTSTRAP_DRAWS, _ROUNDING)
    weights, centred = draw_resample_counts(units) / units, sample - sample.mean()
    means = weights @ centred
    errors = np.sqrt(np.maximum(weights @ centred**2 - means**2, 0) / (units - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        deviations = np.where(np.abs(means) < _ROUNDING, 0.0, np.abs(means) / np.where(errors < _ROUNDING, 0, errors))
    return float(np.std(sample, ddof=1)) / math.sqrt(units), deviations


MIN_BLOCKS = 6
"""Minimum number of blocks. Shorter blocks are used if a window would have fewer."""
BLOCK_LENGTHS = (
    (604_800, "weeks"), (86_400, "days"), (21_600, "quarters of days"), (3600, "hours"), (600, "ten minutes"),
    (60, "minutes"),
)  # fmt: skip
"""Length in seconds, and name."""
WAIT_BIN_EDGES_S = np.concatenate(([0.0], np.geomspace(1.0, 3.2e7, 600), [np.inf]))
"""Bin edges for quantiles of waits, in seconds. Adjacent edges differ by 3 %."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockBootstrap:
    """The blocks of a window, and how often each block occurs in each draw.

    `drawn` contains these counts, float64[DRAWS, B].
    """

    from_s: int
    length_s: int
    count: int
    kind: str
    drawn: FloatArray

    @classmethod
    def of(cls, from_s: int, to_s: int, seed: int = 0) -> BlockBootstrap:
        """Cut a window into the longest possible blocks, but at least `MIN_BLOCKS`.

        Use the shortest blocks if the window is too short.
        """
        lasts_s = to_s - from_s
        length_s, kind = next((each for each in BLOCK_LENGTHS if lasts_s // each[0] >= MIN_BLOCKS), BLOCK_LENGTHS[-1])
        count = max(1, -(-lasts_s // length_s))
        return cls(from_s, length_s, count, kind, draw_resample_counts(count, seed))

    @property
    def has_enough_blocks(self) -> bool:
        """Return whether there are enough blocks for confidence intervals."""
        return self.count >= MIN_BLOCKS

    def block_of_times(self, at_s: IntArray) -> IntArray:
        """Return the index of the block that contains each time."""
        found: IntArray = np.clip((at_s - self.from_s) // self.length_s, 0, self.count - 1)
        return found

    def sums_by_block(
        self, block: IntArray, values: npt.ArrayLike, group: IntArray | None = None, groups: int = 1
    ) -> FloatArray:
        """Return the sums by group and block, float64[groups, B]."""
        key = block if group is None else group * self.count + block
        weights = np.broadcast_to(np.asarray(values, np.float64), block.shape)
        found = np.bincount(key, weights, groups * self.count).astype(np.float64)
        return found.reshape(groups, self.count)

    def ratios_with_draws(self, above: FloatArray, below: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ratios of sums as observed and in each draw.

        The shapes are float64[G] and float64[G, DRAWS]. A ratio without data is NaN.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            point = above.sum(axis=1) / below.sum(axis=1)
            draws = (above @ self.drawn.T) / (below @ self.drawn.T)
        return point, draws if self.has_enough_blocks else np.full_like(draws, np.nan)

    def wait_quantile(self, block: IntArray, wait_s: FloatArray, part: float) -> tuple[float, FloatArray]:
        """Return a quantile of waits in seconds, as observed and in each draw.

        In draws, waits are rounded down to bins of 3 %.
        """
        if not len(wait_s) or not self.has_enough_blocks:
            return float(np.quantile(wait_s, part)) if len(wait_s) else float("nan"), np.full(BOOTSTRAP_DRAWS, np.nan)
        bin_of = np.clip(np.searchsorted(WAIT_BIN_EDGES_S, wait_s, side="right") - 1, 0, len(WAIT_BIN_EDGES_S) - 2)
        counts = np.bincount(
            block * (len(WAIT_BIN_EDGES_S) - 1) + bin_of, minlength=self.count * (len(WAIT_BIN_EDGES_S) - 1)
        )
        upto = np.cumsum(self.drawn @ counts.reshape(self.count, -1), axis=1)
        at = (upto < part * upto[:, -1:]).sum(axis=1)
        return float(np.quantile(wait_s, part)), WAIT_BIN_EDGES_S[at]


def union_interval(*intervals: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the smallest interval that contains all intervals that are not None."""
    known = [each for each in intervals if each is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None
