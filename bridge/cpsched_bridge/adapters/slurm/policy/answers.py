"""What Slurm's commands print of a site's policy, as one value. Texts are the same in Slurm 22.05 to 26.05.

The association manager's state (`scontrol show assoc_mgr`) is what slurmctld itself enforces: limits as they are handed
down, use as it has faded. It does not show flags and factors of QOS, nor limits for each user of a QOS that nobody has
used yet: those come from `sacctmgr`. Factors of fair share come from `sshare`, since the state has two decimals only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.errors import CpschedError
from cpsched.site.accounts import Accounts, Association, Qos, SiteLimits
from cpsched.site.limits import Spent
from cpsched.site.multifactor import PriorityRules, Weights
from cpsched.spelling.amounts import flags_of, limits_of, minutes_of, pairs_of, pipe_table, tres_of, truthy, unmodelled

_CONFIG_LINE = re.compile(r"(\w+)\s*= ?(.*)")
_USED = re.compile(r"([\w/:.-]+)=[^,(]*\((\d+(?:\.\d+)?)\)")
"""One resource of `GrpTRESMins=cpu=100(40),mem=N(0)`: its name, and in brackets what is used."""

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
"""Columns asked of `sacctmgr show qos`."""


@dataclass(frozen=True, slots=True)
class PartitionPolicy:
    """What a partition means for the order of jobs."""

    tier: int = 1
    factor: int = 1
    qos: str = ""
    tres: Mapping[str, int] = field(default_factory=dict)
    """What it has of each trackable resource."""


@dataclass(frozen=True, slots=True)
class SitePicture:
    """A site's policy at one moment.

    - `fair_share`: the factor by index of an association.
    - `unmodelled`: limits that are set and that nobody here knows, in words.
    - `period_s`: how often Slurm works priorities out anew.
    """

    site: SiteLimits = field(default_factory=SiteLimits)
    rules: PriorityRules = field(default_factory=PriorityRules)
    spent: Spent = field(default_factory=Spent)
    fair_share: Mapping[int, float] = field(default_factory=dict)
    partitions: Mapping[str, PartitionPolicy] = field(default_factory=dict)
    unmodelled: tuple[str, ...] = ()
    period_s: int = 300

    @property
    def highest_factor(self) -> int:
        """The largest factor of a partition."""
        return max((each.factor for each in self.partitions.values()), default=1)


class Unreadable(CpschedError):
    """An answer that is not of the form that Slurm's commands have."""


def config_of(text: str) -> dict[str, str]:
    """The settings of `scontrol show config` that matter here; absent ones are empty."""
    found = dict.fromkeys(CONFIG_NAMES, "")
    for line in text.splitlines():
        match = _CONFIG_LINE.fullmatch(line.strip())
        if match and match.group(1) in found:
            found[match.group(1)] = "" if match.group(2).strip() == "(null)" else match.group(2).strip()
    if not found["PriorityType"]:
        raise Unreadable("scontrol show config: names no PriorityType")
    return found


def rules_of(config: Mapping[str, str]) -> PriorityRules:
    """How jobs are ranked; age and fair share count as the weights say."""
    flags = flags_of(config["PriorityFlags"])
    weights = Weights(
        age=_number(config["PriorityWeightAge"]),
        fair_share=_number(config["PriorityWeightFairShare"] or config["PriorityWeightFairshare"]),
        job_size=_number(config["PriorityWeightJobSize"]),
        partition=_number(config["PriorityWeightPartition"]),
        qos=_number(config["PriorityWeightQOS"]),
        association=_number(config["PriorityWeightAssoc"]),
        tres=_weights_of_tres(config["PriorityWeightTRES"]),
        max_age_s=60 * (minutes_of(config["PriorityMaxAge"]) or 7 * 1440),
        favor_small=config["PriorityFavorSmall"].lower() in ("yes", "1", "true"),
        size_over_time=truthy(flags, "SMALL_RELATIVE_TO_TIME"),
        raw_partition=truthy(flags, "NO_NORMAL_PART") or truthy(flags, "NO_NORMAL_ALL"),
        raw_qos=truthy(flags, "NO_NORMAL_QOS") or truthy(flags, "NO_NORMAL_ALL"),
        raw_association=truthy(flags, "NO_NORMAL_ASSOC") or truthy(flags, "NO_NORMAL_ALL"),
        raw_tres=truthy(flags, "NO_NORMAL_TRES") or truthy(flags, "NO_NORMAL_ALL"),
    )
    kind = config["PriorityType"].rpartition("/")[2]
    return PriorityRules("basic" if kind == "basic" else "multifactor", weights, truthy(flags, "ACCRUE_ALWAYS"))


def _weights_of_tres(text: str) -> dict[str, float]:
    found = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, weight = part.partition("=")
        try:
            found[name.lower()] = float(weight)
        except ValueError as error:
            raise Unreadable(f"PriorityWeightTRES={text}: {part} has no weight") from error
    return found


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def partitions_of(text: str) -> dict[str, PartitionPolicy]:
    """The partitions of `scontrol -o show partition`."""
    found = {}
    for line in text.splitlines():
        words = dict(pairs_of(line))
        if "PartitionName" not in words:
            continue
        qos = words.get("QoS", "N/A")
        found[words["PartitionName"]] = PartitionPolicy(
            _number(words.get("PriorityTier", "1")),
            _number(words.get("PriorityJobFactor", "1")),
            "" if qos in ("N/A", "(null)") else qos,
            _present(words.get("TRES", "")),
        )
    return found


def _present(text: str) -> dict[str, int]:
    return {} if text in ("", "(null)", "N/A") else tres_of(text)


def qos_of(text: str) -> tuple[dict[str, Qos], list[str]]:
    """The QOS of `sacctmgr -P show qos`, and the limits among them that are not modelled."""
    found: dict[str, Qos] = {}
    unknown: list[str] = []
    for row in pipe_table(text):
        name, flags = row["Name"], flags_of(row.get("Flags", ""))
        found[name] = Qos(
            name, _number(row.get("Priority", "")), limits_of(row), _real(row.get("UsageFactor", ""), 1.0),
            truthy(flags, "UsageFactorSafe"), _real(row.get("LimitFactor", ""), 0.0) or None,
            truthy(flags, "OverPartQOS"),
        )  # fmt: skip
        unknown += [f"{limit}={row[limit]} of QOS {name}" for limit in unmodelled(row)]
        unknown += [f"flag {flag} of QOS {name}" for flag in ("relative", "enforceusagethreshold") if flag in flags]
    return found, unknown


def _real(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default


@dataclass(frozen=True, slots=True)
class _State:
    """What the association manager says."""

    accounts: Accounts
    ids: Mapping[int, int]
    """Slurm's number of an association -> its index."""
    spent: Spent
    unmodelled: tuple[str, ...]


def state_of(text: str) -> _State:
    """Associations and what is spent, of `scontrol -o show assoc_mgr flags=assoc,qos`."""
    rows = [dict(_words(line)) for line in text.splitlines() if line.startswith("ClusterName=")]
    ordered, parents = _parents_first(rows)
    if not ordered:
        raise Unreadable("scontrol show assoc_mgr: shows no root account; is the bridge an operator?")
    ids = {_number(row.get("ID", "")): at for at, row in enumerate(ordered)}
    accounts = Accounts(tuple(_association(row, parent) for row, parent in zip(ordered, parents, strict=True)))
    minutes = {at: _used_of(row.get("GrpTRESMins", "")) for at, row in enumerate(ordered)}
    walls = {at: _wall_of(row.get("GrpWall", "")) for at, row in enumerate(ordered)}
    quality = [dict(_words(line)) for line in text.splitlines() if line.startswith("QOS=")]
    names = [row["QOS"].partition("(")[0] for row in quality]
    spent = Spent(
        {name: _used_of(row.get("GrpTRESMins", "")) for name, row in zip(names, quality, strict=True)},
        minutes,
        {name: _wall_of(row.get("GrpWall", "")) for name, row in zip(names, quality, strict=True)},
        walls,
    )
    labels = [association.label for association in accounts.associations]
    odd = tuple(f"{limit} of {labels[at]}" for at, row in enumerate(ordered) for limit in unmodelled(row))
    return _State(accounts, ids, spent, odd)


def _parents_first(rows: Sequence[dict[str, str]]) -> tuple[list[dict[str, str]], list[int]]:
    """The associations, each after its parent, and the index of each one's parent; empty without a root.

    An account names its parent; a user's parent is the account. What hangs on no account is left out.
    """
    below: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        above = row["Account"] if _user(row) else row.get("ParentAccount", "").partition("(")[0]
        below.setdefault(above, []).append(row)
    ordered = [row for row in rows if row["Account"] == "root" and not _user(row)][:1]
    parents = [-1] * len(ordered)
    seen = {"root"}
    for at, row in enumerate(ordered):
        for child in below.get(row["Account"], []) if not _user(row) else []:
            if _user(child) or child["Account"] not in seen:
                seen.add("" if _user(child) else child["Account"])
                ordered.append(child)
                parents.append(at)
    return ordered, parents


def _words(line: str) -> Iterator[tuple[str, str]]:
    """The words of a line up to the limits by user and account, which braces enclose."""
    return pairs_of(line.partition("Account Limits=")[0].partition("Comment=")[0])


def _user(row: Mapping[str, str]) -> str:
    return row.get("UserName", "").partition("(")[0]


def _association(row: Mapping[str, str], parent: int) -> Association:
    shares = row.get("SharesRaw/Norm/Level/Factor", "1").partition("/")[0]
    limits = limits_of({name: value for name, value in row.items() if name != "MaxWall"})
    return Association(
        row["Account"], _user(row), row.get("Partition", ""), parent,
        None if shares == str(0x7FFFFFFF) else _number(shares), _number(row.get("Priority", "")), limits,
    )  # fmt: skip


def _used_of(text: str) -> dict[str, int]:
    return {name: int(float(used)) for name, used in _USED.findall(text)}


def _wall_of(text: str) -> float:
    return _real(text.rpartition("(")[2].rstrip(")"), 0.0)


def shares_of(text: str, ids: Mapping[int, int]) -> dict[int, float]:
    """Factors of fair share by index of an association, of `sshare -a --json`, or `-P -o ID,FairShare`."""
    if text.lstrip().startswith("{"):
        try:
            rows = json.loads(text)["shares"]["shares"]
            pairs = [(int(row["id"]), _json_number(row["fairshare"]["factor"])) for row in rows]
        except (ValueError, LookupError, TypeError) as error:
            raise Unreadable(f"sshare --json: {type(error).__name__}: {error}") from error
    else:
        table = list(pipe_table(text))
        if table and "FairShare" not in table[0]:
            raise Unreadable("sshare: has no column FairShare")
        pairs = [(_number(row["ID"].strip()), _real(row["FairShare"], -1.0)) for row in table if row.get("FairShare")]
    return {ids[number]: factor for number, factor in pairs if number in ids and factor >= 0}


def _json_number(value: object) -> float:
    """A number, which newer versions wrap together with whether it is set."""
    if isinstance(value, dict):
        value = value.get("number", 0) if value.get("set", True) else 0
    return float(value) if isinstance(value, int | float) else 0.0


ANSWERS = ("config", "partitions", "state", "qos", "shares")
"""What a picture is made of: the names of the texts that `picture_of` is given."""


def picture_of(texts: Mapping[str, str]) -> SitePicture:
    """The picture that these texts draw, by the names of `ANSWERS`. Raises `Unreadable`, or `InvalidValue`.

    Without accounting (no text for `state`) there are no limits and no shares, and only the order of jobs remains.
    """
    config = config_of(texts["config"])
    partitions = partitions_of(texts["partitions"])
    period_s = 60 * (minutes_of(config["PriorityCalcPeriod"]) or 5)
    if not texts.get("state"):
        return SitePicture(SiteLimits(limits_hold=False), rules_of(config), Spent(), {}, partitions, (), period_s)
    state, (qos, unknown) = state_of(texts["state"]), qos_of(texts.get("qos", ""))
    enforced = flags_of(config["AccountingStorageEnforce"])
    site = SiteLimits(
        accounts=state.accounts,
        qos=qos,
        partition_qos={name: each.qos for name, each in partitions.items() if each.qos},
        limits_hold=bool(enforced & {"limits", "safe", "all"}),
        safe="safe" in enforced,
    )
    fair_share = shares_of(texts.get("shares", ""), state.ids)
    odd = (*state.unmodelled, *unknown) if site.limits_hold else ()
    return SitePicture(site, rules_of(config), state.spent, fair_share, partitions, odd, period_s)
