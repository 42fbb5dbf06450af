"""Fakes for the bridge's tests: a small cluster behind the ports with fault injection, a clock, a dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.feasibility import amounts_used
from cpsched.model import Cluster, Decision, Effort, EndedJob, Job, Need, Placement, RunningJob, Snapshot, Starts, Wait
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import (
    Check,
    DeferredStart,
    Hold,
    Holder,
    Lease,
    Observation,
    Outage,
    Outcome,
    PendingJob,
    PriorityBoost,
    QueueRank,
    StartOrder,
    UnmanagedJob,
)
from tests.builders import a_cluster


def first_fit(job: Job, free: np.ndarray) -> Placement:
    """Return the first nodes with room for a job, or none."""
    left, found = job.request.units, []
    for node, amounts in enumerate(free):
        room = min(a // w for a, w in zip(amounts.tolist(), job.request.per_unit, strict=True) if w)
        units = min(left, room, 1 if job.request.distinct else left)
        if units > 0:
            found.append((node, units))
            left -= units
    return tuple(found) if left == 0 else ()


@dataclass
class FakeJob:
    """A job of the fake cluster: pending with a hold and a pin, running on a placement, or over."""

    job: Job
    hold: Hold = Hold.PLUGIN
    holder: Holder = Holder.OWNER
    pin: tuple[tuple[str, int], ...] = ()
    start_s: int | None = None
    placement: Placement = ()
    end_s: int | None = None
    starts: int = 0

    @property
    def pending(self) -> bool:
        return self.start_s is None and self.end_s is None

    @property
    def running(self) -> bool:
        return self.start_s is not None and self.end_s is None


@dataclass
class FakeCluster:
    """Behaves like Slurm through the ports; each of `faults` is used once, at the next call of its name.

    A fault receives a function that does the call's work, which it may call or not, and may raise. Released jobs run at
    once if their pin can be met; `lazy` keeps them pending until `schedule()`.
    """

    cluster: Cluster = field(default_factory=a_cluster)
    now_s: int = 0
    lazy: bool = False
    own_scheduler: bool = False
    jobs: dict[int, FakeJob] = field(default_factory=dict)
    drained: set[int] = field(default_factory=set)
    outages: tuple[Outage, ...] = ()
    left: list[UnmanagedJob] = field(default_factory=list)
    commands: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    faults: dict[str, list[Callable[[Callable[[], object]], object]]] = field(default_factory=dict)
    past: list[EndedJob] = field(default_factory=list)
    readiness: list[Check] = field(default_factory=list)
    claimed: Lease | None = None
    labels: dict[int, str] = field(default_factory=dict)
    """Names of running and ended jobs."""
    child_starts: int = 0
    history_missing: bool = False
    transport_info: str = ""
    starts_in_one_change: bool = True
    _told: set[tuple[int, int]] = field(default_factory=set)
    _pending_before: dict[int, PendingJob] = field(default_factory=dict)
    """Pending jobs of the last reading: unchanged jobs are the same objects, as with Slurm."""

    # what people and time do -----------------------------------------------------------------------------------

    def submit(self, *jobs: Job, hold: Hold = Hold.PLUGIN) -> None:
        for job in jobs:
            self.jobs[job.id] = FakeJob(job, hold)

    def cancel(self, job_id: int) -> None:
        del self.jobs[job_id]

    def requeue(self, job_id: int, hold: Hold = Hold.NONE) -> None:
        fake = self.jobs[job_id]
        fake.start_s, fake.placement, fake.hold = None, (), hold

    def end(self, job_id: int) -> None:
        self.jobs[job_id].end_s = self.now_s

    def tell_again(self) -> None:
        """Report each ended job once more."""
        self._told.clear()

    def free(self) -> np.ndarray:
        free = self.cluster.capacity.copy()
        for fake in self.jobs.values():
            if fake.running:
                for node, amounts in amounts_used(fake.job.request, fake.placement, self.cluster.capacity).items():
                    free[node] -= amounts
        free[sorted(self.drained)] = 0
        return np.maximum(free, 0)

    def schedule(self) -> None:
        """Run the cluster's own scheduler: released jobs start on their pin, others need `own_scheduler`."""
        for fake in self.jobs.values():
            if fake.pending and fake.hold is Hold.NONE and fake.job.ineligible is None:
                placement = self._pinned(fake) if fake.pin else self._anywhere(fake)
                if placement:
                    fake.start_s, fake.placement = self.now_s, placement
                    fake.starts += 1

    def run_now(self, job_id: int, placement: Placement) -> None:
        """Start a job by another actor."""
        fake = self.jobs[job_id]
        fake.hold, fake.start_s, fake.placement = Hold.NONE, self.now_s, placement
        fake.starts += 1

    def _pinned(self, fake: FakeJob) -> Placement:
        index = {name: i for i, name in enumerate(self.cluster.node_names)}
        placement = tuple(sorted((index[name], units) for name, units in fake.pin))
        used, free = amounts_used(fake.job.request, placement, self.cluster.capacity), self.free()
        return placement if all((free[node] >= amounts).all() for node, amounts in used.items()) else ()

    def _anywhere(self, fake: FakeJob) -> Placement:
        return first_fit(fake.job, self.free()) if self.own_scheduler else ()

    # the ports; what a test replaces to have a cluster answer otherwise is `read`, `start_one`, `hand_back_one` --

    def _call(self, name: str, work: Callable[[], object]) -> object:
        waiting = self.faults.get(name)
        return waiting.pop(0)(work) if waiting else work()

    def _batch(self, name: str, ids: Sequence[int], works: Sequence[Callable[[], Outcome]]) -> Sequence[Outcome]:
        """Run a command for several jobs, each with its own function."""
        self.commands.append((name, tuple(ids)))
        return self._call(name, lambda: [work() for work in works])  # type: ignore[return-value]

    def not_ready_reason(self) -> str | None:
        return None

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        return self._call("observe", self.read)  # type: ignore[return-value]

    def read(self) -> Observation:
        self.schedule()
        jobs = sorted(self.jobs.values(), key=lambda fake: (fake.job.submit_s, fake.job.id))
        ended = [EndedJob(f.job, f.start_s or 0, f.end_s) for f in jobs if f.end_s is not None]
        news = [e for e in ended if (e.job.id, e.end_s) not in self._told]
        self._told.update((e.job.id, e.end_s) for e in news)
        left = {each.job_id for each in self.left}
        return Observation(
            self.now_s,
            self.cluster,
            self.free(),
            tuple(self._pending(f) for f in jobs if f.pending and f.job.id not in left),
            tuple(RunningJob(f.job, f.start_s or 0, f.placement) for f in jobs if f.running),
            tuple(news),
            tuple(self.left),
            outages=self.outages,
            claim=self.claimed,
            labels=self.labels,
        )

    def _pending(self, fake: FakeJob) -> PendingJob:
        id, hold, pinned = fake.job.id, fake.hold, bool(fake.pin)
        before = self._pending_before.get(id)
        if before is None or before.job is not fake.job or before.hold is not hold or before.pinned != pinned:
            before = self._pending_before[id] = PendingJob(fake.job, hold, pinned, holder=fake.holder)
        return before

    def history(self) -> Sequence[EndedJob]:
        return self.past

    def resolve_layout(self, orders: Sequence[StartOrder]) -> Sequence[StartOrder | DeferredStart]:
        return orders

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        return self._batch("start", [each.job.id for each in orders], [partial(self.start_one, o) for o in orders])

    def start_one(self, order: StartOrder) -> Outcome:
        fake = self.jobs.get(order.job.id)
        if fake is None or not fake.pending or fake.hold not in (Hold.PLUGIN, Hold.ADMIN):
            return Outcome(order.job.id, "refused", "not pending and held")
        fake.hold, fake.pin = Hold.NONE, order.nodes
        if not self.lazy:
            self.schedule()
        return Outcome(order.job.id, "done")

    def hold(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        return self._batch("hold", job_ids, [partial(self.hold_one, id) for id in job_ids])

    def hold_one(self, job_id: int) -> Outcome:
        fake = self.jobs.get(job_id)
        if fake is None or not fake.pending or fake.hold is Hold.USER:
            return Outcome(job_id, "refused", "not pending, or held by its owner")
        fake.pin = ()
        fake.hold = Hold.ADMIN if fake.hold is Hold.NONE else fake.hold
        return Outcome(job_id, "done")

    def release(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        return self._batch("hand_back", job_ids, [partial(self.hand_back_one, id) for id in job_ids])

    def hand_back_one(self, job_id: int) -> Outcome:
        self.left = [
            replace(each, held_for_us=False, pinned=False) if each.job_id == job_id else each for each in self.left
        ]
        fake = self.jobs.get(job_id)
        if fake is None or not fake.pending or fake.hold is Hold.USER:
            return Outcome(job_id, "refused", "not pending, or held by its owner")
        fake.pin, fake.hold = (), Hold.NONE
        return Outcome(job_id, "done")

    def unpin(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        return self._batch("unpin", job_ids, [partial(self.unpin_one, id) for id in job_ids])

    def unpin_one(self, job_id: int) -> Outcome:
        fake = self.jobs.get(job_id)
        if fake is None or not fake.pending or fake.hold is Hold.NONE:
            return Outcome(job_id, "refused", "not pending, or held by nobody")
        fake.pin = ()
        return Outcome(job_id, "done")

    def acquire_lease(self, claim: Lease, instead_of: Lease | None) -> bool:
        return self._call("claim", lambda: self._claim(claim, instead_of))  # type: ignore[return-value]

    def _claim(self, claim: Lease, instead_of: Lease | None) -> bool:
        if self.claimed != instead_of:
            return False
        self.claimed = claim
        return True

    def release_lease(self, claim: Lease) -> None:
        self._call("disclaim", lambda: self._disclaim(claim))

    def _disclaim(self, claim: Lease) -> None:
        if self.claimed == claim:
            self.claimed = None

    def checks(self) -> Sequence[Check]:
        return self.readiness

    def close(self) -> None:
        pass

    # misbehaviour ----------------------------------------------------------------------------------------------

    def fail(self, call: str, error: BackendError, after: bool = False) -> None:
        """Make the next `call` raise `error`; `after`: once it has taken effect."""

        def fault(work: Callable[[], object]) -> object:
            if after:
                work()
            raise error

        self.faults.setdefault(call, []).append(fault)

    def before(self, call: str, event: Callable[[], object]) -> None:
        """Call `event` right before the next `call`."""

        def fault(work: Callable[[], object]) -> object:
            event()
            return work()

        self.faults.setdefault(call, []).append(fault)


class FirstFit(Dispatcher):
    """Starts what fits, in order, on the first nodes with room; small enough to serve as a fake."""

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        free, placements, waits = snapshot.free.copy(), {}, {}
        for slot in snapshot.queue.tolist():
            job = snapshot.table.jobs[slot]
            placement = first_fit(job, free)
            if placement:
                placements[slot] = placement
                for node, units in placement:
                    free[node] -= units * np.array(job.request.per_unit)
            else:
                waits[job.id] = Wait("resources", tuple(r.job.id for r in snapshot.running_jobs()))
        return Decision(Starts.of(placements), Effort("first-fit", len(snapshot.queue)), None, waits)


@dataclass
class FakePace:
    """A clock that advances only on request; waits at most `cycles` times."""

    cycles: int = 1
    at_s: float = 0.0
    waited: list[float] = field(default_factory=list)
    is_stopped: bool = False

    def monotonic_s(self) -> float:
        return self.at_s

    def unix_s(self) -> float:
        return 1_000_000_000.0 + self.at_s

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.at_s += seconds
        return len(self.waited) < self.cycles


@dataclass
class AdvisedCluster(FakeCluster):
    """A cluster whose own scheduler starts jobs without a hold, in order of priority and points, first fit."""

    own_scheduler: bool = True
    scheduler_interval_s: float = 60.0
    points: dict[int, int] = field(default_factory=dict)
    """The points on pending jobs, from any source."""
    told: list[tuple[int, int]] = field(default_factory=list)
    """Every accepted number: (job, points)."""

    def schedule(self) -> None:
        order = sorted(self.jobs, key=lambda id: (-max(1, self.jobs[id].job.priority + self.points.get(id, 0)), id))
        self.jobs = {id: self.jobs[id] for id in order}
        super().schedule()

    def ranks(self) -> Sequence[QueueRank]:
        return self._call("ranks", self._ranks)  # type: ignore[return-value]

    def _ranks(self) -> Sequence[QueueRank]:
        return [
            QueueRank(
                id, (id,), fake.job.priority, self.points.get(id, 0), fake.job.tier, hidden=fake.hold is not Hold.NONE
            )
            for id, fake in self.jobs.items()
            if fake.pending
        ]

    def set_boosts(self, advice: Sequence[PriorityBoost]) -> Sequence[Outcome]:
        return self._batch("advise", [each.id for each in advice], [partial(self.advise_one, each) for each in advice])

    def advise_one(self, advice: PriorityBoost) -> Outcome:
        fake, now = self.jobs.get(advice.id), self.points.get(advice.id, 0)
        if fake is None or not fake.pending or now not in (0, *advice.instead_of):
            return Outcome(advice.id, "refused", "not pending, or somebody else's")
        self.points[advice.id] = advice.points
        self.told.append((advice.id, advice.points))
        return Outcome(advice.id, "done")
