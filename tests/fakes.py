"""The simulated cluster for the bridge's tests, with fault injection, a clock and a dispatcher."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.feasibility import amounts_by_node
from cpsched.model import Cluster, Decision, Effort, EndedJob, Job, Need, Placement, RunningJob, Snapshot, Starts, Wait
from cpsched_bridge.backoff_groups import BackoffGroupKey, make_equivalence_class_key
from cpsched_bridge.errors import BackendError, BackendTimeout
from cpsched_bridge.ports import (
    BoostCommand,
    ClusterReason,
    Hold,
    Holder,
    Lease,
    Observation,
    Outage,
    Outcome,
    PendingJob,
    QueueRank,
    ReadinessCheck,
    StartOrder,
    UndoOrder,
    UnmanagedJob,
)
from tests.builders import a_cluster

T = TypeVar("T")


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


STUBBORN = (
    "silent",  # released, it waits without a reason
    "outranked",  # the cluster says that others go first
    "alone",  # a reason of the cluster for the job, such as a dependency that is never satisfied
    "passing",  # one that may pass, and does not
    "alike",  # a reason of the cluster for its request
    "shut out",  # a reason of the cluster for its user in the partition
    "limited",  # a limit of its user
    "refused",  # the command to start it is refused
    "held by the cluster",  # the cluster holds it itself when it is released
    "bounced",  # held again after every release
    "held by its owner",  # who releases it as soon as it has been rolled back
    "unknown answer",  # unknown whether the command arrived
    "ineligible",  # the adapter knows
    "left",  # the adapter cannot model it
)
"""The ways in which a job never starts."""


@dataclass
class FakeJob:
    """A job of the simulated cluster: pending with a hold and a pin, running on a placement, or ended."""

    job: Job
    hold: Hold = Hold.PLUGIN
    holder: Holder = Holder.OWNER
    pin: tuple[tuple[str, int], ...] = ()
    start_s: int | None = None
    placement: Placement = ()
    end_s: int | None = None
    starts: int = 0
    run_s: int | None = None
    """Seconds after which `advance` ends it."""
    stubborn: str = ""
    """Why it never starts, one of `STUBBORN`."""
    stalled: bool = False
    """Released, but not started until it is held again."""
    released_s: int = 0
    points: int = 0
    """The boost from any source; a requeue keeps it."""
    points_of: str = ""
    """Who set it: bridge or admin."""

    @property
    def pending(self) -> bool:
        return self.start_s is None and self.end_s is None

    @property
    def running(self) -> bool:
        return self.start_s is not None and self.end_s is None


def groups_of(job: Job) -> tuple[BackoffGroupKey, ...]:
    """Return the groups of a job: itself, equal requests, its association, its access to the partition."""
    association, access = ("association", (job.user, job.account)), ("access", ("", job.user, "", ""))
    return (
        BackoffGroupKey("job", (str(job.id),)),
        make_equivalence_class_key(job),
        BackoffGroupKey(*association),
        BackoffGroupKey(*access),
    )


def cluster_reason_of(stubborn: str, groups: Sequence[BackoffGroupKey]) -> ClusterReason | None:
    """Return the reason that the cluster gives for a released stubborn job."""
    own, alike, association, access = groups
    return {
        "alone": ClusterReason("DependencyNeverSatisfied", own, clears_on_end=False),
        "passing": ClusterReason("BeginTime", own, transient=True, clears_on_end=False),
        "alike": ClusterReason("BadConstraints", alike, clears_on_end=False),
        "shut out": ClusterReason("QOSNotAllowed", access, clears_on_end=False),
        "limited": ClusterReason("AssocMaxJobsLimit", association),
        "held by the cluster": ClusterReason("BadConstraints", alike, clears_on_end=False),
    }.get(stubborn)


HELD_WHEN_RELEASED = {"held by the cluster": Hold.CLUSTER, "bounced": Hold.ADMIN, "held by its owner": Hold.USER}
"""The hold that a released stubborn job shows."""

Fault = Callable[[Callable[[], Any]], Any]
"""What a call does instead of its work: it receives the work, may do it, and returns or raises."""


def _as_read(seen: Observation) -> Observation:
    return seen


@dataclass
class FakeCluster:
    """Behaves like Slurm through the ports, with faults.

    Faults of a call are used in order, each once: see `fail`, `lose_answer`, `answer`, `before` and `inject`. Faults of
    jobs are `FakeJob.stubborn` and `stalls`. Released jobs run at once if their pin can be met; `lazy` keeps them
    pending until `schedule()`.
    """

    cluster: Cluster = field(default_factory=a_cluster)
    now_s: int = 0
    lazy: bool = False
    own_scheduler: bool = False
    """Its scheduler starts jobs without hold and pin, in order of priority and points, first fit."""
    jobs: dict[int, FakeJob] = field(default_factory=dict)
    drained: set[int] = field(default_factory=set)
    outages: tuple[Outage, ...] = ()
    unmanaged: list[UnmanagedJob] = field(default_factory=list)
    commands: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    readings: list[frozenset[int]] = field(default_factory=list)
    """The jobs named to each reading as pinned."""
    boosts: list[tuple[int, int]] = field(default_factory=list)
    """Every accepted boost: (job, points)."""
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    stalls: int = 0
    """Number of the next starts after which the job stays pending."""
    launch_s: int = 0
    """Seconds from a release to the start."""
    clock_off_s: int = 0
    """The offset of the clock that the cluster shows."""
    view: Callable[[Observation], Observation] = _as_read
    """What becomes of each reading."""
    past: list[EndedJob] = field(default_factory=list)
    readiness: list[ReadinessCheck] = field(default_factory=list)
    claimed: Lease | None = None
    labels: dict[int, str] = field(default_factory=dict)
    """Names of running and ended jobs."""
    notes: list[str] = field(default_factory=list)
    """Notes of the next reading."""
    file: Path | None = None
    """Where `close` writes the cluster."""
    child_starts: int = 0
    history_missing: bool = False
    transport_info: str = ""
    starts_in_one_change: bool = True
    epoch: int = 0
    """What changes carry; ignored."""
    scheduler_interval_s: float = 60.0
    _told: set[tuple[int, int]] = field(default_factory=set)
    _pending_before: dict[int, PendingJob] = field(default_factory=dict)
    """Pending jobs of the last reading: unchanged jobs are the same objects, as with Slurm."""

    @classmethod
    def of(cls, *jobs: Job, hold: Hold = Hold.PLUGIN, **facts: Any) -> Self:
        """Return a cluster with these pending jobs."""
        found = cls(**facts)
        found.submit(*jobs, hold=hold)
        return found

    # what people and time do -----------------------------------------------------------------------------------

    def submit(self, *jobs: Job, hold: Hold = Hold.PLUGIN, run_s: int | None = None, stubborn: str = "") -> None:
        for job in jobs:
            known = replace(job, ineligible="Dependency") if stubborn == "ineligible" else job
            self.jobs[job.id] = FakeJob(known, hold, run_s=run_s, stubborn=stubborn)
            if stubborn == "left":
                self.unmanaged.append(UnmanagedJob(job.id, "heterogeneous job", user=job.user, held_for_bridge=True))

    def cancel(self, job_id: int) -> None:
        del self.jobs[job_id]
        self._pending_before.pop(job_id, None)

    def requeue(self, job_id: int, hold: Hold = Hold.NONE) -> None:
        fake = self.jobs[job_id]
        fake.start_s, fake.placement, fake.hold, fake.released_s = None, (), hold, self.now_s

    def end(self, job_id: int) -> None:
        self.jobs[job_id].end_s = self.now_s

    def tell_again(self) -> None:
        """Report each ended job again."""
        self._told.clear()

    def advance(self, seconds: int = 1) -> None:
        """Advance second by second: jobs end, owners release what they hold, then jobs start."""
        for _ in range(seconds):
            self.now_s += 1
            for id, fake in self.jobs.items():
                if fake.running and fake.run_s is not None and self.now_s - (fake.start_s or 0) >= fake.run_s:
                    self.end(id)
                if fake.stubborn == "held by its owner" and fake.hold is Hold.USER:
                    fake.hold = Hold.NONE
            self.schedule()

    def free(self) -> np.ndarray:
        free = self.cluster.capacity.copy()
        for fake in self.jobs.values():
            if fake.running:
                for node, amounts in amounts_by_node(fake.job.request, fake.placement, self.cluster.capacity).items():
                    free[node] -= amounts
        free[sorted(self.drained)] = 0
        return np.maximum(free, 0)

    def schedule(self) -> None:
        """Run the cluster's own scheduler: released jobs start on their pin, others need `own_scheduler`."""
        ready = [fake for fake in self.jobs.values() if self._startable(fake)]
        for fake in sorted(ready, key=lambda f: (not f.pin, -max(1, f.job.priority + f.points), f.job.id)):
            placement = self._pinned(fake) if fake.pin else self._anywhere(fake)
            if placement:
                self.run_now(fake.job.id, placement)

    def _startable(self, fake: FakeJob) -> bool:
        able = fake.pending and fake.hold is Hold.NONE and fake.job.ineligible is None
        return able and not fake.stubborn and not fake.stalled and self.now_s - fake.released_s >= self.launch_s

    def run_now(self, job_id: int, placement: Placement) -> None:
        """Start a job, whoever requests it."""
        fake = self.jobs[job_id]
        fake.hold, fake.start_s, fake.placement = Hold.NONE, self.now_s, placement
        fake.starts += 1

    def _pinned(self, fake: FakeJob) -> Placement:
        index = {name: i for i, name in enumerate(self.cluster.node_names)}
        placement = tuple(sorted((index[name], units) for name, units in fake.pin))
        used, free = amounts_by_node(fake.job.request, placement, self.cluster.capacity), self.free()
        return placement if all((free[node] >= amounts).all() for node, amounts in used.items()) else ()

    def _anywhere(self, fake: FakeJob) -> Placement:
        return first_fit(fake.job, self.free()) if self.own_scheduler else ()

    # what a test looks at --------------------------------------------------------------------------------------

    @property
    def points(self) -> dict[int, int]:
        """The boost of each job, from any source."""
        return {id: fake.points for id, fake in self.jobs.items()}

    def sent(self, call: str) -> list[tuple[int, ...]]:
        """Return the jobs of each command of this name."""
        return [ids for name, ids in self.commands if name == call]

    # the ports -------------------------------------------------------------------------------------------------

    def _call(self, name: str, work: Callable[[], T]) -> T:
        self.calls[name] += 1
        waiting = self.faults.get(name)
        answer: T = waiting.pop(0)(work) if waiting else work()
        return answer

    def _batch(self, name: str, ids: Sequence[int], works: Sequence[Callable[[], Outcome]]) -> Sequence[Outcome]:
        """Run a command for several jobs, each with its own function."""
        self.commands.append((name, tuple(ids)))
        return self._call(name, lambda: [work() for work in works])

    def _undo(self, name: str, orders: Sequence[UndoOrder], work: Callable[[int], Outcome]) -> Sequence[Outcome]:
        ids = [order.job_id for order in orders]
        return self._batch(name, ids, [partial(work, id) for id in ids])

    def not_ready_reason(self) -> str | None:
        return self._call("not_ready_reason", lambda: None)

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        self.readings.append(frozenset(pinned))
        return self._call("observe", self.read)

    def read(self) -> Observation:
        self.schedule()
        jobs = sorted(self.jobs.values(), key=lambda fake: (fake.job.submit_s, fake.job.id))
        ended = [EndedJob(f.job, f.start_s or 0, f.end_s) for f in jobs if f.end_s is not None]
        news = [e for e in ended if (e.job.id, e.end_s) not in self._told]
        self._told.update((e.job.id, e.end_s) for e in news)
        left = {each.job_id for each in self.unmanaged}
        notes, self.notes = tuple(self.notes), []
        seen = Observation(
            self.now_s + self.clock_off_s,
            self.cluster,
            self.free(),
            tuple(self._pending(f) for f in jobs if f.pending and f.job.id not in left),
            tuple(RunningJob(f.job, f.start_s or 0, f.placement) for f in jobs if f.running),
            tuple(news),
            tuple(self.unmanaged),
            outages=self.outages,
            lease=self.claimed,
            labels=self.labels,
            notes=notes,
        )
        return self.view(seen)

    def _pending(self, fake: FakeJob) -> PendingJob:
        now, before = self._shown(fake), self._pending_before.get(fake.job.id)
        if before != now:
            self._pending_before[fake.job.id] = now
        return self._pending_before[fake.job.id]

    def _shown(self, fake: FakeJob) -> PendingJob:
        """Return the record of a waiting job in an observation."""
        kind = fake.stubborn if fake.hold is Hold.NONE else ""
        groups = groups_of(fake.job)
        return PendingJob(
            fake.job,
            HELD_WHEN_RELEASED.get(kind, fake.hold),
            bool(fake.pin),
            cluster_reason=cluster_reason_of(kind, groups),
            groups=groups,
            holder=fake.holder,
            lower_priority=kind == "outranked",
        )

    def read_history(self) -> Sequence[EndedJob]:
        return self._call("read_history", lambda: self.past)

    def resolve_layout(
        self, orders: Sequence[StartOrder], under_way: Sequence[StartOrder] = ()
    ) -> Sequence[StartOrder | Outcome]:
        return orders

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        return self._batch("start", [each.job.id for each in orders], [partial(self.start_one, o) for o in orders])

    def start_one(self, order: StartOrder) -> Outcome:
        id, fake = order.job.id, self.jobs.get(order.job.id)
        if fake is not None and fake.stubborn == "refused":
            return Outcome(id, "refused", "permission denied")
        if fake is None or not fake.pending or fake.hold not in (Hold.PLUGIN, Hold.ADMIN):
            return Outcome(id, "refused", "not pending and held")
        fake.hold, fake.pin, fake.released_s, fake.stalled = Hold.NONE, order.nodes, self.now_s, self.stalls > 0
        self.stalls -= fake.stalled
        if fake.stubborn == "bounced":
            fake.hold, fake.pin = Hold.ADMIN, ()
        if fake.stubborn == "held by its owner":
            fake.hold = Hold.USER
        if not self.lazy:
            self.schedule()
        return Outcome(id, "unknown", "no answer") if fake.stubborn == "unknown answer" else Outcome(id, "done")

    def hold(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        return self._undo("hold", orders, self.hold_one)

    def hold_one(self, job_id: int) -> Outcome:
        fake = self.jobs.get(job_id)
        if fake is None or not fake.pending or fake.hold is Hold.USER:
            return Outcome(job_id, "refused", "not pending, or held by its owner")
        return self._unpinned(fake, Hold.ADMIN if fake.hold is Hold.NONE else fake.hold)

    def release(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        return self._undo("release", orders, self.release_one)

    def release_one(self, job_id: int) -> Outcome:
        self.unmanaged = [
            replace(each, held_for_bridge=False) if each.job_id == job_id else each for each in self.unmanaged
        ]
        fake = self.jobs.get(job_id)
        if fake is None or not fake.pending or fake.hold is Hold.USER:
            return Outcome(job_id, "refused", "not pending, or held by its owner")
        return self._unpinned(fake, Hold.NONE)

    def unpin(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        return self._undo("unpin", orders, self.unpin_one)

    def unpin_one(self, job_id: int) -> Outcome:
        fake = self.jobs.get(job_id)
        if fake is None or not fake.pending or fake.hold is Hold.NONE:
            return Outcome(job_id, "refused", "not pending, or held by nobody")
        return self._unpinned(fake, fake.hold)

    def _unpinned(self, fake: FakeJob, hold: Hold) -> Outcome:
        fake.pin, fake.hold, fake.stalled = (), hold, False
        return Outcome(fake.job.id, "done")

    def acquire_lease(self, lease: Lease, expected: Lease | None) -> bool:
        return self._call("claim", lambda: self._claim(lease, expected))

    def _claim(self, lease: Lease, expected: Lease | None) -> bool:
        if self.claimed != expected:
            return False
        self.claimed = lease
        return True

    def read_ranks(self) -> Sequence[QueueRank]:
        """Rank as in Slurm, without the points of held jobs."""
        pending = [fake for fake in self.jobs.values() if fake.pending]
        return self._call("read_ranks", lambda: [self._rank(fake) for fake in pending])

    def _rank(self, fake: FakeJob) -> QueueRank:
        id, hidden = fake.job.id, fake.hold is not Hold.NONE
        priority, points = (0, 0) if hidden else (fake.job.priority, fake.points)
        return QueueRank(id, (id,), priority, points, fake.job.tier, hidden=hidden)

    def set_boosts(self, commands: Sequence[BoostCommand]) -> Sequence[Outcome]:
        ids = [command.id for command in commands]
        return self._batch("boost", ids, [partial(self.boost_one, command) for command in commands])

    def boost_one(self, command: BoostCommand) -> Outcome:
        fake = self.jobs.get(command.id)
        if fake is None or not fake.pending:
            return Outcome(command.id, "refused", "not pending")
        if fake.hold is not Hold.NONE and command.points:
            return Outcome(command.id, "refused", "held")
        if fake.hold is Hold.NONE and fake.points not in (0, *command.expected_points):
            return Outcome(command.id, "refused", "has another's points")
        fake.points, fake.points_of = command.points, "bridge"
        self.boosts.append((command.id, command.points))
        return Outcome(command.id, "done")

    def run_checks(self) -> Sequence[ReadinessCheck]:
        return self._call("run_checks", lambda: self.readiness)

    def close(self) -> None:
        if self.file is not None:
            self.file.write_bytes(pickle.dumps(self))

    # fault injection -------------------------------------------------------------------------------------------

    def inject(self, call: str, fault: Fault, times: int = 1) -> None:
        """Replace the work of the next `times` calls of this name."""
        self.faults.setdefault(call, []).extend([fault] * times)

    def fail(self, call: str, error: BaseException, times: int = 1) -> None:
        """Make `call` raise `error` without an effect."""

        def fault(work: Callable[[], object]) -> object:
            raise error

        self.inject(call, fault, times)

    def lose_answer(self, call: str, error: BackendError | None = None) -> None:
        """Make the next `call` raise after it has taken effect."""

        def fault(work: Callable[[], object]) -> object:
            work()
            raise error or BackendTimeout("no answer")

        self.inject(call, fault)

    def collect_output(self, call: str, value: object, times: int = 1) -> None:
        """Make `call` return `value` without an effect."""
        self.inject(call, lambda work: value, times)

    def before(self, call: str, event: Callable[[], object]) -> None:
        """Call `event` right before the next `call`."""

        def fault(work: Callable[[], object]) -> object:
            event()
            return work()

        self.inject(call, fault)


class FirstFit(Dispatcher):
    """A minimal dispatcher that starts jobs in order on the first nodes with room."""

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
    """A clock that advances only on request. It waits at most `cycles` times."""

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
