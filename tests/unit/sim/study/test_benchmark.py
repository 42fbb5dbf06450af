"""`cpsched benchmark`: a fixed suite, to which an outsider adds a dispatcher, and which anybody decides again."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cpsched_sim.cli import app
from cpsched_sim.errors import Unusable
from cpsched_sim.experiments import runner
from cpsched_sim.files import sha256_of
from cpsched_sim.study import benchmark
from cpsched_sim.study.benchmark import adopt, chosen, suite, table
from cpsched_sim.study.campaign import campaign_of
from cpsched_sim.study.running import run_cases
from cpsched_sim.study.store import Store
from cpsched_sim.study.writing import write_all
from tests.unit.sim.study.test_running import Here
from tests.unit.sim.test_cli import FOUR_JOBS

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
    """A suite of four jobs in a file and sixteen made-up ones, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("CPSCHED_TRACES", raising=False)
    (tmp_path / "four.swf").write_text(FOUR_JOBS)
    four = {"file": "four.swf", "sha256": sha256_of(tmp_path / "four.swf"), "recipe": "write it yourself"}
    lublin = {"generate": "lublin", "max_jobs": 16, "processors": 16, "load": 4.0}
    content = {
        "title": "small suite", "traces": {"four": four, "lublin": lublin},
        "dispatchers": {"conservative": "list-reg", "easy": "easy"}, "baseline": "easy",
        "estimates": {"walltime": "walltime", "actual": "oracle"}, "loads": [1.0, 2.0],
        "splits": {
            "training": [{"traces": ["lublin"], "seeds": [0]}],
            "test": [{"traces": ["lublin"], "seeds": [1, 2]}, {"traces": ["four"]}],
        },
        "quick": ["lublin"], "limits": {"minutes": 2}, "metrics": ["af", "longest_wait_s"],
    }  # fmt: skip
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    monkeypatch.setattr(benchmark, "SUITE", path)
    monkeypatch.setattr(runner, "engine_of", lambda on, processes, patience_s: Here())
    return tmp_path


def test_every_trace_of_the_suite_is_had_by_a_digest_and_a_recipe_or_made_up():
    words = suite()
    for trace in words.traces.values():
        assert trace.generate is not None or (trace.sha256 and trace.recipe and "\n" not in trace.recipe)
    assert all(words.traces[name].generate is not None for name in words.quick)
    assert words.baseline in words.dispatchers
    assert set(words.traces) == {name for part in words.splits["test"] for name in part.traces}


def days_judged(words, window):
    """The days of the trace itself that a window judges, at each load: at 1.2 a day of arrivals is 1.2 days of it."""
    return [(load * window.from_day, load * (window.from_day + window.days)) for load in words.loads]


def test_training_and_test_judge_no_job_twice_at_any_load():
    words, judged = suite(), {}
    for split, parts in words.splits.items():
        for part in parts:
            for trace in part.traces:
                for window in part.windows:
                    known = judged.setdefault(trace, {}).setdefault(split, [])
                    known += part.seeds if window == "whole" else days_judged(words, window)
    for trace, by_split in judged.items():
        training, test = by_split["training"], by_split["test"]
        if isinstance(test[0], int):
            assert not set(training) & set(test), trace
        else:
            assert all(a[1] <= b[0] or b[1] <= a[0] for a in training for b in test), trace


def test_all_dispatchers_of_the_suite_are_there_and_none_ends_by_the_clock(tmp_path):
    words = suite()
    campaign = campaign_of(chosen(words, tmp_path, quick=True).words)
    assert campaign.notes == ()
    assert {case.labels["dispatcher"] for case in campaign.cases} == set(words.dispatchers)
    assert len(campaign.distinct) == len(campaign.cases)


def test_what_is_missing_is_left_out_with_its_recipe(small):
    (small / "four.swf").unlink()
    found = chosen(suite(), small)
    assert found.notes == ("four is left out: four.swf is not here; to get it: write it yourself",)
    assert list(found.words["traces"]) == ["lublin"]
    (small / "four.swf").write_text("another file")
    (told,) = chosen(suite(), small).notes
    assert f"is another file, by its digest {sha256_of(small / 'four.swf')}; to get it" in told
    assert chosen(suite(), small, quick=True).notes == ()


@pytest.mark.parametrize(
    ("more", "workloads", "dispatchers"),
    [
        ({}, 6, ["conservative", "easy"]),
        ({"quick": True}, 4, ["conservative", "easy"]),
        ({"split": "training"}, 2, ["conservative", "easy"]),
        ({"own": ["fcfs", "easy", "fcfs"]}, 6, ["conservative", "easy", "fcfs"]),
        ({"own": ["fcfs"], "alone": True}, 6, ["easy", "fcfs"]),
    ],
)
def test_what_is_chosen(small, more, workloads, dispatchers):
    cases = campaign_of(chosen(suite(), small, **more).words).cases
    assert list(dict.fromkeys(case.labels["dispatcher"] for case in cases)) == dispatchers
    assert len(cases) == workloads * len(dispatchers) * 2, "two estimates"


def test_an_outsider_adds_his_rows_to_results_of_ours_and_all_are_decided_again(small):
    assert invoke("benchmark", "--out", "ours", "--quick").exit_code == 0
    (small / "outsider.py").write_text(OUTSIDER)
    arguments = ("--out", "mine", "--quick", "--dispatcher", "outsider:Own", "--from", "ours/results.jsonl")
    done = invoke("benchmark", *arguments)
    assert done.exit_code == 0, done.stderr
    assert "16 results taken from ours/results.jsonl; 0 are of other code" in done.stderr
    assert "16 of 24 replays were finished before" in done.stderr
    assert "| outsider:Own |" in done.stdout
    assert (small / "mine" / benchmark.TABLE).read_text() == done.stdout
    for case in (small / "ours" / "cases").iterdir():
        assert (small / "mine" / "cases" / case.name).read_bytes() == case.read_bytes()
    found = invoke("study", "verify", "mine", "--sample", 24)
    assert found.stdout == "24 results read, 24 decided again, 24 of them the same\n"
    again = invoke("benchmark", "--out", "two", "--quick", "--from", "mine/results.jsonl")
    assert "16 results taken from mine/results.jsonl; 8 are of other code" in again.stderr


def kept_lines(small):
    campaign = campaign_of(chosen(suite(), small, quick=True).words)
    write_all(run_cases(campaign, Store(small / "ours"), Here()))
    return campaign, small / "ours" / "results.jsonl"


def test_a_line_that_changed_is_not_taken(small):
    campaign, path = kept_lines(small)
    lines = path.read_text().splitlines()
    line = json.loads(lines[3])
    line["result"]["figures"]["af"] += 1
    lines[3] = json.dumps(line, sort_keys=True)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(Unusable, match=r"results.jsonl:4: has changed since it was kept"):
        adopt(campaign, Store(small / "other"), path)
    assert not (small / "other").exists()


def test_what_is_there_already_is_not_taken(small):
    campaign, path = kept_lines(small)
    assert adopt(campaign, Store(small / "ours"), path) == (0, 0)
    assert adopt(campaign, Store(small / "other"), path) == (16, 0)
    half = campaign_of(chosen(suite(), small, own=["fcfs"], quick=True, alone=True).words)
    assert adopt(half, Store(small / "third"), path) == (8, 8)


def test_a_line_of_a_later_version_may_say_more(small):
    campaign, path = kept_lines(small)
    lines = [{**json.loads(line), "later": {"new": 1}} for line in path.read_text().splitlines()]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert adopt(campaign, Store(small / "other"), path) == (16, 0)
    del lines[0]["made"]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(Unusable, match=r"results.jsonl:1: is no line of results"):
        adopt(campaign, Store(small / "third"), path)


def row(dispatcher, af, seed=0, predictor="walltime", **more):
    return {
        "dispatcher": dispatcher, "predictor": predictor, "trace": "t", "system": "", "load": 1.0, "window": "whole",
        "site_policy": "none", "seed": seed, "drawn": True, "case": "", "outcome": "ended",
        "digest": f"{dispatcher}{seed}",
        "af": af, "longest_wait_s": af and 10 * af, "cpu_s": af, "rounds": 1000, **more,
    }  # fmt: skip


def test_the_table_has_ratios_to_the_baseline_best_first(small):
    rows = [row("easy", 2.0), row("easy", 4.0, 1), row("good", 1.0), row("good", 2.0, 1), row("bad", 3.0, 0)]
    rows += [row("bad", None, 1, outcome="failed")]
    text = table(suite(), rows)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    head = ["| dispatcher | AF | longest wait | decision | cases |", "| --- | --- | --- | --- | --- |"]
    assert lines == [
        *head,
        "| good | 0.50 (0.50-0.50) | 0.50 (0.50-0.50) | 0.5 | 2 of 2 |",
        "| easy | 1.00 (1.00-1.00) | 1.00 (1.00-1.00) | 1 | 2 of 2 |",
        "| bad | 1.50 | 1.50 | 1.5 | 1 of 2 |",
        *head,
    ]


def test_a_dispatcher_without_figures_stands_last(small):
    rows = [row("none", None, outcome="did not end"), row("easy", 2.0), row("slow", 8.0, cpu_s=None)]
    names = [line.split(" | ") for line in table(suite(), rows).splitlines() if line.startswith("| ")]
    assert [cells[0] for cells in names[2:5]] == ["| easy", "| slow", "| none"]
    assert names[4][1:] == ["-", "-", "-", "0 of 1 |"]
    assert names[3][3] == "-"


def test_what_would_be_run_is_counted(small):
    found = invoke("benchmark", "--out", "out", "--dry-run")
    assert "24 cases, 24 different replays" in found.stdout
    assert not Path("out").exists()
    assert "16 cases" in invoke("benchmark", "--out", "out", "--dry-run", "--quick").stdout
    assert "8 cases" in invoke("benchmark", "--out", "out", "--dry-run", "--training").stdout


def test_alone_needs_a_dispatcher(small):
    found = invoke("benchmark", "--out", "out", "--only")
    assert (found.exit_code, "--only=nothing: needs a --dispatcher" in found.stderr) == (2, True)
