"""Published values beside ours: how spreads are taken of schedules, how a verdict is found, how pictures are drawn."""

import json
import subprocess
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from cpsched.metrics import Measures
from docs.scripts.papers import charts, debs24, pcp20, renew
from docs.scripts.papers import queues as queues_of_rounds
from docs.scripts.papers.claims import Judged, counts, judged, rows_of, verdict_of
from docs.scripts.papers.shown import PICTURES
from docs.scripts.papers.sizes import Sizing
from docs.scripts.papers.spreads import STUDIES, lines, of_workload, queues, spread
from tests.docs.test_code_blocks import ROOT

POLICIES = ("EASY / W", "FCFS / W")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("published", "ours", "verdict"),
    [
        (100.0, 101.0, "reproduced"), (100.0, 98.9, "same order"), (100.0, 110.1, "differs"), (None, 5.0, "cannot be"),
        (5.0, None, "not measured"),
    ],
)  # fmt: skip
def test_a_verdict_is_how_far_two_values_are_apart(published, ours, verdict):
    assert verdict_of(published, ours) == verdict


def test_a_spread_has_count_extremes_quartiles_mean_and_deviation():
    assert spread(np.array([4.0, 1.0, 2.0, 3.0])) == [4, 1, 1, 2, 3, 4, 2.5, 1.118]


def test_a_value_that_held_longer_weighs_more():
    assert spread(np.array([0.0, 10.0]), np.array([1.0, 3.0])) == [4, 0, 0, 10, 10, 10, 7.5, 4.33]


def test_nothing_has_a_spread_of_nothing():
    assert spread(np.array([])) == [0.0] * 8


def schedule(*jobs):
    """Columns of (submit, start, end)."""
    return dict(zip(("submit_s", "start_s", "end_s"), np.array(jobs, np.int64).T, strict=True))


def test_seconds_without_a_queue_anywhere_are_left_out():
    one = schedule((0, 0, 10), (0, 10, 20), (100, 100, 101))
    other = schedule((0, 0, 10), (0, 4, 14), (100, 100, 101))
    (length, held), (shorter, same) = queues([one, other])
    assert (float(held.sum()), float(same.sum())) == (10, 10)
    assert (float((length * held).sum()), float((shorter * held).sum())) == (10, 4)


def test_two_jobs_in_the_queue_count_twice():
    ((length, held),) = queues([schedule((0, 5, 6), (2, 5, 7))])
    assert float((length * held).sum()) == 5 + 3


def test_jobs_that_start_at_once_in_every_case_are_not_judged():
    one, other = schedule((0, 0, 10), (0, 10, 20), (5, 5, 7)), schedule((0, 10, 20), (0, 0, 10), (5, 5, 7))
    found = of_workload({"A": one, "B": other}, {}, "waiting")
    assert found["A"]["slowdown"]["all"].tolist() == [1, 2]
    assert len(of_workload({"A": one, "B": other}, {}, "all")["A"]["slowdown"]["all"]) == 3


def test_a_class_is_from_its_lower_bound_to_below_its_upper_one():
    jobs = schedule((0, 1, 3600), (0, 1, 3601), (0, 1, 7201))
    found = of_workload({"A": jobs}, {"short": [0, 1], "medium": [1, 2]}, "all")
    assert [len(found["A"]["wait_s"][part]) for part in ("all", "short", "medium")] == [3, 1, 1]


@pytest.fixture
def study(tmp_path):
    """A study of three workloads in which EASY has half the slowdown of FCFS, on the whole."""

    def make(claim, easy=(1.0, 1.1, 0.9), fcfs=(2.0, 2.0, 2.0)):
        labels = {
            "trace": "T", "system": "", "load": 1.0, "window": "whole", "site_policy": "none", "drawn": True,
        }  # fmt: skip
        rows = []
        for policy, means in zip(POLICIES, (easy, fcfs), strict=True):
            for seed, mean in enumerate(means):
                values = {"all": [10, 1, 1, 1, 1, 5, mean, 0.5]}
                spreads = dict.fromkeys(("slowdown", "wait_s", "queue"), values)
                rows.append({**labels, "seed": seed, "policy": policy, "schedule_sha256": f"{policy}{seed}", **spreads})
        results = [
            {
                "labels": {**labels, "policy": row["policy"], "seed": row["seed"], "case": ""},
                "digest": row["schedule_sha256"], "made": {"cpu_s": 0.5 if row["policy"] == "EASY / W" else 1.0},
                "result": {"outcome": "ended", "figures": {"bsld": 1 + row["seed"]}, "rounds": 100},
            }
            for row in rows
        ]  # fmt: skip
        (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in results))
        (tmp_path / "spreads.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = {"claims": [{"item": "figure 1", "says": "so", "figure": "slowdown", **claim}]}
        (tmp_path / "paper.yaml").write_text(json.dumps(words))
        return tmp_path

    return make


def the(claims):
    (claim,) = claims
    return claim


def test_an_ordering_that_holds_is_the_same_order_and_tells_the_ratio(study):
    found = the(judged(study({"less": ["EASY / W"], "than": ["FCFS / W"]})))
    assert found.verdict == "same order"
    assert found.found.startswith("EASY / W 0.4983 times FCFS / W (0.")
    assert "not told apart" not in found.found


def test_an_ordering_the_other_way_round_differs(study):
    found = the(judged(study({"chain": ["FCFS / W", "EASY / W"]})))
    assert found.verdict == "differs"
    assert "FCFS / W 2.007 times EASY / W" in found.found


def test_what_an_interval_does_not_settle_is_said(study):
    found = the(judged(study({"chain": ["EASY / W", "FCFS / W"]}, easy=(0.5, 4.0, 0.5))))
    assert (found.verdict, "not told apart" in found.found) == ("same order", True)


def test_one_wrong_pair_of_a_chain_makes_it_differ(study):
    found = the(judged(study({"chain": ["EASY / W", "FCFS / W", "EASY / W"]})))
    assert found.verdict == "differs"
    assert found.found.startswith("1 of 2 pairs; not: FCFS / W")


@pytest.mark.parametrize(("fcfs", "verdict"), [(1.09, "same order"), (1.12, "differs"), (0.89, "differs")])
def test_two_are_alike_within_a_tenth(study, fcfs, verdict):
    claim = {"alike": ["FCFS / W", "EASY / W"]}
    assert the(judged(study(claim, easy=(1.0, 1.0), fcfs=(fcfs, fcfs)))).verdict == verdict


@pytest.mark.parametrize(("fcfs", "verdict"), [(0.95, "same order"), (0.85, "differs"), (2.0, "same order")])
def test_no_more_holds_where_two_are_alike_too(study, fcfs, verdict):
    claim = {"no_more": ["EASY / W"], "than": ["FCFS / W"]}
    assert the(judged(study(claim, easy=(1.0, 1.0), fcfs=(fcfs, fcfs)))).verdict == verdict
    assert (
        the(judged(study({"less": ["EASY / W"], "than": ["FCFS / W"]}, (1.0, 1.0), (0.95, 0.95)))).verdict == "differs"
    )


def test_times_of_decisions_and_figures_of_replays_are_compared_too(study):
    faster = the(judged(study({"chain": ["EASY / W", "FCFS / W"], "figure": "decision_ms"})))
    assert faster.found.startswith("EASY / W 0.5 times FCFS / W (0.5 to 0.5")
    assert the(judged(study({"alike": ["EASY / W", "FCFS / W"], "figure": "bsld"}))).verdict == "same order"


def test_a_decision_takes_the_replay_over_its_rounds(study):
    assert {row["decision_ms"] for row in rows_of(study({"alike": ["EASY / W", "FCFS / W"]}))} == {5.0, 10.0}


def test_sizes_are_jobs_with_running_ones_and_resources_with_memory_in_gib():
    table = SimpleNamespace(units=np.array([2, 1]), per_unit=np.array([[1, 1024, 0, 0], [4, 2048, 1, 0]]))
    snapshot = SimpleNamespace(
        queue=np.array([0, 1]), table=table, running=np.array([5, 6, 7]), free=np.array([[1, 512, 0, 0]])
    )
    inner = SimpleNamespace(learns=False, decide=lambda snapshot, need: "decided")
    sizing = Sizing(inner, whole_queue=True)
    assert sizing.decide(snapshot) == "decided"
    assert sizing.sizes == [(5, 2 * 2 + 7, 1.5)]


def test_the_ratio_of_an_instance_is_pcp20_over_pcp19(tmp_path, monkeypatch):
    file = tmp_path / "instances.json"
    file.write_text(json.dumps({"D": {"rows": [[1, 40, 10, 2.0, 1.0], [2, 100, 5, 1.0, 3.0]]}}))
    monkeypatch.setattr(pcp20, "FILE", file)
    assert pcp20.ratios(pcp20.VARIABLES)["D"].tolist() == [0.05, 0.25]
    assert pcp20.ratios(pcp20.TIMES)["D"].tolist() == [0.5, 3.0]
    assert pcp20.of_all(pcp20.TIMES) == {"D": 4 / 3}


def test_a_whole_trace_takes_the_time_of_a_round_of_its_part_for_every_round():
    row = {"trace": "T", "predictor": "walltime", "dispatcher": "CP-AF"}
    whole = {("T", "walltime", "list-reg"): {"rounds": 7200}}
    part = {"rounds": 10, "cpu_s": 5.0}
    assert debs24.whole_of(row, whole, {("T", "oracle", "CP-AF"): part}) == "about 1.0 h"
    own = {("T", "walltime", "CP-AF"): {"rounds": 10, "cpu_s": 10.0}, ("T", "oracle", "CP-AF"): part}
    assert debs24.whole_of(row, whole, own) == "about 2.0 h"
    assert debs24.whole_of(row, whole, {}) == ""


def test_of_a_replay_that_did_not_end_is_told_how_far_it_came_and_what_the_whole_would_take(tmp_path, monkeypatch):
    made = {"share": 0.25, "cpu_s": 1800.0}
    assert debs24.began(made) == "25% of the jobs in 30 min of CPU time"
    assert debs24.whole_by(made) == "about 2.0 h"
    assert debs24.whole_by(made | {"share": 0.0199}) == ""
    labels = {"trace": "KTH-SP2", "predictor": "oracle", "dispatcher": "CP-AF"}
    lines = [
        {"labels": labels, "result": {"outcome": "did not end"}, "made": made},
        {"labels": labels | {"dispatcher": "CP-AWF"}, "result": {"outcome": "did not end"}, "made": made},
        {"labels": labels | {"dispatcher": "CP-BSLD"}, "made": made, "result": {
            "outcome": "ended", "rounds": 7, "figures": {"bsld": 20.0, "af": 1.0, "awf": 1.0, "p2sf": 1.0}}},
    ]  # fmt: skip
    (tmp_path / "results.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    monkeypatch.setattr(debs24, "WHOLE", tmp_path)
    rows = {row[1:4]: row for row in debs24.cells() if row[0] in ("AF", "AWF", "BSLD")}
    at = "KTH-SP2", "oracle"
    assert rows["CP-AF", *at][5:7] == ("25% of the jobs in 30 min of CPU time", "did not end")
    assert rows["CP-AWF", *at][6] == "cannot be", "the published value is not legible"
    assert rows["CP-BSLD", *at][5:7] == ("29.8", "same order")
    assert rows["CP-BSLD", *at][8] == ""
    assert rows["CP-AF", "SDSC-BLUE", "oracle"][6] == "not measured"


def test_a_claim_may_be_about_one_trace(study):
    found = the(judged(study({"alike": ["EASY / W", "EASY / W"], "trace": "another"})))
    assert found.verdict == "not measured"


def test_a_policy_without_figures_cannot_be_compared(study):
    found = the(judged(study({"chain": ["EASY / W", "SJF / W"], "reason": "It did not end."})))
    assert (found.verdict, found.found) == (
        "not measured",
        "EASY / W and SJF / W have no figures to compare. It did not end.",
    )


def test_a_verdict_of_its_own_is_one_of_the_six(study):
    assert the(judged(study({"verdict": "cannot be", "here": "{jobs} jobs"}), {"jobs": 3})).found == "3 jobs"
    with pytest.raises(ValueError, match="figure 1: perhaps: must be one of reproduced"):
        judged(study({"verdict": "perhaps", "here": ""}))


def test_counts_name_each_verdict_that_is_there():
    claims = [Judged("a", "", "", "differs"), Judged("b", "", "", "same order"), Judged("c", "", "", "differs")]
    assert counts(claims) == "3 claims: 1 same order, 2 differs."


def test_lines_are_cases_and_then_policies_over_all_seeds(tmp_path):
    (tmp_path / "paper.yaml").write_text("classes: {}\njudged: all\n")
    (tmp_path / "jobs").mkdir()
    labels = {"trace": "T", "system": "", "load": 1.0, "window": "whole", "site_policy": "none", "drawn": True}
    results = []
    for seed, end_s in ((1, 10), (2, 5)):
        np.savez(tmp_path / "jobs" / f"d{seed}.npz", **schedule((0, 0, end_s)))
        result = {"outcome": "ended", "schedule_sha256": str(seed)}
        results.append({"labels": {**labels, "policy": "A / W", "seed": seed}, "digest": f"d{seed}", "result": result})
    results.append({"labels": {**labels, "policy": "B / W", "seed": 1}, "result": {"outcome": "did not end"}})
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, results)))
    found = list(lines(tmp_path, tmp_path))
    assert [(line["policy"], line["seed"], line["slowdown"]["all"][0]) for line in found] == [
        ("A / W", 1, 1), ("A / W", 2, 1), ("A / W", "all", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("name", [path.parent.name for path in sorted(STUDIES.glob("*/spreads.jsonl"))])
def test_landed_spreads_are_of_the_landed_results(name):
    def kept(file):
        return [json.loads(text) for text in (STUDIES / name / file).read_text().splitlines()]

    ended = {
        line["result"]["schedule_sha256"] for line in kept("results.jsonl") if line["result"]["outcome"] == "ended"
    }
    assert {line["schedule_sha256"] for line in kept("spreads.jsonl") if line["seed"] != "all"} == ended


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_drawn_and_shown_on_its_page(name):
    drawing = ElementTree.fromstring(PICTURES[name]())
    assert drawing.find(f"{SVG}title").text
    assert f"pictures/{name}.svg" in (ROOT / "docs" / "studies" / f"{name.partition('-')[0]}.md").read_text()


def test_a_logarithmic_axis_has_a_decade_where_its_power_is():
    axis = charts.Axis(1, 100, 0, 200, log=True)
    assert (axis.at(1), axis.at(10), axis.at(100), axis.at(0), axis.ticks()) == (0, 100, 200, 0, [1, 10, 100])


@pytest.mark.parametrize(("high", "ticks"), [(6, [0, 1, 2, 3, 4, 5, 6]), (95, [0, 20, 40, 60, 80]), (0.5, None)])
def test_a_linear_axis_has_a_few_round_numbers(high, ticks):
    found = charts.Axis(0, high, 0, 100).ticks()
    assert 3 <= len(found) <= 7
    assert ticks is None or found == ticks


def test_a_box_stands_where_its_quartiles_are_and_the_mean_is_a_triangle():
    drawing = ElementTree.fromstring(charts.boxes("t", "l", {"A / <W>": [9, 1, 10, 20, 100, 1000, 50, 1]}))
    _, box = drawing.iter(f"{SVG}rect")
    third = charts.WIDTH / 3
    assert float(box.get("x")) == pytest.approx(charts.LEFT + third, abs=0.1)
    assert float(box.get("width")) == pytest.approx(third, abs=0.1)
    assert len(list(drawing.iter(f"{SVG}path"))) == 1
    assert "A / <W>" in [text.text for text in drawing.iter(f"{SVG}text")]


@pytest.fixture
def renewing(tmp_path, monkeypatch):
    """A study whose landed cases took so long, and the commands that renewing it runs."""
    commands = []

    def make(wall_s, schedule_sha256="new", starts=True):
        for folder in ("studies/one", "build/one"):
            (tmp_path / folder).mkdir(parents=True)
        (tmp_path / "studies/one/study.yaml").touch()
        labels = {"trace": "T", "policy": "A / W", "seed": 1}

        def results(folder, schedule):
            result = {"outcome": "ended", "schedule_sha256": schedule}
            line = {"labels": labels, "digest": "d", "made": {"wall_s": wall_s}, "result": result}
            (tmp_path / folder / "one" / "results.jsonl").write_text(json.dumps(line))

        results("studies", "old")
        results("build", "of an earlier run")
        monkeypatch.setattr(renew, "STUDIES", tmp_path / "studies")
        monkeypatch.setattr(renew, "BUILT", tmp_path / "build")

        def run(command, **kwargs):
            commands.append(" ".join(map(str, command[1:3])))
            if starts and command[2] != "verify":
                results("build", schedule_sha256)
            return subprocess.CompletedProcess(command, 0 if starts else 2)

        monkeypatch.setattr(renew.subprocess, "run", run)
        return commands

    return make


def test_a_study_of_under_an_hour_is_run_anew_and_changed_schedules_are_told(renewing, capsys):
    commands = renewing(3599.0)
    renew.main([])
    assert [command.partition("/")[0] for command in commands] == ["study verify", "study "]
    assert "T A / W 1: another schedule" in capsys.readouterr().out


def test_the_same_schedules_are_told_too(renewing, capsys):
    renewing(1.0, "old")
    assert renew.main(["one"]) == 0
    assert "one: every schedule is as landed" in capsys.readouterr().out


def test_a_study_of_an_hour_is_looked_at_alone(renewing, capsys):
    commands = renewing(3600.0)
    renew.main([])
    assert commands == ["study verify"]
    assert "not run, that takes over an hour" in capsys.readouterr().out


def test_landing_replaces_the_results_and_nothing_else_does(renewing, tmp_path):
    renewing(1.0)
    landed = tmp_path / "studies/one/results.jsonl"
    renew.main(["one"])
    assert '"old"' in landed.read_text()
    renew.main(["one", "--land"])
    assert '"new"' in landed.read_text()


def test_a_study_that_cannot_be_run_ends_with_1_and_lands_nothing_of_an_earlier_run(renewing, tmp_path, capsys):
    commands = renewing(1.0, starts=False)
    assert renew.main(["one", "--land"]) == 1
    assert len(commands) == 2
    assert "one: could not be run: exit code 2" in capsys.readouterr().out
    assert '"old"' in (tmp_path / "studies/one/results.jsonl").read_text()


def test_studies_behind_one_that_cannot_be_run_are_run(monkeypatch):
    seen = []
    monkeypatch.setattr(renew, "names", lambda wanted: ["one", "two"])
    monkeypatch.setattr(renew, "renew", lambda name, land: seen.append(name) or name == "two")
    assert (renew.main([]), seen) == (1, ["one", "two"])


def test_a_study_that_is_not_there_is_named(renewing):
    renewing(1.0)
    with pytest.raises(ValueError, match="two: must be one of one"):
        renew.main(["two"])


def measures(*jobs):
    submit_s, start_s, end_s = np.array(jobs, np.int64).T
    return Measures(submit_s, start_s, end_s, np.ones(len(jobs), np.int64))


def test_a_round_is_after_each_arrival_and_each_end():
    shares = queues_of_rounds.by_round(measures((0, 0, 10), (2, 10, 12)))
    assert shares[:2] == [0.75, 1.0]


def test_the_queue_over_time_is_the_mean_of_each_part():
    day = 86_400
    points = queues_of_rounds.over_time(measures((0, 0, 1), (0, 30 * day, 31 * day), (60 * day, 60 * day, 61 * day)))
    assert len(points) == queues_of_rounds.PARTS
    assert points[:2] == [[0.0, 1.0], [1.0, 1.0]]
    assert [mean for _, mean in points[28:32]] == [1.0, 1.0, 0.0, 0.0]


def test_each_is_held_against_all(study):
    found = the(judged(study({"less": ["EASY / W"], "than": ["FCFS / W", "EASY / W"]})))
    assert (found.verdict, found.found.partition(";")[0]) == ("differs", "1 of 2 pairs")


def test_one_pair_without_figures_is_enough_to_be_not_measured(study):
    found = the(judged(study({"less": ["EASY / W"], "than": ["FCFS / W", "SJF / W"]})))
    assert (found.verdict, found.found) == ("not measured", "EASY / W and SJF / W have no figures to compare")


def test_a_study_takes_the_time_of_all_its_cases_of_each_digest_once(tmp_path):
    lines = [{"digest": digest, "made": {"wall_s": 100.0}} for digest in "aab"]
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert renew.took_s(tmp_path / "results.jsonl") == 200.0


def test_a_case_that_did_not_end_now_has_no_other_schedule(tmp_path):
    def lines(name, *outcomes):
        path = tmp_path / name
        labels = [{"trace": "T", "policy": policy, "seed": 1} for policy in "AB"]
        results = [{"outcome": outcome, "schedule_sha256": outcome + name} for outcome in outcomes]
        pairs = zip(labels, results, strict=True)
        path.write_text("\n".join(json.dumps({"labels": each, "result": result}) for each, result in pairs))
        return path

    before, now = lines("before", "ended", "ended"), lines("now", "ended", "did not end")
    assert renew.changes(before, now) == ["T A 1: another schedule"]


@pytest.mark.parametrize("code", [0, 1])
def test_cases_without_figures_are_told(renewing, monkeypatch, capsys, code):
    renewing(1.0)
    run = renew.subprocess.run

    def ending(command, **kwargs):
        run(command, **kwargs)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(renew.subprocess, "run", ending)
    assert renew.main(["one"]) == 0
    assert ("one: not all cases have figures" in capsys.readouterr().out) == bool(code)
