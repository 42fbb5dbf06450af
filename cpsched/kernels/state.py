"""What kernels are handed: the machine, groups of its nodes, one instant, and a plan in the making."""

from __future__ import annotations

import numpy as np

from cpsched.compile.handles import Column, FixedColumn, FixedFlags, FixedMatrix, Handle, Matrix
from cpsched.compile.jit import inner, kernel
from cpsched.model import Cluster, IntArray, JobTable


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


class Groups(Handle, grows=True):
    """Groups of nodes, each with its line: steps `first[g]` .. `first[g] + length[g]` of `at` and `free`."""

    count: int
    """Groups in use."""
    steps: int
    """Steps in use."""
    peopled: int
    """Groups that have nodes."""
    stale: int
    """Whether the groups must be built anew before anybody reads them."""
    of: Column
    """int64[N]: the group of each node."""
    kind: Column
    size: Column
    first: Column
    length: Column
    at: Column
    """int64[steps]: second at which the step begins."""
    free: Matrix
    """int64[steps, R]"""
    edged: Column
    """By block of nodes: how many of them are of another group than the node before; -1 where nobody counted."""
    edge: Column
    """int64[N]: these nodes; each block has its own part, as long as the block."""
    begin: Column
    """In a plan: the first place of each group in the layout."""


class Layout(Handle, grows=True):
    """All nodes in the order of the groups with which a plan begins, those of a group by index.

    Nodes of successive indices are a *run*: places `at[r]` .. of the layout have the nodes from `node[r]` on, up to the
    next run or the end of the group.
    """

    times: int
    """How often nodes were laid out in this plan."""
    runs: int
    """Runs in use."""
    groups: int
    """Groups with which the plan began."""
    first: Column
    """By group with which the plan began: its first place."""
    asked: Column
    """By such a group: whether its runs are wanted."""
    ahead: Column
    """By such a group: where its next run goes, and which place that run begins with."""
    next: Column
    node: Column
    """By run: its first node."""
    at: Column
    """By run: its first place; rising."""
    since: Column
    """The runs as they are found, in index order: first node and the one behind."""
    until: Column


class Heads(Handle, grows=True):
    """Ranges of the layout that are walked side by side, least key first: a heap of numbers of ranges."""

    heap: Column
    """Numbers of ranges; the least key first."""
    key: Column
    """By number: what the heap is ordered by; the node that is next, or another."""
    group: Column
    place: Column
    """The place that is next."""
    last: Column
    """The place behind the range."""
    run: Column
    """The run of the place that is next."""


class Carried(Handle, grows=True):
    """Groups carried along from round to round, and how to find the group of a line."""

    groups: Groups
    signature: Column
    """By node: a number that is the same for nodes of the same kind and line."""
    known: Column
    """By group: the signature of its nodes."""
    table: Column
    """A hash table of groups by signature; -1 where it is empty."""


class Method(Handle):
    """All that makes one list scheduler differ from another."""

    order: int
    """Order of the queue."""
    backfill: int
    """Order after a single reservation; `ARRIVAL`: the same."""
    reservations: int
    allocation: int
    """Which nodes a start gets."""
    whole: int
    """Whether the whole plan is wanted, not the starts alone."""


class Draft(Handle, grows=True):
    """A plan in the making, and what came of it."""

    started: int
    """Jobs that start now."""
    plan_s: Column
    """Start by queue position, `NEVER` where none is known."""
    slots: Column
    """The jobs that start, in the order in which they were chosen."""
    offsets: Column
    """Where the entries of each start begin in `nodes` and `units`; one more than starts."""
    nodes: Column
    units: Column
    order: Column
    """Queue positions in the order of the method; empty where that is the queue's own."""
    held: Column
    """On a pool: what each running job gives back."""
    ends: Column
    """On a pool: ends of the starts, sorted."""
    taken: Column
    """On a pool: amounts of the starts, by their ends."""


class Trial(Handle, grows=True):
    """The side of a draft that deals with nodes."""

    reserved: int
    """Reservations made."""
    hopeless: int
    """Entries of `failed` in use."""
    slotted: int
    """Entries of `slotted_job` in use."""
    lasting: int
    """Whether jobs once placed stay: what is noted of them may then be replaced by what is noted of later ones."""
    crowd: int
    """Where jobs once placed stay: from so many groups on those without nodes are left out."""
    moves: int
    """Entries of `moved` in use."""
    groups: Groups
    """The groups as the plan leaves them so far."""
    layout: Layout
    heads: Heads
    available: Column
    """int64[R]: what all nodes together have free beside the starts so far."""
    most: Column
    """int64[R]: the most that one node has."""
    found: Column
    """By group: how many units of the job at hand a node holds."""
    rank: Column
    """By group: nodes of the highest rank are taken first."""
    failed: Column
    """Slots of jobs that could not start."""
    slotted_job: Column
    """Slots of jobs that have a reservation."""
    slotted_s: Column
    """The starts of those reservations: no job that asks for as much, for as long, can start before."""
    change_s: Column
    """Seconds at which the units that a job finds change."""
    change_by: Column
    moved: Column
    """By move, which is a range of nodes that a job takes out of a group: the group."""
    moved_count: Column
    """By move: how many nodes."""
    moved_units: Column
    """By move: the units that each of them gives."""
    moved_begin: Column
    """By move: their first place in the layout."""
    start_first: Column
    """By start: its first move."""
    start_last: Column
    """By start: the move behind its last."""


class Site(Handle):
    """One instant, as a plan reads it."""

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
    groups: Groups
    draft: Draft
    trial: Trial


def machine_of(cluster: Cluster, free: IntArray) -> Machine:
    """A cluster of which so much is `free` (int64[N, R])."""
    pool = int(cluster.capacity[:, 0].sum())
    return Machine(pool, free, cluster.capacity, cluster.node_sets, cluster.kind_of, cluster.kind_node)


def no_entries() -> IntArray:
    """A column without room."""
    return np.zeros(0, np.int64)


def new_draft() -> Draft:
    """A draft without room."""
    return Draft(0, *(no_entries() for _ in range(9)))


def no_groups(resources: int) -> Groups:
    """No groups yet: a plan on nodes builds them."""
    of, kind, size, first, length, at, edged, edge, begin = (no_entries() for _ in range(9))
    free = np.zeros((0, resources), np.int64)
    return Groups(0, 0, 0, 1, of, kind, size, first, length, at, free, edged, edge, begin)


def new_trial(resources: int) -> Trial:
    """A trial without room."""
    amounts = np.zeros(resources, np.int64), np.zeros(resources, np.int64)
    layout, heads = Layout(0, 0, 0, *(no_entries() for _ in range(8))), Heads(*(no_entries() for _ in range(6)))
    return Trial(0, 0, 0, 0, 0, 0, no_groups(resources), layout, heads, *amounts, *(no_entries() for _ in range(13)))


@kernel
def starts_of(draft: Draft) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Copies of slots, offsets, nodes and units of the jobs that start."""
    n = draft.started
    last = draft.offsets[n]
    return draft.slots[:n].copy(), draft.offsets[: n + 1].copy(), draft.nodes[:last].copy(), draft.units[:last].copy()


@kernel
def planned(draft: Draft, count: int) -> IntArray:
    """A copy of the planned starts of a queue of `count`."""
    return draft.plan_s[:count].copy()


@inner
def longer(column: Column, used: int, room: int) -> IntArray:
    """`column` with room for `room` entries: itself, or a copy of its first `used` in at least twice the room."""
    if room <= len(column):
        return column
    found = np.empty(max(room, 2 * len(column)), np.int64)
    for i in range(used):
        found[i] = column[i]
    return found
