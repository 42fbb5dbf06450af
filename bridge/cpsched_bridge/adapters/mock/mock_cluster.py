"""Simulate a cluster with submissions, holds, pins and a scheduler.

A submit plugin may hold new jobs for the bridge. The site's scheduler starts jobs that the bridge does not hold. It
uses either EASY backfill with requested run times or slurmctld's order, which is priority plus boost.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.model import Cluster, EndedJob, IntArray, Placement, Snapshot, Starts
from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled
from cpsched_bridge.ports import (
    BoostCommand,
    Hold,
    Lease,
    Observation,
    Outage,
    Outcome,
    PendingJob,
    QueueRank,
    StartOrder,
    UnmanagedJob,
)
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from cpsched_sim.traces.trace_jobs import TraceJob


@dataclass(frozen=True, slots=True)
class NodeMaintenance:
    """A period from `from_s` to `to_s` in which no job starts on these nodes.

    Running jobs continue.
    """

    name: str
    nodes: tuple[int, ...]
    from_s: int
    to_s: int


class MockCluster:
    """A simulated cluster in which jobs arrive at their submit times.

    `advance` sets the time. If `plugin` is set, each new job arrives held for the bridge. `starts` counts each job's
    starts, and `repeated` counts orders to start a job that has already started.
    """

    def __init__(
        self,
        cluster: Cluster,
        trace: Sequence[TraceJob],
        plugin: bool = True,
        maintenance: Sequence[NodeMaintenance] = (),
        scheduler: Dispatcher | None = None,
    ) -> None:
        self._maintenance = tuple(maintenance)
        self._state = SimulatedCluster(cluster)
        self._arrivals = deque(sorted(trace, key=lambda item: item.job.submit_s))
        self._hold_of_new = Hold.PLUGIN if plugin else Hold.NONE
        self._holds: dict[int, Hold] = {}
        self._pins: dict[int, tuple[tuple[str, int], ...]] = {}
        """Names of nodes, and units on each, by number of a pinned job."""
        self._node_index = {name: node for node, name in enumerate(cluster.node_names)}
        self._scheduler = scheduler or EasyDispatcher()
        self._again_s: int | None = None
        self.points: dict[int, int] = {}
        """Points added to the priority of pending jobs. A job without an entry has 0."""
        self._left: list[UnmanagedJob] = []
        self._claim: Lease | None = None
        self.ended: list[EndedJob] = []
        self.starts: Counter[int] = Counter()
        self.repeated: Counter[int] = Counter()

    @property
    def now_s(self) -> int:
        """The site's time in seconds."""
        return self._state.now_s

    @property
    def pending_count(self) -> int:
        """The number of pending jobs."""
        return self._state.queue_length

    def next_event_s(self) -> int | None:
        """Return the time of the next event, or None if there is none.

        Events are arrivals, job ends, ends of maintenance and the scheduler's next run.
        """
        times = [self._arrivals[0].job.submit_s] if self._arrivals else []
        times += [self._again_s] if self._again_s is not None and self._again_s > self.now_s else []
        times += [each.to_s for each in self._maintenance if each.to_s > self.now_s]
        end_s = self._state.next_end_s()
        return min([*times, end_s]) if end_s is not None else min(times, default=None)

    def advance(self, to_s: int) -> None:
        """Advance the time to `to_s`.

        At each event, process arrivals and job ends, then run the scheduler.
        """
        while (event_s := self.next_event_s()) is not None and event_s <= to_s:
            at_s = max(event_s, self.now_s)
            while self._arrivals and self._arrivals[0].job.submit_s <= at_s:
                self._submit_job(self._arrivals.popleft())
            self.ended += self._state.advance(at_s)
            self._start_released_jobs()
        if to_s > self.now_s:
            self.ended += self._state.advance(to_s)

    def cancel(self, job_id: int) -> None:
        """Cancel a pending job as its owner would."""
        self._state.cancel(job_id)
        self._forget_job(job_id)

    # ---- methods that implement the ports

    def observe(self, since: int = 0) -> Observation:
        """Return an observation that omits the first `since` ended jobs."""
        observed = self._state.observe()
        pending = tuple(PendingJob(job, self._holds[job.id], job.id in self._pins) for job in observed.queue)
        ended, left = tuple(self.ended[since:]), tuple(self._left)
        outages = tuple(
            Outage("reserved", each.name, each.nodes, each.from_s, each.to_s)
            for each in self._maintenance
            if each.to_s > self.now_s
        )
        free = self._exclude_maintenance_nodes(observed.free)
        return Observation(
            observed.now_s, observed.cluster, free, pending, observed.running, ended, left, outages=outages,
            lease=self._claim,
            cluster_name="simulated",
        )  # fmt: skip

    def start(self, orders: Sequence[StartOrder]) -> list[Outcome]:
        """Release and pin jobs, and return the outcomes.

        A job whose nodes are free starts at once.
        """
        return [self._start_job(order) for order in orders]

    def hold(self, job_ids: Collection[int]) -> list[Outcome]:
        """Hold pending jobs and clear their pins. Return the outcomes."""
        return [self._set_hold(id, hold=True) for id in job_ids]

    def release(self, job_ids: Collection[int]) -> list[Outcome]:
        """Release jobs, run the site's scheduler, and return the outcomes."""
        outcomes = [self._set_hold(id, hold=False) for id in job_ids]
        self._start_released_jobs()
        return outcomes

    def unpin(self, job_ids: Collection[int]) -> list[Outcome]:
        """Clear the pins of pending jobs. Return the outcomes."""
        return [self._unpin_job(id) for id in job_ids]

    def list_queue_ranks(self) -> list[QueueRank]:
        """Return the site's ranks of pending jobs."""
        jobs = {job.id: job for job in self._state.observe().queue}
        return [
            QueueRank(id, (id,), jobs[id].priority, self.points.get(id, 0), jobs[id].tier, hidden=hold is not Hold.NONE)
            for id, hold in self._holds.items()
        ]

    def set_boosts(self, commands: Sequence[BoostCommand]) -> list[Outcome]:
        """Set the boosts of pending jobs. Return the outcomes."""
        return [self._set_boost(each) for each in commands]

    def acquire_lease(self, lease: Lease, expected: Lease | None) -> bool:
        """Store the lease if `expected` is the current lease. Return whether it was."""
        if self._claim != expected:
            return False
        self._claim = lease
        return True

    # ---- implementation

    def _submit_job(self, item: TraceJob) -> None:
        reason = self._state.submit(item.job, item.run_s)
        if reason is not None:
            self._left.append(UnmanagedJob(item.job.id, JobNotModelled(reason).reason, user=item.job.user))
            return
        self._holds[item.job.id] = self._hold_of_new

    def _start_job(self, order: StartOrder) -> Outcome:
        id = order.job.id
        self.repeated[id] += self.starts[id]
        if self._holds.get(id) not in (Hold.PLUGIN, Hold.ADMIN):
            return Outcome(id, "refused", "is not both pending and held")
        unknown = [name for name, _ in order.nodes if name not in self._node_index]
        if unknown:
            return Outcome(id, "refused", f"node {unknown[0]} does not exist")
        closed_nodes = [name for name, _ in order.nodes if self._node_index[name] in self._nodes_under_maintenance()]
        if closed_nodes:
            return Outcome(id, "refused", f"node {closed_nodes[0]} is in maintenance")
        self._holds[id], self._pins[id] = Hold.NONE, order.nodes
        self._start_pinned_job(id)
        return Outcome(id, "done")

    def _set_hold(self, job_id: int, hold: bool) -> Outcome:
        now = self._holds.get(job_id)
        if now in (None, Hold.USER):
            return Outcome(job_id, "refused", "is not pending, or is held by its owner")
        self._pins.pop(job_id, None)
        if not hold:
            self._holds[job_id] = Hold.NONE
        elif now is Hold.NONE:
            self._holds[job_id] = Hold.ADMIN
        return Outcome(job_id, "done")

    def _unpin_job(self, job_id: int) -> Outcome:
        if self._holds.get(job_id) in (None, Hold.NONE):
            return Outcome(job_id, "refused", "is not pending, or is not held")
        self._pins.pop(job_id, None)
        return Outcome(job_id, "done")

    def _set_boost(self, command: BoostCommand) -> Outcome:
        hold, now = self._holds.get(command.id), self.points.get(command.id, 0)
        if hold is None:
            return Outcome(command.id, "refused", "is not pending")
        if (hold is not Hold.NONE and command.points) or now not in (0, *command.expected_points):
            return Outcome(command.id, "refused", "is held, or has another actor's boost")
        self.points[command.id] = command.points
        if not command.points:
            del self.points[command.id]
        return Outcome(command.id, "done")

    def _start_pinned_job(self, job_id: int) -> None:
        placement = tuple(sorted((self._node_index[name], units) for name, units in self._pins[job_id]))
        self._start_placements({self._state.slot_of(job_id): placement})

    def _start_released_jobs(self) -> None:
        """Start pinned jobs on their nodes, and other released jobs by the scheduler."""
        for id in list(self._pins):
            self._start_pinned_job(id)
        released = {id for id, hold in self._holds.items() if hold is Hold.NONE and id not in self._pins}
        if not released:
            return
        snapshot = self._state.snapshot()
        queue = [slot for slot in snapshot.queue.tolist() if snapshot.table.jobs[slot].id in released]
        free = self._exclude_maintenance_nodes(snapshot.free)
        if self.points:
            self._start_by_boosted_priority(released, free)
            return
        snapshot = dataclasses.replace(snapshot, queue=np.array(queue, dtype=np.int64), free=free)
        decision = self._scheduler.decide(snapshot, "starts")
        self._again_s = decision.again_s
        self._start_placements(decision.starts.placements())

    def _start_by_boosted_priority(self, released: Collection[int], free: IntArray) -> None:
        """Start released jobs in order of priority plus boost, which is at least 1."""
        observed = self._state.observe()
        jobs = [
            dataclasses.replace(job, priority=max(1, job.priority + self.points.get(job.id, 0)))
            for job in observed.queue
            if job.id in released and job.ineligible is None
        ]
        estimates = {job.id: job.walltime_s for job in (*jobs, *(each.job for each in observed.running))}
        snapshot = Snapshot.of(observed.now_s, observed.cluster, free, jobs, observed.running, estimates)
        decision = self._scheduler.decide(snapshot, "starts")
        self._again_s = decision.again_s
        found = decision.starts_by_job(snapshot)
        self._start_placements({self._state.slot_of(id): placement for id, placement in found.items()})

    def _nodes_under_maintenance(self) -> set[int]:
        """Return the nodes that are under maintenance now."""
        now_s = self.now_s
        return {node for each in self._maintenance if each.from_s <= now_s < each.to_s for node in each.nodes}

    def _exclude_maintenance_nodes(self, free: IntArray) -> IntArray:
        """Return the free amounts, with 0 for nodes under maintenance."""
        closed_nodes = self._nodes_under_maintenance()
        if not closed_nodes:
            return free
        left = free.copy()
        left[sorted(closed_nodes)] = 0
        return left

    def _start_placements(self, placements: dict[int, Placement]) -> None:
        """Start the jobs in these slots if their nodes are free."""
        if placements and self._state.try_start_jobs(Starts.of(placements)) < 0:
            for slot in placements:
                id = self._state.jobs[slot].id
                self.starts[id] += 1
                self._forget_job(id)

    def _forget_job(self, job_id: int) -> None:
        self._holds.pop(job_id, None)
        self._pins.pop(job_id, None)
        self.points.pop(job_id, None)
