"""The metrics of a replay (see `cpsched.metrics`), and the time per decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpsched.metrics import METRICS, Metric, ScheduleData, count_overlapping_intervals

__all__ = ["METRICS", "DecisionTimes", "Metric", "ScheduleData", "count_overlapping_intervals", "metric_values"]


def metric_values(measures: ScheduleData, more: Sequence[Metric] = ()) -> dict[str, float]:
    """Return the number of jobs that ran, and the metrics by name, including `more`."""
    return {"jobs": len(measures.start_s), **{row.name: row.compute(measures) for row in (*METRICS, *more)}}


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """Time per decision in milliseconds, or None if not measured.

    The compiled loop does not call a dispatcher, so it does not measure decisions.
    """

    mean_ms: float | None
    median_ms: float | None
    p99_ms: float | None
    max_ms: float | None

    @classmethod
    def of(cls, seconds: npt.ArrayLike) -> DecisionTimes:
        """Compute the statistics from the duration of each decision in seconds."""
        ms = np.asarray(seconds, dtype=np.float64) * 1e3
        if not len(ms):
            return cls(None, None, None, None)
        return cls(float(ms.mean()), float(np.median(ms)), float(np.percentile(ms, 99)), float(ms.max()))
