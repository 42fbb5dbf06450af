"""The handles of the constraint-programming loops."""

from __future__ import annotations

import numpy as np

from cpsched.jit.handles import Column, FixedColumn, FixedMatrix, FixedReals, Flags, Handle, Matrix
from cpsched.kernels.scheduling_state import NodeResourceState
from cpsched.model import IntArray, JobTable


class CpInstance(Handle):
    """The facts of a round: the jobs that a model considers, and the instant at which they wait."""

    now_s: int
    machine: NodeResourceState
    table: JobTable
    jobs: FixedColumn
    """Slots of the considered jobs, in priority order: int64[J]."""
    running: FixedColumn
    """Slots of the running jobs, sorted by `end_s`."""
    end_s: FixedColumn
    """By slot: when the running job ends, in seconds."""
    place_node: FixedColumn
    """Nodes of all placements, see `JobTable.place_at`."""
    place_units: FixedColumn
    """Units of all placements, see `JobTable.place_at`."""

    def with_considered_jobs(self, jobs: IntArray) -> CpInstance:
        """The same instant with `jobs` (slots in priority order) considered."""
        placements = self.place_node, self.place_units
        return CpInstance(self.now_s, self.machine, self.table, jobs, self.running, self.end_s, *placements)


class PlanInstantState(Handle):
    """The cluster at one moment of a plan. Every kernel that goes to a moment overwrites it."""

    left: Matrix
    """Free amounts: int64[N, R]."""
    floor: Matrix
    """The height of the stack of running jobs, in positions: int64[N, R]."""
    touched: Flags
    """By node: whether it changed since the last `recount`."""
    newest: Column
    """By node: the part placed there last; -1 if there is none."""
    older: Column
    """By part: the part placed on its node before it; -1 if there is none."""


class CpPlan(Handle):
    """Start and place of the considered jobs.

    The parts of job j are `first[j]` .. `first[j] + parts[j] - 1`; `first` leaves room for one part per unit. Parts are
    in the order in which they were placed: from the highest node down.
    """

    start_s: Column
    """By job: int64[J], -1 where not planned."""
    first: Column
    """int64[J + 1]"""
    parts: Column
    """By job, how many parts it has: int64[J]."""
    node: Column
    """By part, its node: int64[P]."""
    units: Column
    """By part, how many units it holds: int64[P]."""
    y: Matrix
    """First position on the node, by part and resource: int64[P, R]."""
    dy: Matrix
    """Positions taken, by part and resource: int64[P, R]."""
    moment: PlanInstantState

    def copy(self) -> CpPlan:
        """A plan of its own with the same starts and places."""
        columns = {name: getattr(self, name).copy() for name in PLACED}
        return CpPlan(**columns, first=self.first.copy(), moment=moment_of(self.moment.left, len(self.node)))


PLACED = ("start_s", "parts", "node", "units", "y", "dy")
"""The columns of a plan that say when and where. (`first` depends only on what the jobs ask for.)"""


class CpSearchState(Handle):
    """The state of the solver's search. The considered jobs have K kinds of units."""

    j: int
    """The job at hand."""
    done: int
    """How many parts of that job have a place."""
    placed: Flags
    """By job: whether it has a start and all of its places."""
    earliest_s: FixedColumn
    """By job: the moment before which it cannot start."""
    order: FixedColumn
    """All jobs: of the jobs that can start first, the first in this order goes first."""
    put_off_s: Column
    """By job: the moment to which it is postponed; -1 if it is not, `PLENTY` if it can never start."""
    room: FixedMatrix
    """int64[K, N]: how many units of each kind each node takes now."""
    kind_of: FixedColumn
    """By job, the kind of its units."""


class TotalDelayObjective(Handle):
    """The cost of a plan: `constant` plus, over the considered jobs, weight * max(0, start - since)."""

    weight: FixedReals
    """By job, what one second of delay costs: positive."""
    since_s: FixedColumn
    """By job, the moment from which its delay counts, now or later."""
    constant: float
    """What the plan costs if no job is delayed."""


class CumulativeRelaxation(Handle):
    """The dispatching problem without places: E moments, K shared capacities that only grow with time.

    A capacity is the amount of one resource in all nodes, or the room for one kind of unit in all nodes. A job's demand
    is the least that it takes of a capacity, wherever it is placed. So every real plan is a plan of the relaxation; the
    converse does not hold.
    """

    moment_s: FixedColumn
    """int64[E]: now, then the ends of running jobs."""
    capacity: FixedMatrix
    """int64[E, K]: each capacity from that moment on."""
    demand: FixedMatrix
    """int64[J, K]: what each job takes of each capacity at least."""


class BoundAndIncumbent(Handle):
    """The state of a branch and bound: the relaxation, the best plan so far, and room for another plan."""

    relaxed: CumulativeRelaxation
    objective: TotalDelayObjective
    best: CpPlan
    trial: CpPlan


def moment_of(amounts: IntArray, parts: int = 0) -> PlanInstantState:
    """Room for a moment of a cluster: amounts of the shape of `amounts` (int64[N, R]), and `parts` parts."""
    nodes, left, floor = len(amounts), np.zeros_like(amounts), np.zeros_like(amounts)
    return PlanInstantState(
        left, floor, np.zeros(nodes, np.bool_), np.full(nodes, -1, np.int64), np.zeros(parts, np.int64)
    )


def empty_plan(facts: CpInstance) -> CpPlan:
    """A plan with room for every unit of the considered jobs."""
    J, R = len(facts.jobs), facts.machine.capacity.shape[1]
    first = np.zeros(J + 1, np.int64)
    np.cumsum(facts.table.units[facts.jobs], out=first[1:])
    P = int(first[-1])
    return CpPlan(
        start_s=np.full(J, -1, np.int64),
        first=first,
        parts=np.zeros(J, np.int64),
        node=np.zeros(P, np.int64),
        units=np.zeros(P, np.int64),
        y=np.zeros((P, R), np.int64),
        dy=np.zeros((P, R), np.int64),
        moment=moment_of(facts.machine.capacity, P),
    )
