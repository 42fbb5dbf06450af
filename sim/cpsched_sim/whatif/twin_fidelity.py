"""Measure the twin's fidelity: how closely its replay matches the real schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpsched.formatting import format_duration
from cpsched_sim.experiments.bootstrap_statistics import FloatArray, bootstrap_interval, finite_or_none
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
        return HOPELESS_GRADE, f"on average, its hourly use is off by {use_off:.0%} of the machine"
    off_s = max(abs(twin_s - real_s), by_size_s)
    if off_s <= IGNORED_DIFFERENCE_S:
        return "good", f"{sentence}: less than a minute apart"
    part = off_s / max(1e-9, min(real_s, twin_s))
    grade = next((name for most, name in GRADES if part <= most), HOPELESS_GRADE)
    return (
        grade,
        f"{sentence}; by job size, it is off by {format_duration(off_s)}, {part:.0%} of the shorter of the two",
    )


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
