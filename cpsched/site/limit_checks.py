"""The limits that apply to a job, in Slurm's order of precedence.

The order (`acct_policy.c`) is the partition's QOS, the job's QOS, the user's association, then the accounts up to the
root. With `OverPartQOS`, the job's QOS comes first. A limit set at one of these levels overrides the same limit at all
later levels. However, the group limits of all associations up to the root are checked.

There are two kinds of limits. A job that violates a per-job limit, such as a maximum wall time, is *barred*. All other
limits bound a sum over the running jobs. Each sum is a *counter*, which a job increases when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cpsched.errors import escape_controls
from cpsched.formatting import format_count
from cpsched.site.accounts import NO_RESOURCES, AccountingLimits, Association, Qos, Tres
from cpsched.site.limit_reasons import (
    GROUP_WALL_REASONS,
    JOB_COUNT_REASONS,
    LICENSES_REASON,
    WALL_REASONS,
    Owner,
    Scope,
    slurm_limit_reason,
)
from cpsched.site.site_policy import SitePolicy

LICENSE = "license/"
"""Prefix of a license's name among the trackable resources."""
RESERVED_LICENSE = "reserved-license/"
"""Prefix of the name of a license, for the number that a job must leave free for future reservations."""


class JobLimitAttributes(NamedTuple):
    """The job properties that limits depend on.

    - `tres`: (name, amount) for each resource that the job requests, including nodes and processors.
    - `limit_min`: the job's time limit in minutes (default: the partition's time limit).
    """

    user: str
    account: str
    partition: str
    qos: str
    tres: tuple[tuple[str, int], ...]
    limit_min: int


class UsageLimitCheck(NamedTuple):
    """The rule that `counter` must not exceed `limit` after a job adds `amount`."""

    counter: int
    amount: int
    limit: int
    reason: str
    whose: str
    what: str

    def describe(self, used: int) -> str:
        """Return a text with the limit's reason name, owner and usage."""
        return f"{self.reason}: {used:,} of {self.limit:,} {self.what} for {self.whose} are in use" + (
            f", and the job requests {self.amount:,}" if self.amount != 1 else ""
        )


@dataclass(frozen=True, slots=True)
class ApplicableJobLimits:
    """The limits of one job.

    - `takes`: (counter, amount) for every counter that the job increases while it runs.
    - `checks`: the limits on these counters that apply to the job, in Slurm's order.
    - `barred`: why the job can never start under the current limits, or None if it can.
    - `exceeds_own_limit`: whether the job's request violates a limit per job. In Slurm, an operator may set such a
      request, which is then permitted (`limit_set` in acct_policy.c).
    """

    takes: tuple[tuple[int, int], ...] = ()
    checks: tuple[UsageLimitCheck, ...] = ()
    barred: str | None = None
    exceeds_own_limit: bool = False


NO_JOB_LIMITS = ApplicableJobLimits()
"""The limits of a job to which no limit applies."""


@dataclass(frozen=True, slots=True)
class LimitUsageMinutes:
    """Decaying usage in minutes, by QOS name or association index (default: 0)."""

    qos_minutes: Mapping[str, Tres] = field(default_factory=dict)
    association_minutes: Mapping[int, Tres] = field(default_factory=dict)
    qos_wall_min: Mapping[str, float] = field(default_factory=dict)
    association_wall_min: Mapping[int, float] = field(default_factory=dict)


NO_USAGE = LimitUsageMinutes()


@dataclass(slots=True)
class JobLimitTable:
    """The limits of each job at a site. Jobs with equal attributes share an object.

    Build a new table when limits or usage change.
    """

    site: SitePolicy
    spent: LimitUsageMinutes = NO_USAGE
    counts_time: bool = field(init=False)
    """Whether limits depend on the remaining time of running jobs."""
    _counters: dict[object, int] = field(default_factory=dict)
    _standings: dict[JobLimitAttributes, ApplicableJobLimits] = field(default_factory=dict)

    def __post_init__(self) -> None:
        every = (*(q.limits for q in self.site.qos.values()), *(a.limits for a in self.site.accounts.associations))
        self.counts_time = any(
            bool(each.group_running_minutes)
            or bool(each.running_minutes_a_user)
            or bool(each.running_minutes_an_account)
            or (self.site.safe and bool(each.group_tres_minutes))
            for each in every
        )

    @property
    def counter_count(self) -> int:
        """Number of counters in use."""
        return len(self._counters)

    def limits_of(self, job: JobLimitAttributes) -> ApplicableJobLimits:
        """Return the limits of a job. Counter numbers are stable within one table."""
        if not self.site.limits_hold and not self.site.licenses:
            return NO_JOB_LIMITS
        known = self._standings.get(job)
        if known is None:
            known = self._standings[job] = _JobLimitCollector(self, job).collect_limits()
        return known

    def counter_index(self, key: object) -> int:
        """Return the counter number of `key`."""
        return self._counters.setdefault(key, len(self._counters))

    def usage(self, running: Iterable[ApplicableJobLimits]) -> list[int]:
        """Return each counter's usage. Call `limits_of` for all jobs first."""
        used = [0] * self.counter_count
        for standing in running:
            for counter, amount in standing.takes:
                used[counter] += amount
        return used


class _JobLimitCollector:
    """Collects a job's limits from its QOS and along the association tree."""

    def __init__(self, book: JobLimitTable, job: JobLimitAttributes) -> None:
        self.book, self.job, self.site = book, job, book.site
        self.tres = {name: amount for name, amount in job.tres if amount > 0}
        self.takes: dict[int, int] = {}
        self.checks: list[UsageLimitCheck] = []
        self.barred: str | None = None
        self.exceeds_own_limit = False
        self.limits_already_set: set[object] = set()
        """Limits set by an earlier QOS."""
        qos = self.site.qos.get(job.qos)
        self.free_use = qos is not None and qos.usage_factor == 0
        self.limit_min = job.limit_min
        if qos is not None and qos.factor_on_limits:
            self.limit_min = int(job.limit_min * qos.usage_factor)

    def collect_limits(self) -> ApplicableJobLimits:
        for name, total in self.site.licenses.items():
            if amount := self.tres.get(LICENSE + name):
                most = max(0, total - self.tres.get(RESERVED_LICENSE + name, 0))
                counter = self.add_usage((LICENSE, name), amount)
                self.add_check(counter, most, LICENSES_REASON, "the cluster", escape_controls(name))
        if self.site.limits_hold:
            self.add_owner_limits()
        return ApplicableJobLimits(tuple(self.takes.items()), tuple(self.checks), self.barred, self.exceeds_own_limit)

    def add_owner_limits(self) -> None:
        """Add the limits of the job's QOS and associations."""
        order = self.site.qos_by_precedence(self.job.qos, self.job.partition)
        for qos in order:
            self.add_qos_limits(qos)
        factor = next((qos.limit_factor for qos in order if qos.limit_factor is not None), None)
        at = self.site.accounts.find(self.job.account, self.job.user, self.job.partition)
        for place, index in enumerate(self.site.accounts.association_chain(at) if at is not None else ()):
            self.add_association_limits(index, self.site.accounts.associations[index], place == 0, factor)

    # ------------------------------------------------------------------------------------------ owners of limits

    def add_qos_limits(self, qos: Qos) -> None:
        limits, name = qos.limits, f"QOS {qos.name}"
        user, account = f"user {self.job.user} in {name}", f"account {self.job.account} in {name}"
        group, mine, ours = ("qos", qos.name), ("qos", qos.name, "u", self.job.user), ("qos", qos.name, "a",
                                                                                     self.job.account)  # fmt: skip
        for key, most, scope, whose in (
            (group, limits.group_jobs, "group", name),
            (ours, limits.jobs_an_account, "account", account),
            (mine, limits.jobs_a_user, "user", user),
        ):
            if most is None:
                continue
            counter = self.add_usage((*key, "jobs"), 1)
            if self.claim_limit(f"jobs-{scope}", most):
                self.add_check(counter, most, JOB_COUNT_REASONS["QOS", scope], whose, "jobs")
        if self.claim_limit("group-wall", limits.group_wall_min):
            spent = self.book.spent.qos_wall_min.get(qos.name, 0.0)
            self.bar_if_group_wall_exceeded("QOS", spent, limits.group_wall_min, name)
        if self.claim_limit("wall", limits.wall_min):
            self.bar_if_wall_exceeded("QOS", limits.wall_min, name)
        spent_minutes = self.book.spent.qos_minutes.get(qos.name, NO_RESOURCES)
        self.add_minutes_limits("QOS", (*group, "minutes"), limits.group_tres_minutes, spent_minutes, name)
        self.add_resource_limits("QOS", "group", group, limits.group_tres, name)
        self.add_running_minutes_limits("QOS", "running-minutes", group, limits.group_running_minutes, name)
        self.bar_if_job_limit_exceeded("QOS", limits, name)
        self.add_resource_limits("QOS", "account", ours, limits.tres_an_account, account)
        self.add_resource_limits("QOS", "user", mine, limits.tres_a_user, user)
        self.add_running_minutes_limits(
            "QOS", "account-running-minutes", ours, limits.running_minutes_an_account, account
        )
        self.add_running_minutes_limits("QOS", "user-running-minutes", mine, limits.running_minutes_a_user, user)

    def add_association_limits(self, index: int, row: Association, own: bool, factor: float | None) -> None:
        limits, key = row.limits, ("association", index)
        if limits.group_jobs is not None or limits.jobs is not None:
            jobs = self.add_usage((*key, "jobs"), 1)
        if limits.group_jobs is not None and "jobs-group" not in self.limits_already_set:
            self.add_check(jobs, limits.group_jobs, JOB_COUNT_REASONS["Assoc", "group"], row.label, "jobs")
        if limits.group_wall_min is not None and "group-wall" not in self.limits_already_set:
            spent = self.book.spent.association_wall_min.get(index, 0.0)
            self.bar_if_group_wall_exceeded("Assoc", spent, limits.group_wall_min, row.label)
        if own:
            per_head = {"jobs-account", "jobs-user"} & self.limits_already_set
            if limits.jobs is not None and not per_head:
                self.add_check(jobs, limits.jobs, JOB_COUNT_REASONS["Assoc", "job"], row.label, "jobs")
            if limits.wall_min is not None and "wall" not in self.limits_already_set:
                self.bar_if_wall_exceeded("Assoc", limits.wall_min, row.label)
        spent_minutes = self.book.spent.association_minutes.get(index, NO_RESOURCES)
        self.add_minutes_limits("Assoc", (*key, "minutes"), limits.group_tres_minutes, spent_minutes, row.label)
        self.add_resource_limits("Assoc", "group", key, _scale_limits(limits.group_tres, factor), row.label)
        self.add_running_minutes_limits("Assoc", "running-minutes", key, limits.group_running_minutes, row.label)
        if own:
            self.bar_if_job_limit_exceeded("Assoc", limits, row.label, factor)

    # ------------------------------------------------------------------------------------------ kinds of limits

    def claim_limit(self, what: object, limit: int | None) -> bool:
        """Return whether `limit` is the first one set of its kind, and record it."""
        if limit is None or what in self.limits_already_set:
            return False
        self.limits_already_set.add(what)
        return True

    def claim_resource_limit(self, owner: Owner, scope: Scope, name: str) -> bool:
        """Return whether no earlier QOS has set the limit, and record a QOS's limit."""
        if (scope, name) in self.limits_already_set:
            return False
        if owner == "QOS":
            self.limits_already_set.add((scope, name))
        return True

    def add_usage(self, key: object, amount: int) -> int:
        """Record that the job adds `amount` to a counter, and return its number."""
        counter = self.book.counter_index(key)
        self.takes[counter] = amount
        return counter

    def add_check(self, counter: int, limit: int, reason: str, whose: str, what: str) -> None:
        """Add a limit on a counter to which the job adds."""
        self.checks.append(UsageLimitCheck(counter, self.takes[counter], limit, reason, escape_controls(whose), what))

    def bar_job(self, why: str) -> None:
        self.barred = self.barred or why

    def bar_job_by_own_limit(self, why: str) -> None:
        self.exceeds_own_limit = True
        self.bar_job(why)

    def add_resource_limits(
        self, owner: Owner, scope: Scope, key: tuple[object, ...], limits: Tres, whose: str
    ) -> None:
        """Add limits on the total resources that running jobs occupy."""
        for name, limit in limits.items():
            amount = self.tres.get(name, 0)
            if amount:
                counter = self.add_usage((*key, name), amount)
            if self.claim_resource_limit(owner, scope, name) and amount:
                self.add_check(counter, limit, slurm_limit_reason(owner, scope, name), whose, name)

    def add_running_minutes_limits(
        self, owner: Owner, scope: Scope, key: tuple[object, ...], limits: Tres, whose: str
    ) -> None:
        """Add limits on running jobs' usage until the end of their time limits."""
        for name, limit in limits.items():
            amount = self.tres.get(name, 0) * self.limit_min
            if amount:
                counter = self.add_usage((*key, "run", name), amount)
            if not self.claim_resource_limit(owner, scope, name) or not amount:
                continue
            rule = slurm_limit_reason(owner, scope, name)
            if not self.free_use:
                self.add_check(counter, limit, rule, whose, f"{name} minutes of running jobs")
            elif amount > limit:
                self.bar_job(
                    f"{rule}: {amount:,} {name} minutes exceed the limit of {limit:,} for {escape_controls(whose)}"
                )

    def add_minutes_limits(self, owner: Owner, key: tuple[object, ...], limits: Tres, spent: Tres, whose: str) -> None:
        """Add limits on decaying usage plus, with `safe`, running jobs' remaining usage."""
        for name, limit in limits.items():
            amount = self.tres.get(name, 0) * self.limit_min
            if self.site.safe and amount:
                self.add_usage((*key, name), amount)
            if not self.claim_resource_limit(owner, "minutes", name) or not self.tres.get(name):
                continue
            rule, used = slurm_limit_reason(owner, "minutes", name), 0 if self.free_use else int(spent.get(name, 0))
            if used >= limit:
                self.bar_job(f"{rule}: {used:,} of {limit:,} {name} minutes for {escape_controls(whose)} are used")
            elif self.site.safe:
                what = f"{name} minutes (in addition to {used:,} already used)"
                self.add_check(self.add_usage((*key, name), amount), limit - used, rule, whose, what)

    def bar_if_group_wall_exceeded(self, owner: Owner, spent_min: float, limit: int | None, whose: str) -> None:
        """Bar the job if it would exceed a limit on the total decaying wall time."""
        assert limit is not None
        if int(spent_min) + (self.limit_min if self.site.safe else 0) > limit or int(spent_min) >= limit:
            self.bar_job(
                f"{GROUP_WALL_REASONS[owner]}: {int(spent_min):,} of {format_count(limit, 'minute')} for {escape_controls(whose)} are used"  # noqa: E501
            )

    def bar_if_wall_exceeded(self, owner: Owner, limit: int | None, whose: str) -> None:
        """Bar the job if its time limit exceeds the maximum wall time."""
        assert limit is not None
        if self.limit_min > limit:
            asked = format_count(self.limit_min, "minute exceeds", "minutes exceed")
            self.bar_job_by_own_limit(
                f"{WALL_REASONS[owner]}: {asked} the limit of {limit:,} for {escape_controls(whose)}"
            )

    def bar_if_job_limit_exceeded(
        self, owner: Owner, limits: AccountingLimits, whose: str, factor: float | None = None
    ) -> None:
        """Bar the job if its request violates a per-job limit."""
        nodes = max(1, self.tres.get("node", 1))
        rows: Sequence[tuple[Scope, Tres, Callable[[int], int]]] = (
            ("job-minutes", limits.tres_minutes, lambda amount: amount * self.limit_min),
            ("job", _scale_limits(limits.tres, factor), lambda amount: amount),
            ("node", limits.tres_a_node, lambda amount: amount // nodes),
        )
        for scope, most, asked in rows:
            for name, limit in most.items():
                if self.claim_resource_limit(owner, scope, name) and (amount := asked(self.tres.get(name, 0))) > limit:
                    rule = slurm_limit_reason(owner, scope, name)
                    self.bar_job_by_own_limit(
                        f"{rule}: {amount:,} {name} exceed the limit of {limit:,} for {escape_controls(whose)}"
                    )
        for name, least in limits.least_tres.items():
            if owner == "QOS" and self.claim_resource_limit(owner, "least", name) and self.tres.get(name, 0) < least:
                rule, amount = slurm_limit_reason(owner, "least", name), self.tres.get(name, 0)
                self.bar_job_by_own_limit(
                    f"{rule}: {amount:,} {name} are below the minimum of {least:,} for {escape_controls(whose)}"
                )


def _scale_limits(limits: Tres, factor: float | None) -> Tres:
    """Return an association's limits multiplied by a QOS's `LimitFactor`."""
    return limits if factor is None or factor <= 0 else {name: int(limit * factor) for name, limit in limits.items()}
