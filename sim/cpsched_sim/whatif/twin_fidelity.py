"""How near the twin comes to what really happened: the first thing that anybody should read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cpsched.formatting import span
from cpsched_sim.experiments.statistics import FloatArray, interval
from cpsched_sim.whatif.job_classes import Grouping
from cpsched_sim.whatif.window_metrics import (
    WINDOW_METRICS,
    WindowFacts,
    WindowSchedule,
    in_use,
    waits_s,
    window_metrics_of,
)

TOLERANCE_S = 300
"""A start of the twin within five minutes of the real one counts as the same."""
SMALL_S = 60.0
"""Differences of mean waits up to a minute are never held against the twin."""
GRADES = ((0.15, "good"), (0.4, "fair"), (1.0, "poor"))
"""Up to which part of a mean wait the twin may be off for each grade; beyond the last it is hopeless. The mean wait is
the real one or the twin's, whichever is shorter: half of the real wait is as far off as twice."""
HOPELESS = "hopeless"
USE_OFF = 0.2
"""A twin is hopeless, too, whose use of the machine is off by so much of it in the mean hour."""


@dataclass(frozen=True, slots=True)
class FidelityGrade:
    """A grade, and why, in a sentence."""

    grade: str
    why: str

    @property
    def is_hopeless(self) -> bool:
        """Whether nothing that is held against the twin can be believed."""
        return self.grade == HOPELESS


def fidelity(
    facts: WindowFacts, real: WindowSchedule, twin: WindowSchedule, groupings: list[Grouping]
) -> dict[str, Any]:
    """The twin against the real starts: over all judged jobs, by class, and hour by hour. Plain values for JSON."""
    counted, block, blocks = facts.counted, facts.block, facts.blocks
    really_s, twins_s = waits_s(real, counted), waits_s(twin, counted)
    off_s = np.abs(twin.start_s - real.start_s)[counted]
    one = blocks.sums(block, 1.0)
    _, draws = blocks.ratios(blocks.sums(block, twins_s - really_s), one)
    real_use, twin_use = in_use(facts, real), in_use(facts, twin)
    use_off = float(np.abs(real_use.used - twin_use.used).mean() / max(1, facts.machine))
    both = [window_metrics_of(facts, made) for made in (real, twin)]
    classes = [row for grouping in groupings for row in _rows(facts, grouping, really_s, twins_s, off_s)]
    sizes = [row for row in classes if row["kind"] == "size"]
    by_size_s = sum(row["jobs"] * abs(row["difference_s"]) for row in sizes) / max(1, len(really_s))
    verdict = judged(float(really_s.mean()), float(twins_s.mean()), use_off, by_size_s)
    return {
        "verdict": {"grade": verdict.grade, "why": verdict.why},
        "jobs": int(counted.sum()),
        "real_mean_wait_s": float(really_s.mean()),
        "twin_mean_wait_s": float(twins_s.mean()),
        "difference_s": float((twins_s - really_s).mean()),
        "difference_interval_s": interval(draws[0], blocks.count),
        "within_tolerance": float((off_s <= TOLERANCE_S).mean()),
        "tolerance_s": TOLERANCE_S,
        "use_off": use_off,
        "use_together": _together(real_use.used, twin_use.used),
        "figures": [
            {"name": figure.name, "unit": figure.unit, "real": _told(one_[0]), "twin": _told(two[0]),
             "off": _told(two[0] - one_[0])}
            for figure, one_, two in zip(WINDOW_METRICS, *both, strict=True)
        ],
        "by_size_s": by_size_s,
        "classes": classes,
    }  # fmt: skip


def judged(real_s: float, twin_s: float, use_off: float, by_size_s: float = 0.0) -> FidelityGrade:
    """The grade of a twin whose mean wait is `twin_s` where it really was `real_s`.

    `by_size_s` is how far the mean waits of jobs alike in size are off, in the mean over all jobs: a twin that is too
    kind to wide jobs and too hard on the others may be right on average.
    """
    said = f"its mean wait is {span(twin_s)}, the real one was {span(real_s)}"
    if use_off > USE_OFF:
        return FidelityGrade(HOPELESS, f"in the mean hour its use of the machine is off by {use_off:.0%} of it")
    off_s = max(abs(twin_s - real_s), by_size_s)
    if off_s <= SMALL_S:
        return FidelityGrade("good", f"{said}: less than a minute apart")
    part = off_s / max(1e-9, min(real_s, twin_s))
    grade = next((name for most, name in GRADES if part <= most), HOPELESS)
    return FidelityGrade(grade, f"{said}; by size of job it is {span(off_s)} off, {part:.0%} of the shorter of the two")


def _rows(
    facts: WindowFacts, grouping: Grouping, really_s: FloatArray, twins_s: FloatArray, off_s: FloatArray
) -> list[dict[str, Any]]:
    blocks, block, groups = facts.blocks, facts.block, len(grouping.names)
    of = grouping.of[facts.counted[facts.window.judged]]
    one = blocks.sums(block, 1.0, of, groups)
    point, draws = blocks.ratios(blocks.sums(block, twins_s - really_s, of, groups), one)
    real_mean, _ = blocks.ratios(blocks.sums(block, really_s, of, groups), one)
    close, _ = blocks.ratios(blocks.sums(block, off_s <= TOLERANCE_S, of, groups), one)
    return [
        {
            "kind": grouping.kind, "name": name, "jobs": int(one[at].sum()), "real_mean_wait_s": float(real_mean[at]),
            "twin_mean_wait_s": float(real_mean[at] + point[at]), "difference_s": float(point[at]),
            "difference_interval_s": interval(draws[at], blocks.count), "within_tolerance": float(close[at]),
        }
        for at, name in enumerate(grouping.names)
        if one[at].sum()
    ]  # fmt: skip


def _together(one: FloatArray, other: FloatArray) -> float | None:
    """How far two lines go up and down together: their correlation; None where one of them is flat."""
    if len(one) < 2 or one.std() == 0 or other.std() == 0:
        return None
    return float(np.corrcoef(one, other)[0, 1])


def _told(value: float) -> float | None:
    return value if np.isfinite(value) else None
