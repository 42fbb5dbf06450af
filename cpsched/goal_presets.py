"""Goals of a site: presets that range from short waits for many jobs to early starts of large jobs, with limits.

A preset selects the initial objective of `lookahead`. *Weights* and *limits* define how two configurations are
compared: by metrics, each as a percentage of a baseline on the same jobs.
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
DEFAULT = "balance"
"""The goal of a site that sets none."""
WEIGHTS = "weights"
"""The name of a goal that is given by weights instead of by a preset."""
NO_LIMITS = "none"
MOST_PERCENT = 10_000.0

_LEAST = {"mean_wait": 1.0, "longest": 60.0}
"""Seconds added to both sides of a ratio, so that waits of 2 s and 1 s on an empty cluster do not differ by 2x."""


@dataclass(frozen=True, slots=True)
class GoalPreset:
    """A named goal: the objective of `lookahead`, the weights, and the limits."""

    name: str
    sentence: str
    objective: str
    weights: Mapping[str, float]
    limits: Mapping[str, float]


PRESETS: dict[str, GoalPreset] = {
    stop.name: stop
    for stop in (
        GoalPreset(
            "waits",
            "Short waits for many: small and short jobs first, large jobs may wait longer",
            "waits",
            {"mean_wait": 1.0, "bsld": 1.0},
            {"longest": 150.0},
        ),
        GoalPreset(
            DEFAULT,
            "A compromise: shorter waits than in arrival order, at no job class's expense",
            "default",
            {"mean_wait": 1.0, "bsld": 1.0, "awf": 1.0, "p2sf": 1.0},
            {"awf": 103.0, "longest": 110.0},
        ),
        GoalPreset(
            "large-jobs",
            "Large jobs and high utilization: jobs with the most work wait least for their size",
            "large-jobs",
            {"awf": 1.0, "p2sf": 1.0},
            {"longest": 110.0},
        ),
    )
}
"""The presets, from short waits to large jobs."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a site. The keys of both mappings are from `GOAL_METRICS`; limits are percentages of the baseline.

    >>> goal = Goal.of("waits", {"awf": "103 %"})
    >>> goal.objective, dict(goal.limits)
    ('waits', {'awf': 103.0})
    >>> goal.score({"mean_wait": 0.5, "bsld": 0.5, "awf": 2.0})
    0.5
    >>> Goal.of({"awf": 2, "p2sf": 1}).objective
    'large-jobs'
    """

    name: str = DEFAULT
    weights: Mapping[str, float] = field(default_factory=lambda: PRESETS[DEFAULT].weights)
    limits: Mapping[str, float] = field(default_factory=lambda: PRESETS[DEFAULT].limits)

    @classmethod
    def of(
        cls, words: str | Mapping[str, float] | None = None, limits: str | Mapping[str, str | float] | None = None
    ) -> Goal:
        """Return the goal given by the name of a preset, or by weights per metric.

        `limits` are percentages, as numbers or text such as `103 %`, or the word `none`. The default is the limits of
        the (nearest) preset. Raise `UnknownName` for an unknown preset or metric, `InvalidValue` for a number out of
        range.
        """
        if words is None or isinstance(words, str):
            stop = _stop(words or DEFAULT)
            name, weights = stop.name, stop.weights
        else:
            name, weights = WEIGHTS, _weights(words)
            stop = _nearest(weights)
        return cls(name, weights, stop.limits if limits is None else _limits(limits))

    @classmethod
    def parse(cls, words: str | None, limits: str | None = None) -> Goal:
        """Parse a goal from the command line: `waits` or `bsld=2,awf=1`; limits `awf=103,longest=110` or `none`.

        Raise the same errors as `of`.
        """
        given: str | Mapping[str, float] | None = words
        if words is not None and "=" in words:
            given = {name: _number("goal", text) for name, text in _pairs("goal", words)}
        return cls.of(given, limits if limits in (None, NO_LIMITS) else dict(_pairs("limits", str(limits))))

    @property
    def objective(self) -> str:
        """The objective of `lookahead` for this goal, before site-specific tuning."""
        return (PRESETS[self.name] if self.name in PRESETS else _nearest(self.weights)).objective

    def __str__(self) -> str:
        """Return the goal as text: `balance, awf at most 103 %, longest at most 110 %`."""
        named = self.name
        if named == WEIGHTS:
            named = " ".join(f"{name}={weight:g}" for name, weight in self.weights.items())
        return ", ".join((named, *(f"{name} at most {percent:g} %" for name, percent in self.limits.items())))

    def score(self, ratios: Mapping[str, float]) -> float:
        """Return the weighted geometric mean of ratios by metric; 0.9 is 10 % better than the baseline."""
        total = sum(self.weights.values())
        return math.exp(sum(weight * math.log(ratios[name]) for name, weight in self.weights.items()) / total)

    def exceeded_limits(self, ratios: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics that exceed their limits, as percentages of the baseline."""
        return {name: 100 * ratios[name] for name, most in self.limits.items() if ratios[name] > most / 100 + 1e-9}


def ratios_to_baseline(figures: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Return each metric divided by the baseline's; arrays element by element."""
    return {
        name: (figures[name] + _LEAST.get(name, 0.0)) / (baseline[name] + _LEAST.get(name, 0.0))
        for name in GOAL_METRICS
    }


def _stop(name: str) -> GoalPreset:
    if name not in PRESETS:
        raise UnknownName("goal", name, PRESETS)
    return PRESETS[name]


def _weights(given: Mapping[str, float]) -> dict[str, float]:
    for name, weight in given.items():
        _known(name)
        numeric = isinstance(weight, int | float) and not isinstance(weight, bool)
        require(
            numeric and 0 <= weight <= MOST_PERCENT,
            f"goal.{name}",
            weight,
            f"must be a weight from 0 to {MOST_PERCENT:g}",
        )
    found = {name: float(weight) for name, weight in given.items() if weight}
    require(bool(found), "goal", dict(given), "must give at least one metric a positive weight")
    return found


def _limits(given: str | Mapping[str, str | float]) -> dict[str, float]:
    if isinstance(given, str):
        require(given == NO_LIMITS, "limits", given, f"must be percentages by metric, or {NO_LIMITS}")
        return {}
    found = {}
    for name, value in given.items():
        _known(name)
        percent = _number(f"limits.{name}", str(value).strip().removesuffix("%"))
        require(0 < percent <= MOST_PERCENT, f"limits.{name}", value, f"must be above 0 %, at most {MOST_PERCENT:g} %")
        found[name] = percent
    return found


def _known(name: str) -> None:
    if name not in GOAL_METRICS:
        raise UnknownName("metric", name, GOAL_METRICS)


def _number(field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValue(field, text, "must be a number") from None


def _pairs(field: str, text: str) -> list[tuple[str, str]]:
    found = [tuple(map(str.strip, word.split("=", 1))) for word in text.split(",") if word.strip()]
    require(bool(found) and all(len(pair) == 2 for pair in found), field, text, "must be NAME=NUMBER,...")
    names = [pair[0] for pair in found]
    require(len(set(names)) == len(names), field, text, "must name each metric once")
    return [(pair[0], pair[1]) for pair in found]


def _nearest(weights: Mapping[str, float]) -> GoalPreset:
    """Return the preset whose weights have the most similar direction; the middle preset wins ties."""

    def likeness(stop: GoalPreset) -> float:
        length = math.sqrt(sum(weight**2 for weight in stop.weights.values()))
        return sum(weights.get(name, 0.0) * weight for name, weight in stop.weights.items()) / length

    return max(PRESETS.values(), key=lambda stop: (likeness(stop), stop.name == DEFAULT))
