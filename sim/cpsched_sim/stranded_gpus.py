"""Measure the GPUs that a schedule leaves stranded: idle, but useless for the site's typical requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cpsched.feasibility import placement_amount_arrays
from cpsched.kernels.fragmentation import stranded_by_node
from cpsched.model import NEVER, Cluster, Placement, Request, TypicalRequests
from cpsched.model.typical_requests import MILLION


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
