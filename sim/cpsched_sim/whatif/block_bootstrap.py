"""Estimate by block bootstrap how much a value varies between weeks at the site.

The window is cut into blocks (weeks, or days or hours in a short window). Each draw selects the same number of blocks
with replacement. All replays use the same draws, so differences are paired.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpsched.model import IntArray
from cpsched_sim.experiments.bootstrap_statistics import BOOTSTRAP_DRAWS, FloatArray, draw_resample_counts
from cpsched_sim.whatif.whatif_window import DAY_S, HOUR_S

MIN_BLOCKS = 6
"""Minimum number of blocks. Shorter blocks are used if a window would have fewer."""
BLOCK_LENGTHS = (
    (7 * DAY_S, "weeks"), (DAY_S, "days"), (6 * HOUR_S, "quarters of days"), (HOUR_S, "hours"), (600, "ten minutes"),
    (60, "minutes"),
)  # fmt: skip
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
