"""Define the goals of a site, from short waits to early starts of large jobs.

A preset selects the objective of `lookahead` that has the same name. The objectives `waits` and `balance` have targets
relative to `easy`. *Weights* and *limits* define how two configurations are compared: by metrics, each as a percentage
of a baseline on the same jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cpsched.errors import InvalidValue, UnknownName, require

GOAL_METRICS = {
    "mean_wait": "mean wait",
    "bsld": "mean bounded slowdown",
    "af": "mean response time",
    "awf": "mean response time weighted by area",
    "p2sf": "per-area slowdown of level 2",
    "longest": "longest wait",
}
"""The metrics that a goal can weigh or limit; lower is better for all."""
DEFAULT_GOAL = "balance"
"""The default goal."""
WEIGHTS_GOAL = "weights"
"""The name of a goal that is defined by weights, not by a preset."""
NO_LIMITS = "none"
MAX_PERCENT = 10_000.0

_RATIO_OFFSETS = {"mean_wait": 1.0, "longest": 60.0}
"""Seconds added to both numbers of a ratio. Otherwise, waits of 1 s and 2 s would differ by a factor of 2."""


@dataclass(frozen=True, slots=True)
class GoalPreset:
    """A named goal with weights and limits; `lookahead` has an objective of this name."""

    name: str
    sentence: str
    weights: Mapping[str, float]
    limits: Mapping[str, float]


PRESETS: dict[str, GoalPreset] = {
    stop.name: stop
    for stop in (
        GoalPreset(
            "waits",
            "Short waits for many: small and short jobs first, large jobs may wait longer",
            {"mean_wait": 1.0, "bsld": 1.0},
            {"longest": 150.0},
        ),
        GoalPreset(
            DEFAULT_GOAL,
            "A compromise: shorter waits than in arrival order, at no job class's expense",
            {"mean_wait": 1.0, "bsld": 1.0, "awf": 1.0, "p2sf": 1.0},
            {"awf": 103.0, "longest": 110.0},
        ),
        GoalPreset(
            "large-jobs",
            "Large jobs and high utilization: jobs with the most work wait least relative to their size",
            {"awf": 1.0, "p2sf": 1.0},
            {"longest": 110.0},
        ),
    )
}
"""The presets, from short waits to large jobs."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a site: weights, and limits in percent of the baseline, by metric.

    The metrics are keys of `GOAL_METRICS`.

    >>> goal = Goal.of("waits", {"awf": "103 %"})
    >>> goal.objective, dict(goal.limits)
    ('waits', {'awf': 103.0})
    >>> goal.score({"mean_wait": 0.5, "bsld": 0.5, "awf": 2.0})
    0.5
    >>> Goal.of({"awf": 2, "p2sf": 1}).objective
    'large-jobs'
    """

    name: str = DEFAULT_GOAL
    weights: Mapping[str, float] = field(default_factory=lambda: PRESETS[DEFAULT_GOAL].weights)
    limits: Mapping[str, float] = field(default_factory=lambda: PRESETS[DEFAULT_GOAL].limits)

    @classmethod
    def of(
        cls, goal: str | Mapping[str, float] | None = None, limits: str | Mapping[str, str | float] | None = None
    ) -> Goal:
        """Return the goal for the name of a preset, or for weights by metric.

        `limits` are percentages, as numbers or text such as `103 %`, or the word `none`. By default, the limits of the
        preset apply, or those of the nearest preset if `goal` contains weights. Raise `UnknownName` for an unknown
        preset or metric, and `InvalidValue` for a number out of range.
        """
        if goal is None or isinstance(goal, str):
            stop = _find_preset(DEFAULT_GOAL if goal is None else goal)
            name, weights = stop.name, stop.weights
        else:
            name, weights = WEIGHTS_GOAL, _check_weights(goal)
            stop = _nearest_preset(weights)
        return cls(name, weights, stop.limits if limits is None else _parse_limits(limits))

    @classmethod
    def parse(cls, goal: str | None, limits: str | None = None) -> Goal:
        """Parse a goal from the command line, such as `bsld=2,awf=1`.

        Limits have the form `awf=103,longest=110`. Raise the same errors as `of`.
        """
        given: str | Mapping[str, float] | None = goal
        if goal is not None and "=" in goal:
            given = {name: _parse_number(f"goal.{name}", text) for name, text in _parse_metric_pairs("goal", goal)}
        return cls.of(
            given, limits if limits in (None, NO_LIMITS) else dict(_parse_metric_pairs("limits", str(limits)))
        )

    @property
    def objective(self) -> str:
        """The objective of `lookahead` for this goal."""
        return self.name if self.name in PRESETS else _nearest_preset(self.weights).name

    def __str__(self) -> str:
        """Return the goal as text: `balance, awf at most 103 %, longest at most 110 %`."""
        named = self.name
        if named == WEIGHTS_GOAL:
            named = " ".join(f"{name}={weight:g}" for name, weight in self.weights.items())
        return ", ".join((named, *(f"{name} at most {percent:g} %" for name, percent in self.limits.items())))

    def score(self, ratios: Mapping[str, float]) -> float:
        """Return the weighted geometric mean of ratios by metric.

        A result of 0.9 is 10 % better than the baseline.
        """
        total = sum(self.weights.values())
        return math.exp(sum(weight * math.log(ratios[name]) for name, weight in self.weights.items()) / total)

    def exceeded_limits(self, ratios: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics that exceed their limits, in percent of the baseline."""
        return {name: 100 * ratios[name] for name, most in self.limits.items() if ratios[name] > most / 100 + 1e-9}


def ratios_to_baseline(figures: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Return each metric divided by the baseline's, element by element for arrays."""
    return {
        name: (figures[name] + _RATIO_OFFSETS.get(name, 0.0)) / (baseline[name] + _RATIO_OFFSETS.get(name, 0.0))
        for name in GOAL_METRICS
    }


def _find_preset(name: str) -> GoalPreset:
    if name not in PRESETS:
        raise UnknownName("goal", name, PRESETS)
    return PRESETS[name]


def _check_weights(given: Mapping[str, float]) -> dict[str, float]:
    for name, weight in given.items():
        _require_known_metric(name)
        numeric = isinstance(weight, int | float) and not isinstance(weight, bool)
        require(
            numeric and 0 <= weight <= MAX_PERCENT,
            f"goal.{name}",
            weight,
            f"must be a weight from 0 to {MAX_PERCENT:g}",
        )
    found = {name: float(weight) for name, weight in given.items() if weight}
    require(bool(found), "goal", dict(given), "must contain at least one positive weight")
    return found


def _parse_limits(given: str | Mapping[str, str | float]) -> dict[str, float]:
    if isinstance(given, str):
        require(given == NO_LIMITS, "limits", given, f"must be percentages by metric, or {NO_LIMITS}")
        return {}
    found = {}
    for name, value in given.items():
        _require_known_metric(name)
        percent = _parse_number(f"limits.{name}", str(value).strip().removesuffix("%"))
        require(0 < percent <= MAX_PERCENT, f"limits.{name}", value, f"must be above 0 %, up to {MAX_PERCENT:g} %")
        found[name] = percent
    return found


def _require_known_metric(name: str) -> None:
    if name not in GOAL_METRICS:
        raise UnknownName("metric", name, GOAL_METRICS)


def _parse_number(field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValue(field, text, "must be a number") from None


def _parse_metric_pairs(field: str, text: str) -> list[tuple[str, str]]:
    found = [tuple(map(str.strip, word.split("=", 1))) for word in text.split(",") if word.strip()]
    require(bool(found) and all(len(pair) == 2 for pair in found), field, text, "must be NAME=NUMBER,...")
    names = [pair[0] for pair in found]
    require(len(set(names)) == len(names), field, text, "must name each metric once")
    return [(pair[0], pair[1]) for pair in found]


def _nearest_preset(weights: Mapping[str, float]) -> GoalPreset:
    """Return the preset with the most similar weights; in a tie, the default."""

    def weight_similarity(stop: GoalPreset) -> float:
        length = math.sqrt(sum(weight**2 for weight in stop.weights.values()))
        return sum(weights.get(name, 0.0) * weight for name, weight in stop.weights.items()) / length

    return max(PRESETS.values(), key=lambda stop: (weight_similarity(stop), stop.name == DEFAULT_GOAL))
