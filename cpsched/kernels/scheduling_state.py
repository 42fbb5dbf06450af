"""The shared structs of the kernels: nodes, classes, state, result and workspace."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import ColumnGrower, kernel, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, FixedFlags, FixedMatrix, Matrix, SharedStruct
from cpsched.model import Cluster, IntArray, JobTable, TypicalRequests
from cpsched.model.typical_requests import no_typical_requests

WHOLE_QUEUE = 2
"""Value of `ListSchedulerParameters.whole` on nodes: plan every job in the queue."""


class NodeResourceState(SharedStruct):
    """The current state of the nodes: N nodes, R resources, M node sets."""

    pool: int
    """Capacity of the whole machine for its first resource."""
    free: FixedMatrix
    """int64[N, R]: free amounts of each node."""
    capacity: FixedMatrix
    """int64[N, R]: capacity of each node."""
    node_sets: FixedFlags
    """bool[M, N]: whether each node set contains each node."""
    kind_of: FixedColumn
    """int64[N]: kind of each node (see `Cluster.kind_of`)."""
    kind_node: FixedColumn
    """Index of one node of each kind."""
    kind_weight: FixedColumn
    """Weight of the nodes of each kind, or empty if all weights are equal."""
    leaf_of: FixedColumn
    """Leaf switch of each node, int64[N], or empty if all nodes have the same. The numbers begin at 0."""
    block_of: FixedMatrix
    block_rules: FixedMatrix
    """Blocks of nodes, and rules of node sets (see `Cluster`)."""
    typical: TypicalRequests
    """The typical requests for GPUs, or none."""


class NodeClasses(SharedStruct, grows=True):
    """Classes of nodes with the same profile.

    Class `g` has the steps `first[g]` to `first[g] + length[g] - 1`.
    """

    count: int
    """Number of classes in use."""
    steps: int
    """Number of steps in use."""
    peopled: int
    """Number of classes that contain nodes."""
    stale: int
    """1 if the classes must be rebuilt before use, otherwise 0."""
    of: Column
    """int64[N]: class of each node."""
    kind: Column
    """Kind of each class's nodes (see `NodeResourceState.kind_of`)."""
    size: Column
    """Number of nodes in each class."""
    first: Column
    """First step of each class's profile."""
    length: Column
    """Number of steps in each class's profile."""
    at: Column
    """int64[steps]: time (s) at which each step begins."""
    free: Matrix
    """int64[steps, R]: free amounts on one node in the class from that time."""
    edged: Column
    """Number of *edges* in each block: nodes whose class differs from the previous node's.

    -1 means not counted.
    """
    edge: Column
    """int64[N]: the edges. The edges of block b begin at index b * BLOCK_NODES."""
    begin: Column
    """First place of each class in a plan's layout."""


class NodeClassLayout(SharedStruct, grows=True):
    """All nodes in a row, sorted by class and then by index.

    The classes are those at the beginning of the plan. A position in the row is a *place*. Nodes in one class with
    successive indices form a *run*. Run `r` begins at place `at[r]` with node `node[r]`. It ends at the next run or at
    the end of the class.
    """

    times: int
    """Number of layouts computed in this plan: 0, 1 (some classes) or 2 (all classes)."""
    runs: int
    """Number of runs in use."""
    groups: int
    """Number of classes at the beginning of the plan."""
    first: Column
    """First place of each class that existed when the plan began."""
    asked: Column
    """1 if the runs of a class are needed, else 0. Only for classes that existed when the plan began."""
    ahead: Column
    """Index of the next run of each class, during the sort of runs."""
    next: Column
    """First place of the next run of each class, during the sort of runs."""
    node: Column
    """First node of each run."""
    at: Column
    """First place of each run, ascending."""
    since: Column
    """First node of each run in index order, during the sort of runs."""
    until: Column
    """Node after the last node of each run in index order, during the sort of runs."""


class NodeRangeHeap(SharedStruct, grows=True):
    """Ranges of the layout to merge, as a heap of range numbers by key."""

    heap: Column
    """Range numbers as a binary heap."""
    key: Column
    """Sort key of each range, such as its next node."""
    group: Column
    """Class of each range."""
    place: Column
    """Next place of each range."""
    last: Column
    """Place after the end of each range."""
    run: Column
    """Run that contains the next place of each range."""


class IncrementalNodeClasses(SharedStruct, grows=True):
    """Classes that are carried between rounds, with a hash table by profile."""

    groups: NodeClasses
    signature: Column
    """Hash of the kind and profile of each node."""
    known: Column
    """Signature of the nodes of each class."""
    table: Column
    """Hash table of classes by signature; -1 means empty. Its length is a power of two."""


class ListSchedulerParameters(SharedStruct):
    """The parameters of a list scheduler."""

    order: int
    """Order of the queue."""
    backfill: int
    """Order of the other jobs after a single reservation. `ARRIVAL` means the order `order`."""
    reservations: int
    """Number of jobs that reserve their earliest start, or `STRICT` or `GREEDY`."""
    allocation: int
    """Node selection: `FIRST_FIT` or `BEST_FIT`."""
    whole: int
    """0: only starts. 1: the whole plan. `WHOLE_QUEUE`: a planned start for every job."""


class PlanResult(SharedStruct, grows=True):
    """The result of a plan: the jobs that start now, their nodes, and planned starts."""

    started: int
    """Number of jobs that start now."""
    plan_s: Column
    """Planned start in seconds by queue position, or `NEVER` if unknown."""
    slots: Column
    """Slots of the jobs that start, in the order in which they were selected."""
    offsets: Column
    """int64[starts + 1]: offset of each start in `nodes` and `units`."""
    nodes: Column
    """Node of each placement entry."""
    units: Column
    """Number of the job's units on the node of each placement entry."""
    order: Column
    """Queue positions in the method's order, or empty if that is the queue's own order."""
    held: Column
    """On a pool: amount that each running job releases at its end."""
    ends: Column
    """On a pool: end times of the starts, sorted."""
    taken: Column
    """On a pool: amount of each start, in the order of `ends`."""


class PlanWorkspace(SharedStruct, grows=True):
    """The working state of a plan on nodes: classes after the placed jobs, and caches."""

    reserved: int
    """Number of reservations made so far."""
    hopeless: int
    """Number of entries in use in `failed`."""
    slotted: int
    """Number of entries in use in `slotted_job`."""
    lasting: int
    """1 while placements are final. Cached reservations may then be overwritten."""
    crowd: int
    """While placements are final: number of classes above which empty classes are dropped."""
    moves: int
    """Number of entries in use in `moved`."""
    groups: NodeClasses
    """The classes after placing the jobs so far."""
    layout: NodeClassLayout
    heads: NodeRangeHeap
    available: Column
    """int64[R]: total free amounts of all nodes now, minus the amounts of the starts so far."""
    most: Column
    """int64[R]: the largest capacity of any node."""
    found: Column
    """Number of the current job's units that fit on one node in each class."""
    rank: Column
    """Rank of each class. Nodes with higher ranks are selected first."""
    failed: Column
    """Slots of jobs that cannot start now. Jobs that demand at least as much cannot start either."""
    slotted_job: Column
    """Slots of the jobs with a cached reservation."""
    slotted_s: Column
    """Start of each cached reservation (s), a lower bound for jobs that demand at least as much."""
    change_s: Column
    """Times (s) at which the number of units for a job changes."""
    change_by: Column
    """Change in the number of units at each of these times."""
    moved: Column
    """Class of each move. A move is a range of nodes that a job takes from a class."""
    moved_count: Column
    """Number of nodes in each move."""
    moved_units: Column
    """Number of the job's units on each node of a move."""
    moved_skip: Column
    """Number of nodes of the class, before those of each move, that the job does not take."""
    moved_begin: Column
    """First place of each move in the layout."""
    start_first: Column
    """First move of each start."""
    start_last: Column
    """Move after the last move of each start."""


class SchedulingState(SharedStruct):
    """A cluster at one instant, with carried classes and a workspace for a plan."""

    now_s: int
    queued: int
    """Number of queued jobs."""
    active: int
    """Number of running jobs."""
    machine: NodeResourceState
    jobs: JobTable
    queue: Column
    """Slots in order of arrival. The first `queued` entries are valid."""
    running: Column
    """Slots in order of expected end. The first `active` entries are valid."""
    groups: NodeClasses
    draft: PlanResult
    trial: PlanWorkspace


def build_node_resource_state(cluster: Cluster, free: IntArray) -> NodeResourceState:
    """Return a cluster's nodes with the free amounts `free` (int64[N, R])."""
    pool = int(cluster.capacity[:, 0].sum())
    kinds, weights, leaves = cluster.kind_node, cluster.weights, cluster.leaf_switches
    kind_weight = empty_column() if weights is None else weights[kinds]
    leaf_of = empty_column() if leaves is None else np.unique(leaves, return_inverse=True)[1].reshape(-1)
    typical = no_typical_requests(len(cluster.resources)) if cluster.typical is None else cluster.typical
    return NodeResourceState(
        pool,
        free,
        cluster.capacity,
        cluster.node_sets,
        cluster.kind_of,
        kinds,
        kind_weight,
        leaf_of,
        cluster.block_of,
        cluster.block_rules,
        typical,
    )


def empty_column() -> IntArray:
    """Return a column of length 0."""
    return np.zeros(0, np.int64)


def new_plan_result() -> PlanResult:
    """Return an empty plan result."""
    return PlanResult(0, *(empty_column() for _ in range(9)))


def no_node_classes(resources: int) -> NodeClasses:
    """Return empty node classes. The next plan on nodes builds them."""
    of, kind, size, first, length, at, edged, edge, begin = (empty_column() for _ in range(9))
    free = np.zeros((0, resources), np.int64)
    return NodeClasses(0, 0, 0, 1, of, kind, size, first, length, at, free, edged, edge, begin)


def new_plan_workspace(resources: int) -> PlanWorkspace:
    """Return an empty workspace."""
    amounts = np.zeros(resources, np.int64), np.zeros(resources, np.int64)
    layout, heads = (
        NodeClassLayout(0, 0, 0, *(empty_column() for _ in range(8))),
        NodeRangeHeap(*(empty_column() for _ in range(6))),
    )
    return PlanWorkspace(
        0, 0, 0, 0, 0, 0, no_node_classes(resources), layout, heads, *amounts, *(empty_column() for _ in range(14))
    )


@kernel
def copy_starts(draft: PlanResult) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return copies of the starts' slots, offsets, nodes and units."""
    n = draft.started
    last = draft.offsets[n]
    return draft.slots[:n].copy(), draft.offsets[: n + 1].copy(), draft.nodes[:last].copy(), draft.units[:last].copy()


@kernel
def get_planned_starts(draft: PlanResult, count: int) -> IntArray:
    """Return a copy of the planned starts of `count` queued jobs."""
    return draft.plan_s[:count].copy()


@subroutine
def resize_column(column: Column, used: int, room: int) -> IntArray:
    """Return `column` if it has at least `room` entries, else a longer copy.

    The copy has at least twice the length, and the same first `used` entries.
    """
    if room <= len(column):
        return column
    found = np.empty(max(room, 2 * len(column)), np.int64)
    for i in range(used):
        found[i] = column[i]
    return found


class GrowableColumn(SharedStruct, grows=True):
    """One column of a shared struct, for `grow_columns`."""

    column: Column


@ColumnGrower
def grow_columns(held: GrowableColumn, used: int, room: int) -> None:
    """Grow columns: `grow_columns(handle, "field other", used, room)`.

    Afterwards, each column has at least `room` entries, of which the first `used` are unchanged. A column that grows at
    least doubles.
    """
    held.column = resize_column(held.column, used, room)
