"""Define the metrics of a schedule for summaries, reports, plots and the exporter.

Symbols are those of debs24: W wait, D run time, F = W + D response time, r processors of a job. r is the number of
units times a unit's amount of the first resource, or whole nodes for jobs with exclusive nodes. Times are in seconds,
columns have one entry per job, and results are float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from cpsched.errors import (
    CAUGHT_EXCEPTIONS,
    MAX_PLUGIN_MESSAGE_CHARS,
    PluginError,
    definition_location,
    describe_exception,
    escape_controls,
    plugin_source_location,
)
from cpsched.formatting import abbreviated_repr
from cpsched.model import BSLD_BOUND_S, EndedJob, IntArray, Job
from cpsched.registration import Registration
from cpsched.registry import Registry

FloatArray = npt.NDArray[np.float64]


def bounded_slowdown(wait_s: npt.ArrayLike, run_s: npt.ArrayLike) -> FloatArray:
    """Return max(1, (W + D) / max(D, 10 s)) per job, float64[J].

    W is the wait and D the run time. Source: Feitelson et al. 1997.
    """
    W, D = np.asarray(wait_s, np.float64), np.asarray(run_s, np.float64)
    slowdown: FloatArray = np.maximum(1.0, (W + D) / np.maximum(D, BSLD_BOUND_S))
    return slowdown


@dataclass(frozen=True)
class ScheduleData:
    """The jobs of a schedule, as int64 columns of equal length.

    `machine` is the cluster's number of processors. `jobs` contains the jobs in the same order, for metrics that need
    users or accounts. Both may be omitted if no metric uses them.
    """

    submit_s: IntArray
    start_s: IntArray
    end_s: IntArray
    processors: IntArray
    machine: int = 0
    jobs: Sequence[Job] = ()

    __repr__ = abbreviated_repr

    @classmethod
    def of(cls, ended: Sequence[EndedJob], machine: int = 0) -> ScheduleData:
        """Return the columns for ended jobs.

        An exclusive job counts only with the processors that it requested.
        """
        requests = [e.job.request for e in ended]
        return cls(
            submit_s=np.array([e.job.submit_s for e in ended], np.int64),
            start_s=np.array([e.start_s for e in ended], np.int64),
            end_s=np.array([e.start_s + e.run_s for e in ended], np.int64),
            processors=np.array([request.units * request.per_unit[0] for request in requests], np.int64),
            machine=machine,
            jobs=[e.job for e in ended],
        )

    @cached_property
    def wait_s(self) -> FloatArray:
        """W per job in seconds."""
        return (self.start_s - self.submit_s).astype(np.float64)

    @cached_property
    def run_s(self) -> FloatArray:
        """D per job in seconds."""
        return (self.end_s - self.start_s).astype(np.float64)

    @cached_property
    def response_s(self) -> FloatArray:
        """F per job in seconds."""
        return (self.end_s - self.submit_s).astype(np.float64)

    @cached_property
    def slowdown(self) -> FloatArray:
        """F / D per job."""
        return self.response_s / self.run_s

    @cached_property
    def bounded_slowdown(self) -> FloatArray:
        """max(1, (W + D) / max(D, 10 s)) per job."""
        return bounded_slowdown(self.wait_s, self.run_s)

    @property
    def bsld(self) -> float:
        """Mean bounded slowdown."""
        return float(self.bounded_slowdown.mean())

    @property
    def af(self) -> float:
        """Mean response time (average flow) in seconds."""
        return float(self.response_s.mean())

    @property
    def awf(self) -> float:
        """Mean response time weighted by area, in seconds: sum r D F / sum r D."""
        area = self.processors * self.run_s
        return float((area * self.response_s).sum() / area.sum())

    def pasf(self, a: int) -> float:
        """Return the per-area slowdown of level a (PaSF, debs24 section 2) in seconds.

        (a+1)/(a+2) x sum r (F^(a+2) - W^(a+2)) / sum r (F^(a+1) - W^(a+1)).
        """
        F, W, r = self.response_s, self.wait_s, self.processors
        upper = (r * (F ** (a + 2) - W ** (a + 2))).sum()
        lower = (r * (F ** (a + 1) - W ** (a + 1))).sum()
        return float((a + 1) / (a + 2) * upper / lower)

    @property
    def p2sf(self) -> float:
        """Per-area slowdown of level 2 in seconds."""
        return self.pasf(2)

    @property
    def makespan_s(self) -> int:
        """Time in seconds from the first submission to the last end."""
        return int(self.end_s.max() - self.submit_s.min())

    def utilization(self, processors: int) -> float:
        """Return the share of `processors` processors in use over the makespan."""
        return float((self.processors * self.run_s).sum() / (processors * max(1, self.makespan_s)))

    def queue_length(self) -> tuple[IntArray, IntArray]:
        """Return the number of waiting jobs over time.

        The columns are ascending times in seconds, and the number of jobs from each time on. A job that starts when it
        is submitted is never counted.
        """
        return count_overlapping_intervals(self.submit_s, self.start_s)


def count_overlapping_intervals(
    begin_s: IntArray, end_s: IntArray, weight: IntArray | None = None
) -> tuple[IntArray, IntArray]:
    """Return how many intervals [begin, end) contain each instant.

    The columns are ascending times in seconds, and the count from each time on. With `weight`, the sum of weights
    replaces the count.
    """
    times = np.concatenate([begin_s, end_s])
    each = np.ones(len(begin_s), np.int64) if weight is None else weight
    change = np.concatenate([each, -each])
    at, where = np.unique(times, return_inverse=True)
    level = np.cumsum(np.bincount(where, weights=change, minlength=len(at)).astype(np.int64))
    return at, level


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table: a metric's name, formula and direction.

    `of` computes the metric from at least one ended job. `per_job` returns the values of the jobs if the metric is
    their mean. `compared` metrics appear in comparisons, as percentages of the baseline. `drawn` metrics appear in
    plots.
    """

    name: str
    """Key in JSON and CSV, and attribute of a simulation."""
    heading: str
    """Heading in tables."""
    unit: str
    """Unit, or empty for dimensionless metrics."""
    formula: str
    source: str
    better: Literal["lower", "higher"]
    of: Callable[[ScheduleData], float]
    per_job: Callable[[ScheduleData], FloatArray] | None = None
    compared: bool = True
    drawn: bool = False

    def compute(self, measures: ScheduleData) -> float:
        """Return the metric's value.

        Raise `PluginError` if `of` fails or does not return a finite number.
        """
        try:
            value = self.of(measures)
            number = value.item() if isinstance(value, np.number) else value
            fine = isinstance(number, int | float) and math.isfinite(number)
        except CAUGHT_EXCEPTIONS as error:
            place = plugin_source_location(error) or definition_location(self.of)
            raise PluginError("metric", self.name, describe_exception(error), place) from error
        if not fine:
            found = escape_controls(repr(value)[:MAX_PLUGIN_MESSAGE_CHARS])
            raise PluginError(
                "metric", self.name, f"returned {found}: must be a finite number", definition_location(self.of)
            )
        return number

    @property
    def label(self) -> str:
        """Heading, unit and direction, for axes and lists."""
        unit = f", {self.unit}" if self.unit else ""
        return f"{self.heading}{unit} ({self.better} is better)"


METRICS: tuple[Metric, ...] = (
    Metric(
        "bsld", "BSLD", "", f"mean of max(1, F / max(D, {BSLD_BOUND_S} s))", "Feitelson et al. 1997; debs24 section 2",
        "lower", lambda m: m.bsld, lambda m: m.bounded_slowdown, drawn=True,
    ),
    Metric("af", "AF", "s", "mean of F", "debs24 section 2", "lower", lambda m: m.af, lambda m: m.response_s),
    Metric("awf", "AWF", "s", "sum of r D F / sum of r D", "debs24 section 2", "lower", lambda m: m.awf),
    Metric(
        "p2sf", "P2SF", "s", "3/4 x sum of r (F^4 - W^4) / sum of r (F^3 - W^3)", "debs24 section 2", "lower",
        lambda m: m.p2sf,
    ),
    Metric(
        "mean_slowdown", "mean slowdown", "", "mean of F / D", "mod17 section 5; cp19", "lower",
        lambda m: float(m.slowdown.mean()), lambda m: m.slowdown, drawn=True,
    ),
    Metric(
        "mean_wait_s", "mean wait", "s", "mean of W", "mod17 section 5; cp19", "lower",
        lambda m: float(m.wait_s.mean()), lambda m: m.wait_s, drawn=True,
    ),
    Metric(
        "utilization", "in use", "", "sum of r D / (processors of the machine x makespan)", "debs24 section 2",
        "higher", lambda m: m.utilization(m.machine),
    ),
    Metric(
        "makespan_s", "makespan", "s", "last end - first submission", "debs24 section 2", "lower",
        lambda m: m.makespan_s, compared=False,
    ),
)  # fmt: skip
"""All metrics, in the order of summaries, comparisons and plots."""


def known_metrics() -> Registry[Metric]:
    """Return the registry of `METRICS` and the metrics of installed packages."""
    rows = (Registration(m.name, m.formula, m.source, lambda m=m: m) for m in METRICS)
    return Registry("metric", "cpsched.metrics", Metric, (), tuple(rows))


def find_metric(name_or_metric: str | Metric) -> Metric:
    """Return a metric by name or `package.module:METRIC`.

    Raise `UnknownName`, `PluginLoadError` or `InvalidValue`.
    """
    return name_or_metric if isinstance(name_or_metric, Metric) else known_metrics().build(name_or_metric)
