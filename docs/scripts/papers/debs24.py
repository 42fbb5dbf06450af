"""Table 2 and figures of debs24 beside `studies/debs24/results.jsonl`."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docs.scripts import markdown
from docs.scripts.papers.charts import bars, lines
from docs.scripts.papers.claims import judged, page, verdict_of
from docs.scripts.papers.queues import FILE
from docs.scripts.papers.spreads import STUDIES

Found = Mapping[tuple[str, str, str], Any]
"""By trace, estimate and dispatcher."""

BESIDE = {"bsld": "lookahead-slowdown", "af": "lookahead-af", "awf": "lookahead-awf", "p2sf": "lookahead"}
"""Metric of debs24 -> the objective of `lookahead` that stands beside it."""


VERDICT = 6
"""The column of a row of table 2."""
PACKING = {"awf": ["list-saf", "list-sjf"]}
"""Dispatchers that a figure shows and table 2 does not (figure 4b)."""
TRACES = ("KTH-SP2", "SDSC-BLUE")
STUDY, PARTS = STUDIES / "debs24", STUDIES / "debs24-cp"
"""Whole traces, and the CP schedulers on parts of them."""


def claims() -> str:
    """What the text and the figures say, with verdicts."""
    return page(STUDY, _facts())


def verdicts() -> list[str]:
    """The verdict of each of them."""
    return [claim.verdict for claim in judged(STUDY, _facts())]


def verdicts_of_table() -> list[str]:
    """The verdict of each number of table 2."""
    return [row[VERDICT] for row in _cells()]


def table() -> str:
    """Table 2 of debs24, number by number, in percent of list-reg, and how many of them have which verdict."""
    rows, verdicts = _cells(), Counter(verdicts_of_table())
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    head = ("figure", "dispatcher", "trace", "estimate", "published", "ours", "verdict", "`lookahead`", "would take")
    return f"{len(rows)} numbers: {counts}.\n\n{markdown.table(head, rows)}"


def _cells() -> list[tuple[str, ...]]:
    """The rows of table 2: what, published, ours, verdict, `lookahead` beside it, and what a replay would take."""
    found, parts, rows = _found(STUDY), _found(PARTS), []
    for row in _published():
        where, metric = (row["trace"], row["predictor"]), row["metric"]
        base = found[(*where, "list-reg")][metric]
        mine, beside = found.get((*where, row["dispatcher"])), found[(*where, BESIDE[metric])][metric]
        percent = 100 * mine[metric] / base if mine else None
        verdict = verdict_of(float(row["percent"]) if row["percent"] else None, percent)
        ours = f"{percent:.1f}" if percent is not None else "-"
        what = (metric.upper(), row["dispatcher"], row["trace"], row["predictor"], row["percent"] or "illegible")
        whole = whole_of(row, found, parts) if mine is None else ""
        rows.append((*what, ours, verdict, f"{100 * beside / base:.1f}", whole))
    return rows


def whole_of(row: Mapping[str, str], found: Found, parts: Found) -> str:
    """The CPU time that a CP scheduler would take for a whole trace: that of a round of the part, times all rounds."""
    trace, name = row["trace"], row["dispatcher"]
    part = parts.get((trace, row["predictor"], name)) or parts.get((trace, "oracle", name))
    if part is None:
        return ""
    seconds = part["cpu_s"] / part["rounds"] * found[trace, row["predictor"], "list-reg"]["rounds"]
    return f"about {seconds / 3600:.1f} h"


def figure2() -> str:
    """AWF of the schedules, run times known."""
    return _percents("awf", "AWF, run times known (debs24 figure 2)")


def figure3() -> str:
    """BSLD of the schedules."""
    return _percents("bsld", "BSLD, run times known (debs24 figure 3)")


def figure4() -> str:
    """AF of the schedules (figure 4a); 4b is with figure 2."""
    return _percents("af", "AF, run times known (debs24 figure 4)")


def figure5() -> str:
    """Queue over time of SDSC-BLUE, in place of SDSC-SP2."""
    title = "Queue of SDSC-BLUE, first 40,000 jobs (debs24 figure 5 has SDSC-SP2)"
    return lines(title, "days", "jobs that wait", _queues()["over_time"])


def figure6() -> str:
    """P2SF of the schedules."""
    return _percents("p2sf", "P2SF, run times known (debs24 figure 6)")


def figure7() -> str:
    """Share of rounds by queue size."""
    told = _queues()
    series = {name: list(zip(told["sizes"], shares, strict=True)) for name, shares in told["by_round"].items()}
    title = "Queue after each round, List-REG (debs24 figure 7 has CP-P2SF)"
    return lines(title, "jobs that wait", "share of rounds", series)


def _percents(metric: str, title: str) -> str:
    """Ours in percent of list-reg, and beside it what was published."""
    found = _found(STUDY)
    published = {(row["dispatcher"], row["trace"]): row["percent"] for row in _of_figure(metric)}
    names = list(dict.fromkeys([name for name, _ in published] + PACKING.get(metric, []) + [BESIDE[metric]]))
    rows: dict[str, tuple[float, float | None]] = {}
    for trace in TRACES:
        base = found[trace, "oracle", "list-reg"][metric]
        for name in names:
            if (ours := found.get((trace, "oracle", name))) is not None:
                rows[f"{name} / {trace}"] = (100 * ours[metric] / base, None)
            if percent := published.get((name, trace)):
                rows[f"{name} / {trace}, published"] = (float(percent), None)
    return bars(title, "% of list-reg", rows, mark=100)


def _of_figure(metric: str) -> list[dict[str, str]]:
    return [row for row in _published() if row["metric"] == metric and row["predictor"] == "oracle"]


def _published() -> list[dict[str, str]]:
    with (STUDY / "published.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _found(study: Path) -> Found:
    """Figures, rounds and CPU time of the landed results that ended, by trace, estimate and dispatcher."""
    found = {}
    for text in (study / "results.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        labels, result = line["labels"], line["result"]
        if result["outcome"] == "ended":
            more = {"rounds": result["rounds"], "cpu_s": line["made"]["cpu_s"]}
            found[labels["trace"], labels["predictor"], labels["dispatcher"]] = {**result["figures"], **more}
    return found


def _facts() -> dict[str, float]:
    """By trace, the share of rounds with at most 30 jobs waiting."""
    told = _queues()
    return {name: shares[told["sizes"].index(30)] for name, shares in told["by_round"].items()}


def _queues() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found
