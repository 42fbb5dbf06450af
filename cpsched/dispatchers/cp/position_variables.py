"""Create the decision variables of the position model (pcp20 section 3).

The amounts of each resource r on all nodes form a list in node order. `y[i,r,j]` is the first position of unit j of job
i in this list. Every node has the same *stride*, which is the largest capacity of a node in the model. Thus, y is
stride * x + p, with node x, position p inside the node, and p + dy <= capacity. No unit can span two nodes, and the
same x for all of a unit's resources puts the unit on one node. This arithmetic replaces two Element constraints per
unit and resource.

A unit has a variable position in a resource only if the position can matter (see `resources_with_variable_position`).

Positions are counted in a resource's *grain*, the greatest common divisor of the amounts that jobs request or use and
that nodes have. Times are in seconds from now. The lists omit nodes that no considered job may use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cpsched.kernels.cp.cp_state import CpInstance, CpPlan
from cpsched.kernels.cp.running_rectangles import running_rectangles
from cpsched.kernels.cp.startable_jobs import units_fitting_on_empty_nodes
from cpsched.model import EXCLUSIVE, BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class UnitPlacementVariables:
    """The variables of one part of a job: its node x and, by resource, its positions.

    `place` is p, `position` is y, and `size` is dy, all in grains.
    """

    node: Any
    place: dict[int, Any]
    position: dict[int, Any]
    size: dict[int, int]


@dataclass(frozen=True, slots=True)
class RunningJobRectangles:
    """Running jobs' amounts of one resource as boxes, in grains and seconds."""

    position: IntArray
    size: IntArray
    duration_s: IntArray

    def columns(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return (position, size, duration)."""
        return self.position, self.size, self.duration_s


@dataclass(frozen=True, slots=True)
class RunningJobStaircase:
    """Running jobs as a staircase, with the job that ends last at each node's bottom.

    A unit at position p overlaps no running job if and only if it starts at `free_from` or later, because the
    jobs above p end earlier. Nodes with equal staircases have the same kind.
    """

    kind_of: IntArray
    """Kind of each node in the model, int64[nodes]."""
    free_from: IntArray
    """Time in seconds from now at which each position becomes free, by kind: int64[K, stride]."""


@dataclass(frozen=True, slots=True)
class PositionModelVariables:
    """The solver's decision variables and their axes."""

    solver: Any
    facts: CpInstance
    nodes: IntArray
    """Cluster indices of the nodes in the model, ascending. x is an index into this array."""
    stride: IntArray
    """Stride of each resource in grains, int64[R], or 0 for a resource that no considered job requests."""
    grain: IntArray
    """Grain of each resource, int64[R]."""
    horizon_s: int
    """Horizon in seconds from now, which is the sum of all durations (pcp20: eoh)."""
    start: list[Any]
    """Start variable s of each job."""
    units: list[list[UnitPlacementVariables]]
    """Parts of each job."""

    @property
    def resources(self) -> list[int]:
        """Resources in the model, which a considered job requests (cp19 section 3)."""
        return [int(r) for r in np.flatnonzero(self.stride)]

    def estimate_s(self, j: int) -> int:
        """Return the duration of job `j` in seconds."""
        return int(self.facts.table.estimate_s[self.facts.jobs[j]])

    def sharing(self, j: int) -> int:
        """Return the sharing bits of job `j`."""
        return int(self.facts.table.sharing[self.facts.jobs[j]])


def eligible_nodes(facts: CpInstance, slot: int) -> BoolArray:
    """Return a mask of the nodes that can hold a unit of `slot` when empty, bool[N]."""
    fits: BoolArray = units_fitting_on_empty_nodes(facts, slot) > 0
    return fits


def create_position_variables(solver: Any, facts: CpInstance, horizon_s: int, leaf: CpPlan) -> PositionModelVariables:
    """Create s, x, p and y for the considered jobs.

    An exclusive job has one part per node in the first leaf (`leaf`). Every other job has one part per unit.
    """
    slots = facts.jobs
    by_shape = _eligible_nodes_by_shape(facts)
    nodes = np.flatnonzero(np.logical_or.reduce(list(by_shape.values())))
    asked = facts.table.per_unit[slots].max(axis=0) > 0
    grain = _common_divisor_by_resource(facts, nodes)
    stride = np.where(asked, facts.machine.capacity[nodes].max(axis=0) // grain, 0)
    found = PositionModelVariables(solver, facts, nodes, stride, grain, horizon_s, [], [])
    by_all = resources_used_by_all_jobs(facts)
    free: dict[tuple[int, ...], list[int]] = {}
    for j, slot in enumerate(slots.tolist()):
        found.start.append(solver.IntVar(0, horizon_s - found.estimate_s(j)))
        allowed = by_shape[_request_shape(facts, slot)][nodes]
        whole = bool(facts.table.sharing[slot] & EXCLUSIVE)
        count = int(leaf.parts[j]) if whole else int(facts.table.units[slot])
        if whole:
            found.units.append([_create_whole_node_variables(found, slot, allowed) for _ in range(count)])
        else:
            shape = _request_shape(facts, slot)
            if shape not in free:
                free[shape] = resources_with_variable_position(facts, slot, by_all)
            found.units.append([_create_unit_variables(found, slot, allowed, free[shape]) for _ in range(count)])
    return found


def _common_divisor_by_resource(facts: CpInstance, nodes: IntArray) -> IntArray:
    """Return the grain of each resource, int64[R], at least 1."""
    rows = (
        facts.machine.capacity[nodes],
        facts.machine.free[nodes],
        facts.table.per_unit[facts.jobs],
        facts.table.per_unit[facts.running],
    )
    grains: IntArray = np.maximum(np.gcd.reduce(np.concatenate(rows), axis=0), 1)
    return grains


def _request_shape(facts: CpInstance, slot: int) -> tuple[int, ...]:
    return (int(facts.table.node_set[slot]), *facts.table.per_unit[slot].tolist())


def _eligible_nodes_by_shape(facts: CpInstance) -> dict[tuple[int, ...], BoolArray]:
    found: dict[tuple[int, ...], BoolArray] = {}
    for slot in facts.jobs.tolist():
        shape = _request_shape(facts, slot)
        if shape not in found:
            found[shape] = eligible_nodes(facts, slot)
    return found


def _create_node_variable(variables: PositionModelVariables, allowed: BoolArray) -> Any:
    if allowed.all():
        return variables.solver.IntVar(0, len(allowed) - 1)
    return variables.solver.IntVar(np.flatnonzero(allowed).tolist())


def resources_used_by_all_jobs(facts: CpInstance) -> BoolArray:
    """Return a mask of resources that all considered and running jobs use, bool[R]."""
    slots = np.concatenate((facts.jobs, facts.running))
    whole = (facts.table.sharing[slots] & EXCLUSIVE) != 0
    found: BoolArray = ((facts.table.per_unit[slots] > 0) | whole[:, None]).all(axis=0)
    return found


def resources_with_variable_position(facts: CpInstance, slot: int, by_all: BoolArray) -> list[int]:
    """Return the resources in which a unit of `slot` has a variable position.

    If the unit takes all of a resource on its node, it has only one position in this resource. If all jobs also use the
    resource (`by_all`), the unit is alone on its node. In its other resources, the highest position is then as good as
    any other, so the unit gets that position.
    """
    asked, capacity = facts.table.per_unit[slot], facts.machine.capacity[eligible_nodes(facts, slot)]
    if facts.table.sharing[slot] & EXCLUSIVE:
        return []
    takes_whole = (capacity == asked).all(axis=0) & (asked > 0)
    settled = takes_whole
    if (takes_whole & by_all).any():
        settled = settled | (capacity.min(axis=0) == capacity.max(axis=0))
    return np.flatnonzero((asked > 0) & ~settled).tolist()


def _create_unit_variables(
    variables: PositionModelVariables, slot: int, allowed: BoolArray, free: Sequence[int]
) -> UnitPlacementVariables:
    """Return the variables of one unit. Positions vary only in `free` resources."""
    solver, facts = variables.solver, variables.facts
    unit = UnitPlacementVariables(_create_node_variable(variables, allowed), {}, {}, {})
    for r in variables.resources:
        dy = int(facts.table.per_unit[slot, r] // variables.grain[r])
        if dy == 0:
            continue
        capacity = facts.machine.capacity[variables.nodes, r] // variables.grain[r]
        largest, smallest = int(capacity[allowed].max()), int(capacity[allowed].min())
        stride = int(variables.stride[r])
        unit.size[r] = dy
        if r not in free:
            unit.place[r] = solver.IntConst(largest - dy)
            unit.position[r] = (unit.node * stride + (largest - dy)).Var()
            continue
        unit.place[r] = solver.IntVar(0, largest - dy)
        unit.position[r] = (unit.node * stride + unit.place[r]).Var()
        if smallest < largest:
            last = np.maximum(capacity - dy, -1).tolist()
            solver.Add(unit.place[r] <= solver.Element(last, unit.node))
    return unit


def _create_whole_node_variables(
    variables: PositionModelVariables, slot: int, allowed: BoolArray
) -> UnitPlacementVariables:
    """Return the variables of a whole node, which takes all positions."""
    unit = UnitPlacementVariables(_create_node_variable(variables, allowed), {}, {}, {})
    for r in variables.resources:
        stride = int(variables.stride[r])
        unit.place[r] = variables.solver.IntConst(0)
        unit.position[r] = (unit.node * stride).Var()
        unit.size[r] = stride
    return unit


_MAX_STAIRCASE_ENTRIES = 50_000
"""Maximum number of staircase entries per unit. The solver needs about 0.15 us for each entry."""


def to_running_job_staircase(
    variables: PositionModelVariables, r: int, held: RunningJobRectangles
) -> RunningJobStaircase | None:
    """Return `held` as a staircase, or None if the staircase would be too large."""
    stride, nodes = int(variables.stride[r]), len(variables.nodes)
    steps: dict[int, list[tuple[int, int, int]]] = {}
    for position, size, duration_s in zip(*(column.tolist() for column in held.columns()), strict=True):
        node, low = divmod(position, stride)
        while size > 0:  # a box that spans nodes
            part = min(size, stride - low)
            steps.setdefault(node, []).append((low, part, duration_s))
            node, low, size = node + 1, 0, size - part
    kinds: dict[tuple[tuple[int, int, int], ...], int] = {(): 0}
    kind_of = np.zeros(nodes, np.int64)
    for node, found in steps.items():
        kind_of[node] = kinds.setdefault(tuple(sorted(found)), len(kinds))
        if len(kinds) * stride > _MAX_STAIRCASE_ENTRIES:
            return None
    free_from = np.zeros((len(kinds), stride), np.int64)
    for found_steps, kind in kinds.items():
        for low, size, duration_s in found_steps:
            free_from[kind, low : low + size] = duration_s
    return RunningJobStaircase(kind_of, free_from)


def fixed_running_job_rectangles(variables: PositionModelVariables, r: int) -> RunningJobRectangles:
    """Return the fixed boxes of resource `r`, merging adjacent boxes with equal ends."""
    facts, horizon_s = variables.facts, variables.horizon_s
    base = np.full(len(facts.machine.free), -1, np.int64)
    base[variables.nodes] = np.arange(len(variables.nodes))
    stride = int(variables.stride[r])
    grain = int(variables.grain[r])
    position, size, end_s = running_rectangles(facts, (base, stride * grain), r, facts.now_s + horizon_s)
    position, size = position // grain, size // grain
    order = np.lexsort((position, end_s))
    position, size, end_s = position[order], size[order], end_s[order]
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (end_s[1:] != end_s[:-1]) | (position[1:] != position[:-1] + size[:-1])
    at = np.flatnonzero(opens)
    total = np.add.reduceat(size, at) if len(at) else size
    return RunningJobRectangles(position[at], total, end_s[at] - facts.now_s)
