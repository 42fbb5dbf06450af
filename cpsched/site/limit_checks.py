"""The limits that apply to a job, in Slurm's order of precedence and with Slurm's reason names.

The order (`acct_policy.c`) is the QOS of the partition, the QOS of the job, the user's association, then the accounts
up to the root. The first in this order that sets a limit overrides the same limit in all later ones. Among
associations, all group limits up to the root are checked.

This leaves two kinds of limits. A job that violates a limit on single jobs, such as a maximum wall time, is *barred*.
All other limits bound a sum over the running jobs. Each sum is a *counter*, to which a job adds when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cpsched.errors import escape_controls
from cpsched.formatting import format_count
from cpsched.site.accounts import NOTHING, AccountingLimits, Association, Qos, SiteLimitPolicy, Tres
from cpsched.site.limit_reasons import GROUP_WALL, JOBS, WALL, Owner, Scope, reason_of


class JobLimitAttributes(NamedTuple):
    """The properties of a job that limits depend on.

    - `tres`: (name, amount) of its request, including nodes and processors.
    - `limit_min`: its time limit in minutes; by default that of its partition.
    """

    user: str
    account: str
    partition: str
    qos: str
    tres: tuple[tuple[str, int], ...]
    limit_min: int


class LimitCheck(NamedTuple):
    """The rule that counter `counter` may not exceed `limit` once a job has added `amount` to it."""

    counter: int
    amount: int
    limit: int
    reason: str
    whose: str
    what: str

    def describe(self, used: int) -> str:
        """Return the limit as text: name, owner, usage."""
        return f"{self.reason}: {used:,} of {self.limit:,} {self.what} of {self.whose} are in use" + (
            f", and the job requests {self.amount:,}" if self.amount != 1 else ""
        )


@dataclass(frozen=True, slots=True)
class JobLimitChecks:
    """The limits of one job.

    - `takes`: (counter, amount) of every sum that the job adds to while it runs.
    - `checks`: the limits on such sums that apply to it, in Slurm's order.
    - `barred`: why the job can never start under the present limits; None if it can.
    """

    takes: tuple[tuple[int, int], ...] = ()
    checks: tuple[LimitCheck, ...] = ()
    barred: str | None = None


NO_JOB_LIMITS = JobLimitChecks()
"""The limits of a job that has none."""


@dataclass(frozen=True, slots=True)
class LimitUsageMinutes:
    """Decaying usage in minutes, by QOS name or association index; missing entries mean 0."""

    qos_minutes: Mapping[str, Tres] = field(default_factory=dict)
    association_minutes: Mapping[int, Tres] = field(default_factory=dict)
    qos_wall_min: Mapping[str, float] = field(default_factory=dict)
    association_wall_min: Mapping[int, float] = field(default_factory=dict)


NO_USAGE = LimitUsageMinutes()


@dataclass(slots=True)
class JobLimitTable:
    """The limits of each job of a site; jobs of one user with equal requests share a `JobLimitChecks`.

    Build a new table when limits or usage change.
    """

    site: SiteLimitPolicy
    spent: LimitUsageMinutes = NO_USAGE
    counts_time: bool = field(init=False)
    """Whether limits depend on the remaining time of running jobs."""
    _counters: dict[object, int] = field(default_factory=dict)
    _standings: dict[JobLimitAttributes, JobLimitChecks] = field(default_factory=dict)

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

    def limits_of(self, job: JobLimitAttributes) -> JobLimitChecks:
        """Return the limits of a job. Counter numbers are stable within one table."""
        if not self.site.limits_hold:
            return NO_JOB_LIMITS
        known = self._standings.get(job)
        if known is None:
            known = self._standings[job] = _Walk(self, job).standing()
        return known

    def counter_index(self, key: object) -> int:
        """Return the counter number of `key`."""
        return self._counters.setdefault(key, len(self._counters))

    def usage(self, running: Iterable[JobLimitChecks]) -> list[int]:
        """Return the usage of every counter by running jobs. Call it after `limits_of` was called for all jobs."""
        used = [0] * self.counter_count
        for standing in running:
            for counter, amount in standing.takes:
                used[counter] += amount
        return used


class _Walk:
    """Collects the limits of one job along its QOS and the association tree."""

    def __init__(self, book: JobLimitTable, job: JobLimitAttributes) -> None:
        self.book, self.job, self.site = book, job, book.site
        self.tres = {name: amount for name, amount in job.tres if amount > 0}
        self.takes: dict[int, int] = {}
        self.checks: list[LimitCheck] = []
        self.barred: str | None = None
        self.settled: set[object] = set()
        """Limits set by an earlier QOS."""
        qos = self.site.qos.get(job.qos)
        self.free_use = qos is not None and qos.usage_factor == 0
        self.limit_min = job.limit_min
        if qos is not None and qos.factor_on_limits:
            self.limit_min = int(job.limit_min * qos.usage_factor)

    def standing(self) -> JobLimitChecks:
        order = self.site.qos_by_precedence(self.job.qos, self.job.partition)
        for qos in order:
            self.of_qos(qos)
        factor = next((qos.limit_factor for qos in order if qos.limit_factor is not None), None)
        at = self.site.accounts.find(self.job.account, self.job.user, self.job.partition)
        for place, index in enumerate(self.site.accounts.association_chain(at) if at is not None else ()):
            self.of_association(index, self.site.accounts.associations[index], place == 0, factor)
        return JobLimitChecks(tuple(self.takes.items()), tuple(self.checks), self.barred)

    # ------------------------------------------------------------------------------------------ owners of limits

    def of_qos(self, qos: Qos) -> None:
        limits, name = qos.limits, f"QOS {qos.name}"
        user, account = f"user {self.job.user} in {name}", f"account {self.job.account} in {name}"
        group, mine, ours = ("qos", qos.name), ("qos", qos.name, "u", self.job.user), ("qos", qos.name, "a",
                                                                                     self.job.account)  # fmt: skip
        for key, most, scope, whose in (
            (group, limits.group_jobs, "group", name),
            (ours, limits.jobs_an_account, "account", account),
            (mine, limits.jobs_a_user, "user", user),
        ):
            if most is not None:
                self.add((*key, "jobs"), 1)
            if self.first(f"jobs-{scope}", most):
                self.bound((*key, "jobs"), 1, most, JOBS["QOS", scope], whose, "jobs")
        if self.first("group-wall", limits.group_wall_min):
            spent = self.book.spent.qos_wall_min.get(qos.name, 0.0)
            self.wall_spent("QOS", spent, limits.group_wall_min, name)
        if self.first("wall", limits.wall_min):
            self.longest("QOS", limits.wall_min, name)
        spent_minutes = self.book.spent.qos_minutes.get(qos.name, NOTHING)
        self.minutes("QOS", (*group, "minutes"), limits.group_tres_minutes, spent_minutes, name)
        self.sums("QOS", "group", group, limits.group_tres, name)
        self.run_minutes("QOS", "running-minutes", group, limits.group_running_minutes, name)
        self.each_job("QOS", limits, name)
        self.sums("QOS", "account", ours, limits.tres_an_account, account)
        self.sums("QOS", "user", mine, limits.tres_a_user, user)
        self.run_minutes("QOS", "account-running-minutes", ours, limits.running_minutes_an_account, account)
        self.run_minutes("QOS", "user-running-minutes", mine, limits.running_minutes_a_user, user)

    def of_association(self, index: int, row: Association, own: bool, factor: float | None) -> None:
        limits, key = row.limits, ("association", index)
        if limits.group_jobs is not None or limits.jobs is not None:
            self.add((*key, "jobs"), 1)
        if limits.group_jobs is not None and "jobs-group" not in self.settled:
            self.bound((*key, "jobs"), 1, limits.group_jobs, JOBS["Assoc", "group"], row.label, "jobs")
        if limits.group_wall_min is not None and "group-wall" not in self.settled:
            spent = self.book.spent.association_wall_min.get(index, 0.0)
            self.wall_spent("Assoc", spent, limits.group_wall_min, row.label)
        if own:
            per_head = {"jobs-account", "jobs-user"} & self.settled
            if limits.jobs is not None and not per_head:
                self.bound((*key, "jobs"), 1, limits.jobs, JOBS["Assoc", "job"], row.label, "jobs")
            if limits.wall_min is not None and "wall" not in self.settled:
                self.longest("Assoc", limits.wall_min, row.label)
        spent_minutes = self.book.spent.association_minutes.get(index, NOTHING)
        self.minutes("Assoc", (*key, "minutes"), limits.group_tres_minutes, spent_minutes, row.label)
        self.sums("Assoc", "group", key, _scaled(limits.group_tres, factor), row.label)
        self.run_minutes("Assoc", "running-minutes", key, limits.group_running_minutes, row.label)
        if own:
            self.each_job("Assoc", limits, row.label, factor)

    # ------------------------------------------------------------------------------------------ kinds of limits

    def first(self, what: object, limit: int | None) -> bool:
        """Return whether this is the first limit of its kind, and record that the kind is set."""
        if limit is None or what in self.settled:
            return False
        self.settled.add(what)
        return True

    def holds(self, owner: Owner, scope: Scope, name: str) -> bool:
        """Return whether a resource limit applies because no earlier owner has set it."""
        if (scope, name) in self.settled:
            return False
        if owner == "QOS":
            self.settled.add((scope, name))
        return True

    def add(self, key: object, amount: int) -> int:
        """Add `amount` to the counter of `key` and return the counter number."""
        counter = self.book.counter_index(key)
        self.takes[counter] = amount
        return counter

    def bound(self, key: object, amount: int, limit: int | None, reason: str, whose: str, what: str) -> None:
        """Add a limit on the sum of `key`, to which the job adds `amount`."""
        assert limit is not None
        self.checks.append(LimitCheck(self.add(key, amount), amount, limit, reason, escape_controls(whose), what))

    def bar(self, why: str) -> None:
        self.barred = self.barred or why

    def sums(self, owner: Owner, scope: Scope, key: tuple[object, ...], limits: Tres, whose: str) -> None:
        """Add limits on the resources that running jobs occupy together."""
        for name, limit in limits.items():
            amount = self.tres.get(name, 0)
            if amount:
                self.add((*key, name), amount)
            if self.holds(owner, scope, name) and amount:
                self.bound((*key, name), amount, limit, reason_of(owner, scope, name), whose, name)

    def run_minutes(self, owner: Owner, scope: Scope, key: tuple[object, ...], limits: Tres, whose: str) -> None:
        """Add limits on the remaining usage of running jobs, each until the end of its time limit."""
        for name, limit in limits.items():
            amount = self.tres.get(name, 0) * self.limit_min
            if amount:
                self.add((*key, "run", name), amount)
            if not self.holds(owner, scope, name) or not amount:
                continue
            rule = reason_of(owner, scope, name)
            if not self.free_use:
                self.bound((*key, "run", name), amount, limit, rule, whose, f"{name} minutes of running jobs")
            elif amount > limit:
                self.bar(
                    f"{rule}: {amount:,} {name} minutes exceed the limit of {limit:,} for {escape_controls(whose)}"
                )

    def minutes(self, owner: Owner, key: tuple[object, ...], limits: Tres, spent: Tres, whose: str) -> None:
        """Add limits on decaying usage; with `safe`, running jobs count until the end of their time limits."""
        for name, limit in limits.items():
            amount = self.tres.get(name, 0) * self.limit_min
            if self.site.safe and amount:
                self.add((*key, name), amount)
            if not self.holds(owner, "minutes", name) or not self.tres.get(name):
                continue
            rule, used = reason_of(owner, "minutes", name), 0 if self.free_use else int(spent.get(name, 0))
            if used >= limit:
                self.bar(f"{rule}: {used:,} of {limit:,} {name} minutes of {escape_controls(whose)} are used")
            elif self.site.safe:
                what = f"{name} minutes (in addition to {used:,} already used)"
                self.bound((*key, name), amount, limit - used, rule, whose, what)

    def wall_spent(self, owner: Owner, spent_min: float, limit: int | None, whose: str) -> None:
        """Add a limit on the decaying wall time of all jobs together."""
        assert limit is not None
        if int(spent_min) + (self.limit_min if self.site.safe else 0) > limit or int(spent_min) >= limit:
            self.bar(
                f"{GROUP_WALL[owner]}: {int(spent_min):,} of {format_count(limit, 'minute')} of {escape_controls(whose)} are used"  # noqa: E501
            )

    def longest(self, owner: Owner, limit: int | None, whose: str) -> None:
        """Add a limit on the time limit of a job."""
        assert limit is not None
        if self.limit_min > limit:
            asked = format_count(self.limit_min, "minute is", "minutes are")
            self.bar(f"{WALL[owner]}: {asked} more than the limit of {limit:,} for {escape_controls(whose)}")

    def each_job(self, owner: Owner, limits: AccountingLimits, whose: str, factor: float | None = None) -> None:
        """Add limits on the request of one job."""
        nodes = max(1, self.tres.get("node", 1))
        rows: Sequence[tuple[Scope, Tres, Callable[[int], int]]] = (
            ("job-minutes", limits.tres_minutes, lambda amount: amount * self.limit_min),
            ("job", _scaled(limits.tres, factor), lambda amount: amount),
            ("node", limits.tres_a_node, lambda amount: amount // nodes),
        )
        for scope, most, asked in rows:
            for name, limit in most.items():
                if self.holds(owner, scope, name) and (amount := asked(self.tres.get(name, 0))) > limit:
                    rule = reason_of(owner, scope, name)
                    self.bar(f"{rule}: {amount:,} {name} exceed the limit of {limit:,} for {escape_controls(whose)}")
        for name, least in limits.least_tres.items():
            if owner == "QOS" and self.holds(owner, "least", name) and self.tres.get(name, 0) < least:
                rule, amount = reason_of(owner, "least", name), self.tres.get(name, 0)
                self.bar(f"{rule}: {amount:,} {name} are below the minimum of {least:,} for {escape_controls(whose)}")


def _scaled(limits: Tres, factor: float | None) -> Tres:
    """Return an association's limits for jobs of a QOS with a `LimitFactor`."""
    return limits if factor is None or factor <= 0 else {name: int(limit * factor) for name, limit in limits.items()}
