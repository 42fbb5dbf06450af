"""What a replay was worth: the table of metrics (see `cpsched.metrics`), and beside it the time per decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpsched.metrics import METRICS, Measures, Metric, steps

__all__ = ["METRICS", "Latencies", "Measures", "Metric", "steps"]


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
