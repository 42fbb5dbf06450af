"""Handles of the kernels: machine, node classes, state, plan result, workspace."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import ColumnGrower, kernel, subroutine
from cpsched.jit.handles import Column, FixedColumn, FixedFlags, FixedMatrix, Handle, Matrix
from cpsched.model import Cluster, IntArray, JobTable

TO_ITS_END = 2
"""Value of `ListSchedulerParameters.whole` on nodes: plan each job of the queue."""


class NodeResourceState(Handle):
    """The nodes now: N nodes, R resources, M node sets."""

    pool: int
    """Capacity of the whole machine in its first resource."""
    free: FixedMatrix
    """int64[N, R]"""
    capacity: FixedMatrix
    """int64[N, R]"""
    node_sets: FixedFlags
    """bool[M, N]"""
    kind_of: FixedColumn
    """int64[N]: nodes of one kind have equal capacity and are in the same node sets."""
    kind_node: FixedColumn
    """A node of each kind."""


class NodeClasses(Handle, grows=True):
    """Classes of nodes with the same profile.

    Class `g` has the steps `first[g]` to `first[g] + length[g] - 1`.
    """

    count: int
    """Classes in use."""
    steps: int
    """Steps in use."""
    peopled: int
    """Classes that have nodes."""
    stale: int
    """1 if the classes must be rebuilt before use, otherwise 0."""
    of: Column
    """int64[N]: the class of each node."""
    kind: Column
    """By class: the kind of its nodes, see `NodeResourceState.kind_of`."""
    size: Column
    """By class: its number of nodes."""
    first: Column
    """By class: the first step of its profile."""
    length: Column
    """By class: the number of steps of its profile."""
    at: Column
    """int64[steps]: the second at which the step begins."""
    free: Matrix
    """int64[steps, R]: free amounts of one node of the class from that second on."""
    edged: Column
    """By block: its number of *edges*, nodes of another class than the node before.

    -1 means not counted.
    """
    edge: Column
    """int64[N]: the edges; those of block b begin at index b * BLOCK."""
    begin: Column
    """By class, in a plan: its first place in the layout."""


class NodeClassLayout(Handle, grows=True):
    """All nodes in a row, by class and then by index.

    The classes are those at the beginning of the plan. A position in the row is a *place*. Nodes of one class with
    successive indices are a *run*. Run `r` begins at place `at[r]` with node `node[r]`. It ends at the next run or the
    end of the class.
    """

    times: int
    """Layouts computed in this plan: 0, 1 (some classes) or 2 (all classes)."""
    runs: int
    """Runs in use."""
    groups: int
    """Classes at the beginning of the plan."""
    first: Column
    """By class at the beginning of the plan: its first place."""
    asked: Column
    """By class at the beginning of the plan: 1 if its runs are needed."""
    ahead: Column
    """By class, during the sort of runs: the index of its next run."""
    next: Column
    """By class, during the sort of runs: the first place of its next run."""
    node: Column
    """By run: its first node."""
    at: Column
    """By run: its first place, ascending."""
    since: Column
    """During the sort of runs, in index order: the first node of each run."""
    until: Column
    """During the sort of runs, in index order: the node after the last of each run."""


class NodeRangeHeap(Handle, grows=True):
    """Ranges of the layout to merge: a heap of range numbers, smallest key first."""

    heap: Column
    """Range numbers as a binary heap."""
    key: Column
    """By range: its sort key, such as its next node."""
    group: Column
    """By range: its class."""
    place: Column
    """By range: its next place."""
    last: Column
    """By range: the place after its end."""
    run: Column
    """By range: the run of its next place."""


class IncrementalNodeClasses(Handle, grows=True):
    """Classes carried between rounds, with a hash table from profile to class."""

    groups: NodeClasses
    signature: Column
    """By node: a hash of its kind and profile."""
    known: Column
    """By class: the signature of its nodes."""
    table: Column
    """Hash table of classes by signature; -1 if empty. Its length is a power of two."""


class ListSchedulerParameters(Handle):
    """The parameters of a list scheduler."""

    order: int
    """Order of the queue."""
    backfill: int
    """Order of the other jobs after a single reservation; `ARRIVAL`: same as `order`."""
    reservations: int
    """Number of jobs that reserve their earliest start; or `STRICT` or `GREEDY`."""
    allocation: int
    """Selection of nodes: `FIRST_FIT` or `BEST_FIT`."""
    whole: int
    """0: starts alone; 1: the whole plan; `TO_ITS_END`: the plan of each job."""


class PlanResult(Handle, grows=True):
    """The result of a plan: the jobs that start now, their nodes, and planned starts."""

    started: int
    """Number of jobs that start now."""
    plan_s: Column
    """Start by queue position, `NEVER` if unknown."""
    slots: Column
    """The jobs that start, in the order of selection."""
    offsets: Column
    """int64[starts + 1]: offset of each start in `nodes` and `units`."""
    nodes: Column
    """By entry: a node of the start."""
    units: Column
    """By entry: the job's units on that node."""
    order: Column
    """Queue positions in the order of the method; empty for the queue's order."""
    held: Column
    """On a pool, by running job: the amount that it releases at its end."""
    ends: Column
    """On a pool: the ends of the starts, sorted."""
    taken: Column
    """On a pool: the amount of each start, sorted as `ends`."""


class PlanWorkspace(Handle, grows=True):
    """The working state of a plan on nodes: classes after placed jobs, and caches."""

    reserved: int
    """Reservations made."""
    hopeless: int
    """Entries of `failed` in use."""
    slotted: int
    """Entries of `slotted_job` in use."""
    lasting: int
    """True while placements are final: cached reservations may be overwritten."""
    crowd: int
    """While placements are final: class count above which empty ones are dropped."""
    moves: int
    """Entries of `moved` in use."""
    groups: NodeClasses
    """The classes after the jobs placed so far."""
    layout: NodeClassLayout
    heads: NodeRangeHeap
    available: Column
    """int64[R]: free amounts of all nodes now, less those of the starts so far."""
    most: Column
    """int64[R]: the largest capacity of a node."""
    found: Column
    """By class: units of the current job that one node holds."""
    rank: Column
    """By class: its rank; nodes of higher ranks are taken first."""
    failed: Column
    """Slots of jobs that cannot start now; jobs that demand as much cannot either."""
    slotted_job: Column
    """Slots of jobs with a remembered reservation."""
    slotted_s: Column
    """Start of each remembered reservation, a bound for jobs that demand as much."""
    change_s: Column
    """Seconds at which the number of units for a job changes."""
    change_by: Column
    """The change in units at each of these seconds."""
    moved: Column
    """By move, a range of nodes that a job takes from a class: that class."""
    moved_count: Column
    """By move: its number of nodes."""
    moved_units: Column
    """By move: units of the job on each node."""
    moved_begin: Column
    """By move: its first place in the layout."""
    start_first: Column
    """By start: its first move."""
    start_last: Column
    """By start: the move after its last."""


class SchedulingState(Handle):
    """One instant of a cluster, with carried classes and space for a plan."""

    now_s: int
    queued: int
    """Number of queued jobs."""
    active: int
    """Number of running jobs."""
    machine: NodeResourceState
    jobs: JobTable
    queue: Column
    """Slots in arrival order; the first `queued` are valid."""
    running: Column
    """Slots by expected end; the first `active` are valid."""
    groups: NodeClasses
    draft: PlanResult
    trial: PlanWorkspace


def machine_handle(cluster: Cluster, free: IntArray) -> NodeResourceState:
    """Return the machine of a cluster with `free` amounts (int64[N, R])."""
    pool = int(cluster.capacity[:, 0].sum())
    return NodeResourceState(pool, free, cluster.capacity, cluster.node_sets, cluster.kind_of, cluster.kind_node)


def empty_column() -> IntArray:
    """Return a column of length 0."""
    return np.zeros(0, np.int64)


def new_plan_result() -> PlanResult:
    """Return an empty plan result."""
    return PlanResult(0, *(empty_column() for _ in range(9)))


def no_node_classes(resources: int) -> NodeClasses:
    """Return node classes that the next plan on nodes builds."""
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
        0, 0, 0, 0, 0, 0, no_node_classes(resources), layout, heads, *amounts, *(empty_column() for _ in range(13))
    )


@kernel
def copy_starts(draft: PlanResult) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return copies of slots, offsets, nodes and units of the starts."""
    n = draft.started
    last = draft.offsets[n]
    return draft.slots[:n].copy(), draft.offsets[: n + 1].copy(), draft.nodes[:last].copy(), draft.units[:last].copy()


@kernel
def get_planned_starts(draft: PlanResult, count: int) -> IntArray:
    """Return a copy of the planned starts of `count` queued jobs."""
    return draft.plan_s[:count].copy()


@subroutine
def resize_column(column: Column, used: int, room: int) -> IntArray:
    """Return `column` if it has `room` entries, else a longer copy.

    The copy has at least twice the length, and keeps the first `used` entries.
    """
    if room <= len(column):
        return column
    found = np.empty(max(room, 2 * len(column)), np.int64)
    for i in range(used):
        found[i] = column[i]
    return found


class GrowableColumn(Handle, grows=True):
    """Hold one column of a handle for `grow_columns`."""

    column: Column


@ColumnGrower
def grow_columns(held: GrowableColumn, used: int, room: int) -> None:
    """Grow a handle's columns: `grow(handle, "field other", used, room)`.

    Afterwards each column has `room` entries, of which the first `used` are unchanged. A short column at least doubles.
    """
    held.column = resize_column(held.column, used, room)
