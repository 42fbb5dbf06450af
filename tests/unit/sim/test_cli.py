import gzip
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cpsched.metrics import METRICS
from cpsched_sim import terminal_tables
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES
from cpsched_sim.cli import app
from cpsched_sim.cli.options import ReplayOptions
from cpsched_sim.workloads.eurora_generator import generate_eurora_records
from tests.unit.sim.traces.test_swf import line

KEYS = ["jobs", *(row.name for row in METRICS), "rounds", "cpu_s", "violations", "dispatch", "paths"]
PREDICTORS = sorted(listing.name for listing in SIMULATION_REGISTRIES.predictors.builtins())
FOUR_JOBS = "\n".join(
    [
        "; MaxProcs: 4",
        line("1", run="100", processors="3", requested="100"),
        line("2", submit="1", run="50", processors="2", requested="60"),
        line("3", submit="2", run="20", processors="1", requested="90", user="8"),
        line("4", submit="3", run="10", processors="1", requested="200", user="8"),
        "",
    ]
)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        ("--from 2024-10-05", 4),
        ("--to 2024-10-05", 1),
        ("--from 2024-10-05 --to 2024-10-08", 3),
        ("--from +2d --to +1d", 1),
        ("--from 2024-10-05T14:00+03:00 --to +1d", 1),
    ],
)
def test_dates_select_part_of_trace_in_each_command(tmp_path, words, jobs):
    """A job at noon of each of five days, of which 2024-10-04 is the first."""
    path = tmp_path / "days.swf"
    rows = [line(str(day + 1), submit=str(day * 86_400 + 43_200)) for day in range(5)]
    path.write_text("\n".join([f"; UnixStartTime: {20_000 * 86_400}", "; MaxProcs: 8", *rows]) + "\n")
    simulated, compared, judged = (
        json.loads(invoke(*command, path, "--json", *words.split()).stdout)
        for command in (["simulate"], ["compare", "-d", "easy"], ["accuracy"])
    )
    assert simulated["jobs"] == jobs
    assert [row["summary"]["jobs"] for row in compared["results"]] == [jobs]
    assert [predictor["jobs"] for predictor in judged.values()] == [jobs] * 3


def test_generated_workloads_are_replayed_by_name(tmp_path):
    """A trace of Eurora names its system."""
    path, eurora = tmp_path / "lublin.swf", tmp_path / "e.csv.gz"
    made = invoke("workload", "lublin", "--jobs", "40", "--processors", "64", "--seed", "3", "--out", path)
    assert made.stdout == f"{path}: 40 jobs\n"
    assert invoke("workload", "eurora", "--days", "0.1", "--seed", "3", "--out", eurora).exit_code == 0
    jobs = [json.loads(invoke("simulate", each, "--json").stdout)["jobs"] for each in (path, eurora)]
    assert jobs == [40, len(generate_eurora_records(0.1, seed=3))]


@pytest.mark.parametrize(
    ("words", "rule"),
    [("lublin --processors 8", "processors=8: must be from 16 to"), ("eurora --days 0", "days=0.0: ")],
)
def test_invalid_synthetic_trace_is_rejected_with_rule(tmp_path, words, rule):
    result = invoke("workload", *words.split(), "--out", tmp_path / "made.swf")
    assert (result.exit_code, rule in result.stderr) == (2, True)
    assert not (tmp_path / "made.swf").exists()


def schedule(folder):
    with gzip.open(folder / "schedule.csv.gz", "rt") as file:
        return file.read().splitlines()


def test_json_is_one_object_with_documented_keys(four_jobs):
    result = invoke("simulate", four_jobs, "--json")
    summary = json.loads(result.stdout)
    assert list(summary) == KEYS
    assert list(summary["dispatch"]) == ["mean_ms", "median_ms", "p99_ms", "max_ms"]
    assert (summary["jobs"], summary["violations"]) == (4, 0)
    assert sum(summary["paths"].values()) == summary["rounds"]


def test_easy_backfills_short_jobs_and_writes_results(four_jobs, tmp_path):
    result = invoke("simulate", four_jobs, "--dispatcher", "easy", "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert schedule(tmp_path / "out") == [
        "job,submit_s,start_s,end_s,units,nodes",
        "1,0,0,100,3,pool:3",
        "2,1,100,150,2,pool:2",
        "3,2,2,22,1,pool:1",
        "4,3,22,32,1,pool:1",
    ]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["mean_wait_s"], summary["setup"]["dispatcher"]) == ((99 + 19) / 4, "easy")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["schedule.csv.gz", "summary.json"]


def test_max_jobs_limits_trace_and_table_is_readable(four_jobs):
    assert "mean_wait_s" in invoke("simulate", four_jobs, "--max-jobs", "2").stdout
    assert json.loads(invoke("simulate", four_jobs, "--max-jobs", "2", "--json").stdout)["jobs"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dispatcher", "fastest"], "unknown dispatcher 'fastest'; known: advised, cp-af, "),
        (["--predictor", "crystal"], f"unknown predictor 'crystal'; known: {', '.join(PREDICTORS)}\n"),
        (["--system", "marconi"], "unknown system 'marconi'; known: eurora, kit-forhlr2, pool"),
        (["--set", "colour=red"], "unknown parameter of easy, walltime or the policy 'colour'; known: allocation"),
        (["--set", "colour"], "--set=colour: must be NAME=VALUE"),
        (["--set", "overrun=never"], "overrun=never: must be one of one-second, double, walltime"),
        (["--limit", "3"], "limit_s=3.0: is not a parameter of easy, which does not search"),
        (["--effort", "0"], "--effort=0: must be positive"),
        (["--limit", "1", "--effort", "1"], "cannot be combined: set only one of them"),
        (["--charge", "free"], "--charge=free: must be none, measured, or a time in milliseconds"),
        (["--charge", "-1"], "--charge=-1: must be none"),
        (["--charge", "1e12"], "--charge=1e12: must be none, measured, or a time in milliseconds of at most one day"),
        (["--out", "TRACE"], "must be a folder for results, but is a file"),
        (["--dispatcher", "easy,fcfs"], "must be one name; `cpsched compare` takes several"),
        (["--predictor", "easy,fcfs"], "must be one name; `cpsched compare` takes several"),
        (["--dispatcher", "lookahead", "--objective", "best"], "objective=best"),
    ],
)
def test_user_error_is_one_line_with_exit_code_2(four_jobs, arguments, message):
    result = invoke("simulate", four_jobs, *(four_jobs if word == "TRACE" else word for word in arguments))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


def test_bad_line_stops_or_is_skipped(tmp_path):
    path = tmp_path / "bad.swf"
    path.write_text(FOUR_JOBS + "5 six\n")
    result = invoke("simulate", path)
    assert (result.exit_code, result.stderr) == (2, f"error: {path}:6: fields: 2: must be 18\n")
    lenient = invoke("simulate", path, "--lenient", "--json")
    assert json.loads(lenient.stdout)["jobs"] == 4
    assert "skipped 1 job: fields must be 18" in lenient.stderr


def test_charge_delays_jobs(four_jobs):
    free = json.loads(invoke("simulate", four_jobs, "--json").stdout)
    charged = json.loads(invoke("simulate", four_jobs, "--charge", "3000", "--json").stdout)
    assert charged["mean_wait_s"] >= free["mean_wait_s"] + 3


def test_ctrl_c_exits_130_without_traceback(four_jobs, mocker):
    mocker.patch("cpsched_sim.simulation.replay", side_effect=KeyboardInterrupt)
    result = invoke("simulate", four_jobs)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("kind", ["dispatchers", "predictors"])
def test_lists_have_name_summary_parameters_and_source(kind):
    rows = json.loads(invoke(kind, "--json").stdout)[kind]
    assert all(row["summary"].endswith(".") and row["source"] and "parameters" in row for row in rows)
    table = invoke(kind).stdout
    assert all(row["name"] in table for row in rows)
    assert json.loads(invoke(kind, rows[0]["name"], "--json").stdout) == {kind: rows[:1]}
    assert f"unknown {kind[:-1]} 'none such'" in invoke(kind, "none such").stderr


def test_accuracy_prints_and_writes_figures(four_jobs, tmp_path):
    result = invoke("accuracy", four_jobs, "--json", "--out", tmp_path / "a")
    rows = json.loads(result.stdout)
    assert list(rows) == ["walltime", "last-two", "profile"]
    assert rows["walltime"]["over"] == 0.75
    assert (tmp_path / "a" / "accuracy.csv").read_text().startswith("predictor,jobs,mean_absolute_error_min,")
    assert (tmp_path / "a" / "ecdf.csv").read_text().startswith("predictor,real_by_predicted,share\nwalltime,")
    assert "0.75 to 1.25" in invoke("accuracy", four_jobs, "--predictor", "walltime").stdout
    assert invoke("accuracy", four_jobs, "--predictor", "tarot").exit_code == 2


@pytest.mark.parametrize(("option", "lines"), [([], 1), (["--quiet"], 0), (["-q"], 0)])
def test_quiet_hides_progress(four_jobs, monkeypatch, option, lines):
    """A line a minute where stderr is no terminal; notes stay."""
    monkeypatch.setattr(terminal_tables, "PROGRESS_LINE_EVERY_S", -1.0)
    told = invoke("compare", four_jobs, "--dispatcher", "fcfs,easy", "-j", "1", *option).stderr
    assert sum("combinations, about" in line for line in told.splitlines()) >= lines
    assert ("left" in told) == bool(lines)


def test_shows_no_progress_bar_without_terminal(four_jobs):
    assert invoke("simulate", four_jobs).stderr == ""


@pytest.mark.parametrize(("text", "charge"), [("none", None), ("measured", "measured"), ("2.5", 2.5)])
def test_parses_charges(text, charge):
    assert ReplayOptions(charge=text).parse_scheduling_overhead() == charge


def test_cli_module_imports_quickly():
    code = "import sys, cpsched_sim.cli; sys.exit(bool({'numpy', 'numba', 'pydantic', 'ortools'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", ["dispatchers", "predictors", "metrics"])
def test_listing_imports_no_compiler_or_solver(kind):
    heavy = {"numba", "llvmlite", "ortools", "pandas", "yaml", "matplotlib"}
    code = (
        "import sys; from cpsched_sim.cli import app\n"
        f"try: app([{kind!r}])\n"
        f"except SystemExit: sys.exit(' '.join({heavy} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_shortens_numbers_to_three_digits():
    assert [terminal_tables.format_short_number(value) for value in (0.68612, 12.345, 999.7, 16_796.0, 1.02e7)] == [
        "0.686", "12.3", "1k", "16.8k", "10.2M",
    ]  # fmt: skip


def test_objective_has_its_own_option(four_jobs, tmp_path):
    outs = [tmp_path / "long", tmp_path / "short"]
    for out, words in zip(outs, (("--set", "objective=af"), ("--objective", "af")), strict=True):
        assert invoke("simulate", four_jobs, "--dispatcher", "lookahead", *words, "--out", out).exit_code == 0
    said = [json.loads((out / "summary.json").read_text())["setup"]["settings"] for out in outs]
    assert said == [{"objective": "af"}] * 2


def test_shows_forecast_accuracy_by_horizon(four_jobs):
    asked = ("accuracy", "start-times", four_jobs, "--dispatcher", "list-reg")
    found = json.loads(invoke(*asked, "--json").stdout)
    assert (set(found), found["jobs"]) == ({"jobs", "overall", "first", "horizons"}, 4)
    assert set(found["overall"]["coverage"]) == {"50", "80", "95"}
    assert sum(row["cases"] for row in found["horizons"]) == found["overall"]["cases"]
    assert "forecast starts" in invoke(*asked).stdout
    assert json.loads(invoke(*asked, "--jobs", "3", "--json").stdout)["jobs"] == 3
    assert invoke(*asked, "--from-job", "9").exit_code == 2
    assert invoke("accuracy", "start-times", four_jobs, "--dispatcher", "oracle-bones").exit_code == 2
