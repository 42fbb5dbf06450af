"""Assign walltimes that resemble users' estimates.

Most estimates are one of a few round values, far above the run time. The model and its parameters are those of
D. Tsafrir, Y. Etsion, D. G. Feitelson: Modeling user runtime estimates, JSSPP 2005:

- *n* jobs use about 0.6536 n^0.5478 different values.
- The value at time rank *x* (a share of the values, ascending) is (a - 1) x / (a - x) of the longest, where
  a = 1 + 12.1 K^-0.6026 for *K* values.
- The twenty most popular values cover 89 % of the jobs. The value at popularity rank *x* (2 to 20) is 14.05
  e^(-0.1775 x) + 0.4625 %, the first has the remainder of the 89 %, and the values from rank 21 share the other 11 % in
  proportion to x^-2.267.
- No estimate is below the run time: jobs are processed from the longest run to the shortest, and each is assigned a
  random remaining estimate that is long enough.

Differences: values are multiples of five minutes if the longest is at least 16 hours, and of one minute otherwise. The
longest value is the most popular. The nineteen other popular values are drawn from one nineteenth of the time ranks
each, in random order of popularity. If no remaining estimate is long enough, the job requests the longest value.
"""

from __future__ import annotations

import numpy as np

from cpsched.errors import require
from cpsched.metrics import FloatArray
from cpsched.model import IntArray

MAX_ESTIMATE_S = 172_800
"""Default of the longest estimate, in seconds: two days."""
POPULAR_VALUES = 20
POPULAR_SHARE = 0.89
_MIN_VALUES = POPULAR_VALUES + 10
_STEP_S = 300
_FINE_STEP_S = 60


def draw_walltime_estimates_s(rng: np.random.Generator, runs_s: IntArray, longest_s: int = MAX_ESTIMATE_S) -> IntArray:
    """Draw an estimate for each job, from its run time to `longest_s`: int64[jobs].

    Raise `InvalidValue` if a run is longer than `longest_s`, or if `longest_s` is less than an hour.
    """
    require(longest_s >= 3600, "longest_s", longest_s, "must be at least 3600")
    most_s = int(runs_s.max())
    require(most_s <= longest_s, "run_s", most_s, f"must not be above the longest estimate, {longest_s} s")
    values_s = _distinct_estimates_s(len(runs_s), longest_s)
    shares = _popularity_shares(rng, len(values_s))
    return _assign_estimates(rng, np.repeat(values_s, _apportion_jobs(shares, len(runs_s))), runs_s, longest_s)


def _distinct_estimates_s(jobs: int, longest_s: int) -> IntArray:
    """Return the distinct estimates in seconds, in ascending order."""
    count = max(_MIN_VALUES, round(0.653566 * jobs**0.547761))
    bend = 1 + 12.1039 * count**-0.6026
    rank = np.arange(1, count + 1) / count
    step_s = _STEP_S if longest_s >= 16 * 3600 else _FINE_STEP_S
    values = np.ceil((bend - 1) * rank / (bend - rank) * longest_s / step_s) * step_s
    return np.unique(np.minimum(values, longest_s).astype(np.int64))


def popularity_by_rank(values: int) -> FloatArray:
    """Return the share of the jobs at each popularity rank: [values], with sum 1."""
    head = np.arange(2, POPULAR_VALUES + 1)
    heads = (14.0491 * np.exp(-0.177531 * head) + 0.462513) / 100
    tail = np.arange(POPULAR_VALUES + 1, values + 1) ** -2.267
    tails = (1 - POPULAR_SHARE) * tail / tail.sum()
    return np.concatenate([[POPULAR_SHARE - heads.sum()], heads, tails])


def _popularity_shares(rng: np.random.Generator, values: int) -> FloatArray:
    """Return each value's share of the jobs, by time rank.

    The longest value is most popular, and the other popular values are spread.
    """
    edges = np.linspace(0, values - 1, POPULAR_VALUES).astype(np.int64)
    popular = rng.permutation(rng.integers(edges[:-1], edges[1:]))
    others = rng.permutation(np.setdiff1d(np.arange(values - 1), popular))
    shares = np.empty(values)
    shares[np.concatenate([[values - 1], popular, others])] = popularity_by_rank(values)
    return shares


def _apportion_jobs(shares: FloatArray, jobs: int) -> IntArray:
    """Return whole numbers that are proportional to the shares and sum to `jobs`."""
    upto = np.floor(np.cumsum(shares) * jobs + 0.5).astype(np.int64)
    upto[-1] = jobs
    return np.diff(upto, prepend=0)


def _assign_estimates(rng: np.random.Generator, pool_s: IntArray, runs_s: IntArray, longest_s: int) -> IntArray:
    """Assign the estimates `pool_s`, ascending, to jobs. The longest runs come first."""
    left = pool_s.tolist()
    able: list[int] = []
    found = np.empty(len(runs_s), np.int64)
    luck = rng.random(len(runs_s))
    for job in np.argsort(-runs_s, kind="stable").tolist():
        while left and left[-1] >= runs_s[job]:
            able.append(left.pop())
        if not able:
            found[job] = longest_s
            continue
        at = int(luck[job] * len(able))
        able[at], able[-1] = able[-1], able[at]
        found[job] = able.pop()
    return found
