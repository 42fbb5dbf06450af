"""Compute the effective settings, with values and sources, once at the start.

Decisions use the settings; the journal, the page, `cpsched doctor` and `cpsched config` show them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.goal_presets import DEFAULT_GOAL
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.registration import Registration
from cpsched.registry import DISPATCHERS, PREDICTORS
from cpsched_bridge.ports import Capabilities, ReadinessCheck
from cpsched_bridge.settings import Section, Settings

Source = Literal["file", "goal", "adapter", "dispatcher", "predictor", "default"]
"""Source of a value: the settings file, its goal, the adapter (`Capabilities`), the dispatcher or the predictor.
Otherwise it is the program's default."""
Json = Any

_EXPANDED_SETTINGS = ("options", "policy.dispatcher_settings", "policy.predictor_settings")
"""Settings whose parts are shown as separate settings."""


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One effective setting."""

    name: str
    value: Json
    source: Source

    def __str__(self) -> str:
        return f"{self.name}={to_yaml(self.value)} ({self.source})"


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """The policies as built and recorded, and every setting of the bridge."""

    policy: PolicySpec
    fallback: PolicySpec | None = None
    rows: tuple[EffectiveSetting, ...] = ()

    @property
    def decision_settings(self) -> tuple[EffectiveSetting, ...]:
        """The settings that affect decisions, without `options`, which may be secret."""
        return tuple(row for row in self.rows if row.name.startswith(("mode", "policy.", "adapter")))

    @property
    def easy_ratio_targets(self) -> dict[str, float]:
        """The largest permitted ratios to EASY, by name, or {} without targets."""
        name = self.policy.dispatcher_settings.get("objective", DEFAULT_GOAL)
        return OBJECTIVES[name].ratio_targets if self.policy.dispatcher == "lookahead" and name in OBJECTIVES else {}

    def format_decision_settings(self) -> str:
        """Return the settings that affect decisions, in one line."""
        return "; ".join(map(str, self.decision_settings))

    def check(self) -> ReadinessCheck:
        """Return the policy as a check for `cpsched doctor`."""
        fallback = "none" if self.fallback is None else str(self.fallback)
        return ReadinessCheck(
            "policy", True, f"{self.policy}; fallback {fallback}; `cpsched config` shows every setting"
        )


def to_yaml(value: Json) -> str:
    """Return a value in the spelling of the settings file."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {to_yaml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_yaml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def build_effective_config(
    settings: Settings, options: Section, can: Capabilities, policy: Policy, fallback: Policy | None
) -> EffectiveConfig:
    """Return the effective settings with the adapter's `options`. The policies were built from the settings."""
    section = settings.policy
    spec = section.to_spec(can)
    dispatcher_sources: dict[str, Source] = {
        **dict.fromkeys(spec.dispatcher_settings, "adapter"),
        **dict.fromkeys(section.dispatcher_settings, "file"),
        **dict.fromkeys(section.derive_goal_settings(), "goal"),
    }
    predictor_sources: dict[str, Source] = dict.fromkeys(section.predictor_settings, "file")
    overrun_source: Source = "dispatcher" if section.overrun is None else "file"
    rows = [
        *(row for row in _list_settings(settings) if row.name != "policy.overrun"),
        *_list_settings(options, "options."),
        *_list_parameters(
            DISPATCHERS.find(spec.dispatcher),
            spec.dispatcher_settings,
            dispatcher_sources,
            "policy.dispatcher_settings.",
            "dispatcher",
        ),
        *_list_parameters(
            PREDICTORS.find(spec.predictor),
            spec.predictor_settings,
            predictor_sources,
            "policy.predictor_settings.",
            "predictor",
        ),
        EffectiveSetting("policy.overrun", policy.overrun, overrun_source),
    ]
    fallback_spec = None
    if fallback is not None:
        fallback_spec = section.to_fallback_spec(can)
        rows += _list_parameters(
            DISPATCHERS.find(fallback_spec.dispatcher),
            fallback_spec.dispatcher_settings,
            dict.fromkeys(fallback_spec.dispatcher_settings, "adapter"),
            "policy.fallback.",
            "dispatcher",
        )
        rows.append(EffectiveSetting("policy.fallback.overrun", fallback.overrun, overrun_source))
    rows += [
        EffectiveSetting("adapter.ranks_jobs", can.priorities, "adapter"),
        EffectiveSetting("adapter.reports_limits", can.limits, "adapter"),
        EffectiveSetting("adapter.decide_s", can.decision_limit_s, "adapter"),
    ]
    return EffectiveConfig(spec, fallback_spec, tuple(rows))


def _list_settings(section: Section, prefix: str = "") -> Iterator[EffectiveSetting]:
    """Yield the settings in a section."""
    plain = section.model_dump(mode="json")
    if isinstance(section, Settings):
        plain["heartbeat"] = str(section.heartbeat_path)
    for name in type(section).model_fields:
        value, full = getattr(section, name), f"{prefix}{name}"
        if isinstance(value, Section):
            yield from _list_settings(value, f"{full}.")
        elif full not in _EXPANDED_SETTINGS:
            yield EffectiveSetting(full, plain[name], "file" if name in section.model_fields_set else "default")


def _list_parameters(
    plugin: Registration, settings: Mapping[str, str], sources: Mapping[str, Source], prefix: str, own: Source
) -> Iterator[EffectiveSetting]:
    """Yield the parameters of a dispatcher or a predictor. `own` is the source of those that are not set."""
    for parameter in plugin.parameters():
        name, value = parameter.name, parameter.default
        if name in settings:
            value = parameter.parse(settings[name])
        yield EffectiveSetting(f"{prefix}{name}", _to_plain_json(value), sources.get(name, own))


def _to_plain_json(value: object) -> Json:
    """Return a parameter's value as JSON; values other than scalars become text."""
    is_scalar = (
        value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    )
    return value if is_scalar else str(value)
