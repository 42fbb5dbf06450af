"""What is in force: every setting with its value, and where the value comes from.

Computed once, when a bridge or a command begins. The bridge decides by it; the journal, the page, `cpsched doctor` and
`cpsched policy` tell of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from cpsched.catalogue import DISPATCHERS, PREDICTORS, Catalogue
from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import RAISED, what_happened
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.errors import WrongSetting
from cpsched_bridge.ports import Can, Check
from cpsched_bridge.settings import PolicySettings, Section, Settings

Source = Literal["file", "goal", "adapter", "dispatcher", "predictor", "default"]
"""Who said a value: the settings file, the goal that it names, the adapter (`Can`), the
dispatcher or the predictor; else the program."""
Json = Any

_EXPANDED = ("options", "policy.dispatcher_settings", "policy.predictor_settings")
"""Settings in whose place the settings within them are shown."""
NO_EFFECT = "no effect: "
_IN_CONTROL = ("on_stop", "cycle.max_commands", "start.", "guard.window_s", "guard.fail", "guard.max_failed_decisions")
"""What bears on commands alone, by the beginnings of names."""


_IN_ADVISE_TOO = ("on_stop", "guard.max_failed_decisions")
"""Those of them that bear on mode advise, too."""


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """One setting in force. `note` is what somebody who reads the value should know, such as that it has no effect."""

    name: str
    value: Json
    source: Source
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name}={in_yaml(self.value)} ({self.source})"


@dataclass(frozen=True, slots=True)
class InForce:
    """The policies in force, as they are built and journalled, and every setting of the bridge."""

    policy: PolicySpec
    fallback: PolicySpec | None = None
    rows: tuple[SettingInForce, ...] = ()

    @property
    def deciding(self) -> tuple[SettingInForce, ...]:
        """The rows that bear on decisions; options of the adapter, which may be secret, are not among them."""
        return tuple(row for row in self.rows if row.name.startswith(("mode", "policy.", "adapter")))

    @property
    def without_effect(self) -> tuple[SettingInForce, ...]:
        """The rows that somebody meant, in the file or in the adapter, and that come to nothing beside the others."""
        return tuple(row for row in self.rows if row.note.startswith(NO_EFFECT) and row.source in ("file", "adapter"))

    def in_words(self) -> str:
        """What bears on decisions, in one line."""
        return "; ".join(map(str, self.deciding))

    def checks(self) -> list[Check]:
        """The same as `cpsched doctor` tells it: the policy, and a warning for each setting that comes to nothing."""
        fallback = "nobody" if self.fallback is None else str(self.fallback)
        found = f"{self.policy}; fallback {fallback}; `cpsched policy` shows every setting"
        mend = "take the setting out, or change what it stands beside"
        return [
            Check("policy", True, found),
            *(Check(row.name, False, f"{in_yaml(row.value)}: {row.note}", mend, False) for row in self.without_effect),
        ]


def in_yaml(value: Json) -> str:
    """A value as the settings file spells it."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {in_yaml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(in_yaml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def heeding(spec: PolicySpec, can: Can) -> dict[str, str]:
    """The settings of the dispatcher that the adapter asks for, where `spec` does not say otherwise.

    Where the adapter ranks jobs, a dispatcher that may go by any order goes by the site's, and one that weighs jobs
    gives the site's priorities as much weight as its own objective. A dispatcher that knows a limit in seconds, and has
    none, gets the adapter's.
    """
    offered, found = DISPATCHERS.find(spec.dispatcher).defaults(), dict[str, str]()
    if can.ranks_jobs and offered.get("order") == "reg":
        found["order"] = "priority"
    if can.ranks_jobs and "site_weight" in offered:
        found["site_weight"] = "1"
    if can.decide_s is not None and "limit_s" in offered and offered["limit_s"] is None:
        found["limit_s"] = str(can.decide_s)
    return {name: value for name, value in found.items() if name not in spec.dispatcher_settings}


def for_the_site(spec: PolicySpec, can: Can) -> PolicySpec:
    """The same policy, as the adapter asks for it; see `heeding`."""
    return replace(spec, dispatcher_settings={**heeding(spec, can), **spec.dispatcher_settings})


@dataclass(frozen=True, slots=True)
class _Part:
    """A policy in force: what the file says of it, what it became beside the adapter, and what was built of that."""

    said: PolicySpec
    spec: PolicySpec
    policy: Policy
    of_goal: Collection[str] = ()
    """The dispatcher's settings that a goal stands for."""

    def rows(self, can: Can, prefix: str = "") -> Iterator[SettingInForce]:
        """Its parameters, those of its predictor, and what becomes of jobs that outlive their estimates."""
        spec, heeded = self.spec, heeding(self.said, can)
        idle = _idle(self.policy.dispatcher, ("policy", "dispatcher"), spec.dispatcher)
        for row in _parameters(DISPATCHERS, spec.dispatcher, spec.dispatcher_settings, heeded, "dispatcher"):
            note = _note_of(row, spec, can) or idle.get(row.name, "")
            row = replace(row, source="goal") if row.name in self.of_goal else row
            yield replace(row, name=f"policy.{prefix or 'dispatcher_settings.'}{row.name}", note=note)
        if not prefix:
            for row in _parameters(PREDICTORS, spec.predictor, spec.predictor_settings, (), "predictor"):
                yield replace(row, name=f"policy.predictor_settings.{row.name}")
        source: Source = "dispatcher" if spec.overrun is None else "file"
        yield SettingInForce(f"policy.{prefix}overrun", self.policy.overrun, source)


def in_force(
    settings: Settings,
    options: Section,
    can: Can,
    said: PolicySpec,
    policy: Policy,
    fallback: Policy | None,
) -> InForce:
    """What is in force beside an adapter with these `options`; the policies are those that were built of the settings.

    `said` is the policy as the settings say it.
    """
    first = _Part(said, for_the_site(said, can), policy, settings.policy.of_goal())
    second = None
    if fallback is not None:
        second = _Part(settings.policy.fallback_spec(), for_the_site(settings.policy.fallback_spec(), can), fallback)
    idle = {
        **_idle(settings, ("mode",), settings.mode),
        **{f"options.{name}": why for name, why in _idle(options, ("adapter",), settings.adapter).items()},
    }
    chosen, own = list(first.rows(can)), "policy.dispatcher_settings."
    parameters = {row.name.removeprefix(own): row.value for row in chosen if row.name.startswith(own)}
    rows = [
        *(
            _wanted(_beside_mode(row, settings), settings.policy, parameters)
            for row in _rows(settings, idle)
            if row.name != "policy.overrun"
        ),
        *_rows(options, idle, "options."),
        *chosen,
        *(second.rows(can, "fallback.") if second is not None else ()),
        *_of_the_adapter(can, said, parameters),
    ]
    return InForce(first.spec, None if second is None else second.spec, tuple(rows))


def _wanted(row: SettingInForce, policy: PolicySettings, parameters: Collection[str]) -> SettingInForce:
    """The goal and its limits as they are in force, where the file does not name them."""
    if row.name not in ("policy.goal", "policy.limits") or row.value is not None:
        return row
    if "objective" not in parameters:
        return replace(row, note=f"{policy.dispatcher} knows no goal")
    if policy.goal is None and "objective" in policy.dispatcher_settings:
        return replace(row, note="an objective is named in its place")
    if row.name == "policy.goal":
        return replace(row, note="the dispatcher's own objective decides")
    return replace(row, value=dict(policy.wanted().limits), source="goal")


def _beside_mode(row: SettingInForce, settings: Settings) -> SettingInForce:
    if settings.mode != "advise" and row.name.startswith("advise."):
        return replace(row, note="counts in mode advise")
    sends = settings.mode != "control" and row.name.startswith(_IN_CONTROL)
    sends = sends and not (settings.mode == "advise" and row.name in _IN_ADVISE_TOO)
    return replace(row, note="counts in mode control") if sends else row


def _idle(thing: Dispatcher | Section, where: tuple[str, ...], words: str) -> dict[str, str]:
    """What has no effect by the words of dispatcher or options; raises `WrongSetting` where asking for that fails."""
    try:
        return {name: f"{NO_EFFECT}{why}" for name, why in thing.without_effect().items()}
    except RAISED as error:
        raise WrongSetting(where, words, f"cannot tell what has no effect: {what_happened(error)}") from error


def _rows(section: Section, idle: Mapping[str, str], prefix: str = "") -> Iterator[SettingInForce]:
    """The settings of a section; what has no effect is said of values that somebody meant, other than the default."""
    plain = section.model_dump(mode="json")
    if isinstance(section, Settings):
        plain["heartbeat"] = str(section.heartbeat_path)
    for name, field in type(section).model_fields.items():
        value, full = getattr(section, name), f"{prefix}{name}"
        if isinstance(value, Section):
            yield from _rows(value, idle, f"{full}.")
        elif full not in _EXPANDED:
            said = name in section.model_fields_set
            meant = said and value != field.get_default(call_default_factory=True)
            yield SettingInForce(full, plain[name], "file" if said else "default", idle.get(full, "") if meant else "")


def _parameters(
    known: Catalogue[Any], words: str, settings: Mapping[str, str], heeded: Collection[str], own: Source
) -> Iterator[SettingInForce]:
    """What a dispatcher or a predictor was made with, by parameter."""
    for parameter in known.find(words).parameters():
        name = parameter.name
        if name in settings:
            yield SettingInForce(name, _plain(parameter.parse(settings[name])), "adapter" if name in heeded else "file")
        else:
            yield SettingInForce(name, _plain(parameter.default), own)


def _plain(value: object) -> Json:
    """A parameter's value as JSON can say it: what is no text, flag or finite number is spelled."""
    said = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    return value if said else str(value)


def _note_of(row: SettingInForce, spec: PolicySpec, can: Can) -> str:
    """Why a parameter of the dispatcher has no effect beside adapter and predictor; empty where it has one."""
    ranked = (row.name == "site_weight" and row.value) or (row.name, row.value) == ("order", "priority")
    if ranked and not can.ranks_jobs:
        return f"{NO_EFFECT}the adapter ranks no jobs"
    if (row.name, row.value) == ("reserve_by", "walltime") and spec.predictor == "walltime":
        return f"{NO_EFFECT}the predictor's estimates are the walltimes"
    return ""


def _of_the_adapter(can: Can, said: PolicySpec, chosen: Mapping[str, Json]) -> Iterator[SettingInForce]:
    """What the adapter can do, and whether the dispatcher with these `chosen` parameters makes use of it."""
    heeds = chosen.get("order") == "priority" or bool(chosen.get("site_weight"))
    declined = {"order", "site_weight"} & said.dispatcher_settings.keys()
    deaf = can.ranks_jobs and not heeds and not declined
    unbound = can.decide_s is not None and "limit_s" not in chosen
    ranks = f"{NO_EFFECT}{said.dispatcher} ranks by itself" if deaf else ""
    yield SettingInForce("adapter.ranks_jobs", can.ranks_jobs, "adapter", ranks)
    yield SettingInForce("adapter.tells_limits", can.tells_limits, "adapter")
    yield SettingInForce(
        "adapter.decide_s", can.decide_s, "adapter", f"{said.dispatcher} knows no limit" if unbound else ""
    )
