"""Write the policy file of a collected site, and name the settings that a replay does not have."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import yaml

from cpsched.errors import InvalidValue
from cpsched.formatting import format_count
from cpsched.site.accounts import PARTITION_LIMITS
from cpsched.site.preemption import PreemptionType, PreemptMode
from cpsched.slurm_text.controller_options import find_unmodelled_options
from cpsched.slurm_text.limits import unsupported_limits, unsupported_qos_flags
from cpsched.slurm_text.option_lists import has_flag, parse_c_int, parse_flags
from cpsched.slurm_text.preemption import parse_preempt_mode, parse_victim_order
from cpsched.slurm_text.tables import parse_key_values
from cpsched_sim.errors import quote_value
from cpsched_sim.site.policy_file import unsimulated_mode_note
from cpsched_sim.traces.slurm_durations import is_plain_number, number_to_seconds, parse_slurm_duration_s

Row = Mapping[str, str | None]

SIMULATED_PRIORITY_FLAGS = ("SMALL_RELATIVE_TO_TIME", "NO_FAIR_TREE", "DEPTH_OBLIVIOUS")
SIMULATED_QOS_FLAGS = ("UsageFactorSafe", "OverPartQOS", *PARTITION_LIMITS)
"""Flags of a QOS that a replay has. It has no limits of partitions, because Slurm has accepted its jobs."""
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
ENFORCED: Mapping[str, frozenset[str]] = {"limits": frozenset({"limits", "all"}), "safe": frozenset({"safe", "all"})}
"""Words of `AccountingStorageEnforce` by the word of the policy file."""
UNSIMULATED_MODE_WORDS = ("gang", "within", "priority")
"""Words that Slurm combines with a `PreemptMode`."""


@dataclass(frozen=True, slots=True)
class CollectedPolicy:
    """The text of a policy file, and a sentence for each of the site's settings that it does not have."""

    text: str
    notes: tuple[str, ...]


def build_policy_file(
    config: Mapping[str, str],
    partitions: str,
    qos: Sequence[Row],
    associations: Sequence[Row],
    dumps: Mapping[str, str],
) -> CollectedPolicy:
    """Return the policy file of a site.

    `partitions` is the output of `scontrol -o show partition`, and `qos` and `associations` contain the rows of
    `sacctmgr show`. `dumps` are the names of the files to which the policy file refers.
    """
    notes: list[str] = []
    enforced = parse_flags(config.get("AccountingStorageEnforce", ""))
    preemption = _build_preemption_section(config, notes)
    content = {
        "partitions": dict(
            _build_partition_entries(partitions, {row.get("Name") for row in qos}, bool(preemption), notes)
        ),
        "priority": _build_priority_section(config, notes),
        "fair_share": _build_fair_share_section(config, notes),
        **preemption,
        "enforce": [name for name, words in ENFORCED.items() if words & enforced],
        "dumps": dict(dumps),
    }
    notes += find_unmodelled_options(config)
    notes += _list_association_notes(associations)
    for row in qos:
        notes += _list_qos_notes({name: value or "" for name, value in row.items() if name}, bool(preemption))
    text = "# From Slurm's settings at the time of collection. Correct settings that were different in earlier weeks.\n"
    text += "".join(f"# Not in the replay: {quote_value(note, 500)}\n" for note in notes)
    return CollectedPolicy(text + yaml.safe_dump(content, sort_keys=False), tuple(notes))


def _build_priority_section(config: Mapping[str, str], notes: list[str]) -> dict[str, object]:
    kind = config.get("PriorityType", "").rpartition("/")[2]
    if kind not in ("basic", "multifactor"):
        notes.append(f"PriorityType={config.get('PriorityType', '')} is not simulated; multifactor is used")
    flags = parse_flags(config.get("PriorityFlags", ""))
    for flag in sorted(flags):
        if not has_flag(SIMULATED_PRIORITY_FLAGS, flag):
            notes.append(f"PriorityFlags: {flag.upper()} is not simulated")
    if plugin := config.get("PrioritySiteFactorPlugin", "").removesuffix("site_factor/none"):
        notes.append(f"PrioritySiteFactorPlugin: the priorities that {plugin} sets are unknown")
    period_s = _parse_seconds(config.get("PriorityCalcPeriod", ""))
    weights = {
        "age": "Age", "fair_share": "FairShare", "job_size": "JobSize", "partition": "Partition", "qos": "QOS",
        "association": "Assoc",
    }  # fmt: skip
    return {
        "kind": "basic" if kind == "basic" else "multifactor",
        **{name: max(0, parse_c_int(config.get(f"PriorityWeight{word}", ""))) for name, word in weights.items()},
        "tres": dict(_parse_priority_weight_tres(config.get("PriorityWeightTRES", ""), notes)),
        "max_age": config.get("PriorityMaxAge") or "7-0",
        "favor_small": config.get("PriorityFavorSmall", "").lower() in ("yes", "1", "true"),
        "size_over_time": has_flag(flags, "SMALL_RELATIVE_TO_TIME"),
        **({"calc_period_s": int(period_s)} if period_s and period_s <= 86_400 else {}),
    }


def _build_fair_share_section(config: Mapping[str, str], notes: list[str]) -> dict[str, object]:
    flags = parse_flags(config.get("PriorityFlags", ""))
    algorithm = "classic" if has_flag(flags, "NO_FAIR_TREE") else "fair-tree"
    if has_flag(flags, "DEPTH_OBLIVIOUS"):
        algorithm = "depth-oblivious"
    if (reset := config.get("PriorityUsageResetPeriod", "").upper()) not in ("", "NONE"):
        notes.append(f"PriorityUsageResetPeriod={reset} is not simulated: usage only decays")
    half_life = parse_slurm_duration_days(config.get("PriorityDecayHalfLife", ""))
    dampening = max(1, parse_c_int(config.get("FairShareDampeningFactor", "")))
    return {
        "algorithm": algorithm,
        "half_life_days": 7.0 if half_life is None else half_life,
        **({"dampening": dampening} if dampening > 1 else {}),
    }


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
    mode = _parse_simulated_mode("the cluster", config.get("PreemptMode", ""), notes)
    if mode in (None, "off"):
        return {}
    order, unsupported = parse_victim_order(config.get("PreemptParameters", ""), config.get("SchedulerParameters", ""))
    notes += [f"PreemptParameters: {name} is not simulated" for name in unsupported]
    exempt_time = config.get("PreemptExemptTime", "")
    return {
        "preemption": {"type": kind, "mode": mode, "exempt_time": exempt_time, **dataclasses.asdict(order)}
    }  # fmt: skip


def _parse_simulated_mode(where: str, text: str, notes: list[str]) -> PreemptMode | None:
    """Return a `PreemptMode` that is simulated, "off" for any other one, or None if it is not set."""
    words = parse_flags(text)
    notes += [
        f"PreemptMode of {where}: {word.upper()} is not simulated" for word in UNSIMULATED_MODE_WORDS if word in words
    ]
    try:
        mode = parse_preempt_mode(text)
    except InvalidValue:
        notes.append(unsimulated_mode_note(where, text))
        return "off"
    if mode != "suspend":
        return mode
    notes.append(unsimulated_mode_note(where, mode))
    return "off"


def _parse_priority_weight_tres(text: str, notes: list[str]) -> Iterator[tuple[str, float]]:
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, weight = part.partition("=")
        if re.fullmatch(r"\d+(\.\d+)?", weight):
            yield name.lower(), float(weight)
        else:
            notes.append(f"PriorityWeightTRES: {part} must be NAME=WEIGHT")


def _build_partition_entries(
    text: str, known_qos: set[str | None], is_preempting: bool, notes: list[str]
) -> Iterator[tuple[str, dict[str, object]]]:
    for line in text.split("\n"):
        words = dict(parse_key_values(line))
        if "PartitionName" not in words:
            continue
        name = words["PartitionName"]
        notes += [
            f"partition {name}: {setting}={quote_value(value)} is not simulated"
            for setting, value in words.items()
            if setting not in HARMLESS_PARTITION_SETTINGS and value not in SIMULATED_PARTITION_VALUES.get(setting, ())
        ]
        entry: dict[str, object] = {
            word: int(words[key])
            for word, key in (("tier", "PriorityTier"), ("factor", "PriorityJobFactor"), ("grace_time", "GraceTime"))
            if words.get(key, "").isdecimal()
        }  # fmt: skip
        mode_text = words.get("PreemptMode", "") if is_preempting else ""
        if mode := _parse_simulated_mode(f"partition {name}", mode_text, notes):
            entry["preempt_mode"] = mode
        if words.get("QoS", "N/A") in known_qos:
            entry["qos"] = words["QoS"]
        elif words.get("QoS", "N/A") not in ("N/A", "(null)"):
            notes.append(f"partition {name}: its QOS {words['QoS']} is unknown")
        yield name, entry


def _list_association_notes(rows: Sequence[Row]) -> list[str]:
    """Return a note for each limit that is not simulated, with the number of associations that set it."""
    counts = Counter(
        limit
        for row in rows
        for limit in unsupported_limits({name: value or "" for name, value in row.items() if name})
    )
    return [
        f"limit {limit} of {format_count(count, 'association')} is not simulated" for limit, count in counts.items()
    ]


def _list_qos_notes(row: Mapping[str, str], is_preempting: bool) -> list[str]:
    name = f"QOS {row.get('Name', '')}"
    flags = unsupported_qos_flags(row.get("Flags", ""), SIMULATED_QOS_FLAGS)
    notes = [f"{name}: flag {flag} is not simulated" for flag in flags]
    notes += [f"{name}: limit {limit}={row[limit]} is not simulated" for limit in unsupported_limits(row)]
    if is_preempting:
        _parse_simulated_mode(name, row.get("PreemptMode", ""), notes)
    return notes


def parse_slurm_duration_days(text: str) -> float | None:
    """Parse a Slurm time such as `7-00:00:00` into days.

    Return None if it is not a time or means no limit.
    """
    seconds = _parse_seconds(text)
    return None if seconds is None else seconds / 86_400


def _parse_seconds(text: str) -> float | None:
    try:
        return number_to_seconds(text, 60) if is_plain_number(text) else parse_slurm_duration_s(text)
    except ValueError:
        return None
