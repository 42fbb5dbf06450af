"""Rank policies by paired ratios, and list pairs without a significant difference.

Cases are paired if they have the same trace, system, load, window and site policy. With a synthetic trace, they must
also have the same seed. The shared jobs are a *workload*. Several seeds of a workload count as one value, the mean of
their logarithms, because seeds are not workloads. With a single workload, its seeds are the units, and the interval is
valid only for that workload.

A comparison is the geometric mean of the ratios over the units, with a bootstrap interval on the logarithms. A ranking
uses wider, simultaneous intervals, all of which hold with a probability of 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from cpsched.metrics import METRICS
from cpsched_sim.experiments.bootstrap_statistics import FloatArray, margins_of_error

MAX_EXPONENT = 700.0
"""Largest logarithm for which exp() does not overflow. Intervals are very wide with few units and many comparisons."""
WORKLOAD_AXES = ("trace", "system", "load", "window", "site_policy")
HIGHER_IS_BETTER = {row.name for row in METRICS if row.better == "higher"}


@dataclass(frozen=True, slots=True)
class GeometricMeanRatio:
    """A geometric mean of paired ratios.

    `low` and `high` are None if there are too few units for an interval.
    """

    ratio: float
    low: float | None
    high: float | None
    units: int
    of: str
    """The kind of unit: workloads or seeds."""


@dataclass(frozen=True, slots=True)
class RankedPolicy:
    """A policy in a ranking."""

    name: str
    ratio: GeometricMeanRatio
    """The ratio to the first policy in the ranking."""
    alike: tuple[str, ...]
    """The policies that do not differ significantly from this one."""


def compare_policies(
    rows: Sequence[Mapping[str, Any]], metric: str, these: str, those: str, by: str = "policy"
) -> GeometricMeanRatio | None:
    """Compare `these` with `those` by a metric.

    Return None if no workload has positive values for both.
    """
    found = _paired_log_ratios(rows, metric, these, those, by)
    return None if found is None else _make_ratio(*found, margins_of_error([found[0]])[0])


def _make_ratio(logs: FloatArray, of: str, margin: float) -> GeometricMeanRatio:
    centre, units = float(np.mean(logs)), len(logs)
    if centre + margin > MAX_EXPONENT:
        return GeometricMeanRatio(math.exp(centre), None, None, units, of)
    return GeometricMeanRatio(math.exp(centre), math.exp(centre - margin), math.exp(centre + margin), units, of)


def _paired_log_ratios(
    rows: Sequence[Mapping[str, Any]], metric: str, these: str, those: str, by: str
) -> tuple[FloatArray, str] | None:
    """Return the logarithm of each unit's ratio, and the kind of unit."""
    mine, others = (
        _values_by_workload_and_seed(rows, metric, these, by),
        _values_by_workload_and_seed(rows, metric, those, by),
    )
    pairs: dict[tuple[Any, ...], dict[tuple[str, str], float]] = {}
    for (workload, seed), (digest, value) in mine.items():
        if (other := others.get((workload, seed))) is not None and value > 0 and other[1] > 0:
            pairs.setdefault(workload, {})[digest, other[0]] = math.log(value / other[1])
    if len(pairs) == 1 and len(alone := next(iter(pairs.values()))) > 1:
        return np.array(list(alone.values())), "seeds"
    return (np.array([np.mean(list(each.values())) for each in pairs.values()]), "workloads") if pairs else None


def rank_policies(rows: Sequence[Mapping[str, Any]], metric: str, by: str = "policy") -> list[RankedPolicy]:
    """Rank policies by a metric, best first.

    Only workloads and seeds that all policies share count.
    """
    rows = rows_shared_by_all_policies(rows, metric, by)
    names = list(dict.fromkeys(row[by] for row in rows))
    if len(names) < 2:
        return []
    means = {name: float(np.mean([math.log(row[metric]) for row in rows if row[by] == name])) for name in names}
    names.sort(key=lambda name: means[name], reverse=metric in HIGHER_IS_BETTER)
    found = {
        pair: each
        for pair in combinations(names, 2)
        if (each := _paired_log_ratios(rows, metric, *pair, by)) is not None
    }
    joint = zip(found.items(), margins_of_error([logs for logs, _ in found.values()]), strict=True)
    apart = {pair for (pair, (logs, _)), margin in joint if abs(np.mean(logs)) > margin}
    places = []
    for name in names:
        ratio = compare_policies(rows, metric, name, names[0], by)
        assert ratio is not None
        alike = [b if a == name else a for a, b in found if name in (a, b) and (a, b) not in apart]
        places.append(RankedPolicy(name, ratio, tuple(alike)))
    return places


def rows_shared_by_all_policies(
    rows: Sequence[Mapping[str, Any]], metric: str, by: str = "policy"
) -> list[Mapping[str, Any]]:
    """Return the rows of workloads and seeds with positive values for all policies.

    Named cases are omitted.
    """
    positive = [row for row in rows if row["outcome"] == "ended" and not row["case"] and (row.get(metric) or 0) > 0]
    names = {row[by] for row in rows if not row["case"]}
    there: dict[tuple[Any, ...], set[str]] = {}
    for row in positive:
        there.setdefault((*_workload_key(row), row["seed"]), set()).add(row[by])
    return [row for row in positive if there[*_workload_key(row), row["seed"]] == names]


def excluded_workloads(rows: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """Return the workloads that `rows_shared_by_all_policies` omits, by label."""
    mine = [row for row in rows if not row["case"]]
    kept = {_workload_key(row) for row in rows_shared_by_all_policies(rows, metric)}
    axes = [axis for axis in WORKLOAD_AXES if len({row[axis] for row in mine}) > 1]
    gone = [row for row in mine if _workload_key(row) not in kept]
    return list(dict.fromkeys(" ".join(str(row[axis]) for axis in axes) or str(row["trace"]) for row in gone))


def _values_by_workload_and_seed(
    rows: Sequence[Mapping[str, Any]], metric: str, name: str, by: str
) -> dict[tuple[tuple[Any, ...], int], tuple[str, float]]:
    """Return the digest and value by (workload, seed) for the cases of one policy."""
    return {
        (_workload_key(row), row["seed"]): (row["digest"], float(row[metric]))
        for row in rows
        if row[by] == name and row["outcome"] == "ended" and row.get(metric) is not None
    }


def _workload_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*(row[axis] for axis in WORKLOAD_AXES), row["seed"] if row["drawn"] else None)
