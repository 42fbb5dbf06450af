"""A simulated cluster in columns: what is free, who waits, who runs and until when. It knows how long jobs really run.

The trace engine and the bridge's mock adapter drive the same object: time is what the caller says it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from cpsched.errors import InvalidValue
from cpsched.fit import refusal
from cpsched.kernels import OVERRUN_CODES, blocks_of
from cpsched.model import (
    NEVER,
    NO_STARTS,
    ROWS,
    START,
    Cluster,
    EndedJob,
    IntArray,
    Job,
    JobTable,
    Placement,
    Request,
    Scene,
    Snapshot,
    Starts,
    frozen_array,
)
from cpsched.overrun import Overrun
from cpsched_sim.cluster import events
from cpsched_sim.cluster.events import ENDED, NOW, POOL, QUEUED, RUNNING
from cpsched_sim.traces.job import TraceJob

FIRST_ROOM = 64


def view_of(array: npt.NDArray[np.int64]) -> IntArray:
    """A read-only view."""
    view = array.view()
    view.setflags(write=False)
    return view


class SimulatedCluster:
    """The state of a simulated cluster, by value at its surface, in columns by slot inside.

    A slot is a job's position in the order of submission. `overrun` says what a running job is assumed to do when it
    outlives its estimate. Snapshots are views: valid until the next call that changes the cluster.
    """

    def __init__(self, cluster: Cluster, overrun: Overrun = "one-second", now_s: int = 0) -> None:
        self.cluster = cluster
        self.overrun_code = OVERRUN_CODES[overrun]
        self.jobs: list[Job] = []
        self.clock = np.zeros(events.CLOCK_FIELDS, np.int64)
        self.clock[NOW] = now_s
        self._read = self.clock.data
        self.free = cluster.capacity.copy()
        self._free_view = view_of(self.free)
        self.arrivals = NO_SLOTS
        self.own = np.zeros((events.OWN_ROWS, FIRST_ROOM), np.int64)
        self.table = self._new_table(FIRST_ROOM)
        self.groups = empty_groups(cluster)
        self._slot_of: dict[int, int] = {}
        self._refusals: dict[Request, str | None] = {}
        self.total_free = self.free.sum(axis=0)
        self._name_columns()

    # ------------------------------------------------------------------------------------------ what there is

    @property
    def now_s(self) -> int:
        """The second the cluster has reached."""
        return int(self.clock[NOW])

    @property
    def queue_length(self) -> int:
        """Jobs waiting."""
        return int(self.clock[QUEUED])

    @property
    def running_count(self) -> int:
        """Jobs running."""
        return int(self.clock[RUNNING])

    def next_end_s(self) -> int | None:
        """When the next running job really ends; None when nothing runs."""
        return int(self.end_at[self.own[events.HEAP, 0]]) if self.clock[RUNNING] else None

    def slot_of(self, job_id: int) -> int:
        """The slot of a submitted job; raises `InvalidValue` for a job nobody submitted."""
        if job_id not in self._slot_of:
            raise InvalidValue("job", job_id, "was never submitted to this cluster")
        return self._slot_of[job_id]

    def refusal(self, request: Request) -> str | None:
        """Why a job with this request can never run here; None when it can."""
        if request not in self._refusals:
            self._refusals[request] = refusal(request, self.cluster)
        return self._refusals[request]

    def snapshot(self) -> Snapshot:
        """The cluster now; its arrays are read-only views.

        Its rules hold by construction: a job's estimate is its walltime until `table.estimate_s` is told another one,
        and running jobs are moved to ends after now whenever time has passed.
        """
        read = self._read
        return Snapshot(
            read[NOW],
            self.cluster,
            self._free_view,
            self._fixed_table,
            self._queue_view[: read[QUEUED]],
            self._running_view[: read[RUNNING]],
            self._plan_groups,
            by_construction=True,
        )

    def scene(self) -> Scene:
        """The cluster now as it is seen from outside, by value."""
        snapshot = self.snapshot()
        free = frozen_array(self.free)
        return Scene(self.now_s, self.cluster, free, snapshot.queued_jobs(), snapshot.running_jobs())

    # ------------------------------------------------------------------------------------------ what happens

    def submit(self, job: Job, run_s: int) -> str | None:
        """Queue `job`, which will really run `run_s` seconds; returns why it is refused where it can never run."""
        if job.id in self._slot_of:
            raise InvalidValue("job", job.id, "was submitted before")
        reason = self.refusal(job.request)
        if reason is None:
            slot = self._add(job, run_s)
            self.own[events.QUEUE, self.clock[QUEUED]] = slot
            self.phase[slot] = events.WAITING
            self.clock[QUEUED] += 1
        return reason

    def cancel(self, job_id: int) -> None:
        """Take a queued job out of the queue; raises `InvalidValue` where it does not wait."""
        slot = self.slot_of(job_id)
        if self.phase[slot] != events.WAITING:
            raise InvalidValue("job", job_id, "is not in the queue")
        self.phase[slot] = events.OVER
        waiting = self.own[events.QUEUE, : self.clock[QUEUED]]
        waiting = waiting[self.phase[waiting] == events.WAITING]
        self.own[events.QUEUE, : len(waiting)] = waiting
        self.clock[QUEUED] = len(waiting)

    def load(self, trace: Sequence[TraceJob]) -> tuple[IntArray, dict[int, str]]:
        """Give every job of `trace` its slot, to arrive at its submission: (slots by arrival, slot -> refusal)."""
        self._grow(len(self.jobs) + len(trace))
        first = len(self.jobs)
        self._fill(trace)
        refused = {
            first + i: reason for i, item in enumerate(trace) if (reason := self.refusal(item.job.request)) is not None
        }
        slots = np.array([first + i for i in range(len(trace)) if first + i not in refused], dtype=np.int64)
        self.arrivals = slots[np.argsort(self.table.submit_s[slots], kind="stable")]
        self._name_columns()
        return self.arrivals, refused

    def advance(self, to_s: int) -> list[EndedJob]:
        """Let time pass until `to_s`: jobs whose real end is `to_s` or earlier are over, and returned."""
        if to_s < self.now_s:
            raise InvalidValue("to_s", to_s, f"must not be before {self.now_s}")
        self.step(NO_STARTS, events.NO_ROUND, to_s)
        self.clock[events.DUE] = 0
        return self.take_ended()

    def start(self, job_id: int, placement: Placement) -> None:
        """Start one queued job now; raises `InvalidValue` where that breaks the fit rule."""
        self.apply(Starts.of({self.slot_of(job_id): placement}))

    def apply(self, starts: Starts) -> None:
        """Start jobs now; raises `InvalidValue`, and starts none, where one breaks the fit rule."""
        fault = self.try_apply(starts)
        if fault >= 0:
            slot = int(starts.slots[fault])
            known = 0 <= slot < len(self.jobs)
            raise InvalidValue("start", self.jobs[slot].id if known else slot, "does not fit the cluster as it is")

    def try_apply(self, starts: Starts) -> int:
        """Start jobs now and return -1; where one breaks the fit rule start none and return its position."""
        self.step(starts, events.STAY, 0)
        return self._read[events.FAULT]

    def step(self, starts: Starts, pause: int, limit_s: int) -> int:
        """Start jobs now, then let time pass; see `cpsched_sim.cluster.events.step`."""
        if self._read[POOL] + len(starts.nodes) > self._pool_room:
            self.grow_pool(self._read[POOL] + len(starts.nodes))
        found: int = events.step(pause, limit_s, self.overrun_code, starts.slots, starts.offsets, starts.nodes,
                                 starts.units, *self.state)  # fmt: skip
        return found

    @property
    def fault(self) -> int:
        """The position of the start that broke a rule in the last step; -1 when none did."""
        return self._read[events.FAULT]

    def take_ended(self) -> list[EndedJob]:
        """The jobs that ended since this was last asked, in order of their ends."""
        slots = self.take_ended_slots()
        return [EndedJob(self.jobs[s], int(self.table.start_s[s]), int(self.end_at[s])) for s in slots]

    def take_ended_slots(self) -> list[int]:
        """The slots that ended since this was last asked, in order of their ends."""
        slots = cast("list[int]", self.own[events.ENDED_ROW, : self.clock[ENDED]].tolist())
        self.clock[ENDED] = 0
        return slots

    # ------------------------------------------------------------------------------------------ columns

    def _name_columns(self) -> None:
        """Name the rows anew after one of the arrays was replaced."""
        self.phase, self.run_s, self.end_at = (self.own[row] for row in (events.PHASE, events.RUN, events.END_AT))
        self._queue_view, self._running_view = view_of(self.own[events.QUEUE]), view_of(self.own[events.ACTIVE_ROW])
        self._pool_room = len(self.table.place_node)
        self._fixed_table = self.table.read_only()
        self._plan_groups = None if self.cluster.counted else self.groups[:5]
        cluster, table = self.cluster, self.table
        self.state: tuple[Any, ...] = (
            self.clock, self.arrivals, self.own, self.total_free, self.free, cluster.capacity, cluster.node_sets,
            cluster.kind_of, cluster.kind_node, table.rows, table.per_unit, table.place_node, table.place_units,
            *self.groups,
        )  # fmt: skip
        """Everything, as `events.STATE` lists it."""

    def _new_table(self, room: int) -> JobTable:
        rows = np.zeros((ROWS, room), np.int64)
        rows[START] = NEVER
        amounts = np.zeros((room, len(self.cluster.resources)), np.int64)
        return JobTable(self.jobs, rows, amounts, np.zeros(room, np.int64), np.zeros(room, np.int64))

    def _add(self, job: Job, run_s: int) -> int:
        slot = len(self.jobs)
        if slot == len(self.run_s):
            self._grow(2 * slot + 1)
        self._fill([TraceJob(job, run_s)])
        return slot

    def _fill(self, items: Sequence[TraceJob]) -> None:
        first, table = len(self.jobs), self.table
        part = slice(first, first + len(items))
        jobs = [item.job for item in items]

        def column(values: Iterable[int]) -> IntArray:
            return np.fromiter(values, np.int64, len(items))

        table.submit_s[part] = column(job.submit_s for job in jobs)
        table.walltime_s[part] = table.estimate_s[part] = column(job.walltime_s for job in jobs)
        table.units[part] = column(job.request.units for job in jobs)
        table.sharing[part] = column(job.request.sharing for job in jobs)
        table.node_set[part] = column(job.request.node_set for job in jobs)
        for r in range(len(self.cluster.resources)):
            table.per_unit[part, r] = column(job.request.per_unit[r] for job in jobs)
        self.run_s[part] = column(item.run_s for item in items)
        self.jobs.extend(jobs)
        self._slot_of.update((job.id, first + i) for i, job in enumerate(jobs))

    def _grow(self, room: int) -> None:
        """Room for `room` slots in every column."""
        have = len(self.run_s)
        if room <= have:
            return
        table = self.table
        self.own = np.concatenate((self.own, np.zeros((events.OWN_ROWS, room - have), np.int64)), axis=1)
        rows = np.zeros((ROWS, room - have), np.int64)
        rows[START] = NEVER
        table.rows = np.concatenate((table.rows, rows), axis=1)
        table.per_unit = np.concatenate((table.per_unit, np.zeros((room - have, table.per_unit.shape[1]), np.int64)))
        table.name_rows()
        self._name_columns()

    def grow_pool(self, room: int) -> None:
        """Room for at least `room` placement entries."""
        table = self.table
        used, room = int(self.clock[POOL]), max(room, 2 * self._pool_room)
        old_node, old_units = table.place_node, table.place_units
        table.place_node, table.place_units = np.zeros(room, np.int64), np.zeros(room, np.int64)
        table.place_node[:used], table.place_units[:used] = old_node[:used], old_units[:used]
        self._name_columns()


def empty_groups(cluster: Cluster) -> tuple[npt.NDArray[np.int64], ...]:
    """Room for the groups of a cluster's nodes, marked as to be built; none where its units need no place."""
    nodes = 0 if cluster.counted else cluster.size
    groups = 2 * nodes + 64
    table = 1 << (4 * groups).bit_length()
    sizes: tuple[Any, ...] = (
        nodes,
        (4, groups),
        8 * nodes + 1024,
        (8 * nodes + 1024, len(cluster.resources)),
        4 + blocks_of(nodes),
    )
    of, columns, at, free, used = (np.zeros(size, np.int64) for size in sizes)
    used[3] = 1
    return of, columns, at, free, used, np.zeros(nodes, np.int64), np.zeros(groups, np.int64), np.zeros(table, np.int64)


NO_SLOTS: IntArray = view_of(np.zeros(0, np.int64))
