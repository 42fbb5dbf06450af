"""The shared structs of the constraint-programming loops."""

from __future__ import annotations

import numpy as np

from cpsched.jit.shared_structs import Column, FixedColumn, FixedMatrix, FixedReals, Flags, Matrix, SharedStruct
from cpsched.kernels.scheduling_state import NodeResourceState
from cpsched.model import IntArray, JobTable


class CpInstance(SharedStruct):
    """The input of a round: the current state, and the jobs that a model considers."""

    now_s: int
    machine: NodeResourceState
    table: JobTable
    jobs: FixedColumn
    """Slots of the considered jobs, in priority order: int64[J]."""
    running: FixedColumn
    """Slots of the running jobs, sorted by `end_s`."""
    end_s: FixedColumn
    """End of each running job in seconds, by slot."""
    place_node: FixedColumn
    """Nodes of all placements (see `JobTable.place_at`)."""
    place_units: FixedColumn
    """Units of all placements (see `JobTable.place_at`)."""

    def with_considered_jobs(self, jobs: IntArray) -> CpInstance:
        """Return the same state with `jobs` (slots in priority order) as considered jobs."""
        placements = self.place_node, self.place_units
        return CpInstance(self.now_s, self.machine, self.table, jobs, self.running, self.end_s, *placements)


class PlanInstantState(SharedStruct):
    """The cluster at one instant of a plan. Kernels overwrite it for other instants."""

    left: Matrix
    """Free amounts: int64[N, R]."""
    floor: Matrix
    """The height of the stack of running jobs, in positions: int64[N, R]."""
    touched: Flags
    """Whether each node has changed since the last `update_room_of_touched_nodes`."""
    newest: Column
    """The last part placed on each node, or -1 if there is none."""
    older: Column
    """For each part, the part placed before it on the same node, or -1 if there is none."""


class CpPlan(SharedStruct):
    """The starts and places of the considered jobs.

    The parts of job j are `first[j]` .. `first[j] + parts[j] - 1`. `first` leaves room for one part per unit. Parts are
    in the order in which they were placed: from the highest node to the lowest.
    """

    start_s: Column
    """Start of each job in seconds: int64[J], -1 if not planned."""
    first: Column
    """Index of the first part of each job: int64[J + 1]."""
    parts: Column
    """Number of parts of each job: int64[J]."""
    node: Column
    """Node of each part: int64[P]."""
    units: Column
    """Number of units of each part: int64[P]."""
    y: Matrix
    """First position on the node, by part and resource: int64[P, R]."""
    dy: Matrix
    """Number of positions taken, by part and resource: int64[P, R]."""
    moment: PlanInstantState

    def copy(self) -> CpPlan:
        """Return a separate plan with the same starts and places."""
        columns = {name: getattr(self, name).copy() for name in PLACEMENT_COLUMNS}
        return CpPlan(**columns, first=self.first.copy(), moment=empty_plan_instant(self.moment.left, len(self.node)))


PLACEMENT_COLUMNS = ("start_s", "parts", "node", "units", "y", "dy")
"""The columns of a plan that define starts and places. `first` depends only on the jobs' requests."""


class CpSearchState(SharedStruct):
    """The state of the solver's search. The considered jobs have K kinds of units."""

    j: int
    """The current job."""
    done: int
    """Number of parts of the current job that have a place."""
    placed: Flags
    """Whether each job has a start and all of its places."""
    earliest_s: FixedColumn
    """Earliest possible start of each job in seconds."""
    order: FixedColumn
    """All jobs, in the order that breaks ties between jobs that can start first."""
    postponed_to_s: Column
    """Time in seconds to which each job is postponed: -1 if it is not postponed, `UNBOUNDED` if it can never start."""
    room: FixedMatrix
    """int64[K, N]: number of units of each kind that currently fit on each node."""
    kind_of: FixedColumn
    """Kind of each job's units."""


class WeightedDelayObjective(SharedStruct):
    """The cost of a plan: `constant` + the sum of weight * max(0, start - since)."""

    weight: FixedReals
    """Cost of one second of delay of each job. It is positive."""
    since_s: FixedColumn
    """Time in seconds from which the delay of each job counts, now or later."""
    constant: float
    """Cost of a plan that delays no jobs."""


class CumulativeRelaxation(SharedStruct):
    """The dispatching problem without places: E instants and K shared capacities.

    A capacity is the amount of one resource on all nodes, or the room for one kind of unit on all nodes. No capacity
    decreases over time. A job's demand is the minimum that it takes in any placement. So every real plan is a plan of
    the relaxation, but not vice versa.
    """

    moment_s: FixedColumn
    """int64[E]: the current time, then the ends of running jobs, in seconds."""
    capacity: FixedMatrix
    """int64[E, K]: each capacity from each time."""
    demand: FixedMatrix
    """int64[J, K]: the minimum amount of each capacity that each job takes."""


class BranchAndBoundState(SharedStruct):
    """The state of a branch and bound: relaxation, objective, best and trial plan."""

    relaxed: CumulativeRelaxation
    objective: WeightedDelayObjective
    best: CpPlan
    trial: CpPlan


def empty_plan_instant(amounts: IntArray, parts: int = 0) -> PlanInstantState:
    """Allocate an instant with `parts` parts and the shape of `amounts`, int64[N, R]."""
    nodes, left, floor = len(amounts), np.zeros_like(amounts), np.zeros_like(amounts)
    return PlanInstantState(
        left, floor, np.zeros(nodes, np.bool_), np.full(nodes, -1, np.int64), np.zeros(parts, np.int64)
    )


def empty_plan(facts: CpInstance) -> CpPlan:
    """Return a plan with room for every unit of the considered jobs."""
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
        moment=empty_plan_instant(facts.machine.capacity, P),
    )
