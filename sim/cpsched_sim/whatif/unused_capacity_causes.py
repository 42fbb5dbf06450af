"""Compute by cause how much capacity was unused while jobs waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cpsched.model import NEVER, BoolArray, Cluster, IntArray, Request
from cpsched.model.typical_requests import find_gpu_column
from cpsched_sim.experiments.bootstrap_statistics import FloatArray

HELD, PARTITION, MEMORY, CORES, WHOLE, AWAY = range(6)
CAUSES = (
    "a waiting job would fit: kept free for others, by a limit, or until all its units fit",
    "no waiting job may use the node",
    "the node's memory is used up",
    "the node has too few free cores, or none for its GPUs",
    "the waiting jobs require whole nodes",
    "the node could not be used (down, drained)",
)
"""The causes, in the order of the codes above. An unavailable node counts only as unavailable. For any other node, only
the first cause that applies counts.
"""
PROCESSORS, GPUS = 0, 1
MAX_SAMPLES = 1000
"""Maximum number of samples. Long windows are sampled less often than hourly."""
MAX_REQUESTS = 256
"""Maximum number of distinct requests per sample. The most frequent requests of the waiting jobs are used."""
HOUR_S = 3600


@dataclass(frozen=True, slots=True, eq=False)
class PlacedSchedule:
    """A schedule with its placements, in columns int64[J].

    `left_s` is the time at which a job left the queue, because it started or was cancelled. Placements are as in
    `Schedule`. `is_outage` marks the jobs that represent unavailable nodes.
    """

    arrival_s: IntArray
    left_s: IntArray
    start_s: IntArray
    end_s: IntArray
    place_at: IntArray
    place_count: IntArray
    place_node: IntArray
    place_units: IntArray
    is_outage: BoolArray


def compute_stranded_capacity(
    cluster: Cluster, requests: Sequence[Request], schedule: PlacedSchedule, from_s: int, to_s: int
) -> FloatArray:
    """Return by cause the mean capacity that was unused while jobs waited.

    The shape is float64[2, len(CAUSES)], for processors and GPUs. GPUs count only while a waiting job requests a GPU.
    """
    distinct = _DistinctRequests.of(cluster, requests)
    looks_s = np.linspace(from_s, to_s, min(MAX_SAMPLES, max(1, (to_s - from_s) // HOUR_S)), endpoint=False)
    found = np.zeros((2, len(CAUSES)))
    for at_s in looks_s.astype(np.int64).tolist():
        waits = (schedule.arrival_s <= at_s) & (schedule.left_s > at_s) & ~schedule.is_outage
        if waits.any():
            has_started = (schedule.start_s <= at_s) & (schedule.start_s != NEVER)
            active = np.flatnonzero(has_started & (schedule.end_s > at_s))
            counts = np.bincount(distinct.of_job[waits], minlength=len(distinct.node_set))
            waiting = np.argsort(-counts, kind="stable")[: min(MAX_REQUESTS, int((counts > 0).sum()))]
            free, gone = _free_amounts(cluster, distinct, schedule, active)
            found += _unused_capacity_by_cause(cluster, distinct, waiting, free, gone)
    return found / max(1, len(looks_s))


@dataclass(frozen=True, slots=True, eq=False)
class _DistinctRequests:
    """The distinct requests as columns.

    `of_job` is the request of each job. `memory` is the index of a resource, or -1 if it does not exist. `gpus` is that
    of GPUs, or None.
    """

    per_unit: IntArray
    exclusive: BoolArray
    node_set: IntArray
    memory: int
    gpus: int | None
    of_job: IntArray

    @classmethod
    def of(cls, cluster: Cluster, requests_of_jobs: Sequence[Request]) -> _DistinctRequests:
        number: dict[Request, int] = {}
        of_job = np.array([number.setdefault(request, len(number)) for request in requests_of_jobs], np.int64)
        requests, names = list(number), cluster.resources
        return cls(
            np.array([request.per_unit for request in requests], np.int64).reshape(len(requests), len(names)),
            np.array([request.exclusive for request in requests], np.bool_),
            np.array([request.node_set for request in requests], np.int64),
            names.index("memory_mib") if "memory_mib" in names else -1, find_gpu_column(names), of_job,
        )  # fmt: skip


def _free_amounts(
    cluster: Cluster, distinct: _DistinctRequests, schedule: PlacedSchedule, active: IntArray
) -> tuple[IntArray, BoolArray]:
    """Return each node's free amounts, int64[N, R], and a mask of unavailable nodes."""
    count, request = schedule.place_count[active], distinct.of_job
    job = np.repeat(active, count)
    first = np.repeat(schedule.place_at[active] - np.concatenate(([0], np.cumsum(count)[:-1])), count)
    at = first + np.arange(len(job))
    node, units = schedule.place_node[at], schedule.place_units[at]
    takes = units[:, None] * distinct.per_unit[request[job]]
    whole = distinct.exclusive[request[job]]
    takes[whole] = cluster.capacity[node[whole]]
    free = cluster.capacity.copy()
    for r in range(free.shape[1]):
        free[:, r] -= np.bincount(node, takes[:, r], cluster.size).astype(np.int64)
    gone = np.zeros(cluster.size, np.bool_)
    gone[node[schedule.is_outage[job]]] = True
    return free, gone


def _unused_capacity_by_cause(
    cluster: Cluster, distinct: _DistinctRequests, waiting: IntArray, free: IntArray, gone: BoolArray
) -> FloatArray:
    """Return the unused capacity at one time, by cause. Equal nodes are examined once."""
    rows, size = np.unique(np.column_stack((cluster.kind_of, gone, free)), axis=0, return_counts=True)
    groups = _NodeGroups(cluster.kind_node[rows[:, 0]], rows[:, 2:].astype(np.int64), rows[:, 1] == 1)
    found = np.zeros((2, len(CAUSES)))
    for what, column in ((PROCESSORS, 0), (GPUS, distinct.gpus)):
        if column is None:
            continue
        who = waiting if what == PROCESSORS else waiting[distinct.per_unit[waiting, column] > 0]
        if not len(who):
            continue
        empty = np.where(groups.is_away, cluster.capacity[groups.node, column], groups.free[:, column]) * size
        found[what] = np.bincount(_cause_by_node_group(cluster, distinct, who, groups), empty, len(CAUSES))
    return found


class _NodeGroups(NamedTuple):
    """Groups of equal nodes: one node of each, its free amounts, and whether it is unavailable."""

    node: IntArray
    free: IntArray
    is_away: BoolArray


def _cause_by_node_group(
    cluster: Cluster, distinct: _DistinctRequests, who: IntArray, groups: _NodeGroups
) -> npt.NDArray[np.intp]:
    """Return the cause of free capacity per group of nodes while `who` wait."""
    may = cluster.node_sets[distinct.node_set[who]][:, groups.node]
    untouched = (groups.free == cluster.capacity[groups.node]).all(axis=1)
    alone = may & (~distinct.exclusive[who][:, None] | untouched)
    enough = distinct.per_unit[who][:, None, :] <= groups.free[None, :, :]

    def fits(*without: int) -> BoolArray:
        kept = [r for r in range(groups.free.shape[1]) if r not in without]
        any_: BoolArray = (alone & enough[:, :, kept].all(axis=2)).any(axis=0)
        return any_

    choices = [groups.is_away, fits(), ~may.any(axis=0), fits(distinct.memory), fits(0, distinct.memory)]
    return np.select(choices, [AWAY, HELD, PARTITION, MEMORY, CORES], WHOLE)
