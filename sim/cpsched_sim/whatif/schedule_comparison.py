"""Compare schedules of a window: the twin with the real starts, and cases with the twin.

The first measures the twin's fidelity. The second measures changes in waits, and their significance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cpsched.formatting import format_count, format_duration, format_percent
from cpsched_sim.experiments.bootstrap_statistics import FloatArray, bootstrap_interval, finite_or_none, union_interval
from cpsched_sim.whatif.job_classes import JobClassification
from cpsched_sim.whatif.window_metrics import (
    WINDOW_METRICS,
    SharedWindowFacts,
    WindowSchedule,
    compute_window_metrics,
    hourly_usage,
    waits_s,
)

TOLERANCE_S = 300
"""Maximum difference, in seconds, at which a start in the twin counts as equal to the real start."""
IGNORED_DIFFERENCE_S = 60.0
"""Maximum difference in mean wait, in seconds, at which the grade is good regardless of the relative error."""
GRADES = ((0.15, "good"), (0.4, "fair"), (1.0, "poor"))
"""Maximum relative error of the mean wait for each grade: the error divided by the shorter of the real wait and the
twin's wait. Above the last value, the grade is hopeless.
"""
HOPELESS_GRADE = "hopeless"
MAX_UTILIZATION_ERROR = 0.2
"""Maximum mean error of the machine's hourly utilization. Above it, the grade is hopeless."""


def measure_twin_fidelity(
    facts: SharedWindowFacts, real: WindowSchedule, twin: WindowSchedule, groupings: list[JobClassification]
) -> dict[str, Any]:
    """Compare the twin with the real starts, for all jobs and by class.

    Return plain values for JSON.
    """
    counted, block, blocks = facts.counted, facts.block_of_counted_jobs, facts.blocks
    really_s, twins_s = waits_s(real, counted), waits_s(twin, counted)
    off_s = np.abs(twin.start_s - real.start_s)[counted]
    one = blocks.sums_by_block(block, 1.0)
    _, draws = blocks.ratios_with_draws(blocks.sums_by_block(block, twins_s - really_s), one)
    real_use, twin_use = hourly_usage(facts, real), hourly_usage(facts, twin)
    use_off = float(np.abs(real_use.used - twin_use.used).mean() / max(1, facts.machine))
    both = [compute_window_metrics(facts, made) for made in (real, twin)]
    classes = [row for grouping in groupings for row in _fidelity_by_class(facts, grouping, really_s, twins_s, off_s)]
    sizes = [row for row in classes if row["kind"] == "size"]
    by_size_s = sum(row["jobs"] * abs(row["difference_s"]) for row in sizes) / max(1, len(really_s))
    grade, why = grade_twin(float(really_s.mean()), float(twins_s.mean()), use_off, by_size_s)
    return {
        "verdict": {"grade": grade, "why": why},
        "jobs": int(counted.sum()),
        "real_mean_wait_s": float(really_s.mean()),
        "twin_mean_wait_s": float(twins_s.mean()),
        "difference_s": float((twins_s - really_s).mean()),
        "difference_interval_s": bootstrap_interval(draws[0], blocks.count),
        "within_tolerance": float((off_s <= TOLERANCE_S).mean()),
        "tolerance_s": TOLERANCE_S,
        "use_off": use_off,
        "use_together": _correlation(real_use.used, twin_use.used),
        "figures": [
            {"name": figure.name, "unit": figure.unit, "real": finite_or_none(one_[0]), "twin": finite_or_none(two[0]),
             "off": finite_or_none(two[0] - one_[0])}
            for figure, one_, two in zip(WINDOW_METRICS, *both, strict=True)
        ],
        "by_size_s": by_size_s,
        "classes": classes,
    }  # fmt: skip


def grade_twin(real_s: float, twin_s: float, use_off: float, by_size_s: float = 0.0) -> tuple[str, str]:
    """Return the twin's grade and its reason, given the real and the twin's mean wait.

    `by_size_s` is the error of the mean wait by size class, averaged over all jobs. A twin that favours wide jobs at
    the expense of the others can have the right overall mean.
    """
    sentence = f"its mean wait is {format_duration(twin_s)}, and the real mean wait was {format_duration(real_s)}"
    if use_off > MAX_UTILIZATION_ERROR:
        return HOPELESS_GRADE, f"on average, its hourly use is off by {format_percent(use_off)} of the machine"
    off_s = max(abs(twin_s - real_s), by_size_s)
    if off_s <= IGNORED_DIFFERENCE_S:
        return "good", f"{sentence}: less than a minute apart"
    part = off_s / max(1e-9, min(real_s, twin_s))
    grade = next((name for most, name in GRADES if part <= most), HOPELESS_GRADE)
    off = f"{format_duration(off_s)}, {format_percent(part)} of the shorter of the two"
    return grade, f"{sentence}; by job size, it is off by {off}"


def _fidelity_by_class(
    facts: SharedWindowFacts, grouping: JobClassification, really_s: FloatArray, twins_s: FloatArray, off_s: FloatArray
) -> list[dict[str, Any]]:
    blocks, block, groups = facts.blocks, facts.block_of_counted_jobs, len(grouping.names)
    of = grouping.of[facts.counted[facts.window.is_judged]]
    one = blocks.sums_by_block(block, 1.0, of, groups)
    point, draws = blocks.ratios_with_draws(blocks.sums_by_block(block, twins_s - really_s, of, groups), one)
    real_mean, _ = blocks.ratios_with_draws(blocks.sums_by_block(block, really_s, of, groups), one)
    close, _ = blocks.ratios_with_draws(blocks.sums_by_block(block, off_s <= TOLERANCE_S, of, groups), one)
    return [
        {
            "kind": grouping.kind, "name": name, "jobs": int(one[at].sum()), "real_mean_wait_s": float(real_mean[at]),
            "twin_mean_wait_s": float(real_mean[at] + point[at]), "difference_s": float(point[at]),
            "difference_interval_s": bootstrap_interval(draws[at], blocks.count), "within_tolerance": float(close[at]),
        }
        for at, name in enumerate(grouping.names)
        if one[at].sum()
    ]  # fmt: skip


def _correlation(one: FloatArray, other: FloatArray) -> float | None:
    """Return the correlation of two series, or None if one of them is constant."""
    if len(one) < 2 or one.std() == 0 or other.std() == 0:
        return None
    return float(np.corrcoef(one, other)[0, 1])


OPEN_MODEL, HALF_CLOSED_MODEL = "open", "half-closed"
"""Models of users. In the open model, submission times are fixed. In the half-closed model, they depend on the end of
the user's previous job.
"""
SIGNIFICANT = "significant"
MIN_DAYS, MIN_USERS = 14, 5
"""Minimum number of days and of users in a window for a verdict. A smaller window is not representative."""
MAX_LISTED_LOSERS = 10

Runs = Mapping[str, Sequence[WindowSchedule]]
"""Schedules by user model, one per seed."""


class ComparedRuns(NamedTuple):
    """The actual schedule of a window, and the replays of the twin and of a case."""

    real: WindowSchedule
    twin: Runs
    case: Runs


def compare_case_with_twin(
    facts: SharedWindowFacts, there: SharedWindowFacts, runs: ComparedRuns, groupings: Sequence[JobClassification]
) -> dict[str, Any]:
    """Compare a case with the twin, for all judged jobs and by class.

    Return plain values for JSON. `there` contains the shared facts for the case's machine.

    The interval of a metric covers the resampled blocks, the random seeds, and the open and half-closed replays. A
    difference is significant if its interval excludes zero and it exceeds the twin's own error in this metric.
    """
    return {
        "figures": _compare_metrics(facts, there, *runs),
        "classes": [row for each in groupings for row in _compare_classes(facts, *runs, each)],
    }


def _compare_metrics(
    facts: SharedWindowFacts, there: SharedWindowFacts, real: WindowSchedule, twin: Runs, case: Runs
) -> list[dict[str, Any]]:
    really = compute_window_metrics(facts, real)
    by_mode = {
        mode: (
            compute_window_metrics(facts, twin[mode][0]),
            [compute_window_metrics(there, made) for made in case[mode]],
        )
        for mode in case
    }
    rows, few = [], why_window_too_small(facts)
    for at, figure in enumerate(WINDOW_METRICS):
        spans, points = [], dict[str, float]()
        for mode, (base, runs) in by_mode.items():
            values = [run[at] for run in runs]
            points[mode] = float(np.mean([value[0] for value in values]) - base[at][0])
            if figure.name == "longest wait":  # no resampled window has a wait above the longest one
                each = [value[0] - base[at][0] for value in values]
                spans.append((min(each), max(each)) if np.isfinite(each).all() else None)
            else:
                spans.append(
                    bootstrap_interval(
                        _interleave_seed_draws([value[1] for value in values]) - base[at][1], facts.blocks.count
                    )
                )
        base, runs = by_mode[OPEN_MODEL]
        value = float(np.mean([run[at][0] for run in runs]))
        error = abs(base[at][0] - really[at][0])
        rows.append({
            "name": figure.name, "unit": figure.unit, "less_is_better": figure.less_is_better,
            "twin": finite_or_none(base[at][0]), "case": finite_or_none(value),
            **_judge_difference(points[OPEN_MODEL], union_interval(*spans), error, points.get(HALF_CLOSED_MODEL), few),
        })  # fmt: skip
    return rows


def _compare_classes(
    facts: SharedWindowFacts, real: WindowSchedule, twin: Runs, case: Runs, grouping: JobClassification
) -> list[dict[str, Any]]:
    blocks, block, groups = facts.blocks, facts.block_of_counted_jobs, len(grouping.names)
    of = grouping.of[facts.counted[facts.window.is_judged]]
    one = blocks.sums_by_block(block, 1.0, of, groups)

    def mean_with_draws(values: FloatArray) -> tuple[FloatArray, FloatArray]:
        return blocks.ratios_with_draws(blocks.sums_by_block(block, values, of, groups), one)

    base_s = waits_s(twin[OPEN_MODEL][0], facts.counted)
    twins, _ = mean_with_draws(base_s)
    errors, _ = mean_with_draws(base_s - waits_s(real, facts.counted))
    spans: list[list[tuple[float, float] | None]] = [[] for _ in grouping.names]
    points: dict[str, FloatArray] = {}
    for mode, runs in case.items():
        against_s = waits_s(twin[mode][0], facts.counted)
        each = [mean_with_draws(waits_s(made, facts.counted) - against_s) for made in runs]
        points[mode] = np.mean([point for point, _ in each], axis=0)
        drawn = _interleave_seed_draws([draws for _, draws in each])
        for at in range(groups):
            spans[at].append(bootstrap_interval(drawn[at], blocks.count))
    half, few = points.get(HALF_CLOSED_MODEL), why_window_too_small(facts)
    return [
        {
            "kind": grouping.kind, "name": name, "jobs": int(one[at].sum()), "twin_mean_wait_s": float(twins[at]),
            "case_mean_wait_s": float(twins[at] + points[OPEN_MODEL][at]),
            **_judge_difference(float(points[OPEN_MODEL][at]), union_interval(*spans[at]), abs(float(errors[at])),
                          float(half[at]) if half is not None else None, few),
        }
        for at, name in enumerate(grouping.names)
        if one[at].sum()
    ]  # fmt: skip


def why_window_too_small(facts: SharedWindowFacts) -> str:
    """Return why a window is too small for a verdict, or ""."""
    window = facts.window
    days = (window.to_s - window.from_s) / 86_400
    users = len({item.job.user for item in window.judged_jobs()})
    if days >= MIN_DAYS and users >= MIN_USERS:
        return ""
    return f"{days:.1f} days and {format_count(users, 'user')}; a verdict needs {MIN_DAYS} days and {MIN_USERS} users"


def users_waiting_longer(
    facts: SharedWindowFacts, twin: Runs, case: Runs, users: JobClassification
) -> list[dict[str, Any]]:
    """Return the users whose total wait increases, largest increase first."""
    of = users.of[facts.counted[facts.window.is_judged]]
    count = np.bincount(of, minlength=len(users.names))
    base_s = waits_s(twin[OPEN_MODEL][0], facts.counted)
    case_s = np.mean([waits_s(made, facts.counted) for made in case[OPEN_MODEL]], axis=0)
    more_s = np.bincount(of, case_s - base_s, len(users.names))
    worst = [at for at in np.argsort(-more_s).tolist()[:MAX_LISTED_LOSERS] if more_s[at] > 0]
    before_s = np.bincount(of, base_s, len(users.names))
    return [
        {
            "user": users.names[at], "jobs": int(count[at]), "twin_mean_wait_s": float(before_s[at] / count[at]),
            "case_mean_wait_s": float((before_s[at] + more_s[at]) / count[at]), "more_wait_s": float(more_s[at]),
        }
        for at in worst
    ]  # fmt: skip


def _interleave_seed_draws(draws: Sequence[FloatArray]) -> FloatArray:
    """Combine the draws of all seeds.

    Draw i is from seed i modulo the number of seeds, so the variation covers both seeds and weeks.
    """
    stacked = np.stack(draws)
    turn = np.arange(stacked.shape[-1]) % len(stacked)
    found: FloatArray = np.take_along_axis(stacked, np.broadcast_to(turn, (1, *stacked.shape[1:])), axis=0)[0]
    return found


def _judge_difference(
    point: float, span: tuple[float, float] | None, error: float, half_closed: float | None, few: str
) -> dict[str, Any]:
    if span is None or not np.isfinite(point):
        why = "not significant: no interval, the window is too short" if np.isfinite(point) else "no data"
    elif few:
        why = f"not significant: {few}"
    elif span[0] <= 0 <= span[1]:
        why = "not significant: the interval includes zero"
    elif abs(point) <= error:
        why = "not significant: the twin's own error is larger"
    else:
        why = SIGNIFICANT
    return {
        "difference": finite_or_none(point), "interval": span,
        "half_closed": None if half_closed is None else finite_or_none(half_closed),
        "twin_error": finite_or_none(error),
        "verdict": why,
    }  # fmt: skip
