"""A cluster on which some jobs never start, each for a different reason, among normal jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cpsched.model import Job
from cpsched_bridge.equivalence import BackoffKey, equivalence_key
from cpsched_bridge.ports import ClusterReason, Hold, Observation, Outcome, PendingJob, StartOrder, UnmanagedJob
from tests.fakes import FakeCluster, FakeJob

KINDS = (
    "silent",  # released, it waits without a reason
    "outranked",  # the cluster says that others go first
    "alone",  # an obstacle of the job, such as a dependency that is never satisfied
    "passing",  # one that may pass, and does not
    "alike",  # an obstacle of its request
    "shut out",  # an obstacle of its user in the partition
    "limited",  # a limit of its user
    "refused",  # the command to start it is refused
    "held by the cluster",  # the cluster holds it itself when it is released
    "bounced",  # held again after every release
    "held by its owner",  # who releases it as soon as it has been rolled back
    "unknown answer",  # unknown whether the command arrived
    "ineligible",  # the adapter knows
    "left",  # the adapter cannot model it
)
"""The ways in which a job does not start."""


@dataclass
class StubbornCluster(FakeCluster):
    """Jobs of `kinds` (by id) never start; the others start as on any cluster, and run for `runs_s`."""

    kinds: dict[int, str] = field(default_factory=dict)
    runs_s: dict[int, int] = field(default_factory=dict)
    started_s: dict[int, int] = field(default_factory=dict)
    """The start of each normal job."""
    _shown_before: dict[int, tuple[PendingJob, PendingJob]] = field(default_factory=dict)
    """Pending jobs now and in the last reading: unchanged jobs are the same objects."""

    def submit_stubborn(self, job: Job, kind: str) -> None:
        """Submit a job that never starts for this reason."""
        self.kinds[job.id] = kind
        ineligible = "Dependency" if kind == "ineligible" else None
        self.submit(replace(job, ineligible=ineligible))
        if kind == "left":
            self.left.append(UnmanagedJob(job.id, "heterogeneous job", user=job.user, held_for_us=True))

    def tick(self) -> None:
        """Advance by a second."""
        self.now_s += 1
        for id, fake in self.jobs.items():
            if fake.running and id in self.runs_s and self.now_s - (fake.start_s or 0) >= self.runs_s[id]:
                self.end(id)
        for id, kind in self.kinds.items():
            fake = self.jobs[id]
            if kind == "held by its owner" and fake.hold is Hold.USER:
                fake.hold = Hold.NONE

    def schedule(self) -> None:
        """Start the jobs that can start."""
        every = self.jobs
        self.jobs = {id: fake for id, fake in every.items() if id not in self.kinds}
        super().schedule()
        self.jobs = every
        for id, fake in every.items():
            if fake.start_s is not None:
                self.started_s.setdefault(id, fake.start_s)

    def read(self) -> Observation:
        seen = super().read()
        before = self._shown_before
        self._shown_before = {
            each.job.id: known
            if (known := before.get(each.job.id)) is not None and known[0] is each
            else (each, self._shown(each))
            for each in seen.pending
        }
        return replace(seen, pending=tuple(shown for _, shown in self._shown_before.values()))

    def _shown(self, pending: PendingJob) -> PendingJob:
        job, kind = pending.job, self.kinds.get(pending.job.id)
        own = BackoffKey("job", (str(job.id),))
        theirs = BackoffKey("association", (job.user, job.account))
        access = BackoffKey("access", ("", job.user, "", ""))
        pending = replace(pending, groups=(own, equivalence_key(job), theirs, access))
        if kind is None or pending.hold is not Hold.NONE:
            return pending
        obstacle = {
            "alone": ClusterReason("DependencyNeverSatisfied", own, clears_on_end=False),
            "passing": ClusterReason("BeginTime", own, transient=True, clears_on_end=False),
            "alike": ClusterReason("BadConstraints", equivalence_key(job), clears_on_end=False),
            "shut out": ClusterReason("QOSNotAllowed", access, clears_on_end=False),
            "limited": ClusterReason("AssocMaxJobsLimit", theirs),
            "held by the cluster": ClusterReason("BadConstraints", equivalence_key(job), clears_on_end=False),
        }.get(kind)
        hold = {"held by the cluster": Hold.CLUSTER, "bounced": Hold.ADMIN, "held by its owner": Hold.USER}.get(kind)
        return replace(pending, obstacle=obstacle, hold=hold or pending.hold, lower_priority=kind == "outranked")

    def start_one(self, order: StartOrder) -> Outcome:
        kind = self.kinds.get(order.job.id)
        if kind == "refused":
            return Outcome(order.job.id, "refused", "permission denied")
        done = super().start_one(order)
        fake: FakeJob = self.jobs[order.job.id]
        if kind == "bounced":
            fake.hold, fake.pin = Hold.ADMIN, ()
        if kind == "held by its owner":
            fake.hold = Hold.USER
        return Outcome(order.job.id, "unknown", "no answer") if kind == "unknown answer" else done

    def sent(self, ids: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the start commands sent for these jobs."""
        starts = [tuple(id for id in batch if id in set(ids)) for kind, batch in self.commands if kind == "start"]
        return [batch for batch in starts if batch]
