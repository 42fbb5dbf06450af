"""Pictures and table of mod17: `studies/mod17`."""

from __future__ import annotations

import json
from typing import Any

from docs.scripts.papers.charts import bars, boxes
from docs.scripts.papers.claims import judged, page, pooled
from docs.scripts.papers.predictions import DURATIONS_S, ERRORS_MIN, FILE
from docs.scripts.papers.spreads import ALL, STUDIES

STUDY = STUDIES / "mod17"
CLASSES = ("short", "medium", "long")


def table() -> str:
    """Every claim with its verdict."""
    return page(STUDY, _facts())


def verdicts() -> list[str]:
    """The verdict of each claim."""
    return [claim.verdict for claim in judged(STUDY, _facts())]


def figure1() -> str:
    """Distribution of job durations."""
    told = _predictions()["durations"]
    rows = {_class(low, high, _seconds): (100 * part, None) for low, high, part in _steps(DURATIONS_S, told)}
    return bars("Run times of a made-up Eurora (mod17 figure 1)", "% of the jobs", rows)


def figure2() -> str:
    """Errors of the data-driven prediction beside those of walltimes."""
    told = _predictions()
    rows = {}
    for low, high, *parts in zip(ERRORS_MIN, ERRORS_MIN[1:], *(told[name]["errors"] for name in "DW"), strict=False):
        for name, part in zip("DW", parts, strict=True):
            rows[f"{name} / {_class(low, high, _minutes)}"] = (100 * part, None)
    return bars("Absolute errors: prediction (D), walltime (W) (mod17 figure 2)", "% of the jobs", rows)


def figure3() -> str:
    """Slowdowns of all jobs that wait anywhere."""
    spreads = {policy: each["slowdown"][ALL] for policy, each in pooled(STUDY).items()}
    return boxes("Slowdown of the jobs that wait in any case (mod17 figure 3)", "slowdown", spreads)


def figure4() -> str:
    """The same by class."""
    found = pooled(STUDY)
    spreads = {
        f"{policy} / {part}": each["slowdown"][part]
        for part in CLASSES
        for policy, each in found.items()
        if each["slowdown"][part][0]
    }
    return boxes("Slowdown by class of run time (mod17 figure 4)", "slowdown", spreads)


def figure5() -> str:
    """Jobs that wait, over the seconds in which any case has a queue."""
    spreads = {policy: each["queue"][ALL] for policy, each in pooled(STUDY).items()}
    return boxes("Jobs in the queue, second by second (mod17 figure 5)", "jobs that wait", spreads)


def _predictions() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def _facts() -> dict[str, Any]:
    """What the sentences of `paper.yaml` fill in."""
    told = _predictions()
    at = {edge: place for place, edge in enumerate(ERRORS_MIN)}
    peak = max(_steps(ERRORS_MIN, told["W"]["errors"]), key=lambda each: each[2])
    return {
        **{name: told[name] for name in "DW"},
        **{f"small_{name}": 100 * sum(told[name]["errors"][: at[5]]) for name in "DW"},
        **{f"large_{name}": 100 * sum(told[name]["errors"][at[60] :]) for name in "DW"},
        "peak_W": _class(*peak[:2], _minutes),
        "peak_share": 100 * peak[2],
        "long": int(next(iter(pooled(STUDY).values()))["slowdown"]["long"][0]),
    }


def _steps(edges: Any, parts: Any) -> Any:
    return list(zip(edges, edges[1:], parts, strict=False))


def _class(low: float, high: float, unit: Any) -> str:
    return f"over {unit(low)}" if high >= 1e9 else f"{unit(low)} to {unit(high)}" if low else f"below {unit(high)}"


def _seconds(value: float) -> str:
    return f"{value:g} s" if value < 60 else _minutes(value / 60)


def _minutes(value: float) -> str:
    return f"{value:g} min" if value < 60 or value % 60 else f"{value / 60:g} h"
