"""Pictures and table of cp19: `studies/cp19`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docs.scripts.papers.charts import bars, lines
from docs.scripts.papers.claims import judged, page, rows_of
from docs.scripts.papers.predictions import FILE, RATIOS
from docs.scripts.papers.spreads import STUDIES

STUDY = STUDIES / "cp19"
SIZES = STUDY / "sizes.json"
LETTERS = {"walltime": "W", "profile": "D", "last-two": "L2", "oracle": "R"}
DEVIATIONS = {"mean_slowdown": "slowdown all deviation", "mean_wait_s": "wait_s all deviation"}
CLASSES = ("medium", "long")
AXES = {"mean_slowdown": "mean slowdown (logarithmic)", "mean_wait_s": "mean wait, s (logarithmic)"}


def table() -> str:
    """Every claim with its verdict."""
    return page(STUDY, facts())


def verdicts() -> list[str]:
    """The verdict of each claim."""
    return [claim.verdict for claim in judged(STUDY, facts())]


def facts() -> dict[str, Any]:
    """What the sentences of `paper.yaml` fill in: accuracies by letter, sizes, and times of decisions."""
    rows = rows_of(STUDY)
    times = [row["decision_ms"] for row in rows if row["dispatcher"] != "PRB"]
    sizes = json.loads(SIZES.read_text(encoding="utf-8"))
    figures = ("intervals", "requested", "free")
    said = {name: ", ".join(f"{each[name]:,.0f} ({case})" for case, each in sizes.items()) for name in figures}
    told = json.loads(FILE.read_text(encoding="utf-8"))
    counts = {part: int(rows[0][f"slowdown {part} count"]) for part in ("all", *CLASSES)}
    shares = {part: counts[part] / counts["all"] for part in CLASSES}
    by_policy = {row["policy"]: row for row in rows}
    hcp, hcp1, late = (by_policy[name] for name in ("HCP / walltime", "HCP1 / walltime", "HCP1 / profile"))
    return {
        **told, **said, "fastest": min(times), "slowest": max(times), "counts": counts, "shares": shares,
        "short": 1 - sum(shares.values()), "saved": 1 - hcp1["decision_ms"] / hcp["decision_ms"],
        "size": {case: each["intervals"] for case, each in sizes.items()},
        "asked": {case: each["requested"] for case, each in sizes.items()},
        "used": max(row["utilization"] for row in rows), "worst": late["slowdown long mean"],
        "worst_used": late["utilization"],
    }  # fmt: skip


def figure1() -> str:
    """The share of jobs whose real run time is at most so many times the predicted one."""
    told = json.loads(FILE.read_text(encoding="utf-8"))
    series = {name: list(zip(RATIOS, told[name]["ecdf"], strict=True)) for name in "WD"}
    series["R"] = [(RATIOS[0], 0.0), (1.0, 0.0), (1.0, 1.0), (RATIOS[-1], 1.0)]
    title = "Accuracy of estimates (cp19 figure 1)"
    return lines(title, "real over predicted run time", "share of jobs", series, log=True)


def figure2() -> str:
    """Slowdown under the PCP dispatchers."""
    return means(STUDY, "mean_slowdown", "Slowdown under PCP (cp19 figure 2)", ["PCP3", "PRB"])


def figure2_waits() -> str:
    """Waits of the same."""
    return means(STUDY, "mean_wait_s", "Wait under PCP (cp19 figure 2)", ["PCP3", "PRB"])


def figure3() -> str:
    """Slowdown under the HCP dispatchers."""
    return means(STUDY, "mean_slowdown", "Slowdown under HCP (cp19 figure 3)", ["HCP", "HCP1", "HCP2", "HCP3", "PRB"])


def figure3_waits() -> str:
    """Waits of the same."""
    return means(STUDY, "mean_wait_s", "Wait under HCP (cp19 figure 3)", ["HCP", "HCP1", "HCP2", "HCP3", "PRB"])


def figure4() -> str:
    """Slowdown of medium and long jobs."""
    return by_class("slowdown", "Slowdown of medium and long jobs (cp19 figure 4)", "mean slowdown")


def figure4_waits() -> str:
    """Waits of the same."""
    return by_class("wait_s", "Wait of medium and long jobs (cp19 figure 4)", "mean wait, s")


def by_class(figure: str, title: str, axis: str) -> str:
    """A mean of each landed case and class, with its deviation; on a linear axis, since many waits are 0."""
    rows = {
        f"{row['dispatcher']} / {LETTERS[row['predictor']]} / {part}": (
            float(row[f"{figure} {part} mean"]),
            row[f"{figure} {part} deviation"],
        )
        for part in CLASSES
        for row in rows_of(STUDY)
    }
    return bars(title, axis, rows)


def means(study: Path, figure: str, title: str, dispatchers: Sequence[str], trace: str | None = None) -> str:
    """A mean of each landed case of these dispatchers, under the papers' letters for estimates.

    Its deviation stands beside where the study keeps spreads.
    """
    rows = {
        f"{row['dispatcher']} / {LETTERS[row['predictor']]}": (float(row[figure]), row.get(DEVIATIONS[figure]))
        for row in rows_of(study)
        if row["dispatcher"] in dispatchers and trace in (None, row["trace"])
    }
    return bars(title, AXES[figure], rows, log=True)
