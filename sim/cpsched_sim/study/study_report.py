"""Build a study's report: rankings, and the configured tables and plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cpsched.errors import CpschedError, join_abbreviated
from cpsched.formatting import format_number
from cpsched.metrics import find_metric
from cpsched_sim.errors import quote_value
from cpsched_sim.experiments.bootstrap_statistics import CONFIDENCE_LEVEL
from cpsched_sim.report import svg_charts
from cpsched_sim.report_document import ReportBlock, ReportFigure, ReportHeading, ReportParagraph, ReportTable
from cpsched_sim.study.policy_ranking import (
    RankedPolicy,
    compare_policies,
    excluded_workloads,
    rank_policies,
    rows_shared_by_all_policies,
)
from cpsched_sim.study.study_results import StudyResults
from cpsched_sim.study.study_schema import ReportPlotSchema, ReportTableSchema

_MAX_ROWS = 500
_MAX_NAMES = 5


def study_report_blocks(results: StudyResults) -> Iterator[ReportBlock]:
    """Yield all blocks of the report."""
    rows = results.rows()
    report = results.campaign.words.report
    yield from _case_count_blocks(results, rows)
    for name in report.metrics:
        yield from _ranking_blocks(rows, name, report.baseline)
    for each in report.tables:
        yield from _table_blocks(rows, each)
    for at, plot in enumerate(report.plots):
        yield from _plot_blocks(rows, plot, f"plot{at}")
    yield from _omission_blocks(results, rows)


def _case_count_blocks(results: StudyResults, rows: Sequence[Mapping[str, Any]]) -> Iterator[ReportBlock]:
    campaign = results.campaign
    outcomes = {name: sum(row["outcome"] == name for row in rows) for name in ("ended", "did not end", "failed")}
    open_ = len(campaign.cases) - len(rows)
    sentences = [
        f"{len(campaign.cases)} cases, {len(campaign.distinct_cases)} distinct replays.",
        "; ".join(f"{count} {name}" for name, count in {**outcomes, "not run yet": open_}.items() if count) + ".",
    ]
    yield from (ReportHeading("Cases"), *map(ReportParagraph, (*sentences, *campaign.notes)))


def _ranking_blocks(rows: Sequence[Mapping[str, Any]], name: str, baseline: str | None) -> Iterator[ReportBlock]:
    """Yield the ranking by a metric, best policy first.

    Ratios are to the best policy and to the baseline.
    """
    places = rank_policies(rows, name)
    yield ReportHeading(f"Ranking by {metric_heading(name)}")
    if not places:
        why = "no workload has a value above zero for every policy" if rows else "no results yet"
        yield ReportParagraph(f"None: {why}, or fewer than two policies.")
        return
    shared = rows_shared_by_all_policies(rows, name)
    base = baseline if any(place.name == baseline for place in places) else None
    head = ["", "policy", "mean", "to the first", f"{CONFIDENCE_LEVEL:.0%} interval"]
    head += [f"to {base}", f"{CONFIDENCE_LEVEL:.0%} interval"] if base is not None else []
    lines = []
    for at, place in enumerate(places):
        mean = float(np.mean([row[name] for row in shared if row["policy"] == place.name]))
        line = [
            str(at + 1),
            place.name,
            format_number(mean),
            f"{place.ratio.ratio:.3f}",
            _format_interval(place.ratio) if at else "-",
        ]
        if base is not None:
            found = compare_policies(shared, name, place.name, base)
            line += (
                [f"{found.ratio:.3f}", _format_interval(found) if place.name != base else "-"]
                if found is not None
                else ["", ""]
            )
        lines.append([*line, _format_similar_policies(place, len(places))])
    units = places[-1].ratio
    sentences = [
        f"Over {units.units} {units.of} that all policies share; ratios are geometric means of pairs.",
        "Each interval has a confidence of 95 %. Policies differ significantly if their wider interval excludes 1; "
        f"all {len(places) * (len(places) - 1) // 2} wider intervals hold together with a confidence of 95 %.",
    ]
    if units.units < 2:
        sentences = ["With one workload and no seeds, ratios have no intervals, so no difference is significant."]
    if dropped := excluded_workloads(rows, name):
        some = join_abbreviated(dropped, _MAX_NAMES, text=quote_value)
        sentences.append(f"Omitted, because a policy has no value above zero: {len(dropped)} ({some}).")
    yield from (*map(ReportParagraph, sentences), ReportTable("", [*head, "not significantly different from"], lines))


def _format_interval(ratio: Any) -> str:
    return "none" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"


def _format_similar_policies(place: RankedPolicy, all_: int) -> str:
    return "any" if len(place.alike) == all_ - 1 else ", ".join(place.alike) or "none"


def _table_blocks(rows: Sequence[Mapping[str, Any]], schema: ReportTableSchema) -> Iterator[ReportBlock]:
    cells = _mean_by_cell(rows, schema.metric, schema.rows, schema.columns)
    down, across = ([key[at] for key in cells] for at in (0, 1))
    columns = list(dict.fromkeys(across))
    lines = [
        [str(each), *(format_number(cells[each, column]) if (each, column) in cells else "-" for column in columns)]
        for each in dict.fromkeys(down)
    ]
    yield ReportHeading(schema.title)
    yield ReportParagraph(f"{metric_heading(schema.metric)}, mean over all cases in a cell.")
    if lines:
        yield ReportTable("", [schema.rows, *map(str, columns)], lines[:_MAX_ROWS])


def _plot_blocks(rows: Sequence[Mapping[str, Any]], schema: ReportPlotSchema, name: str) -> Iterator[ReportBlock]:
    cells = _mean_by_cell(rows, schema.metric, schema.lines, schema.across)
    series: dict[str, tuple[list[float], list[float]]] = {}
    order = list(dict.fromkeys(across for _, across in cells))
    for (line, across), value in cells.items():
        x, y = series.setdefault(str(line), ([], []))
        x.append(float(across) if isinstance(across, int | float) else float(order.index(across)))
        y.append(value)
    lines = [
        [line, *(format_number(cells[line, each]) if (line, each) in cells else "-" for each in order)]
        for line in dict.fromkeys(line for line, _ in cells)
    ]

    yield ReportHeading(schema.title)
    if series:
        numbers = ReportTable("", [schema.lines, *map(str, order)], lines)
        yield ReportFigure(
            lambda: svg_charts.draw_line_plot(series, schema.across, metric_heading(schema.metric), name),
            numbers,
            is_open=True,
        )


def _mean_by_cell(rows: Sequence[Mapping[str, Any]], name: str, down: str, across: str) -> dict[tuple[Any, Any], float]:
    """Return the mean of a metric for each cell of a table."""
    found: dict[tuple[Any, Any], list[float]] = {}
    for row in rows:
        if row["outcome"] == "ended" and row.get(name) is not None:
            found.setdefault((_axis_value(row, down), _axis_value(row, across)), []).append(float(row[name]))
    return {key: float(np.mean(values)) for key, values in found.items()}


def _axis_value(row: Mapping[str, Any], axis: str) -> Any:
    """Return a row's value on an axis. On the policy axis, a named case has its name."""
    return row["case"] if axis == "policy" and row["case"] else row[axis]


def _omission_blocks(results: StudyResults, rows: Iterable[Mapping[str, Any]]) -> Iterator[ReportBlock]:
    bad = [row for row in rows if row["outcome"] != "ended"]
    if bad:
        yield ReportHeading("Cases without values")
        yield ReportTable(
            "", ["case", "why"], [[_case_label(row), quote_value(row["why"], 300)] for row in bad[:_MAX_ROWS]]
        )
    if excluded := results.campaign.excluded:
        yield ReportHeading("Left out")
        yield ReportTable("", ["reason", "cases"], [[why, str(count)] for why, count in excluded.items()])


def _case_label(row: Mapping[str, Any]) -> str:
    return row["case"] or f"{row['trace']}, load {row['load']:g}, {row['window']}, {row['policy']}, seed {row['seed']}"


def metric_heading(name: str) -> str:
    """Return the heading of a metric, with its unit."""
    try:
        found = find_metric(name)
    except CpschedError:
        return {"longest_wait_s": "longest wait, s"}.get(name, name)
    return f"{found.heading}{f', {found.unit}' if found.unit else ''}"
