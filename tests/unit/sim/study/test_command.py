"""`cpsched study` as users call it."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from cpsched_sim.cli import app
from cpsched_sim.study.study_schema import EXAMPLE_STUDY
from tests.unit.sim.study.studies import written


def invoke(*arguments):
    return CliRunner().invoke(app, ["study", *map(str, arguments)])


def test_prints_example():
    assert invoke("example").stdout == EXAMPLE_STUDY
    assert yaml.safe_load(EXAMPLE_STUDY)["title"]


def test_counts_runs_reports_and_verifies_study(tmp_path):
    path, out = written(tmp_path), tmp_path / "out"
    counted = invoke("run", path, "--out", out, "--dry-run")
    assert "4 cases, 4 distinct replays; 0 omitted" in counted.stdout
    assert "estimated time: unknown" in counted.stdout
    assert not out.exists()
    done = invoke("run", path, "--out", out)
    assert (done.exit_code, "## Ranking by mean wait, s" in done.stdout) == (0, True)
    again = json.loads(invoke("run", path, "--out", out, "--dry-run", "--json").stdout)
    assert (again["finished"], again["remaining"], again["estimate_s"]) == (4, 0, 0.0)
    assert invoke("verify", out, "--sample", 2).stdout == "4 results read, 2 run again, 2 of them identical\n"
    lines = (out / "results.jsonl").read_text()
    assert '"bsld": 1' in lines
    (out / "results.jsonl").write_text(lines.replace('"bsld": 1', '"bsld": 2', 1))
    found = invoke("verify", out, "--sample", 0)
    assert (found.exit_code, "has changed since it was stored" in found.stderr) == (1, True)


def test_case_without_figures_exits_with_1(tmp_path):
    grid = {"traces": ["four"], "dispatchers": ["easy"], "windows": [{"days": 1, "from_day": 9}]}
    found = invoke("run", written(tmp_path, grids=[grid]), "--out", tmp_path / "out")
    assert (found.exit_code, "no job arrives in days 9 to 10" in found.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "Missing argument 'FILE'"),
        (["verify"], "Missing argument 'DIR'"),
        (["run", "study.yaml"], "Missing option '--out'"),
        (["run", "study.yaml", "results", "--out", "out"], "Got unexpected extra argument"),
        (["run", "nowhere.yaml", "--out", "out"], "nowhere.yaml: No such file"),
        (["verify", "nowhere"], "study file not found; specify it with --study"),
    ],
)
def test_missing_input_is_reported(tmp_path, monkeypatch, arguments, told):
    monkeypatch.chdir(tmp_path)
    found = invoke(*arguments)
    assert (found.exit_code, told in found.stderr) == (2, True)


def test_unknown_executor_is_reported(tmp_path):
    pytest.importorskip("distributed")
    found = invoke("run", written(tmp_path), "--out", tmp_path / "out", "--on", "nothing_here:make")
    assert (found.exit_code, "--on nothing_here:make: ModuleNotFoundError" in found.stderr) == (2, True)
