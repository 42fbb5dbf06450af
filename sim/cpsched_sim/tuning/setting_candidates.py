"""The candidate settings of `lookahead`: objectives, run-time models, and others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.goal_presets import PRESETS
from cpsched.policy_spec import PolicySpec
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES

LOOKAHEAD = "lookahead"
RUN_TIME_MODELS: tuple[tuple[str, Mapping[str, str], Mapping[str, str]], ...] = (
    ("walltime", {}, {}),
    ("quantile", {"quantile": "0.5"}, {"reserve_by": "walltime"}),
    ("last-two", {}, {"reserve_by": "walltime"}),
)
"""Run-time models: a predictor, its settings, and the dispatcher's corresponding setting."""
TRIED_OVERDUE_H = 48.0
"""The value of `overdue_h` to try, in hours. It is below the default of one week."""
EFFORT_FACTOR = 4
_MODEL_SETTINGS = ("reserve_by",)
_IGNORED_SETTINGS = ("limit_s", "site_weight")
"""Settings that a replay ignores, because it has neither time limits nor site priorities."""


def list_candidate_settings(present: PolicySpec) -> list[PolicySpec]:
    """Return the current policy and all candidates, without duplicates.

    Candidates keep the other settings of `present` if its dispatcher is `lookahead`.
    """
    own = present if present.dispatcher == LOOKAHEAD else PolicySpec(LOOKAHEAD)
    found: dict[str, PolicySpec] = {}
    for spec in (present, *_iterate_candidate_settings(own)):
        found.setdefault(repr(expand_defaults(spec)), spec)
    return list(found.values())


def _iterate_candidate_settings(own: PolicySpec) -> Iterator[PolicySpec]:
    for predictor, options, extra in RUN_TIME_MODELS:
        for objective in PRESETS:
            kept = {name: each for name, each in own.dispatcher_settings.items() if name not in _MODEL_SETTINGS}
            settings = {**kept, "objective": objective, **extra}
            yield replace(own, predictor=predictor, predictor_settings=options, dispatcher_settings=settings)
    for objective in PRESETS:
        yield _override_settings(own, objective=objective, overdue_h=f"{TRIED_OVERDUE_H:g}")
    row = OBJECTIVES[str(expand_defaults(own)["objective"])]
    effort = own.dispatcher_settings.get("effort")
    yield _override_settings(
        own, effort=str(EFFORT_FACTOR * (row.effort if effort in (None, "", "none") else int(str(effort))))
    )


def _override_settings(spec: PolicySpec, **settings: str) -> PolicySpec:
    return replace(spec, dispatcher_settings={**spec.dispatcher_settings, **settings})


def expand_defaults(spec: PolicySpec) -> dict[str, Any]:
    """Return a policy's parameters, including defaults.

    Equal parameters lead to equal decisions.
    """
    found: dict[str, Any] = {"dispatcher": spec.dispatcher, "predictor": spec.predictor, "overrun": spec.overrun}
    parts = ((SIMULATION_REGISTRIES.dispatchers, spec.dispatcher, spec.dispatcher_settings),
             (SIMULATION_REGISTRIES.predictors, spec.predictor, spec.predictor_settings))  # fmt: skip
    for known, words, settings in parts:
        for parameter in known.find(words).parameters():
            text = settings.get(parameter.name)
            found[parameter.name] = parameter.default if text is None else parameter.parse(text)
    return found


def to_replayable_policy(spec: PolicySpec, seed: int | None = None) -> PolicySpec:
    """Return the policy without settings that a replay ignores.

    If it is randomized, set `seed`.
    """
    kept = {name: each for name, each in spec.dispatcher_settings.items() if name not in _IGNORED_SETTINGS}
    if seed is not None and is_randomized(spec):
        kept["seed"] = str(seed)
    return replace(spec, dispatcher_settings=kept)


def is_randomized(spec: PolicySpec) -> bool:
    """Return whether the dispatcher has a seed."""
    return any(each.name == "seed" for each in SIMULATION_REGISTRIES.dispatchers.find(spec.dispatcher).parameters())


def describe_changes(present: PolicySpec, other: PolicySpec) -> str:
    """Return the changes from `present` to `other` as text.

    An example is `objective=slowdown predictor=quantile`.
    """
    before, now = expand_defaults(present), expand_defaults(other)
    extra = [f"{name}={value}" for name, value in now.items() if before.get(name, None) != value or name not in before]
    return " ".join(extra) or "nothing"
