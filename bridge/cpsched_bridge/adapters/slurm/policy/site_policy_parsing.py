"""Parse the output of the Slurm commands that print a site's policy.

The output format is the same from Slurm 22.05 to 26.05.

slurmctld enforces the state of the association manager (`scontrol show assoc_mgr`), which contains inherited limits and
decayed usage. The state lacks the flags and factors of QOS, and the per-user limits of a QOS that has not been used
yet. These come from `sacctmgr`. Fair-share factors come from `sshare`, because the state shows only two decimals.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cpsched.errors import CpschedError, InvalidValue
from cpsched.site.accounts import NO_LIMITS, PARTITION_LIMITS, Association, AssociationTree, Qos, SiteLimitPolicy
from cpsched.site.limit_checks import LimitUsageMinutes
from cpsched.site.multifactor_priority import PriorityPolicy, PriorityWeights
from cpsched.site.preemption import PreemptionRules, PreemptMode
from cpsched.site.slurm_victims import VictimOrder
from cpsched.slurm_text.limits import (
    parse_accounting_limits,
    parse_slurm_time_min,
    parse_slurm_time_s,
    parse_tres,
    unsupported_limits,
    unsupported_qos_flags,
)
from cpsched.slurm_text.option_lists import has_flag, parse_config, parse_flags
from cpsched.slurm_text.preemption import parse_preempt_exempt_time_s, parse_preempt_mode, parse_victim_order
from cpsched.slurm_text.tables import parse_key_values, parse_pipe_table
from cpsched_bridge.ports import ObjectKind, UnusableObject

_MAX_QUOTED_CHARS = 80
"""Maximum length of a value quoted in a message."""
_USED_AMOUNT = re.compile(r"([^=]+)=[^=(]*\((\d+(?:\.\d+)?)\)", re.ASCII)
"""Pattern for a resource in `GrpTRESMins=cpu=100(40),mem=N(0)`. The groups are its name and its usage."""
_USED_WALL = re.compile(r"[^(]*\((\d+(?:\.\d+)?)\)", re.ASCII)
_NAME_AND_ID = re.compile(r"(.+)\((\d+)\)", re.ASCII)
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w/]*)=")

CONFIG_NAMES = (
    "AccountingStorageEnforce", "PriorityType", "PriorityFlags", "PriorityMaxAge", "PriorityFavorSmall",
    "PriorityCalcPeriod", "PriorityWeightAge", "PriorityWeightAssoc", "PriorityWeightFairShare",
    "PriorityWeightFairshare", "PriorityWeightJobSize", "PriorityWeightPartition", "PriorityWeightQOS",
    "PriorityWeightTRES", "SLURM_VERSION", "PreemptType", "PreemptMode", "PreemptExemptTime", "PreemptParameters",
    "SchedulerParameters", "KillWait",
)  # fmt: skip
QOS_FORMAT = (
    "Name", "Priority", "Flags", "UsageFactor", "LimitFactor", "UsageThreshold", "MinPrioThresh", "GrpJobs", "GrpTRES",
    "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "MaxWall", "MaxTRESPU",
    "MaxJobsPU", "MaxTRESPA", "MaxJobsPA", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA", "MinTRES", "MaxJobsAccruePU",
    "MaxJobsAccruePA", "GrpJobsAccrue", "Preempt", "PreemptMode", "PreemptExemptTime", "GraceTime",
)  # fmt: skip
"""Columns of `sacctmgr show qos`."""
_QOS_FLAGS = ("UsageFactorSafe", "OverPartQOS", "NoDecay", *PARTITION_LIMITS)
"""Flags of a QOS that the policy contains. With NoDecay, only the usage differs, which Slurm reports."""


@dataclass(frozen=True, slots=True)
class PartitionPriorityProperties:
    """The properties of a partition that affect job order and preemption."""

    tier: int = 1
    factor: int = 1
    qos: str = ""
    tres: Mapping[str, int] = field(default_factory=dict)
    """Amount of each trackable resource in the partition."""
    preempt_mode: PreemptMode | None = None
    grace_s: int = 0
    """Time in seconds for which a preempted job continues to run (`GraceTime`)."""


@dataclass(frozen=True, slots=True)
class UnreadablePolicyObjects:
    """The unusable objects of a site's policy, whose jobs are left to Slurm.

    - `associations`: by index. All associations below an unusable association are also unusable.
    - `orphans`: associations without a known parent account, by account and user.
    - `qos`, `partitions`: by name.
    """

    associations: Mapping[int, UnusableObject] = field(default_factory=dict)
    orphans: Mapping[tuple[str, str], UnusableObject] = field(default_factory=dict)
    qos: Mapping[str, UnusableObject] = field(default_factory=dict)
    partitions: Mapping[str, UnusableObject] = field(default_factory=dict)

    def list_objects(self) -> tuple[UnusableObject, ...]:
        """Return all unusable objects."""
        parts = (self.associations, self.orphans, self.qos, self.partitions)
        return tuple(each for part in parts for each in part.values())

    def find_unusable_object_of_job(
        self, user: str, account: str, partition: str, qos: str, site: SiteLimitPolicy
    ) -> UnusableObject | None:
        """Return the first unusable object that a job depends on, or None."""
        found = self.partitions.get(partition)
        names = (qos, site.partition_qos.get(partition, "")) if self.qos else ()
        found = found or next((self.qos[name] for name in names if name in self.qos), None)
        found = found or self.orphans.get((account, user))
        at = site.accounts.find(account, user, partition) if self.associations and found is None else None
        above = site.accounts.association_chain(at) if at is not None else ()
        return found or next((self.associations[each] for each in above if each in self.associations), None)


NO_UNREADABLE_OBJECTS = UnreadablePolicyObjects()


@dataclass(frozen=True, slots=True)
class SitePolicySnapshot:
    """A site's policy at one moment.

    - `fair_share`: the fair-share factor by association index.
    - `unmodelled`: descriptions of configured limits that are not modelled.
    - `period_s`: the interval at which Slurm recomputes priorities, in seconds.
    - `trouble`: the unusable objects.
    - `preemption`: which jobs may preempt which, or None if Slurm preempts no job.
    - `exempt_s`: run time in seconds after which Slurm may preempt a job. A QOS may override it.
    - `victim_order`: the order in which Slurm preempts jobs, or None if an option is not supported.
    - `kill_wait_s`: the time in seconds that a stopped job has to end (`KillWait`).
    - `user_names`: the names of the associations' users, by user id. This host may not have them.
    """

    site: SiteLimitPolicy = field(default_factory=SiteLimitPolicy)
    rules: PriorityPolicy = field(default_factory=PriorityPolicy)
    spent: LimitUsageMinutes = field(default_factory=LimitUsageMinutes)
    fair_share: Mapping[int, float] = field(default_factory=dict)
    partitions: Mapping[str, PartitionPriorityProperties] = field(default_factory=dict)
    unmodelled: tuple[str, ...] = ()
    period_s: int = 300
    trouble: UnreadablePolicyObjects = field(default_factory=lambda: NO_UNREADABLE_OBJECTS)
    preemption: PreemptionRules | None = None
    exempt_s: int = 0
    victim_order: VictimOrder | None = field(default_factory=VictimOrder)
    kill_wait_s: int = 30
    user_names: Mapping[int, str] = field(default_factory=dict)

    @property
    def highest_partition_factor(self) -> int:
        """Return the highest priority factor among the partitions."""
        return max((each.factor for each in self.partitions.values()), default=1)


class UnreadablePolicyOutput(CpschedError):
    """An error for output that does not have the command's usual format."""


def parse_policy_config(text: str) -> dict[str, str]:
    """Return the settings in `CONFIG_NAMES`, with "" for a missing setting."""
    settings = parse_config(text)
    found = {name: settings.get(name, "") for name in CONFIG_NAMES}
    if not found["PriorityType"]:
        raise UnreadablePolicyOutput("scontrol show config: PriorityType is missing")
    return found


def parse_priority_rules(config: Mapping[str, str]) -> PriorityPolicy:
    """Return the rules by which Slurm ranks jobs."""
    flags = parse_flags(config["PriorityFlags"])
    weights = PriorityWeights(
        age=_parse_count_or_zero(config["PriorityWeightAge"]),
        fair_share=_parse_count_or_zero(config["PriorityWeightFairShare"] or config["PriorityWeightFairshare"]),
        job_size=_parse_count_or_zero(config["PriorityWeightJobSize"]),
        partition=_parse_count_or_zero(config["PriorityWeightPartition"]),
        qos=_parse_count_or_zero(config["PriorityWeightQOS"]),
        association=_parse_count_or_zero(config["PriorityWeightAssoc"]),
        tres=_parse_tres_weights(config["PriorityWeightTRES"]),
        max_age_s=60 * (parse_slurm_time_min(config["PriorityMaxAge"]) or 7 * 1440),
        favor_small=config["PriorityFavorSmall"].lower() in ("yes", "1", "true"),
        size_over_time=has_flag(flags, "SMALL_RELATIVE_TO_TIME"),
        raw_partition=has_flag(flags, "NO_NORMAL_PART") or has_flag(flags, "NO_NORMAL_ALL"),
        raw_qos=has_flag(flags, "NO_NORMAL_QOS") or has_flag(flags, "NO_NORMAL_ALL"),
        raw_association=has_flag(flags, "NO_NORMAL_ASSOC") or has_flag(flags, "NO_NORMAL_ALL"),
        raw_tres=has_flag(flags, "NO_NORMAL_TRES") or has_flag(flags, "NO_NORMAL_ALL"),
    )
    kind = config["PriorityType"].rpartition("/")[2]
    return PriorityPolicy("basic" if kind == "basic" else "multifactor", weights, has_flag(flags, "ACCRUE_ALWAYS"))


def _parse_tres_weights(text: str) -> dict[str, float]:
    found = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, weight = part.partition("=")
        try:
            found[name.lower()] = float(weight)
        except ValueError as error:
            raise UnreadablePolicyOutput(
                f"PriorityWeightTRES={text}: {part!r} must have the form NAME=WEIGHT"
            ) from error
    return found


def _parse_count_or_zero(text: str) -> int:
    return int(text) if text.isdigit() else 0


def parse_partition_priority_properties(
    text: str,
) -> tuple[dict[str, PartitionPriorityProperties], dict[str, UnusableObject]]:
    """Return the partitions from `scontrol -o show partition`, and the unusable ones."""
    found: dict[str, PartitionPriorityProperties] = {}
    trouble: dict[str, UnusableObject] = {}
    for line in text.split("\n"):
        words = _parse_name_value_pairs(line)
        name, qos = words.get("PartitionName", ""), words.get("QoS", "N/A")
        if not name:
            continue
        present: Mapping[str, int] = {}
        mode: PreemptMode | None = None
        try:
            mode = parse_preempt_mode(words.get("PreemptMode", ""))
            present = _parse_tres_or_empty(words.get("TRES", ""))
        except InvalidValue as error:
            trouble[name] = _make_unusable_object("partition", name, error)
        found[name] = PartitionPriorityProperties(
            _parse_count_or_zero(words.get("PriorityTier", "1")),
            _parse_count_or_zero(words.get("PriorityJobFactor", "1")),
            "" if qos in ("N/A", "(null)") else qos,
            present,
            mode,
            _parse_count_or_zero(words.get("GraceTime", "")),
        )
    return found, trouble


def _parse_name_value_pairs(line: str) -> dict[str, str]:
    """Return the NAME=VALUE pairs in a line from `scontrol -o`.

    A value may be empty or contain spaces.
    """
    found: dict[str, str] = {}
    end = len(line)
    for key in reversed(list(_KEY.finditer(line))):  # if a name appears more than once, its first value counts
        found[key[1]] = line[key.end() : end].strip()
        end = key.start()
    return found


def _make_unusable_object(kind: ObjectKind, name: str, error: InvalidValue) -> UnusableObject:
    return UnusableObject(kind, name, error.field, "unreadable", f"{error.value}: {error.rule}"[:_MAX_QUOTED_CHARS])


def _parse_tres_or_empty(text: str) -> dict[str, int]:
    return {} if text in ("", "(null)", "N/A") else parse_tres(text)


def parse_qos(text: str, limits_hold: bool = True) -> tuple[dict[str, Qos], list[str], dict[str, UnusableObject]]:
    """Return the QOS, the unmodelled limits, and the unusable QOS.

    `text` is the output of `sacctmgr -P show qos`. Limits are parsed only if Slurm enforces them.
    """
    found: dict[str, Qos] = {}
    unknown: list[str] = []
    trouble: dict[str, UnusableObject] = {}
    headings, *lines = [line.split("|") for line in text.split("\n") if line] or [[]]
    for values in lines:
        if len(values) < len(headings):
            trouble[values[0]] = UnusableObject(
                "qos", values[0], headings[len(values)], "unreadable", "sacctmgr prints no value"
            )
            continue
        row = dict(zip(headings, values, strict=False))
        name, flags = row["Name"], parse_flags(row.get("Flags", ""))
        limits = NO_LIMITS
        preempts = {*filter(None, row.get("Preempt", "").split(","))}
        if has_flag(parse_flags(row.get("PreemptMode", "")), "WITHIN"):
            preempts.add(name)
        mode: PreemptMode | None = None
        exempt_s: int | None = None
        grace_s = 0
        try:
            limits = parse_accounting_limits(row) if limits_hold else limits
            mode = parse_preempt_mode(row.get("PreemptMode", ""))
            exempt_s = parse_preempt_exempt_time_s(row.get("PreemptExemptTime", ""))
            grace_s = parse_slurm_time_s(row.get("GraceTime", "")) or 0
        except InvalidValue as error:
            trouble[name] = _make_unusable_object("qos", name, error)
        found[name] = Qos(
            name, _parse_count_or_zero(row.get("Priority", "")), limits,
            _parse_float_or_default(row.get("UsageFactor", ""), 1.0),
            has_flag(flags, "UsageFactorSafe"), _parse_float_or_default(row.get("LimitFactor", ""), 0.0) or None,
            has_flag(flags, "OverPartQOS"), frozenset(preempts), mode, exempt_s, grace_s,
            frozenset(limit for limit in PARTITION_LIMITS if has_flag(flags, limit)),
        )  # fmt: skip
        unknown += [f"{limit}={row[limit]} of QOS {name}" for limit in unsupported_limits(row)]
        unknown += [f"flag {flag} of QOS {name}" for flag in unsupported_qos_flags(row.get("Flags", ""), _QOS_FLAGS)]
    return found, unknown, trouble


def parse_preemption(
    config: Mapping[str, str], partitions: Mapping[str, PartitionPriorityProperties], qos: Mapping[str, Qos]
) -> PreemptionRules | None:
    """Return which jobs may preempt which, or None if Slurm preempts no job."""
    kind = config["PreemptType"].removeprefix("preempt/")
    mode = parse_preempt_mode(config["PreemptMode"]) or "off"
    if mode == "off" or kind not in ("qos", "partition_prio"):
        return None
    if kind == "partition_prio":
        tiers = {name: each.tier for name, each in partitions.items()}
        modes = {name: each.preempt_mode for name, each in partitions.items() if each.preempt_mode is not None}
        return PreemptionRules("partition_prio", mode, tiers=tiers, modes=modes)
    return PreemptionRules(
        "qos", mode, {name: each.preempts for name, each in qos.items() if each.preempts},
        modes={name: each.preempt_mode for name, each in qos.items() if each.preempt_mode not in (None, "off")},
    )  # fmt: skip


def _parse_float_or_default(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default


@dataclass(frozen=True, slots=True)
class _AssociationManagerState:
    """The association manager's state."""

    accounts: AssociationTree
    ids: Mapping[int, int]
    """Association indices by Slurm's association number."""
    user_names: Mapping[int, str]
    """User names by user id."""
    spent: LimitUsageMinutes
    unmodelled: tuple[str, ...]
    trouble: UnreadablePolicyObjects


def parse_assoc_mgr(text: str, limits_hold: bool = True) -> _AssociationManagerState:
    """Return the association manager's state, with associations and usage.

    `text` is the output of `scontrol -o show assoc_mgr flags=assoc,qos`. Limits are parsed only if Slurm enforces them.
    """
    lines = text.split("\n")
    rows = [_parse_pairs_before_limits(line) for line in lines if line.startswith("ClusterName=")]
    ordered, parents, lost = _sort_associations_parents_first(rows)
    if not ordered:
        raise UnreadablePolicyOutput(
            "scontrol show assoc_mgr: the root account is missing; the bridge's user needs AdminLevel=Operator"
        )
    read = _UsageCollector(limits_hold)
    associations = [
        _build_association(row, parent, read, at) for at, (row, parent) in enumerate(zip(ordered, parents, strict=True))
    ]
    for at, row in enumerate(ordered):
        read.add_row("association", at, associations[at].label, row)
    unmodelled = [
        f"{limit} of {associations[at].label}" for at, row in enumerate(ordered) for limit in unsupported_limits(row)
    ]
    for line in lines:
        if line.startswith("QOS="):
            row = _parse_pairs_before_limits(line)
            name = _strip_number(row["QOS"])
            read.add_row("qos", name, name, row)
            unmodelled += [f"{limit} of QOS {name}" for limit in unsupported_limits(row) if limit not in QOS_FORMAT]
    accounts = AssociationTree(tuple(associations))
    return _AssociationManagerState(
        accounts,
        {_parse_count_or_zero(row.get("ID", "")): at for at, row in enumerate(ordered)},
        {int(match[2]): match[1] for row in ordered if (match := _NAME_AND_ID.fullmatch(row.get("UserName", "")))},
        read.build_usage(),
        tuple(unmodelled),
        UnreadablePolicyObjects(
            read.associations,
            {_get_association_key(row): _make_orphan_association_object(row) for row in lost},
            read.qos,
        ),
    )


@dataclass(slots=True)
class _UsageCollector:
    """A collector of each row's usage, and of the unreadable rows."""

    limits_hold: bool
    associations: dict[int, UnusableObject] = field(default_factory=dict)
    qos: dict[str, UnusableObject] = field(default_factory=dict)
    minutes: dict[int | str, dict[str, int]] = field(default_factory=dict)
    walls: dict[int | str, float] = field(default_factory=dict)

    def add_row(self, kind: Literal["association", "qos"], key: int | str, name: str, row: Mapping[str, str]) -> None:
        """Read the usage of an association or QOS from its row."""
        try:
            self.minutes[key], self.walls[key] = (
                _parse_used_tres_minutes(row.get("GrpTRESMins", "")),
                _parse_used_wall(row.get("GrpWall", "")),
            )
        except InvalidValue as error:
            self.minutes[key], self.walls[key] = {}, 0.0
            self.record_unreadable(kind, key, name, error)

    def record_unreadable(
        self, kind: Literal["association", "qos"], key: int | str, name: str, error: InvalidValue
    ) -> None:
        """Record an unreadable row, which matters only if Slurm enforces limits."""
        if self.limits_hold:
            found: dict[Any, UnusableObject] = self.associations if kind == "association" else self.qos
            found.setdefault(key, _make_unusable_object(kind, name, error))

    def build_usage(self) -> LimitUsageMinutes:
        """Return the collected usage."""
        by_qos = {key: value for key, value in self.minutes.items() if isinstance(key, str)}
        by_row = {key: value for key, value in self.minutes.items() if isinstance(key, int)}
        qos_walls = {key: value for key, value in self.walls.items() if isinstance(key, str)}
        return LimitUsageMinutes(by_qos, by_row, qos_walls, {k: v for k, v in self.walls.items() if isinstance(k, int)})


def _sort_associations_parents_first(
    rows: Sequence[dict[str, str]],
) -> tuple[list[dict[str, str]], list[int], list[dict[str, str]]]:
    """Return the associations sorted parents first, their parents, and the orphans.

    An account names its parent, and a user's parent is the user's account. Parents are indices, and the root has -1. If
    there is no root, every association is an orphan.
    """
    below: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        above = row.get("Account", "") if _get_user_name(row) else _strip_number(row.get("ParentAccount", ""))
        below.setdefault(above, []).append(row)
    ordered = [row for row in rows if row.get("Account") == "root" and not _get_user_name(row)][:1]
    parents = [-1] * len(ordered)
    seen = {"root"}
    for at, row in enumerate(ordered):
        for child in below.get(row["Account"], []) if not _get_user_name(row) else []:
            if _get_user_name(child) or child.get("Account", "") not in seen | {""}:
                seen.add("" if _get_user_name(child) else child["Account"])
                ordered.append(child)
                parents.append(at)
    kept = set(map(id, ordered))
    return ordered, parents, [row for row in rows if id(row) not in kept and _get_association_key(row) != ("root", "")]


def _get_association_key(row: Mapping[str, str]) -> tuple[str, str]:
    return row.get("Account", ""), _get_user_name(row)


def _make_orphan_association_object(row: Mapping[str, str]) -> UnusableObject:
    account, user = _get_association_key(row)
    name = f"{f'user {user} in ' if user else ''}account {account}"
    return UnusableObject(
        "association", name, "ParentAccount", "unreadable", row.get("ParentAccount", "")[:_MAX_QUOTED_CHARS]
    )


def _parse_pairs_before_limits(line: str) -> dict[str, str]:
    """Return a line's NAME=VALUE pairs before its account limits or its comment."""
    return _parse_name_value_pairs(line.partition("Account Limits=")[0].partition("Comment=")[0])


def _get_user_name(row: Mapping[str, str]) -> str:
    return _strip_number(row.get("UserName", ""))


def _strip_number(word: str) -> str:
    """Return a name without the parenthesised number that Slurm appends."""
    return word.rpartition("(")[0] if word.endswith(")") else word


def _build_association(row: Mapping[str, str], parent: int, read: _UsageCollector, at: int) -> Association:
    shares = row.get("SharesRaw/Norm/Level/Factor", "1").partition("/")[0]
    found = Association(
        row["Account"], _get_user_name(row), row.get("Partition", ""), parent,
        None if shares == str(0x7FFFFFFF) else _parse_count_or_zero(shares),
        _parse_count_or_zero(row.get("Priority", "")),
    )  # fmt: skip
    if not read.limits_hold:
        return found
    try:
        limits = parse_accounting_limits({name: value for name, value in row.items() if name != "MaxWall"})
    except InvalidValue as error:
        read.record_unreadable("association", at, found.label, error)
        return found
    return dataclasses.replace(found, limits=limits)


def _parse_used_tres_minutes(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        match = _USED_AMOUNT.fullmatch(item)
        if match is None:
            raise InvalidValue("GrpTRESMins", item, "must be NAME=LIMIT(USED)")
        found[match[1]] = int(float(match[2]))
    return found


def _parse_used_wall(text: str) -> float:
    match = _USED_WALL.fullmatch(text)
    if text and match is None:
        raise InvalidValue("GrpWall", text, "must be LIMIT(USED)")
    return float(match[1]) if match else 0.0


def parse_fair_share_factors(text: str, ids: Mapping[int, int]) -> tuple[dict[int, float], dict[int, str]]:
    """Return the fair-share factors and the unreadable ones, by association index.

    `text` is the output of `sshare -a --json` or of `sshare -a -P -o ID,FairShare`. Raise `UnreadablePolicyOutput` for
    any other text.
    """
    if text.lstrip().startswith("{"):
        try:
            rows = list(json.loads(text)["shares"]["shares"])
        except (ValueError, LookupError, TypeError) as error:
            raise UnreadablePolicyOutput(f"sshare --json: {type(error).__name__}: {error}") from error
        pairs = [_parse_json_fair_share_factor(row) for row in rows]
    else:
        table = list(parse_pipe_table(text))
        if table and "FairShare" not in table[0]:
            raise UnreadablePolicyOutput("sshare: column FairShare is missing")
        pairs = [(_parse_count_or_zero(row["ID"].strip()), row["FairShare"]) for row in table if row.get("FairShare")]
    found: dict[int, float] = {}
    lost: dict[int, str] = {}
    for number, word in pairs:
        factor = _parse_float_or_default(str(word), -1.0)
        if number in ids and factor >= 0:
            found[ids[number]] = factor
        elif number in ids:
            lost[ids[number]] = str(word)[:_MAX_QUOTED_CHARS]
    return found, lost


def _parse_json_fair_share_factor(row: Any) -> tuple[int, float | str]:
    """Return the number and fair-share factor of one association.

    An unreadable number is returned as -1, and an unreadable factor as the text of the row.
    """
    try:
        number = int(row["id"])
    except (ValueError, LookupError, TypeError):
        return -1, ""
    try:
        return number, _parse_json_number(row["fairshare"]["factor"])
    except (ValueError, LookupError, TypeError):
        return number, str(row)


def _parse_json_number(value: object) -> float:
    """Return a number, which newer releases wrap in an object with a `set` flag."""
    if isinstance(value, dict):
        value = value.get("number", 0) if value.get("set", True) else 0
    return 0.0 if value is None else float(value)  # type: ignore[arg-type]  # raises if it is not a number


OUTPUT_NAMES = ("config", "partitions", "state", "qos", "shares")
"""Names of the answers that `parse_site_policy` reads in addition to `licenses`."""


def parse_licenses(text: str) -> tuple[dict[str, int], list[str]]:
    """Return the number of each license that jobs may hold, and the licenses whose number is unknown.

    `text` is the output of `scontrol -o show license`. Licenses that are reserved now, which Slurm counts as free, or
    that other clusters hold do not count. Licenses tied to particular nodes have a `Mode` and no single number.
    """
    found: dict[str, int] = {}
    odd = set[str]()
    for line in text.splitlines():
        words = dict(parse_key_values(line))
        name = words.get("LicenseName", "")
        counts = [words.get("Used", ""), words.get("Free", ""), words.get("Reserved", "0")]
        if "Mode" in words or name in found or not all(map(_COUNT.fullmatch, counts)):
            odd.add(name)
        else:
            used, free, reserved = map(int, counts)
            found[name] = max(0, used + free - reserved)
    return {name: count for name, count in found.items() if name and name not in odd}, sorted(odd - {""})


def parse_site_policy(texts: Mapping[str, str]) -> SitePolicySnapshot:
    """Return the policy in these answers.

    The answers are named as in `OUTPUT_NAMES`, or "licenses". Raise `UnreadablePolicyOutput` or `InvalidValue`. Without
    accounting (no answer for `state`), there are neither limits nor shares.
    """
    config = parse_policy_config(texts["config"])
    partitions, odd_partitions = parse_partition_priority_properties(texts["partitions"])
    period_s = 60 * (parse_slurm_time_min(config["PriorityCalcPeriod"]) or 5)
    exempt_s = parse_preempt_exempt_time_s(config["PreemptExemptTime"]) or 0
    order, unsupported = parse_victim_order(config["PreemptParameters"], config["SchedulerParameters"])
    victim_order = None if unsupported else order
    kill_wait_s = _parse_count_or_zero(config["KillWait"].removesuffix(" sec")) or 30
    licenses, odd_licenses = parse_licenses(texts.get("licenses", ""))
    unknown_licenses = tuple(f"license {name}, whose jobs are left to Slurm" for name in odd_licenses)
    if not texts.get("state"):
        trouble = UnreadablePolicyObjects(partitions=odd_partitions)
        site = SiteLimitPolicy(limits_hold=False, licenses=licenses)
        return SitePolicySnapshot(
            site, parse_priority_rules(config), LimitUsageMinutes(), {}, partitions, unknown_licenses, period_s,
            trouble, parse_preemption(config, partitions, {}), exempt_s, victim_order, kill_wait_s,
        )  # fmt: skip
    enforced = parse_flags(config["AccountingStorageEnforce"])
    limits_hold = bool(enforced & {"limits", "safe", "all"})
    state = parse_assoc_mgr(texts["state"], limits_hold)
    qos, unknown, odd_qos = parse_qos(texts.get("qos", ""), limits_hold)
    site = SiteLimitPolicy(
        accounts=state.accounts,
        qos=qos,
        partition_qos={name: each.qos for name, each in partitions.items() if each.qos},
        limits_hold=limits_hold,
        safe="safe" in enforced,
        licenses=licenses,
    )
    fair_share, odd_shares = parse_fair_share_factors(texts.get("shares", ""), state.ids)
    rows = state.accounts.associations
    associations = {
        at: UnusableObject("association", rows[at].label, "FairShare", "unreadable", word)
        for at, word in odd_shares.items()
        if rows[at].user
    } | dict(state.trouble.associations)
    trouble = UnreadablePolicyObjects(
        associations, state.trouble.orphans, {**odd_qos, **state.trouble.qos}, odd_partitions
    )
    odd = (*state.unmodelled, *unknown) if site.limits_hold else ()
    odd += unknown_licenses
    return SitePolicySnapshot(
        site, parse_priority_rules(config), state.spent, fair_share, partitions, odd, period_s, trouble,
        parse_preemption(config, partitions, qos), exempt_s, victim_order, kill_wait_s, state.user_names,
    )  # fmt: skip
