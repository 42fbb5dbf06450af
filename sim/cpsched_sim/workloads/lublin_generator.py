"""Generate rigid parallel jobs with the model of Lublin and Feitelson, and walltimes that resemble users' estimates.

The parameters are the published ones.

U. Lublin, D. G. Feitelson: The workload on parallel supercomputers: modeling the characteristics of rigid jobs, JPDC
63(11), 2003. Their parameters for all jobs, batch and interactive, were fitted to SDSC Paragon, CTC SP2 and
KTH SP2. Times are seconds.

- **Processors.** A share of the jobs are serial. For the others, the logarithm of the number of processors is uniform
  in two stages. For a share of all jobs, it is rounded, so that the number is a power of two.
- **Run time.** The natural logarithm is one of two gamma variables. Wide jobs use the longer one more often.
- **Arrivals.** The logarithm of a gap at the busiest hours is a gamma variable. Gaps are longer in half hours with
  fewer arrivals: the share of each half hour is the increment of another gamma distribution.

Differences: the model and these jobs have no users. For a machine that does not have 128 processors, the bounds of
the two stages change as the authors describe. A power of two above the size becomes the largest power of two within it.

Walltimes are from the model of D. Tsafrir, Y. Etsion, D. G. Feitelson: Modeling user runtime estimates, JSSPP 2005.
Most estimates are one of a few round values, far above the run time:

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

import math
from dataclasses import dataclass

import numpy as np

from cpsched.errors import require
from cpsched.metrics import FloatArray
from cpsched.model import IntArray
from cpsched_sim.traces.trace_record import ProcessorCountRequest, TraceRecord

SERIAL_SHARE = 0.244
POWER_OF_TWO_SHARE = 0.576
"""Share of all jobs that are parallel with a rounded logarithm of the number of processors."""
PUBLISHED_PROCESSORS = 128
"""The machine size for which the parameters were published."""
MIN_PROCESSORS = 16
MAX_PROCESSORS = 1 << 20
MAX_JOBS = 4_000_000
DAY_S = 86_400
_HALF_HOUR_S = 1800
_HALF_HOURS = 48
_LOG_MIN_PROCESSORS, _BELOW_LOG_MAX, _FIRST_STAGE_SHARE = 0.8, 2.5, 0.86
"""Two stages of log2 of the processors. With the probability `_FIRST_STAGE_SHARE`, it is from `_LOG_MIN_PROCESSORS` to
log2 of the machine size minus `_BELOW_LOG_MAX`. Otherwise, it is from there to log2 of the machine size.
"""
_FIRST_DAY_HALF_HOUR = 11
"""The 1-based half hour in which the daily cycle begins."""
MAX_ESTIMATE_S = 172_800
"""Default of the longest estimate, in seconds: two days."""
POPULAR_VALUES = 20
POPULAR_SHARE = 0.89
_MIN_VALUES = POPULAR_VALUES + 10
_STEP_S = 300
_FINE_STEP_S = 60


@dataclass(frozen=True, slots=True)
class _GammaDistribution:
    shape: float
    scale: float

    def draw_truncated(self, rng: np.random.Generator, count: int, most: float) -> FloatArray:
        """Draw `count` values. Redraw each value above `most`."""
        values: FloatArray = rng.gamma(self.shape, self.scale, count)
        while (over := np.flatnonzero(values > most)).size:
            values[over] = rng.gamma(self.shape, self.scale, over.size)
        return values

    def cumulative_probability(self, x: float) -> float:
        """Return the cumulative distribution function at `x`, from its power series."""
        z = x / self.scale
        term = total = 1.0 / self.shape
        for n in range(1, 1000):
            term *= z / (self.shape + n)
            total += term
        return total * math.exp(self.shape * math.log(z) - z - math.lgamma(self.shape))


SHORT_RUN_TIMES, LONG_RUN_TIMES = _GammaDistribution(4.2, 0.94), _GammaDistribution(312, 0.03)
"""Distributions of the natural logarithm of the run time, for the two kinds of jobs."""
SHORT_SHARE, SHORT_SHARE_BY_PROCESSOR = 0.78, -0.0054
"""The share of jobs of the short kind, and its change per processor of the job."""
LOG_MAX_RUN_TIME = 12
"""Natural logarithm of the longest run time: 45 hours."""
GAP_DISTRIBUTION = _GammaDistribution(10.2303 * 1.0225, 0.4871)
"""Distribution of the logarithm of gaps. The published shape is for the busiest hours; the factor adapts it to all
hours.
"""
LOG_MAX_GAP = 13
DAILY_CYCLE = _GammaDistribution(8.1737, 3.9631)
"""Distribution of the arrivals over the day, in half hours."""


def generate_lublin_records(
    jobs: int, seed: int, processors: int = PUBLISHED_PROCESSORS, load: float = 1.0
) -> list[TraceRecord]:
    """Generate `jobs` jobs in order of arrival for `processors` processors.

    `load` scales the number of jobs per day.

    The result is deterministic. The first day begins at midnight. Raise `InvalidValue` for invalid parameters.
    """
    require(1 <= jobs <= MAX_JOBS, "jobs", jobs, f"must be from 1 to {MAX_JOBS:,}")
    within = MIN_PROCESSORS <= processors <= MAX_PROCESSORS
    require(within, "processors", processors, f"must be from {MIN_PROCESSORS} to {MAX_PROCESSORS:,}")
    require(0.001 <= load <= 1000, "load", load, "must be from 0.001 to 1000")
    rng = np.random.Generator(np.random.PCG64(seed))
    submits_s = _draw_submits_s(rng, jobs, load)
    sizes = _draw_sizes(rng, jobs, processors)
    runs_s = _draw_run_times_s(rng, sizes)
    walltimes_s = draw_walltime_estimates_s(rng, runs_s, MAX_ESTIMATE_S)
    columns = (each.tolist() for each in (submits_s, runs_s, walltimes_s, sizes))
    rows = enumerate(zip(*columns, strict=True), start=1)
    return [
        TraceRecord(id, submit_s, run_s, walltime_s, ProcessorCountRequest(size), "", "", "")
        for id, (submit_s, run_s, walltime_s, size) in rows
    ]


def lublin_swf_header(jobs: int, seed: int, processors: int, load: float) -> dict[str, str]:
    """Return the header of a trace with these jobs, with SWF's keys."""
    return {
        "Version": "2.2",
        "Computer": "none: the model of Lublin and Feitelson (2003), with estimates as Tsafrir et al. (2005)",
        "MaxJobs": str(jobs),
        "MaxRecords": str(jobs),
        "MaxNodes": str(processors),
        "MaxProcs": str(processors),
        "MaxRuntime": str(MAX_ESTIMATE_S),
        "Note": f"seed {seed}, load {load:g}",
    }


def arrival_rate_by_half_hour() -> FloatArray:
    """Return the arrivals in each half hour of the day from midnight, float64[48].

    They are relative to the mean.
    """
    shares: FloatArray = np.empty(_HALF_HOURS)
    for at in range(_FIRST_DAY_HALF_HOUR, _FIRST_DAY_HALF_HOUR + _HALF_HOURS):
        shares[(at - 1) % _HALF_HOURS] = DAILY_CYCLE.cumulative_probability(
            at + 0.5
        ) - DAILY_CYCLE.cumulative_probability(at - 0.5)
    shares /= shares.mean()
    return shares


def _draw_submits_s(rng: np.random.Generator, jobs: int, load: float) -> IntArray:
    """Return arrival times in seconds.

    Gaps are in half hours of mean traffic. Their sums are mapped to the daily cycle.
    """
    passed = np.cumsum(np.exp(GAP_DISTRIBUTION.draw_truncated(rng, jobs, LOG_MAX_GAP)) / (_HALF_HOUR_S * load))
    days, within = np.divmod(passed, _HALF_HOURS)
    upto = np.concatenate([[0.0], np.cumsum(arrival_rate_by_half_hour())])
    clock = np.interp(within, upto, np.arange(_HALF_HOURS + 1))
    return (days * DAY_S + clock * _HALF_HOUR_S).astype(np.int64)


def _draw_sizes(rng: np.random.Generator, jobs: int, processors: int) -> IntArray:
    """Draw the number of processors of each job."""
    kind, stage, place = rng.random((3, jobs))
    largest = math.log2(processors)
    middle = largest - _BELOW_LOG_MAX
    first = stage <= _FIRST_STAGE_SHARE
    log = np.where(
        first, _LOG_MIN_PROCESSORS + place * (middle - _LOG_MIN_PROCESSORS), middle + place * (largest - middle)
    )
    is_power = kind <= SERIAL_SHARE + POWER_OF_TWO_SHARE
    log = np.where(is_power, np.minimum(np.floor(log + 0.5), math.floor(largest)), log)
    return np.where(kind <= SERIAL_SHARE, 1, np.floor(2.0**log + 0.5)).astype(np.int64)


def _draw_run_times_s(rng: np.random.Generator, sizes: IntArray) -> IntArray:
    """Draw run times for jobs of these sizes, at least one second each."""
    is_short = rng.random(len(sizes)) <= np.clip(SHORT_SHARE + SHORT_SHARE_BY_PROCESSOR * sizes, 0, 1)
    short, long = (kind.draw_truncated(rng, len(sizes), LOG_MAX_RUN_TIME) for kind in (SHORT_RUN_TIMES, LONG_RUN_TIMES))
    return np.maximum(1, np.exp(np.where(is_short, short, long)).astype(np.int64))


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
