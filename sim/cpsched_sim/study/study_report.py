"""The results of a study, and its outputs: tables as JSON Lines and Parquet, and the report.

The report contains rankings, and the configured tables and plots.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from cpsched.errors import CpschedError, join_abbreviated
from cpsched.formatting import format_count, format_number, format_percent
from cpsched.metrics import find_metric
from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.experiments.bootstrap_statistics import CONFIDENCE_LEVEL
from cpsched_sim.file_io import write_atomically
from cpsched_sim.report import svg_charts
from cpsched_sim.report_document import (
    ReportBlock,
    ReportFigure,
    ReportHeading,
    ReportParagraph,
    ReportTable,
    render_markdown,
    render_page,
)
from cpsched_sim.study.policy_ranking import (
    RankedPolicy,
    compare_policies,
    excluded_workloads,
    rank_policies,
    rows_shared_by_all_policies,
)
from cpsched_sim.study.result_store import RESULTS_FILE, StoredCaseResult, StudyResultStore
from cpsched_sim.study.study_cases import StudyCase, StudyCases
from cpsched_sim.study.study_schema import ReportPlotSchema, ReportTableSchema

_MAX_ROWS = 500
_MAX_NAMES = 5
RESULTS_TABLE, JOBS_TABLE, MARKDOWN_REPORT, HTML_REPORT = "results.parquet", "jobs.parquet", "report.md", "report.html"


@dataclass(frozen=True, slots=True, eq=False)
class StudyResults:
    """A study and the results of its cases. A case that has not run has no result."""

    campaign: StudyCases
    kept: Mapping[str, StoredCaseResult]
    """Stored results by digest."""
    folder: Path

    def __repr__(self) -> str:
        outcomes = Counter(kept.result["outcome"] for kept in self.kept.values())
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
        cases = format_count(len(self.campaign.cases), "case")
        return f"<StudyResults {self.campaign.words.title}: {cases}, {counts or 'no results'}, in {self.folder}>"

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row per case: labels, outcome, metric values and cost."""
        return [flat_case_row(case, self.kept[case.digest]) for case in self.campaign.cases if case.digest in self.kept]

    def to_frame(self) -> Any:
        """Return the rows as a pandas frame. Raise `InputError` without pandas."""
        from cpsched_sim import data_frames

        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        return data_frames.rows_to_frame([names, *([row.get(name) for name in names] for row in rows)])


def flat_case_row(case: StudyCase, kept: StoredCaseResult) -> dict[str, Any]:
    """Return one case as a flat row."""
    result, made = kept.result, kept.made
    decision = {f"decision_{name}": value for name, value in (made.get("decision") or {}).items()}
    versions = {f"version_{name}": value for name, value in (made.get("versions") or {}).items()}
    return {
        **case.labels, "digest": case.digest, "outcome": result["outcome"], "why": result["why"],
        **{name: value for name, value in (result.get("figures") or {}).items() if isinstance(value, int | float)},
        **{name: result.get(name) for name in ("left_waiting", "rounds", "violations", "schedule_sha256")},
        "cpu_s": made.get("cpu_s"), "wall_s": made.get("wall_s"), "share": made.get("share"), **decision, **versions,
        "machine": made.get("machine"), "machine_load": made.get("load"), "date": made.get("date"),
        "result_sha256": made.get("result_sha256"),
    }  # fmt: skip


def cpu_ms_per_round(cpu_s: float | None, rounds: int | None) -> float | None:
    """Return the CPU time per round in ms, or None if either is unknown or 0."""
    return 1000 * cpu_s / rounds if cpu_s and rounds else None


def write_study_outputs(results: StudyResults) -> list[str]:
    """Write all outputs. Raise `InputError`.

    Return a sentence for each optional output that could not be written.
    """
    folder, notes = results.folder, []
    write_atomically(folder / RESULTS_FILE, study_json_lines(results).encode())
    if find_spec("pyarrow"):
        write_atomically(folder / RESULTS_TABLE, _rows_to_parquet(results.rows()))
        if results.campaign.words.jobs:
            write_atomically(folder / JOBS_TABLE, _schedules_to_parquet(results))
    else:
        notes.append(f"no {RESULTS_TABLE}: Parquet requires pyarrow: pip install 'cpsched[study]'")
    title, blocks = results.campaign.words.title, list(study_report_blocks(results))
    write_atomically(folder / MARKDOWN_REPORT, render_markdown(title, blocks).encode())
    write_atomically(folder / HTML_REPORT, render_page(title, blocks).encode())
    return notes


def study_json_lines(results: StudyResults) -> str:
    """Return one line of JSON per case: labels, digest, inputs, result and made."""
    return "".join(f"{json.dumps(line, sort_keys=True)}\n" for line in _result_lines(results))


def _result_lines(results: StudyResults) -> Iterator[dict[str, object]]:
    for case in results.campaign.cases:
        if (kept := results.kept.get(case.digest)) is not None:
            made = {name: value for name, value in kept.made.items() if name != "labels"}
            yield {
                "labels": dict(case.labels), "digest": case.digest, "inputs": kept.inputs, "result": kept.result,
                "made": made,
            }  # fmt: skip


def _schedules_to_parquet(results: StudyResults) -> bytes:
    """Return all schedules as one Parquet table, with a row per job and distinct case."""
    schedules = StudyResultStore(results.folder).schedules
    parts: list[dict[str, np.ndarray]] = []
    for digest, kept in results.kept.items():
        if kept.has_metric_values:
            path = schedules.path(digest)
            try:
                with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as columns:
                    found = {name: columns[name] for name in columns.files}
            except (OSError, ValueError, EOFError, BadZipFile) as error:
                rule = "is not a schedule: delete it, and run the same command again"
                raise InputError(f"{path}: {rule}") from error
            parts.append({"digest": np.full(len(found["job"]), digest), **found})
    names = list(parts[0]) if parts else []
    return _columns_to_parquet({name: np.concatenate([part[name] for part in parts]) for name in names})


def _rows_to_parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as a Parquet file with one column per name. Raise `InputError`.

    A missing value is null.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return _columns_to_parquet({name: [row.get(name) for row in rows] for name in names})


def _columns_to_parquet(columns: Mapping[str, Any]) -> bytes:
    """Return columns as a Parquet file. Raise `InputError`."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("Parquet requires pyarrow: pip install 'cpsched[study]'") from error
    file = io.BytesIO()
    table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    parquet.write_table(table, file, compression="zstd")
    return file.getvalue()


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
    head = ["", "policy", "mean", "to the first", f"{format_percent(CONFIDENCE_LEVEL)} interval"]
    head += [f"to {base}", f"{format_percent(CONFIDENCE_LEVEL)} interval"] if base is not None else []
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
