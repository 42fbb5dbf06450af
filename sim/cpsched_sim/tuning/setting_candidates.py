"""The settings that are tried: about twenty, of all parts of `lookahead` and its model of run times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.goal_presets import PRESETS
from cpsched.policy_spec import PolicySpec
from cpsched_sim.oracle import SIMULATION_REGISTRIES

LOOKAHEAD = "lookahead"
MODELS: tuple[tuple[str, Mapping[str, str], Mapping[str, str]], ...] = (
    ("walltime", {}, {}),
    ("quantile", {"quantile": "0.5"}, {"reserve_by": "walltime"}),
    ("last-two", {}, {"reserve_by": "walltime"}),
)
"""What is known of run times: a predictor, its settings, and what the dispatcher is told of it."""
OVERDUE_H = 48.0
"""A shorter patience than the default of a week."""
MORE_EFFORT = 4
_OF_MODELS = ("reserve_by",)
_NOT_REPLAYED = ("limit_s", "site_weight")
"""Settings that a replay cannot heed: it knows no seconds of this machine, and no priorities of the site."""


def candidates(present: PolicySpec) -> list[PolicySpec]:
    """The present setting, then others, each once; settings that are not varied stay as they are at present."""
    own = present if present.dispatcher == LOOKAHEAD else PolicySpec(LOOKAHEAD)
    found: dict[str, PolicySpec] = {}
    for spec in (present, *_varied(own)):
        found.setdefault(repr(in_full(spec)), spec)
    return list(found.values())


def _varied(own: PolicySpec) -> Iterator[PolicySpec]:
    for predictor, options, told in MODELS:
        for objective in OBJECTIVES:
            kept = {name: each for name, each in own.dispatcher_settings.items() if name not in _OF_MODELS}
            settings = {**kept, "objective": objective, **told}
            yield replace(own, predictor=predictor, predictor_settings=options, dispatcher_settings=settings)
    for stop in PRESETS.values():
        yield _with(own, objective=stop.objective, overdue_h=f"{OVERDUE_H:g}")
    row = OBJECTIVES[str(in_full(own)["objective"])]
    effort = own.dispatcher_settings.get("effort")
    yield _with(own, effort=str(MORE_EFFORT * (row.effort if effort in (None, "", "none") else int(str(effort)))))


def _with(spec: PolicySpec, **settings: str) -> PolicySpec:
    return replace(spec, dispatcher_settings={**spec.dispatcher_settings, **settings})


def in_full(spec: PolicySpec) -> dict[str, Any]:
    """Everything that a policy is made with, defaults included: two specs that agree in it decide alike."""
    found: dict[str, Any] = {"dispatcher": spec.dispatcher, "predictor": spec.predictor, "overrun": spec.overrun}
    parts = ((SIMULATION_REGISTRIES.dispatchers, spec.dispatcher, spec.dispatcher_settings),
             (SIMULATION_REGISTRIES.predictors, spec.predictor, spec.predictor_settings))  # fmt: skip
    for known, words, settings in parts:
        for parameter in known.find(words).parameters():
            text = settings.get(parameter.name)
            found[parameter.name] = parameter.default if text is None else parameter.parse(text)
    return found


def replayable(spec: PolicySpec, seed: int | None = None) -> PolicySpec:
    """The spec without what a replay cannot heed, drawing with another seed where it draws at all."""
    kept = {name: each for name, each in spec.dispatcher_settings.items() if name not in _NOT_REPLAYED}
    if seed is not None and draws(spec):
        kept["seed"] = str(seed)
    return replace(spec, dispatcher_settings=kept)


def draws(spec: PolicySpec) -> bool:
    """Whether the dispatcher knows a seed."""
    return any(each.name == "seed" for each in SIMULATION_REGISTRIES.dispatchers.find(spec.dispatcher).parameters())


def changes(present: PolicySpec, other: PolicySpec) -> str:
    """What `other` has otherwise than `present`, for people: `objective=slowdown predictor=quantile`."""
    before, now = in_full(present), in_full(other)
    told = [f"{name}={value}" for name, value in now.items() if before.get(name, None) != value or name not in before]
    return " ".join(told) or "nothing"
