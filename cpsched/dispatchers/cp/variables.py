"""The decision variables of the position model (pcp20 section 3).

For each resource all its units are listed in node order; `y[i,r,j]` is the first position of unit j of job i in the
list of r. Every node is given the same *stride*, its largest capacity among the nodes in the model, so that
y = stride * x + p with node x and position p inside of it, p + dy <= capacity: then no unit can straddle nodes,
and sharing x among the resources of a unit puts it on one node. That replaces the two Element constraints per unit
and resource by arithmetic, and means the same.

Times are seconds from now. Nodes that no considered job may use are left out of the lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cpsched.dispatchers.cp.positions import Facts, Plan, running_boxes
from cpsched.model import EXCLUSIVE, BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a job in the model: `node` is x; `place` holds p, `position` y and `size` dy by resource."""

    node: Any
    place: dict[int, Any]
    position: dict[int, Any]
    size: dict[int, int]


@dataclass(frozen=True, slots=True)
class Boxes:
    """Fixed boxes of one resource, all from now on: first positions, sizes, durations in seconds."""

    position: IntArray
    size: IntArray
    duration_s: IntArray

    def columns(self) -> tuple[IntArray, IntArray, IntArray]:
        """Position, size, duration."""
        return self.position, self.size, self.duration_s


@dataclass(frozen=True, slots=True)
class Variables:
    """Everything the solver decides, and the axis it decides on."""

    solver: Any
    facts: Facts
    nodes: IntArray
    """Cluster indices of the nodes in the model, ascending; x counts along them."""
    stride: IntArray
    """int64[R]; 0 for a resource that no considered job asks for."""
    horizon_s: int
    """Worst-case makespan: the sum of all durations (pcp20: eoh, from now)."""
    start: list[Any]
    """s by job"""
    units: list[list[Unit]]
    """by job and part"""

    @property
    def resources(self) -> list[int]:
        """Resources that some considered job asks for; the others are not modelled (cp19 section 3)."""
        return [int(r) for r in np.flatnonzero(self.stride)]

    def estimate_s(self, j: int) -> int:
        """Duration of job `j`."""
        return int(self.facts.estimate_s[self.facts.jobs[j]])

    def sharing(self, j: int) -> int:
        """The sharing bits of job `j`."""
        return int(self.facts.sharing[self.facts.jobs[j]])


def eligible(facts: Facts, slot: int) -> BoolArray:
    """Nodes that could take a unit of `slot` if they were empty: bool[N]."""
    fits: BoolArray = (facts.capacity >= facts.per_unit[slot]).all(axis=1) & facts.node_sets[facts.node_set[slot]]
    return fits


def variables(solver: Any, facts: Facts, leaf: Plan) -> Variables:
    """Create s, x, p and y for the considered jobs.

    A job that wants whole nodes has as many parts as nodes in the first leaf (`leaf`); every other job one per unit.
    """
    slots = facts.jobs
    by_shape = _eligible_by_shape(facts)
    nodes = np.flatnonzero(np.logical_or.reduce(list(by_shape.values())))
    asked = facts.per_unit[slots].max(axis=0) > 0
    stride = np.where(asked, facts.capacity[nodes].max(axis=0), 0)
    remaining_s = facts.end_s[facts.running] - facts.now_s
    horizon_s = int(facts.estimate_s[slots].sum() + remaining_s.sum())
    found = Variables(solver, facts, nodes, stride, horizon_s, [], [])
    for j, slot in enumerate(slots.tolist()):
        found.start.append(solver.IntVar(0, horizon_s - found.estimate_s(j)))
        allowed = by_shape[_shape(facts, slot)][nodes]
        whole = bool(facts.sharing[slot] & EXCLUSIVE)
        count = int(leaf.parts[j]) if whole else int(facts.units[slot])
        make = _whole_node if whole else _unit
        found.units.append([make(found, slot, allowed) for _ in range(count)])
    return found


def _shape(facts: Facts, slot: int) -> tuple[int, ...]:
    return (int(facts.node_set[slot]), *facts.per_unit[slot].tolist())


def _eligible_by_shape(facts: Facts) -> dict[tuple[int, ...], BoolArray]:
    found: dict[tuple[int, ...], BoolArray] = {}
    for slot in facts.jobs.tolist():
        shape = _shape(facts, slot)
        if shape not in found:
            found[shape] = eligible(facts, slot)
    return found


def _node_variable(variables: Variables, allowed: BoolArray) -> Any:
    if allowed.all():
        return variables.solver.IntVar(0, len(allowed) - 1)
    return variables.solver.IntVar(np.flatnonzero(allowed).tolist())


def _unit(variables: Variables, slot: int, allowed: BoolArray) -> Unit:
    """One unit: `per_unit` positions inside of one node, in each resource it asks for."""
    solver, facts = variables.solver, variables.facts
    unit = Unit(_node_variable(variables, allowed), {}, {}, {})
    for r in variables.resources:
        dy = int(facts.per_unit[slot, r])
        if dy == 0:
            continue
        capacity = facts.capacity[variables.nodes, r]
        largest, smallest = int(capacity[allowed].max()), int(capacity[allowed].min())
        stride = int(variables.stride[r])
        unit.size[r] = dy
        if dy == largest:
            unit.place[r] = solver.IntConst(0)
            unit.position[r] = (unit.node * stride).Var()
            continue
        unit.place[r] = solver.IntVar(0, largest - dy)
        unit.position[r] = (unit.node * stride + unit.place[r]).Var()
        if smallest < largest:
            last = np.maximum(capacity - dy, -1).tolist()
            solver.Add(unit.place[r] <= solver.Element(last, unit.node))
    return unit


def _whole_node(variables: Variables, slot: int, allowed: BoolArray) -> Unit:
    """A whole node: all of its positions, in every resource of the model."""
    unit = Unit(_node_variable(variables, allowed), {}, {}, {})
    for r in variables.resources:
        stride = int(variables.stride[r])
        unit.place[r] = variables.solver.IntConst(0)
        unit.position[r] = (unit.node * stride).Var()
        unit.size[r] = stride
    return unit


def occupied(variables: Variables, r: int) -> Boxes:
    """The fixed boxes of resource `r`; boxes of one end that touch, also across nodes, are merged into one."""
    facts, horizon_s = variables.facts, variables.horizon_s
    base = np.full(len(facts.free), -1, np.int64)
    base[variables.nodes] = np.arange(len(variables.nodes))
    base.setflags(write=False)
    stride = int(variables.stride[r])
    position, size, end_s = running_boxes(facts, base, r, stride, facts.now_s + horizon_s)
    order = np.lexsort((position, end_s))
    position, size, end_s = position[order], size[order], end_s[order]
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (end_s[1:] != end_s[:-1]) | (position[1:] != position[:-1] + size[:-1])
    at = np.flatnonzero(opens)
    total = np.add.reduceat(size, at) if len(at) else size
    return Boxes(position[at], total, end_s[at] - facts.now_s)
