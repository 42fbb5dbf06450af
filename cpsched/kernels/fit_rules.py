"""The only definition of the fit rule: amounts taken, units that fit, violations.

Kernels compile it. `cpsched.feasibility` calls the same functions as plain Python. `jobs` is a `JobTable`. A `Cluster`
and a kernel's `NodeResourceState` both have `capacity`, `node_sets`, `block_of` and `block_rules`.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, FixedMatrix, Matrix
from cpsched.kernels.block_selection import BASE_BLOCK, NODES, fill_blocks
from cpsched.kernels.scheduling_state import NodeResourceState
from cpsched.model import DISTINCT, EXCLUSIVE, Cluster, IntArray, JobTable
from cpsched.model.blocks import TOPOLOGY

UNBOUNDED = 1 << 62
"""A number of units above that of any node, and a time after all other times."""
MAX_UNITS = 1 << 22
"""Maximum number of units for which the product with `value_bounds.AMOUNT_BOUND` fits in 64 bits.

Up to this number, `units_that_fit` multiplies, which is faster than a division.
"""

# ------------------------------------------------------------------------------------------ one resource of one node


@scalar_subroutine
def amount_taken(units: int, amount: int, whole: int, capacity: int) -> int:
    """Return the amount that `units` units take: the whole `capacity` if exclusive."""
    return capacity if whole else units * amount


@scalar_subroutine
def units_that_fit(most: int, amount: int, whole: int, free: int, capacity: int) -> int:
    """Return the number of units, at most `most`, that fit into `free` of a resource.

    For an exclusive job, return 0 if any of the resource is in use.
    """
    if whole and free != capacity:
        return 0
    if amount == 0 or (most <= MAX_UNITS and amount * most <= free):
        return most
    return min(most, max(0, free) // amount)


# ------------------------------------------------------------------------------------------ all resources of one node


Hardware = NodeResourceState | Cluster
"""The nodes: `NodeResourceState` in kernels, `Cluster` in Python."""


@subroutine
def is_eligible(jobs: JobTable, slot: int, machine: Hardware, node: int) -> bool:
    """Return whether a node is in a job's node set."""
    return bool(machine.node_sets[jobs.node_set[slot], node])


@subroutine
def is_idle(machine: Hardware, free: FixedMatrix, node: int) -> bool:
    """Return whether a node is idle, given the free amounts `free` (int64[N, R])."""
    for r in range(free.shape[1]):  # noqa: SIM110  (a loop compiles to better code than a generator)
        if free[node, r] != machine.capacity[node, r]:
            return False
    return True


@subroutine
def units_that_fit_row(jobs: JobTable, slot: int, amounts: FixedMatrix, row: int) -> int:
    """Return how many units of a job fit into row `row` of `amounts` (int64[:, R]).

    Ignore sharing rules and node sets.
    """
    most = UNBOUNDED
    for r in range(amounts.shape[1]):
        most = units_that_fit(most, jobs.per_unit[slot, r], 0, amounts[row, r], 0)
    return most


@subroutine
def units_fitting_on_node(jobs: JobTable, slot: int, machine: Hardware, free: FixedMatrix, node: int) -> int:
    """Return how many units of a job fit on a node, given `free` (int64[N, R]).

    Respect the node set and sharing rules, but ignore the job's number of units. For `distinct` jobs, return at most 1.
    """
    sharing = jobs.sharing[slot]
    if not is_eligible(jobs, slot, machine, node) or (sharing & EXCLUSIVE and not is_idle(machine, free, node)):
        return 0
    count = units_that_fit_row(jobs, slot, free, node)
    return min(count, 1) if sharing & DISTINCT else count


@subroutine
def amount_taken_on_node(jobs: JobTable, slot: int, machine: Hardware, node: int, units: int, r: int) -> int:
    """Return the amount of resource `r` that `units` units of a job take on a node."""
    return amount_taken(units, jobs.per_unit[slot, r], jobs.sharing[slot] & EXCLUSIVE, machine.capacity[node, r])


@subroutine
def exceeds_free(jobs: JobTable, slot: int, total_free: FixedColumn) -> bool:
    """Return whether a job requests more of a resource than `total_free` (int64[R])."""
    units, per_unit = jobs.units[slot], jobs.per_unit
    for r in range(len(total_free)):  # noqa: SIM110  (a loop compiles to better code than a generator)
        if units * per_unit[slot, r] > total_free[r]:
            return True
    return False


@subroutine
def add_to_free(
    jobs: JobTable, slot: int, machine: Hardware, nodes: FixedColumn, units: FixedColumn, free: Matrix,
    total_free: Column, sign: int,
) -> None:  # fmt: skip
    """Add `sign` times a placement's amounts to `free` and `total_free`."""
    per_unit, whole, capacity = jobs.per_unit, jobs.sharing[slot] & EXCLUSIVE, machine.capacity
    for at in range(len(nodes)):
        node = nodes[at]
        for r in range(free.shape[1]):
            amount = sign * amount_taken(units[at], per_unit[slot, r], whole, capacity[node, r])
            free[node, r] += amount
            total_free[r] += amount


# ------------------------------------------------------------------------------------------ verification

NOT_QUEUED, TWICE, NO_PLACEMENT, NO_NODE, OUT_OF_ORDER, LISTED_TWICE = (1 << i for i in range(6))
WRONG_UNITS, SHARED, OUTSIDE, IN_USE, LACKS, SPLIT = (1 << i for i in range(6, 12))
"""Rules that a start can violate, as bits:

- `NOT_QUEUED`: the job is not in the queue. `TWICE`: the job starts twice.
- `NO_PLACEMENT`: the offsets are invalid.
- `NO_NODE`, `OUT_OF_ORDER`, `LISTED_TWICE`: a node does not exist, is out of order, or is listed twice.
- `WRONG_UNITS`: the number of units differs from the request.
- `SHARED`: units that require distinct nodes share a node.
- `OUTSIDE`: a node is outside the job's node set.
- `IN_USE`: a node of an exclusive job is in use.
- `LACKS`: a node has too little of a resource free.
- `SPLIT`: the nodes do not fill blocks as the topology requires.
"""

QUEUED, STARTED = 1, 2
"""States of a job during verification. Any other value means that the job is not in the queue."""


@subroutine
def placement_entry_faults(
    jobs: JobTable, slot: int, machine: Hardware, free: FixedMatrix, previous: int, node: int, units: int
) -> int:
    """Return the rules that an entry after node `previous` violates, as bits."""
    if not 0 <= node < len(free):
        return NO_NODE
    found = LISTED_TWICE if node == previous else OUT_OF_ORDER if node < previous else 0
    sharing = jobs.sharing[slot]
    if not is_eligible(jobs, slot, machine, node):
        found |= OUTSIDE
    if sharing & DISTINCT and units > 1:
        found |= SHARED
    if not 1 <= units <= jobs.units[slot]:
        return found | WRONG_UNITS
    for r in range(free.shape[1]):
        amount, capacity = jobs.per_unit[slot, r], machine.capacity[node, r]
        if sharing & EXCLUSIVE and free[node, r] != capacity:
            found |= IN_USE
            if units_that_fit(units, amount, 0, capacity, capacity) < units:
                found |= LACKS
        elif units_that_fit(units, amount, 0, free[node, r], capacity) < units:
            found |= LACKS
    return found


@subroutine
def placement_fills_blocks(jobs: JobTable, slot: int, machine: Hardware, nodes: FixedColumn) -> bool:
    """Return whether Slurm accepts a job on exactly these nodes, as far as blocks matter."""
    rule = machine.block_rules[jobs.node_set[slot]]
    if rule[TOPOLOGY] < 0:
        return True
    usable = np.zeros((len(nodes), 3), np.int64)
    for i in range(len(nodes)):
        usable[i, BASE_BLOCK], usable[i, NODES] = machine.block_of[rule[TOPOLOGY], nodes[i]], 1
    return bool(fill_blocks(rule, usable, len(nodes)).any())


@subroutine
def start_faults(
    i: int, slots: FixedColumn, offsets: FixedColumn, nodes: FixedColumn, units: FixedColumn, phase: FixedColumn,
    free: FixedMatrix, machine: Hardware, jobs: JobTable,
) -> int:  # fmt: skip
    """Return the rules that the `i`-th start violates, as bits.

    `phase[slot]` is `QUEUED`, `STARTED` or another value.
    """
    slot, first, last = slots[i], offsets[i], offsets[i + 1]
    if not 0 <= slot < len(phase) or phase[slot] not in (QUEUED, STARTED):
        return NOT_QUEUED
    if not 0 <= first <= last <= len(nodes):
        return NO_PLACEMENT
    found = 0 if phase[slot] == QUEUED else TWICE
    placed, previous = 0, -1
    for at in range(first, last):
        fault = placement_entry_faults(jobs, slot, machine, free, previous, nodes[at], units[at])
        found |= fault
        if fault & (NO_NODE | WRONG_UNITS):
            continue
        placed += units[at]
        previous = nodes[at]
    if found & (NO_NODE | WRONG_UNITS):
        return found
    if placed != jobs.units[slot]:
        return found | WRONG_UNITS
    if found & (OUTSIDE | SHARED) == 0 and not placement_fills_blocks(jobs, slot, machine, nodes[first:last]):
        return found | SPLIT
    return found


@subroutine
def verify_and_take_starts(
    slots: FixedColumn, offsets: FixedColumn, nodes: FixedColumn, units: FixedColumn, phase: Column, free: Matrix,
    total_free: Column, machine: NodeResourceState, jobs: JobTable,
) -> int:  # fmt: skip
    """Verify all starts in order, and apply them.

    Return -1 if no start violates a rule. Otherwise, return the position of the first start that does, and leave
    `free`, its sum and `phase` unchanged.
    """
    for i in range(len(slots)):
        if start_faults(i, slots, offsets, nodes, units, phase, free, machine, jobs):
            for j in range(i):
                a, b = offsets[j], offsets[j + 1]
                phase[slots[j]] = QUEUED
                add_to_free(jobs, slots[j], machine, nodes[a:b], units[a:b], free, total_free, 1)
            return i
        a, b = offsets[i], offsets[i + 1]
        phase[slots[i]] = STARTED
        add_to_free(jobs, slots[i], machine, nodes[a:b], units[a:b], free, total_free, -1)
    return -1


Starting = tuple[FixedColumn, FixedColumn, FixedColumn, FixedColumn]
"""Slots, offsets, nodes and units of starts, as in `cpsched.model.Starts`."""


@kernel
def units_fitting_in_rows(per_unit: FixedColumn, units: int, rows: FixedMatrix) -> IntArray:
    """Return the number of units, at most `units`, that fit into each row of `rows`."""
    found = np.empty(len(rows), np.int64)
    for node in range(len(rows)):
        most = units
        for r in range(rows.shape[1]):
            most = units_that_fit(most, per_unit[r], 0, rows[node, r], 0)
        found[node] = most
    return found
