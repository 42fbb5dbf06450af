"""A cluster with truth: who holds each job, what was asked of it by whom, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.model import Cluster, EndedJob, Job, Placement, RunningJob
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.likes import BackoffKey
from cpsched_bridge.ports import (
    Advice,
    Check,
    Claim,
    Hold,
    Observation,
    Obstacle,
    Outcome,
    PendingJob,
    Postponed,
    Rank,
    StartOrder,
)
from tests.builders import a_cluster

NODES, CORES = 4, 4
GIVEN_UP = "been given up"


class Death(BaseException):
    """What a killed process sees: nothing."""


@dataclass
class Fuse:
    """Burns at every boundary; at its end the process dies, and stays dead."""

    left: int | None = None
    dead: bool = False

    def burn(self) -> None:
        if self.dead:
            raise Death
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.dead = True
                raise Death


@dataclass
class SiteJob:
    """A job as it truly is. `held_by` is plugin, bridge, admin, owner or nobody."""

    job: Job
    run_s: int
    held_by: str
    pin: tuple[tuple[str, int], ...] = ()
    released_s: int = 0
    stalled: bool = False
    """Released, and not started whatever is free, until it is held again: the cluster has its reasons."""
    vain: str = ""
    """How it does not start, ever: silent, shown (the cluster says why) or refused."""
    start_s: int | None = None
    placement: Placement = ()
    over: str = ""
    starts: int = 0
    requeues: int = 0
    points: int = 0
    """What somebody has added to its priority; a requeue leaves it."""
    points_of: str = ""
    """Who: bridge or admin."""
    old_pin: bool = False
    """Whether it was requeued with the node list of its last start still on it."""
    held_after: int = 0
    """So many readings had been taken when somebody held it."""

    @property
    def pending(self) -> bool:
        return not self.over and self.start_s is None

    @property
    def running(self) -> bool:
        return not self.over and self.start_s is not None


@dataclass
class Site:
    """The cluster. `plugin`: new jobs arrive held for the bridge, and its holds and pins carry marks.

    Without the plugin a hold of the bridge looks like an administrator's: the ledger alone tells them apart.
    """

    plugin: bool
    launch_s: int = 1
    cluster: Cluster = field(default_factory=lambda: a_cluster(NODES, CORES))
    time_s: int = 0
    clock_off_s: int = 0
    jobs: dict[int, SiteJob] = field(default_factory=dict)
    down: set[int] = field(default_factory=set)
    ended: list[EndedJob] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)
    """What must never happen, seen where it happens."""
    log: list[str] = field(default_factory=list)
    faults: list[tuple[str, int]] = field(default_factory=list)
    """Faults of the next commands or readings: (kind, a number that says where in the batch)."""
    unseen: int | None = None
    """A job of the bridge that the next reading does not show, though nothing happened to it."""
    readings: int = 0
    unread: bool = False
    """Whether the last reading failed."""
    stalls: int = 0
    """So many of the next starts are not carried out."""
    fuse: Fuse = field(default_factory=Fuse)
    claim: Claim | None = None

    @property
    def now_s(self) -> int:
        """What the cluster's clock shows."""
        return self.time_s + self.clock_off_s

    # what people, nodes and time do ---------------------------------------------------------------------------

    def note(self, words: str) -> None:
        self.log.append(f"{self.time_s:5} {words}")

    def submit(self, job: Job, run_s: int, vain: str = "") -> None:
        self.jobs[job.id] = SiteJob(job, run_s, "plugin" if self.plugin else "nobody", vain=vain)
        self.note(f"job {job.id} is submitted{', in vain: ' if vain else ''}{vain}")

    def which(self, number: int, fits: Callable[[SiteJob], bool]) -> SiteJob | None:
        """One of the jobs that fit, by a number that need not know how many those are."""
        found = [job for job in self.jobs.values() if fits(job)]
        return found[number % len(found)] if found else None

    def cancel(self, job: SiteJob) -> None:
        if job.running:
            self._end(job, "cancelled")
        job.over = "cancelled"
        self.note(f"job {job.job.id} is cancelled")

    def hold_for(self, job: SiteJob, who: str) -> None:
        job.held_by, job.held_after = who, self.readings
        self.note(f"job {job.job.id} is held by its {who}" if who == "owner" else f"job {job.job.id} is held by {who}")

    def release(self, job: SiteJob) -> None:
        job.held_by = "nobody"
        self.note(f"job {job.job.id} is released by whoever held it")

    def requeue(self, job: SiteJob, held: bool) -> None:
        self.ended.append(EndedJob(job.job, *self._times(job)))
        job.start_s, job.placement, job.held_by = None, (), "admin" if held else "nobody"
        job.held_after = self.readings
        job.requeues += 1
        job.released_s, job.old_pin = self.time_s, bool(job.pin)
        self.note(f"job {job.job.id} is requeued{' and held by admin' if held else ''}")

    def node_down(self, node: int) -> None:
        self.down.add(node)
        self.note(f"node {node} is down")
        for job in self.jobs.values():
            if job.running and any(at == node for at, _ in job.placement):
                self.requeue(job, held=False)

    def node_leaves(self, node: int) -> None:
        """A node leaves the configuration and comes back, with a restart of the controller each time.

        As Slurm does: jobs that have it in their list are given up for good, others that run there are requeued.
        """
        self.note(f"node {node} leaves and comes back")
        for job in self.jobs.values():
            if any(name == self.cluster.node_names[node] for name, _ in job.pin) and not job.over:
                if job.running:
                    self._end(job, GIVEN_UP)
                job.over = GIVEN_UP
            elif job.running and any(at == node for at, _ in job.placement):
                self.requeue(job, held=False)

    def advance(self, seconds: int) -> None:
        """Let time pass, second by second: ends, then launches, then what the cluster's own scheduler starts."""
        for _ in range(seconds):
            self.time_s += 1
            for job in self.jobs.values():
                if job.running and job.start_s is not None and self.time_s - job.start_s >= job.run_s:
                    self._end(job, "ended")
            for job in sorted(self.jobs.values(), key=lambda job: (not job.pin, -job.points, job.job.id)):
                if job.pending and job.held_by == "nobody":
                    self._try_to_start(job)

    def _try_to_start(self, job: SiteJob) -> None:
        if job.stalled or job.vain or self.time_s - job.released_s < self.launch_s:
            return
        placement = self._pinned(job) if job.pin else self._anywhere(job)
        if placement:
            job.start_s, job.placement, job.old_pin = self.time_s, placement, False
            job.starts += 1
            self.note(f"job {job.job.id} starts on {placement}")

    def _end(self, job: SiteJob, how: str) -> None:
        self.ended.append(EndedJob(job.job, *self._times(job)))
        job.over = how
        self.note(f"job {job.job.id} has {how}")

    def _times(self, job: SiteJob) -> tuple[int, int]:
        assert job.start_s is not None
        return job.start_s, max(job.start_s, self.time_s)

    def free(self) -> np.ndarray:
        free = self.cluster.capacity.copy()
        for job in self.jobs.values():
            if job.running:
                for node, units in job.placement:
                    free[node] -= units * np.array(job.job.request.per_unit)
        free[sorted(self.down)] = 0
        return np.maximum(free, 0)

    def _pinned(self, job: SiteJob) -> Placement:
        free, per_unit = self.free(), job.job.request.per_unit[0]
        placement = tuple((self.cluster.node_names.index(name), units) for name, units in job.pin)
        return placement if all(free[node, 0] >= units * per_unit for node, units in placement) else ()

    def _anywhere(self, job: SiteJob) -> Placement:
        """First fit, as a cluster's own scheduler might."""
        free, left, found = self.free()[:, 0], job.job.request.units, []
        for node in range(self.cluster.size):
            units = min(left, int(free[node]) // job.job.request.per_unit[0])
            if units:
                found.append((node, units))
                left -= units
        return tuple(found) if not left else ()

    # how it looks from outside --------------------------------------------------------------------------------

    def shown_hold(self, job: SiteJob) -> Hold:
        """What a reading tells of a hold: without the plugin's marks the bridge's own looks like anybody's."""
        ours, theirs = (Hold.PLUGIN, Hold.USER) if self.plugin else (Hold.ADMIN, Hold.ADMIN)
        shown = {"nobody": Hold.NONE, "plugin": Hold.PLUGIN, "bridge": ours, "admin": theirs, "owner": Hold.USER}
        return shown[job.held_by]

    def shown(self, job: SiteJob) -> PendingJob:
        """What a reading tells of a job that waits."""
        whom = BackoffKey("qos", ("", job.job.user))
        told = job.vain == "shown" and job.held_by == "nobody"
        obstacle = Obstacle("QOSNotAllowed", whom, eased=False) if told else None
        groups = (BackoffKey("job", (str(job.job.id),)), whom)
        return PendingJob(job.job, self.shown_hold(job), bool(job.pin), obstacle=obstacle, groups=groups)

    def reading(self, since: int) -> Observation:
        shown = [each for each in self.jobs.values() if each.job.id != self.unseen]
        jobs = sorted(shown, key=lambda each: (each.job.submit_s, each.job.id))
        self.unseen = None
        return Observation(
            self.now_s,
            self.cluster,
            self.free(),
            tuple(self.shown(j) for j in jobs if j.pending),
            tuple(RunningJob(j.job, j.start_s or 0, j.placement) for j in jobs if j.running),
            tuple(self.ended[since:]),
            claim=self.claim,
        )

    # what the bridge asks for ---------------------------------------------------------------------------------

    def start(self, order: StartOrder) -> Outcome:
        id = order.job.id
        job = self.jobs.get(id)
        if job is None or not job.pending or job.held_by in ("nobody", "owner"):
            return Outcome(id, "refused", "not pending and held")
        if job.vain == "refused":
            return Outcome(id, "refused", "permission denied")
        if job.held_by == "admin" and self.plugin:
            return Outcome(id, "refused", "held by an administrator")
        if job.held_by == "admin":
            self.wrongs.append(f"job {id} is started against an administrator's hold")
        job.held_by, job.pin, job.released_s = "nobody", order.nodes, self.time_s
        job.old_pin = False
        if self.stalls:
            self.stalls -= 1
            job.stalled = True
            self.note(f"job {id} will not be started")
        self.note(f"the bridge starts job {id} on {order.nodes}")
        return Outcome(id, "done")

    def hold(self, id: int) -> Outcome:
        job = self.jobs.get(id)
        if job is None or not job.pending or job.held_by == "owner":
            return Outcome(id, "refused", "not pending, or held by its owner")
        if job.held_by == "nobody":
            job.held_by = "bridge"
        self.note(f"the bridge holds job {id}")
        self.fuse.burn()
        job.pin, job.stalled, job.old_pin = (), False, False
        return Outcome(id, "done")

    def hand_back(self, id: int) -> Outcome:
        job = self.jobs.get(id)
        if job is None or not job.pending or job.held_by == "owner":
            return Outcome(id, "refused", "not pending, or held by its owner")
        if job.held_by == "admin":
            if self.plugin:
                return Outcome(id, "refused", "held by an administrator")
            if not self.unread or job.held_after < self.readings:
                self.wrongs.append(f"job {id} is handed back against an administrator's hold")
        job.pin, job.stalled, job.old_pin = (), False, False
        self.fuse.burn()
        job.held_by = "nobody"
        self.note(f"the bridge hands job {id} back")
        return Outcome(id, "done")

    def unpin(self, id: int) -> Outcome:
        job = self.jobs.get(id)
        if job is None or not job.pending or job.held_by == "nobody":
            return Outcome(id, "refused", "not pending, or held by nobody")
        job.pin, job.stalled, job.old_pin = (), False, False
        self.note(f"the bridge takes the pin off job {id}, which its {job.held_by} holds")
        return Outcome(id, "done")

    def ranks(self) -> list[Rank]:
        """As Slurm does, without the points of held jobs."""
        found = []
        for id, job in self.jobs.items():
            if job.pending:
                hidden = job.held_by != "nobody"
                found.append(Rank(id, (id,), 0 if hidden else 10, 0 if hidden else job.points, hidden=hidden))
        return found

    def advise(self, advice: Advice) -> Outcome:
        job = self.jobs.get(advice.id)
        if job is None or not job.pending:
            return Outcome(advice.id, "refused", "not pending")
        hidden = job.held_by != "nobody"
        if hidden and advice.points:
            return Outcome(advice.id, "refused", "held")
        if not hidden and job.points not in (0, *advice.instead_of):
            return Outcome(advice.id, "refused", "has points of somebody else's")
        if job.points and job.points_of == "admin" and not hidden:
            self.wrongs.append(f"job {advice.id} has {job.points} points by an administrator, and is told others")
        job.points, job.points_of = advice.points, "bridge"
        self.note(f"job {advice.id} is told {advice.points} points")
        return Outcome(advice.id, "done")


class SiteBackend:
    """The ports over a site, for one life of a bridge; what is asked may fail in every way the ports allow."""

    child_starts = 0
    history_missing = False
    speaks = ""
    starts_in_one_change = True

    def __init__(self, site: Site) -> None:
        self.site = site
        self._told = 0
        self.startable: frozenset[int] = frozenset()
        """The jobs that the last reading showed pending and held."""

    def waits_for(self) -> str | None:
        return None

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        self.site.fuse.burn()
        self.site.unread = True
        self._maybe_fail("observe")
        self.site.readings, self.site.unread = self.site.readings + 1, False
        seen = self.site.reading(self._told)
        self._told += len(seen.ended)
        self.startable = frozenset(p.job.id for p in seen.pending if p.hold in (Hold.PLUGIN, Hold.ADMIN))
        return seen

    def history(self) -> Sequence[EndedJob]:
        self.site.fuse.burn()
        self._told = len(self.site.ended)
        return tuple(self.site.ended)

    def settled(self, orders: Sequence[StartOrder]) -> Sequence[StartOrder | Postponed]:
        return orders

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        ids = [order.job.id for order in orders]
        if len(set(ids)) < len(ids):
            self.site.wrongs.append(f"a job is started twice in one command: {ids}")
        for id in set(ids) - self.startable:
            self.site.wrongs.append(f"job {id} is started although the reading does not show it pending and held")
        return self._batch("start", [lambda order=order: self.site.start(order) for order in orders], ids)

    def hold(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        return self._batch("hold", [lambda id=id: self.site.hold(id) for id in job_ids], list(job_ids))

    def hand_back(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        return self._batch("hand_back", [lambda id=id: self.site.hand_back(id) for id in job_ids], list(job_ids))

    def unpin(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        return self._batch("unpin", [lambda id=id: self.site.unpin(id) for id in job_ids], list(job_ids))

    def ranks(self) -> Sequence[Rank]:
        self.site.fuse.burn()
        self._maybe_fail("ranks")
        return self.site.ranks()

    def advise(self, advice: Sequence[Advice]) -> Sequence[Outcome]:
        return self._batch(
            "advise", [lambda each=each: self.site.advise(each) for each in advice], [each.id for each in advice]
        )

    def claim(self, claim: Claim, instead_of: Claim | None) -> bool:
        self.site.fuse.burn()
        if self.site.claim != instead_of:
            return False
        self.site.claim = claim
        self.site.fuse.burn()
        return True

    def disclaim(self, claim: Claim) -> None:
        self.site.fuse.burn()
        if self.site.claim == claim:
            self.site.claim = None

    def checks(self) -> Sequence[Check]:
        return []

    def close(self) -> None:
        pass

    def _maybe_fail(self, call: str) -> None:
        if self.site.faults and self.site.faults[0][0] in ("unavailable", "refused", "timeout"):
            kind, _ = self.site.faults.pop(0)
            self.site.note(f"{call}: {kind}")
            raise {"unavailable": BackendUnavailable, "refused": CommandRefused, "timeout": BackendTimeout}[kind](kind)

    def _batch(self, call: str, works: list[Callable[[], Outcome]], ids: list[int]) -> Sequence[Outcome]:
        self.site.fuse.burn()
        self._maybe_fail(call)
        kind, at = self.site.faults.pop(0) if self.site.faults else ("", 0)
        if kind:
            self.site.note(f"{call}: {kind}")
        outcomes: list[Outcome] = []
        for number, work in enumerate(works):
            if kind == "half" and number >= at % (len(works) + 1):
                outcomes.append(Outcome(ids[number], "unknown", "no answer"))
                continue
            if kind == "one refused" and number == at % len(works):
                outcomes.append(Outcome(ids[number], "refused", "permission denied"))
                continue
            outcomes.append(work())
            self.site.fuse.burn()
        if kind == "answer lost":
            raise BackendTimeout("the answer is lost")
        if kind == "half done unknown":
            return [Outcome(o.job_id, "unknown", "no answer") if i % 2 else o for i, o in enumerate(outcomes)]
        return outcomes
