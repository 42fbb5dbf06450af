"""Parse the output of the Slurm commands that print a site's policy.

The output format is the same from Slurm 22.05 to 26.05.

slurmctld enforces the state of the association manager (`scontrol show assoc_mgr`), which contains inherited limits and
decayed usage. That state lacks the flags and factors of QOS, and the per-user limits of a QOS that has not been used
yet; `sacctmgr` prints these. Fair-share factors come from `sshare`, because the state shows only two decimals.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cpsched.errors import CpschedError, InvalidValue
from cpsched.parsing.slurm_limits import (
    has_flag,
    parse_flags,
    parse_limits,
    parse_minutes,
    parse_pipe_table,
    parse_tres,
    unsupported_limits,
)
from cpsched.site.accounts import NO_LIMITS, Association, AssociationTree, Qos, SiteLimitPolicy
from cpsched.site.limit_checks import LimitUsageMinutes
from cpsched.site.multifactor import PriorityPolicy, PriorityWeights
from cpsched_bridge.ports import ObjectKind, UnusableObject

_LONGEST = 80
"""Maximum number of characters of a value that are quoted in messages."""
_CONFIG_LINE = re.compile(r"(\w+)\s*= ?(.*)")
_USED = re.compile(r"([^=]+)=[^=(]*\((\d+(?:\.\d+)?)\)", re.ASCII)
"""One resource of `GrpTRESMins=cpu=100(40),mem=N(0)`: its name, and the usage in parentheses."""
_WALL = re.compile(r"[^(]*\((\d+(?:\.\d+)?)\)", re.ASCII)
_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w/]*)=")

CONFIG_NAMES = (
    "AccountingStorageEnforce", "PriorityType", "PriorityFlags", "PriorityMaxAge", "PriorityFavorSmall",
    "PriorityCalcPeriod", "PriorityWeightAge", "PriorityWeightAssoc", "PriorityWeightFairShare",
    "PriorityWeightFairshare", "PriorityWeightJobSize", "PriorityWeightPartition", "PriorityWeightQOS",
    "PriorityWeightTRES", "SLURM_VERSION",
)  # fmt: skip
QOS_FORMAT = (
    "Name", "Priority", "Flags", "UsageFactor", "LimitFactor", "UsageThreshold", "MinPrioThresh", "GrpJobs", "GrpTRES",
    "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "MaxWall", "MaxTRESPU",
    "MaxJobsPU", "MaxTRESPA", "MaxJobsPA", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA", "MinTRES", "MaxJobsAccruePU",
    "MaxJobsAccruePA", "GrpJobsAccrue",
)  # fmt: skip
"""Columns of `sacctmgr show qos`."""


@dataclass(frozen=True, slots=True)
class PartitionPriorityPolicy:
    """The properties of a partition that affect the order of jobs."""

    tier: int = 1
    factor: int = 1
    qos: str = ""
    tres: Mapping[str, int] = field(default_factory=dict)
    """Amount of each trackable resource in the partition."""


@dataclass(frozen=True, slots=True)
class UnreadableSitePolicy:
    """The unusable objects of a site's policy; Slurm schedules the jobs that depend on them.

    - `associations`: by index; the associations below an unusable one are also unusable.
    - `orphans`: by account and user, associations without a known parent account.
    - `qos`, `partitions`: by name.
    """

    associations: Mapping[int, UnusableObject] = field(default_factory=dict)
    orphans: Mapping[tuple[str, str], UnusableObject] = field(default_factory=dict)
    qos: Mapping[str, UnusableObject] = field(default_factory=dict)
    partitions: Mapping[str, UnusableObject] = field(default_factory=dict)

    def list_objects(self) -> tuple[UnusableObject, ...]:
        """Return all unusable objects, each once."""
        parts = (self.associations, self.orphans, self.qos, self.partitions)
        return tuple(each for part in parts for each in part.values())

    def find_for_job(
        self, user: str, account: str, partition: str, qos: str, site: SiteLimitPolicy
    ) -> UnusableObject | None:
        """Return the unusable object that causes a job to be left to Slurm, or None."""
        found = self.partitions.get(partition)
        names = (qos, site.partition_qos.get(partition, "")) if self.qos else ()
        found = found or next((self.qos[name] for name in names if name in self.qos), None)
        found = found or self.orphans.get((account, user))
        at = site.accounts.find(account, user, partition) if self.associations and found is None else None
        above = site.accounts.association_chain(at) if at is not None else ()
        return found or next((self.associations[each] for each in above if each in self.associations), None)


ALL_READABLE = UnreadableSitePolicy()


@dataclass(frozen=True, slots=True)
class SitePolicySnapshot:
    """A site's policy at one moment.

    - `fair_share`: the fair-share factor by association index.
    - `unmodelled`: descriptions of configured limits that are not modelled.
    - `period_s`: the interval at which Slurm recomputes priorities.
    - `trouble`: the unusable objects.
    """

    site: SiteLimitPolicy = field(default_factory=SiteLimitPolicy)
    rules: PriorityPolicy = field(default_factory=PriorityPolicy)
    spent: LimitUsageMinutes = field(default_factory=LimitUsageMinutes)
    fair_share: Mapping[int, float] = field(default_factory=dict)
    partitions: Mapping[str, PartitionPriorityPolicy] = field(default_factory=dict)
    unmodelled: tuple[str, ...] = ()
    period_s: int = 300
    trouble: UnreadableSitePolicy = field(default_factory=lambda: ALL_READABLE)

    @property
    def highest_factor(self) -> int:
        """Return the largest factor of a partition."""
        return max((each.factor for each in self.partitions.values()), default=1)


class UnreadablePolicyOutput(CpschedError):
    """An error for an answer that does not have the format of Slurm's commands."""


def parse_config(text: str) -> dict[str, str]:
    """Return the required settings from `scontrol show config`; missing settings are empty."""
    found = dict.fromkeys(CONFIG_NAMES, "")
    for line in text.splitlines():
        match = _CONFIG_LINE.fullmatch(line.strip())
        if match and match.group(1) in found:
            found[match.group(1)] = "" if match.group(2).strip() == "(null)" else match.group(2).strip()
    if not found["PriorityType"]:
        raise UnreadablePolicyOutput("scontrol show config: names no PriorityType")
    return found


def parse_priority_rules(config: Mapping[str, str]) -> PriorityPolicy:
    """Return the rules by which Slurm ranks jobs."""
    flags = parse_flags(config["PriorityFlags"])
    weights = PriorityWeights(
        age=_number(config["PriorityWeightAge"]),
        fair_share=_number(config["PriorityWeightFairShare"] or config["PriorityWeightFairshare"]),
        job_size=_number(config["PriorityWeightJobSize"]),
        partition=_number(config["PriorityWeightPartition"]),
        qos=_number(config["PriorityWeightQOS"]),
        association=_number(config["PriorityWeightAssoc"]),
        tres=_weights_of_tres(config["PriorityWeightTRES"]),
        max_age_s=60 * (parse_minutes(config["PriorityMaxAge"]) or 7 * 1440),
        favor_small=config["PriorityFavorSmall"].lower() in ("yes", "1", "true"),
        size_over_time=has_flag(flags, "SMALL_RELATIVE_TO_TIME"),
        raw_partition=has_flag(flags, "NO_NORMAL_PART") or has_flag(flags, "NO_NORMAL_ALL"),
        raw_qos=has_flag(flags, "NO_NORMAL_QOS") or has_flag(flags, "NO_NORMAL_ALL"),
        raw_association=has_flag(flags, "NO_NORMAL_ASSOC") or has_flag(flags, "NO_NORMAL_ALL"),
        raw_tres=has_flag(flags, "NO_NORMAL_TRES") or has_flag(flags, "NO_NORMAL_ALL"),
    )
    kind = config["PriorityType"].rpartition("/")[2]
    return PriorityPolicy("basic" if kind == "basic" else "multifactor", weights, has_flag(flags, "ACCRUE_ALWAYS"))


def _weights_of_tres(text: str) -> dict[str, float]:
    found = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, weight = part.partition("=")
        try:
            found[name.lower()] = float(weight)
        except ValueError as error:
            raise UnreadablePolicyOutput(f"PriorityWeightTRES={text}: {part} has no weight") from error
    return found


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def parse_partitions(text: str) -> tuple[dict[str, PartitionPriorityPolicy], dict[str, UnusableObject]]:
    """Return the partitions from `scontrol -o show partition`, and the unusable ones."""
    found: dict[str, PartitionPriorityPolicy] = {}
    trouble: dict[str, UnusableObject] = {}
    for line in text.split("\n"):
        words = _pairs(line)
        name, qos = words.get("PartitionName", ""), words.get("QoS", "N/A")
        if not name:
            continue
        present: Mapping[str, int] = {}
        try:
            present = _present(words.get("TRES", ""))
        except InvalidValue as error:
            trouble[name] = _unusable("partition", name, error)
        found[name] = PartitionPriorityPolicy(
            _number(words.get("PriorityTier", "1")),
            _number(words.get("PriorityJobFactor", "1")),
            "" if qos in ("N/A", "(null)") else qos,
            present,
        )
    return found, trouble


def _pairs(line: str) -> dict[str, str]:
    """Return the NAME=VALUE pairs in a line from `scontrol -o`.

    A value may be empty or contain spaces.
    """
    found: dict[str, str] = {}
    end = len(line)
    for key in reversed(list(_KEY.finditer(line))):  # if a name appears more than once, its first value counts
        found[key[1]] = line[key.end() : end].strip()
        end = key.start()
    return found


def _unusable(kind: ObjectKind, name: str, error: InvalidValue) -> UnusableObject:
    return UnusableObject(kind, name, error.field, "unreadable", f"{error.value}: {error.rule}"[:_LONGEST])


def _present(text: str) -> dict[str, int]:
    return {} if text in ("", "(null)", "N/A") else parse_tres(text)


def parse_qos(text: str, limits_hold: bool = True) -> tuple[dict[str, Qos], list[str], dict[str, UnusableObject]]:
    """Return the QOS from `sacctmgr -P show qos`, the unmodelled limits, and the unusable QOS.

    Limits are parsed only if Slurm enforces them.
    """
    found: dict[str, Qos] = {}
    unknown: list[str] = []
    trouble: dict[str, UnusableObject] = {}
    headings, *lines = [line.split("|") for line in text.split("\n") if line] or [[]]
    for values in lines:
        if len(values) < len(headings):
            trouble[values[0]] = UnusableObject(
                "qos", values[0], headings[len(values)], "unreadable", "sacctmgr shows none"
            )
            continue
        row = dict(zip(headings, values, strict=False))
        name, flags = row["Name"], parse_flags(row.get("Flags", ""))
        limits = NO_LIMITS
        try:
            limits = parse_limits(row) if limits_hold else limits
        except InvalidValue as error:
            trouble[name] = _unusable("qos", name, error)
        found[name] = Qos(
            name, _number(row.get("Priority", "")), limits, _real(row.get("UsageFactor", ""), 1.0),
            has_flag(flags, "UsageFactorSafe"), _real(row.get("LimitFactor", ""), 0.0) or None,
            has_flag(flags, "OverPartQOS"),
        )  # fmt: skip
        unknown += [f"{limit}={row[limit]} of QOS {name}" for limit in unsupported_limits(row)]
        unknown += [f"flag {flag} of QOS {name}" for flag in ("relative", "enforceusagethreshold") if flag in flags]
    return found, unknown, trouble


def _real(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default


@dataclass(frozen=True, slots=True)
class _State:
    """The association manager's state."""

    accounts: AssociationTree
    ids: Mapping[int, int]
    """Association indices by Slurm's association number."""
    spent: LimitUsageMinutes
    unmodelled: tuple[str, ...]
    trouble: UnreadableSitePolicy


def parse_assoc_mgr(text: str, limits_hold: bool = True) -> _State:
    """Return the associations and usage from `scontrol -o show assoc_mgr flags=assoc,qos`.

    Limits are parsed only if Slurm enforces them.
    """
    lines = text.split("\n")
    rows = [_words(line) for line in lines if line.startswith("ClusterName=")]
    ordered, parents, lost = _parents_first(rows)
    if not ordered:
        raise UnreadablePolicyOutput("scontrol show assoc_mgr: shows no root account; is the bridge an operator?")
    read = _Spending(limits_hold)
    associations = [
        _association(row, parent, read, at) for at, (row, parent) in enumerate(zip(ordered, parents, strict=True))
    ]
    for at, row in enumerate(ordered):
        read.of("association", at, associations[at].label, row)
    for line in lines:
        if line.startswith("QOS="):
            row = _words(line)
            name = _unnumbered(row["QOS"])
            read.of("qos", name, name, row)
    accounts = AssociationTree(tuple(associations))
    labels = [association.label for association in associations]
    return _State(
        accounts,
        {_number(row.get("ID", "")): at for at, row in enumerate(ordered)},
        read.spent(),
        tuple(f"{limit} of {labels[at]}" for at, row in enumerate(ordered) for limit in unsupported_limits(row)),
        UnreadableSitePolicy(read.associations, {_key(row): _orphan(row) for row in lost}, read.qos),
    )


@dataclass(slots=True)
class _Spending:
    """A collector of the usage in each row, and of the unreadable rows."""

    limits_hold: bool
    associations: dict[int, UnusableObject] = field(default_factory=dict)
    qos: dict[str, UnusableObject] = field(default_factory=dict)
    minutes: dict[int | str, dict[str, int]] = field(default_factory=dict)
    walls: dict[int | str, float] = field(default_factory=dict)

    def of(self, kind: Literal["association", "qos"], key: int | str, name: str, row: Mapping[str, str]) -> None:
        """Read the usage of an association or QOS from its row."""
        try:
            self.minutes[key], self.walls[key] = _used_of(row.get("GrpTRESMins", "")), _wall_of(row.get("GrpWall", ""))
        except InvalidValue as error:
            self.minutes[key], self.walls[key] = {}, 0.0
            self.note(kind, key, name, error)

    def note(self, kind: Literal["association", "qos"], key: int | str, name: str, error: InvalidValue) -> None:
        """Record an unreadable row, which matters only if Slurm enforces limits."""
        if self.limits_hold:
            found: dict[Any, UnusableObject] = self.associations if kind == "association" else self.qos
            found.setdefault(key, _unusable(kind, name, error))

    def spent(self) -> LimitUsageMinutes:
        """Return the collected usage."""
        by_qos = {key: value for key, value in self.minutes.items() if isinstance(key, str)}
        by_row = {key: value for key, value in self.minutes.items() if isinstance(key, int)}
        qos_walls = {key: value for key, value in self.walls.items() if isinstance(key, str)}
        return LimitUsageMinutes(by_qos, by_row, qos_walls, {k: v for k, v in self.walls.items() if isinstance(k, int)})


def _parents_first(rows: Sequence[dict[str, str]]) -> tuple[list[dict[str, str]], list[int], list[dict[str, str]]]:
    """Return the associations, each after its parent; the parents; and the orphans.

    An account names its parent; a user's parent is the account. Parents are indices. Without a root, the result is
    empty.
    """
    below: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        above = row.get("Account", "") if _user(row) else _unnumbered(row.get("ParentAccount", ""))
        below.setdefault(above, []).append(row)
    ordered = [row for row in rows if row.get("Account") == "root" and not _user(row)][:1]
    parents = [-1] * len(ordered)
    seen = {"root"}
    for at, row in enumerate(ordered):
        for child in below.get(row["Account"], []) if not _user(row) else []:
            if _user(child) or child.get("Account", "") not in seen | {""}:
                seen.add("" if _user(child) else child["Account"])
                ordered.append(child)
                parents.append(at)
    kept = set(map(id, ordered))
    return ordered, parents, [row for row in rows if id(row) not in kept and _key(row) != ("root", "")]


def _key(row: Mapping[str, str]) -> tuple[str, str]:
    return row.get("Account", ""), _user(row)


def _orphan(row: Mapping[str, str]) -> UnusableObject:
    account, user = _key(row)
    name = f"{f'user {user} in ' if user else ''}account {account}"
    return UnusableObject("association", name, "ParentAccount", "unreadable", row.get("ParentAccount", "")[:_LONGEST])


def _words(line: str) -> dict[str, str]:
    """Return the NAME=VALUE pairs of a line up to its first limit in braces."""
    return _pairs(line.partition("Account Limits=")[0].partition("Comment=")[0])


def _user(row: Mapping[str, str]) -> str:
    return _unnumbered(row.get("UserName", ""))


def _unnumbered(word: str) -> str:
    """Return a name without the number in parentheses that Slurm appends."""
    return word.rpartition("(")[0] if word.endswith(")") else word


def _association(row: Mapping[str, str], parent: int, read: _Spending, at: int) -> Association:
    shares = row.get("SharesRaw/Norm/Level/Factor", "1").partition("/")[0]
    found = Association(
        row["Account"], _user(row), row.get("Partition", ""), parent,
        None if shares == str(0x7FFFFFFF) else _number(shares), _number(row.get("Priority", "")),
    )  # fmt: skip
    if not read.limits_hold:
        return found
    try:
        limits = parse_limits({name: value for name, value in row.items() if name != "MaxWall"})
    except InvalidValue as error:
        read.note("association", at, found.label, error)
        return found
    return dataclasses.replace(found, limits=limits)


def _used_of(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        match = _USED.fullmatch(item)
        if match is None:
            raise InvalidValue("GrpTRESMins", item, "must be NAME=LIMIT(USED)")
        found[match[1]] = int(float(match[2]))
    return found


def _wall_of(text: str) -> float:
    match = _WALL.fullmatch(text)
    if text and match is None:
        raise InvalidValue("GrpWall", text, "must be LIMIT(USED)")
    return float(match[1]) if match else 0.0


def parse_shares(text: str, ids: Mapping[int, int]) -> tuple[dict[int, float], dict[int, str]]:
    """Return the fair-share factors by association index, and the unreadable ones.

    `text` is the output of `sshare -a --json` or of `sshare -a -P -o ID,FairShare`. Raise `UnreadablePolicyOutput` for
    any other text.
    """
    if text.lstrip().startswith("{"):
        try:
            rows = list(json.loads(text)["shares"]["shares"])
        except (ValueError, LookupError, TypeError) as error:
            raise UnreadablePolicyOutput(f"sshare --json: {type(error).__name__}: {error}") from error
        pairs = [_of_json(row) for row in rows]
    else:
        table = list(parse_pipe_table(text))
        if table and "FairShare" not in table[0]:
            raise UnreadablePolicyOutput("sshare: has no column FairShare")
        pairs = [(_number(row["ID"].strip()), row["FairShare"]) for row in table if row.get("FairShare")]
    found: dict[int, float] = {}
    lost: dict[int, str] = {}
    for number, word in pairs:
        factor = _real(str(word), -1.0)
        if number in ids and factor >= 0:
            found[ids[number]] = factor
        elif number in ids:
            lost[ids[number]] = str(word)[:_LONGEST]
    return found, lost


def _of_json(row: Any) -> tuple[int, float | str]:
    """Return the number and fair-share factor of one association.

    An unreadable number is returned as -1, and an unreadable factor as the text of the row.
    """
    try:
        number = int(row["id"])
    except (ValueError, LookupError, TypeError):
        return -1, ""
    try:
        return number, _json_number(row["fairshare"]["factor"])
    except (ValueError, LookupError, TypeError):
        return number, str(row)


def _json_number(value: object) -> float:
    """Return a number. Newer Slurm releases wrap it in an object that also says whether it is set."""
    if isinstance(value, dict):
        value = value.get("number", 0) if value.get("set", True) else 0
    return 0.0 if value is None else float(value)  # type: ignore[arg-type]  # what is no number raises


ANSWERS = ("config", "partitions", "state", "qos", "shares")
"""Names of the texts that `parse_site_policy` uses."""


def parse_site_policy(texts: Mapping[str, str]) -> SitePolicySnapshot:
    """Return the policy contained in these texts, which have the names in `ANSWERS`.

    Raise `UnreadablePolicyOutput` or `InvalidValue`. Without accounting (no text for `state`), there are no limits and
    no shares.
    """
    config = parse_config(texts["config"])
    partitions, odd_partitions = parse_partitions(texts["partitions"])
    period_s = 60 * (parse_minutes(config["PriorityCalcPeriod"]) or 5)
    if not texts.get("state"):
        trouble = UnreadableSitePolicy(partitions=odd_partitions)
        site = SiteLimitPolicy(limits_hold=False)
        return SitePolicySnapshot(
            site, parse_priority_rules(config), LimitUsageMinutes(), {}, partitions, (), period_s, trouble
        )
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
    )
    fair_share, odd_shares = parse_shares(texts.get("shares", ""), state.ids)
    rows = state.accounts.associations
    associations = {
        at: UnusableObject("association", rows[at].label, "FairShare", "unreadable", word)
        for at, word in odd_shares.items()
        if rows[at].user
    } | dict(state.trouble.associations)
    trouble = UnreadableSitePolicy(
        associations, state.trouble.orphans, {**odd_qos, **state.trouble.qos}, odd_partitions
    )
    odd = (*state.unmodelled, *unknown) if site.limits_hold else ()
    return SitePolicySnapshot(
        site, parse_priority_rules(config), state.spent, fair_share, partitions, odd, period_s, trouble
    )
