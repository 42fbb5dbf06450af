import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from cpsched.errors import InvalidValue, UnknownName
from cpsched.policy_spec import PolicySpec
from cpsched_sim.cli import app
from cpsched_sim.comparison import Row, baselines, check_baseline, combinations, percentages, table_rows
from cpsched_sim.experiment import Setup
from cpsched_sim.processes import Study, compare_in_processes
from tests.unit.sim.test_cli import FOUR_JOBS


@pytest.fixture
def four_jobs(tmp_path):
    path = tmp_path / "four.swf"
    path.write_text(FOUR_JOBS)
    return path


def a_row(name, bsld=2.0, **figures):
    dispatcher, _, predictor = name.partition("/")
    names = ("af", "awf", "p2sf", "mean_slowdown", "mean_wait_s", "utilization")
    return Row(dispatcher, predictor, {"bsld": bsld, **dict.fromkeys(names, 1.0), "mean_wait_s": 0.0, **figures})


def test_every_combination_gets_the_settings_that_it_knows():
    chosen = combinations(["easy", "list-reg"], ["walltime", "profile"], {"option": "greedy", "remember": "5"}, {})
    policies = [setup.policy for setup, _ in chosen]
    assert [(p.dispatcher, p.predictor, p.settings()) for p in policies] == [
        ("easy", "walltime", {}),
        ("easy", "profile", {"remember": "5"}),
        ("list-reg", "walltime", {"option": "greedy"}),
        ("list-reg", "profile", {"option": "greedy", "remember": "5"}),
    ]


def test_a_setting_that_no_combination_knows_is_refused():
    with pytest.raises(UnknownName, match="parameter of any of these 'colour'"):
        combinations(["easy"], ["walltime"], {"colour": "red"}, {})
    with pytest.raises(InvalidValue, match="must name one each"):
        combinations([], ["walltime"], {}, {})


def test_a_dispatcher_as_baseline_measures_each_row_with_its_own_predictor():
    rows = [a_row("a/x"), a_row("a/y", bsld=4.0), a_row("b/x", bsld=3.0), a_row("b/y", bsld=1.0)]
    found = baselines(rows, "a")
    assert [percentages(row, found[row.name])["bsld"] for row in rows] == [100, 100, 150, 25]
    found = baselines(rows, "a/y")
    assert [percentages(row, found[row.name])["bsld"] for row in rows] == [50, 100, 75, 25]
    found = baselines(rows, None)
    assert [percentages(row, found[row.name])["bsld"] for row in rows] == [100, 200, 150, 50]


def test_there_is_no_percentage_of_nothing_or_of_what_failed():
    good, bad = a_row("a/x"), Row("b", "x", error="broke")
    assert "mean_wait_s" not in percentages(good, good)
    assert percentages(bad, good) == percentages(good, bad) == {}
    lines = list(table_rows([good, bad], baselines([good, bad], None)))
    assert len({len(line) for line in lines}) == 1
    assert lines[2][-1] == "broke"


def test_an_unknown_baseline_is_refused_before_anything_runs():
    with pytest.raises(UnknownName, match="known: easy, easy/walltime"):
        check_baseline(combinations(["easy"], ["walltime"], {}, {}), "sjf")


def test_combinations_run_in_processes_and_come_back_in_order(four_jobs):
    chosen = [setup for setup, _ in combinations(["fcfs", "easy"], ["walltime"], {}, {})]
    told = []
    rows = compare_in_processes(Study(four_jobs), chosen, 2, lambda done, total: told.append((done, total)))
    assert [row.name for row in rows] == ["fcfs/walltime", "easy/walltime"]
    assert [row.summary["mean_wait_s"] for row in rows] == [(99 + 98 + 97) / 4, (99 + 19) / 4]
    assert told[-1] == (2.0, 2)


def test_a_combination_that_fails_loses_only_itself(four_jobs):
    rows = compare_in_processes(Study(four_jobs), [Setup(PolicySpec("nobody")), Setup()], 1)
    assert "unknown dispatcher 'nobody'" in rows[0].error
    assert rows[1].summary["jobs"] == 4


def test_a_process_that_is_killed_loses_only_itself(four_jobs, mocker):
    mocker.patch("cpsched_sim.processes._replay_one", new=die_or_answer)
    rows = compare_in_processes(Study(four_jobs), [Setup(PolicySpec(name)) for name in ("dies", "lives")], 2)
    assert rows[0].error == f"its process died with exit code {-signal.SIGKILL}"
    assert rows[1].error == "answered"


def die_or_answer(study, setup, pipe):
    """What a combination's process runs in the test above; found by name in the spawned process."""
    if setup.policy.dispatcher == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    pipe.send(Row(setup.policy.dispatcher, setup.policy.predictor, error="answered"))


def test_the_command_prints_a_table_and_writes_a_table(four_jobs, tmp_path):
    arguments = ["compare", str(four_jobs), "--dispatchers", "fcfs,easy", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "BSLD" in result.stdout
    lines = (tmp_path / "out" / "compare.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in lines[1:]] == [["fcfs", "walltime", "4"], ["easy", "walltime", "4"]]
    assert (tmp_path / "out" / "easy-walltime" / "schedule.csv.gz").exists()


def test_the_command_as_json(four_jobs):
    arguments = ["compare", str(four_jobs), "--dispatchers", "fcfs,easy", "--predictors", "oracle", "--json"]
    results = json.loads(CliRunner().invoke(app, arguments).stdout)["results"]
    assert [row["dispatcher"] for row in results] == ["fcfs", "easy"]
    assert results[1]["percent"]["mean_wait_s"] == pytest.approx(100 * 118 / 294)


def listen_to_ctrl_c():
    """A job in a shell's background ignores it, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds child processes in /proc")
def test_ctrl_c_stops_the_children_and_exits_130(tmp_path):
    path = tmp_path / "long.swf"
    path.write_text(
        "; MaxProcs: 4\n" + "".join(f"{i} {i} -1 60 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1\n" for i in range(1, 60_000))
    )
    command = [sys.executable, "-m", "cpsched_sim.cli", "compare", str(path), "--dispatchers", "list-laf"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=listen_to_ctrl_c
    )
    deadline = time.monotonic() + 60
    while not (children := children_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert children
    deadline = time.monotonic() + 30
    while any(is_alive(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(child) for child in children)


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
