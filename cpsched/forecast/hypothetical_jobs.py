"""When would a job start if it were submitted now, and what could run right now without delaying anybody?

Both ask the plan that is there: all queued jobs keep their order, and the job in question comes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from cpsched.forecast.start_sampling import job_subset
from cpsched.model import IntArray, Job, JobTable, Request, Snapshot
from cpsched.planning import PlannedQueue

HYPOTHETICAL_ID = -1
"""The id of a job that nobody has submitted."""
WINDOWS_S = (900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600)
"""How long what could run now may take, at most."""


def hypothetical_job(now_s: int, walltime_s: int, request: Request) -> Job:
    """A job that nobody has submitted. Raises `InvalidValue` for a walltime or a request that makes no sense."""
    return Job(HYPOTHETICAL_ID, now_s, walltime_s, request)


def with_hypothetical_job(snapshot: Snapshot, job: Job, before: IntArray | None = None) -> Snapshot:
    """The snapshot with `job` as the last of its queue; the job's estimate is its walltime.

    `before` int64[B]: only these positions of the queue, in that order, are in it; all of them by default. Raises
    `InvalidValue` for a request that does not go with the cluster.
    """
    queue = snapshot.queue if before is None else snapshot.queue[before]
    alone = JobTable.of(snapshot.cluster, [job])
    slots = np.append(queue, snapshot.running)
    table, queued = job_subset(snapshot.table, slots, alone), len(queue)
    queue = np.append(np.arange(queued, dtype=np.int64), len(slots))
    running = np.arange(queued, len(slots), dtype=np.int64)
    return Snapshot(snapshot.now_s, snapshot.cluster, snapshot.free, table, queue, running, by_construction=True)


def planned_queue(snapshot: Snapshot, plan_s: IntArray) -> PlannedQueue:
    """The whole queue in the order of its planned starts `plan_s` int64[Q], for `PlannedQueue.start_s` of further
    jobs.
    """
    one_core = Request(1, (1, *(0 for _ in snapshot.cluster.resources[1:])))
    whole = with_hypothetical_job(snapshot, hypothetical_job(snapshot.now_s, 1, one_core))
    queue = Snapshot(
        whole.now_s, whole.cluster, whole.free, whole.table, whole.queue[:-1], whole.running, by_construction=True
    )  # fmt: skip
    return PlannedQueue(queue, np.argsort(plan_s, kind="stable").astype(np.int64))


@dataclass(frozen=True, slots=True)
class BackfillWindow:
    """What could start right now."""

    whole: bool
    """Whether `units` are whole nodes; otherwise they are units of one core each, wherever there is room."""
    units: int
    walltime_s: int


def backfill_windows(snapshot: Snapshot, queue: PlannedQueue, node_set: int = 0) -> list[BackfillWindow]:
    """The most that could start right now on the nodes of `node_set` for each of `WINDOWS_S`, longest last.

    Only what is larger than all longer ones is told, whole nodes first. `queue`: that of the snapshot, `planned_queue`.
    """
    one_core = (1, *(0 for _ in snapshot.cluster.resources[1:]))
    whole = Request(1, one_core, True, True, node_set)
    found: list[BackfillWindow] = []
    if not snapshot.cluster.counted:
        found += _windows(snapshot, queue, whole)
    return found + _windows(snapshot, queue, Request(1, one_core, False, False, node_set))


def _windows(snapshot: Snapshot, queue: PlannedQueue, request: Request) -> list[BackfillWindow]:
    member = snapshot.cluster.node_sets[request.node_set]
    capacity, free = snapshot.cluster.capacity[member], snapshot.free[member]
    most = int((free == capacity).all(axis=1).sum()) if request.exclusive else int(free[:, 0].sum())
    found: list[BackfillWindow] = []
    for walltime_s in WINDOWS_S:
        most = _most(most, queue, hypothetical_job(snapshot.now_s, walltime_s, request))
        if found and found[-1].units == most:
            found.pop()
        if not most:
            break
        found.append(BackfillWindow(request.exclusive, most, walltime_s))
    return found


def _most(most: int, queue: PlannedQueue, job: Job) -> int:
    """The largest number of units, up to `most`, of which a job like `job` would start now; 0 where none would."""

    def starts(units: int) -> bool:
        return queue.start_s(replace(job, request=replace(job.request, units=units))) == job.submit_s

    if not most or starts(most):
        return most
    low, high = 0, most  # `low` units start, `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if starts(middle) else (low, middle)
    return low


def smaller_requests(job: Job) -> Iterable[tuple[str, Job]]:
    """What the owner of `job` could ask for instead, in words: half the time, one unit fewer."""
    if job.walltime_s >= 120:
        yield "half the time", replace(job, walltime_s=job.walltime_s // 2)
    if job.request.units > 1:
        fewer = job.request.units - 1
        yield f"{fewer} instead of {job.request.units}", replace(job, request=replace(job.request, units=fewer))
