"""The benchmark: the study in `benchmark.yaml`, plus the user's own dispatchers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from cpsched.formatting import format_percent
from cpsched_sim.errors import InputError
from cpsched_sim.experiments.bootstrap_statistics import CONFIDENCE_LEVEL
from cpsched_sim.experiments.case_store import compute_result_key
from cpsched_sim.report_document import ReportTable
from cpsched_sim.study.case_execution import ENDED
from cpsched_sim.study.policy_ranking import GeometricMeanRatio, compare_policies
from cpsched_sim.study.result_store import StudyResultStore
from cpsched_sim.study.study_cases import StudyCases
from cpsched_sim.study.study_report import cpu_ms_per_round, metric_heading
from cpsched_sim.study.study_runner import read_study_results

SUITE_FILE = Path(__file__).with_name("benchmark.yaml")
TRAINING_FILE = Path(__file__).with_name("benchmark-training.yaml")
TABLE_FILE = "benchmark.md"
DECISION_METRIC = "decision_cpu_ms"
BASELINE_DISPATCHER = "easy"
"""The dispatcher that is the baseline of all ratios."""


def make_benchmark_study(
    own: Sequence[str] = (), training: bool = False, quick: bool = False, alone: bool = False
) -> dict[str, Any]:
    """Return the suite as a study's mapping, with `own` after its dispatchers.

    `quick` selects only traces that need no file. `alone` selects only `own` and the baseline.
    """
    words: dict[str, Any] = yaml.safe_load(SUITE_FILE.read_text(encoding="utf-8"))
    other = yaml.safe_load(TRAINING_FILE.read_text(encoding="utf-8")) if training else {}
    names = [BASELINE_DISPATCHER] if alone else words["grids"][0]["dispatchers"]
    names = list(dict.fromkeys([*names, *own]))
    usable = [name for name, trace in words["traces"].items() if "file" not in trace or not quick]
    grids = [
        {**grid, **other.get(name, {}), "traces": [name], "dispatchers": names}
        for grid in words["grids"]
        for name in grid["traces"]
        if name in usable
    ]
    title = f"{words['title']}, {'training' if training else 'test'}{', quick' if quick else ''}"
    return {**words, "title": title, "traces": {name: words["traces"][name] for name in usable}, "grids": grids}


def import_benchmark_results(campaign: StudyCases, store: StudyResultStore, path: Path) -> tuple[int, int]:
    """Import results from another study that are not stored yet.

    `path` is a JSON Lines file. Its results must match the current code and traces.

    Return the number of imported results, and the number produced with other code, traces or suites. Raise `InputError`
    if a line is not a result, or has changed since it was stored.
    """
    taken = others = 0
    distinct = campaign.distinct_cases
    done, lines = store.load_earlier_results(campaign).done, list(read_study_results(path))
    for where, digest, line in lines:
        if line is None or compute_result_key(line.inputs) != digest or not line.is_intact:
            raise InputError(f"{where}: has changed since it was stored")
    for _, digest, line in lines:
        if digest not in distinct:
            others += 1
        elif digest not in done and line is not None:
            labels = dict(distinct[digest].labels)
            store.cases.store(digest, replace(line, made={**line.made, "labels": labels}))
            taken += 1
    return taken, others


def render_benchmark_table(metrics: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the benchmark's Markdown table: ratios to the baseline's metrics.

    The baseline has the same estimates. Intervals cover the variation over workloads. Rows are sorted by the first
    metric, best first.
    """
    rows = [{**row, DECISION_METRIC: cpu_ms_per_round(row.get("cpu_s"), row.get("rounds"))} for row in rows]
    parts = [
        f"Ratios to {BASELINE_DISPATCHER} with the same estimates (geometric means over workloads), with the "
        f"{format_percent(CONFIDENCE_LEVEL)} interval in brackets. Lower is better. "
        "The last columns are CPU time per decision and cases with results.",
    ]
    headings = [metric_heading(name).partition(",")[0] for name in metrics]
    for estimate in dict.fromkeys(row["predictor"] for row in rows):
        mine = [row for row in rows if row["predictor"] == estimate]
        names = list(dict.fromkeys(row["dispatcher"] for row in mine))
        found = {
            name: [
                compare_policies(mine, metric, name, BASELINE_DISPATCHER, by="dispatcher")
                for metric in (*metrics, DECISION_METRIC)
            ]
            for name in names
        }
        names.sort(key=lambda name: _ratio_sort_key(found[name][0]))
        head = ["dispatcher", *headings, "decision", "cases"]
        lines = []
        for name in names:
            ended = [row["outcome"] == ENDED for row in mine if row["dispatcher"] == name]
            *measures, decision = found[name]
            cells = [*map(_format_ratio, measures), "-" if decision is None else f"{decision.ratio:.2g}"]
            lines.append([name, *cells, f"{sum(ended)} of {len(ended)}"])
        parts.append(f"Estimates: {estimate}")
        parts.append(ReportTable("", head, lines).markdown())
    return "\n\n".join(parts) + "\n"


def _ratio_sort_key(ratio: GeometricMeanRatio | None) -> tuple[bool, float]:
    return ratio is None, ratio.ratio if ratio is not None else 0.0


def _format_ratio(ratio: GeometricMeanRatio | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio.ratio:.2f}" + (f" ({ratio.low:.2f}-{ratio.high:.2f})" if ratio.low is not None else "")
