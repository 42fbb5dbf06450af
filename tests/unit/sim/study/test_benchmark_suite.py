"""`cpsched benchmark`: a fixed suite, to which users add dispatchers, and whose results can be verified."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cpsched_sim.cli import app
from cpsched_sim.errors import InputError
from cpsched_sim.experiments import dask_executor
from cpsched_sim.file_io import file_sha256
from cpsched_sim.study import benchmark_suite
from cpsched_sim.study.benchmark_suite import (
    BASELINE_DISPATCHER,
    import_benchmark_results,
    make_benchmark_study,
    render_benchmark_table,
)
from cpsched_sim.study.result_store import StudyResultStore
from cpsched_sim.study.study_cases import build_study_cases, read_study
from cpsched_sim.study.study_report import write_study_outputs
from cpsched_sim.study.study_runner import run_missing_cases
from tests.unit.sim.study.test_study_runner import Here
from tests.unit.sim.test_cli import FOUR_JOBS

METRICS = ["af", "longest_wait_s"]
OUTSIDER = """
from cpsched import Dispatcher, plan


class Own(Dispatcher):
    def decide(self, snapshot, need="plan"):
        return plan(snapshot, order="saf", reservations=1, need=need)
"""


def invoke(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A suite of four jobs in a file and sixteen synthetic ones, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("CPSCHED_TRACES", raising=False)
    (tmp_path / "four.swf").write_text(FOUR_JOBS)
    four = {"file": "four.swf", "sha256": file_sha256(tmp_path / "four.swf"), "recipe": "write it yourself"}
    lublin = {"generate": "lublin", "max_jobs": 16, "processors": 16, "load": 4.0}
    four |= {"optional": True}
    shared = {"dispatchers": ["conservative", "easy"], "predictors": ["walltime", "actual"], "loads": [1.0, 2.0]}
    content = {
        "title": "small suite", "traces": {"four": four, "lublin": lublin},
        "dispatchers": {"conservative": "list-reg"}, "predictors": {"actual": "oracle"},
        "grids": [{"traces": ["lublin"], "seeds": [1, 2], **shared}, {"traces": ["four"], **shared}],
        "limits": {"minutes": 2}, "report": {"metrics": METRICS},
    }  # fmt: skip
    (tmp_path / "training.yaml").write_text(yaml.safe_dump({"lublin": {"seeds": [0]}}))
    monkeypatch.setattr(benchmark_suite, "TRAINING_FILE", tmp_path / "training.yaml")
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    monkeypatch.setattr(benchmark_suite, "SUITE_FILE", path)
    monkeypatch.setattr(dask_executor, "make_task_executor", lambda *options, **limits: Here())
    return tmp_path


def test_every_trace_has_digest_and_recipe_or_is_synthetic():
    words = make_benchmark_study()
    for trace in words["traces"].values():
        assert "generate" in trace or (trace["sha256"] and trace["optional"] and "\n" not in trace["recipe"])
    assert BASELINE_DISPATCHER in words["dispatchers"]
    assert {name for grid in words["grids"] for name in grid["traces"]} == set(words["traces"])


def judged(grid, load):
    """Seeds, or the days of the trace itself that a window judges: at 1.2 a day of arrivals is 1.2 days of it."""
    ((window,), seeds) = grid.get("windows", ["whole"]), grid.get("seeds", [0])
    if window == "whole":
        return {(seed, seed + 1) for seed in seeds}
    return {(load * window["from_day"], load * (window["from_day"] + window["days"]))}


def test_training_and_test_share_no_job_at_any_load():
    for test, training in zip(
        make_benchmark_study()["grids"], make_benchmark_study(training=True)["grids"], strict=True
    ):
        assert test["traces"] == training["traces"]
        for a in (each for load in test["loads"] for each in judged(test, load)):
            for b in (each for load in test["loads"] for each in judged(training, load)):
                assert a[1] <= b[0] or b[1] <= a[0]


def test_suite_is_study_without_time_limits(monkeypatch):
    monkeypatch.delenv("CPSCHED_TRACES", raising=False)
    campaign = read_study(benchmark_suite.SUITE_FILE)
    assert [note.partition(" ")[0] for note in campaign.notes] == ["KTH-SP2", "SDSC-BLUE", "UniLu-Gaia", "LLNL-Atlas"]
    assert {case.labels["dispatcher"] for case in campaign.cases} == set(make_benchmark_study()["dispatchers"])
    assert {case.digest for case in campaign.cases} == {
        case.digest for case in build_study_cases(make_benchmark_study(quick=True)).cases
    }
    assert len(campaign.distinct_cases) == len(campaign.cases)


def test_missing_trace_is_skipped_with_its_recipe(small):
    (small / "four.swf").unlink()
    found = build_study_cases(make_benchmark_study())
    assert found.notes == ("four is omitted: four.swf is missing; to obtain it: write it yourself",)
    assert {case.labels["trace"] for case in found.cases} == {"lublin"}
    (small / "four.swf").write_text("another file")
    (told,) = build_study_cases(make_benchmark_study()).notes
    assert f"has a different digest, {file_sha256(small / 'four.swf')}; to obtain it" in told
    assert build_study_cases(make_benchmark_study(quick=True)).notes == ()


@pytest.mark.parametrize(
    ("more", "workloads", "dispatchers"),
    [
        ({}, 6, ["conservative", "easy"]),
        ({"quick": True}, 4, ["conservative", "easy"]),
        ({"training": True}, 4, ["conservative", "easy"]),
        ({"own": ["fcfs", "easy", "fcfs"]}, 6, ["conservative", "easy", "fcfs"]),
        ({"own": ["fcfs"], "alone": True}, 6, ["easy", "fcfs"]),
    ],
)
def test_selects_cases(small, more, workloads, dispatchers):
    cases = build_study_cases(make_benchmark_study(**more)).cases
    assert list(dict.fromkeys(case.labels["dispatcher"] for case in cases)) == dispatchers
    assert len(cases) == workloads * len(dispatchers) * 2, "two estimates"


def test_foreign_results_are_imported_and_verified(small):
    assert invoke("benchmark", "--out", "ours", "--quick").exit_code == 0
    (small / "outsider.py").write_text(OUTSIDER)
    arguments = ("--out", "mine", "--quick", "--dispatcher", "outsider:Own", "--from", "ours/results.jsonl")
    done = invoke("benchmark", *arguments)
    assert done.exit_code == 0, done.stderr
    assert "16 results reused from ours/results.jsonl; 0 skipped: different code" in done.stderr
    assert "16 of 24 replays had already finished" in done.stderr
    assert "| outsider:Own |" in done.stdout
    assert (small / "mine" / benchmark_suite.TABLE_FILE).read_text() == done.stdout
    for case in (small / "ours" / "cases").iterdir():
        assert (small / "mine" / "cases" / case.name).read_bytes() == case.read_bytes()
    found = invoke("study", "verify", "mine", "--sample", 24)
    assert found.stdout == "24 results read, 24 run again, 24 of them identical\n"
    again = invoke("benchmark", "--out", "two", "--quick", "--from", "mine/results.jsonl")
    assert "16 results reused from mine/results.jsonl; 8 skipped: different code" in again.stderr


@pytest.fixture
def kept_lines(small):
    """The cases of a quick suite that was run, and its results as lines."""
    campaign = build_study_cases(make_benchmark_study(quick=True))
    write_study_outputs(run_missing_cases(campaign, StudyResultStore(small / "ours"), Here()))
    return campaign, small / "ours" / "results.jsonl"


def test_does_not_import_changed_line(small, kept_lines):
    campaign, path = kept_lines
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[3]["result"]["figures"]["af"] += 1
    path.write_text("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines))
    with pytest.raises(InputError, match=r"results.jsonl:4: has changed since it was stored"):
        import_benchmark_results(campaign, StudyResultStore(small / "other"), path)
    assert not (small / "other").exists()


def test_imports_only_missing_results_of_the_suite(small, kept_lines):
    """A line of a later version may have more fields."""
    campaign, path = kept_lines
    lines = [{**json.loads(line), "later": {"new": 1}} for line in path.read_text().splitlines()]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    half = build_study_cases(make_benchmark_study(["fcfs"], quick=True, alone=True))
    cases = {"ours": campaign, "other": campaign, "third": half}
    found = {name: import_benchmark_results(each, StudyResultStore(small / name), path) for name, each in cases.items()}
    assert found == {"ours": (0, 0), "other": (16, 0), "third": (8, 8)}


def row(dispatcher, af, seed=0, predictor="walltime", **more):
    return {
        "dispatcher": dispatcher, "predictor": predictor, "trace": "t", "system": "", "load": 1.0, "window": "whole",
        "site_policy": "none", "seed": seed, "drawn": True, "case": "", "outcome": "ended",
        "digest": f"{dispatcher}{seed}",
        "af": af, "longest_wait_s": af and 10 * af, "cpu_s": af, "rounds": 1000, **more,
    }  # fmt: skip


def test_table_has_ratios_to_baseline_best_first(small):
    rows = [row("easy", 2.0), row("easy", 4.0, 1), row("good", 1.0), row("good", 2.0, 1), row("bad", 3.0, 0)]
    rows += [row("bad", None, 1, outcome="failed")]
    text = render_benchmark_table(METRICS, rows)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    head = ["| dispatcher | AF | longest wait | decision | cases |", "| --- | --- | --- | --- | --- |"]
    assert lines == [
        *head,
        "| good | 0.50 (0.50-0.50) | 0.50 (0.50-0.50) | 0.5 | 2 of 2 |",
        "| easy | 1.00 (1.00-1.00) | 1.00 (1.00-1.00) | 1 | 2 of 2 |",
        "| bad | 1.50 | 1.50 | 1.5 | 1 of 2 |",
    ]


def test_dispatcher_without_figures_is_last(small):
    rows = [row("none", None, outcome="did not end"), row("easy", 2.0), row("slow", 8.0, cpu_s=None)]
    names = [line.split(" | ") for line in render_benchmark_table(METRICS, rows).splitlines() if line.startswith("| ")]
    assert [cells[0] for cells in names[2:5]] == ["| easy", "| slow", "| none"]
    assert (names[4][1:], names[3][3]) == (["-", "-", "-", "0 of 1 |"], "-")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--dry-run", 0, "24 cases, 24 distinct replays"),
        ("--dry-run --quick", 0, "16 cases"),
        ("--dry-run --training", 0, "16 cases"),
        ("--only", 2, "--only=nothing: requires --dispatcher"),
    ],
)
def test_dry_run_counts_cases(small, words, code, said):
    found = invoke("benchmark", "--out", "out", *words.split())
    assert (found.exit_code, said in found.output) == (code, True)
    assert not Path("out").exists()
