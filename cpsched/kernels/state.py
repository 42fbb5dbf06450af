"""What kernels are handed: the columns of jobs, the nodes, their groups, room for starts."""

from __future__ import annotations

from typing import Any, NamedTuple

from cpsched._jit import FLAGS2, IN1, IN2, OUT1, OUT2, kernel
from cpsched.model import END, ESTIMATE, NODE_SET, PLACE_AT, PLACE_COUNT, SHARING, UNITS

Array = Any
"""Kernels see arrays of explicit types, given in their signatures."""


class Jobs(NamedTuple):
    """The columns that a plan reads, by slot."""

    estimate_s: Array
    units: Array
    per_unit: Array
    sharing: Array
    node_set: Array
    end_s: Array
    place_at: Array
    place_count: Array
    place_node: Array
    place_units: Array


class Starts(NamedTuple):
    """Room for the starts of a plan, laid out as in `cpsched.model.Starts`."""

    slots: Array
    offsets: Array
    nodes: Array
    units: Array


class Machine(NamedTuple):
    """The nodes as they are now."""

    free: Array
    capacity: Array
    node_sets: Array
    kind_of: Array
    """int64[N]: nodes of one kind have the same capacity and are in the same node sets"""
    kind_node: Array
    """A node of each kind."""


class Groups(NamedTuple):
    """Groups of nodes, each with its line: steps `first[g]` .. `first[g] + length[g]` of `at` and `free`."""

    of: Array
    """int64[N]: the group of each node"""
    kind: Array
    size: Array
    first: Array
    length: Array
    at: Array
    free: Array
    """int64[steps, R]"""
    used: Array
    """int64[4]: groups and steps in use; groups with nodes; whether the rest must be built anew"""
    near: Array
    """int64[blocks of nodes]: the marks (see `mark`) of all groups that have a node in the block, and maybe of more"""


TABLE = (IN2, IN2, IN1, IN1)
"""Of a `JobTable`: rows, per_unit, place_node, place_units."""


NODES = (IN2, IN2, FLAGS2, IN1, IN1)
"""Of the nodes: free, capacity, node_sets, kind_of, kind_node."""


GROUPS = (OUT1, OUT2, OUT1, OUT2, OUT1)
"""Of the groups: of; kind, size, first and length as rows; at; free; used and near as one."""


@kernel()
def jobs_of(rows: Array, per_unit: Array, place_node: Array, place_units: Array) -> Jobs:
    """The columns of a table."""
    return Jobs(rows[ESTIMATE], rows[UNITS], per_unit, rows[SHARING], rows[NODE_SET], rows[END], rows[PLACE_AT],
                rows[PLACE_COUNT], place_node, place_units)  # fmt: skip


@kernel()
def groups_of(of: Array, columns: Array, at: Array, free: Array, used: Array) -> Groups:
    """Groups whose columns are the rows of one matrix."""
    return Groups(of, columns[0], columns[1], columns[2], columns[3], at, free, used[:4], used[4:])


@kernel()
def starts_in(out: Array, n: int) -> Starts:
    """The parts of `out` that hold the starts of a queue of n; see `plan_placed`."""
    half = (len(out) - 3 * n - 1) // 2
    return Starts(out[n : 2 * n], out[2 * n : 3 * n + 1], out[3 * n + 1 : 3 * n + 1 + half], out[3 * n + 1 + half :])
