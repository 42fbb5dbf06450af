"""Select the queued jobs to model: those that could start now, or ever."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel
from cpsched.jit.shared_structs import FixedColumn
from cpsched.kernels.cp.cp_state import CpInstance, PlanInstantState
from cpsched.kernels.cp.plan_instant import release_ended_running_jobs, request_same_unit_kind, reset_instant_to_now
from cpsched.kernels.fit_rules import UNBOUNDED, units_fitting_on_node
from cpsched.model import IntArray

MAX_CACHED_REQUESTS = 64
"""Number of distinct requests whose room is cached during a pass over the queue. Others are recounted."""


@kernel
def units_fitting_on_empty_nodes(facts: CpInstance, slot: int) -> IntArray:
    """Return how many units of job `slot` fit on each node if nothing runs, int64[N]."""
    room = np.empty(len(facts.machine.capacity), np.int64)
    for node in range(len(room)):
        room[node] = units_fitting_on_node(facts.table, slot, facts.machine, facts.machine.capacity, node)
    return room


@kernel
def startable_slots(facts: CpInstance, queue: FixedColumn, most: int) -> IntArray:
    """Return the first `most` slots whose jobs could each start now (cp19 section 3)."""
    N, R = facts.machine.free.shape

    # Most jobs in a long queue request more than the total free amounts, and are skipped immediately.
    pool = np.zeros(R, np.int64)
    for n in range(N):
        for r in range(R):
            pool[r] += max(facts.machine.free[n, r], 0)
    shapes, rooms = np.empty(MAX_CACHED_REQUESTS, np.int64), np.empty(MAX_CACHED_REQUESTS, np.int64)
    known = count = 0
    found = np.empty(min(most, len(queue)), np.int64)
    for i in range(len(queue)):
        slot = queue[i]
        enough = True
        for r in range(R):
            enough &= facts.table.per_unit[slot, r] * facts.table.units[slot] <= pool[r]
        if not enough:
            continue

        # Jobs that request the same kind of unit share one count of the nodes' room.
        room = -1
        for k in range(known):
            if request_same_unit_kind(facts, shapes[k], slot):
                room = rooms[k]
                break
        if room < 0:
            room = 0
            for n in range(N):
                room += units_fitting_on_node(facts.table, slot, facts.machine, facts.machine.free, n)
            if known < MAX_CACHED_REQUESTS:
                shapes[known], rooms[known] = slot, room
                known += 1
        if room >= facts.table.units[slot]:
            found[count] = slot
            count += 1
            if count == most:
                break
    return found[:count].copy()


@kernel
def ever_startable_slots(facts: CpInstance, queue: FixedColumn, moment: PlanInstantState) -> IntArray:
    """Return the slots whose jobs could each start once all running jobs have ended.

    Amounts that are out of service remain out of service.
    """
    reset_instant_to_now(facts, moment)
    release_ended_running_jobs(facts, moment, 0, UNBOUNDED)
    found = np.empty(len(queue), np.int64)
    count = 0
    for slot in queue:
        room = 0
        for node in range(len(moment.left)):
            room += min(
                facts.table.units[slot], units_fitting_on_node(facts.table, slot, facts.machine, moment.left, node)
            )
            if room >= facts.table.units[slot]:
                found[count] = slot
                count += 1
                break
    return found[:count].copy()
