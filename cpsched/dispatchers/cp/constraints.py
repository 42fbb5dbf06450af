"""The constraints of the position model (pcp20 section 3), one function each.

That a unit stays inside of one node, in all of its resources, is in the variables already. The paper's alldifferent
among the positions of one job follows from diffn; the symmetry it breaks, the search breaks (falling positions). Its
second implied cumulative, over the position axis with durations as heights and the worst-case makespan as capacity, is
left out: at one position units of one job never overlap, so that the heights there add up to at most the sum of all
durations, which is that capacity; it cannot prune anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cpsched.dispatchers.cp.variables import Boxes, Variables, eligible
from cpsched.model import DISTINCT, EXCLUSIVE


def post(variables: Variables, held: Mapping[int, Boxes]) -> None:
    """All of them; `held` are the fixed boxes of each resource."""
    for r, fixed in held.items():
        boxes_do_not_overlap(variables, r, fixed)
        no_more_than_there_is(variables, r, fixed)
    for j in range(len(variables.units)):
        distinct_units_on_distinct_nodes(variables, j)
        whole_nodes_hold_all_units(variables, j)


def boxes_do_not_overlap(variables: Variables, r: int, fixed: Boxes) -> None:
    """Diffn over (s, y) x (d, dy): a position of resource `r` serves one unit at a time."""
    constant = _constants(variables.solver)
    boxes = [
        (variables.start[j], unit.position[r], constant(variables.estimate_s(j)), constant(unit.size[r]))
        for j, units in enumerate(variables.units)
        for unit in units
        if r in unit.size
    ]
    boxes += [
        (constant(0), constant(position), constant(duration_s), constant(size))
        for position, size, duration_s in zip(*(column.tolist() for column in fixed.columns()), strict=True)
    ]
    if boxes:
        columns = [list(column) for column in zip(*boxes, strict=True)]
        variables.solver.Add(variables.solver.NonOverlappingBoxesConstraint(*columns))


def _constants(solver: Any) -> Callable[[int], Any]:
    """Constants as variables, each made once."""
    known: dict[int, Any] = {}

    def constant(value: int) -> Any:
        if value not in known:
            known[value] = solver.IntConst(value)
        return known[value]

    return constant


def no_more_than_there_is(variables: Variables, r: int, fixed: Boxes) -> None:
    """Implied: cumulative(s, d, amounts of resource `r`, all there is), jobs as a whole."""
    solver, facts = variables.solver, variables.facts
    tasks, demands = [], []
    for j, units in enumerate(variables.units):
        demand = sum(unit.size.get(r, 0) for unit in units)
        if variables.sharing(j) & EXCLUSIVE:
            slot = int(facts.jobs[j])
            demand = len(units) * int(facts.capacity[eligible(facts, slot), r].min())
        if demand > 0:
            tasks.append(solver.FixedDurationIntervalVar(variables.start[j], variables.estimate_s(j), ""))
            demands.append(demand)
    ends, which = np.unique(fixed.duration_s, return_inverse=True)
    held = np.bincount(which, weights=fixed.size, minlength=len(ends)).astype(np.int64)
    for duration_s, amount in zip(ends.tolist(), held.tolist(), strict=True):
        tasks.append(solver.FixedInterval(0, duration_s, ""))
        demands.append(amount)
    total = int(facts.capacity[variables.nodes, r].sum())
    if tasks:
        solver.Add(solver.Cumulative(tasks, demands, total, ""))


def distinct_units_on_distinct_nodes(variables: Variables, j: int) -> None:
    """Alldifferent(x) for a job whose units may not share a node. (Whole nodes differ by diffn.)"""
    if variables.sharing(j) & DISTINCT and len(variables.units[j]) > 1:
        variables.solver.Add(variables.solver.AllDifferent([unit.node for unit in variables.units[j]], False))


def whole_nodes_hold_all_units(variables: Variables, j: int) -> None:
    """The nodes of a job that wants them whole have room for all of its units."""
    facts, slot = variables.facts, int(variables.facts.jobs[j])
    if not variables.sharing(j) & EXCLUSIVE:
        return
    room = units_per_node(variables, slot)
    if len(np.unique(room[room > 0])) > 1:
        rooms = [variables.solver.Element(room.tolist(), unit.node) for unit in variables.units[j]]
        variables.solver.Add(variables.solver.Sum(rooms) >= int(facts.units[slot]))


def units_per_node(variables: Variables, slot: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many units of `slot` an empty node could take: int64 along `variables.nodes`."""
    facts = variables.facts
    amounts, capacity = facts.per_unit[slot], facts.capacity[variables.nodes]
    asked = amounts > 0
    room = (capacity[:, asked] // amounts[asked]).min(axis=1)
    if facts.sharing[slot] & DISTINCT:
        room = np.minimum(room, 1)
    return np.where(eligible(facts, slot)[variables.nodes], room, 0)
