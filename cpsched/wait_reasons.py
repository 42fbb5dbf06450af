"""Explain why queued jobs wait, and behind which jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from cpsched.feasibility import fills_blocks, units_fitting_by_node, why_infeasible
from cpsched.kernels.fit_rules import add_to_free
from cpsched.model import (
    NEVER,
    IntArray,
    JobTable,
    PendingCode,
    PendingReason,
    Request,
    Snapshot,
    Starts,
    Wait,
)

MAX_LISTED_JOBS = 8
"""Maximum number of jobs that a wait lists."""


def explain_waits(
    snapshot: Snapshot,
    starts: Starts,
    plan_s: IntArray,
    planned: PendingCode = PendingCode.RESERVED,
    unplanned: PendingCode = PendingCode.RESERVED,
) -> dict[int, Wait]:
    """Return a `Wait` for every queued job that does not start, by job id.

    `plan_s`, int64[Q], is in queue order.

    - A job that does not fit on the empty cluster waits forever, behind no job.
    - A job with a known start waits behind the jobs that are expected to end then. If there are none, it waits behind
      the jobs that start now.
    - A job without a known start waits behind the jobs that have a known start. If there are none, it waits behind the
      first job that cannot start.

    The reason states what the free nodes lack after `starts`. If they lack nothing, the code is the argument `planned`
    if the job has a planned start, `unplanned` if only other jobs have one, and `PRIORITY` otherwise.
    """
    table, started = snapshot.table, set(starts.slots.tolist())
    free = free_after_starts(snapshot, starts)
    ends = _job_ids_by_end(snapshot, plan_s)
    starting = tuple(table.jobs[slot].id for slot in starts.slots[:MAX_LISTED_JOBS].tolist())
    pairs = [p for p in zip(snapshot.queue.tolist(), plan_s.tolist(), strict=True) if p[0] not in started]
    with_plan = tuple(table.jobs[slot].id for slot, start_s in pairs if start_s != NEVER)[:MAX_LISTED_JOBS]
    fitting, later = PendingReason(unplanned if with_plan else PendingCode.PRIORITY), PendingReason(planned)
    known: dict[tuple[int, ...], PendingReason | None] = {}
    unplanned_waits: dict[tuple[PendingReason | None, bool], Wait] = {}
    waits: dict[int, Wait] = {}
    first_waiting: tuple[int, ...] = ()
    for (slot, start_s), requested in zip(pairs, _request_keys(table, [slot for slot, _ in pairs]), strict=True):
        job = table.jobs[slot]
        # Queues can have 50,000 jobs, so each distinct request is checked only once.
        if requested not in known:
            known[requested] = _lacking_resources(job.request, snapshot, free)
        lacking = known[requested]
        if lacking is not None and lacking.code is PendingCode.NEVER:
            waits[job.id] = Wait(lacking)
            continue
        if start_s != NEVER:
            waits[job.id] = Wait(lacking or later, tuple(ends[start_s]) or starting)
        else:
            key = lacking, bool(first_waiting)
            if key not in unplanned_waits:
                unplanned_waits[key] = Wait(lacking or fitting, with_plan or first_waiting)
            waits[job.id] = unplanned_waits[key]
        first_waiting = first_waiting or (job.id,)
    return waits


def _request_keys(table: JobTable, slots: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield a tuple of numbers per job. Equal requests have equal tuples."""
    at = np.array(slots, np.int64)
    columns = table.units[at], table.sharing[at], table.node_set[at], *table.per_unit[at].T
    return zip(*(column.tolist() for column in columns), strict=True)


def free_after_starts(snapshot: Snapshot, starts: Starts) -> IntArray:
    """Return the amounts that are free after `starts`, int64[N, R]."""
    free = snapshot.free.copy()
    total_free = free.sum(axis=0)
    for i, slot in enumerate(starts.slots.tolist()):
        part = slice(int(starts.offsets[i]), int(starts.offsets[i + 1]))
        nodes, units = starts.nodes[part], starts.units[part]
        add_to_free(snapshot.table, slot, snapshot.cluster, nodes, units, free, total_free, -1)
    return free


def _job_ids_by_end(snapshot: Snapshot, plan_s: IntArray) -> defaultdict[int, list[int]]:
    """Return ids of running and planned jobs, by expected end in seconds."""
    table, found = snapshot.table, defaultdict[int, list[int]](list)
    planned = plan_s + np.where(plan_s == NEVER, 0, table.estimate_s[snapshot.queue])
    slots, seconds = np.append(snapshot.running, snapshot.queue), np.append(table.end_s[snapshot.running], planned)
    known = seconds != NEVER
    for slot, end_s in zip(slots[known].tolist(), seconds[known].tolist(), strict=True):
        if len(found[end_s]) < MAX_LISTED_JOBS:
            found[end_s].append(table.jobs[slot].id)
    return found


def _lacking_resources(request: Request, snapshot: Snapshot, free: IntArray) -> PendingReason | None:
    """Return what the free nodes or the empty cluster lack for `request`.

    Return None if `request` fits.
    """
    rule = why_infeasible(request, snapshot.cluster)
    if rule is not None:
        return PendingReason(PendingCode.NEVER, (rule,))
    room = units_fitting_by_node(request, snapshot.cluster, free)
    fits = int(room.sum())
    if fits >= request.units:
        is_filled = fills_blocks(room, request, snapshot.cluster)
        return None if is_filled else PendingReason(PendingCode.BLOCKS, (request.units,))
    code = PendingCode.WHOLE_NODES if request.exclusive else PendingCode.RESOURCES
    return PendingReason(code, (fits, request.units))
