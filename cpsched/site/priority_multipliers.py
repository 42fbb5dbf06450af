"""The weight of a job's priority in an objective: one factor per job, with mean 1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cpsched.errors import require
from cpsched.model import IntArray, Snapshot

FloatArray = npt.NDArray[np.float64]

BASIC_PRIORITY_SPREAD = 1.0
"""Standard deviation of the factors' logarithms if the objective weights all jobs equally."""


def site_rank_multipliers(
    tier: IntArray, priority: IntArray, site_weight: float, own: npt.ArrayLike | None = None
) -> FloatArray:
    """Return float64[J] factors that adapt job weights to the site's priorities.

    Jobs are ranked by tier, then priority. The ranks are spaced evenly around 0 with standard deviation 1. A factor is
    proportional to `exp(site_weight * spread * rank)`. `spread` is the standard deviation of the logarithms of `own`,
    the objective's own weights. If `site_weight` is 0, the objective is unchanged. If it is 1, the site's priorities
    vary as much as the objective's own weights. Only the order of priorities matters, not their differences. Jobs of
    equal tier and priority have equal factors.

    >>> site_rank_multipliers(np.array([0, 0]), np.array([5, 5]), 1.0).tolist()
    [1.0, 1.0]
    """
    require(site_weight >= 0, "site_weight", site_weight, "must not be negative")
    n = len(priority)
    if n == 0 or site_weight == 0:
        return np.ones(n)
    _, group = np.unique(np.stack((tier, priority)), axis=1, return_inverse=True)
    sizes = np.bincount(group.reshape(-1))
    middle = (np.cumsum(sizes) - (sizes + 1) / 2)[group.reshape(-1)]
    """Mean rank of the jobs in each job's group, counted from 0."""
    rank = middle - middle.mean()
    if not rank.any():
        return np.ones(n)
    weights = np.ones(n) if own is None else np.asarray(own, dtype=np.float64)
    positive = weights[weights > 0]
    spread = float(np.log(positive).std()) if len(positive) else 0.0
    factor: FloatArray = np.exp(site_weight * (spread or BASIC_PRIORITY_SPREAD) * rank / rank.std())
    factor /= factor.mean()
    return factor


def site_priority_multipliers(snapshot: Snapshot, site_weight: float, own: npt.ArrayLike | None = None) -> FloatArray:
    """Return the factors of a snapshot's pending jobs (see `site_rank_multipliers`)."""
    table, queue = snapshot.table, snapshot.queue
    return site_rank_multipliers(table.tier[queue], table.priority[queue], site_weight, own)
