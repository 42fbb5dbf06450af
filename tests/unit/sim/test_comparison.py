import importlib
import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cpsched.errors import InvalidValue, UnknownName
from cpsched.metrics import METRICS
from cpsched.policy_spec import PolicySpec
from cpsched_sim.cli import app
from cpsched_sim.comparison import (
    ComparisonRow,
    compare,
    comparison_table_rows,
    make_policy_combinations,
    map_rows_to_baselines,
    percent_of_baseline,
    require_known_baseline,
)
from cpsched_sim.experiments.parallel_comparison import SharedComparisonInputs, compare_in_processes
from cpsched_sim.simulation import ReplaySpec
from tests.patience import ENOUGH_S, is_gone, until
from tests.unit.sim.traces.test_swf import line


def a_row(name, bsld=2.0, **figures):
    dispatcher, _, predictor = name.partition("/")
    ones = {row.name: 1.0 for row in METRICS if row.compared}
    return ComparisonRow(dispatcher, predictor, {**ones, "bsld": bsld, "mean_wait_s": 0.0, **figures})


@pytest.mark.parametrize(
    ("dispatchers", "predictors", "settings", "expected"),
    [
        (["easy", "list-reg"], ["walltime", "profile"], {"option": "greedy", "remember": "5"},
         [("easy", "walltime", {}, {}), ("easy", "profile", {}, {"remember": "5"}),
          ("list-reg", "walltime", {"option": "greedy"}, {}),
          ("list-reg", "profile", {"option": "greedy"}, {"remember": "5"})]),
        (["list-reg"], ["profile"], {"predictor.remember": "5", "option": "greedy"},
         [("list-reg", "profile", {"option": "greedy"}, {"remember": "5"})]),
    ],
)  # fmt: skip
def test_each_combination_gets_settings_it_knows(dispatchers, predictors, settings, expected):
    policies = [setup.policy for setup, _ in make_policy_combinations(dispatchers, predictors, settings)]
    found = [(p.dispatcher, p.predictor, p.dispatcher_settings, p.predictor_settings) for p in policies]
    assert found == expected


def test_rejects_setting_unknown_to_all_combinations():
    with pytest.raises(UnknownName, match="parameter of any of these 'colour'"):
        make_policy_combinations(["easy"], ["walltime"], {"colour": "red"})
    with pytest.raises(InvalidValue, match="must each contain at least one name"):
        make_policy_combinations([], ["walltime"], {})


RECORDED = ComparisonRow("as recorded", "", a_row("-").summary | {"bsld": 8.0})
ROWS = [a_row("a/x"), a_row("a/y", bsld=4.0), a_row("b/x", bsld=3.0), a_row("b/y", bsld=1.0), RECORDED]


@pytest.mark.parametrize(
    ("baseline", "percent"),
    [
        ("a", [100, 100, 150, 25, 400]),  # the recorded schedule has that of the first row
        ("a/y", [50, 100, 75, 25, 200]),
        (None, [100, 200, 150, 50, 400]),
        ("as recorded", [25, 50, 37.5, 12.5, 100]),
    ],
)
def test_baseline_dispatcher_uses_predictor_of_row(baseline, percent):
    found = map_rows_to_baselines(ROWS, baseline)
    assert [percent_of_baseline(row, found[row.name])["bsld"] for row in ROWS] == percent


def test_zero_or_failed_baseline_has_no_percentage():
    good, bad = a_row("a/x"), ComparisonRow("b", "x", error="broke")
    assert "mean_wait_s" not in percent_of_baseline(good, good)
    assert percent_of_baseline(bad, good) == percent_of_baseline(good, bad) == {}
    lines = list(comparison_table_rows([good, bad], map_rows_to_baselines([good, bad], None)))
    assert len({len(line) for line in lines}) == 1
    assert lines[2][-1] == "broke"


WAITED = "\n".join(
    [
        "; MaxProcs: 4",
        line("1", run="100", processors="3", requested="100", wait="0"),
        line("2", submit="1", run="50", processors="2", requested="60", wait="500"),
        line("3", submit="2", run="20", processors="1", requested="90", wait="-1"),
        "",
    ]
)


@pytest.fixture
def waited(tmp_path):
    path = tmp_path / "waited.swf"
    path.write_text(WAITED)
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_recorded_schedule_is_row_with_its_waits(waited, tmp_path):
    arguments = [waited, "--dispatcher", "easy", "--baseline", "as recorded"]
    result = invoke(*arguments, "--plots", "--json", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    easy, real = json.loads(result.stdout)["results"]
    assert (real["dispatcher"], real["predictor"], real["error"]) == ("as recorded", "", None)
    summary = real["summary"]
    assert (summary["jobs"], summary["mean_wait_s"], summary["start_unknown"]) == (2, 250, 1)
    assert summary.keys() - {"start_unknown"} == easy["summary"].keys()
    assert easy["percent"]["mean_wait_s"] == pytest.approx(100 * (99 / 3) / 250)
    assert "as recorded: without 1 of 3 jobs, which have no recorded start" in result.stderr
    lines = (tmp_path / "out" / "compare.csv").read_text().splitlines()
    assert [text.split(",")[:3] for text in lines[1:]] == [["easy", "walltime", "3"], ["as recorded", "", "2"]]
    assert "as recorded" in invoke(*arguments).stdout


def test_trace_without_starts_has_no_recorded_row(four_jobs):
    result = invoke(four_jobs, "--dispatcher", "easy", "--json")
    assert [row["dispatcher"] for row in json.loads(result.stdout)["results"]] == ["easy"]
    result = invoke(four_jobs, "--dispatcher", "easy", "--baseline", "as recorded")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "baseline=as recorded: the trace has no recorded starts" in result.stderr


def test_recorded_schedule_is_last_row_in_python(waited):
    found = compare(waited, ["easy", "fcfs"], baseline="as recorded")
    assert [row.name for row in found.rows] == ["easy/walltime", "fcfs/walltime", "as recorded"]
    assert list(found.simulations) == ["easy/walltime", "fcfs/walltime"]
    assert found["easy"] is found["easy/walltime"] is found.simulations["easy/walltime"]
    assert {"bsld", "mean_wait_s", "workload"} <= set(dir(found["easy"]))
    with pytest.raises(UnknownName, match="unknown combination 'as recorded'"):
        found["as recorded"]
    assert "as recorded" in repr(found)
    assert found.rows[-1].measures.wait_s.tolist() == [0, 500]


def test_rejects_unknown_baseline_before_running():
    with pytest.raises(UnknownName, match="known: as recorded, easy, easy/walltime"):
        require_known_baseline(make_policy_combinations(["easy"], ["walltime"], {}), "sjf")


def test_combinations_run_in_processes_and_keep_order(four_jobs):
    """A failed combination does not affect the others."""
    specs = [ReplaySpec(PolicySpec(name)) for name in ("fcfs", "unknown", "easy")]
    reports = []
    rows = compare_in_processes(SharedComparisonInputs(four_jobs), specs, 2, lambda *done: reports.append(done))
    assert [row.name for row in rows] == ["fcfs/walltime", "unknown/walltime", "easy/walltime"]
    assert [row.summary["mean_wait_s"] for row in rows[::2]] == [(99 + 98 + 97) / 4, (99 + 19) / 4]
    assert "unknown dispatcher 'unknown'" in rows[1].error
    assert reports[-1] == (3.0, 3)


def test_killed_process_does_not_affect_others(four_jobs, mocker):
    mocker.patch("cpsched_sim.experiments.parallel_comparison.replay_combination", new=die_or_answer)
    rows = compare_in_processes(
        SharedComparisonInputs(four_jobs), [ReplaySpec(PolicySpec(name)) for name in ("dies", "lives")], 2
    )
    assert (rows[0].error, rows[1].error) == (f"its process died with exit code {-signal.SIGKILL}", "answered")


def die_or_answer(task, tell):
    """What a combination's process runs in the test above; found by name in that process."""
    _, setup = task
    if setup.policy.dispatcher == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return ComparisonRow(setup.policy.dispatcher, setup.policy.predictor, error="answered")


def test_process_inherits_environment_folder_and_modules(four_jobs, mocker, monkeypatch, tmp_path):
    mocker.patch("cpsched_sim.experiments.parallel_comparison.replay_combination", new=tell_where)
    for name in ("first", "second"):  # the server that forks them began before either
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}_module.py").write_text("")
        monkeypatch.setenv("OF_THIS_TEST", name)
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)
        (row,) = compare_in_processes(SharedComparisonInputs(four_jobs), [ReplaySpec(PolicySpec(f"{name}_module"))], 1)
        assert row.error == f"{name} in {folder}"
    monkeypatch.delenv("OF_THIS_TEST")
    (row,) = compare_in_processes(SharedComparisonInputs(four_jobs), [ReplaySpec(PolicySpec("second_module"))], 1)
    assert row.error.startswith("None in")


def tell_where(task, tell):
    """As above; it imports a module by the dispatcher's name."""
    _, setup = task
    importlib.import_module(setup.policy.dispatcher)
    told = f"{os.environ.get('OF_THIS_TEST')} in {os.getcwd()}"
    return ComparisonRow(setup.policy.dispatcher, setup.policy.predictor, error=told)


def test_command_prints_and_writes_table(four_jobs, tmp_path):
    result = invoke(four_jobs, "--dispatcher", "fcfs,easy", "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "BSLD" in result.stdout
    lines = (tmp_path / "out" / "compare.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in lines[1:]] == [["fcfs", "walltime", "4"], ["easy", "walltime", "4"]]
    assert (tmp_path / "out" / "easy-walltime" / "schedule.csv.gz").exists()


def test_command_prints_json(four_jobs):
    result = invoke(four_jobs, "--dispatcher", "fcfs,easy", "--predictor", "oracle", "--json")
    rows = json.loads(result.stdout)["results"]
    assert [row["dispatcher"] for row in rows] == ["fcfs", "easy"]
    assert rows[1]["percent"]["mean_wait_s"] == pytest.approx(100 * 118 / 294)


def listen_to_ctrl_c():
    """A job in a shell's background ignores it, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds child processes in /proc")
def test_ctrl_c_stops_children_and_exits_130(tmp_path):
    path = tmp_path / "long.swf"
    path.write_text(
        "; MaxProcs: 4\n" + "".join(f"{i} {i} -1 60 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1\n" for i in range(1, 60_000))
    )
    command = [sys.executable, "-m", "cpsched_sim.cli", "compare", str(path), "--dispatcher", "list-laf"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=listen_to_ctrl_c
    )
    until(lambda: len(children_of(process.pid)) >= 3)  # tracker, server, replay
    children = children_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=ENOUGH_S)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    until(lambda: all(map(is_gone, children)))


def children_of(pid):
    """And theirs: replays are forked by a server of their own."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []
    return children + [each for child in children for each in children_of(child)]
