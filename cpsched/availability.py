"""Plans over what is free when: the one door from dispatchers to the compiled kernels.

`plan` answers, for a queue in some order, which jobs start now and when the others can: with no reservations (strict
or greedy), with one (EASY), with K (what Slurm does) or with one for every job that must wait (conservative).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np

from cpsched import kernels
from cpsched.dispatchers.waits import explain
from cpsched.kernels import GREEDY, STRICT
from cpsched.model import NEVER, NO_STARTS, Decision, Effort, IntArray, Need, Snapshot, Starts

Allocation = Literal["first-fit", "best-fit"]
"""Which nodes a start gets: in index order, or those with the fewest free resources first (mod17)."""

ALLOCATIONS = {"first-fit": kernels.FIRST_FIT, "best-fit": kernels.BEST_FIT}

EVERY = NEVER
"""As many reservations as there are jobs that must wait."""

ARRIVAL: IntArray = np.zeros(0, np.int64)
"""The order of the queue itself."""
ARRIVAL.setflags(write=False)

__all__ = ["ARRIVAL", "EVERY", "GREEDY", "STRICT", "Allocation", "plan"]


def plan(
    snapshot: Snapshot,
    need: Need,
    reservations: int,
    order: IntArray = ARRIVAL,
    backfill: IntArray = ARRIVAL,
    allocation: Allocation = "first-fit",
) -> Decision:
    """Take the queue in `order` (positions); the first `reservations` jobs that cannot start reserve a slot each.

    The others start iff that delays none of them. `backfill` is the order in which they are tried after a single
    reservation, where it differs. A reservation is a placement that holds throughout its slot.
    """
    table = snapshot.table
    if not len(snapshot.queue):
        return Decision(NO_STARTS, effort("empty-queue", 0), ARRIVAL if need == "plan" else None)
    columns = (
        snapshot.now_s, snapshot.free, snapshot.cluster.capacity, snapshot.queue, order, backfill, snapshot.running,
        table.estimate_s, table.units, table.per_unit, table.sharing, table.node_set, table.end_s, table.place_at,
        table.place_count, table.place_node, table.place_units,
    )  # fmt: skip
    cluster = snapshot.cluster
    if cluster.counted:
        slots, offsets, nodes, units, plan_s = kernels.plan_pool(*columns, reservations, need == "plan")
    else:
        slots, offsets, nodes, units, plan_s = kernels.plan_nodes(
            *columns, cluster.node_sets, cluster.kind_of, cluster.kind_node, ALLOCATIONS[allocation], reservations,
            need == "plan",
        )  # fmt: skip
    if not len(slots):
        starts, path = NO_STARTS, "none-starts"
    else:
        starts = Starts(slots, offsets, nodes, units)
        path = "all-start" if len(slots) == len(snapshot.queue) else "some-start"
    cost = effort(path, len(snapshot.queue))
    if need == "starts":
        return Decision(starts, cost)
    return Decision(starts, cost, plan_s, explain(snapshot, starts, plan_s))


@lru_cache(maxsize=4096)
def effort(path: str, considered: int) -> Effort:
    """The effort of a kernel's decision."""
    return Effort(path, considered)
