"""The metrics of a replay (see `cpsched.metrics`), the time per decision, and the GPUs that a schedule leaves stranded.

Stranded GPUs are idle, but useless for the site's typical requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cpsched.feasibility import placement_amount_arrays
from cpsched.kernels.fragmentation import stranded_by_node
from cpsched.metrics import METRICS, Metric, ScheduleData, count_overlapping_intervals
from cpsched.model import NEVER, Cluster, Placement, Request, TypicalRequests
from cpsched.model.typical_requests import MILLION

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


class GpuUse(NamedTuple):
    """Means over a period, in GPUs of the cluster."""

    stranded: float
    idle: float
    total: int


class PlacedRun(NamedTuple):
    """A job that held its nodes from `start_s` until `end_s`."""

    request: Request
    start_s: int
    end_s: int
    placement: Placement


def mean_stranded_gpus(
    runs: Sequence[PlacedRun], cluster: Cluster, typical: TypicalRequests, from_s: int, to_s: int
) -> GpuUse:
    """Return the mean use of GPUs from `from_s` until `to_s`.

    Each change of a node's free amounts updates the node's fragmentation.
    """
    free, gpu = cluster.capacity.copy(), typical.gpu
    by_node = stranded_by_node(typical, free)
    stranded, idle, at_s = int(by_node.sum()), int(free[:, gpu].sum()), from_s
    stranded_s = idle_s = 0
    events = [(run.start_s, -1, run) for run in runs] + [(run.end_s, 1, run) for run in runs if run.end_s != NEVER]
    for time_s, sign, run in sorted(events, key=lambda event: (event[0], -event[1])):
        until_s = min(max(time_s, at_s), to_s)
        stranded_s += stranded * (until_s - at_s)
        idle_s += idle * (until_s - at_s)
        at_s = until_s

        nodes, amounts = placement_amount_arrays(run.request, run.placement, cluster.capacity)
        free[nodes] += sign * amounts
        idle += sign * int(amounts[:, gpu].sum())
        after = stranded_by_node(typical, free[nodes])
        stranded += int((after - by_node[nodes]).sum())
        by_node[nodes] = after
    lasts_s = to_s - from_s
    stranded_s += stranded * (to_s - at_s)
    idle_s += idle * (to_s - at_s)
    return GpuUse(stranded_s / lasts_s / MILLION, idle_s / lasts_s, int(cluster.capacity[:, gpu].sum()))
