"""A simulated cluster in columns: what is free, who waits, who runs and until when. It knows how long jobs really run.

The trace engine and the bridge's mock adapter drive the same object: time is what the caller says it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from cpsched.errors import InvalidValue
from cpsched.feasibility import refusal
from cpsched.kernels import OVERRUN_CODES, revise_overdue
from cpsched.model import NEVER, Cluster, EndedJob, IntArray, Job, JobTable, Placement, Request, Snapshot, Starts
from cpsched.predictors.base import Overrun
from sim import events
from sim.events import ENDED, NOW, POOL, QUEUED, RUNNING
from sim.trace import TraceJob

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
        self.free = cluster.capacity.copy()
        self.total_free = self.free.sum(axis=0)
        self._free_view = view_of(self.free)
        self._slot_of: dict[int, int] = {}
        self._refusals: dict[Request, str | None] = {}
        self._unseen: list[int] = []
        self._columns(FIRST_ROOM)
        self.table = self._new_table(FIRST_ROOM)

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
        return int(self.end_at[self.heap[0]]) if self.clock[RUNNING] else None

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
        """The cluster now; its arrays are read-only views."""
        clock = self.clock
        return Snapshot(
            int(clock[NOW]),
            self.cluster,
            self._free_view,
            self.table,
            self._queue_view[: clock[QUEUED]],
            self._running_view[: clock[RUNNING]],
            self.fresh_slots(),
        )

    def fresh_slots(self) -> IntArray:
        """Slots of queued jobs that have no estimate yet."""
        if not self._unseen:
            return NO_SLOTS
        self._unseen = [slot for slot in self._unseen if self.table.estimate_s[slot] == 0]
        return np.array(self._unseen, dtype=np.int64)

    # ------------------------------------------------------------------------------------------ what happens

    def submit(self, job: Job, run_s: int) -> str | None:
        """Queue `job`, which will really run `run_s` seconds; returns why it is refused where it can never run."""
        if job.id in self._slot_of:
            raise InvalidValue("job", job.id, "was submitted before")
        reason = self.refusal(job.request)
        if reason is None:
            slot = self._add(job, run_s)
            self.queue[self.clock[QUEUED]] = slot
            self.phase[slot] = events.WAITING
            self.clock[QUEUED] += 1
        return reason

    def cancel(self, job_id: int) -> None:
        """Take a queued job out of the queue; raises `InvalidValue` where it does not wait."""
        slot = self.slot_of(job_id)
        if self.phase[slot] != events.WAITING:
            raise InvalidValue("job", job_id, "is not in the queue")
        self.phase[slot] = events.OVER
        events.leave_queue(self.clock, self.queue, self.phase)

    def load(self, trace: Sequence[TraceJob]) -> tuple[IntArray, dict[int, str]]:
        """Give every job of `trace` its slot, none of them submitted yet: (slots by arrival, slot -> refusal)."""
        self._grow(len(self.jobs) + len(trace))
        first = len(self.jobs)
        self._fill(trace)
        refused = {
            first + i: reason for i, item in enumerate(trace) if (reason := self.refusal(item.job.request)) is not None
        }
        slots = np.array([first + i for i in range(len(trace)) if first + i not in refused], dtype=np.int64)
        return slots[np.argsort(self.table.submit_s[slots], kind="stable")], refused

    def advance(self, to_s: int) -> list[EndedJob]:
        """Let time pass until `to_s`: jobs whose real end is `to_s` or earlier are over, and returned."""
        if to_s < self.now_s:
            raise InvalidValue("to_s", to_s, f"must not be before {self.now_s}")
        events.end_jobs(self.clock, to_s, *self._end_columns())
        self.clock[NOW] = to_s
        self.revise_overdue()
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
        clock, table = self.clock, self.table
        if clock[POOL] + len(starts.nodes) > len(table.place_node):
            self.grow_pool(int(clock[POOL]) + len(starts.nodes))
        return events.start_jobs(
            clock, starts.slots, starts.offsets, starts.nodes, starts.units, self.queue, self.heap, self.running,
            self.phase, self.end_at, table.end_s, self.run_s, table.start_s, table.estimate_s, self.total_free,
            self.free, self.cluster.capacity, self.cluster.node_sets, table.place_at, table.place_count,
            table.place_node, table.place_units, table.units, table.per_unit, table.sharing, table.node_set,
        )  # fmt: skip

    def take_ended(self) -> list[EndedJob]:
        """The jobs that ended since this was last asked, in order of their ends."""
        slots = self.take_ended_slots()
        return [EndedJob(self.jobs[s], int(self.table.start_s[s]), int(self.end_at[s])) for s in slots]

    def take_ended_slots(self) -> list[int]:
        """The slots that ended since this was last asked, in order of their ends."""
        slots = cast("list[int]", self.ended[: self.clock[ENDED]].tolist())
        self.clock[ENDED] = 0
        return slots

    def revise_overdue(self) -> None:
        """Move the expected ends that have passed."""
        table, clock = self.table, self.clock
        revise_overdue(self.running, table.end_s, table.start_s, table.estimate_s, table.walltime_s,
                              clock[RUNNING], clock[NOW], self.overrun_code)  # fmt: skip

    # ------------------------------------------------------------------------------------------ columns

    def _end_columns(self) -> tuple[npt.NDArray[np.int64], ...]:
        table = self.table
        return (
            self.heap, self.running, self.phase, self.ended, self.end_at, table.end_s, self.total_free, self.free,
            self.cluster.capacity, table.place_at, table.place_count, table.place_node, table.place_units,
            table.per_unit, table.sharing,
        )  # fmt: skip

    def _columns(self, room: int) -> None:
        """The columns that are the simulator's alone: queue, running table, real run times and ends."""
        self.queue, self.running, self.heap, self.ended, self.phase, self.run_s, self.end_at = (
            np.zeros(room, np.int64) for _ in range(7)
        )
        self._queue_view, self._running_view = view_of(self.queue), view_of(self.running)

    def _new_table(self, room: int) -> JobTable:
        amounts = np.zeros((room, len(self.cluster.resources)), np.int64)
        empty = [np.zeros(room, np.int64) for _ in range(11)]
        submit, walltime, estimate, units, sharing, node_set, start, end, at, count, node = empty
        start[:] = NEVER
        return JobTable(
            self.jobs, submit, walltime, estimate, units, amounts, sharing, node_set, start, end, at, count, node,
            np.zeros(room, np.int64),
        )  # fmt: skip

    def _add(self, job: Job, run_s: int) -> int:
        slot = len(self.jobs)
        if slot == len(self.run_s):
            self._grow(2 * slot)
        self._fill([TraceJob(job, run_s)])
        self._unseen.append(slot)
        return slot

    def _fill(self, items: Sequence[TraceJob]) -> None:
        first, table = len(self.jobs), self.table
        part = slice(first, first + len(items))
        jobs = [item.job for item in items]

        def column(values: Iterable[int]) -> IntArray:
            return np.fromiter(values, np.int64, len(items))

        table.submit_s[part] = column(job.submit_s for job in jobs)
        table.walltime_s[part] = column(job.walltime_s for job in jobs)
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
        for name in ("queue", "running", "heap", "ended", "phase", "run_s", "end_at"):
            setattr(self, name, _longer(getattr(self, name), room, 0))
        for name in ("submit_s", "walltime_s", "estimate_s", "units", "per_unit", "sharing", "node_set", "end_s",
                     "place_at", "place_count"):  # fmt: skip
            setattr(self.table, name, _longer(getattr(self.table, name), room, 0))
        self.table.start_s = _longer(self.table.start_s, room, NEVER)
        self._queue_view, self._running_view = view_of(self.queue), view_of(self.running)

    def grow_pool(self, room: int) -> None:
        """Room for at least `room` placement entries."""
        room = max(room, 2 * len(self.table.place_node))
        self.table.place_node = _longer(self.table.place_node, room, 0)
        self.table.place_units = _longer(self.table.place_units, room, 0)


NO_SLOTS: IntArray = view_of(np.zeros(0, np.int64))


def _longer(column: npt.NDArray[np.int64], room: int, filler: int) -> npt.NDArray[np.int64]:
    """`column` with at least `room` rows."""
    if len(column) >= room:
        return column
    grown = np.full((room, *column.shape[1:]), filler, np.int64)
    grown[: len(column)] = column
    return grown
