"""Which policy is better, by how much, and what cannot be told apart.

Cases are paired where they share their jobs: trace, system, load, window and site policy, and for made-up traces the
seed. These shared jobs are a *workload*. Of several seeds of one workload the mean of logarithms counts, so that seeds
do not pass for workloads; with one workload alone its seeds are the units, and the interval holds for it alone.

A comparison is the geometric mean of ratios over units, with an interval by Student's t on their logarithms. The
intervals of a ranking hold 95 of 100 together: with C comparisons each is one of 1 - 0.05 / C (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from cpsched.metrics import METRICS

LEVEL = 0.95
LARGEST_LOG = 700.0
"""Beyond it exp() overflows; two units and many comparisons make intervals that wide."""
WORKLOAD = ("trace", "system", "load", "window", "site_policy")
HIGHER = {row.name for row in METRICS if row.better == "higher"}


@dataclass(frozen=True, slots=True)
class Ratio:
    """A geometric mean of paired ratios; `low` and `high` are None with fewer than two units."""

    ratio: float
    low: float | None
    high: float | None
    units: int
    of: str
    """What the units are: workloads, or seeds."""

    @property
    def apart(self) -> bool:
        """Whether the interval says that the two differ."""
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high


@dataclass(frozen=True, slots=True)
class Place:
    """A policy in a ranking."""

    name: str
    ratio: Ratio
    """To the first one."""
    alike: tuple[str, ...]
    """Which others cannot be told from it."""


def compared(
    rows: Sequence[Mapping[str, Any]], metric: str, these: str, those: str, level: float = LEVEL, by: str = "policy"
) -> Ratio | None:
    """`these` over `those`, by a figure; None where they share no workload in which both figures are positive."""
    mine, others = _by_unit(rows, metric, these, by), _by_unit(rows, metric, those, by)
    pairs: dict[tuple[Any, ...], dict[tuple[str, str], float]] = {}
    for (workload, seed), (digest, value) in mine.items():
        if (other := others.get((workload, seed))) is not None and value > 0 and other[1] > 0:
            pairs.setdefault(workload, {})[digest, other[0]] = math.log(value / other[1])
    if not pairs:
        return None
    units, of = [float(np.mean(list(each.values()))) for each in pairs.values()], "workloads"
    if len(pairs) == 1 and len(alone := next(iter(pairs.values()))) > 1:
        units, of = list(alone.values()), "seeds"
    centre = float(np.mean(units))
    if len(units) < 2:
        return Ratio(math.exp(centre), None, None, len(units), of)
    wide = quantile(0.5 + level / 2, len(units) - 1) * float(np.std(units, ddof=1)) / math.sqrt(len(units))
    return Ratio(math.exp(centre), math.exp(centre - wide), math.exp(min(centre + wide, LARGEST_LOG)), len(units), of)


def ranking(rows: Sequence[Mapping[str, Any]], metric: str, by: str = "policy") -> list[Place]:
    """The policies from the best to the worst by a figure, over the workloads and seeds that all of them have."""
    rows = common(rows, metric, by)
    names = list(dict.fromkeys(row[by] for row in rows))
    if len(names) < 2:
        return []
    means = {name: float(np.mean([math.log(row[metric]) for row in rows if row[by] == name])) for name in names}
    names.sort(key=lambda name: means[name], reverse=metric in HIGHER)
    pairs = list(combinations(names, 2))
    level = 1 - (1 - LEVEL) / len(pairs)
    found = {pair: compared(rows, metric, *pair, level=level, by=by) for pair in pairs}
    apart = {pair for pair, ratio in found.items() if ratio is not None and ratio.apart}
    places = []
    for name in names:
        ratio = compared(rows, metric, name, names[0], by=by)
        assert ratio is not None
        alike = [b if a == name else a for a, b in pairs if name in (a, b) and (a, b) not in apart]
        places.append(Place(name, ratio, tuple(alike)))
    return places


def common(rows: Sequence[Mapping[str, Any]], metric: str, by: str = "policy") -> list[Mapping[str, Any]]:
    """The rows of workloads and seeds in which every policy has a positive figure, without named cases."""
    told = [row for row in rows if row["outcome"] == "ended" and not row["case"] and (row.get(metric) or 0) > 0]
    names = {row[by] for row in rows if not row["case"]}
    there: dict[tuple[Any, ...], set[str]] = {}
    for row in told:
        there.setdefault((*_workload(row), row["seed"]), set()).add(row[by])
    return [row for row in told if there[*_workload(row), row["seed"]] == names]


def left_out(rows: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """The workloads of a ranking's rows that `common` drops, each by what tells it from the others."""
    mine = [row for row in rows if not row["case"]]
    kept = {_workload(row) for row in common(rows, metric)}
    axes = [axis for axis in WORKLOAD if len({row[axis] for row in mine}) > 1]
    gone = [row for row in mine if _workload(row) not in kept]
    return list(dict.fromkeys(" ".join(str(row[axis]) for axis in axes) or str(row["trace"]) for row in gone))


def _by_unit(
    rows: Sequence[Mapping[str, Any]], metric: str, name: str, by: str
) -> dict[tuple[tuple[Any, ...], int], tuple[str, float]]:
    """(workload, seed) -> digest and figure, of the cases of one policy."""
    return {
        (_workload(row), row["seed"]): (row["digest"], float(row[metric]))
        for row in rows
        if row[by] == name and row["outcome"] == "ended" and row.get(metric) is not None
    }


def _workload(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*(row[axis] for axis in WORKLOAD), row["seed"] if row["drawn"] else None)


def quantile(part: float, freedom: int) -> float:
    """The quantile of Student's t, to 1e-9; `part` from 0.5 to below 1."""
    low, high = 0.0, 1.0
    while _below(high, freedom) < part:
        high *= 2
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < part else (low, middle)
    return (low + high) / 2


def _below(t: float, freedom: int) -> float:
    """P(T <= t) for t >= 0 (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, total = math.cos(angle), 0.0
    if freedom % 2:
        term = cosine
        for at in range(1, freedom - 1, 2):
            total += term
            term *= cosine**2 * (at + 1) / (at + 2)
        both = 2 / math.pi * (angle + math.sin(angle) * total)
    else:
        term = 1.0
        for at in range(0, freedom, 2):
            total += term
            term *= cosine**2 * (at + 1) / (at + 2)
        both = math.sin(angle) * total
    return 0.5 + both / 2
