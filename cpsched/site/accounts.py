"""A site's users, accounts and qualities of service (QOS), with their limits.

The terms are Slurm's. An *association* is an account, or a user in an account, optionally for one partition only. A
*trackable resource* (TRES) has a name such as `cpu`, `mem`, `node`, `billing` or `gres/gpu`. Times are in minutes, as
in Slurm's limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Literal, get_args

from cpsched.errors import require
from cpsched.site.preemption import PreemptMode

Tres = Mapping[str, int]
"""Amounts by trackable resource name, with memory in MiB."""
PartitionLimit = Literal["PartitionTimeLimit", "PartitionMaxNodes", "PartitionMinNodes"]
"""A flag of a QOS whose jobs may exceed this limit of a partition."""
PARTITION_LIMITS: tuple[PartitionLimit, ...] = get_args(PartitionLimit)
NO_EXEMPTIONS: Mapping[str, frozenset[PartitionLimit]] = MappingProxyType({})
NO_RESOURCES: Tres = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AccountingLimits:
    """Limits of one association or QOS. None or a missing resource means no limit.

    `group_*` limits (Slurm: Grp) apply to all jobs together. `*_a_user` and `*_an_account` limits (PU, PA) apply to the
    jobs of each user or account in a QOS. `jobs` is an association's MaxJobs. All other limits apply to each job.
    """

    group_jobs: int | None = None
    group_tres: Tres = field(default_factory=dict)
    group_tres_minutes: Tres = field(default_factory=dict)
    """Limit on decaying usage (Slurm: GrpTRESMins)."""
    group_running_minutes: Tres = field(default_factory=dict)
    """Limit on the remaining usage of running jobs (Slurm: GrpTRESRunMins)."""
    group_wall_min: int | None = None
    jobs: int | None = None
    wall_min: int | None = None
    tres: Tres = field(default_factory=dict)
    tres_a_node: Tres = field(default_factory=dict)
    tres_minutes: Tres = field(default_factory=dict)
    least_tres: Tres = field(default_factory=dict)
    jobs_a_user: int | None = None
    jobs_an_account: int | None = None
    tres_a_user: Tres = field(default_factory=dict)
    tres_an_account: Tres = field(default_factory=dict)
    running_minutes_a_user: Tres = field(default_factory=dict)
    running_minutes_an_account: Tres = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self:
            for amount in value.values() if isinstance(value, Mapping) else (value,):
                require(amount >= 0, f"limits.{name}", amount, "must not be negative")

    def __iter__(self) -> Iterator[tuple[str, int | Tres]]:
        """Yield (name, value) for each limit that is set."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value != {}:
                yield each.name, value


NO_LIMITS = AccountingLimits()


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service.

    - `usage_factor`: multiplies the usage of the QOS's jobs. With `factor_on_limits` (`UsageFactorSafe`), it also
    multiplies their time limits when these are compared with limits in minutes.
    - `limit_factor`: multiplies association limits for the QOS's jobs (`LimitFactor`).
    - `over_partition`: whether the limits take precedence over limits of the partition's QOS (`OverPartQOS`).
    - `exempt_from`: limits of partitions that do not apply to the QOS's jobs (`PartitionTimeLimit` and others).
    - `preempts`: names of the QOSes whose running jobs may be preempted by jobs of this QOS (`Preempt`).
    - `preempts_within`: whether jobs may preempt running jobs of the same QOS (`PreemptMode=WITHIN`).
    - `preempt_mode`: what happens to preempted jobs (`PreemptMode`). None and `off` mean the cluster's mode.
    - `preempt_exempt_s`: how long jobs run before they may be preempted (`PreemptExemptTime`).
    - `grace_s`: how long jobs continue to run after they are preempted (`GraceTime`).
    """

    name: str
    priority: int = 0
    limits: AccountingLimits = NO_LIMITS
    usage_factor: float = 1.0
    factor_on_limits: bool = False
    limit_factor: float | None = None
    over_partition: bool = False
    preempts: frozenset[str] = frozenset()
    preempts_within: bool = False
    preempt_mode: PreemptMode | None = None
    preempt_exempt_s: int | None = None
    grace_s: int = 0
    exempt_from: frozenset[PartitionLimit] = frozenset()


@dataclass(frozen=True, slots=True)
class Association:
    """An account (if `user` is empty) or a user in an account.

    `parent` is an index into `AssociationTree.associations`, or -1 for the root. `shares=None` means the parent's
    share. In Slurm, users inherit an account's limits per job and per user. These limits are stored with the users.
    """

    account: str
    user: str = ""
    partition: str = ""
    parent: int = 0
    shares: int | None = 1
    priority: int = 0
    limits: AccountingLimits = NO_LIMITS
    default_qos: str = ""

    @property
    def label(self) -> str:
        """Description of the association for messages."""
        if not self.user:
            return f"account {self.account}"
        return f"user {self.user} in account {self.account}" + (self.partition and f" on {self.partition}")


@dataclass(frozen=True)
class AssociationTree:
    """All associations of a cluster, with the root first and parents before children."""

    associations: tuple[Association, ...] = (Association("root", parent=-1),)

    def __post_init__(self) -> None:
        require(bool(self.associations), "associations", (), "must contain a root")
        for at, row in enumerate(self.associations):
            rule = "must come before its children" if at else "must begin with a root"
            require(0 <= row.parent < at if at else row.parent == -1, "associations.parent", row.parent, rule)

    @cached_property
    def _user_associations(self) -> dict[tuple[str, str, str], int]:
        return {(row.account, row.user, row.partition): at for at, row in enumerate(self.associations) if row.user}

    @cached_property
    def _default_accounts(self) -> dict[str, str]:
        """Each user's default account, which is the first one listed for the user."""
        found: dict[str, str] = {}
        for row in self.associations:
            if row.user:
                found.setdefault(row.user, row.account)
        return found

    @cached_property
    def parent_by_account(self) -> dict[str, str]:
        """Parent of each account, or an empty string for the root."""
        rows = self.associations
        return {row.account: rows[row.parent].account if row.parent >= 0 else "" for row in rows if not row.user}

    @cached_property
    def highest_priority(self) -> int:
        """The highest association priority."""
        return max(row.priority for row in self.associations)

    def default_account(self, user: str) -> str:
        """Return a user's default account, or an empty string for an unknown user."""
        return self._default_accounts.get(user, "")

    def find(self, account: str, user: str, partition: str = "") -> int | None:
        """Return the index of the association, preferably one for the partition, or None."""
        known = self._user_associations.get((account, user, partition))
        return self._user_associations.get((account, user, "")) if known is None else known

    def association_chain(self, at: int) -> tuple[int, ...]:
        """Return the indices of an association and its ancestors, up to the root."""
        found = [at]
        while (at := self.associations[at].parent) >= 0:
            found.append(at)
        return tuple(found)
