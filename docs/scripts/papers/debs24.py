"""Table 2 and figures of debs24 beside `studies/debs24/results.jsonl`."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.scripts import markdown
from docs.scripts.papers.charts import bars, lines
from docs.scripts.papers.claims import DID_NOT_END, judged, page, verdict_of
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
STUDY, WHOLE, PARTS = STUDIES / "debs24", STUDIES / "debs24-whole", STUDIES / "debs24-cp"
"""Whole traces, the CP schedulers on whole traces, and on parts of them."""
LEAST_SHARE = 0.02
"""Of a trace; what a smaller part took says little of the whole."""


def claims() -> str:
    """What the text and the figures say, with verdicts."""
    return page(STUDY, _facts())


def verdicts() -> list[str]:
    """The verdict of each of them."""
    return [claim.verdict for claim in judged(STUDY, _facts())]


def verdicts_of_table() -> list[str]:
    """The verdict of each number of table 2."""
    return [row[VERDICT] for row in cells()]


def table() -> str:
    """Table 2 of debs24, number by number, in percent of list-reg, and how many of them have which verdict."""
    rows, verdicts = cells(), Counter(verdicts_of_table())
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    head = ("figure", "dispatcher", "trace", "estimate", "published", "ours", "verdict", "`lookahead`", "would take")
    return f"{len(rows)} numbers: {counts}.\n\n{markdown.table(head, rows)}"


def cells() -> list[tuple[str, ...]]:
    """The rows of table 2: what, published, ours, verdict, `lookahead` beside it, and what a replay would take."""
    found, parts, open_, rows = _found(STUDY, WHOLE), _found(PARTS), _unended(WHOLE), []
    for row in _published():
        where, metric = (row["trace"], row["predictor"]), row["metric"]
        base = found[(*where, "list-reg")][metric]
        mine, beside = found.get((*where, row["dispatcher"])), found[(*where, BESIDE[metric])][metric]
        percent = 100 * mine[metric] / base if mine else None
        verdict = verdict_of(float(row["percent"]) if row["percent"] else None, percent)
        ours, whole = f"{percent:.1f}" if percent is not None else "-", ""
        if mine is None:
            whole = whole_of(row, found, parts)
            if (made := open_.get((*where, row["dispatcher"]))) is not None:
                ours, whole = began(made), whole_by(made) or whole
                verdict = DID_NOT_END if verdict == "not measured" else verdict
        what = (metric.upper(), row["dispatcher"], row["trace"], row["predictor"], row["percent"] or "illegible")
        rows.append((*what, ours, verdict, f"{100 * beside / base:.1f}", whole))
    return rows


def began(made: Mapping[str, Any]) -> str:
    """How far a replay came that did not end."""
    return f"{made['share']:.0%} of the jobs in {made['cpu_s'] / 60:.0f} min of CPU time"


def whole_by(made: Mapping[str, Any]) -> str:
    """The CPU time of a whole trace by the share of its jobs that a replay came to; nothing where that was little."""
    return _about(made["cpu_s"] / made["share"]) if made["share"] >= LEAST_SHARE else ""


def whole_of(row: Mapping[str, str], found: Found, parts: Found) -> str:
    """The CPU time that a CP scheduler would take for a whole trace: that of a round of the part, times all rounds."""
    trace, name = row["trace"], row["dispatcher"]
    part = parts.get((trace, row["predictor"], name)) or parts.get((trace, "oracle", name))
    if part is None:
        return ""
    seconds = part["cpu_s"] / part["rounds"] * found[trace, row["predictor"], "list-reg"]["rounds"]
    return _about(seconds)


def _about(seconds: float) -> str:
    hours = seconds / 3600
    return f"about {hours:.1f} h" if hours >= 0.1 else "minutes"


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
    found = _found(STUDY, WHOLE)
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


def _found(*studies: Path) -> Found:
    """Figures, rounds and CPU time of the landed results that ended, by trace, estimate and dispatcher."""
    found = {}
    for where, line in _lines(*studies):
        result = line["result"]
        if result["outcome"] == "ended":
            more = {"rounds": result["rounds"], "cpu_s": line["made"]["cpu_s"]}
            found[where] = {**result["figures"], **more}
    return found


def _unended(study: Path) -> Found:
    """What is said of the replays that came to a limit, by trace, estimate and dispatcher."""
    return {where: line["made"] for where, line in _lines(study) if line["result"]["outcome"] == "did not end"}


def _lines(*studies: Path) -> Iterator[tuple[tuple[str, str, str], Mapping[str, Any]]]:
    for study in studies:
        file = study / "results.jsonl"
        for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            line = json.loads(text)
            labels = line["labels"]
            yield (labels["trace"], labels["predictor"], labels["dispatcher"]), line


def _facts() -> dict[str, float]:
    """By trace, the share of rounds with at most 30 jobs waiting."""
    told = _queues()
    return {name: shares[told["sizes"].index(30)] for name, shares in told["by_round"].items()}


def _queues() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found
