"""What a schedule was worth: per job and in sum, float64, vectorised.

Symbols as in the field: W wait, D run time, F = W + D response time, r processors of a job (units x the first
resource of a unit; whole nodes where it has nodes for itself). Formulas: debs24 section 2; mod17 section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cpsched.model import IntArray

FloatArray = npt.NDArray[np.float64]

BSLD_BOUND_S = 10
"""Run times below this count as this much in the bounded slowdown (Feitelson et al.)."""


@dataclass(frozen=True)
class Measures:
    """The metrics of jobs given as columns, int64 each of the same length: one entry per job."""

    submit_s: IntArray
    start_s: IntArray
    end_s: IntArray
    processors: IntArray

    @cached_property
    def wait_s(self) -> FloatArray:
        """W per job."""
        return (self.start_s - self.submit_s).astype(np.float64)

    @cached_property
    def run_s(self) -> FloatArray:
        """D per job."""
        return (self.end_s - self.start_s).astype(np.float64)

    @cached_property
    def response_s(self) -> FloatArray:
        """F per job."""
        return (self.end_s - self.submit_s).astype(np.float64)

    @cached_property
    def slowdown(self) -> FloatArray:
        """F / D per job."""
        return self.response_s / self.run_s

    @cached_property
    def bounded_slowdown(self) -> FloatArray:
        """max(1, F / max(D, 10 s)) per job."""
        return np.maximum(1.0, self.response_s / np.maximum(self.run_s, BSLD_BOUND_S))

    @property
    def bsld(self) -> float:
        """Mean bounded slowdown."""
        return float(self.bounded_slowdown.mean())

    @property
    def af(self) -> float:
        """Mean response time (average flow)."""
        return float(self.response_s.mean())

    @property
    def awf(self) -> float:
        """Mean response time weighted by area: sum r D F / sum r D."""
        area = self.processors * self.run_s
        return float((area * self.response_s).sum() / area.sum())

    def pasf(self, a: int) -> float:
        """Per-area slowdown of level a: (a+1)/(a+2) x sum r (F^(a+2) - W^(a+2)) / sum r (F^(a+1) - W^(a+1))."""
        F, W, r = self.response_s, self.wait_s, self.processors
        upper = (r * (F ** (a + 2) - W ** (a + 2))).sum()
        lower = (r * (F ** (a + 1) - W ** (a + 1))).sum()
        return float((a + 1) / (a + 2) * upper / lower)

    @property
    def p2sf(self) -> float:
        """PaSF of level 2."""
        return self.pasf(2)

    @property
    def makespan_s(self) -> int:
        """From the first submission to the last end."""
        return int(self.end_s.max() - self.submit_s.min())

    def utilization(self, processors: int) -> float:
        """Share of a machine of so many processors that was in use over the makespan."""
        return float((self.processors * self.run_s).sum() / (processors * max(1, self.makespan_s)))

    def queue_length(self) -> tuple[IntArray, IntArray]:
        """Jobs waiting, as steps: (seconds ascending, length from then on). A job that starts at once never waits."""
        return steps(self.submit_s, self.start_s)

    def mean_queue_length(self) -> float:
        """Time average of the queue length over the makespan."""
        return float(self.wait_s.sum() / max(1, self.makespan_s))


def steps(begin_s: IntArray, end_s: IntArray) -> tuple[IntArray, IntArray]:
    """How many of the intervals [begin, end) hold each moment: (seconds ascending, count from then on)."""
    times = np.concatenate([begin_s, end_s])
    change = np.repeat(np.array([1, -1], dtype=np.int64), [len(begin_s), len(end_s)])
    at, where = np.unique(times, return_inverse=True)
    level = np.cumsum(np.bincount(where, weights=change, minlength=len(at)).astype(np.int64))
    return at, level


@dataclass(frozen=True, slots=True)
class Latencies:
    """Time per decision, in milliseconds."""

    mean_ms: float
    median_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, seconds: npt.ArrayLike) -> Latencies:
        """From the seconds of every decision; all 0 where there was none."""
        ms = np.asarray(seconds, dtype=np.float64) * 1e3
        if not len(ms):
            return cls(0.0, 0.0, 0.0, 0.0)
        return cls(float(ms.mean()), float(np.median(ms)), float(np.percentile(ms, 99)), float(ms.max()))
