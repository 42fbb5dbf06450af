"""What the papers published beside what the studies of the repository found: `studies/NAME/results.jsonl`."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

STUDIES = Path(__file__).resolve().parents[2] / "studies"
BESIDE = {"bsld": "lookahead-slowdown", "af": "lookahead-af", "awf": "lookahead-awf", "p2sf": "lookahead"}
"""Metric of debs24 -> the objective of `lookahead` that stands beside it."""
WITHIN = 1.0
"""Points of percent: published values are rounded to whole ones."""
NEAR = 10.0


def debs24() -> str:
    """Table 2 of debs24, number by number, in percent of list-reg, and how many of them have which verdict."""
    found = {}
    for text in (STUDIES / "debs24" / "results.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        labels = line["labels"]
        found[labels["trace"], labels["predictor"], labels["dispatcher"]] = line["result"].get("figures")
    rows, verdicts = [], Counter[str]()
    with (STUDIES / "debs24" / "published.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            where, metric = (row["trace"], row["predictor"]), row["metric"]
            base = found[(*where, "list-reg")][metric]
            mine, beside = found.get((*where, row["dispatcher"])), found[(*where, BESIDE[metric])][metric]
            percent = 100 * mine[metric] / base if mine else None
            verdict = verdict_of(float(row["percent"]) if row["percent"] else None, percent)
            verdicts[verdict] += 1
            ours = f"{percent:.1f}" if percent is not None else "-"
            cells = [metric.upper(), row["dispatcher"], row["trace"], row["predictor"], row["percent"] or "illegible"]
            rows.append(f"| {' | '.join([*cells, ours, verdict, f'{100 * beside / base:.1f}'])} |")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    head = "| figure | dispatcher | trace | estimate | published | ours | verdict | `lookahead` |"
    return "\n".join([f"{sum(verdicts.values())} numbers: {counts}.", "", head, f"|{' --- |' * 8}", *rows])


def verdict_of(published: float | None, ours: float | None) -> str:
    """Reproduced within a point, same order within ten, else differs; what was not run is not measured."""
    if published is None:
        return "cannot be"
    if ours is None:
        return "not measured"
    apart = abs(published - ours)
    return "reproduced" if apart <= WITHIN else "same order" if apart <= NEAR else "differs"
