"""Plans over what is free when: the one door from dispatchers to the compiled kernels.

`plan` answers, for a queue in some order, which jobs start now and when the others can: with no reservations (strict
or greedy), with one (EASY), with K (what Slurm does) or with one for every job that must wait (conservative).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from cpsched.kernels import orders
from cpsched.kernels.nodes import plan_placed
from cpsched.kernels.orders import GREEDY, STRICT
from cpsched.kernels.pool import plan_counted
from cpsched.kernels.state import (
    Method,
    Site,
    machine_of,
    new_draft,
    new_trial,
    no_groups,
    planned,
    starts_of,
)
from cpsched.model import NEVER, NO_STARTS, Decision, Effort, IntArray, Need, Snapshot, Starts, frozen_array
from cpsched.reasons import explain

OrderName = Literal["reg", "shortest", "longest", "sjf", "ljf", "saf", "laf", "spf", "given"]
"""Orders of the queue (debs24 section 3, mod17 section 4); E is the estimate, r the processors: units times the amount
of the cluster's first resource. `reg` arrival; `shortest` E; `longest` -E; `sjf` (E, r); `ljf` (-E, r); `saf` r*E;
`laf` -r*E; `spf` (r*E², r*E); `given` from outside. Remaining ties in order of arrival."""

ORDERS: dict[OrderName, int] = {
    "reg": orders.ARRIVAL,
    "shortest": orders.SHORTEST,
    "longest": orders.LONGEST,
    "sjf": orders.SJF,
    "ljf": orders.LJF,
    "saf": orders.SAF,
    "laf": orders.LAF,
    "spf": orders.SPF,
    "given": orders.GIVEN,
}

Allocation = Literal["first-fit", "best-fit"]
"""Which nodes a start gets: in index order, or those with the fewest free resources first (mod17)."""

ALLOCATIONS: dict[Allocation, int] = {"first-fit": orders.FIRST_FIT, "best-fit": orders.BEST_FIT}

EVERY = NEVER
"""As many reservations as there are jobs that must wait."""

AS_THEY_CAME = frozen_array([])
"""No positions: the order of the queue itself."""


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

    _methods: dict[bool, Method] = field(default_factory=dict, init=False, compare=False, repr=False)

    def method(self, whole: bool) -> Method:
        """The rule as the kernels read it; `whole`: the whole plan is wanted, not the starts alone."""
        if whole not in self._methods:
            order, backfill = ORDERS[self.order], ORDERS[self.backfill]
            allocation = ALLOCATIONS[self.allocation]
            self._methods[whole] = Method(order, backfill, self.reservations, allocation, int(whole))
        return self._methods[whole]


def plan(snapshot: Snapshot, need: Need, rule: Rule, positions: IntArray = AS_THEY_CAME) -> Decision:
    """What `rule` decides; `positions` is the order of the queue where the rule's is `given`."""
    n, whole = len(snapshot.queue), need == "plan"
    if not n:
        return Decision(NO_STARTS, effort("empty-queue", 0), AS_THEY_CAME if whole else None)
    site = snapshot.site or site_of(snapshot)
    door = plan_counted if snapshot.cluster.counted else plan_placed
    count = door(site, rule.method(whole), positions)
    starts = Starts(*starts_of(site.draft)) if count else NO_STARTS
    cost = effort("none-starts" if not count else "all-start" if count == n else "some-start", n)
    if not whole:
        return Decision(starts, cost)
    plan_s = planned(site.draft, n)
    return Decision(starts, cost, plan_s, explain(snapshot, starts, plan_s))


def site_of(snapshot: Snapshot) -> Site:
    """A snapshot as kernels are handed it."""
    cluster, resources = snapshot.cluster, len(snapshot.cluster.resources)
    return Site(
        now_s=snapshot.now_s,
        queued=len(snapshot.queue),
        active=len(snapshot.running),
        machine=machine_of(cluster, snapshot.free),
        jobs=snapshot.table,
        queue=np.array(snapshot.queue),
        running=np.array(snapshot.running),
        groups=no_groups(resources),
        draft=new_draft(),
        trial=new_trial(resources),
    )


@lru_cache(maxsize=4096)
def effort(path: str, considered: int) -> Effort:
    """The effort of a kernel's decision."""
    return Effort(path, considered)


__all__ = ["AS_THEY_CAME", "EVERY", "GREEDY", "ORDERS", "STRICT", "Allocation", "OrderName", "Rule", "plan"]
