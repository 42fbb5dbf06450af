"""Define the input to a dispatcher: a cluster's state with job estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from cpsched.errors import InvalidValue, require
from cpsched.formatting import abbreviated_repr
from cpsched.jit.shared_structs import SharedStruct
from cpsched.model.cluster import Cluster, IntArray, frozen_array
from cpsched.model.job import Job, Placement, RunningJob
from cpsched.model.job_table import JobTable
from cpsched.model.overrun import DEFAULT_OVERRUN, Overrun, expected_end_s
from cpsched.model.value_bounds import TIME_BOUND_S, require_duration, require_time

FIRST_DATED_S = 100_000_000
"""March 1973 as Unix time. Real jobs are later, and times relative to a trace's start are smaller."""
NO_ESTIMATES: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """All data that a decision may depend on. Arrays are valid only during `decide`.

    - `now_s`: the instant, in seconds.
    - `free`: int64[N, R], amounts that are neither in use nor drained.
    - `table`: all jobs as columns by slot. Every queued or running job has an estimate of at least one second.
    - `queue`: int64[Q], slots of eligible pending jobs, in order of arrival.
    - `running`: int64[A], slots of running jobs, by expected end (`table.end_s`), which is always after `now_s`.
    - `carried`: the same data in the kernels' format if the caller maintains it, or None (see
      `cpsched.planning.get_scheduling_state`). A changed copy has None.

    The constructor checks these rules and raises `InvalidValue`. A caller whose state guarantees them, such as the
    simulated cluster, may skip the check with `by_construction=True` and pass `carry`.

    >>> from cpsched.model import Cluster, Job, Request
    >>> cluster = Cluster.of([[4], [4]], ["cores"])
    >>> job = Job(id=1, submit_s=0, walltime_s=60, request=Request(2, (4,)))
    >>> snapshot = Snapshot.of(0, cluster, cluster.capacity, [job], estimates={1: 45})
    >>> snapshot.estimate_of(job)
    45
    """

    now_s: int
    cluster: Cluster
    free: IntArray
    table: JobTable
    queue: IntArray
    running: IntArray
    carried: SharedStruct | None = field(default=None, init=False)
    by_construction: InitVar[bool] = False
    carry: InitVar[SharedStruct | None] = None

    __repr__ = abbreviated_repr

    @property
    def unix_s(self) -> int | None:
        """The instant as Unix time, or None for a trace without UnixStartTime.

        `datetime.fromtimestamp(snapshot.unix_s, ZoneInfo("Europe/Berlin")).hour` is the local hour.
        """
        at_s = self.now_s + self.cluster.epoch_s
        return at_s if at_s >= FIRST_DATED_S else None

    def __post_init__(self, by_construction: bool, carry: SharedStruct | None) -> None:
        object.__setattr__(self, "carried", carry)
        if not by_construction:
            self.check()

    @classmethod
    def of(
        cls,
        now_s: int,
        cluster: Cluster,
        free: npt.ArrayLike,
        queue: Sequence[Job],
        running: Sequence[RunningJob] = (),
        estimates: Mapping[int, int] = NO_ESTIMATES,
        overrun: Overrun = DEFAULT_OVERRUN,
    ) -> Snapshot:
        """Return a snapshot of jobs that are given as objects.

        `estimates` contains seconds by job id for every eligible or running job. The snapshot's queue omits ineligible
        jobs. `overrun` is the rule for the expected end of a running job that has outlived its estimate. Raise
        `InvalidValue` if an estimate is missing or if the snapshot violates another rule.
        """
        eligible = [job for job in queue if job.ineligible is None]
        table = JobTable.of(cluster, eligible, running)
        table.estimate_s[:] = [_require_estimate(job, estimates) for job in table.jobs]
        state = ClusterState(now_s, cluster, np.asarray(free, np.int64), tuple(queue), tuple(running))
        return cls.from_owned_table(table, len(eligible), state, overrun)

    @classmethod
    def from_owned_table(cls, table: JobTable, queued: int, state: ClusterState, overrun: Overrun) -> Snapshot:
        """Return the snapshot of a cluster state that takes ownership of `table` and writes expected ends.

        The table contains the estimates (see `JobTable.of`). Its first `queued` jobs are pending.
        """
        slots = np.arange(len(table.jobs), dtype=np.int64)
        active, now_s = slots[queued:], state.now_s
        table.end_s[:] = table.start_s + table.estimate_s
        for slot in active[table.end_s[active] <= now_s].tolist():
            start_s, estimate_s = int(table.start_s[slot]), int(table.estimate_s[slot])
            table.end_s[slot] = expected_end_s(start_s, estimate_s, int(table.walltime_s[slot]), now_s, overrun)
        ids = np.fromiter((job.id for job in table.jobs[queued:]), np.int64, len(active))
        order = np.lexsort((ids, table.end_s[active]))
        return cls(
            now_s=now_s,
            cluster=state.cluster,
            free=frozen_array(state.free),
            table=table.read_only(),
            queue=slots[:queued],
            running=active[order],
        )

    def check(self) -> None:
        """Raise `InvalidValue` if the snapshot violates a rule."""
        table, shape, total = self.table, self.cluster.capacity.shape, len(self.table.jobs)
        require_time("now_s", self.now_s)
        for name, array, axes in (("free", self.free, 2), ("queue", self.queue, 1), ("running", self.running, 1)):
            right = isinstance(array, np.ndarray) and array.dtype == np.int64 and array.ndim == axes
            require(right, name, getattr(array, "dtype", type(array).__name__), f"must be int64 with {axes} axes")
        require(self.free.shape == shape, "free.shape", self.free.shape, f"must be {shape}")
        require(bool((self.free >= 0).all()), "free", self.free.min(initial=0), "must not be negative")
        slots = np.concatenate((self.queue, self.running))
        known = bool(((slots >= 0) & (slots < total)).all())
        require(known, "queue and running", slots, f"must be slots below {total}")
        require(len(np.unique(slots)) == len(slots), "queue and running", slots, "must contain each job once")
        estimates, ends = table.estimate_s[slots], table.end_s[self.running]
        for slot in slots[(estimates < 1) | (estimates >= TIME_BOUND_S)][:1].tolist():
            require_duration(f"job {table.jobs[slot].id} estimate_s", int(table.estimate_s[slot]))
        for slot in self.running[ends <= self.now_s][:1].tolist():
            require(False, f"job {table.jobs[slot].id} end_s", table.end_s[slot], f"must be after now_s={self.now_s}")
        require(bool((ends[1:] >= ends[:-1]).all()), "running", self.running, "must be sorted by expected end")

    def queued_jobs(self) -> tuple[Job, ...]:
        """Return the queue as objects, in order of arrival."""
        return tuple(self.table.jobs[slot] for slot in self.queue.tolist())

    def running_jobs(self) -> tuple[RunningJob, ...]:
        """Return the running jobs as objects, by expected end."""
        return tuple(
            RunningJob(self.table.jobs[slot], int(self.table.start_s[slot]), self.placement_of(slot))
            for slot in self.running.tolist()
        )

    def estimate_of(self, job: Job) -> int:
        """Return a job's estimate in seconds. Raise `InvalidValue` for an unknown job."""
        return int(self.table.estimate_s[self.table.slot_of(job.id)])

    def placement_of(self, slot: int) -> Placement:
        """Return the placement of the running job in `slot`."""
        at, count = int(self.table.place_at[slot]), int(self.table.place_count[slot])
        nodes, units = self.table.place_node[at : at + count], self.table.place_units[at : at + count]
        return tuple(zip(nodes.tolist(), units.tolist(), strict=True))


def _require_estimate(job: Job, estimates: Mapping[int, int]) -> int:
    given = estimates.get(job.id)
    if isinstance(given, int) and 0 < given < TIME_BOUND_S:
        return given
    raise InvalidValue(f"job {job.id} estimate_s", given, "must be a whole number of seconds of at least 1")


@dataclass(frozen=True, slots=True, eq=False)
class ClusterState:
    """A cluster at one instant, which `Policy.add_estimates` converts to a `Snapshot`.

    - `now_s`: the instant in seconds, on the same clock as the jobs' times. This is Unix time for live clusters and
      accounting data, and seconds since the header's UnixStartTime for the Standard Workload Format.
    - `free`: int64[N, R], amounts that are neither in use nor drained.
    - `queue`: the pending jobs in order of arrival. The snapshot omits ineligible jobs.
    - `running`: the jobs that occupy nodes.
    """

    now_s: int
    cluster: Cluster
    free: IntArray
    queue: tuple[Job, ...]
    running: tuple[RunningJob, ...] = ()

    __repr__ = abbreviated_repr
