"""The fit rule, compiled: what a job takes on a node, and whether a start obeys every rule."""

from __future__ import annotations

from typing import Any

from cpsched._jit import FLAGS2, IN1, IN2, INT, OUT1, OUT2, kernel
from cpsched.kernels.state import Array, Jobs, Machine
from cpsched.model import DISTINCT, EXCLUSIVE


@kernel(INT(INT, INT, INT, OUT2, OUT1, IN2, IN1, IN1, IN2, IN1, INT), makes_arrays=False)
def shift_free(
    slot: int,
    first: int,
    last: int,
    free: Array,
    total_free: Array,
    capacity: Array,
    nodes: Array,
    node_units: Array,
    per_unit: Array,
    sharing: Array,
    sign: int,
) -> int:
    """Add `sign` times what a job takes on entries [first, last) of its placement to `free` and to its sum."""
    whole = sharing[slot] & EXCLUSIVE
    for at in range(first, last):
        node = nodes[at]
        for r in range(free.shape[1]):
            amount = capacity[node, r] if whole else node_units[at] * per_unit[slot, r]
            free[node, r] += sign * amount
            total_free[r] += sign * amount
    return last - first


@kernel(INT(INT, INT, INT, IN2, IN2, FLAGS2, IN1, IN1, IN1, IN2, IN1, IN1), makes_arrays=False)
def placement_fits(
    slot: int,
    first: int,
    last: int,
    free: Array,
    capacity: Array,
    node_sets: Array,
    nodes: Array,
    node_units: Array,
    units: Array,
    per_unit: Array,
    sharing: Array,
    node_set: Array,
) -> bool:
    """Whether one placement obeys every rule of `cpsched.fit.verify`."""
    placed, previous = 0, -1
    for at in range(first, last):
        node, on_node = nodes[at], node_units[at]
        if node <= previous or node >= free.shape[0] or on_node < 1:
            return False
        if sharing[slot] & DISTINCT and on_node > 1:
            return False
        if not node_sets[node_set[slot], node]:
            return False
        for r in range(free.shape[1]):
            if on_node * per_unit[slot, r] > free[node, r]:
                return False
            if sharing[slot] & EXCLUSIVE and free[node, r] != capacity[node, r]:
                return False
        placed += on_node
        previous = node
    return bool(placed == units[slot])


@kernel(INT(IN1, IN1, IN1, IN1, OUT1, OUT2, OUT1, IN2, FLAGS2, IN1, IN2, IN1, IN1), makes_arrays=False)
def take_starts(
    slots: Array,
    offsets: Array,
    nodes: Array,
    node_units: Array,
    queued: Array,
    free: Array,
    total_free: Array,
    capacity: Array,
    node_sets: Array,
    units: Array,
    per_unit: Array,
    sharing: Array,
    node_set: Array,
) -> int:
    """The compiled twin of `verify`: -1 when all starts fit, and then `free`, its sum and `queued` are without them.

    Otherwise the position of the first start that breaks a rule, and all are as they were. `queued[slot]` is 1 for
    jobs in the queue.
    """
    for i in range(len(slots)):
        slot = slots[i]
        known = 0 <= slot < len(queued)
        if not known or queued[slot] != 1 or not placement_fits(
            slot, offsets[i], offsets[i + 1], free, capacity, node_sets, nodes, node_units, units, per_unit, sharing,
            node_set,
        ):  # fmt: skip
            for j in range(i):
                queued[slots[j]] = 1
                shift_free(slots[j], offsets[j], offsets[j + 1], free, total_free, capacity, nodes, node_units,
                           per_unit, sharing, 1)  # fmt: skip
            return i
        queued[slot] = 0
        shift_free(slot, offsets[i], offsets[i + 1], free, total_free, capacity, nodes, node_units, per_unit, sharing,
                   -1)  # fmt: skip
    return -1


@kernel(makes_arrays=False)
def amount_on(machine: Machine, jobs: Jobs, slot: int, node: int, units: int, r: int) -> Any:
    """What `units` units of a job take of resource `r` on a node."""
    if jobs.sharing[slot] & EXCLUSIVE:
        return machine.capacity[node, r]
    return units * jobs.per_unit[slot, r]


@kernel(makes_arrays=False)
def asks_more_than(jobs: Jobs, slot: int, available: Array) -> bool:
    """Whether a job asks for more of some resource than all nodes together have free."""
    for r in range(len(available)):  # noqa: SIM110  (a loop compiles to better code than a generator)
        if jobs.units[slot] * jobs.per_unit[slot, r] > available[r]:
            return True
    return False
