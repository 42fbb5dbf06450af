"""A study's report, and the other files in its results folder."""

import json

import pytest

from cpsched_sim.report_document import render_markdown
from cpsched_sim.report_document import render_page as page_of
from cpsched_sim.study import study_output
from cpsched_sim.study.result_store import StoredCaseResult, StudyResultStore
from cpsched_sim.study.study_cases import build_study_cases
from cpsched_sim.study.study_output import study_json_lines, write_study_outputs
from cpsched_sim.study.study_report import study_report_blocks
from cpsched_sim.study.study_results import StudyResults
from cpsched_sim.study.study_runner import run_missing_cases
from tests.unit.sim.study.studies import words, written
from tests.unit.sim.study.test_study_runner import Here


def results(folder, values, **more):
    """A study whose cases have these figures, in their order; None: failed, and nothing at all beyond the last."""
    written(folder)
    campaign = build_study_cases(words(report={"metrics": ["bsld"], **more.pop("report", {})}, **more), folder)
    kept = {}
    for case, value in zip(campaign.cases, values, strict=False):
        ended = {"outcome": "ended", "why": "", "figures": {"bsld": value}}
        failed = {"outcome": "failed", "why": "a | b <c> `d`"}
        made = {"labels": {"policy": "not of the line"}, "wall_s": 1.0}
        kept[case.digest] = StoredCaseResult(case.inputs, ended if value is not None else failed, made)
    return StudyResults(campaign, kept, folder / "out")


def letter(found):
    return render_markdown(found.campaign.words.title, study_report_blocks(found))


def page(found):
    return page_of(found.campaign.words.title, study_report_blocks(found))


def test_counts_replays_and_outcomes(tmp_path):
    text = letter(results(tmp_path, [1.0, None, 2.0]))
    assert "4 cases, 4 distinct replays." in text
    assert "2 ended; 1 failed; 1 not run yet." in text


def test_ranking_has_means_ratios_and_insignificance(tmp_path):
    text = letter(results(tmp_path, [4.0, 1.0, 16.0, 4.0], report={"baseline": "easy / walltime"}))
    assert "| 1 | list-sjf / walltime | 2.5 | 1.000 | - | 0.250 | 0.250 to 0.250 | none |" in text
    assert "| 2 | easy / walltime | 10 | 4.000 | 4.000 to 4.000 | 1.000 | - | none |" in text
    text = letter(results(tmp_path / "more", [4.0, 1.0, 1.0, 4.0]))
    assert text.count("| any |") == 2


def test_ranking_means_are_over_common_workloads(tmp_path):
    text = letter(results(tmp_path, [4.0, 1.0, 16.0, None]))
    assert "| 2 | easy / walltime | 4 |" in text
    assert "With one workload and no seeds, ratios have no intervals" in text


def test_names_workloads_left_out_of_ranking(tmp_path):
    """A week without waits has no ratio, and leaving out the best weeks is to be seen."""
    text = letter(results(tmp_path, [4.0, 1.0, 0.0, 0.0]))
    assert "Omitted, because a policy has no value above zero: 1 (" in text
    assert "Left out" not in letter(results(tmp_path / "all", [4.0, 1.0, 16.0, 4.0]))


def test_single_policy_has_no_ranking(tmp_path):
    grid = {"traces": ["four"], "dispatchers": ["easy"]}
    assert "None: no workload has a value above zero" in letter(results(tmp_path, [1.0], grids=[grid]))
    assert "None: no results yet" in letter(results(tmp_path / "more", [], grids=[grid]))


def test_tables_and_plots_have_mean_of_each_cell(tmp_path):
    table = {"title": "By load", "metric": "bsld", "rows": "load", "columns": "dispatcher"}
    plot = {"title": "Along", "metric": "bsld", "across": "load", "lines": "dispatcher"}
    found = results(tmp_path, [1.0, 2.0, 3.0, None], report={"tables": [table], "plots": [plot]})
    text = letter(found)
    assert "| load | easy | list-sjf |\n| --- | --- | --- |\n| 1.0 | 1 | 2 |\n| 2.0 | 3 | - |" in text
    assert "| dispatcher | 1.0 | 2.0 |\n| --- | --- | --- |\n| easy | 1 | 3 |\n| list-sjf | 2 | - |" in text
    assert "<svg" in page(found) or "<img" in page(found) or "needs matplotlib" in page(found)


def test_zero_counts_in_mean(tmp_path):
    table = {"title": "All", "metric": "bsld", "rows": "dispatcher", "columns": "trace"}
    text = letter(results(tmp_path, [0.0, 0.0, 3.0, 0.0], report={"tables": [table]}))
    assert "| easy | 1.5 |\n| list-sjf | 0 |" in text


def test_three_policies_have_three_comparisons(tmp_path):
    grid = {"traces": ["four"], "dispatchers": ["fcfs", "easy", "list-sjf"], "loads": [1 + at / 8 for at in range(8)]}
    figures = [[90.0 + at, 1.0 + 0.01 * (at % 2), 1.01 - 0.01 * (at % 2)] for at in range(8)]
    text = letter(results(tmp_path, [each for case in figures for each in case], grids=[grid]))
    assert "all 3 wider intervals hold together" in text
    lines = [line for line in text.splitlines() if line.startswith(("| 1 ", "| 3 "))]
    assert [line.split(" | ")[-1] for line in lines] == ["list-sjf / walltime |", "none |"]


@pytest.mark.parametrize(("across", "x"), [("load", [1.0, 4.0]), ("window", [0.0])])
def test_numeric_axis_is_to_scale_and_text_axis_is_even(tmp_path, monkeypatch, across, x):
    from cpsched_sim.report import svg_charts

    drawn = []
    monkeypatch.setattr(
        svg_charts, "draw_line_plot", lambda series, *words: drawn.append((series, words)) or "<svg></svg>"
    )
    grid = {"traces": ["four"], "dispatchers": ["easy"], "loads": [1.0, 4.0]}
    plot = {"title": "Along", "metric": "bsld", "across": across, "lines": "dispatcher"}
    page(results(tmp_path, [2.0, 4.0], grids=[grid], report={"plots": [plot]}))
    ((series, words_),) = drawn
    assert (list(series), series["easy"][0], words_[:2]) == (["easy"], x, (across, "BSLD"))


def test_truncates_long_error(tmp_path):
    found = results(tmp_path, [1.0, None])
    kept = found.kept[found.campaign.cases[1].digest]
    kept.result["why"] = "long " * 1000
    assert max(map(len, letter(found).splitlines())) < 600


def test_named_cases_are_listed_but_not_ranked(tmp_path):
    table = {"title": "All", "metric": "bsld"}
    case = {"name": "alone", "trace": "four", "dispatcher": "fcfs"}
    text = letter(results(tmp_path, [1.0, 2.0, 1.0, 2.0, 7.0], cases=[case], report={"tables": [table]}))
    assert "| alone | 7 |" in text
    assert "fcfs" not in text


def test_escapes_failures_and_exclusions(tmp_path):
    left_out = {"dispatcher": "easy", "load": 2.0, "because": "too dense"}
    text = letter(results(tmp_path, [1.0, None, 1.0], exclude=[left_out]))
    assert "| four, load 1, whole, list-sjf / walltime, seed 0 | a \\| b &lt;c> 'd' |" in text
    assert "| too dense | 1 |" in text


def test_writes_line_per_case_with_current_labels(tmp_path):
    found = results(tmp_path, [1.0, 2.0, 3.0])
    lines = [json.loads(line) for line in study_json_lines(found).splitlines()]
    assert [line["result"]["figures"]["bsld"] for line in lines] == [1.0, 2.0, 3.0]
    assert [line["digest"] for line in lines] == [case.digest for case in found.campaign.cases[:3]]
    assert {line["labels"]["policy"] for line in lines} == {"easy / walltime", "list-sjf / walltime"}
    assert lines[0]["made"] == {"wall_s": 1.0}


def test_writes_lines_and_note_without_pyarrow(tmp_path, monkeypatch):
    written(tmp_path)
    monkeypatch.setattr(study_output, "find_spec", lambda name: None)
    (note,) = write_study_outputs(
        run_missing_cases(build_study_cases(words(), tmp_path), StudyResultStore(tmp_path / "out"), Here())
    )
    assert "requires pyarrow" in note
    kept = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert kept == {"results.jsonl", "report.md", "report.html"}


def test_schedules_of_ended_cases_are_one_table(tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow.parquet import read_table

    windows = [{"days": 1}, {"days": 1, "from_day": 9}]
    written(tmp_path)
    grid = {"traces": ["four"], "dispatchers": ["easy"], "windows": windows}
    campaign = build_study_cases(words(jobs=True, grids=[grid]), tmp_path)
    write_study_outputs(run_missing_cases(campaign, StudyResultStore(tmp_path / "out"), Here()))
    rows = read_table(tmp_path / "out" / "jobs.parquet").to_pylist()
    assert [row["digest"] for row in rows] == [campaign.cases[0].digest] * 4
