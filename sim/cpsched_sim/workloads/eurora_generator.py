"""Generate a reproducible workload that resembles Eurora's.

Eurora (CINECA, 2014-2015) is a cluster whose trace is not public.

Construction. Jobs arrive in *regimes*: for some time, a user runs one application with one request in one queue. The
durations are similar (the temporal locality of mod17 section 3). A regime's jobs arrive in bursts, and each burst
follows when the previous one has ended. Then the user starts another regime. It is a known application with another
duration (a test, then the real run), or an application that no predictor has seen. Runs of a regime have exactly,
nearly or roughly the same length. Some reach the walltime. Their recorded run time is slightly longer because of the
clean-up (cp19 section 5). Names are a prefix, followed by a running number for users who number their runs.

Result. Class shares and the share of jobs that reach their walltime are quotas that are met up to rounding. All other
values are drawn by stratified sampling, and distributed so that the few large regimes do not distort the sums.
`PUBLISHED_FIGURES` contains the figures from mod17 and cp19. The workload meets all of them: over 25 generated months,
the largest deviations were the CPU time of the eleven long jobs (1.31 to 1.67 % of all; published 1.6) and the mean
absolute error of `profile` (38.0 to 44.5 min; published 38.9). All other statistics were within 12 % of the published
figures.

Not fitted. The problem sizes in cp19 table 2 depend on the dispatcher as much as on the workload (94 to 145 intervals
for the same jobs). With EASY and `profile`, a month (seed 1) has 27 running or considered jobs per decision (cp19's
PCP3-D: 115), 352 resources requested (584) and 1,081 free (1,473): fewer but larger jobs at a time.

Draws are uniform doubles and integers from NumPy's PCG64, and times are whole seconds. Every platform generates the
same jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpsched.errors import require
from cpsched.metrics import FloatArray
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest

RESOURCES = ("cores", "memory_mib", "gpus", "mics")
JOBS_PER_DAY = 372_321 / 304.4
"""Jobs per day in Eurora's ten busiest months."""
USERS = 140
MAX_JOBS = 4_000_000
"""Maximum number of jobs, which need about 3 GB of memory."""
MAX_DAYS = 36_525
"""Maximum number of days: a century."""
PUBLISHED_FIGURES = {
    "short_share": 0.9315,
    "medium_share": 0.0682,
    "long_share": 0.0003,
    "from_1_to_5_h_share": 0.0610,
    "over_5_h_share": 0.0075,
    "short_cpu_share": 0.1077,
    "medium_cpu_share": 0.8763,
    "long_cpu_share": 0.016,
    "longest_h": 24.0,
    "walltime_error_min": 225.1,
    "walltime_under": 0.036,
    "walltime_over": 0.963,
    "profile_error_min": 38.9,
    "profile_under": 0.258,
    "profile_over": 0.537,
    "profile_close": 0.50,
}
"""Figures from mod17 (sections 2 and 5.1) and cp19 (section 5). Jobs are short below 1 h, medium up to 12 h, and
otherwise long. Predictions are close if real / predicted is between 0.75 and 1.25. CPU time is cores times run time.
"""
_DAY_S = 86_400
_NAME_PREFIXES = (
    "relax",
    "scf",
    "md",
    "cfd",
    "train",
    "sweep",
    "job",
    "test",
    "bands",
    "mesh",
    "qmc",
    "fft",
    "prod",
    "align",
)


@dataclass(frozen=True, slots=True)
class _DurationClass:
    """A class of durations: its share of all jobs, and its regimes' distributions.

    `durations_s` are equidistant quantiles of the regimes' durations, within `bounds_s`; `shapes` are (units, cores per
    unit, weight); `mean_jobs` is the mean number of jobs in a regime.
    """

    share: float
    bounds_s: tuple[int, int]
    durations_s: tuple[int, ...]
    shapes: tuple[tuple[int, int, int], ...]
    mean_jobs: float


_SMALL_SHAPES = ((1, 1, 26), (1, 4, 16), (1, 8, 17), (1, 16, 22), (2, 16, 12), (4, 16, 6), (8, 16, 1))
_LARGE_SHAPES = ((1, 8, 7), (1, 16, 25), (2, 16, 32), (4, 16, 26), (8, 16, 8), (16, 16, 2))
_SINGLE_SHAPES = ((1, 16, 2), (2, 16, 5), (4, 16, 1))
_DURATION_CLASSES = (
    _DurationClass(
        0.9315, (1, 3599), (2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 140, 210, 320, 560, 2400), _SMALL_SHAPES, 11.0
    ),
    _DurationClass(
        0.0610, (3600, 18_000), (3650, 4100, 4700, 5500, 6600, 8200, 10_400, 13_300, 17_900), _LARGE_SHAPES, 8.0
    ),
    _DurationClass(0.0072, (18_001, 43_200), (18_100, 20_000, 22_500, 26_000, 31_000, 42_000), _LARGE_SHAPES, 5.0),
    _DurationClass(0.0003, (43_201, 86_400), (45_000, 52_000, 60_000, 70_000, 86_400), _SINGLE_SHAPES, 1.0),
)

_QUEUE_LIMITS_S = {"debug": 1800, "parallel": 14_400, "np_parallel": 21_600, "longpar": 86_400}
"""Walltime limits in seconds by queue. Most users kept the default, which is the queue's limit."""
_LAST_QUEUE = "longpar"
_KNOWN_QUEUE_SHARES = {"debug": 0.08, "parallel": 0.53, "np_parallel": 0.17, "longpar": 0.22}
_NEW_QUEUE_SHARES = {"debug": 0.54, "parallel": 0.38, "np_parallel": 0.05, "longpar": 0.03}
"""Walltime limits in seconds by queue. Most users keep the default, which is the queue's limit."""
_NEW_APPLICATION_SHARE = 0.78
_RUN_TIME_SPREADS = ((0.0, 0.24), (0.12, 0.24), (0.5, 0.52))
"""Pairs (spread, share). In this share of the regimes, runs last the regime's duration times 1 ± the spread."""
_KILLED_SHARE = 0.036
"""Share of jobs that reach their walltime."""
_BURST_SIZES = (1, 1, 2, 3, 5, 10, 30)
_THINK_TIMES_S = (30, 120, 600, 1800, 7200, 28_800)
_HOUR_WEIGHTS = (3, 2, 2, 1, 1, 1, 2, 3, 6, 9, 10, 10, 8, 9, 10, 10, 9, 8, 6, 5, 4, 4, 4, 3)
_WEEKDAY_WEIGHTS = (10, 11, 11, 11, 9, 5, 4)


@dataclass(slots=True)
class _UserRegime:
    """A period in which a user runs one application with one typical duration."""

    kind: _DurationClass
    jobs: int
    duration_s: int
    units: int
    cores: int
    spread: float = 0.0
    killed: bool = False


@dataclass(slots=True)
class _UserApplication:
    """An application that a user runs repeatedly."""

    user: str
    prefix: str
    numbered: bool
    accelerator: str
    core_mib: int
    runs: int = 0

    def next_name(self) -> str:
        """Return the next run's name, with a running number if the runs are numbered."""
        self.runs += 1
        return f"{self.prefix}{self.runs}" if self.numbered else self.prefix


def generate_eurora_records(days: float, seed: int, load: float = 1.0) -> list[TraceRecord]:
    """Generate the jobs of a number of days, in order of arrival.

    `load` scales the number of jobs. The result is deterministic. Raise `InvalidValue`.
    """
    require(days > 0, "days", days, "must be positive")
    require(
        days * _DAY_S >= 1 and days <= MAX_DAYS, "days", days, f"must be at least a second and at most {MAX_DAYS:,}"
    )
    require(0 < load < float("inf"), "load", load, "must be positive")
    count = JOBS_PER_DAY * days * load
    require(count <= MAX_JOBS, "days, load", (days, load), f"{count:,.0f} jobs, must be at most {MAX_JOBS:,}")
    rng = np.random.Generator(np.random.PCG64(seed))
    horizon_s = int(days * _DAY_S)
    regimes = _all_regimes(rng, max(1, round(count)))
    users, queues = _UserApplications(rng), _QueueAndWalltimeChoice()
    rows: list[tuple[int, int, int, UnitsRequest, str, str, str]] = []
    for start_s, regime in zip(_regime_starts_s(rng, len(regimes), horizon_s), regimes, strict=True):
        application, is_new = users.choose(regime.jobs)
        queue, walltime_s = queues.choose(regime, is_new)
        ask = _make_request(regime, application)
        submits_s = _draw_submits_s(rng, regime, start_s, horizon_s)
        for submit_s, run_s in zip(submits_s, _draw_run_times_s(rng, regime, walltime_s), strict=True):
            rows.append((submit_s, run_s, walltime_s, ask, application.user, application.next_name(), queue))
    rows.sort(key=lambda row: row[0])
    return [TraceRecord(id, *row) for id, row in enumerate(rows, start=1)]


def generate_eurora_jobs(days: float, seed: int, load: float = 1.0) -> list[TraceJob]:
    """Generate the same jobs as `eurora`, with requests for the system `eurora`."""
    system = System(load_system("eurora"))
    return [record.to_trace_job(system.request(record.ask)) for record in generate_eurora_records(days, seed, load)]


def _all_regimes(rng: np.random.Generator, jobs: int) -> list[_UserRegime]:
    """Return the regimes of all classes, shuffled.

    The class of short jobs absorbs rounding differences.
    """
    quotas = [round(kind.share * jobs) for kind in _DURATION_CLASSES[1:]]
    quotas.insert(0, jobs - sum(quotas))
    regimes = [
        r
        for kind, quota in zip(_DURATION_CLASSES, quotas, strict=True)
        if quota
        for r in _regimes_of_class(rng, kind, quota)
    ]
    regimes = [regimes[i] for i in np.argsort(rng.random(len(regimes))).tolist()]
    hit = 0
    for regime in regimes:
        room = _KILLED_SHARE * jobs - hit
        if regime.jobs <= room and regime.duration_s >= 300 and regime.kind is not _DURATION_CLASSES[-1]:
            regime.killed = True
            hit += regime.jobs
    return regimes


def _regimes_of_class(rng: np.random.Generator, kind: _DurationClass, jobs: int) -> list[_UserRegime]:
    lengths = _jobs_per_regime(jobs, kind.mean_jobs)
    count = len(lengths)
    durations = _spread_by_weight(rng, _spaced_quantiles(kind.durations_s, count), lengths)
    shapes = _spread_by_weight(
        rng, _proportional_indices([weight for *_, weight in kind.shapes], count), lengths * durations
    )
    spreads = _spread_by_weight(rng, _proportional_indices([weight for _, weight in _RUN_TIME_SPREADS], count), lengths)
    return [
        _UserRegime(kind, int(length), round(duration), *kind.shapes[int(shape)][:2], _RUN_TIME_SPREADS[int(spread)][0])
        for length, duration, shape, spread in zip(lengths, durations, shapes, spreads, strict=True)
    ]


def _jobs_per_regime(jobs: int, mean: float) -> FloatArray:
    """Return the number of jobs in each regime, in ascending order.

    The numbers have a skewed distribution and sum to `jobs`.
    """
    count = max(1, round(jobs / mean))
    shape = _spaced_quantiles((10, 20, 30, 45, 60, 90, 150, 400), count)
    lengths: FloatArray = np.maximum(1, np.floor(shape / shape.sum() * jobs))
    if missing := max(0, int(jobs - lengths.sum())):
        lengths[-missing:] += 1
    while surplus := int(lengths.sum() - jobs):
        lengths[np.flatnonzero(lengths > 1)[-surplus:]] -= 1
    return lengths


def _spaced_quantiles(table: Sequence[int], count: int) -> FloatArray:
    """Return `count` equidistant quantiles of a distribution, in ascending order.

    `table` contains equidistant quantiles of the distribution.
    """
    at = (np.arange(count) + 0.5) / count * (len(table) - 1)
    return np.asarray(np.interp(at, np.arange(len(table)), table), dtype=np.float64)


def _draw_value(rng: np.random.Generator, table: Sequence[int]) -> float:
    """Draw a value from the distribution with the equidistant quantiles `table`."""
    return float(np.interp(rng.random() * (len(table) - 1), np.arange(len(table)), table))


def _proportional_indices(weights: Sequence[float], count: int) -> FloatArray:
    """Return `count` indices of `weights` in proportion to the weights, ascending."""
    upto = np.cumsum(weights)
    return np.asarray(np.searchsorted(upto, (np.arange(count) + 0.5) / count * upto[-1]), dtype=np.float64)


def _spread_by_weight(rng: np.random.Generator, values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return `values` in a random order that is balanced over the weights.

    Positions of every weight receive a fair share of small and large values.

    Positions are grouped into blocks of similar weight. The values go to the blocks in turn, and are then shuffled
    within each block.
    """
    blocks = max(1, len(values) // 12)
    order, ascending = np.argsort(weights, kind="stable"), np.sort(values)
    dealt = np.empty_like(ascending)
    for block, positions in enumerate(np.array_split(order, blocks)):
        dealt[positions] = ascending[block::blocks][np.argsort(rng.random(len(positions)))]
    return dealt


def _draw_index(rng: np.random.Generator, weights: npt.ArrayLike) -> int:
    """Draw an index with probability proportional to its weight."""
    upto = np.cumsum(weights)
    return min(int(np.searchsorted(upto, rng.random() * upto[-1], side="right")), len(upto) - 1)


def _regime_starts_s(rng: np.random.Generator, count: int, horizon_s: int) -> list[int]:
    """Return the regimes' start times, ascending. Few start at night and on weekends.

    Day 0 is a Monday.
    """
    hours = np.arange(-(-horizon_s // 3600))
    weights = np.take(_HOUR_WEIGHTS, hours % 24) * np.take(_WEEKDAY_WEIGHTS, hours // 24 % 7)
    upto = np.concatenate([[0], np.cumsum(weights)])
    at = (np.arange(count) + rng.random(count)) / count * upto[-1]
    edges_s = np.minimum(np.append(hours, len(hours)) * 3600, horizon_s)
    return [int(start_s) for start_s in np.interp(at, upto, edges_s)]


class _UserApplications:
    """The users' applications. A few users run most of the jobs."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._activity = 1 / (np.arange(USERS) + 5.0)
        self._applications: list[list[_UserApplication]] = [[] for _ in range(USERS)]
        self._novelty = _WeightedNameChoice({"known": 1 - _NEW_APPLICATION_SHARE, "new": _NEW_APPLICATION_SHARE})

    def choose(self, jobs: int) -> tuple[_UserApplication, bool]:
        """Return an application for `jobs` jobs, and whether it is new."""
        user = _draw_index(self._rng, self._activity)
        known = self._applications[user]
        if self._novelty.choose_name(jobs, ("known", "new") if known else ("new",)) == "known":
            recent = known[-4:]
            return recent[_draw_index(self._rng, range(1, len(recent) + 1))], False
        known.append(self._new_application(user, len(known)))
        return known[-1], True

    def _new_application(self, user: int, number: int) -> _UserApplication:
        word = _NAME_PREFIXES[(user + number) % len(_NAME_PREFIXES)]
        letters = chr(97 + number // 26 % 26) + chr(97 + number % 26)
        return _UserApplication(
            user=f"u{user + 1:03d}",
            prefix=f"{word}_{letters}",
            numbered=self._rng.random() < 0.6,
            accelerator=("", "", "", "gpus", "mics")[int(self._rng.integers(5))],
            core_mib=(256, 512, 1000)[int(self._rng.integers(3))],
        )


class _WeightedNameChoice:
    """A choice of names in which each name always has its share of the jobs."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._shares = shares
        self._given = dict.fromkeys(shares, 0)

    def choose_name(self, jobs: int, allowed: Iterable[str]) -> str:
        """Return the allowed name that is farthest below its share of the jobs."""
        total = sum(self._given.values()) + jobs
        name = max(allowed, key=lambda name: self._shares[name] * total - self._given[name])
        self._given[name] += jobs
        return name


class _QueueAndWalltimeChoice:
    """The users' choice of queue and walltime."""

    def __init__(self) -> None:
        self._queue_choices = {
            False: _WeightedNameChoice(_KNOWN_QUEUE_SHARES),
            True: _WeightedNameChoice(_NEW_QUEUE_SHARES),
        }

    def choose(self, regime: _UserRegime, is_new: bool) -> tuple[str, int]:
        """Return the queue, and a walltime that is too short if jobs must reach it."""
        longest_s = regime.duration_s * (1 + regime.spread)
        fits = [name for name, limit_s in _QUEUE_LIMITS_S.items() if limit_s >= longest_s] or [_LAST_QUEUE]
        queue = self._queue_choices[is_new].choose_name(regime.jobs, fits)
        return queue, regime.duration_s // 60 * 60 if regime.killed else _QUEUE_LIMITS_S[queue]


def _make_request(regime: _UserRegime, application: _UserApplication) -> UnitsRequest:
    amounts = {"cores": regime.cores, "memory_mib": regime.cores * application.core_mib}
    if application.accelerator:
        amounts[application.accelerator] = 2 if regime.cores == 16 else 1
    return UnitsRequest(regime.units, tuple((name, amounts[name]) for name in RESOURCES if name in amounts))


def _draw_submits_s(rng: np.random.Generator, regime: _UserRegime, start_s: int, horizon_s: int) -> list[int]:
    """Return ascending arrivals in bursts of a few seconds.

    Each burst follows the end of the previous one by a think time.

    Arrivals after the horizon wrap around to the beginning, as if the regime had started earlier, so that the workload
    is stationary for any horizon.
    """
    offsets: list[float] = []
    at = 0.0
    while len(offsets) < regime.jobs:
        size = min(round(_draw_value(rng, _BURST_SIZES)), regime.jobs - len(offsets))
        offsets += (at + np.cumsum(rng.random(size) * 3)).tolist()
        at = offsets[-1] + regime.duration_s + _draw_value(rng, _THINK_TIMES_S)
    return sorted((start_s + int(offset)) % horizon_s for offset in offsets)


def _draw_run_times_s(rng: np.random.Generator, regime: _UserRegime, walltime_s: int) -> list[int]:
    """Return run times within the class's bounds.

    They exceed the walltime only if the regime's jobs must reach it.
    """
    draws = rng.random(regime.jobs)
    if regime.killed:
        return [walltime_s + 1 + int(draw * 40) for draw in draws]
    low_s, high_s = regime.kind.bounds_s
    runs = np.rint(regime.duration_s * (1 + regime.spread * (2 * draws - 1)))
    return [int(run_s) for run_s in np.clip(runs, low_s, min(high_s, walltime_s))]
