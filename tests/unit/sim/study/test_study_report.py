"""A study's report, and the other files in its results folder."""

import json

import pytest

from cpsched_sim.report_document import render_markdown
from cpsched_sim.report_document import render_page as page_of
from cpsched_sim.study.result_store import StoredCaseResult, StudyResultStore
from cpsched_sim.study.study_cases import build_study_cases
from cpsched_sim.study.study_report import StudyResults, study_json_lines, study_report_blocks, write_study_outputs
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


EASY = {"grids": [{"traces": ["four"], "dispatchers": ["easy"]}]}
BY_LOAD = {"title": "By load", "metric": "bsld", "rows": "load", "columns": "dispatcher"}
BY_TRACE = {"title": "All", "metric": "bsld", "rows": "dispatcher", "columns": "trace"}
ALONG_LOAD = {"title": "Along", "metric": "bsld", "across": "load", "lines": "dispatcher"}
ALONE = {"name": "alone", "trace": "four", "dispatcher": "fcfs"}
DENSE = {"dispatcher": "easy", "load": 2.0, "because": "too dense"}


@pytest.mark.parametrize(
    ("values", "more", "said", "unsaid"),
    [
        ([1.0, None, 2.0], {}, ["4 cases, 4 distinct replays.", "2 ended; 1 failed; 1 not run yet."], ""),
        # means, ratios, and insignificant differences
        ([4.0, 1.0, 16.0, 4.0], {"report": {"baseline": "easy / walltime"}},
         ["| 1 | list-sjf / walltime | 2.5 | 1.000 | - | 0.250 | 0.250 to 0.250 | none |",
          "| 2 | easy / walltime | 10 | 4.000 | 4.000 to 4.000 | 1.000 | - | none |"],
         "Omitted, because a policy has no value"),
        # means are over common workloads
        ([4.0, 1.0, 16.0, None], {},
         ["| 2 | easy / walltime | 4 |", "With one workload and no seeds, ratios have no intervals"], ""),
        # a week without waits has no ratio, and leaving out the best weeks is to be seen
        ([4.0, 1.0, 0.0, 0.0], {}, ["Omitted, because a policy has no value above zero: 1 ("], ""),
        ([1.0], EASY, ["None: no workload has a value above zero"], ""),
        ([], EASY, ["None: no results yet"], ""),
        ([1.0, 2.0, 3.0, None], {"report": {"tables": [BY_LOAD], "plots": [ALONG_LOAD]}},
         ["| load | easy | list-sjf |\n| --- | --- | --- |\n| 1.0 | 1 | 2 |\n| 2.0 | 3 | - |",
          "| dispatcher | 1.0 | 2.0 |\n| --- | --- | --- |\n| easy | 1 | 3 |\n| list-sjf | 2 | - |"], ""),
        # zero counts in a mean
        ([0.0, 0.0, 3.0, 0.0], {"report": {"tables": [BY_TRACE]}}, ["| easy | 1.5 |\n| list-sjf | 0 |"], ""),
        # named cases are listed but not ranked
        ([1.0, 2.0, 1.0, 2.0, 7.0], {"cases": [ALONE], "report": {"tables": [{"title": "All", "metric": "bsld"}]}},
         ["| alone | 7 |"], "fcfs"),
        ([1.0, None, 1.0], {"exclude": [DENSE]},
         ["| four, load 1, whole, list-sjf / walltime, seed 0 | a \\| b &lt;c> 'd' |", "| too dense | 1 |"], ""),
    ],
)  # fmt: skip
def test_report_names_results(tmp_path, values, more, said, unsaid):
    text = letter(results(tmp_path, values, **more))
    assert [part for part in said if part not in text] == []
    assert not unsaid or unsaid not in text


def test_ranking_marks_insignificant_differences(tmp_path):
    assert letter(results(tmp_path, [4.0, 1.0, 1.0, 4.0])).count("| any |") == 2


def test_page_shows_plots(tmp_path):
    shown = page(results(tmp_path, [1.0, 2.0, 3.0, None], report={"plots": [ALONG_LOAD]}))
    assert "<svg" in shown or "<img" in shown or "needs matplotlib" in shown


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


def test_writes_line_per_case_with_current_labels(tmp_path):
    found = results(tmp_path, [1.0, 2.0, 3.0])
    lines = [json.loads(line) for line in study_json_lines(found).splitlines()]
    assert [line["result"]["figures"]["bsld"] for line in lines] == [1.0, 2.0, 3.0]
    assert [line["digest"] for line in lines] == [case.digest for case in found.campaign.cases[:3]]
    assert {line["labels"]["policy"] for line in lines} == {"easy / walltime", "list-sjf / walltime"}
    assert lines[0]["made"] == {"wall_s": 1.0}


def test_writes_lines_and_note_without_pyarrow(tmp_path, monkeypatch):
    written(tmp_path)
    monkeypatch.setattr("cpsched_sim.study.study_report.find_spec", lambda name: None)
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
