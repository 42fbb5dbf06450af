"""The values every part of cpsched speaks in: cluster, request, job, snapshot, decision.

Two views of the same jobs exist side by side. `Job` and `RunningJob` are objects for people, adapters and
journals; `JobTable` holds the same facts as columns by *slot* for the kernels that loop over thousands of them.
A `Snapshot` carries the columns and finds the object of a slot when somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from cpsched.errors import require
from cpsched.handles import Column, Handle, Matrix

if TYPE_CHECKING:
    from cpsched.kernels.state import Site

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

Placement = tuple[tuple[int, int], ...]
"""Where a job runs: (node index, units on that node), each node once, in node order."""

Need = Literal["starts", "plan"]
"""What a caller needs from a decision: the starts alone (simulation), or the plan and the waits too (bridge)."""

NEVER = int(np.iinfo(np.int64).max)
"""Expected start of a job whose start the dispatcher does not know (integer seconds cannot be None in a column)."""

DISTINCT = 1
"""Bit of `JobTable.sharing`: each unit on a node of its own."""
EXCLUSIVE = 2
"""Bit of `JobTable.sharing`: nodes used are used by this job alone."""


def frozen_array(values: npt.ArrayLike) -> IntArray:
    """A read-only copy of `values` as C-contiguous int64."""
    array = np.array(values, dtype=np.int64, order="C")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """What does not change between rounds: nodes, resources, capacities, and which nodes a job may ask for.

    `capacity` is int64[N, R]. `node_sets` is bool[M, N]: row 0 holds all nodes, every other row one partition,
    feature or node list, named in `node_set_names`. Raises `InvalidValue` where shapes or signs are wrong.
    """

    node_names: tuple[str, ...]
    resources: tuple[str, ...]
    capacity: IntArray
    node_sets: BoolArray
    node_set_names: tuple[str, ...]
    counted: bool = field(init=False)
    """Whether units need no place: one resource, and one node or no more than one unit a node."""
    kind_of: IntArray = field(init=False)
    """int64[N]: nodes of the same kind have the same capacity and are in the same node sets."""
    kind_node: IntArray = field(init=False)
    """The first node of each kind."""

    def __post_init__(self) -> None:
        shape = (len(self.node_names), len(self.resources))
        require(self.capacity.shape == shape, "capacity.shape", self.capacity.shape, f"must be {shape}")
        require(shape[0] > 0 and shape[1] > 0, "capacity.shape", shape, "must have nodes and resources")
        require(bool((self.capacity >= 0).all()), "capacity", self.capacity.min(), "must not be negative")
        sets = (len(self.node_set_names), shape[0])
        require(self.node_sets.shape == sets, "node_sets.shape", self.node_sets.shape, f"must be {sets}")
        require(sets[0] > 0 and bool(self.node_sets[0].all()), "node_sets[0]", "", "must hold every node")
        self.capacity.setflags(write=False)
        self.node_sets.setflags(write=False)
        one_unit_each = shape[0] == 1 or int(self.capacity.max()) <= 1
        object.__setattr__(self, "counted", shape[1] == 1 and sets[0] == 1 and one_unit_each)
        facts = np.concatenate((self.capacity, np.packbits(self.node_sets, axis=0).T), axis=1)
        _, first, kinds = np.unique(facts, axis=0, return_index=True, return_inverse=True)
        object.__setattr__(self, "kind_of", frozen_array(kinds.reshape(-1)))
        object.__setattr__(self, "kind_node", frozen_array(first))

    @classmethod
    def of(
        cls,
        capacity: npt.ArrayLike,
        resources: Sequence[str],
        node_names: Sequence[str] | None = None,
        node_sets: Mapping[str, Sequence[int]] | None = None,
    ) -> Cluster:
        """A cluster from its capacity rows [N, R]; `node_sets` maps a name to node indices."""
        rows = np.array(capacity, dtype=np.int64, ndmin=2)
        names = tuple(node_names) if node_names is not None else tuple(f"n{i}" for i in range(len(rows)))
        sets = np.zeros((1 + len(node_sets or {}), len(rows)), dtype=np.bool_)
        sets[0] = True
        for row, members in enumerate((node_sets or {}).values(), start=1):
            sets[row, list(members)] = True
        return cls(names, tuple(resources), rows, sets, ("all", *(node_sets or {})))

    @property
    def size(self) -> int:
        """Number of nodes N."""
        return len(self.node_names)


@dataclass(frozen=True, slots=True)
class Request:
    """What a job asks for: `units` identical units, each wanting `per_unit` amounts **on one node**.

    `per_unit` follows `Cluster.resources`. Units may share a node unless `distinct` (Slurm's fixed --nodes: one
    unit per node). `exclusive` jobs use whole nodes: nobody else may be there, all of the node counts as used.
    `node_set` is a row of `Cluster.node_sets`. (pcp20 section 2.1: units = rn_i, per_unit = req_i,r / rn_i.)
    """

    units: int
    per_unit: tuple[int, ...]
    distinct: bool = False
    exclusive: bool = False
    node_set: int = 0

    def __post_init__(self) -> None:
        require(self.units > 0, "units", self.units, "must be positive")
        require(min(self.per_unit, default=-1) >= 0, "per_unit", self.per_unit, "must not be negative")
        require(max(self.per_unit) > 0, "per_unit", self.per_unit, "must ask for something")
        require(self.node_set >= 0, "node_set", self.node_set, "must be a row of node_sets")

    @property
    def sharing(self) -> int:
        """The `JobTable.sharing` bits."""
        return DISTINCT * self.distinct | EXCLUSIVE * self.exclusive


@dataclass(frozen=True, slots=True)
class Job:
    """A job as a scheduler may know it; never its real runtime.

    `ineligible` says why it may not start yet (dependency, begin time, ...); such a job is left out of decisions.
    """

    id: int
    submit_s: int
    walltime_s: int
    request: Request
    user: str = ""
    name: str = ""
    queue: str = ""
    account: str = ""
    ineligible: str | None = None

    def __post_init__(self) -> None:
        require(self.walltime_s > 0, "walltime_s", self.walltime_s, "must be positive")


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that occupies `placement` since `start_s`.

    An adapter leaves out of `placement` the nodes that will not come back to the scheduler (drained, down).
    """

    job: Job
    start_s: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that ran from `start_s` to `end_s`: what predictors and expected waits learn from."""

    job: Job
    start_s: int
    end_s: int

    @property
    def run_s(self) -> int:
        """Real run time; the field's minimum is one second."""
        return max(1, self.end_s - self.start_s)

    @property
    def wait_s(self) -> int:
        """Time in the queue."""
        return self.start_s - self.job.submit_s


class Places(Handle, grows=True):
    """Where jobs run: a pool of (node, units) entries that only grows. See `JobTable.place_at`."""

    used: int
    """Entries in use."""
    node: Column
    units: Column


class JobTable(Handle):
    """The same jobs as columns by slot (int64[S]), for kernels. Whoever builds the table owns and may grow it."""

    jobs: Sequence[Job]
    submit_s: Column
    walltime_s: Column
    estimate_s: Column
    """0 until the policy has predicted the job."""
    units: Column
    per_unit: Matrix
    """int64[S, R]"""
    sharing: Column
    """Bits `DISTINCT`, `EXCLUSIVE`."""
    node_set: Column
    start_s: Column
    end_s: Column
    """Expected end of a running job."""
    place_at: Column
    """Where a running job's entries begin in `places`."""
    place_count: Column
    """How many entries those are."""
    places: Places

    @property
    def place_node(self) -> IntArray:
        """int64[P]: the nodes of all placements, job after job."""
        return places_of(self)[0]

    @property
    def place_units(self) -> IntArray:
        """int64[P]: the units on those nodes."""
        return places_of(self)[1]

    @classmethod
    def of(
        cls, cluster: Cluster, queue: Sequence[Job], running: Sequence[RunningJob], estimates: Mapping[int, int]
    ) -> JobTable:
        """A table of the queued jobs (slots 0..Q-1, in order), then the running ones; estimates by job id."""
        jobs = [*queue, *(r.job for r in running)]
        queued, total, R = len(queue), len(jobs), len(cluster.resources)

        def column(values: Sequence[int]) -> IntArray:
            return np.fromiter(values, dtype=np.int64, count=len(values))

        sets = len(cluster.node_sets)
        for job in jobs:
            amounts, node_set = job.request.per_unit, job.request.node_set
            require(len(amounts) == R, f"job {job.id} per_unit", amounts, f"must have {R} amounts")
            require(node_set < sets, f"job {job.id} node_set", node_set, f"must be below {sets}")
        counts = [len(r.placement) for r in running]
        entries = [entry for r in running for entry in r.placement]
        start_s = np.zeros(total, np.int64)
        start_s[queued:] = [r.start_s for r in running]
        estimate_s = column([estimates.get(job.id, 0) for job in jobs])
        place_count = np.zeros(total, np.int64)
        place_count[queued:] = counts
        return cls(
            jobs=jobs,
            submit_s=column([job.submit_s for job in jobs]),
            walltime_s=column([job.walltime_s for job in jobs]),
            estimate_s=estimate_s,
            units=column([job.request.units for job in jobs]),
            per_unit=np.array([job.request.per_unit for job in jobs], dtype=np.int64).reshape(total, R),
            sharing=column([job.request.sharing for job in jobs]),
            node_set=column([job.request.node_set for job in jobs]),
            start_s=start_s,
            end_s=start_s + estimate_s,
            place_at=np.cumsum(place_count) - place_count,
            place_count=place_count,
            places=Places(
                used=len(entries),
                node=column([node for node, _ in entries]),
                units=column([units for _, units in entries]),
            ),
        )


def places_of(table: JobTable) -> tuple[IntArray, IntArray]:
    """Nodes and units of all placements of a table."""
    from cpsched.kernels.state import entries

    return entries(table.places)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One instant of a cluster: all that a decision may depend on. Arrays are valid during `decide` only.

    `free` is int64[N, R] and excludes what runs and what is drained. `queue` holds slots of eligible jobs in
    arrival order, `running` slots by expected end; `fresh` those slots that have no estimate yet.
    """

    now_s: int
    cluster: Cluster
    free: IntArray
    table: JobTable
    queue: IntArray
    running: IntArray
    fresh: IntArray
    site: Site | None = field(default=None, init=False)
    """The same as kernels are handed it, where the state carries it along; a changed copy of a snapshot has none."""

    @classmethod
    def of(
        cls,
        now_s: int,
        cluster: Cluster,
        free: npt.ArrayLike,
        queue: Sequence[Job],
        running: Sequence[RunningJob] = (),
        estimates: Mapping[int, int] | None = None,
    ) -> Snapshot:
        """A snapshot from objects; ineligible jobs are left out of the queue. Estimates are seconds by job id."""
        eligible = [job for job in queue if job.ineligible is None]
        table = JobTable.of(cluster, eligible, running, estimates or {})
        slots = np.arange(len(table.jobs), dtype=np.int64)
        ids = np.fromiter((r.job.id for r in running), np.int64, len(running))
        order = np.lexsort((ids, table.end_s[len(eligible) :]))
        return cls(
            now_s=now_s,
            cluster=cluster,
            free=frozen_array(free),
            table=table,
            queue=slots[: len(eligible)],
            running=slots[len(eligible) :][order],
            fresh=slots[table.estimate_s == 0],
        )

    def queued_jobs(self) -> tuple[Job, ...]:
        """The queue as objects, in arrival order."""
        return tuple(self.table.jobs[slot] for slot in self.queue.tolist())

    def running_jobs(self) -> tuple[RunningJob, ...]:
        """The running jobs as objects, by expected end."""
        return tuple(
            RunningJob(self.table.jobs[slot], int(self.table.start_s[slot]), self.placement_of(slot))
            for slot in self.running.tolist()
        )

    def placement_of(self, slot: int) -> Placement:
        """Where the running job of `slot` runs."""
        at, count = int(self.table.place_at[slot]), int(self.table.place_count[slot])
        nodes, units = self.table.place_node[at : at + count], self.table.place_units[at : at + count]
        return tuple(zip(nodes.tolist(), units.tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """Jobs that start now: slot by slot, with their placements in one pool.

    Placement of the i-th: `nodes[offsets[i]:offsets[i+1]]`, `units[...]` likewise; nodes ascending.
    """

    slots: IntArray
    offsets: IntArray
    nodes: IntArray
    units: IntArray

    def __len__(self) -> int:
        return len(self.slots)

    @classmethod
    def of(cls, placements: Mapping[int, Placement]) -> Starts:
        """From slot -> placement, in the order given."""
        entries = [entry for placement in placements.values() for entry in placement]
        return cls(
            slots=np.fromiter(placements, np.int64, len(placements)),
            offsets=np.cumsum([0, *(len(p) for p in placements.values())], dtype=np.int64),
            nodes=np.fromiter((node for node, _ in entries), np.int64, len(entries)),
            units=np.fromiter((units for _, units in entries), np.int64, len(entries)),
        )

    def placements(self) -> dict[int, Placement]:
        """Slot -> placement."""
        found: dict[int, Placement] = {}
        for i, slot in enumerate(self.slots.tolist()):
            part = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
            found[slot] = tuple(zip(self.nodes[part].tolist(), self.units[part].tolist(), strict=True))
        return found


NO_STARTS = Starts.of({})


@dataclass(frozen=True, slots=True)
class Effort:
    """What a decision cost and how it was reached.

    `path` is the short name of the way taken (a certain answer, a kernel, a solver); `status` what a solver
    said; `solver_s` its own seconds; `branches` its deterministic effort; `bound` a proved lower bound.
    """

    path: str
    considered: int = 0
    variables: int = 0
    status: str = ""
    objective: float | None = None
    bound: float | None = None
    solver_s: float = 0.0
    branches: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a queued job does not start now: a reason in words, and the job ids that stand before it."""

    reason: str
    behind: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Which jobs start now and where; when the others are expected to, and why they wait.

    `plan_s` is aligned with `snapshot.queue`: expected start of each job, `NEVER` where the dispatcher does not know;
    None when only starts were asked for. `waits` (by job id) is filled with `need="plan"` only.
    """

    starts: Starts
    effort: Effort
    plan_s: IntArray | None = None
    waits: Mapping[int, Wait] = field(default_factory=dict)

    def starts_by_job(self, snapshot: Snapshot) -> dict[int, Placement]:
        """Job id -> placement, for those that start now."""
        return {snapshot.table.jobs[slot].id: where for slot, where in self.starts.placements().items()}

    def plan_by_job(self, snapshot: Snapshot) -> dict[int, int]:
        """Job id -> expected start in seconds, for those whose start is known."""
        if self.plan_s is None:
            return {}
        pairs = zip(snapshot.queue.tolist(), self.plan_s.tolist(), strict=True)
        return {snapshot.table.jobs[slot].id: start for slot, start in pairs if start != NEVER}
