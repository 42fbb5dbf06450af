"""Estimate the nodes of planned jobs.

Plans rarely include nodes, but the chart needs start times and nodes. Jobs are placed on free capacity, in the order of
their planned starts, using the common fit rule. The result is a consistent schedule, but the dispatcher may later
choose other nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from cpsched.feasibility import amounts_by_node, choose_nodes, units_fitting_by_node
from cpsched.model import NEVER, Decision, IntArray, Placement, Request, Snapshot
from cpsched_bridge.ports import Outage

MAX_PLACED_JOBS = 400
"""Maximum number of planned jobs to place."""


def estimate_planned_placements(
    snapshot: Snapshot, decision: Decision, until_s: int, outages: Sequence[Outage] = ()
) -> dict[int, tuple[int, int, Placement]]:
    """Return (begin, end, placement) by job id for planned jobs.

    These jobs start now or before `until_s`. The placement is empty if the job does not fit at that time. Jobs that do
    not start now are not placed on a node during an outage.
    """
    table, capacity = snapshot.table, snapshot.cluster.capacity
    free = snapshot.free.copy()
    ends: list[tuple[int, int, Request, Placement]] = [
        (int(table.end_s[slot]), slot, table.jobs[slot].request, snapshot.placement_of(slot))
        for slot in snapshot.running.tolist()
    ]
    found: dict[int, tuple[int, int, Placement]] = {}
    for slot, placement in decision.starts.placements().items():
        job, end_s = table.jobs[slot], snapshot.now_s + int(table.estimate_s[slot])
        _subtract_job_amounts(free, job.request, placement, capacity)
        ends.append((end_s, slot, job.request, placement))
        found[job.id] = (snapshot.now_s, end_s, placement)
    heapq.heapify(ends)
    for start_s, slot in _list_planned_jobs(snapshot, decision, until_s, found):
        while ends and ends[0][0] <= start_s:
            _, _, request, placement = heapq.heappop(ends)
            _add_back_job_amounts(free, request, placement, capacity)
        job, end_s = table.jobs[slot], start_s + int(table.estimate_s[slot])
        shut = {node for out in outages if start_s < (out.to_s or NEVER) and out.from_s < end_s for node in out.nodes}
        placement = _find_first_free_nodes(job.request, snapshot, free, shut)
        if placement:
            _subtract_job_amounts(free, job.request, placement, capacity)
            heapq.heappush(ends, (end_s, slot, job.request, placement))
        found[job.id] = (start_s, end_s, placement)
    return found


def _list_planned_jobs(
    snapshot: Snapshot, decision: Decision, until_s: int, started: dict[int, tuple[int, int, Placement]]
) -> list[tuple[int, int]]:
    """Return (start, slot) for the first planned jobs, in order of start."""
    if decision.plan_s is None:
        return []
    pairs = zip(decision.plan_s.tolist(), snapshot.queue.tolist(), strict=True)
    jobs = snapshot.table.jobs
    return sorted(pair for pair in pairs if pair[0] != NEVER and pair[0] < until_s and jobs[pair[1]].id not in started)[
        :MAX_PLACED_JOBS
    ]


def _find_first_free_nodes(request: Request, snapshot: Snapshot, free: IntArray, shut: Collection[int]) -> Placement:
    """Return a placement on the first free nodes without an outage.

    It is empty if there are too few nodes.
    """
    room = units_fitting_by_node(request, snapshot.cluster, free)
    room[list(shut)] = 0
    return choose_nodes(room, request.units, snapshot.cluster, request.node_set)


def _subtract_job_amounts(free: IntArray, request: Request, placement: Placement, capacity: IntArray) -> None:
    for node, amounts in amounts_by_node(request, placement, capacity).items():
        free[node] -= amounts


def _add_back_job_amounts(free: IntArray, request: Request, placement: Placement, capacity: IntArray) -> None:
    """Add a job's amounts to `free`, up to the capacity of each node."""
    for node, amounts in amounts_by_node(request, placement, capacity).items():
        free[node] = (free[node] + amounts).clip(max=capacity[node])
