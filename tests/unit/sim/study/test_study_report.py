"""What the report says of a study, and what it leaves beside its results."""

import json

import pytest

from cpsched_sim.document import render_markdown
from cpsched_sim.document import render_page as page_of
from cpsched_sim.study import study_output
from cpsched_sim.study.campaign import campaign_of
from cpsched_sim.study.case_runner import run_cases
from cpsched_sim.study.result_store import StoredCaseResult, StudyResultStore
from cpsched_sim.study.study_output import lines_of, write_all
from cpsched_sim.study.study_report import blocks
from cpsched_sim.study.study_results import StudyResults
from tests.unit.sim.study.studies import words, written
from tests.unit.sim.study.test_case_runner import Here


def results(folder, values, **more):
    """A study whose cases have these figures, in their order; None: failed, and nothing at all beyond the last."""
    written(folder)
    campaign = campaign_of(words(report={"metrics": ["bsld"], **more.pop("report", {})}, **more), folder)
    kept = {}
    for case, value in zip(campaign.cases, values, strict=False):
        ended = {"outcome": "ended", "why": "", "figures": {"bsld": value}}
        failed = {"outcome": "failed", "why": "a | b <c> `d`"}
        made = {"labels": {"policy": "not of the line"}, "wall_s": 1.0}
        kept[case.digest] = StoredCaseResult(case.inputs, ended if value is not None else failed, made)
    return StudyResults(campaign, kept, folder / "out")


def letter(found):
    return render_markdown(found.campaign.words.title, blocks(found))


def page(found):
    return page_of(found.campaign.words.title, blocks(found))


def test_what_was_run_is_counted(tmp_path):
    text = letter(results(tmp_path, [1.0, None, 2.0]))
    assert "4 cases, 4 of them different replays." in text
    assert "2 ended; 1 failed; 1 not reached yet." in text


def test_a_ranking_has_means_ratios_and_what_cannot_be_told_apart(tmp_path):
    text = letter(results(tmp_path, [4.0, 1.0, 16.0, 4.0], report={"baseline": "easy / walltime"}))
    assert "| 1 | list-sjf / walltime | 2.5 | 1.000 | - | 0.250 | 0.250 to 0.250 | none |" in text
    assert "| 2 | easy / walltime | 10 | 4.000 | 4.000 to 4.000 | 1.000 | - | none |" in text
    text = letter(results(tmp_path / "more", [4.0, 1.0, 1.0, 4.0]))
    assert text.count("| any |") == 2


def test_means_of_a_ranking_are_over_what_all_have(tmp_path):
    text = letter(results(tmp_path, [4.0, 1.0, 16.0, None]))
    assert "| 2 | easy / walltime | 4 |" in text
    assert "One workload and no seeds: ratios without intervals" in text


def test_workloads_that_a_ranking_leaves_out_are_named(tmp_path):
    """A week without waits has no ratio, and leaving out the best weeks is to be seen."""
    text = letter(results(tmp_path, [4.0, 1.0, 0.0, 0.0]))
    assert "Left out, because a policy has no figure above zero there: 1 (" in text
    assert "Left out" not in letter(results(tmp_path / "all", [4.0, 1.0, 16.0, 4.0]))


def test_a_ranking_of_one_policy_is_none(tmp_path):
    grid = {"traces": ["four"], "dispatchers": ["easy"]}
    assert "None: no workload has a figure above zero" in letter(results(tmp_path, [1.0], grids=[grid]))
    assert "None: no results yet" in letter(results(tmp_path / "more", [], grids=[grid]))


def test_tables_and_plots_have_the_mean_of_each_cell(tmp_path):
    table = {"title": "By load", "metric": "bsld", "rows": "load", "columns": "dispatcher"}
    plot = {"title": "Along", "metric": "bsld", "across": "load", "lines": "dispatcher"}
    found = results(tmp_path, [1.0, 2.0, 3.0, None], report={"tables": [table], "plots": [plot]})
    text = letter(found)
    assert "| load | easy | list-sjf |\n| --- | --- | --- |\n| 1.0 | 1 | 2 |\n| 2.0 | 3 | - |" in text
    assert "| dispatcher | 1.0 | 2.0 |\n| --- | --- | --- |\n| easy | 1 | 3 |\n| list-sjf | 2 | - |" in text
    assert "<svg" in page(found) or "<img" in page(found) or "needs matplotlib" in page(found)


def test_a_figure_of_zero_counts_in_a_mean(tmp_path):
    table = {"title": "All", "metric": "bsld", "rows": "dispatcher", "columns": "trace"}
    text = letter(results(tmp_path, [0.0, 0.0, 3.0, 0.0], report={"tables": [table]}))
    assert "| easy | 1.5 |\n| list-sjf | 0 |" in text


def test_three_policies_are_three_comparisons_and_some_are_told_from_one_alone(tmp_path):
    grid = {"traces": ["four"], "dispatchers": ["fcfs", "easy", "list-sjf"], "loads": [1 + at / 8 for at in range(8)]}
    figures = [[90.0 + at, 1.0 + 0.01 * (at % 2), 1.01 - 0.01 * (at % 2)] for at in range(8)]
    text = letter(results(tmp_path, [each for case in figures for each in case], grids=[grid]))
    assert "all 3 wider intervals hold together" in text
    lines = [line for line in text.splitlines() if line.startswith(("| 1 ", "| 3 "))]
    assert [line.split(" | ")[-1] for line in lines] == ["list-sjf / walltime |", "none |"]


@pytest.mark.parametrize(("across", "x"), [("load", [1.0, 4.0]), ("window", [0.0])])
def test_numbers_stand_in_a_picture_where_they_are_and_words_side_by_side(tmp_path, monkeypatch, across, x):
    from cpsched_sim.report import weekly_charts

    drawn = []
    monkeypatch.setattr(
        weekly_charts, "draw_line_plot", lambda series, *words: drawn.append((series, words)) or "<svg></svg>"
    )
    grid = {"traces": ["four"], "dispatchers": ["easy"], "loads": [1.0, 4.0]}
    plot = {"title": "Along", "metric": "bsld", "across": across, "lines": "dispatcher"}
    page(results(tmp_path, [2.0, 4.0], grids=[grid], report={"plots": [plot]}))
    ((series, words_),) = drawn
    assert (list(series), series["easy"][0], words_[:2]) == (["easy"], x, (across, "BSLD"))


def test_an_error_of_many_lines_is_cut(tmp_path):
    found = results(tmp_path, [1.0, None])
    kept = found.kept[found.campaign.cases[1].digest]
    kept.result["why"] = "long " * 1000
    assert max(map(len, letter(found).splitlines())) < 600


def test_named_cases_stand_under_their_names_and_not_in_rankings(tmp_path):
    table = {"title": "All", "metric": "bsld"}
    case = {"name": "alone", "trace": "four", "dispatcher": "fcfs"}
    text = letter(results(tmp_path, [1.0, 2.0, 1.0, 2.0, 7.0], cases=[case], report={"tables": [table]}))
    assert "| alone | 7 |" in text
    assert "fcfs" not in text


def test_what_went_wrong_and_what_was_left_out_is_told_harmlessly(tmp_path):
    left_out = {"dispatcher": "easy", "load": 2.0, "because": "too dense"}
    text = letter(results(tmp_path, [1.0, None, 1.0], exclude=[left_out]))
    assert "| four, load 1, whole, list-sjf / walltime, seed 0 | a \\| b &lt;c> 'd' |" in text
    assert "| too dense | 1 |" in text


def test_a_line_for_each_case_in_the_study_s_order_with_the_labels_of_today(tmp_path):
    found = results(tmp_path, [1.0, 2.0, 3.0])
    lines = [json.loads(line) for line in lines_of(found).splitlines()]
    assert [line["result"]["figures"]["bsld"] for line in lines] == [1.0, 2.0, 3.0]
    assert [line["digest"] for line in lines] == [case.digest for case in found.campaign.cases[:3]]
    assert {line["labels"]["policy"] for line in lines} == {"easy / walltime", "list-sjf / walltime"}
    assert lines[0]["made"] == {"wall_s": 1.0}


def test_without_pyarrow_there_are_lines_and_a_note(tmp_path, monkeypatch):
    written(tmp_path)
    monkeypatch.setattr(study_output, "find_spec", lambda name: None)
    (note,) = write_all(run_cases(campaign_of(words(), tmp_path), StudyResultStore(tmp_path / "out"), Here()))
    assert "needs pyarrow" in note
    kept = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert kept == {"results.jsonl", "report.md", "report.html"}


def test_schedules_of_cases_that_ended_are_one_table(tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow.parquet import read_table

    windows = [{"days": 1}, {"days": 1, "from_day": 9}]
    written(tmp_path)
    grid = {"traces": ["four"], "dispatchers": ["easy"], "windows": windows}
    campaign = campaign_of(words(jobs=True, grids=[grid]), tmp_path)
    write_all(run_cases(campaign, StudyResultStore(tmp_path / "out"), Here()))
    rows = read_table(tmp_path / "out" / "jobs.parquet").to_pylist()
    assert [row["digest"] for row in rows] == [campaign.cases[0].digest] * 4
