"""Plans over what is free when: the one door from dispatchers to the compiled kernels.

`plan` answers, for a queue in some order, which jobs start now and when the others can: with no reservations (strict
or greedy), with one (EASY), with K (what Slurm does) or with one for every job that must wait (conservative).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from cpsched import kernels
from cpsched.kernels import GREEDY, STRICT, plan_counted, plan_placed
from cpsched.model import NEVER, NO_STARTS, Decision, Effort, IntArray, Need, Snapshot, Starts, frozen_array
from cpsched.reasons import explain

OrderName = Literal["reg", "shortest", "longest", "sjf", "ljf", "saf", "laf", "spf", "given"]
"""Orders of the queue (debs24 section 3, mod17 section 4); E is the estimate, r the processors: units times the amount
of the cluster's first resource. `reg` arrival; `shortest` E; `longest` -E; `sjf` (E, r); `ljf` (-E, r); `saf` r*E;
`laf` -r*E; `spf` (r*E², r*E); `given` from outside. Remaining ties in order of arrival."""

ORDERS: dict[OrderName, int] = {
    "reg": kernels.ARRIVAL,
    "shortest": kernels.SHORTEST,
    "longest": kernels.LONGEST,
    "sjf": kernels.SJF,
    "ljf": kernels.LJF,
    "saf": kernels.SAF,
    "laf": kernels.LAF,
    "spf": kernels.SPF,
    "given": kernels.GIVEN,
}

Allocation = Literal["first-fit", "best-fit"]
"""Which nodes a start gets: in index order, or those with the fewest free resources first (mod17)."""

ALLOCATIONS: dict[Allocation, int] = {"first-fit": kernels.FIRST_FIT, "best-fit": kernels.BEST_FIT}

EVERY = NEVER
"""As many reservations as there are jobs that must wait."""

AS_THEY_CAME = frozen_array([])
"""No positions: the order of the queue itself."""

NO_GROUPS = (
    np.zeros(0, np.int64), np.zeros((4, 0), np.int64), np.zeros(0, np.int64), np.zeros((0, 0), np.int64),
    np.zeros(4, np.int64),
)  # fmt: skip
FIRST_ROOM = 64
"""Entries of placements that a plan makes room for at first, besides one for every eighth node."""


@dataclass(frozen=True, slots=True)
class Rule:
    """All that makes one list scheduler differ from another.

    The first `reservations` jobs in `order` that cannot start reserve a slot each, a placement that holds throughout;
    the others start iff that delays none of them. `backfill` is the order in which they are tried after a single
    reservation, where it differs (not `reg`).
    """

    reservations: int
    order: OrderName = "reg"
    backfill: OrderName = "reg"
    allocation: Allocation = "first-fit"

    _codes: dict[tuple[bool, bool], IntArray] = field(default_factory=dict, init=False, compare=False, repr=False)

    def codes(self, counted: bool, want_plan: bool) -> IntArray:
        """The rule as the kernel reads it."""
        key = (counted, want_plan)
        if key not in self._codes:
            order, backfill, where = ORDERS[self.order], ORDERS[self.backfill], ALLOCATIONS[self.allocation]
            self._codes[key] = frozen_array([order, backfill, self.reservations, where, counted, want_plan])
        return self._codes[key]


def plan(snapshot: Snapshot, need: Need, rule: Rule, positions: IntArray = AS_THEY_CAME) -> Decision:
    """What `rule` decides; `positions` is the order of the queue where the rule's is `given`."""
    n = len(snapshot.queue)
    want_plan = need == "plan"
    if not n:
        return Decision(NO_STARTS, effort("empty-queue", 0), AS_THEY_CAME if want_plan else None)
    codes, room = rule.codes(snapshot.cluster.counted, want_plan), FIRST_ROOM + snapshot.cluster.size // 8
    while True:
        out = np.empty(3 * n + 1 + 2 * room, np.int64)
        count = _call_kernel(snapshot, positions, codes, out)
        if count >= 0:
            break
        room = -count
    starts = _starts(out, n, room, count) if count else NO_STARTS
    cost = effort("none-starts" if not count else "all-start" if count == n else "some-start", n)
    if not want_plan:
        return Decision(starts, cost)
    return Decision(starts, cost, out[:n], explain(snapshot, starts, out[:n]))


def _call_kernel(snapshot: Snapshot, positions: IntArray, codes: IntArray, out: IntArray) -> int:
    table, cluster = snapshot.table, snapshot.cluster
    if cluster.counted:
        return plan_counted(  # type: ignore[no-any-return]
            snapshot.now_s, snapshot.free, cluster.capacity, snapshot.queue, positions, snapshot.running, table.rows,
            table.per_unit, table.place_units, codes, out,
        )  # fmt: skip
    of, columns, at, free, used = snapshot.groups or NO_GROUPS
    return plan_placed(  # type: ignore[no-any-return]
        snapshot.now_s, snapshot.free, cluster.capacity, cluster.node_sets, cluster.kind_of, cluster.kind_node,
        snapshot.queue, positions, snapshot.running, table.rows, table.per_unit, table.place_node, table.place_units,
        of, columns, at, free, used, codes, out,
    )  # fmt: skip


def _starts(out: IntArray, n: int, room: int, count: int) -> Starts:
    entries = int(out[2 * n + count])
    nodes = 3 * n + 1
    units = nodes + room
    return Starts(out[n : n + count], out[2 * n : 2 * n + count + 1], out[nodes : nodes + entries],
                  out[units : units + entries])  # fmt: skip


@lru_cache(maxsize=4096)
def effort(path: str, considered: int) -> Effort:
    """The effort of a kernel's decision."""
    return Effort(path, considered)


__all__ = ["AS_THEY_CAME", "EVERY", "GREEDY", "ORDERS", "STRICT", "Allocation", "OrderName", "Rule", "plan"]
