"""A simulated cluster in columns: resources, queue, running jobs and run times.

The replay and the bridge's mock adapter share this module. The caller sets the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from cpsched.errors import InvalidValue
from cpsched.feasibility import why_infeasible
from cpsched.kernels.scheduling_state import (
    IncrementalNodeClasses,
    SchedulingState,
    build_node_resource_state,
    copy_starts,
    empty_column,
    new_plan_result,
    new_plan_workspace,
    no_node_classes,
)
from cpsched.model import (
    NEVER,
    NO_STARTS,
    Cluster,
    ClusterState,
    EndedJob,
    IntArray,
    Job,
    JobTable,
    Placement,
    PlacementPool,
    Request,
    Snapshot,
    Starts,
    frozen_array,
)
from cpsched.model.job_table import read_only_view
from cpsched.model.overrun import DEFAULT_OVERRUN, OVERRUN_CODES, Overrun
from cpsched_sim.cluster import event_kernels
from cpsched_sim.cluster.event_kernels import SimulatedClusterState
from cpsched_sim.cluster.simulated_gpu_parts import SimulatedGpuParts
from cpsched_sim.traces.trace_jobs import ColumnarTrace, SchedulerVisibleJobs, TraceJob

INITIAL_CAPACITY = 64


class SimulatedCluster:
    """A simulated cluster. Its API uses objects. Its state is columns by slot.

    A slot is a job's position in order of submission. `overrun` defines how the expected end of a running job is
    revised when the job exceeds its estimate. A snapshot is a view, valid until the next call that changes the
    cluster.
    """

    def __init__(self, cluster: Cluster, overrun: Overrun = DEFAULT_OVERRUN, now_s: int = 0) -> None:
        self.cluster = cluster
        self.table = new_job_table((), len(cluster.resources))
        self.state = new_cluster_state(cluster, self.table, OVERRUN_CODES[overrun], now_s)
        self.site = self.state.site
        self._gpu_parts = SimulatedGpuParts(cluster, self.state)
        self._refusals: dict[Request, str | None] = {}
        self._free_view = read_only_view(self.state.free)
        self._create_column_views()

    # ------------------------------------------------------------------------------------------ state

    @property
    def now_s(self) -> int:
        """Return the cluster's current time in seconds."""
        return self.site.now_s

    @property
    def queue_length(self) -> int:
        """Return the number of queued jobs."""
        return self.site.queued

    @property
    def running_count(self) -> int:
        """Return the number of running jobs."""
        return self.site.active

    @property
    def jobs(self) -> Sequence[Job]:
        """Return the jobs by slot."""
        return self.table.jobs

    def next_end_s(self) -> int | None:
        """Return the next real end of a running job in seconds, or None without one."""
        return int(self.state.end_at[self.state.heap[0]]) if self.site.active else None

    def real_end_s(self, slot: int) -> int:
        """Return the real end of a started job in seconds."""
        return int(self.state.end_at[slot])

    def slot_of(self, job_id: int) -> int:
        """Return the slot of a submitted job. Raise `InvalidValue` for other jobs."""
        slots = self.table.slot_by_job_id()
        if job_id not in slots:
            raise InvalidValue("job", job_id, "was never submitted to this cluster")
        return slots[job_id]

    def why_infeasible(self, request: Request) -> str | None:
        """Return why a job with this request can never run, or None if it can."""
        if request not in self._refusals:
            self._refusals[request] = why_infeasible(request, self.cluster)
        return self._refusals[request]

    def snapshot(self) -> Snapshot:
        """Return the current state. Its arrays are read-only views.

        A snapshot's invariants hold by construction: a job's estimate is its walltime until `table.estimate_s` is
        set, and after time has advanced, the expected ends of running jobs are in the future.
        """
        site = self.site
        return Snapshot(
            site.now_s,
            self.cluster,
            self._free_view,
            self._fixed_table,
            self._queue_view[: site.queued],
            self._running_view[: site.active],
            True,  # valid by construction (see the docstring)
            site,
        )

    def observe(self) -> ClusterState:
        """Return a copy of the current state without the jobs' real run times."""
        snapshot = self.snapshot()
        free = frozen_array(self.state.free)
        return ClusterState(self.now_s, self.cluster, free, snapshot.queued_jobs(), snapshot.running_jobs())

    # ------------------------------------------------------------------------------------------ events

    def submit(self, job: Job, run_s: int) -> str | None:
        """Queue `job` with its real run time, and return None.

        If the job can never run, return the reason. Raise `InvalidValue` if it was already submitted.
        """
        if job.id in self.table.slot_by_job_id():
            raise InvalidValue("job", job.id, "was already submitted")
        reason = self.why_infeasible(job.request)
        if reason is None:
            self.append_to_queue(self._add_job(job, run_s))
        return reason

    def append_to_queue(self, slot: int) -> None:
        """Queue the job in a slot, after all queued jobs."""
        self.site.queue[self.site.queued] = slot
        self.state.phase[slot] = event_kernels.WAITING
        self.site.queued += 1

    def cancel(self, job_id: int) -> None:
        """Remove a queued job. Raise `InvalidValue` if it is not queued."""
        slot = self.slot_of(job_id)
        if self.state.phase[slot] != event_kernels.WAITING:
            raise InvalidValue("job", job_id, "is not in the queue")
        event_kernels.cancel_queued_job(self.state, slot)

    def preempt(self, job_id: int, requeue: bool) -> None:
        """Stop a running job now. Raise `InvalidValue` if it is not running.

        With `requeue`, return the job to the queue.
        """
        slot = self.slot_of(job_id)
        if self.state.phase[slot] != event_kernels.ACTIVE:
            raise InvalidValue("job", job_id, "is not running")
        event_kernels.stop_running_job(self.state, slot, int(requeue))
        self.update_gpu_parts()

    def load(self, trace: Sequence[TraceJob]) -> tuple[IntArray, dict[int, str]]:
        """Assign a slot to every job and schedule its arrival.

        Return (slots by arrival, slot -> reason why the job can never run).
        """
        first, items = len(self.jobs), ColumnarTrace.of(trace)
        self._grow_columns(first + len(items))
        self._fill_columns(items)
        reasons = list(map(self.why_infeasible, items.requests))
        is_refused = np.array([reason is not None for reason in reasons], np.bool_)[items.request]
        refused = {first + at: cast(str, reasons[items.request[at]]) for at in np.flatnonzero(is_refused).tolist()}
        slots = first + np.flatnonzero(~is_refused)
        arrivals = slots[np.argsort(self.table.submit_s[slots], kind="stable")]
        self.state.set_fields(arrivals=arrivals)
        return arrivals, refused

    def advance(self, to_s: int) -> list[EndedJob]:
        """Advance to `to_s`. Return the jobs that ended until then."""
        if to_s < self.now_s:
            raise InvalidValue("to_s", to_s, f"must not be before {self.now_s}")
        self.advance_without_round(to_s)
        self.state.due = 0
        return self.take_ended_jobs()

    def advance_without_round(self, to_s: int) -> None:
        """Advance to `to_s` without a round. After any event, a round becomes due."""
        event_kernels.advance_to_next_round_from_python(self.state, event_kernels.NO_ROUND, to_s)
        self.update_gpu_parts()

    def start(self, job_id: int, placement: Placement) -> None:
        """Start one queued job now. Raise `InvalidValue` if the start breaks the fit rule."""
        self.apply(Starts.of({self.slot_of(job_id): placement}))

    def apply(self, starts: Starts) -> None:
        """Start jobs now.

        If a start breaks the fit rule, raise `InvalidValue` and start no jobs.
        """
        fault = self.try_start_jobs(starts)
        if fault >= 0:
            slot = int(starts.slots[fault])
            known = 0 <= slot < len(self.jobs)
            raise InvalidValue(
                "start", self.jobs[slot].id if known else slot, "does not fit on the cluster in its current state"
            )

    def try_start_jobs(self, starts: Starts) -> int:
        """Start jobs now and return -1.

        If a start breaks the fit rule, start no jobs and return its position.
        """
        if not len(starts):
            return -1
        fault = self._gpu_parts.find_rejected_start(starts) if self.shares_gpus else -1
        if fault < 0:
            fault = event_kernels.start_jobs_from_python(
                self.state, (starts.slots, starts.offsets, starts.nodes, starts.units)
            )
        if fault < 0:
            self.update_gpu_parts(starts)
        return fault

    def start_and_advance(self, starts: Starts, pause: int) -> int:
        """Start jobs now, then advance (see `event_kernels.start_jobs_and_advance`)."""
        if self.shares_gpus:
            self.state.fault = self.try_start_jobs(starts)
            return event_kernels.FAULTY if self.state.fault >= 0 else self.advance_to_next_round(pause, NEVER - 1)
        return event_kernels.start_jobs_and_advance(
            self.state, (starts.slots, starts.offsets, starts.nodes, starts.units), pause
        )

    def advance_to_next_round(self, pause: int, limit_s: int) -> int:
        """Advance to the next round or to `limit_s` (see `event_kernels.advance_to_next_round`)."""
        found = event_kernels.advance_to_next_round_from_python(self.state, pause, limit_s)
        self.update_gpu_parts()
        return found

    def update_gpu_parts(self, starts: Starts = NO_STARTS) -> None:
        """Update the GPUs that jobs share, after starts or ends."""
        if self.shares_gpus:
            self._gpu_parts.update(starts)

    @property
    def shares_gpus(self) -> bool:
        """Whether jobs share GPUs. Each round must then stop the clock (`event_kernels.ASK_ALWAYS`)."""
        return bool(self._gpu_parts.columns)

    def slot_of_planned_start(self, position: int) -> int:
        """Return the slot of the start at a position in the latest plan."""
        return int(copy_starts(self.site.draft)[0][position])

    def take_ended_jobs(self) -> list[EndedJob]:
        """Return the jobs that ended since the last call, in order of their ends."""
        return [self.ended_job(slot) for slot in self.take_ended_slots()]

    def ended_job(self, slot: int) -> EndedJob:
        """Return the ended job in a slot."""
        return EndedJob(self.jobs[slot], int(self.table.start_s[slot]), self.real_end_s(slot))

    def take_ended_slots(self) -> list[int]:
        """Return the slots of jobs that ended since the last call, in order of their ends."""
        slots: list[int] = self.state.ended[: self.state.ended_count].tolist()
        self.state.ended_count = 0
        return slots

    # ------------------------------------------------------------------------------------------ columns

    def _create_column_views(self) -> None:
        """Create views of the columns that grow with the number of jobs."""
        self._queue_view, self._running_view = read_only_view(self.site.queue), read_only_view(self.site.running)
        self._fixed_table = self.table.read_only()

    def _add_job(self, job: Job, run_s: int) -> int:
        slot = len(self.jobs)
        if slot == len(self.state.run_s):
            self._grow_columns(2 * slot + 1)
        self._fill_columns(ColumnarTrace.of([TraceJob(job, run_s)]))
        return slot

    def _fill_columns(self, items: ColumnarTrace) -> None:
        first, table, requests = len(self.jobs), self.table, items.requests
        part = slice(first, first + len(items))
        table.submit_s[part] = items.submit_s
        table.walltime_s[part] = table.estimate_s[part] = items.walltime_s
        table.units[part] = items.expand_per_job(request.units for request in requests)
        for r in range(len(self.cluster.resources)):
            table.per_unit[part, r] = items.expand_per_job(request.per_unit[r] for request in requests)
        for column, values in (
            (table.sharing, items.expand_per_job(request.sharing for request in requests)),
            (table.node_set, items.expand_per_job(request.node_set for request in requests)),
            (table.priority, items.priority),
            (table.tier, items.tier),
        ):
            if values.any():  # the columns initially contain zeros
                column[part] = values
        self.state.run_s[part] = items.run_s
        new = SchedulerVisibleJobs(items)
        if not first:
            self.replace_jobs(new)
        elif isinstance(self.jobs, list):
            self.jobs.extend(new)
        else:
            self.replace_jobs([*self.jobs, *new])

    def replace_jobs(self, jobs: Sequence[Job]) -> None:
        """Replace the sequence of job objects by slot."""
        self.table.set_fields(jobs=jobs)
        self._create_column_views()

    def _grow_columns(self, room: int) -> None:
        """Grow every column to at least `room` slots."""
        more = room - len(self.state.run_s)
        if more <= 0:
            return

        def grow_column(column: IntArray, value: int = 0) -> IntArray:
            found = np.zeros((room, *column.shape[1:]), np.int64)  # zeros that are never overwritten use no memory
            found[: len(column)] = column
            if value:
                found[len(column) :] = value
            return found

        table, state, site = self.table, self.state, self.site
        columns = ("submit_s", "walltime_s", "estimate_s", "units", "per_unit", "sharing", "node_set", "priority",
                   "tier", "end_s", "place_at", "place_count")  # fmt: skip
        table.set_fields(
            start_s=grow_column(table.start_s, NEVER), **{name: grow_column(getattr(table, name)) for name in columns}
        )
        own = ("heap", "ended", "phase", "run_s", "end_at")
        state.set_fields(**{name: grow_column(getattr(state, name)) for name in own})
        site.set_fields(queue=grow_column(site.queue), running=grow_column(site.running))
        self._create_column_views()


def new_job_table(jobs: Sequence[Job], resources: int) -> JobTable:
    """Return a table with columns of the initial capacity."""

    def new_column(value: int = 0) -> IntArray:
        return np.full(INITIAL_CAPACITY, value, np.int64)

    return JobTable(
        jobs=jobs,
        submit_s=new_column(),
        walltime_s=new_column(),
        estimate_s=new_column(),
        units=new_column(),
        per_unit=np.zeros((INITIAL_CAPACITY, resources), np.int64),
        sharing=new_column(),
        node_set=new_column(),
        priority=new_column(),
        tier=new_column(),
        start_s=new_column(NEVER),
        end_s=new_column(),
        place_at=new_column(),
        place_count=new_column(),
        places=PlacementPool(used=0, node=new_column(), units=new_column()),
    )


def new_cluster_state(cluster: Cluster, table: JobTable, overrun: int, now_s: int) -> SimulatedClusterState:
    """Return the state of an idle cluster."""

    def new_column() -> IntArray:
        return np.zeros(INITIAL_CAPACITY, np.int64)

    free, resources = cluster.capacity.copy(), len(cluster.resources)
    groups = no_node_classes(resources)
    site = SchedulingState(
        now_s=now_s,
        queued=0,
        active=0,
        machine=build_node_resource_state(cluster, free),
        jobs=table,
        queue=new_column(),
        running=new_column(),
        groups=groups,
        draft=new_plan_result(),
        trial=new_plan_workspace(resources),
    )
    return SimulatedClusterState(
        arrived=0,
        ended_count=0,
        over=0,
        rounds=0,
        skipped=0,
        due=0,
        again_s=NEVER,
        fault=-1,
        overrun=overrun,
        on_nodes=int(not cluster.counted),
        site=site,
        carried=IncrementalNodeClasses(groups, empty_column(), empty_column(), empty_column()),
        free=free,
        total_free=free.sum(axis=0),
        arrivals=NO_SLOTS.copy(),
        heap=new_column(),
        ended=new_column(),
        phase=new_column(),
        run_s=new_column(),
        end_at=new_column(),
    )


NO_SLOTS: IntArray = read_only_view(np.zeros(0, np.int64))
