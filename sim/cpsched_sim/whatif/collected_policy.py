"""Write the policy file of a collected site, and name the settings that a replay does not have."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

import yaml

from cpsched.errors import InvalidValue
from cpsched.formatting import format_count
from cpsched.site.multifactor_priority import PriorityPolicy
from cpsched.site.preemption import PreemptionType
from cpsched.site.site_policy import FairShareRules, PartitionPolicy, SitePolicy
from cpsched.slurm_text.accounts import (
    QOS_FLAGS,
    UnreadablePolicyObject,
    list_unmodelled_qos_settings,
    parse_qos,
)
from cpsched.slurm_text.known_fields import PARTITION
from cpsched.slurm_text.limits import unsupported_limits
from cpsched.slurm_text.object_parsing import list_printed_objects
from cpsched.slurm_text.option_lists import find_unmodelled_options, has_flag, parse_flags
from cpsched.slurm_text.output_values import parse_pipe_table
from cpsched.slurm_text.preemption import parse_preempt_mode, parse_victim_order
from cpsched.slurm_text.site_policy import (
    is_tres_weight,
    parse_fair_share_rules,
    parse_limit_enforcement,
    parse_partition_policies,
    parse_preemption,
    parse_priority_policy,
)
from cpsched_sim.errors import quote_value
from cpsched_sim.site.policy_file import MAX_CALC_PERIOD_S, unsimulated_mode_note

SIMULATED_PRIORITY_FLAGS = (
    "SMALL_RELATIVE_TO_TIME", "NO_FAIR_TREE", "DEPTH_OBLIVIOUS", "NO_NORMAL_ALL", "NO_NORMAL_ASSOC", "NO_NORMAL_PART",
    "NO_NORMAL_QOS", "NO_NORMAL_TRES",
)  # fmt: skip
SIMULATED_PARTITION_VALUES: Mapping[str, tuple[str, ...]] = {
    "Exclusive": ("NO", "NODE"),
    "ExclusiveTopo": ("NO",),
    "ExclusiveUser": ("NO",),
    "LLN": ("NO",),
    "MaxCPUsPerNode": ("UNLIMITED",),
    "MaxCPUsPerSocket": ("UNLIMITED",),
    "OverSubscribe": ("NO", "EXCLUSIVE", "FORCE:1"),
    "SelectTypeParameters": ("NONE",),
}
"""Settings of a partition that change starts, and their values in a replay. Accounting lists whole nodes as used."""
HARMLESS_PARTITION_SETTINGS = frozenset(
    word
    for names in (
        # read here, or by the system file
        "PartitionName PriorityTier PriorityJobFactor GraceTime PreemptMode QoS Nodes NodeSets TRES TotalCPUs",
        # change which jobs Slurm accepts, and a replay has only accepted jobs
        "AllowGroups AllowAccounts DenyAccounts AllowQos DenyQos AllocNodes Alternate Default DisableRootJobs Hidden",
        "MaxNodes MaxTime MinNodes RootOnly ReqResv MaxMemPerCPU MaxMemPerNode",
        # part of a job's recorded request or run time
        "DefaultTime DefMemPerCPU DefMemPerNode JobDefaults CpuBind OverTimeLimit TRESBillingWeights",
        # change during the window, or belong to power saving and the topology
        "State TotalNodes ResumeTimeout SuspendTimeout SuspendTime PowerDownOnIdle Topology",
    )
    for word in names.split()
)
"""Settings of a partition without which a replay is right."""
UNSIMULATED_MODE_WORDS = ("gang", "within", "priority")
"""Words that Slurm combines with a `PreemptMode`."""


@dataclass(frozen=True, slots=True)
class CollectedPolicy:
    """The text of a policy file, and a sentence for each of the site's settings that it does not have."""

    text: str
    notes: tuple[str, ...]


def build_policy_file(
    config: Mapping[str, str], partitions: str, qos: str, associations: str, dumps: Mapping[str, str]
) -> CollectedPolicy:
    """Return the policy file of a site.

    `partitions` is the output of `scontrol -o show partition`, and `qos` and `associations` that of `sacctmgr show`.
    `dumps` are the names of the files to which the policy file refers.
    """
    notes: list[str] = []
    config = _omit_invalid_weights(config, notes)
    parsed = parse_partition_policies(partitions)
    policy = SitePolicy(
        qos=parse_qos(qos, limits_hold=False).qos,
        partitions=parsed.partitions,
        priority=parse_priority_policy(config),
        fair_share=parse_fair_share_rules(config),
    )
    notes += _list_config_notes(config)
    preemption = _build_preemption_section(config, notes)
    notes += _list_partition_notes(partitions, policy, parsed.unreadable, bool(preemption))
    content = {
        "partitions": {
            name: _build_partition_entry(partition, policy, bool(preemption))
            for name, partition in policy.partitions.items()
        },
        "priority": _build_priority_section(policy.priority),
        "fair_share": _build_fair_share_section(policy.fair_share),
        **preemption,
        "enforce": [name for name, holds in parse_limit_enforcement(config)._asdict().items() if holds],
        "dumps": dict(dumps),
    }
    notes += find_unmodelled_options(config)
    notes += _list_association_notes(associations)
    notes += _list_qos_notes(qos, bool(preemption))
    text = "# From Slurm's settings at the time of collection. Correct settings that were different in earlier weeks.\n"
    text += "".join(f"# Not in the replay: {quote_value(note, 500)}\n" for note in notes)
    return CollectedPolicy(text + yaml.safe_dump(content, sort_keys=False), tuple(notes))


# ------------------------------------------------------------------------------------------ sections


def _omit_invalid_weights(config: Mapping[str, str], notes: list[str]) -> Mapping[str, str]:
    weights = config.get("PriorityWeightTRES", "").replace(" ", "").split(",")
    invalid = [item for item in weights if item and not is_tres_weight(item)]
    notes += [f"PriorityWeightTRES: {item} must be NAME=WEIGHT" for item in invalid]
    return {**config, "PriorityWeightTRES": ",".join(item for item in weights if item not in invalid)}


def _build_partition_entry(partition: PartitionPolicy, policy: SitePolicy, is_preempting: bool) -> dict[str, object]:
    entry: dict[str, object] = {"tier": partition.tier, "factor": partition.factor, "grace_time": partition.grace_s}
    if is_preempting and partition.preempt_mode:
        entry["preempt_mode"] = "off" if partition.preempt_mode == "suspend" else partition.preempt_mode
    if partition.qos in policy.qos:
        entry["qos"] = partition.qos
    return entry


def _build_priority_section(priority: PriorityPolicy) -> dict[str, object]:
    weights = dataclasses.asdict(priority.weights)
    max_age_s = weights.pop("max_age_s")
    period_s = min(priority.period_s, MAX_CALC_PERIOD_S)
    return {"kind": priority.kind, **weights, "max_age": max_age_s, "calc_period_s": period_s}


def _build_fair_share_section(rules: FairShareRules) -> dict[str, object]:
    half_life_days = rules.half_life_s / 86_400
    return {"algorithm": rules.algorithm, "half_life_days": half_life_days, "dampening": rules.dampening}


def _build_preemption_section(config: Mapping[str, str], notes: list[str]) -> dict[str, dict[str, object]]:
    """Return the section `preemption`, which is empty if Slurm does not preempt jobs."""
    kind = config.get("PreemptType", "").removeprefix("preempt/")
    if kind in ("", "none"):
        if "gang" in parse_flags(config.get("PreemptMode", "")):
            notes.append("PreemptMode=GANG is not simulated: jobs do not share nodes in turns")
        return {}
    if kind not in get_args(PreemptionType):
        notes.append(f"PreemptType={config['PreemptType']} is not simulated, so no job is preempted")
        return {}

    notes += _list_mode_notes("the cluster", config.get("PreemptMode", ""))
    rules = parse_preemption(config, SitePolicy()).preemption
    if rules is None or rules.mode == "suspend":
        return {}
    order, unsupported = parse_victim_order(config.get("PreemptParameters", ""), config.get("SchedulerParameters", ""))
    notes += [f"PreemptParameters: {name} is not simulated" for name in unsupported]
    section = {"type": rules.kind, "mode": rules.mode, "exempt_time": rules.exempt_s, **dataclasses.asdict(order)}
    return {"preemption": section}


# ------------------------------------------------------------------------------------------ notes


def _list_config_notes(config: Mapping[str, str]) -> Iterator[str]:
    if config.get("PriorityType", "").rpartition("/")[2] not in ("basic", "multifactor"):
        yield f"PriorityType={config.get('PriorityType', '')} is not simulated; multifactor is used"
    for flag in sorted(parse_flags(config.get("PriorityFlags", ""))):
        if not has_flag(SIMULATED_PRIORITY_FLAGS, flag):
            yield f"PriorityFlags: {flag.upper()} is not simulated"
    if plugin := config.get("PrioritySiteFactorPlugin", "").removesuffix("site_factor/none"):
        yield f"PrioritySiteFactorPlugin: the priorities that {plugin} sets are unknown"
    if (reset := config.get("PriorityUsageResetPeriod", "").upper()) not in ("", "NONE"):
        yield f"PriorityUsageResetPeriod={reset} is not simulated: usage only decays"


def _list_mode_notes(where: str, text: str) -> Iterator[str]:
    """Yield a note for each part of a `PreemptMode` that is not simulated."""
    for word in UNSIMULATED_MODE_WORDS:
        if word in parse_flags(text):
            yield f"PreemptMode of {where}: {word.upper()} is not simulated"
    try:
        mode = parse_preempt_mode(text)
    except InvalidValue:
        yield unsimulated_mode_note(where, text)
    else:
        if mode == "suspend":
            yield unsimulated_mode_note(where, mode)


def _list_partition_notes(
    text: str, policy: SitePolicy, unreadable: Mapping[str, UnreadablePolicyObject], is_preempting: bool
) -> Iterator[str]:
    for _, printed in list_printed_objects(text, "PartitionName"):
        values = PARTITION.parse_fields(printed)
        name = values["PartitionName"]
        for setting, value in values.items():
            if setting not in HARMLESS_PARTITION_SETTINGS and value not in SIMULATED_PARTITION_VALUES.get(setting, ()):
                yield f"partition {name}: {setting}={quote_value(value)} is not simulated"
        if is_preempting:
            yield from _list_mode_notes(f"partition {name}", values.get("PreemptMode", ""))
        if name in unreadable:
            yield f"partition {name}: {quote_value(unreadable[name].rule)}"
        qos = policy.partitions[name].qos
        if qos and qos not in policy.qos:
            yield f"partition {name}: its QOS {qos} is unknown"


def _list_association_notes(text: str) -> Iterator[str]:
    """Yield a note for each limit that is not simulated, with the number of associations that set it."""
    counts = Counter(limit for row in parse_pipe_table(text) for limit in unsupported_limits(row.values))
    for limit, count in counts.items():
        yield f"limit {limit} of {format_count(count, 'association')} is not simulated"


def _list_qos_notes(text: str, is_preempting: bool) -> Iterator[str]:
    for name, setting in list_unmodelled_qos_settings(text, QOS_FLAGS):
        yield f"QOS {name}: {setting} is not simulated"
    for row in parse_pipe_table(text) if is_preempting else ():
        yield from _list_mode_notes(f"QOS {row.values['Name']}", row.values.get("PreemptMode", ""))
