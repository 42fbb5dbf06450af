"""Compute by cause how much capacity was unused while jobs waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpsched.model import NEVER, BoolArray, Cluster, IntArray, Request
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
    `Schedule`.
    """

    arrival_s: IntArray
    left_s: IntArray
    start_s: IntArray
    end_s: IntArray
    place_at: IntArray
    place_count: IntArray
    place_node: IntArray
    place_units: IntArray


def compute_stranded_capacity(
    cluster: Cluster, requests: Sequence[Request], away: BoolArray, ran: PlacedSchedule, from_s: int, to_s: int
) -> FloatArray:
    """Return by cause the mean capacity that was unused while jobs waited.

    The shape is float64[2, len(CAUSES)], for processors and GPUs. `away` marks the jobs that represent unavailable
    nodes. GPUs count only while a waiting job requests a GPU.
    """
    number: dict[Request, int] = {}
    kind = np.array([number.setdefault(request, len(number)) for request in requests], np.int64)
    asked = _DistinctRequests.of(cluster, list(number))
    looks_s = np.linspace(from_s, to_s, min(MAX_SAMPLES, max(1, (to_s - from_s) // HOUR_S)), endpoint=False)
    found = np.zeros((2, len(CAUSES)))
    for at_s in looks_s.astype(np.int64).tolist():
        waits = (ran.arrival_s <= at_s) & (ran.left_s > at_s) & ~away
        if waits.any():
            active = np.flatnonzero((ran.start_s <= at_s) & (ran.end_s > at_s) & (ran.start_s != NEVER))
            counts = np.bincount(kind[waits], minlength=len(number))
            waiting = np.argsort(-counts, kind="stable")[: min(MAX_REQUESTS, int((counts > 0).sum()))]
            found += _unused_capacity_by_cause(
                cluster, asked, waiting, *_free_amounts(cluster, asked, kind, away, ran, active)
            )
    return found / max(1, len(looks_s))


@dataclass(frozen=True, slots=True, eq=False)
class _DistinctRequests:
    """The distinct requests as columns.

    `memory` and `gpus` are indices of resources, or -1 if the resource does not exist.
    """

    per_unit: IntArray
    exclusive: BoolArray
    node_set: IntArray
    memory: int
    gpus: int

    @classmethod
    def of(cls, cluster: Cluster, requests: list[Request]) -> _DistinctRequests:
        names = cluster.resources
        gpus = next((names.index(name) for name in ("gpus", "gpu") if name in names), -1)
        return cls(
            np.array([request.per_unit for request in requests], np.int64).reshape(len(requests), len(names)),
            np.array([request.exclusive for request in requests], np.bool_),
            np.array([request.node_set for request in requests], np.int64),
            names.index("memory_mib") if "memory_mib" in names else -1, gpus,
        )  # fmt: skip


def _free_amounts(
    cluster: Cluster, asked: _DistinctRequests, kind: IntArray, away: BoolArray, ran: PlacedSchedule, active: IntArray
) -> tuple[IntArray, BoolArray]:
    """Return each node's free amounts, int64[N, R], and a mask of unavailable nodes."""
    count = ran.place_count[active]
    job = np.repeat(active, count)
    first = np.repeat(ran.place_at[active] - np.concatenate(([0], np.cumsum(count)[:-1])), count)
    at = first + np.arange(len(job))
    node, units = ran.place_node[at], ran.place_units[at]
    takes = units[:, None] * asked.per_unit[kind[job]]
    whole = asked.exclusive[kind[job]]
    takes[whole] = cluster.capacity[node[whole]]
    free = cluster.capacity.copy()
    for r in range(free.shape[1]):
        free[:, r] -= np.bincount(node, takes[:, r], cluster.size).astype(np.int64)
    gone = np.zeros(cluster.size, np.bool_)
    gone[node[away[job]]] = True
    return free, gone


def _unused_capacity_by_cause(
    cluster: Cluster, asked: _DistinctRequests, waiting: IntArray, free: IntArray, gone: BoolArray
) -> FloatArray:
    """Return the unused capacity at one time, by cause. Equal nodes are examined once."""
    rows, size = np.unique(np.column_stack((cluster.kind_of, gone, free)), axis=0, return_counts=True)
    node: IntArray = cluster.kind_node[rows[:, 0]]
    away, left = rows[:, 1] == 1, rows[:, 2:].astype(np.int64)
    found = np.zeros((2, len(CAUSES)))
    for what, column in ((PROCESSORS, 0), (GPUS, asked.gpus)):
        who = waiting if what == PROCESSORS else waiting[asked.per_unit[waiting, column] > 0]
        if column < 0 or not len(who):
            continue
        empty = np.where(away, cluster.capacity[node, column], left[:, column]) * size
        found[what] = np.bincount(_cause_by_node_kind(cluster, asked, who, node, left, away), empty, len(CAUSES))
    return found


def _cause_by_node_kind(
    cluster: Cluster, asked: _DistinctRequests, who: IntArray, node: IntArray, left: IntArray, away: BoolArray
) -> npt.NDArray[np.intp]:
    """Return the cause of free capacity per group of nodes while `who` wait."""
    may = cluster.node_sets[asked.node_set[who]][:, node]
    untouched = (left == cluster.capacity[node]).all(axis=1)
    alone = may & (~asked.exclusive[who][:, None] | untouched)
    enough = asked.per_unit[who][:, None, :] <= left[None, :, :]

    def fits(*without: int) -> BoolArray:
        kept = [r for r in range(left.shape[1]) if r not in without]
        any_: BoolArray = (alone & enough[:, :, kept].all(axis=2)).any(axis=0)
        return any_

    choices = [away, fits(), ~may.any(axis=0), fits(asked.memory), fits(0, asked.memory)]
    return np.select(choices, [AWAY, HELD, PARTITION, MEMORY, CORES], WHOLE)
