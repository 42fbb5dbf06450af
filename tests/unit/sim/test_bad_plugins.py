"""Faults of plug-ins: no results, an exit code, the plug-in's file and line, and a JSON object with --json."""

import json
import re
from pathlib import Path

import pytest

import cpsched_sim
from cpsched.errors import PluginError
from tests import bad_plugins, warm
from tests.unit.sim.test_cli import FOUR_JOBS, invoke
from tests.unit.sim.traces.test_swf import line

FILE = Path(bad_plugins.__file__)
SHORT_S = "5"
"""Only what hangs comes near this limit; everything else is done in a fraction of it, or ends before."""

DISPATCHERS = {
    "RaisingDispatcher": "ZeroDivisionError",
    "ExitingDispatcher": "SystemExit: 0",
    "TextDispatcher": "must return a Decision, not a str",
    "WildDispatcher": "at 0 s: job 1: is placed on a node that does not exist",
    "IdleDispatcher": "4 of 4 jobs never started (1, 2, 3, ...): "
    "the dispatcher started no jobs even though none were running",
    "ShortOrder": "order=5 numbers: must be a name, a function of a job, or 1 numbers, one per queued job",
    "NanOrder": "must not return NaN",
    "MutatingDispatcher": "ValueError: assignment destination is read-only",
    "LearningDispatcher": "LookupError: nothing to learn",
    "UnmakeableDispatcher": "cannot be built: OSError: no such table",
}
PREDICTORS = {
    "RaisingPredictor": "KeyError: '7'",
    "ExitingPredictor": "SystemExit: good bye",
    "NegativePredictor": "estimate_s=-5: must be a number of seconds, at least 1 and below 2^53",
    "TextPredictor": "estimate_s=an hour: must be a number of seconds",
    "NanPredictor": "estimate_s=nan: must be a number of seconds",
    "HugePredictor": f"estimate_s={10**30}: must be a number of seconds",
    "WrongFill": "ValueError: ",
    "LearningPredictor": "LookupError: nothing to learn",
}
METRICS = {
    "RAISING_METRIC": "metric raising: ZeroDivisionError",
    "EXITING_METRIC": "metric exiting: SystemExit: 0",
    "TEXT_METRIC": "metric text: returned 'a lot': must be a finite number",
    "NAN_METRIC": "metric nan: returned nan: must be a finite number",
    "INFINITE_METRIC": "metric infinite: returned inf: must be a finite number",
    "ARRAY_METRIC": "must be a finite number",
    "HUGE_METRIC": "metric huge: OverflowError",
    "MUTATING_METRIC": "metric mutating: ValueError",
}
FORMATS = {
    "RaisingFormat": "ValueError: invalid literal for int() with base 10: 'two' at line 2 of",
    "ExitingFormat": "SystemExit: 0 at line 1 of",
    "TextFormat": "at line 1 of",
    "WordsFormat": "at line 1 of",
    "FractionFormat": "TypeError: run_s=1.5: must be an int at line 1 of",
    "UnmakeableFormat": "OverflowError: too many lines",
}


def line_of(name):
    """The line that is marked in the definition of `name`."""
    text = FILE.read_text()
    begin = re.search(rf"^(class {name}\b|{name} =)", text, re.MULTILINE).start()
    return text.count("\n", 0, text.index("# the fault", begin)) + 1


@pytest.fixture
def plain(tmp_path):
    """A trace in the format of the plug-ins."""
    path = tmp_path / "plain.txt"
    path.write_text("1 0 600 3600 2\n2 60 60 600 two\n")
    return path


def words(name):
    return f"tests.bad_plugins:{name}"


def assert_told(result, name, message, exit_codes=(1,)):
    """One line that says what happened and where, no figures; with --json the same as one object."""
    assert result.exit_code in exit_codes, result.output
    assert "Traceback" not in result.stderr
    told = result.stderr.strip().splitlines()[-1]
    assert told.startswith("error: ")
    assert message in told
    assert f"{FILE}:{line_of(name)}" in told
    error = json.loads(result.stdout)["error"]
    assert (error["file"], error["line"]) == (str(FILE), line_of(name))
    assert message in error["message"]


@pytest.mark.parametrize(("name", "message"), DISPATCHERS.items())
def test_failing_dispatcher_gives_error_without_figures(four_jobs, name, message):
    assert_told(invoke("simulate", four_jobs, "--dispatcher", words(name), "--json"), name, message, (1, 2))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("simulate", name) for name in PREDICTORS),
        ("accuracy", "TextPredictor"),
        ("accuracy start-times", "TextPredictor"),
    ],
)
def test_failing_predictor_gives_error_without_figures(four_jobs, command, name):
    four_jobs.write_text(FOUR_JOBS + line("5", submit="200", run="5", processors="1", requested="9") + "\n")
    assert_told(invoke(*command.split(), four_jobs, "--predictor", words(name), "--json"), name, PREDICTORS[name])


@pytest.mark.parametrize(("name", "message"), METRICS.items())
def test_failing_metric_gives_error_without_figures(four_jobs, tmp_path, name, message):
    result = invoke("simulate", four_jobs, "--metric", words(name), "--out", tmp_path / "out", "--json")
    assert_told(result, name, message)
    assert (tmp_path / "out" / "schedule.csv.gz").exists(), "hours of replay are not lost"
    assert not (tmp_path / "out" / "summary.json").exists()


@pytest.mark.parametrize(("name", "message"), FORMATS.items())
def test_failing_trace_format_gives_error_without_figures(plain, name, message):
    assert_told(invoke("simulate", plain, "--format", words(name), "--json"), name, message)


@pytest.mark.parametrize("name", ["ShortOrder", "WildDispatcher", "IdleDispatcher"])
def test_failing_dispatcher_gives_no_start_forecasts(four_jobs, name):
    assert_told(
        invoke("accuracy", "start-times", four_jobs, "--dispatcher", words(name), "--json"), name, DISPATCHERS[name]
    )


def test_comparison_reports_failed_row_and_keeps_others(four_jobs):
    names = ["RaisingDispatcher", "IdleDispatcher", "ExitingDispatcher"]
    chosen = ",".join(["easy", *map(words, names)])
    result = invoke("compare", four_jobs, "--dispatcher", chosen, "--json")
    good, *failed = json.loads(result.stdout)["results"]
    assert result.exit_code == 1
    assert good["summary"]["jobs"] == 4
    for name, row in zip(names, failed, strict=True):
        assert row["summary"] is None
        assert DISPATCHERS[name] in row["error"]
        assert f"{FILE}:{line_of(name)}" in row["error"]
        assert row["error"] in result.stderr


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--dispatcher", words("HangingDispatcher")), "HangingDispatcher"),
        pytest.param(("--dispatcher", words("StubbornDispatcher")), "StubbornDispatcher", marks=pytest.mark.slow),
        pytest.param(("--predictor", words("HangingPredictor")), "HangingPredictor", marks=pytest.mark.slow),
        pytest.param(("--metric", words("HANGING_METRIC")), "HANGING_METRIC", marks=pytest.mark.slow),
        pytest.param(("--format", words("HangingFormat")), "HangingFormat", marks=pytest.mark.slow),
    ],
)
def test_hanging_plugin_is_killed_and_named(four_jobs, arguments, name):
    result = invoke("simulate", four_jobs, *arguments, "--decide-timeout", SHORT_S, "--json")
    assert_told(result, name, f"no progress within {SHORT_S} s")


@pytest.mark.slow
def test_hang_in_compiled_code_ends_process_with_traceback(four_jobs):
    hangs = ["--dispatcher", words("StuckInC"), "--json"]
    ended = warm.cpsched("simulate", four_jobs, "--decide-timeout", SHORT_S, *hangs, timeout=600)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Timeout" in ended.stderr
    assert f'bad_plugins.py", line {line_of("StuckInC")} in decide' in ended.stderr


@pytest.mark.slow
def test_hanging_row_is_killed_and_others_are_kept(four_jobs):
    chosen = f"easy,{words('HangingDispatcher')}"
    result = invoke("compare", four_jobs, "--dispatcher", chosen, "--decide-timeout", 4 * int(SHORT_S), "--json")
    good, failed = json.loads(result.stdout)["results"]
    assert (result.exit_code, good["summary"]["jobs"], failed["summary"]) == (1, 4, None)
    assert f"{FILE}:{line_of('HangingDispatcher')}" in failed["error"]


def test_plugin_output_goes_to_stderr(four_jobs):
    result = invoke("simulate", four_jobs, "--dispatcher", words("PrintingDispatcher"), "--json")
    assert json.loads(result.stdout)["jobs"] == 4
    assert "deciding 1" in result.stderr


def test_numpy_figure_becomes_plain_number(four_jobs):
    result = invoke("simulate", four_jobs, "--metric", words("NUMPY_METRIC"), "--json")
    assert json.loads(result.stdout)["numpy"] == pytest.approx((99 + 98 + 97) / 4, rel=1) or result.exit_code == 0


def test_python_api_keeps_original_exception_as_cause(four_jobs):
    with pytest.raises(PluginError, match=rf"{FILE}:{line_of('RaisingDispatcher')}, in decide") as raised:
        cpsched_sim.simulate(four_jobs, bad_plugins.RaisingDispatcher())
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_failed_import_names_its_line(four_jobs, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "half_written.py").write_text("import cpsched\n\nclass Mine(cpsched.Dispatcher:\n")
    (tmp_path / "broken_inside.py").write_text("import cpsched\n\nTABLE = {}['missing']\n")
    for module in ("half_written", "broken_inside"):
        result = invoke("simulate", four_jobs, "--dispatcher", f"{module}:Mine", "--json")
        assert result.exit_code == 2
        error = json.loads(result.stdout)["error"]
        assert (error["file"], error["line"]) == (str(tmp_path / f"{module}.py"), 3)
        assert f"{module}.py:3" in error["message"]
