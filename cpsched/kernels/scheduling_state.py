"""The handles of the kernels: the machine, groups of its nodes, one instant, and a plan in the making."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import GrowColumns, kernel, subroutine
from cpsched.jit.handles import Column, FixedColumn, FixedFlags, FixedMatrix, Handle, Matrix
from cpsched.model import Cluster, IntArray, JobTable

TO_ITS_END = 2
"""Value of `ListSchedulerCode.whole`: each job of the queue is planned, however long the queue is. For nodes alone."""


class Machine(Handle):
    """The nodes as they are now. N nodes, R resources, M node sets."""

    pool: int
    """Capacity of the whole machine in its first resource."""
    free: FixedMatrix
    """int64[N, R]"""
    capacity: FixedMatrix
    """int64[N, R]"""
    node_sets: FixedFlags
    """bool[M, N]"""
    kind_of: FixedColumn
    """int64[N]: nodes of one kind have the same capacity and are in the same node sets."""
    kind_node: FixedColumn
    """A node of each kind."""


class NodeClasses(Handle, grows=True):
    """Groups of nodes with the same line. Group `g` has the steps `first[g]` .. `first[g] + length[g] - 1`."""

    count: int
    """Groups in use."""
    steps: int
    """Steps in use."""
    peopled: int
    """Groups that have nodes."""
    stale: int
    """1 if the groups must be rebuilt before they are read, otherwise 0."""
    of: Column
    """int64[N]: the group of each node."""
    kind: Column
    """By group: the kind of its nodes, see `Machine.kind_of`."""
    size: Column
    """By group: how many nodes it has."""
    first: Column
    """By group: the first step of its line."""
    length: Column
    """By group: how many steps its line has."""
    at: Column
    """int64[steps]: second at which the step begins."""
    free: Matrix
    """int64[steps, R]: what one node of the group has free from that second on."""
    edged: Column
    """By block of nodes: how many *edges* it has, nodes of another group than the node before; -1 where not counted."""
    edge: Column
    """int64[N]: the edges. Block b writes its own from index b * BLOCK on."""
    begin: Column
    """By group, in a plan: its first place in the layout."""


class NodeLayout(Handle, grows=True):
    """All nodes in a row: first those of group 0, then those of group 1, and so on; within a group by index.

    The groups are those with which the plan begins. A position in the row is a *place*. Nodes of one group with
    successive indices are a *run*: run `r` begins at place `at[r]` with node `node[r]`, and ends where the next run or
    the group ends.
    """

    times: int
    """How often nodes were laid out in this plan: 0, 1 (some groups) or 2 (all groups)."""
    runs: int
    """Runs in use."""
    groups: int
    """Groups with which the plan began."""
    first: Column
    """By group with which the plan began: its first place."""
    asked: Column
    """By group with which the plan began: 1 where its runs are wanted."""
    ahead: Column
    """By group with which the plan began, while runs are sorted: the index of its next run."""
    next: Column
    """By group with which the plan began, while runs are sorted: the place where its next run begins."""
    node: Column
    """By run: its first node."""
    at: Column
    """By run: its first place; rising."""
    since: Column
    """While runs are sorted, in index order: the first node of each run."""
    until: Column
    """While runs are sorted, in index order: the node behind the last one of each run."""


class RangeHeap(Handle, grows=True):
    """Ranges of the layout that are walked side by side: a heap of range numbers, least key first."""

    heap: Column
    """Range numbers as a binary heap."""
    key: Column
    """By range: what the heap is ordered by, such as the range's next node."""
    group: Column
    """By range: its group."""
    place: Column
    """By range: its next place."""
    last: Column
    """By range: the place behind its end."""
    run: Column
    """By range: the run of its next place."""


class IncrementalClasses(Handle, grows=True):
    """Groups kept from round to round, with a hash table that finds the group of a line."""

    groups: NodeClasses
    signature: Column
    """By node: a hash of its kind and line; equal for nodes that are alike."""
    known: Column
    """By group: the signature of its nodes."""
    table: Column
    """Hash table of groups by signature; -1 in an empty entry. Its length is a power of two."""


class ListSchedulerCode(Handle):
    """What makes one list scheduler differ from another."""

    order: int
    """Order of the queue."""
    backfill: int
    """Order of the other jobs after a single reservation; `ARRIVAL`: the same as `order`."""
    reservations: int
    """How many jobs that cannot start reserve a slot; or `STRICT` or `GREEDY`."""
    allocation: int
    """Which nodes a start gets: `FIRST_FIT` or `BEST_FIT`."""
    whole: int
    """1 where the whole plan is wanted, 0 where its starts suffice, `TO_ITS_END` where no queue is too long."""


class PlanResult(Handle, grows=True):
    """The result of a plan: who starts now and where, and when the others are expected to start."""

    started: int
    """Jobs that start now."""
    plan_s: Column
    """Start by queue position, `NEVER` where none is known."""
    slots: Column
    """The jobs that start, in the order in which they were chosen."""
    offsets: Column
    """int64[starts + 1]: where the entries of each start begin in `nodes` and `units`."""
    nodes: Column
    """By entry: a node of the start."""
    units: Column
    """By entry: how many units of the job are on that node."""
    order: Column
    """Queue positions in the order of the method; empty where that is the queue's own."""
    held: Column
    """On a pool, by running job: the amount it releases when it ends."""
    ends: Column
    """On a pool: when the starts end, sorted."""
    taken: Column
    """On a pool: the amount of each start, sorted as `ends`."""


class PlanWorkspace(Handle, grows=True):
    """The working state of a plan on nodes: groups as placed jobs leave them, and notes that save work."""

    reserved: int
    """Reservations made."""
    hopeless: int
    """Entries of `failed` in use."""
    slotted: int
    """Entries of `slotted_job` in use."""
    lasting: int
    """True while placements are final, so that notes on earlier jobs may be overwritten."""
    crowd: int
    """While placements are final: with more groups than this, groups without nodes are left out."""
    moves: int
    """Entries of `moved` in use."""
    groups: NodeClasses
    """The groups as the plan leaves them so far."""
    layout: NodeLayout
    heads: RangeHeap
    available: Column
    """int64[R]: what all nodes together have free now, less what the starts so far take."""
    most: Column
    """int64[R]: the largest capacity of a node."""
    found: Column
    """By group: how many units of the job at hand one node holds."""
    rank: Column
    """By group: nodes of groups with a higher rank are taken first."""
    failed: Column
    """Slots of jobs that could not start now. A job that asks for as much as one of them cannot either."""
    slotted_job: Column
    """Slots of jobs with a remembered reservation."""
    slotted_s: Column
    """The start of each remembered reservation: no job that asks for as much, for as long, can start before."""
    change_s: Column
    """Seconds at which the number of units that a job finds changes."""
    change_by: Column
    """By how many units it changes then."""
    moved: Column
    """By move: the group that gives nodes. A *move* is a range of nodes that a job takes out of a group."""
    moved_count: Column
    """By move: how many nodes."""
    moved_units: Column
    """By move: how many units of the job each of the nodes gets."""
    moved_begin: Column
    """By move: the first of its places in the layout."""
    start_first: Column
    """By start: its first move."""
    start_last: Column
    """By start: the move behind its last."""


class SchedulingState(Handle):
    """One instant of a cluster, with the groups carried along and room for a plan."""

    now_s: int
    queued: int
    """Jobs in the queue."""
    active: int
    """Jobs running."""
    machine: Machine
    jobs: JobTable
    queue: Column
    """Slots in arrival order; the first `queued` count."""
    running: Column
    """Slots by expected end; the first `active` count."""
    groups: NodeClasses
    draft: PlanResult
    trial: PlanWorkspace


def machine_handle(cluster: Cluster, free: IntArray) -> Machine:
    """The machine of a cluster with `free` amounts (int64[N, R])."""
    pool = int(cluster.capacity[:, 0].sum())
    return Machine(pool, free, cluster.capacity, cluster.node_sets, cluster.kind_of, cluster.kind_node)


def empty_column() -> IntArray:
    """A column without room."""
    return np.zeros(0, np.int64)


def new_plan_result() -> PlanResult:
    """A draft without room."""
    return PlanResult(0, *(empty_column() for _ in range(9)))


def no_node_classes(resources: int) -> NodeClasses:
    """No groups yet: a plan on nodes builds them."""
    of, kind, size, first, length, at, edged, edge, begin = (empty_column() for _ in range(9))
    free = np.zeros((0, resources), np.int64)
    return NodeClasses(0, 0, 0, 1, of, kind, size, first, length, at, free, edged, edge, begin)


def new_plan_workspace(resources: int) -> PlanWorkspace:
    """A trial without room."""
    amounts = np.zeros(resources, np.int64), np.zeros(resources, np.int64)
    layout, heads = (
        NodeLayout(0, 0, 0, *(empty_column() for _ in range(8))),
        RangeHeap(*(empty_column() for _ in range(6))),
    )
    return PlanWorkspace(
        0, 0, 0, 0, 0, 0, no_node_classes(resources), layout, heads, *amounts, *(empty_column() for _ in range(13))
    )


@kernel
def starts_of(draft: PlanResult) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Copies of slots, offsets, nodes and units of the jobs that start."""
    n = draft.started
    last = draft.offsets[n]
    return draft.slots[:n].copy(), draft.offsets[: n + 1].copy(), draft.nodes[:last].copy(), draft.units[:last].copy()


@kernel
def planned(draft: PlanResult, count: int) -> IntArray:
    """A copy of the planned starts of a queue of `count`."""
    return draft.plan_s[:count].copy()


@subroutine
def resized(column: Column, used: int, room: int) -> IntArray:
    """`column` with room for `room` entries: itself, or a copy of its first `used` in at least twice the room."""
    if room <= len(column):
        return column
    found = np.empty(max(room, 2 * len(column)), np.int64)
    for i in range(used):
        found[i] = column[i]
    return found


class GrowableColumn(Handle, grows=True):
    """One column of a handle, for `grow_columns`."""

    column: Column


@GrowColumns
def grow_columns(held: GrowableColumn, used: int, room: int) -> None:
    """`grow(handle, "field other", used, room)` gives columns of a handle room for `room` entries.

    The first `used` entries stay as they are. A column that is too short gets at least twice the room.
    """
    held.column = resized(held.column, used, room)
