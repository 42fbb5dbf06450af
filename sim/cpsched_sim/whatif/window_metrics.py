"""Compute a schedule's metrics over the judged jobs, and in each bootstrap draw."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cpsched.metrics import bounded_slowdown, count_overlapping_intervals
from cpsched.model import NEVER, IntArray
from cpsched.model.typical_requests import find_gpu_column
from cpsched_sim.experiments.bootstrap_statistics import BlockBootstrap, FloatArray
from cpsched_sim.systems.system_file import System
from cpsched_sim.whatif.job_classes import WIDE_JOB_SHARE
from cpsched_sim.whatif.whatif_window import HOUR_S, OUTAGE, WhatIfWindow

LONG_WAIT_S = 3600


@dataclass(frozen=True, slots=True)
class WindowMetric:
    """A named metric. If `less_is_better`, a decrease is an improvement."""

    name: str
    unit: str
    less_is_better: bool = True


WINDOW_METRICS = (
    WindowMetric("mean wait", "s"),
    WindowMetric("median wait", "s"),
    WindowMetric("wait of the unluckiest twentieth", "s"),
    WindowMetric("mean bounded slowdown", ""),
    WindowMetric("jobs that waited an hour and more", "%"),
    WindowMetric("mean wait of wide jobs", "s"),
    WindowMetric("longest wait", "s"),
    WindowMetric("processors in use", "%", False),
    WindowMetric("processors empty though somebody waited", "%"),
    WindowMetric("GPUs empty though somebody waited for one", "%"),
)
"""The metrics. The unluckiest twentieth is the 95th percentile: 5 % of the jobs waited at least as long."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowSchedule:
    """One schedule of a window: times int64[J], NEVER if a job never started."""

    arrival_s: IntArray
    start_s: IntArray
    end_s: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class SharedWindowFacts:
    """Facts that all schedules of a window share.

    Columns and masks have one element per job. `wide` marks the wide jobs.
    """

    window: WhatIfWindow
    blocks: BlockBootstrap
    counted: npt.NDArray[np.bool_]
    """Mask of the judged jobs that started in every schedule."""
    processors: IntArray
    gpus: IntArray
    wide: npt.NDArray[np.bool_]
    machine: int
    machine_gpus: int

    @classmethod
    def of(
        cls, window: WhatIfWindow, blocks: BlockBootstrap, processors: IntArray, schedules: list[WindowSchedule]
    ) -> SharedWindowFacts:
        """Return a window's facts, including which jobs started in all `schedules`."""
        counted = window.is_judged.copy()
        for each in schedules:
            counted &= each.start_s != NEVER
        at = find_gpu_column(window.system.resources)
        requests = [item.job.request for item in window.jobs]
        gpus = np.array([0 if at is None else r.units * r.per_unit[at] for r in requests], np.int64)
        machine, machine_gpus = _machine_sizes(window)
        wide = processors >= max(2, WIDE_JOB_SHARE * machine)
        return cls(window, blocks, counted, processors, gpus, wide, machine, machine_gpus)

    def with_system_of(self, window: WhatIfWindow) -> SharedWindowFacts:
        """Return these facts with another window's machine. `wide` does not change."""
        machine, machine_gpus = _machine_sizes(window)
        return replace(self, machine=machine, machine_gpus=machine_gpus)

    @property
    def block_of_counted_jobs(self) -> IntArray:
        """Return the block in which each counted job really arrived."""
        submit_s = np.array([item.job.submit_s for item in self.window.jobs], np.int64)
        return self.blocks.block_of_times(submit_s[self.counted])


def _machine_sizes(window: WhatIfWindow) -> tuple[int, int]:
    """Return the number of processors and of GPUs of a window's machine."""
    totals = System(window.system, window.header).cluster.capacity.sum(axis=0)
    at = find_gpu_column(window.system.resources)
    return int(totals[0]), int(totals[at]) if at is not None else 0


def actual_schedule(window: WhatIfWindow) -> WindowSchedule:
    """Return the real schedule.

    Jobs that are already running when the window begins start at that time.
    """
    arrival_s = np.array([item.job.submit_s for item in window.jobs], np.int64)
    run_s = np.array([item.run_s for item in window.jobs], np.int64)
    start_s = np.where(window.fixed_s != NEVER, window.fixed_s, window.real_start_s)
    known = start_s != NEVER
    return WindowSchedule(arrival_s, start_s, np.where(known, start_s + run_s, NEVER))


def waits_s(made: WindowSchedule, where: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the selected jobs' waits in seconds."""
    found: FloatArray = (made.start_s - made.arrival_s)[where].astype(np.float64)
    return found


def compute_window_metrics(facts: SharedWindowFacts, made: WindowSchedule) -> list[tuple[float, FloatArray]]:
    """Return the values of `WINDOW_METRICS`, each as observed and in each draw."""
    blocks, counted, block = facts.blocks, facts.counted, facts.block_of_counted_jobs
    wait_s = waits_s(made, counted)
    run_s = (made.end_s - made.start_s)[counted]
    wide = facts.wide[counted]
    one = blocks.sums_by_block(block, 1.0)

    def mean_with_draws(values: npt.ArrayLike, where: npt.NDArray[np.bool_] | None = None) -> tuple[float, FloatArray]:
        if where is None:
            point, draws = blocks.ratios_with_draws(blocks.sums_by_block(block, values), one)
        else:
            weights = where.astype(np.float64)
            point, draws = blocks.ratios_with_draws(
                blocks.sums_by_block(block, np.asarray(values) * weights), blocks.sums_by_block(block, weights)
            )
        return float(point[0]), draws[0]

    hourly = hourly_usage(facts, made)
    longest = float(wait_s.max(initial=0.0))
    return [
        mean_with_draws(wait_s),
        blocks.wait_quantile(block, wait_s, 0.5),
        blocks.wait_quantile(block, wait_s, 0.95),
        mean_with_draws(bounded_slowdown(wait_s, run_s)),
        mean_with_draws(100.0 * (wait_s >= LONG_WAIT_S)),
        mean_with_draws(wait_s, wide),
        (longest, np.full(len(blocks.drawn), longest)),
        _mean_percentage(facts, hourly.used, facts.machine),
        _mean_percentage(facts, hourly.empty, facts.machine),
        _mean_percentage(facts, hourly.empty_gpus, facts.machine_gpus),
    ]


def _mean_percentage(facts: SharedWindowFacts, hourly: FloatArray, of: int) -> tuple[float, FloatArray]:
    """Return the mean of hourly values as a percentage of the machine."""
    if not of:
        return float("nan"), np.full(len(facts.blocks.drawn), np.nan)
    at_s = facts.window.from_s + np.arange(len(hourly)) * HOUR_S
    block = facts.blocks.block_of_times(at_s)
    above = facts.blocks.sums_by_block(block, 100.0 * hourly / of)
    point, draws = facts.blocks.ratios_with_draws(above, facts.blocks.sums_by_block(block, 1.0))
    return float(point[0]), draws[0]


@dataclass(frozen=True, slots=True, eq=False)
class HourlyUtilization:
    """Mean values for each hour of a window, float64[hours]."""

    used: FloatArray
    empty: FloatArray
    """Number of processors unused while a job waited."""
    empty_gpus: FloatArray
    waiting: FloatArray
    """Number of waiting jobs."""


def hourly_usage(facts: SharedWindowFacts, made: WindowSchedule) -> HourlyUtilization:
    """Return utilization and queue length by hour."""
    window = facts.window
    ran, is_job = made.start_s != NEVER, window.role != OUTAGE
    left_s = np.where(ran, made.start_s, np.where(window.leaves_s != NEVER, window.leaves_s, made.arrival_s))
    left_s = np.maximum(left_s, made.arrival_s)
    edges = window.from_s + HOUR_S * np.arange((window.to_s - window.from_s) // HOUR_S + 1)
    if len(edges) < 2:
        edges = np.array([window.from_s, window.to_s])
    works, wants_gpus = ran & is_job, (facts.gpus > 0) & is_job
    used = _step_function(made.start_s[works], made.end_s[works], facts.processors[works])
    taken = _step_function(made.start_s[ran], made.end_s[ran], facts.processors[ran])
    taken_gpus = _step_function(made.start_s[ran], made.end_s[ran], facts.gpus[ran])
    one = np.ones(len(ran), np.int64)
    waiting = _step_function(made.arrival_s[is_job], left_s[is_job], one[is_job])
    waiting_gpus = _step_function(made.arrival_s[wants_gpus], left_s[wants_gpus], one[wants_gpus])
    return HourlyUtilization(
        _mean_between_edges(used, edges),
        _mean_between_edges(_unused_processors(taken, waiting, facts.machine), edges),
        _mean_between_edges(_unused_processors(taken_gpus, waiting_gpus, facts.machine_gpus), edges),
        _mean_between_edges(waiting, edges),
    )


Line = tuple[IntArray, IntArray]
"""Ascending times, and the value from each time until the next. Before the first time, the value is 0."""


def _step_function(begin_s: IntArray, end_s: IntArray, weight: IntArray) -> Line:
    if not len(begin_s):
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    return count_overlapping_intervals(begin_s, end_s, weight)


def _value_at(line: Line, at_s: IntArray) -> IntArray:
    place = np.searchsorted(line[0], at_s, side="right") - 1
    found: IntArray = np.where(place >= 0, line[1][np.maximum(place, 0)], 0)
    return found


def _unused_processors(used: Line, waiting: Line, machine: int) -> Line:
    """Return the number of unused processors while jobs wait, over time."""
    at_s = np.union1d(used[0], waiting[0])
    return at_s, np.where(_value_at(waiting, at_s) > 0, np.maximum(0, machine - _value_at(used, at_s)), 0)


def _mean_between_edges(line: Line, edges: IntArray) -> FloatArray:
    """Return the mean value between consecutive edges."""
    at_s = np.union1d(line[0], edges)
    area = np.concatenate(([0.0], np.cumsum(_value_at(line, at_s)[:-1] * np.diff(at_s).astype(np.float64))))
    upto = area[np.searchsorted(at_s, edges)]
    means: FloatArray = np.diff(upto) / np.diff(edges)
    return means
