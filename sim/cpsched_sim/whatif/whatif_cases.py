"""Parse the cases of a what-if study: policies with changes to the site.

    lookahead objective=slowdown
    advise / quantile
    slurm scheduler_parameters=bf_interval=60
    slurm add-nodes=20 like=cpu16-62g
    slurm remove-partition=old into=main
    lookahead walltimes=0.5
    control interval=10 lag=2

Changes to the site have the same syntax as settings of the dispatcher and the predictor. The default dispatcher is the
twin of Slurm's scheduler. `advise` and `control` are modes of the bridge: each selects a dispatcher and the bridge's
defaults for it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from math import ceil
from pathlib import Path

from cpsched.dispatchers.slurm.scheduler_parameters import (
    BOUNDS,
    check_scheduler_parameters,
)
from cpsched.errors import InvalidValue, UnknownName, did_you_mean, join_abbreviated, require
from cpsched.formatting import format_count
from cpsched.policy_spec import PolicySpec, setting_names
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES
from cpsched_sim.errors import quote_value
from cpsched_sim.site.policy_file import load_site_policy_file
from cpsched_sim.systems.system_file import SystemFile
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.whatif.whatif_window import WhatIfWindow, move_window_to_system

TWIN_DISPATCHER = "slurm"
SLURM_STARTED = (TWIN_DISPATCHER, "advised")
"""Dispatchers under which Slurm starts the jobs."""
_MAX_NAMES = 5
INTERVAL, LAG = "interval", "lag"
MAX_DELAY_S = 3600
"""Maximum interval and lag, in seconds."""
BRIDGE_INTERVAL_S = 1
"""Default of the bridge's setting `cycle.interval_s`, in seconds."""
BRIDGE_LAG_S = 0.7
"""Additional delay (s) of a start under a bridge after its nodes become free. It is the difference of the midpoints of
1.2 to 2.1 s with the bridge and 0.8 to 1.1 s with Slurm alone (docs/evidence.md, forecasts and live runs).
"""
LEAST_STRANDED = "least-stranded-gpus"
CHANGE_OPTIONS = (
    "add-nodes", "like", "remove-partition", "into", "walltimes", "policy", LEAST_STRANDED, INTERVAL, LAG,
)  # fmt: skip
SEARCH_SEEDS, PARAMETERS, SITE_WEIGHT = "seed", "scheduler_parameters", "site_weight"


@dataclass(frozen=True, slots=True)
class DecisionTiming:
    """The interval and lag of decisions, as of a bridge in control mode.

    In a replay without an interval, a dispatcher decides in each second with an event, and its starts take effect
    immediately. A bridge decides once per interval: it reads the state, decides, releases jobs and waits for Slurm.
    Meanwhile, the nodes are idle.

    - `interval_s`: decisions are made at multiples of this interval; 0 means in each second with an event. The values 0
      and 1 are equivalent, because a replay has a resolution of one second.
    - `lag_s`: the mean delay of a start after its decision. Each delay is a whole number of seconds.
    """

    interval_s: int = 0
    lag_s: float = 0.0

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> DecisionTiming:
        """Parse the interval and lag in a case's settings. Raise `InvalidValue`."""
        return cls(int(_parse_seconds(texts, INTERVAL, whole=True)), _parse_seconds(texts, LAG, whole=False))

    @property
    def timing_text(self) -> str:
        """Describe the interval and lag for a report."""
        look = f"a round every {self.interval_s} s" if self.interval_s else "a round at every event"
        return f"{look}, starts {self.lag_s:g} s later" if self.lag_s else look


def _parse_seconds(texts: Mapping[str, str], name: str, whole: bool) -> float:
    text = texts.get(name, "0")
    try:
        value = float(int(text) if whole else float(text))
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_DELAY_S:
        raise InvalidValue(
            name, text, f"must be a {'whole ' if whole else ''}number of seconds from 0 to {MAX_DELAY_S}"
        )
    return value


@dataclass(frozen=True, slots=True)
class SimulatedBridgeMode:
    """A mode of the bridge: its dispatcher, and defaults that a case may override.

    `beside_a_site` contains the settings that the bridge adds if it knows the site's priorities.
    """

    dispatcher: str
    settings: Mapping[str, str]
    pace: Mapping[str, str]
    beside_a_site: Mapping[str, str]


SIMULATED_MODES = {
    "advise": SimulatedBridgeMode("advised", {"every_s": "30"}, {}, {SITE_WEIGHT: "1"}),
    "control": SimulatedBridgeMode(
        "lookahead", {}, {INTERVAL: f"{BRIDGE_INTERVAL_S}", LAG: f"{BRIDGE_LAG_S}"}, {SITE_WEIGHT: "1"}
    ),
}
"""The modes, with the bridge's defaults for `advise.every_s` and `cycle.interval_s` and the measured lag."""


@dataclass(frozen=True, slots=True)
class WhatIfCase:
    """One case to replay.

    `changes` maps names in `CHANGE_OPTIONS` to text. `mode` is a key of `SIMULATED_MODES`, or "".
    """

    name: str
    spec: PolicySpec
    changes: Mapping[str, str] = field(default_factory=dict)
    mode: str = ""

    @classmethod
    def parse(cls, text: str) -> WhatIfCase:
        """Parse a case. Raise `InvalidValue` or `UnknownName` before any replay."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise InvalidValue("--with", text, f"must be quoted as in a shell: {error}") from error
        changes: dict[str, str] = {}
        rest: list[str] = []
        for word in words:
            name, equals, value = word.partition("=")
            if equals and name in CHANGE_OPTIONS:
                require(bool(value), name, value, "must have a value")
                changes[name] = value
            else:
                rest.append(word)
        mode = rest[0] if rest and rest[0] in SIMULATED_MODES else ""
        if mode:
            rest[0] = SIMULATED_MODES[mode].dispatcher
        named = bool(rest) and "=" not in rest[0]
        spelled = " ".join(shlex.quote(word) for word in rest)
        try:
            spec = PolicySpec.parse(spelled if named else f"{TWIN_DISPATCHER} {spelled}", SIMULATION_REGISTRIES)
        except UnknownName as error:
            _raise_clearer_unknown_name(error)
            raise
        if mode:
            spec = _add_default_settings(spec, SIMULATED_MODES[mode].settings)
        check_scheduler_parameters(spec.dispatcher_settings.get(PARAMETERS, ""))
        _check_changes(changes, spec)
        return cls(" ".join(text.split()), spec, changes, mode)

    @property
    def bridge_timing(self) -> DecisionTiming:
        """Return the pace that the case sets, with defaults from its mode."""
        return DecisionTiming.of({**self._default_bridge_timing, **self.changes})

    @property
    def bridge_timing_description(self) -> str:
        """Return a description of the pace and its assumptions for a report."""
        by = {INTERVAL: "the bridge's default", LAG: "measured on a live bridge"}
        assumed = [f"{name}: {by[name]}" for name in self._default_bridge_timing if name not in self.changes]
        return self.bridge_timing.timing_text + (f" (assumed; {', '.join(assumed)})" if assumed else "")

    @property
    def _default_bridge_timing(self) -> Mapping[str, str]:
        return SIMULATED_MODES[self.mode].pace if self.mode else {}

    def policies_by_seed(self, count: int) -> tuple[PolicySpec, ...]:
        """Return one policy per seed.

        Return only one policy if the dispatcher is not randomized or the case sets its seed.
        """
        listing = SIMULATION_REGISTRIES.dispatchers.find(self.spec.dispatcher)
        if SEARCH_SEEDS not in setting_names(listing) or SEARCH_SEEDS in self.spec.dispatcher_settings:
            return (self.spec,)
        settings = self.spec.dispatcher_settings
        return tuple(
            replace(self.spec, dispatcher_settings={**settings, SEARCH_SEEDS: str(seed)}) for seed in range(count)
        )

    def added_nodes_hint(self, window: WhatIfWindow) -> str:
        """Return a hint if most judged jobs cannot use the added nodes, or ""."""
        file = window.system
        if "add-nodes" not in self.changes or not file.node_types:
            return ""
        kind = _find_node_type(file, self.changes.get("like", ""))
        shut = {name for name, kinds in file.partitions.items() if kind not in kinds}
        asks = list(compress(window.asks, window.is_judged.tolist()))
        apart = Counter(ask.partition for ask in asks if ask.partition in shut)
        if 2 * apart.total() <= len(asks):
            return ""
        names = join_abbreviated([name for name, _ in apart.most_common()], _MAX_NAMES, text=quote_value)
        return (
            f"{self.name}: {apart.total():,} of {format_count(len(asks), 'job')} are in partitions "
            f"without nodes like {kind} ({names}), so they cannot use the new nodes"
        )

    def apply_to_window(self, window: WhatIfWindow) -> WhatIfWindow:
        """Return the window with the case's changes.

        Raise `InvalidValue`, or an exception from reading a policy file.
        """
        changes = self.changes
        if "add-nodes" in changes:
            window = _add_nodes(window, int(changes["add-nodes"]), changes.get("like", ""))
        if "remove-partition" in changes:
            window = _remove_partition(window, changes["remove-partition"], changes.get("into", ""))
        if "walltimes" in changes:
            window = replace(window, jobs=_scale_walltimes(window, float(changes["walltimes"])))
        if "policy" in changes:
            site, jobs = load_site_policy_file(Path(changes["policy"])).with_users_of(window.jobs)
            window = replace(window, site=site, jobs=jobs)
        return replace(window, least_stranded_gpus=changes.get(LEAST_STRANDED) == "true")


def _raise_clearer_unknown_name(error: UnknownName) -> None:
    """Raise `InvalidValue` with a hint for an unknown name.

    The name may be a parameter of slurm.conf, or resemble a mode or a change.
    """
    name = error.name.lower()
    if name.startswith("priority"):
        rule = (
            "is part of the site policy: change it in a copy of the policy file, and pass the copy with --with-policy"
        )
        raise InvalidValue("setting", error.name, rule) from error
    if name in BOUNDS:
        raise InvalidValue("setting", error.name, f"must be given as {PARAMETERS}={name}=NUMBER") from error
    if meant := did_you_mean(name, SIMULATED_MODES if error.kind == "dispatcher" else CHANGE_OPTIONS):
        raise InvalidValue("--with", error.name, f"is not known{meant}") from error


def _add_default_settings(spec: PolicySpec, settings: Mapping[str, str]) -> PolicySpec:
    """Add these settings to the dispatcher, unless they are already set."""
    return replace(spec, dispatcher_settings={**settings, **spec.dispatcher_settings})


def _check_changes(changes: Mapping[str, str], spec: PolicySpec) -> None:
    least = changes.get(LEAST_STRANDED, "true")
    require(least in ("true", "false"), LEAST_STRANDED, least, "must be true or false")
    paced = [name for name in (INTERVAL, LAG, LEAST_STRANDED) if name in changes]
    if paced and spec.dispatcher in SLURM_STARTED:
        rule = f"applies to a bridge that starts jobs; under {spec.dispatcher}, Slurm starts them at its own pace"
        raise InvalidValue(paced[0], changes[paced[0]], rule)
    DecisionTiming.of(changes)
    if (count := changes.get("add-nodes")) is not None:
        require(
            count.isdecimal() and 0 < int(count) <= 10**6,
            "add-nodes",
            count,
            "must be a whole number from 1 to 1,000,000",
        )
    if (part := changes.get("walltimes")) is not None:
        try:
            right = 0 < float(part) <= 1
        except ValueError:
            right = False
        require(right, "walltimes", part, "must be a fraction of the limits, above 0 and at most 1")
    for name, needs in (("like", "add-nodes"), ("into", "remove-partition")):
        require(name not in changes or needs in changes, name, changes.get(name), f"requires {needs}")


def _add_nodes(window: WhatIfWindow, count: int, like: str) -> WhatIfWindow:
    """Add nodes of one type.

    `like` is the type or the name of one of its nodes. The default is the system's only type.
    """
    file = window.system
    if not file.node_types:
        known = next((name for name in ("MaxProcs", "MaxNodes") if window.header.get(name)), "MaxProcs")
        more = int(window.header[known].split()[0]) + count
        return move_window_to_system(replace(window, header={**window.header, known: str(more)}), file, window.asks, {})
    name = _find_node_type(file, like)
    kind = file.node_types[name]
    types = {**file.node_types, name: kind.model_copy(update={"count": kind.count + count})}
    return move_window_to_system(window, file.model_copy(update={"node_types": types}), window.asks, {})


def _find_node_type(file: SystemFile, like: str) -> str:
    kinds = list(file.node_types)
    found = [kind for kind in kinds if like in (kind, "") or _belongs_to_node_type(file, kind, like)]
    rule = f"must be a node type of {file.name}, or the name of a node: {', '.join(kinds)}"
    require(len(found) == 1, "like", like or "(not given)", rule)
    return found[0]


def _belongs_to_node_type(file: SystemFile, kind: str, node: str) -> bool:
    """Return whether a node's name (a prefix and digits) belongs to a node type."""
    prefix = file.node_types[kind].prefix or kind
    alone = sum((other.prefix or name) == prefix for name, other in file.node_types.items()) == 1
    return alone and node.startswith(prefix) and node[len(prefix) :].isdecimal()


def _remove_partition(window: WhatIfWindow, partition: str, into: str) -> WhatIfWindow:
    """Remove a partition. Move its nodes and jobs to another partition.

    The default of `into` is the partition with the most nodes.
    """
    file = window.system
    others = {name: types for name, types in file.partitions.items() if name != partition}
    known = ", ".join(file.partitions) or "it has none"
    require(partition in file.partitions, "remove-partition", partition, f"must be a partition of {file.name}: {known}")
    require(bool(others), "remove-partition", partition, "is the only partition")
    largest = max(others, key=lambda name: sum(file.node_types[kind].count for kind in others[name]))
    into = into or largest
    require(into in others, "into", into, f"must be another partition of {file.name}: {', '.join(others)}")
    joined = tuple(dict.fromkeys((*others[into], *file.partitions[partition])))
    smaller = file.model_copy(update={"partitions": {**others, into: joined}})
    asks = [ask._replace(partition=into) if ask.partition == partition else ask for ask in window.asks]
    return move_window_to_system(window, smaller, asks, {partition: into})


def _scale_walltimes(window: WhatIfWindow, part: float) -> list[TraceJob]:
    """Scale the jobs' time limits by a factor, but never below the real run times."""
    found = []
    for item in window.jobs:
        limit_s = max(item.run_s, ceil(part * item.job.walltime_s))
        found.append(replace(item, job=replace(item.job, walltime_s=min(limit_s, item.job.walltime_s) or 1)))
    return found


def build_whatif_cases(
    texts: Sequence[str], settings: Sequence[str], changes: Mapping[str, str], policy: str | None
) -> list[WhatIfCase]:
    """Return the cases on a command line.

    There is one per `--with`, one for all `--set`, and one per other change.
    """
    spelled = list(texts)
    if settings:
        spelled.append(" ".join(shlex.quote(word) for word in settings))
    if policy is not None:
        spelled.append(f"policy={shlex.quote(policy)}")
    pairs = (("add-nodes", "like"), ("remove-partition", "into"), ("walltimes", ""))
    for first, second in pairs:
        if first in changes:
            more = f" {second}={shlex.quote(changes[second])}" if second in changes else ""
            spelled.append(f"{first}={shlex.quote(changes[first])}{more}")
    return [WhatIfCase.parse(text) for text in dict.fromkeys(spelled)]


def with_slurm_config_file(case: WhatIfCase, config: Path | None) -> WhatIfCase:
    """Add Slurm's parameters from a file.

    Return the case unchanged if its dispatcher accepts no such file, or if the case sets one.
    """
    settings = dict(case.spec.dispatcher_settings)
    names = setting_names(SIMULATION_REGISTRIES.dispatchers.find(case.spec.dispatcher))
    if config is None or "config_file" not in names or "config_file" in settings:
        return case
    settings["config_file"] = str(config)
    return replace(case, spec=replace(case.spec, dispatcher_settings=settings))


def add_site_priority_settings(case: WhatIfCase) -> WhatIfCase:
    """Add the settings that the bridge adds if it knows the site's priorities."""
    return (
        replace(case, spec=_add_default_settings(case.spec, SIMULATED_MODES[case.mode].beside_a_site))
        if case.mode
        else case
    )
