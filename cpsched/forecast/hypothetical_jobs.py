"""Compute when hypothetical jobs would start, and which jobs could start now.

Both computations use the current plan: all queued jobs keep their order, and the additional job comes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from cpsched.forecast.start_sampling import job_subset
from cpsched.model import IntArray, Job, JobTable, Request, Snapshot
from cpsched.planning import WillRunEstimator

HYPOTHETICAL_ID = -1
"""The id of a hypothetical job."""
WINDOWS_S = (900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600)
"""Walltimes of backfill windows, in seconds."""


def hypothetical_job(now_s: int, walltime_s: int, request: Request) -> Job:
    """Return a hypothetical job. Raise `InvalidValue` for invalid arguments."""
    return Job(HYPOTHETICAL_ID, now_s, walltime_s, request)


def with_hypothetical_job(snapshot: Snapshot, job: Job, before: IntArray | None = None) -> Snapshot:
    """Return the snapshot with `job` appended to its queue.

    The job's estimate is its walltime. `before` (int64[B]) selects and orders the queue positions to keep. By default,
    all are kept. Raise `InvalidValue` for a request that does not match the cluster.
    """
    queue = snapshot.queue if before is None else snapshot.queue[before]
    alone = JobTable.of(snapshot.cluster, [job])
    slots = np.append(queue, snapshot.running)
    table, queued = job_subset(snapshot.table, slots, alone), len(queue)
    queue = np.append(np.arange(queued, dtype=np.int64), len(slots))
    running = np.arange(queued, len(slots), dtype=np.int64)
    return Snapshot(snapshot.now_s, snapshot.cluster, snapshot.free, table, queue, running, by_construction=True)


def planned_queue(snapshot: Snapshot, plan_s: IntArray) -> WillRunEstimator:
    """Return a start estimator for the queue placed in order of `plan_s` (int64[Q])."""
    one_core = Request(1, (1, *(0 for _ in snapshot.cluster.resources[1:])))
    whole = with_hypothetical_job(snapshot, hypothetical_job(snapshot.now_s, 1, one_core))
    queue = Snapshot(
        whole.now_s, whole.cluster, whole.free, whole.table, whole.queue[:-1], whole.running, by_construction=True
    )  # fmt: skip
    return WillRunEstimator(queue, np.argsort(plan_s, kind="stable").astype(np.int64))


@dataclass(frozen=True, slots=True)
class BackfillWindow:
    """The largest request of one kind and walltime that could start right now."""

    exclusive: bool
    """Whether `units` are whole nodes. Otherwise, each unit is one core on any node."""
    units: int
    walltime_s: int


def backfill_windows(snapshot: Snapshot, queue: WillRunEstimator, node_set: int = 0) -> list[BackfillWindow]:
    """Return the largest requests that could start on `node_set` right now.

    There is one window per walltime in `WINDOWS_S`, shortest first. A window is omitted if a longer window is as large.
    Windows for whole nodes come first. `queue` is the `planned_queue` of the snapshot.
    """
    one_core = (1, *(0 for _ in snapshot.cluster.resources[1:]))
    whole = Request(1, one_core, True, True, node_set)
    found: list[BackfillWindow] = []
    if not snapshot.cluster.counted:
        found += _find_windows(snapshot, queue, whole)
    return found + _find_windows(snapshot, queue, Request(1, one_core, False, False, node_set))


def _find_windows(snapshot: Snapshot, queue: WillRunEstimator, request: Request) -> list[BackfillWindow]:
    member = snapshot.cluster.node_sets[request.node_set]
    capacity, free = snapshot.cluster.capacity[member], snapshot.free[member]
    most = int((free == capacity).all(axis=1).sum()) if request.exclusive else int(free[:, 0].sum())
    found: list[BackfillWindow] = []
    for walltime_s in WINDOWS_S:
        most = _max_startable_units(most, queue, hypothetical_job(snapshot.now_s, walltime_s, request))
        if found and found[-1].units == most:
            found.pop()
        if not most:
            break
        found.append(BackfillWindow(request.exclusive, most, walltime_s))
    return found


def _max_startable_units(most: int, queue: WillRunEstimator, job: Job) -> int:
    """Return the most units, up to `most`, with which `job` could start now."""

    def would_start_now(units: int) -> bool:
        return queue.start_s(replace(job, request=replace(job.request, units=units))) == job.submit_s

    if not most or would_start_now(most):
        return most
    low, high = 0, most  # `low` units can start, but `high` units cannot
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if would_start_now(middle) else (low, middle)
    return low


def smaller_requests(job: Job) -> Iterable[tuple[str, Job]]:
    """Yield descriptions and variants of `job` with half the time or one unit fewer."""
    if job.walltime_s >= 120:
        yield "half the time", replace(job, walltime_s=job.walltime_s // 2)
    if job.request.units > 1:
        fewer = job.request.units - 1
        yield f"{fewer} instead of {job.request.units}", replace(job, request=replace(job.request, units=fewer))
