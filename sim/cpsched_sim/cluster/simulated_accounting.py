"""A site's policy during a replay: usage by account, priorities, limits and licenses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cpsched.model import NEVER, IntArray, Snapshot
from cpsched.site.accounts import AccountingLimits
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.site.limit_checks import (
    LICENSE,
    NO_JOB_LIMITS,
    ApplicableJobLimits,
    JobLimitAttributes,
    JobLimitTable,
    LimitUsageMinutes,
    UsageLimitCheck,
)
from cpsched.site.limit_reasons import LICENSES_REASON
from cpsched.site.multifactor_priority import (
    ClusterSize,
    PriorityInputColumns,
    basic_priorities,
    priority_points,
    tres_points,
)
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from cpsched_sim.errors import quote_value
from cpsched_sim.site.fair_share import (
    DecayedUsage,
    FairShareTree,
    FloatArray,
    classic_fair_share_factors,
    fair_tree_factors,
)
from cpsched_sim.site.policy_file import SitePolicyFile, slurm_resource_names

ROUNDS_PER_HALF_LIFE, MAX_ROUNDS_WITHOUT_START = 10, 200
"""Number of rounds per half-life while only usage decays, and the maximum number without a start."""
WALL_TIME = "wall"
"""The name for accumulated run time, in addition to the names of resources."""

Amounts = tuple[tuple[str, int], ...]
"""Requested amounts of licenses, by name as in the accounting data."""
Totals = Mapping[str, int]
"""Totals of licenses, by name in lower case."""


@dataclass(frozen=True, slots=True)
class LicenseRequestsAndTotals:
    """The licenses that the jobs of a window request, and their totals.

    `asked` is by job index and omits jobs without licenses. `totals` omits licenses that no job requests.
    """

    asked: Mapping[int, Amounts] = field(default_factory=dict)
    totals: Totals = field(default_factory=dict)

    @classmethod
    def of(cls, asked: Mapping[int, Amounts], totals: Totals) -> LicenseRequestsAndTotals:
        """Return the requested licenses with the totals that apply to them."""
        wanted = {name.lower() for licenses in asked.values() for name, _ in licenses}
        return cls(asked, {name: totals[name] for name in sorted(wanted & totals.keys())})

    @property
    def to_licenses_option(self) -> str:
        """Return the totals in the syntax of `--licenses`."""
        return ",".join(f"{name}={total}" for name, total in self.totals.items())


NO_LICENSES = LicenseRequestsAndTotals()


class SimulatedAccounting:
    """The accounting for a simulated cluster with a loaded trace.

    Call `begin_round` when a round is due, `on_started` with the jobs that it starts, and `on_ended` with ended jobs.
    Priorities are written to the cluster's table. As in Slurm, usage decays and fair-share factors are recomputed
    every `PriorityPolicy.period_s` seconds.
    """

    def __init__(
        self, policy_file: SitePolicyFile, state: SimulatedCluster, licenses: Mapping[int, Amounts] | None = None
    ) -> None:
        self.policy, self.state = policy_file.policy, state
        self.weights = self.policy.priority.weights
        self.basic = self.policy.priority.kind == "basic"
        capacity = state.cluster.capacity
        self.machine = ClusterSize(len(capacity), int(capacity[:, 0].sum()))
        self.resources = slurm_resource_names(state.cluster)
        rows = self.policy.accounts.associations
        self.tree = FairShareTree.from_accounts(self.policy.accounts)
        self.qos_names = list(self.policy.qos)
        self.qos_at = {name: len(rows) + at for at, name in enumerate(self.qos_names)}
        self._create_job_columns()
        for slot, amounts in (licenses or {}).items():
            self.claims[slot] = _add_licenses_to_tres(self.claims[slot], amounts)
        fading = _resources_with_decaying_limits(
            [*(q.limits for q in self.policy.qos.values()), *(row.limits for row in rows)]
        )
        self.kept = sorted({"cpu", *fading})
        half_life_s = self.policy.fair_share.half_life_s
        begin_s = int(state.table.submit_s[: len(state.jobs)].min(initial=0))
        entries = len(rows) + len(self.qos_names)
        self.use = {name: DecayedUsage.of(entries, half_life_s, begin_s) for name in self.kept}
        for at, row in enumerate(rows):
            self.use["cpu"].used[at] = policy_file.used_s.get((row.account, row.user), 0.0)
        self.fair_share: FloatArray = np.zeros(len(rows))
        self.due_s = begin_s
        self.running: dict[int, ApplicableJobLimits] = {}
        self.chosen: list[int] = []
        self.book = JobLimitTable(self.policy)
        self.fades = bool(fading)
        self.standings: dict[int, ApplicableJobLimits] = {}
        self.waited = 0
        """Number of consecutive times that the replay waited for usage to decay since the last start."""

    def _create_job_columns(self) -> None:
        """Store the constant properties of each job in columns."""
        jobs, policy = self.state.jobs, self.policy
        n = len(jobs)
        self.association = np.zeros(n, np.int64)
        self.qos_entry = np.full(n, -1, np.int64)
        self.factor = np.ones(n)
        real = {name: np.zeros(n) for name in ("partition", "qos", "association", "tres")}
        tres_of_partition = {name: self._count_tres(name) for name in {job.queue for job in jobs}}
        self.claims: list[JobLimitAttributes] = []
        self.nodes = np.ones(n, np.int64)
        for at, job in enumerate(jobs):
            found = policy.accounts.find(job.account, job.user, job.queue)
            self.association[at] = found if found is not None else 0
            request, tres = job.request, dict[str, int]()
            for name, amount in zip(self.resources, request.per_unit, strict=True):
                tres[name] = request.units * amount
            self.nodes[at] = request.units if request.distinct or request.exclusive else 1
            tres["node"] = int(self.nodes[at])
            minutes = -(-job.walltime_s // 60)
            self.claims.append(
                JobLimitAttributes(job.user, job.account, job.queue, job.qos, tuple(tres.items()), minutes)
            )
            if (qos := policy.qos.get(job.qos)) is not None:
                self.qos_entry[at], self.factor[at] = self.qos_at[job.qos], qos.usage_factor
            priorities = policy.normalized_priorities(found, job.queue, job.qos)
            real["partition"][at], real["qos"][at], real["association"][at] = priorities
            real["tres"][at] = tres_points(tres, tres_of_partition[job.queue], self.weights)
        self.real = real
        self.cpus = np.array([dict(claim.tres)["cpu"] for claim in self.claims], np.int64)
        self.minutes = np.array([claim.limit_min for claim in self.claims], np.int64)
        if self.basic:
            order = np.argsort(self.state.table.submit_s[:n], kind="stable")
            self.by_arrival = np.zeros(n, np.int64)
            self.by_arrival[order] = basic_priorities([0] * n)

    def _count_tres(self, partition: str) -> dict[str, int]:
        """Return the amounts in a partition, or in the cluster for a partition without a node set."""
        cluster = self.state.cluster
        nodes = np.ones(len(cluster.capacity), np.bool_)
        if partition in cluster.node_set_names:
            nodes = cluster.node_sets[cluster.node_set_names.index(partition)]
        amounts = cluster.capacity[nodes].sum(axis=0).tolist()
        return dict(zip(self.resources, amounts, strict=True)) | {"node": int(nodes.sum())}

    # ------------------------------------------------------------------------------------------ events

    def begin_round(self) -> PendingJobLimitsAndUsage:
        """Update usage, rank the queue, and return the limits with their usage."""
        now_s = self.state.now_s
        self._record_started_jobs()
        if now_s >= self.due_s:
            self._refresh_shares_and_limits(now_s)
        queue = self.state.site.queue[: self.state.queue_length]
        self.state.table.priority[queue] = self._compute_priorities(queue, now_s)
        for slot in queue.tolist():
            if self.state.jobs[slot].id not in self.standings:
                self.standings[self.state.jobs[slot].id] = self.book.limits_of(self.claims[slot])
        return PendingJobLimitsAndUsage(self.standings, self._usage_of_running_jobs(now_s))

    def on_started(self, slots: Sequence[int]) -> None:
        """Record the starts chosen in a round. The next round checks that they succeeded."""
        self.chosen.extend(slots)
        if slots:
            self.waited = 0

    def wait_s(self) -> int:
        """Return how many seconds to wait for usage to decay if there are no events.

        Return 0 if no usage decays, or after too many waits without a start.
        """
        half_life_s = self.policy.fair_share.half_life_s
        if not self.fades or not half_life_s or self.waited >= MAX_ROUNDS_WITHOUT_START:
            return 0
        self.waited += 1
        return max(self.policy.priority.period_s, round(half_life_s / ROUNDS_PER_HALF_LIFE))

    def on_ended(self, slots: Iterable[int]) -> None:
        """Record ended jobs."""
        self._record_started_jobs()
        for slot in slots:
            if self.running.pop(slot, None) is not None:
                self._change_usage_rate(slot, self.state.real_end_s(slot), -1)

    def _record_started_jobs(self) -> None:
        start_s = self.state.table.start_s
        for slot in self.chosen:
            if start_s[slot] != NEVER and slot not in self.running:
                self.running[slot] = self.book.limits_of(self.claims[slot])
                self._change_usage_rate(slot, int(start_s[slot]), 1)
        self.chosen.clear()

    def _change_usage_rate(self, slot: int, at_s: int, sign: int) -> None:
        """Start (`sign` 1) or stop (-1) adding the usage of a job at `at_s`."""
        amounts = dict(self.claims[slot].tres) | {WALL_TIME: 1}
        for name in self.kept:
            rate = sign * amounts.get(name, 0) * self.factor[slot]
            self.use[name].add_rate(int(self.association[slot]), rate, at_s)
            if self.qos_entry[slot] >= 0:
                self.use[name].add_rate(int(self.qos_entry[slot]), rate, at_s)

    # ------------------------------------------------------------------------------------------ figures

    def _refresh_shares_and_limits(self, now_s: int) -> None:
        """Recompute fair-share factors and the state of limits on accumulated usage."""
        period_s = self.policy.priority.period_s
        self.due_s = now_s + period_s
        for use in self.use.values():
            use.advance(now_s)
        entry, tree = self.policy.fair_share, self.tree
        if self.weights.fair_share:
            used = self.use["cpu"].used[: len(tree.parents)]
            if entry.algorithm == "fair-tree":
                self.fair_share = fair_tree_factors(tree, used)
            else:
                self.fair_share = classic_fair_share_factors(
                    tree, used, entry.dampening, entry.algorithm == "depth-oblivious"
                )
        if self.fades:
            self.book = JobLimitTable(self.policy, self._compute_usage_minutes())
            self.standings.clear()
            self.running = {slot: self.book.limits_of(self.claims[slot]) for slot in self.running}

    def _compute_usage_minutes(self) -> LimitUsageMinutes:
        tree = self.tree
        rows = range(len(tree.parents))
        totals = {name: tree.sum_subtrees(use.used[: len(tree.parents)]) / 60 for name, use in self.use.items()}
        of_qos = {name: use.used[len(tree.parents) :] / 60 for name, use in self.use.items()}
        kept = [name for name in self.kept if name != WALL_TIME]
        return LimitUsageMinutes(
            {qos: {name: int(of_qos[name][at]) for name in kept} for at, qos in enumerate(self.qos_names)},
            {at: {name: int(totals[name][at]) for name in kept} for at in rows},
            {qos: float(of_qos[WALL_TIME][at]) for at, qos in enumerate(self.qos_names)} if WALL_TIME in totals else {},
            {at: float(totals[WALL_TIME][at]) for at in rows} if WALL_TIME in totals else {},
        )

    def _compute_priorities(self, queue: IntArray, now_s: int) -> IntArray:
        if self.basic:
            return self.by_arrival[queue]
        nothing = np.zeros(len(queue))
        jobs = PriorityInputColumns(
            accrue_s=np.maximum(1, self.state.table.submit_s[queue]),
            fair_share=self.fair_share[self.association[queue]],
            nodes=self.nodes[queue],
            cpus=self.cpus[queue],
            limit_min=self.minutes[queue],
            site=nothing,
            nice=nothing,
            **{name: column[queue] for name, column in self.real.items()},
        )
        return priority_points(jobs, self.weights, self.machine, now_s).total()

    def _usage_of_running_jobs(self, now_s: int) -> list[int]:
        if not self.book.counts_time:
            return self.book.usage(self.running.values())
        left = []
        for slot in self.running:
            end_s = int(self.state.table.start_s[slot] + self.state.table.walltime_s[slot])
            left.append(self.book.limits_of(self.claims[slot]._replace(limit_min=max(0, end_s - now_s) // 60)))
        return self.book.usage(left)

    def blocking_limit(self, slot: int) -> str | None:
        """Return the limit that permanently blocks a job, or None."""
        return self.standings.get(self.state.jobs[slot].id, ApplicableJobLimits()).barred


def _resources_with_decaying_limits(every: Iterable[AccountingLimits]) -> set[str]:
    """Return the resources with limits on decaying usage."""
    found = set[str]()
    for limits in every:
        found |= {*limits.group_tres_minutes, *([WALL_TIME] if limits.group_wall_min is not None else [])}
    return found


def _add_licenses_to_tres(claim: JobLimitAttributes, licenses: Amounts) -> JobLimitAttributes:
    """Add the job's licenses to its trackable resources.

    Limits of a QOS or association may refer to them.
    """
    return claim._replace(tres=(*claim.tres, *((f"{LICENSE}{name}", amount) for name, amount in licenses)))


@dataclass(frozen=True, slots=True, eq=False)
class LicenseUsage:
    """The licenses that jobs hold during a replay, for all licenses with known totals.

    - `kind`: int64[J], the row of `held` for each job. Row 0 is for jobs without licenses.
    - `held`: int64[K, L]; `totals`: int64[L].
    """

    names: tuple[str, ...]
    totals: IntArray
    kind: IntArray
    held: IntArray

    @classmethod
    def of(cls, licenses: LicenseRequestsAndTotals, jobs: int) -> LicenseUsage | None:
        """Return the usage of `jobs` jobs, or None if no license has a known total."""
        if not licenses.totals:
            return None
        at_name = {name: at for at, name in enumerate(licenses.totals)}
        rows: dict[tuple[int, ...], int] = {(0,) * len(at_name): 0}
        kind = np.zeros(jobs, np.int64)
        for at, asked in licenses.asked.items():
            row = [0] * len(at_name)
            for name, amount in asked:
                if (place := at_name.get(name.lower())) is not None:
                    row[place] += amount
            kind[at] = rows.setdefault(tuple(row), len(rows))
        totals = np.array([*licenses.totals.values()], np.int64)
        return cls(tuple(at_name), totals, kind, np.array([*rows], np.int64))

    def count_used(self, running: IntArray) -> IntArray:
        """Return the amount of each license that the running jobs hold, int64[L]."""
        used: IntArray = np.bincount(self.kind[running], minlength=len(self.held)) @ self.held
        return used

    def has_free_licenses(self, slot: int, running: IntArray) -> bool:
        """Return whether enough licenses are free for a job."""
        return bool((self.count_used(running) + self.held[self.kind[slot]] <= self.totals).all())

    def add_license_limits(
        self, limits: PendingJobLimitsAndUsage | None, snapshot: Snapshot
    ) -> PendingJobLimitsAndUsage | None:
        """Return the site's limits, plus the license limits that the queue may reach."""
        queue, jobs = snapshot.queue, snapshot.table.jobs
        kinds, used = self.kind[queue], self.count_used(snapshot.running)
        asking = np.flatnonzero(kinds)
        enough = (used + self.held[kinds].sum(axis=0) <= self.totals).all()
        if enough or not len(asking):
            return limits
        limits = limits or PendingJobLimitsAndUsage()
        known, first = limits.standings, len(limits.used)
        standings = {}
        if known:
            ids = [jobs[slot].id for slot in queue.tolist()]
            standings = {job_id: known[job_id] for job_id in ids if job_id in known}
        made: dict[tuple[int, int], ApplicableJobLimits] = {}
        for slot, kind in zip(queue[asking].tolist(), kinds[asking].tolist(), strict=True):
            before = standings.get(jobs[slot].id, NO_JOB_LIMITS)
            key = id(before), kind
            if key not in made:
                made[key] = self._add_license_checks(before, kind, first)
            standings[jobs[slot].id] = made[key]
        return PendingJobLimitsAndUsage(standings, (*limits.used, *used.tolist()))

    def _add_license_checks(self, before: ApplicableJobLimits, kind: int, first: int) -> ApplicableJobLimits:
        """Add one check per license that jobs of this kind request.

        The counters of the licenses start at index `first`.
        """
        rows = [(at, amount) for at, amount in enumerate(self.held[kind].tolist()) if amount]
        checks = (
            UsageLimitCheck(
                first + at, amount, int(self.totals[at]), LICENSES_REASON, "the cluster", quote_value(self.names[at])
            )
            for at, amount in rows
        )
        takes = ((first + at, amount) for at, amount in rows)
        return replace(before, takes=(*before.takes, *takes), checks=(*before.checks, *checks))
