"""What the loops of the constraint-programming dispatchers are handed."""

from __future__ import annotations

import numpy as np

from cpsched.compile.handles import Column, FixedColumn, FixedMatrix, FixedReals, Flags, Handle, Matrix
from cpsched.kernels.state import Machine
from cpsched.model import IntArray, JobTable


class Facts(Handle):
    """The jobs that a model is made of, and the instant at which they wait."""

    now_s: int
    machine: Machine
    table: JobTable
    jobs: FixedColumn
    """Slots of the considered jobs, in priority order: int64[J]."""
    running: FixedColumn
    """Slots of the running jobs, by `end_s`."""
    end_s: FixedColumn
    """By slot: when a running job ends."""
    place_node: FixedColumn
    """Nodes of all placements, see `JobTable.place_at`."""
    place_units: FixedColumn

    def considering(self, jobs: IntArray) -> Facts:
        """The same instant with `jobs` (slots in priority order) considered."""
        placements = self.place_node, self.place_units
        return Facts(self.now_s, self.machine, self.table, jobs, self.running, self.end_s, *placements)


class Moment(Handle):
    """What a cluster looks like at one moment of a plan; overwritten by every kernel that looks at a moment."""

    left: Matrix
    """Free amounts: int64[N, R]."""
    floor: Matrix
    """Height of the stack of running jobs: int64[N, R]."""
    touched: Flags
    """By node: whether it changed since somebody last asked."""
    newest: Column
    """By node: the part that was put there last, -1 if there is none."""
    older: Column
    """By part: the part that was put on its node before it."""


class Plan(Handle):
    """Start and place of the considered jobs.

    The parts of job j are `first[j]` and the `parts[j] - 1` after it; `first` leaves room for one part per unit. Parts
    are in the order in which they were placed, which is from the highest node down.
    """

    start_s: Column
    """By job: int64[J], -1 where not planned."""
    first: Column
    """int64[J + 1]"""
    parts: Column
    """By job, how many: int64[J]."""
    node: Column
    """By part: int64[P], and so on."""
    units: Column
    y: Matrix
    """First position on the node, by part and resource: int64[P, R]."""
    dy: Matrix
    """Positions taken, by part and resource: int64[P, R]."""
    moment: Moment

    def copy(self) -> Plan:
        """A plan of its own with the same starts and places."""
        columns = {name: getattr(self, name).copy() for name in PLACED}
        return Plan(**columns, first=self.first.copy(), moment=moment_of(self.moment.left, len(self.node)))


PLACED = ("start_s", "parts", "node", "units", "y", "dy")
"""The columns of a plan that say when and where; `first` goes by what the jobs ask for."""


class Step(Handle):
    """Where the solver's search stands. K kinds of units among the considered jobs."""

    j: int
    """The job at hand."""
    done: int
    """How many of its parts have a place."""
    placed: Flags
    """By job: whether it has a start and all of its places."""
    earliest_s: FixedColumn
    """By job: the moment before which it cannot start."""
    order: FixedColumn
    """All jobs: of those that can start first, the first in this order goes first."""
    put_off_s: Column
    """By job: the moment to which it is put off, -1 where it is not, `PLENTY` for never."""
    room: FixedMatrix
    """int64[K, N]: how many units of each kind each node takes now."""
    kind_of: FixedColumn
    """By job, the kind of its units."""


class Objective(Handle):
    """The cost of a plan: `constant` plus, over the considered jobs, weight * max(0, start - since)."""

    weight: FixedReals
    """By job, what one second of delay costs: positive."""
    since_s: FixedColumn
    """By job, the moment from which its delay counts, now or later."""
    constant: float


class Relaxation(Handle):
    """The dispatching problem without places: E moments, K shared capacities that only grow with time.

    A capacity is the amount of one resource in all nodes, or the room for one kind of unit in all nodes; what a job
    takes of it, wherever it is placed, is a lower bound. So every plan is a plan here, not the other way round.
    """

    moment_s: FixedColumn
    """int64[E], the first is now, the others are ends of running jobs"""
    capacity: FixedMatrix
    """int64[E, K]: from that moment on"""
    demand: FixedMatrix
    """int64[J, K]"""


class BranchTree(Handle):
    """Branch and bound on a relaxation: the best plan so far, and room for another one."""

    relaxed: Relaxation
    objective: Objective
    best: Plan
    trial: Plan


def moment_of(amounts: IntArray, parts: int = 0) -> Moment:
    """Room for a moment: amounts of that shape (int64[N, R]), and so many parts."""
    nodes, left, floor = len(amounts), np.zeros_like(amounts), np.zeros_like(amounts)
    return Moment(left, floor, np.zeros(nodes, np.bool_), np.full(nodes, -1, np.int64), np.zeros(parts, np.int64))


def empty_plan(facts: Facts) -> Plan:
    """A plan with room for every unit of the considered jobs."""
    J, R = len(facts.jobs), facts.machine.capacity.shape[1]
    first = np.zeros(J + 1, np.int64)
    np.cumsum(facts.table.units[facts.jobs], out=first[1:])
    P = int(first[-1])
    return Plan(
        start_s=np.full(J, -1, np.int64),
        first=first,
        parts=np.zeros(J, np.int64),
        node=np.zeros(P, np.int64),
        units=np.zeros(P, np.int64),
        y=np.zeros((P, R), np.int64),
        dy=np.zeros((P, R), np.int64),
        moment=moment_of(facts.machine.capacity, P),
    )
