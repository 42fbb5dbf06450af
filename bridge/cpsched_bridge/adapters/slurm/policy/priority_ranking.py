"""Rank pending jobs as Slurm would if they were not held, and apply limits."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from cpsched.model import Job
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.site.limit_checks import LICENSE, RESERVED_LICENSE, ApplicableJobLimits, JobLimitAttributes, JobLimitTable
from cpsched.site.multifactor_priority import (
    ClusterSize,
    PriorityInputColumns,
    PriorityPolicy,
    WeightedPriorityFactors,
    age_accrual_start_s,
    basic_priorities,
    priority_points,
    tres_points,
)
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmReservation
from cpsched.slurm_text.site_policy import SitePolicyReading
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.adapters.slurm.translation.unsupported_requests import (
    count_held_licenses,
    parse_requested_licenses,
)
from cpsched_bridge.ports import PendingJob

ENDING_STATES = frozenset({"COMPLETING", "STAGE_OUT", "REQUEUED"})
"""States of ended jobs whose nodes are still busy. Such a job holds its licenses, and counts against no other limit."""


def get_job_tres(job: SlurmJob, tres: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts that a job requests or holds, by trackable resource.

    `gres/gpu:a100` also counts as `gres/gpu`. Licenses count even if accounting does not track them.
    """
    licenses = parse_requested_licenses(job.licenses) or {}
    found = {**tres, **{LICENSE + name: count for name, count in licenses.items()}}
    found.setdefault("cpu", job.cpus)
    found.setdefault("node", job.num_nodes)
    return found


@dataclass(slots=True)
class JobEligibleTimes:
    """A record of when each job's dependencies were met and its age started to grow."""

    _waiting: set[int] = field(default_factory=set)
    _free_since_s: dict[int, int] = field(default_factory=dict)

    def record_reading(self, pending: Iterable[SlurmJob], now_s: int) -> None:
        """Update the times from one reading."""
        numbers = set()
        for job in pending:
            number = job.id
            numbers.add(number)
            if job.dependencies:
                self._waiting.add(number)
            elif number in self._waiting:
                self._waiting.discard(number)
                self._free_since_s[number] = now_s
        self._waiting &= numbers
        for number in self._free_since_s.keys() - numbers:
            del self._free_since_s[number]

    def get_eligible_s(self, number: int) -> int:
        """Return when the job's dependencies were met, in Unix seconds, or 0 if unknown."""
        return self._free_since_s.get(number, 0)


def compute_age_start_s(job: SlurmJob, rules: PriorityPolicy, clearances: JobEligibleTimes) -> int:
    """Return when a job starts to accrue age, in Unix seconds.

    For a job that is not held, this is Slurm's own accrue time if there is one. Otherwise, it is the time from which
    the job would accrue age if it were not held.
    """
    own = job.accrue_time
    if job.priority and own:
        return int(own)
    begin_s = job.eligible_time
    return age_accrual_start_s(
        job.submit_time,
        begin_s,
        clearances.get_eligible_s(job.id),
        rules.always_accrues,
    )


def compute_priority_points(
    records: Sequence[SlurmJob],
    reading: SitePolicyReading,
    machine: ClusterSize,
    now_s: int,
    accrued_s: Sequence[int],
) -> WeightedPriorityFactors:
    """Return the points that each factor contributes to the priority of each job."""
    policy, weights = reading.policy, reading.policy.priority.weights
    rows = []
    for job in records:
        partition = job.partition
        at = policy.accounts.find(job.account, job.user_name, partition)
        tres = get_job_tres(job, job.requested_tres) if weights.tres else {}
        limit = job.time_limit
        rows.append(
            (
                reading.fair_share.get(at, 0.0) if at is not None else 0.0,
                job.num_nodes,
                job.cpus,
                limit if isinstance(limit, int) else 1,
                *policy.normalized_priorities(at, partition, job.qos),
                tres_points(tres, policy.partition(partition).tres, weights),
                job.nice,
            )
        )
    columns = np.array(rows, np.float64).reshape(len(rows), 9).T
    fair_share, nodes, cpus, limit_min, partition_part, qos_part, association_part, tres_sum, nice = columns
    jobs = PriorityInputColumns(
        accrue_s=np.array(accrued_s, np.int64),
        fair_share=fair_share,
        nodes=nodes.astype(np.int64),
        cpus=cpus.astype(np.int64),
        limit_min=limit_min.astype(np.int64),
        partition=partition_part,
        qos=qos_part,
        association=association_part,
        tres=tres_sum,
        site=np.zeros(len(rows)),
        nice=nice,
    )
    return priority_points(jobs, weights, machine, now_s)


def make_job_limit_attributes(
    slurm_job: SlurmJob, job: Job, tres: Mapping[str, int], limit_min: int
) -> JobLimitAttributes:
    """Return the attributes of a job to which limits apply."""
    return JobLimitAttributes(job.user, job.account, job.queue, slurm_job.qos, tuple(sorted(tres.items())), limit_min)


def count_reserved_licenses(reservations: Iterable[SlurmReservation], now_s: int, end_s: int) -> dict[str, int]:
    """Return the licenses of the reservations that begin between `now_s` and `end_s`."""
    found = Counter[str]()
    for reservation in reservations:
        if now_s < (reservation.start_time or 0) < end_s:
            found.update(parse_requested_licenses(reservation.licenses) or {})
    return {RESERVED_LICENSE + name: count for name, count in found.items()}


RANKED_PER_CYCLE = 250
"""Maximum number of jobs that one cycle ranks after a new reading. 10,000 jobs would take a third of a second."""


@dataclass(slots=True)
class RankedJobs:
    """Jobs ranked at one time by one reading of the site's policy.

    - `known`: each pending job as observed, and the same job with its rank, by job number.
    - `standings`: the limits that apply to each pending job, by job number.
    """

    reading: SitePolicyReading
    book: JobLimitTable
    known: dict[int, tuple[PendingJob, PendingJob]] = field(default_factory=dict)
    standings: dict[int, ApplicableJobLimits] = field(default_factory=dict)
    running: dict[tuple[int, bool], ApplicableJobLimits] = field(default_factory=dict)
    """The limits of each job with nodes, by job number and whether the job has ended."""

    @classmethod
    def for_policy(cls, reading: SitePolicyReading) -> RankedJobs:
        """Return an empty ranking for this reading."""
        return cls(reading, JobLimitTable(reading.policy, reading.usage))

    def find_stale_jobs(self, pending: Sequence[PendingJob]) -> list[PendingJob]:
        """Return the jobs that are new or changed."""
        known, nobody = self.known, (None, None)
        return [each for each in pending if known.get(each.job.id, nobody)[0] != each]

    def retain_jobs(self, numbers: Set[int]) -> None:
        """Forget all jobs except these."""
        for number in self.known.keys() - numbers:
            del self.known[number]
            self.standings.pop(number, None)

    def rank(self, context: PriorityRankingInput, stale: Sequence[PendingJob]) -> None:
        """Rank these jobs, and determine the limits that apply to them."""
        if not stale:
            return
        policy = self.reading.policy
        records = [context.by_number[each.job.id].in_partition(each.job.queue) for each in stale]
        for each, slurm_job, priority in zip(
            stale, records, self._compute_priorities(context, stale, records), strict=True
        ):
            job = each.job
            tres = _compute_occupied_tres(slurm_job, job, context.machine)
            if slurm_job.licenses:
                lasts_s = job.walltime_s + policy.priority.period_s
                tres |= count_reserved_licenses(context.reservations, context.now_s, context.now_s + lasts_s)
            tier = policy.partition(job.queue).tier
            ranked = dataclasses.replace(job, qos=slurm_job.qos, priority=priority, tier=tier)
            self.known[job.id] = each, dataclasses.replace(each, job=ranked)
            self.standings[job.id] = self.book.limits_of(
                make_job_limit_attributes(slurm_job, job, tres, -(-job.walltime_s // 60))
            )

    def _compute_priorities(
        self, context: PriorityRankingInput, stale: Sequence[PendingJob], records: Sequence[SlurmJob]
    ) -> list[int]:
        rules = self.reading.policy.priority
        if rules.kind == "basic":
            nices = [context.by_number[each.job.id].nice for each in context.pending]
            numbers = [each.job.id for each in context.pending]
            by_arrival = dict(zip(numbers, basic_priorities(nices).tolist(), strict=True))
            return [by_arrival[each.job.id] for each in stale]
        accrued = [compute_age_start_s(job, rules, context.clearances) for job in records]
        found: list[int] = (
            compute_priority_points(records, self.reading, context.machine, context.now_s, accrued).total().tolist()
        )
        return found

    def compute_running_limit_usage(self, records: Sequence[SlurmJob], now_s: int) -> list[int]:
        """Return every counter's usage by running jobs, including unmodelled jobs."""
        found, alive = [], set()
        timed = self.book.counts_time
        for job in records:
            if job.state not in slurm_states.OCCUPYING_STATES:
                continue
            key = slurm_job_ids.get_job_id(job), job.state in ENDING_STATES
            alive.add(key)
            standing = None if timed else self.running.get(key)
            if standing is None:
                standing = self.running[key] = self.book.limits_of(
                    _make_running_job_limit_attributes(job, now_s if timed else 0)
                )
            found.append(standing)
        for key in self.running.keys() - alive:
            del self.running[key]
        return self.book.usage(found)


@dataclass(frozen=True, slots=True, eq=False)
class PriorityRankingInput:
    """The input to a ranking: the queue, its records, the machine and the time."""

    pending: Sequence[PendingJob]
    by_number: Mapping[int, SlurmJob]
    machine: ClusterSize
    now_s: int
    clearances: JobEligibleTimes
    reservations: Sequence[SlurmReservation] = ()


@dataclass(slots=True)
class PriorityRanker:
    """A ranker of the jobs in each observation.

    As in Slurm, a job is ranked when it is first seen. All jobs are ranked again every `period_s` seconds, and when the
    reading changes. Each cycle ranks at most `RANKED_PER_CYCLE` jobs for the new ranking. The previous ranks stay in
    use until the new ones are complete.
    """

    clearances: JobEligibleTimes = field(default_factory=JobEligibleTimes)
    _now: RankedJobs = field(default_factory=lambda: RankedJobs.for_policy(SitePolicyReading()))
    _next: RankedJobs | None = None
    _due_s: int = 0

    def set_policy(self, reading: SitePolicyReading) -> None:
        """Switch to a reading after ranking all jobs by it, or now if no job is ranked."""
        if self._now.known:
            self._next = RankedJobs.for_policy(reading)
        else:
            self._now = RankedJobs.for_policy(reading)

    def rank_jobs(
        self, pending: Sequence[PendingJob], records: SlurmRecords
    ) -> tuple[list[PendingJob], PendingJobLimitsAndUsage]:
        """Return the jobs with their ranks, and their limits with the counted usage."""
        now_s, waiting = records.now_s, [job for job in records.jobs if job.state == slurm_states.PENDING]
        self.clearances.record_reading(waiting, now_s)
        by_number = {number: job for job in waiting for number in slurm_job_ids.list_job_numbers(job)}
        size = ClusterSize(len(records.nodes), sum(node.effective_cpus or 0 for node in records.nodes))
        context = PriorityRankingInput(pending, by_number, size, now_s, self.clearances, records.reservations)
        if self._due_s == 0 or now_s >= self._due_s:
            if self._due_s and self._next is None:
                self._next = RankedJobs.for_policy(self._now.reading)
            self._due_s = now_s + self._now.reading.policy.priority.period_s
        self._rank_batch_for_next_ranking(context)
        now = self._now
        now.rank(context, now.find_stale_jobs(pending))
        if len(now.known) > len(pending):
            now.retain_jobs({each.job.id for each in pending})
        used = now.compute_running_limit_usage(records.jobs, now_s)
        ranked = [now.known[each.job.id][1] for each in pending]
        return ranked, PendingJobLimitsAndUsage(now.standings, used)

    def _rank_batch_for_next_ranking(self, context: PriorityRankingInput) -> None:
        """Rank more jobs for the next ranking, which takes effect once it is complete."""
        if self._next is None:
            return
        stale = self._next.find_stale_jobs(context.pending)
        self._next.rank(context, stale[:RANKED_PER_CYCLE])
        if len(stale) <= RANKED_PER_CYCLE:
            self._now, self._next = self._next, None


def _compute_occupied_tres(slurm_job: SlurmJob, job: Job, machine: ClusterSize) -> dict[str, int]:
    """Return the amounts that the job will occupy.

    They include all CPUs of exclusive nodes, at the mean number of CPUs per node.
    """
    tres = get_job_tres(slurm_job, slurm_job.requested_tres)
    if job.request.exclusive and machine.nodes:
        tres["cpu"] = max(tres["cpu"], tres["node"] * -(-machine.cpus // machine.nodes))
    return tres


def _make_running_job_limit_attributes(job: SlurmJob, now_s: int) -> JobLimitAttributes:
    """Return the limit attributes of a job with nodes, for its time left if `now_s` is set."""
    licenses = {LICENSE + name: count for name, count in count_held_licenses(job).items()}
    if job.state in ENDING_STATES:
        return JobLimitAttributes("", "", "", "", tuple(sorted(licenses.items())), 0)
    tres = get_job_tres(job, job.allocated_tres) | licenses
    left_min = max(0, (job.end_time or now_s) - now_s) // 60 if now_s else 0
    user = job.user_name or str(job.user_id)
    return JobLimitAttributes(user, job.account, job.partition, job.qos, tuple(sorted(tres.items())), left_min)
