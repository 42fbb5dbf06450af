"""Simulate a cluster with the actual state of each job: its holder, the requests for it, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cpsched.model import Cluster, EndedJob, Job, Placement
from cpsched_bridge.adapters.slurm.policy.preemptors import PreemptorsLeftToSlurm
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.ports import (
    BoostCommand,
    Hold,
    Lease,
    Observation,
    Outcome,
    PendingJob,
    QueueRank,
    StartOrder,
    SupportsBoost,
    SupportsPreemption,
    Victim,
)
from tests.builders import a_cluster
from tests.fakes import FakeCluster, FakeJob
from tests.preempting_cluster import Preempting

NODES, CORES = 4, 4
GIVEN_UP = "been given up"


class Death(BaseException):
    """The exception that ends a killed process. No handler catches it."""


@dataclass
class Fuse:
    """A counter of boundaries. At 0, the process dies and remains dead."""

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
class SiteJob(FakeJob):
    """The actual state of a job. `held_by` is plugin, bridge, admin, owner or `nobody`."""

    ours: bool = False
    """Whether an administrator's hold is by the bridge."""
    over: str = ""
    requeues: int = 0
    old_pin: bool = False
    """Whether the job was requeued with the node list of its last start."""
    held_after: int = 0
    """Number of readings before the job was held."""

    @property
    def held_by(self) -> str:
        names = {Hold.NONE: "nobody", Hold.PLUGIN: "plugin", Hold.USER: "owner"}
        return names.get(self.hold, "bridge" if self.ours else "admin")


@dataclass
class Site(FakeCluster):
    """The cluster. With `plugin`, new jobs arrive held for the bridge, whose holds and pins have marks.

    Without the plugin, a hold by the bridge looks like an administrator's, and only the ledger distinguishes them.
    """

    plugin: bool = True
    jobs: dict[int, SiteJob] = field(default_factory=dict)  # type: ignore[assignment]
    ended: list[EndedJob] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)
    """Violations, recorded when they occur."""
    log: list[str] = field(default_factory=list)
    trouble: list[tuple[str, int]] = field(default_factory=list)
    """Faults of the next commands or readings: the kind, and a number that selects the position in the batch."""
    unseen: int | None = None
    """Unchanged job of the bridge that is missing from the next reading."""
    good_readings: int = 0
    unread: bool = False
    """Whether the last reading failed."""
    fuse: Fuse = field(default_factory=Fuse)
    cluster: Cluster = field(default_factory=lambda: a_cluster(NODES, CORES))
    launch_s: int = 1
    lazy: bool = True
    own_scheduler: bool = True

    # what people, nodes and time do ---------------------------------------------------------------------------

    def note(self, words: str) -> None:
        self.log.append(f"{self.now_s:5} {words}")

    @property
    def shown_s(self) -> int:
        """Return the time on the cluster's clock."""
        return self.now_s + self.clock_off_s

    def arrive(self, job: Job, run_s: int, stubborn: str = "") -> None:
        hold = Hold.PLUGIN if self.plugin else Hold.NONE
        self.jobs[job.id] = SiteJob(replace(job, priority=10), hold, run_s=run_s, stubborn=stubborn)
        self.note(f"job {job.id} is submitted{', and never starts: ' if stubborn else ''}{stubborn}")

    def which(self, number: int, fits: Callable[[SiteJob], bool]) -> SiteJob | None:
        """Return one of the matching jobs, selected by any number."""
        found = [job for job in self.jobs.values() if fits(job)]
        return found[number % len(found)] if found else None

    def finish(self, job: SiteJob, how: str) -> None:
        """End a job. If it ran, add its accounting record."""
        self._account(job)
        job.over, job.end_s = how, self.now_s
        self.note(f"job {job.job.id} has {how}")

    def end(self, job_id: int) -> None:
        self.finish(self.jobs[job_id], "ended")

    def _account(self, job: SiteJob) -> None:
        if job.running and job.start_s is not None:
            self.ended.append(EndedJob(job.job, job.start_s, max(job.start_s, self.now_s)))

    def hold_for(self, job: SiteJob, who: str) -> None:
        job.hold, job.ours = Hold.USER if who == "owner" else Hold.ADMIN, False
        job.held_after = self.good_readings
        self.note(f"job {job.job.id} is held by its {who}" if who == "owner" else f"job {job.job.id} is held by {who}")

    def end_hold(self, job: SiteJob) -> None:
        job.hold = Hold.NONE
        self.note(f"job {job.job.id} is released by whoever held it")

    def put_back(self, job: SiteJob, held: bool) -> None:
        """Requeue a running job."""
        self._account(job)
        self.requeue(job.job.id, Hold.ADMIN if held else Hold.NONE)
        job.ours, job.held_after = False, self.good_readings
        job.requeues += 1
        job.old_pin = bool(job.pin)
        self.note(f"job {job.job.id} is requeued{' and held by admin' if held else ''}")

    def node_down(self, node: int) -> None:
        self.drained.add(node)
        self.note(f"node {node} is down")
        for job in self.jobs.values():
            if job.running and any(at == node for at, _ in job.placement):
                self.put_back(job, held=False)

    def node_leaves(self, node: int) -> None:
        """Remove a node from the configuration and add it again, with a restart of the controller each time.

        As in Slurm, jobs with the node in their list fail permanently, and other jobs that run on it are requeued.
        """
        self.note(f"node {node} leaves and comes back")
        for job in self.jobs.values():
            if any(name == self.cluster.node_names[node] for name, _ in job.pin) and not job.over:
                self.finish(job, GIVEN_UP)
            elif job.running and any(at == node for at, _ in job.placement):
                self.put_back(job, held=False)

    def run_now(self, job_id: int, placement: Placement) -> None:
        super().run_now(job_id, placement)
        self.jobs[job_id].old_pin = False
        self.note(f"job {job_id} starts on {placement}")

    # how it looks from outside --------------------------------------------------------------------------------

    def _shown(self, fake: FakeJob) -> PendingJob:
        """Return the job as the cluster shows it; the plugin's marks identify holds."""
        assert isinstance(fake, SiteJob)
        marked = {"bridge": Hold.PLUGIN, "admin": Hold.USER} if self.plugin else {}
        return replace(super()._shown(fake), hold=marked.get(fake.held_by, fake.hold))

    def reading(self, since: int) -> Observation:
        """Return the observation for a bridge that has seen the first `since` ended jobs."""
        seen, unseen = self.read(), self.unseen
        self.unseen = None
        return replace(
            seen,
            pending=tuple(each for each in seen.pending if each.job.id != unseen),
            running=tuple(each for each in seen.running if each.job.id != unseen),
            ended=tuple(self.ended[since:]),
        )

    # what the bridge asks for ---------------------------------------------------------------------------------

    def start_one(self, order: StartOrder) -> Outcome:
        id, job = order.job.id, self.jobs.get(order.job.id)
        against = job is not None and job.pending and job.held_by == "admin" and job.stubborn != "refused"
        if against and self.plugin:
            return Outcome(id, "refused", "held by an administrator")
        if against:
            self.wrongs.append(f"job {id} is started against an administrator's hold")
        return super().start_one(order)

    def hold_one(self, job_id: int) -> Outcome:
        job = self.jobs.get(job_id)
        if job is not None and job.pending:
            self._hold_unheld(job)
        return super().hold_one(job_id)

    def _hold_unheld(self, job: SiteJob) -> None:
        if job.hold is Hold.NONE:
            job.hold, job.ours = Hold.ADMIN, True
            self.fuse.burn()

    def release_one(self, job_id: int) -> Outcome:
        """Release a job. As in the Slurm adapter, a pinned job is held until its pin is cleared."""
        job = self.jobs.get(job_id)
        if job is not None and job.pending and job.held_by == "admin":
            if self.plugin:
                return Outcome(job_id, "refused", "held by an administrator")
            if not self.unread or job.held_after < self.good_readings:
                self.wrongs.append(f"job {job_id} is released against an administrator's hold")
        if job is not None and job.pending and job.hold is not Hold.USER:
            if job.pin:
                self._hold_unheld(job)
            job.pin = ()
            self.fuse.burn()
        return super().release_one(job_id)

    def boost_one(self, command: BoostCommand) -> Outcome:
        job = self.jobs.get(command.id)
        admins = job.points if job is not None and job.points_of == "admin" and job.hold is Hold.NONE else 0
        outcome = super().boost_one(command)
        if outcome.result == "done" and admins:
            self.wrongs.append(f"job {command.id} has {admins} points by an administrator, and gets others")
        return outcome

    # what goes wrong meanwhile --------------------------------------------------------------------------------

    def may_fail(self, call: str) -> None:
        self.fuse.burn()
        if self.trouble and self.trouble[0][0] in ("unavailable", "refused", "timeout"):
            kind, _ = self.trouble.pop(0)
            self.note(f"{call}: {kind}")
            raise {"unavailable": BackendUnavailable, "refused": CommandRefused, "timeout": BackendTimeout}[kind](kind)

    def _batch(self, name: str, ids: Sequence[int], works: Sequence[Callable[[], Outcome]]) -> Sequence[Outcome]:
        self.may_fail(name)
        kind, at = self.trouble.pop(0) if self.trouble else ("", 0)
        if kind:
            self.note(f"{name}: {kind}")
        outcomes: list[Outcome] = []
        for number, work in enumerate(works):
            if kind == "half" and number >= at % (len(works) + 1):
                outcomes.append(Outcome(ids[number], "unknown", "no answer"))
                continue
            if kind == "one refused" and number == at % len(works):
                outcomes.append(Outcome(ids[number], "refused", "permission denied"))
                continue
            outcome = work()
            outcomes.append(outcome)
            if outcome.result == "done":
                job = self.jobs[ids[number]]
                job.old_pin = job.old_pin and name in ("boost", "preempt")
                self.note(f"the bridge: {name} of job {job.job.id} (pin {job.pin}, {job.points} points)")
            self.fuse.burn()
        if kind == "answer lost":
            raise BackendTimeout("the answer is lost")
        if kind == "half done unknown":
            return [Outcome(o.job_id, "unknown", "no answer") if i % 2 else o for i, o in enumerate(outcomes)]
        return outcomes

    def acquire_lease(self, lease: Lease, expected: Lease | None) -> bool:
        self.fuse.burn()
        taken = super().acquire_lease(lease, expected)
        self.fuse.burn()
        return taken


@dataclass
class PreemptingSite(Preempting, Site):
    """A site whose running jobs may be preempted."""

    offered: dict[int, set[int]] = field(default_factory=dict)
    """The victims in the last reading, by the job that may preempt them."""
    plans: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    """The victims that may still be stopped for a job and the number of its requeues, from its first victim on."""
    stopped: dict[tuple[int, int], set[Victim]] = field(default_factory=dict)
    """The victims that were stopped by each plan."""
    forgotten: set[tuple[int, int]] = field(default_factory=set)
    """The plans that the bridge's ledger may have lost. Another may follow when their victims have ended."""
    stops: int = 0

    def reading(self, since: int) -> Observation:
        seen = super().reading(since)
        self.offered = {each.pending.job.id: {victim.job_id for victim in each.victims} for each in seen.preemptions}
        return seen

    def stop_one(self, victim: Victim) -> Outcome:
        ending = set(self.ending)
        outcome = super().stop_one(victim)
        if outcome.result == "done":
            id, victims = next((id, each) for id, each in self.offered.items() if victim.job_id in each)
            key = id, self.jobs[id].requeues
            if key in self.forgotten and not self.stopped[key] & ending:
                self.forgotten.discard(key)
                del self.plans[key], self.stopped[key]
            plan = self.plans.setdefault(key, set(victims))
            self.stopped.setdefault(key, set()).add(victim)
            if victim.job_id not in plan:
                self.wrongs.append(f"job {victim.job_id} is stopped for job {id}, again or by another plan")
            plan.discard(victim.job_id)
            self.stops += 1
            self.note(f"the bridge stops job {victim.job_id} for job {id}")
        return outcome

    def stop(self, job_id: int) -> None:
        if self.mode == "cancel":
            self.finish(self.jobs[job_id], "been preempted")
        else:
            self.put_back(self.jobs[job_id], held=False)


class SiteBackend(SupportsBoost):
    """The ports to a site for one bridge process, with its last observation."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._told = 0
        self.startable: frozenset[int] = frozenset()
        """Jobs that were pending and held in the last reading."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.site, name)

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        self.site.unread = True
        self.site.may_fail("observe")
        self.site.good_readings, self.site.unread = self.site.good_readings + 1, False
        seen = self.site.reading(self._told)
        self._told += len(seen.ended)
        self.startable = frozenset(p.job.id for p in seen.pending if p.hold in (Hold.PLUGIN, Hold.ADMIN))
        return seen

    def read_history(self) -> Sequence[EndedJob]:
        self.site.fuse.burn()
        self._told = len(self.site.ended)
        return tuple(self.site.ended)

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        ids = [order.job.id for order in orders]
        if len(set(ids)) < len(ids):
            self.site.wrongs.append(f"a job is started twice in one command: {ids}")
        for id in set(ids) - self.startable:
            self.site.wrongs.append(f"job {id} is started although the reading does not show it pending and held")
        return self.site.start(orders)

    def read_ranks(self) -> Sequence[QueueRank]:
        self.site.may_fail("read_ranks")
        return self.site.read_ranks()

    def set_boosts(self, commands: Sequence[BoostCommand]) -> Sequence[Outcome]:
        return self.site.set_boosts(commands)


class PreemptingSiteBackend(SiteBackend, SupportsPreemption):
    """The ports to a site whose running jobs may be preempted."""

    def __init__(self, site: PreemptingSite) -> None:
        super().__init__(site)
        site.leaver = PreemptorsLeftToSlurm()

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        self.site.preemption_options = self.preemption_options
        return super().observe(pinned)

    def preempt(self, victims: Sequence[Victim]) -> Sequence[Outcome]:
        return self.site.preempt(victims)
