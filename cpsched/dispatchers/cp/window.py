"""Which queued jobs a model is made of, and the facts that the dispatchers of this family need of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from cpsched.dispatchers.cp import positions as kernels
from cpsched.dispatchers.cp.objective import Objective
from cpsched.dispatchers.cp.positions import Facts, Plan
from cpsched.model import IntArray, Snapshot

if TYPE_CHECKING:
    from cpsched.dispatchers.cp.power import Power

Scalar = TypeVar("Scalar", bound=np.generic)

Jobs = Literal["all", "first", "startable"]
"""Which jobs a model is made of: the whole queue; its first m, the rest fixed at the end of the horizon; or the first m
that could start now, were they alone."""

Running = Literal["remaining", "at-least-1s"]
"""How long a running job goes on: start + estimate - now, which is negative for one that outlived its estimate (cp19
section 4), or that and one second at least."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One round as a model sees it: jobs to plan, what a plan costs, and how far it may go.

    `rest` are slots of jobs that are in the model but not searched (HCP); `overdue` tells that some running job is
    taken to have ended already, although it holds its nodes. `power` is a cap, where there is one.
    """

    facts: Facts
    objective: Objective
    rest: IntArray
    overdue: bool
    power: Power | None = None
    in_order: bool = False
    """Whether interchangeable jobs start in the order in which they are considered, see `alike`."""

    @property
    def horizon_s(self) -> int:
        """Worst-case makespan: the sum of all durations (pcp20: eoh), from now."""
        facts = self.facts
        remaining_s = facts.end_s[facts.running] - facts.now_s
        beside_s = facts.estimate_s[self.rest].sum() if len(self.rest) else 0
        return int(facts.estimate_s[facts.jobs].sum() + beside_s + remaining_s.sum())

    def holds(self, start_s: IntArray) -> bool:
        """Whether all of these starts end within the horizon, as they do unless some running job is overdue."""
        last_s = self.facts.now_s + self.horizon_s
        return bool((start_s + self.facts.estimate_s[self.facts.jobs] <= last_s).all())


def facts_of(snapshot: Snapshot, running: Running = "at-least-1s") -> Facts:
    """The columns of `snapshot`, read-only; no job is considered yet."""
    table, cluster = snapshot.table, snapshot.cluster
    active, end_s = snapshot.running, table.end_s
    if running == "remaining":
        end_s = end_s.copy()
        end_s[active] = table.start_s[active] + table.estimate_s[active]
        active = active[np.argsort(end_s[active], kind="stable")]
    return Facts(
        snapshot.now_s,
        fixed(np.empty(0, np.int64)),
        fixed(snapshot.free),
        fixed(cluster.capacity),
        fixed(cluster.node_sets),
        fixed(table.estimate_s),
        fixed(table.units),
        fixed(table.per_unit),
        fixed(table.sharing),
        fixed(table.node_set),
        fixed(active),
        fixed(end_s),
        fixed(table.place_at),
        fixed(table.place_count),
        fixed(table.place_node),
        fixed(table.place_units),
        fixed(np.arange(cluster.size)[::-1].copy().reshape(1, -1)),
        fixed(np.empty(0, np.int64)),
    )


def fixed(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """A read-only view: kernels are compiled for those."""
    view = array.view()
    view.setflags(write=False)
    return view


def consider(facts: Facts, jobs: IntArray) -> Facts:
    """The same facts with `jobs` (slots in priority order) considered."""
    return facts._replace(jobs=fixed(jobs), walk_of=fixed(np.zeros(len(jobs), np.int64)))


def spare_the_scarce(facts: Facts, queue: IntArray) -> Facts:
    """The same facts with nodes tried in another order: last those with resources that the job does not ask for.

    The more the queue asks for a resource, measured by what is free of it, the scarcer that is, and the longer nodes
    that have some of it free are spared; equal nodes from the highest down.
    """
    asked = (facts.per_unit[queue] * facts.units[queue][:, None]).sum(axis=0)
    scarcity = asked / np.maximum(1, facts.free.sum(axis=0))
    kinds, walk_of = np.unique(facts.per_unit[facts.jobs] > 0, axis=0, return_inverse=True)
    has = facts.free > 0
    costs = [(has & ~kind) @ scarcity for kind in kinds]
    highest = -np.arange(len(facts.free))
    walks = np.stack([np.lexsort((highest, np.round(cost, 9))) for cost in costs]).astype(np.int64)
    return facts._replace(walks=fixed(walks), walk_of=fixed(walk_of.reshape(-1).astype(np.int64)))


def startable(facts: Facts, queue: IntArray, most: int) -> IntArray:
    """The first `most` slots of `queue` that each could start now, were they alone (cp19 section 3)."""
    return kernels.startable(facts, fixed(queue), most)


def empty_plan(facts: Facts) -> Plan:
    """A plan with room for every unit of the considered jobs."""
    J, R = len(facts.jobs), facts.capacity.shape[1]
    first = np.zeros(J + 1, np.int64)
    np.cumsum(facts.units[facts.jobs], out=first[1:])
    P = int(first[-1])
    return Plan(
        start_s=np.full(J, -1, np.int64),
        first=first,
        parts=np.zeros(J, np.int64),
        node=np.zeros(P, np.int64),
        units=np.zeros(P, np.int64),
        y=np.zeros((P, R), np.int64),
        dy=np.zeros((P, R), np.int64),
    )


def copy_of(plan: Plan) -> Plan:
    """The plan as it is now."""
    return Plan(*(column.copy() for column in plan))


def first_leaf(facts: Facts) -> Plan:
    """The first leaf of the paper's search, complete: every considered job has its start."""
    plan = empty_plan(facts)
    kernels.dive(facts, plan, np.arange(len(facts.jobs)), False)
    return plan
