"""A policy file: accounts with shares and limits, QOSes, and priority weights.

It also assigns the users of a trace to accounts.

    accounts:
      physics: { shares: 80, users: [u1, u2] }
      biology: { shares: 20, users: { u3: { shares: 2, limits: { MaxJobs: 4 } } }, limits: { GrpTRES: cpu=64 } }
      laser:   { shares: 1, parent: physics }
    qos:
      normal: { priority: 10, limits: { MaxTRESPU: cpu=32, MaxWall: 1-00:00:00 } }
    partitions: { "1": { tier: 2, factor: 10, qos: normal } }
    priority: { fair_share: 100000, age: 1000, max_age: 7-00:00:00 }
    fair_share: { algorithm: fair-tree, half_life_days: 7 }
    users: { others: spread }    # each other user joins the account with the fewest users relative to its share
    preemption: { type: qos, mode: requeue, exempt_time: "00:10:00" }
    enforce: [limits]
    dumps: { associations: assoc.txt, qos: qos.txt, shares: sshare.txt }

With `preemption`, jobs with a QOS preempt running jobs with a QOS in its list `preempt`. With `type: partition_prio`,
jobs in a partition preempt jobs in partitions with a lower `tier`.

Limits have Slurm's names and syntax. `dumps` are files in the same folder with the output of
`sacctmgr -P show assoc`, `sacctmgr -P show qos` and `sshare -a -l -P`. The policy file's entries are
added to those in the dumps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from cpsched.errors import CpschedError
from cpsched.model import Cluster, Job
from cpsched.site.accounts import NO_LIMITS, AccountingLimits, Association, AssociationTree, Qos
from cpsched.site.multifactor_priority import PriorityPolicy, PriorityWeights
from cpsched.site.preemption import PreemptionRules, PreemptMode, VictimOrder
from cpsched.site.site_policy import FairShareAlgorithm, FairShareRules, PartitionPolicy, SitePolicy
from cpsched.slurm_text.limits import (
    LIMIT_FIELDS,
    SUBMISSION_LIMITS,
    UNMODELLED_LIMITS,
    parse_accounting_limits,
)
from cpsched.slurm_text.preemption import parse_preempt_exempt_time_s, parse_preempt_mode
from cpsched_sim.errors import InvalidPolicy
from cpsched_sim.input.yaml_tree import StrictFileSection, YamlTree, parse_yaml_tree, read_yaml_tree
from cpsched_sim.site.fair_share import FairShareTree
from cpsched_sim.site.sacctmgr_dumps import read_associations, read_qos, read_sshare_usage
from cpsched_sim.traces.trace_jobs import TraceJob

MAX_ENTRIES = 100_000
"""Maximum number of accounts, users or QOSes in one file."""
MIN_HALF_LIFE_DAYS = 0.001
MAX_CALC_PERIOD_S = 86_400
Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=0, le=2**32 - 1)]
Shares = Annotated[Count | None, BeforeValidator(lambda shares: None if shares == "parent" else shares)]
"""A number relative to those of the siblings. `parent` means the parent's share."""
LimitWords = Mapping[str, str | int]


def _parse_preempt_mode_value(word: object) -> object:
    """Return the mode. YAML may have read it as a boolean: `off` is false in YAML 1.1."""
    return "off" if word is False else parse_preempt_mode(word) if isinstance(word, str) else word


def _parse_time_span(word: object) -> object:
    """Return a time in seconds, or None if it is not set."""
    return parse_preempt_exempt_time_s(word) if isinstance(word, str) else word


Mode = Annotated[Literal["off", "requeue", "cancel"] | None, BeforeValidator(_parse_preempt_mode_value)]
"""What happens to preempted jobs. None means the cluster's mode."""
QosMode = Annotated[Literal["requeue", "cancel"] | None, BeforeValidator(_parse_preempt_mode_value)]
"""What happens to preempted jobs of a QOS. Slurm has no mode `off` for a QOS."""
TimeSpan = Annotated[Count | None, BeforeValidator(_parse_time_span)]
"""Seconds, or a time in Slurm's format. None means that it is not set."""
PositiveTimeSpan = Annotated[int, Field(ge=1, le=2**32 - 1), BeforeValidator(_parse_time_span)]


class _LimitsSchema(StrictFileSection):
    limits: LimitWords = Field(default_factory=dict)

    @field_validator("limits")
    @classmethod
    def _check_limits(cls, words: LimitWords) -> LimitWords:
        for name in words:
            if name in UNMODELLED_LIMITS:
                raise ValueError(f"{name} is not modelled")
            if name not in LIMIT_FIELDS and name not in SUBMISSION_LIMITS:
                raise ValueError(f"{name} is not a known limit: {', '.join(LIMIT_FIELDS)}")
        parse_accounting_limits({name: str(text) for name, text in words.items()})
        return words

    def to_accounting_limits(self) -> AccountingLimits:
        """Return the parsed limits."""
        return parse_accounting_limits({name: str(text) for name, text in self.limits.items()})


class UserPolicySchema(_LimitsSchema):
    """One user in an account. `shares: parent` means the account's own share."""

    shares: Shares = 1
    priority: Count = 0
    qos: str = ""


class AccountPolicySchema(_LimitsSchema):
    """One account. `users` is a list of names, or a mapping of names to entries."""

    shares: Shares = 1
    parent: str = ""
    priority: Count = 0
    users: Annotated[Sequence[Name], Field(max_length=MAX_ENTRIES)] | Mapping[Name, UserPolicySchema] = ()

    @field_validator("users", mode="before")
    @classmethod
    def _convert_names_to_text(cls, users: object) -> object:
        """Convert user numbers to text, because SWF identifies users by number."""
        return [str(user) if isinstance(user, int) else user for user in users] if isinstance(users, list) else users

    def user_entries(self) -> dict[str, UserPolicySchema]:
        """Return the users with their entries, by name."""
        return (
            dict(self.users) if isinstance(self.users, Mapping) else {name: UserPolicySchema() for name in self.users}
        )


class QosPolicySchema(_LimitsSchema):
    """One quality of service."""

    priority: Count = 0
    usage_factor: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    factor_on_limits: bool = False
    limit_factor: Annotated[float, Field(gt=0, le=1e6)] | None = None
    over_partition: bool = False
    preempt: Sequence[Name] = ()
    preempt_mode: QosMode = None
    preempt_exempt_time: TimeSpan = None
    grace_time: TimeSpan = None


class PartitionPolicySchema(StrictFileSection):
    """A queue of the trace: its tier, PriorityJobFactor, and the QOS of its limits."""

    tier: Count = 1
    factor: Count = 1
    qos: str = ""
    preempt_mode: Mode = None
    grace_time: TimeSpan = None

    def to_policy(self) -> PartitionPolicy:
        """Return the partition's properties."""
        return PartitionPolicy(
            self.tier, self.factor, self.qos, preempt_mode=self.preempt_mode, grace_s=self.grace_time or 0
        )


class PreemptionSchema(StrictFileSection):
    """The rules of preemption (Slurm: `Preempt*` parameters)."""

    type: Literal["qos", "partition_prio"]
    mode: Mode = "requeue"
    exempt_time: TimeSpan = None
    checkpoint_every: TimeSpan = None
    """How often jobs write a checkpoint from which they continue after a preemption; None means never."""
    youngest_first: bool = False
    reorder_count: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    strict_order: bool = False
    victims: Literal["slurm", "least-work"] = "slurm"
    """The selection of jobs to stop: Slurm's, or `cheapest_victims` among as many jobs as Slurm would stop."""

    def add_rules(self, site: SitePolicy) -> SitePolicy:
        """Return the policy with these rules. Jobs with modes that are not simulated are not preempted."""
        order = VictimOrder(self.youngest_first, self.strict_order, self.reorder_count)
        cluster = PreemptionRules(self.type, self.mode or "off", exempt_s=self.exempt_time or 0, victim_order=order)
        rules = site.with_preemption(cluster).preemption
        assert rules is not None
        modes = {name: "off" if mode == "suspend" else mode for name, mode in rules.modes.items()}
        preempts = {name: victims - {name} for name, victims in rules.preempts.items()}
        return replace(site, preemption=replace(rules, modes=dict[str, PreemptMode](modes), preempts=preempts))


class PriorityWeightsSchema(StrictFileSection):
    """The weights of the priority factors, and how the factors are computed."""

    kind: Literal["multifactor", "basic"] = "multifactor"
    age: Count = 0
    fair_share: Count = 0
    job_size: Count = 0
    partition: Count = 0
    qos: Count = 0
    association: Count = 0
    tres: Mapping[Name, Annotated[float, Field(ge=0, le=1e12)]] = Field(default_factory=dict)
    max_age: PositiveTimeSpan = 7 * 86_400
    favor_small: bool = False
    size_over_time: bool = False
    raw_partition: bool = False
    raw_qos: bool = False
    raw_association: bool = False
    raw_tres: bool = False
    calc_period_s: Annotated[int, Field(ge=1, le=MAX_CALC_PERIOD_S)] = 300

    def to_policy(self) -> PriorityPolicy:
        """Return the rules by which jobs are ranked."""
        own = self.model_dump(exclude={"kind", "max_age", "calc_period_s"})
        weights = PriorityWeights(**own, max_age_s=self.max_age)
        return PriorityPolicy(self.kind, weights, period_s=self.calc_period_s)


class FairSharePolicySchema(StrictFileSection):
    """The computation of fair-share factors."""

    algorithm: FairShareAlgorithm = "fair-tree"
    half_life_days: Annotated[float, Field(ge=0, le=36_500)] = 7.0
    dampening: Annotated[float, Field(gt=0, le=1000)] = 1.0

    @field_validator("half_life_days")
    @classmethod
    def _check_half_life(cls, days: float) -> float:
        """Reject half-lives of about a second.

        Slurm's per-second decay is meaningless for them.
        """
        if 0 < days < MIN_HALF_LIFE_DAYS:
            raise ValueError(f"must be 0 (usage never decays) or at least {MIN_HALF_LIFE_DAYS}")
        return days

    def to_rules(self) -> FairShareRules:
        """Return the rules of fair share."""
        return FairShareRules(self.algorithm, self.half_life_days * 86_400, self.dampening)


class UnlistedUsersSchema(StrictFileSection):
    """The accounts of users in the trace who are not listed in any account.

    `others` is an account's name, or `spread`: users, in order of their first jobs, join the account with the fewest
    users relative to its share. `qos` is the QOS of jobs that have none in the trace, in `qos_by_queue` or in their
    association.
    """

    others: str = "spread"
    qos: str = ""
    qos_by_queue: Mapping[Name, str] = Field(default_factory=dict)


class SlurmDumpsSchema(StrictFileSection):
    """Files with the output of Slurm's commands, in the policy file's folder."""

    associations: str = ""
    qos: str = ""
    shares: str = ""


class SitePolicySchema(StrictFileSection):
    """The content of a policy file."""

    accounts: Annotated[Mapping[Name, AccountPolicySchema], Field(max_length=MAX_ENTRIES)] = Field(default_factory=dict)
    qos: Annotated[Mapping[Name, QosPolicySchema], Field(max_length=MAX_ENTRIES)] = Field(default_factory=dict)
    partitions: Mapping[Name, PartitionPolicySchema] = Field(default_factory=dict)
    priority: PriorityWeightsSchema = Field(default_factory=PriorityWeightsSchema)
    fair_share: FairSharePolicySchema = Field(default_factory=FairSharePolicySchema)
    users: UnlistedUsersSchema = Field(default_factory=UnlistedUsersSchema)
    preemption: PreemptionSchema | None = None
    enforce: Sequence[Literal["limits", "safe"]] = ("limits",)
    dumps: SlurmDumpsSchema = Field(default_factory=SlurmDumpsSchema)

    @model_validator(mode="after")
    def _check_references(self) -> SitePolicySchema:
        if not self.dumps.associations:
            for name, account in self.accounts.items():
                if account.parent and account.parent not in (*self.accounts, "root"):
                    raise ValueError(f"accounts.{name}.parent is {account.parent}, which is not an account")
                if name == "root":
                    raise ValueError("accounts.root must not be set: it always exists")
            if self.users.others not in ("spread", *self.accounts):
                raise ValueError(f"users.others is {self.users.others}: it must be spread or an account")
        if not self.dumps.qos:
            named = {*self.users.qos_by_queue.values(), self.users.qos, *(p.qos for p in self.partitions.values())}
            named.update(*(entry.preempt for entry in self.qos.values()))
            if missing := sorted(named - {"", *self.qos}):
                raise ValueError(f"qos {missing[0]} is used but not defined in qos")
        return self


def unsimulated_mode_note(where: str, mode: str) -> str:
    """Return a note on a `PreemptMode` that is not simulated."""
    return f"PreemptMode of {where}: {mode} is not simulated, so its jobs are not preempted"


@dataclass(frozen=True)
class SitePolicyFile:
    """A site's policy in a simulation.

    `policy` contains the file's accounts and QOSes. `with_users_of` adds a trace's users. `used_s` is the usage before
    the trace, in processor seconds by (account, user).
    """

    name: str
    file: SitePolicySchema
    policy: SitePolicy
    used_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    sha256: str = ""
    """The digest of the file and its dumps."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each setting in a dump of Slurm's that is not simulated."""
        suspended = (name for name, each in sorted(self.policy.qos.items()) if each.preempt_mode == "suspend")
        return tuple(unsimulated_mode_note(f"QOS {name}", "suspend") for name in suspended if self.policy.preemption)

    def with_users_of(self, jobs: Iterable[TraceJob]) -> tuple[SitePolicyFile, list[TraceJob]]:
        """Return the policy with the users of `jobs`, and the jobs.

        The jobs have the account, QOS and tier that the policy assigns.

        A job with a QOS retains it.
        """
        jobs = list(jobs)
        policy_file = replace(self, policy=replace(self.policy, accounts=self._accounts_with_users(jobs)))
        made: dict[tuple[str, str, str, str], dict[str, object]] = {}
        found = []
        for item in jobs:
            job = item.job
            key = (job.user, job.account, job.queue, job.qos)
            if key not in made:
                made[key] = policy_file._assign_account_qos_and_tier(job)  # noqa: SLF001
            found.append(replace(item, job=replace(job, **made[key])))  # type: ignore[arg-type]
        return policy_file, found

    def _assign_account_qos_and_tier(self, job: Job) -> dict[str, object]:
        accounts = self.policy.accounts
        own = job.account if accounts.find(job.account, job.user, job.queue) is not None else ""
        account = own or accounts.default_account(job.user)
        at = accounts.find(account, job.user, job.queue)
        default = accounts.associations[at].default_qos if at is not None else ""
        qos = job.qos or self.file.users.qos_by_queue.get(job.queue) or default or self.file.users.qos
        return {"account": account, "qos": qos, "tier": self.policy.partition(job.queue).tier}

    def _accounts_with_users(self, jobs: Sequence[TraceJob]) -> AssociationTree:
        """Return the associations, including those of unlisted users.

        `others` selects the accounts of unlisted users.
        """
        rows = list(self.policy.accounts.associations)
        known = {row.user for row in rows if row.user}
        leaves = [at for at, row in enumerate(rows) if at and not row.user] or [0]
        heads = {at: sum(row.parent == at and bool(row.user) for row in rows) for at in leaves}
        named = {rows[at].account: at for at in leaves}
        share = [max(float(part), 1e-9) for part in FairShareTree.from_accounts(self.policy.accounts).normalized_shares]
        others = self.file.users.others
        parents = {row.parent for row in rows if not row.user}
        childless = [at for at in leaves if at not in parents] or leaves
        for item in jobs:
            job = item.job
            if job.user in known:
                continue
            known.add(job.user)
            if others == "spread":
                at = min(childless, key=lambda at: ((heads[at] + 1) / share[at], at))
            else:
                at = named[others]
            heads[at] += 1
            rows.append(Association(rows[at].account, job.user, parent=at))
        return AssociationTree(tuple(rows))


def load_site_policy_file(path: Path) -> SitePolicyFile:
    """Read a policy file. Raise `InvalidPolicy`, or `InputError` if it is missing."""
    return _build_site_policy(path, read_yaml_tree(path, InvalidPolicy))


def parse_site_policy_file(path: Path, text: str) -> SitePolicyFile:
    """Parse a policy file.

    `path` appears in error messages. Its folder contains the dumps.
    """
    return _build_site_policy(path, parse_yaml_tree(path, text, InvalidPolicy))


def _build_site_policy(path: Path, tree: YamlTree) -> SitePolicyFile:
    if tree.content is None:
        raise tree.make_error((), "empty", "must set accounts, qos, priority or limits")
    file = tree.to_model(SitePolicySchema)
    folder, dumps = path.parent, file.dumps
    rows = read_associations(folder / dumps.associations) if dumps.associations else [Association("root", parent=-1)]
    qos = read_qos(folder / dumps.qos) if dumps.qos else {}
    try:
        accounts = AssociationTree(tuple(_list_associations(file, rows)))
    except (CpschedError, KeyError) as error:
        raise tree.make_error(("accounts",), "accounts", str(error).strip("'")) from error
    qos |= {name: _build_qos(name, entry) for name, entry in file.qos.items()}
    policy = SitePolicy(
        accounts,
        qos,
        {name: entry.to_policy() for name, entry in file.partitions.items()},
        limits_hold="limits" in file.enforce or "safe" in file.enforce,
        safe="safe" in file.enforce,
        priority=file.priority.to_policy(),
        fair_share=file.fair_share.to_rules(),
    )
    if file.preemption is not None:
        policy = file.preemption.add_rules(policy)
    used_s = read_sshare_usage(folder / dumps.shares) if dumps.shares else {}
    words = repr((file, policy, used_s))
    return SitePolicyFile(path.name, file, policy, used_s, sha256(words.encode()).hexdigest())


def _list_associations(file: SitePolicySchema, rows: list[Association]) -> list[Association]:
    """Return the associations of the dump, then those of the file, parents first."""
    at = {row.account: index for index, row in enumerate(rows) if not row.user}
    left = dict(file.accounts)
    while left:
        ready = [name for name, entry in left.items() if (entry.parent or "root") in at]
        if not ready:
            raise KeyError(f"no path to the root from {', '.join(left)}")
        for name in ready:
            entry = left.pop(name)
            parent = at[entry.parent or "root"]
            row = Association(name, "", "", parent, entry.shares, entry.priority, entry.to_accounting_limits())
            if name in at:
                rows[at[name]] = replace(row, parent=rows[at[name]].parent)
            else:
                at[name] = len(rows)
                rows.append(row)
    for name, entry in file.accounts.items():
        handed_down = entry.to_accounting_limits()
        for user, own in entry.user_entries().items():
            limits = own.to_accounting_limits() if own.limits else _per_user_limits(handed_down)
            rows.append(Association(name, user, "", at[name], own.shares, own.priority, limits, own.qos))
    return rows


def _per_user_limits(limits: AccountingLimits) -> AccountingLimits:
    """Return the limits of an account that apply to each of its users."""
    return replace(
        NO_LIMITS, jobs=limits.jobs, wall_min=limits.wall_min, tres=limits.tres, tres_a_node=limits.tres_a_node,
        tres_minutes=limits.tres_minutes,
    )  # fmt: skip


def _build_qos(name: str, entry: QosPolicySchema) -> Qos:
    return Qos(
        name, entry.priority, entry.to_accounting_limits(), entry.usage_factor, entry.factor_on_limits,
        entry.limit_factor, entry.over_partition, frozenset(entry.preempt), preempt_mode=entry.preempt_mode,
        preempt_exempt_s=entry.preempt_exempt_time, grace_s=entry.grace_time or 0,
    )  # fmt: skip


def slurm_resource_names(cluster: Cluster) -> tuple[str, ...]:
    """Return Slurm's names of a cluster's resources, of which the first is processors."""
    names = {"memory_mib": "mem", "gpus": "gres/gpu", "gpu": "gres/gpu"}
    return ("cpu", *(names.get(name, f"gres/{name}") for name in cluster.resources[1:]))
