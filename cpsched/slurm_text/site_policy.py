"""Parse a site's policy from Slurm's configuration, partitions, accounts and licenses.

The output format is the same from Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, get_args

from cpsched.errors import InvalidValue, UnreadableOutput
from cpsched.site.limit_checks import LimitUsageMinutes
from cpsched.site.multifactor_priority import PriorityPolicy, PriorityWeights
from cpsched.site.preemption import PreemptionRules, PreemptionType
from cpsched.site.site_policy import FairShareAlgorithm, FairShareRules, PartitionPolicy, SitePolicy
from cpsched.slurm_text.accounts import (
    QOS_FLAGS,
    Texts,
    UnreadablePolicyObject,
    UnreadablePolicyObjects,
    list_unmodelled_qos_settings,
    parse_assoc_mgr,
    parse_fair_share_factors,
    parse_qos,
)
from cpsched.slurm_text.limits import parse_slurm_time_s
from cpsched.slurm_text.object_parsing import list_printed_objects, parse_partition
from cpsched.slurm_text.option_lists import has_flag, parse_c_int, parse_config, parse_flags
from cpsched.slurm_text.output_values import parse_name_values
from cpsched.slurm_text.preemption import parse_preempt_exempt_time_s, parse_preempt_mode, parse_victim_order

_TRES_WEIGHT = re.compile(r"[^=]+=\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SitePolicyReading:
    """A site's policy at one moment, with the usage and shares that Slurm reports.

    - `usage`: decaying usage that counts towards limits.
    - `fair_share`: the fair-share factor by association index.
    - `unmodelled`: descriptions of configured limits that are not modelled.
    - `user_names`: the names of the associations' users, by user id. This host may not have them.
    """

    policy: SitePolicy = field(default_factory=SitePolicy)
    usage: LimitUsageMinutes = field(default_factory=LimitUsageMinutes)
    fair_share: Mapping[int, float] = field(default_factory=dict)
    unmodelled: tuple[str, ...] = ()
    unreadable: UnreadablePolicyObjects = field(default_factory=UnreadablePolicyObjects)
    user_names: Mapping[int, str] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------ configuration


def parse_priority_policy(config: Texts) -> PriorityPolicy:
    """Return the rules by which Slurm ranks jobs. Raise `InvalidValue`."""
    flags = parse_flags(config.get("PriorityFlags", ""))
    is_raw = {
        name: has_flag(flags, f"NO_NORMAL_{flag}") or has_flag(flags, "NO_NORMAL_ALL")
        for name, flag in (("partition", "PART"), ("qos", "QOS"), ("association", "ASSOC"), ("tres", "TRES"))
    }
    weights = PriorityWeights(
        age=_parse_weight(config, "Age"),
        fair_share=_parse_weight(config, "FairShare") or _parse_weight(config, "Fairshare"),
        job_size=_parse_weight(config, "JobSize"),
        partition=_parse_weight(config, "Partition"),
        qos=_parse_weight(config, "QOS"),
        association=_parse_weight(config, "Assoc"),
        tres=_parse_tres_weights(config.get("PriorityWeightTRES", "")),
        max_age_s=_parse_time_s(config, "PriorityMaxAge") or 7 * 86_400,
        favor_small=config.get("PriorityFavorSmall", "").lower() in ("yes", "1", "true"),
        size_over_time=has_flag(flags, "SMALL_RELATIVE_TO_TIME"),
        raw_partition=is_raw["partition"],
        raw_qos=is_raw["qos"],
        raw_association=is_raw["association"],
        raw_tres=is_raw["tres"],
    )
    return PriorityPolicy(
        "basic" if config.get("PriorityType", "").endswith("/basic") else "multifactor",
        weights,
        has_flag(flags, "ACCRUE_ALWAYS"),
        _parse_time_s(config, "PriorityCalcPeriod") or 300,
    )


def _parse_weight(config: Texts, factor: str) -> int:
    return max(0, parse_c_int(config.get(f"PriorityWeight{factor}", "")))


def is_tres_weight(item: str) -> bool:
    """Return whether an item of `PriorityWeightTRES` has the form NAME=WEIGHT."""
    return _TRES_WEIGHT.fullmatch(item) is not None


def _parse_tres_weights(text: str) -> dict[str, float]:
    weights = {}
    for item in filter(None, text.replace(" ", "").split(",")):
        if not is_tres_weight(item):
            raise InvalidValue("PriorityWeightTRES", item, "must be NAME=WEIGHT")
        name, _, weight = item.partition("=")
        weights[name.lower()] = float(weight)
    return weights


def _parse_time_s(config: Texts, name: str) -> int | None:
    try:
        return parse_slurm_time_s(config.get(name, ""))
    except InvalidValue as error:
        raise InvalidValue(name, error.value, error.rule) from error


def parse_fair_share_rules(config: Texts) -> FairShareRules:
    """Return how Slurm computes fair-share factors. Raise `InvalidValue`."""
    flags = parse_flags(config.get("PriorityFlags", ""))
    algorithm: FairShareAlgorithm = "classic" if has_flag(flags, "NO_FAIR_TREE") else "fair-tree"
    if has_flag(flags, "DEPTH_OBLIVIOUS"):
        algorithm = "depth-oblivious"
    half_life_s = _parse_time_s(config, "PriorityDecayHalfLife")
    dampening = max(1, parse_c_int(config.get("FairShareDampeningFactor", "")))
    return FairShareRules(algorithm, 7 * 86_400.0 if half_life_s is None else half_life_s, dampening)


class LimitEnforcement(NamedTuple):
    """Whether Slurm enforces limits, and whether a job starts only if the remaining minutes last until its end."""

    limits: bool
    safe: bool


def parse_limit_enforcement(config: Texts) -> LimitEnforcement:
    """Return what `AccountingStorageEnforce` means for limits. `all` includes `safe`."""
    words = parse_flags(config.get("AccountingStorageEnforce", ""))
    return LimitEnforcement(bool(words & {"limits", "safe", "all"}), bool(words & {"safe", "all"}))


def parse_preemption(config: Texts, policy: SitePolicy) -> SitePolicy:
    """Return the policy with the rules of preemption, which are None if Slurm preempts no job."""
    kind = config.get("PreemptType", "").removeprefix("preempt/")
    mode = parse_preempt_mode(config.get("PreemptMode", "")) or "off"
    known = next((each for each in get_args(PreemptionType) if each == kind), None)
    if mode == "off" or known is None:
        return replace(policy, preemption=None)

    order, unsupported = parse_victim_order(config.get("PreemptParameters", ""), config.get("SchedulerParameters", ""))
    rules = PreemptionRules(
        known,
        mode,
        exempt_s=parse_preempt_exempt_time_s(config.get("PreemptExemptTime", "")) or 0,
        victim_order=None if unsupported else order,
        kill_wait_s=parse_c_int(config.get("KillWait", "")) or 30,
    )
    return policy.with_preemption(rules, has_flag(parse_flags(config.get("PreemptMode", "")), "WITHIN"))


# ------------------------------------------------------------------------------------------ partitions

_POLICY_FIELDS = ("priority_tier", "priority_factor", "qos", "tres", "preempt_mode", "grace_s")
"""Fields of a partition on which its policy depends."""


class ParsedPartitions(NamedTuple):
    """The partitions, and the unreadable ones, by name."""

    partitions: dict[str, PartitionPolicy]
    unreadable: dict[str, UnreadablePolicyObject]


def parse_partition_policies(text: str) -> ParsedPartitions:
    """Return the partitions in the output of `scontrol -o show partition`."""
    found = ParsedPartitions({}, {})
    for _, printed in list_printed_objects(text, "PartitionName"):
        partition = parse_partition(printed)
        found.partitions[partition.name] = PartitionPolicy(
            1 if partition.priority_tier is None else partition.priority_tier,
            1 if partition.priority_factor is None else partition.priority_factor,
            partition.qos or "",
            partition.tres or {},
            partition.preempt_mode,
            partition.grace_s or 0,
        )
        for name in _POLICY_FIELDS:
            if rule := (partition.unreadable or {}).get(name):
                found.unreadable[partition.name] = UnreadablePolicyObject("partition", partition.name, name, rule=rule)
                break
    return found


# ------------------------------------------------------------------------------------------ the policy


def parse_site_policy(texts: Mapping[str, str]) -> SitePolicyReading:
    """Return the policy in the output of Slurm's commands, by name.

    - `config`, `partitions`, `licenses`: `scontrol show config`, `scontrol -o show partition` and `license`.
    - `state`: `scontrol -o show assoc_mgr flags=assoc,qos`. Without it, there are neither limits nor shares.
    - `qos`, `shares`: `sacctmgr -P show qos` and `sshare -a` (see `parse_fair_share_factors`).

    Raise `UnreadableOutput` or `InvalidValue`.
    """
    config = parse_config(texts["config"])
    if not config.get("PriorityType"):
        raise UnreadableOutput("scontrol show config: PriorityType is missing")
    partitions = parse_partition_policies(texts["partitions"])
    licenses = parse_licenses(texts.get("licenses", ""))
    usable = {each.name: each.usable for each in licenses if each.has_one_amount and each.usable is not None}
    unknown_licenses = tuple(
        f"license {name}, whose jobs are left to Slurm"
        for name in sorted({each.name for each in licenses} - {""})
        if name not in usable
    )
    policy = SitePolicy(
        partitions=partitions.partitions,
        limits_hold=False,
        licenses=usable,
        priority=parse_priority_policy(config),
        fair_share=parse_fair_share_rules(config),
    )
    if not texts.get("state"):
        unreadable = UnreadablePolicyObjects(partitions=partitions.unreadable)
        return SitePolicyReading(parse_preemption(config, policy), unmodelled=unknown_licenses, unreadable=unreadable)

    limits_hold, safe = parse_limit_enforcement(config)
    state = parse_assoc_mgr(texts["state"], limits_hold)
    qos = parse_qos(texts.get("qos", ""), limits_hold)
    policy = replace(policy, accounts=state.accounts, qos=qos.qos, limits_hold=limits_hold, safe=safe)
    shares = parse_fair_share_factors(texts.get("shares", ""), state.ids)
    rows = state.accounts.associations
    odd_shares = {
        at: UnreadablePolicyObject("association", rows[at].label, "FairShare", word)
        for at, word in shares.unreadable.items()
        if rows[at].user
    }
    unreadable = UnreadablePolicyObjects(
        odd_shares | dict(state.unreadable.associations),
        state.unreadable.orphans,
        qos.unreadable | dict(state.unreadable.qos),
        partitions.unreadable,
    )
    unmodelled: tuple[str, ...] = ()
    if limits_hold:  # Slurm reports usage, so that the flag NoDecay changes nothing else
        settings = list_unmodelled_qos_settings(texts.get("qos", ""), (*QOS_FLAGS, "NoDecay"))
        unmodelled = (*state.unmodelled, *(f"{setting} of QOS {name}" for name, setting in settings))
    return SitePolicyReading(
        parse_preemption(config, policy),
        state.usage,
        shares.factors,
        (*unmodelled, *unknown_licenses),
        unreadable,
        state.user_names,
    )


_COUNT = re.compile(r"\d{1,9}", re.ASCII)


class SlurmLicense(NamedTuple):
    """A license.

    - `total`: how many licenses exist, as printed on `line`.
    - `usable`: how many licenses jobs may hold now, or None if this is unknown. Licenses that are reserved now, which
      Slurm counts as free, or that other clusters hold do not count.
    - `has_one_amount`: whether the license is printed once and without a `Mode`. A `Mode` marks a hierarchical
      resource, which has an amount for each set of nodes.
    """

    name: str
    total: str
    line: int
    usable: int | None
    has_one_amount: bool


def parse_licenses(text: str) -> list[SlurmLicense]:
    """Return the licenses in the output of `scontrol show license`, with or without `-o`."""
    records: list[dict[str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        values = parse_name_values(line)
        if "LicenseName" in values or ("Total" in values and not records):
            records.append({"LicenseName": "", "line": str(number)})
        if records:
            records[-1] |= values | ({"line": str(number)} if "Total" in values else {})
    printed = Counter(values["LicenseName"].lower() for values in records)
    return [_make_license(values, printed[values["LicenseName"].lower()] == 1) for values in records]


def _make_license(values: dict[str, str], is_printed_once: bool) -> SlurmLicense:
    counts = [values.get("Used", ""), values.get("Free", ""), values.get("Reserved", "0")]
    usable: int | None = None
    if all(map(_COUNT.fullmatch, counts)):
        used, free, reserved = map(int, counts)
        usable = max(0, used + free - reserved)
    return SlurmLicense(
        values["LicenseName"],
        values.get("Total", ""),
        int(values["line"]),
        usable,
        is_printed_once and "Mode" not in values,
    )
