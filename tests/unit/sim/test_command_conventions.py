"""How commands end: one-line errors, no loss of computed results, and no partial files."""

import json
import os
import random
import resource
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from cpsched_bridge.program.command_help import HELP_GROUPS
from cpsched_sim.command_conventions import ErrorReportingCommandGroup
from cpsched_sim.comparison import ComparisonRow
from cpsched_sim.experiments.parallel_comparison import SharedComparisonInputs, compare_in_processes
from cpsched_sim.simulation import ReplaySpec
from cpsched_sim.terminal_tables import format_percent_or_factor
from tests import warm
from tests.fuzz.command_line import invoke, program
from tests.unit.sim.test_cli import FOUR_JOBS
from tests.unit.sim.traces.test_swf import line

CPSCHED = [sys.executable, "-m", "cpsched_bridge.program.cli"]


def forked(*words):
    """A command in a forked process, with the standard streams of the test process."""
    return [sys.executable, "-IS", warm.__file__, warm.server(), *map(str, words)]


@pytest.fixture
def many_jobs(tmp_path):
    """Enough of them for a schedule that is larger than what a probe of the disk writes."""
    draw = random.Random(1)
    lines = [line(str(i), submit=str(i * 7), run=str(draw.randint(1, 99)), requested="100") for i in range(1, 3000)]
    path = tmp_path / "many.swf"
    path.write_text("; MaxProcs: 16\n" + "\n".join(lines) + "\n")
    return path


@contextmanager
def files_no_larger_than(size):
    """Like a full disk: the system refuses further writes to a file.

    Python keeps the old limit: it would truncate the bytecode of modules imported meanwhile.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "dont_write_bytecode", True)
            patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def commands(group, *path):
    for name, command in group.commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)


@pytest.mark.parametrize("path", [(), *commands(program())], ids=" ".join)
def test_h_is_help_in_every_command(path):
    ended = invoke(*path, "-h")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert f"Usage: cpsched {' '.join(path)}".strip() in ended.stdout
    assert invoke(*path, "--help").stdout == ended.stdout


def test_shows_help_text_as_written():
    """Rich would read them as markup and emoji codes: a traceback, or words that are missing."""
    written = r"[/ x] [red]a[/red] H:M:S :bomb: [x] \[y]"
    app = typer.Typer(cls=ErrorReportingCommandGroup, help=f"root {written}", pretty_exceptions_enable=False)
    below = typer.Typer(help=f"below {written}")
    app.add_typer(below, name="below")

    @below.command("do", help=f"do {written}")
    def do(option: Annotated[str, typer.Option(help=f"option {written}")] = "", also: str = "") -> None: ...

    @below.command()
    def other() -> None: ...

    for path, named in (([], "root below"), (["below"], "below do"), (["below", "do"], "do option")):
        shown = CliRunner().invoke(app, [*path, "--help"], catch_exceptions=False, env={"COLUMNS": "200"})
        assert all(f"{name} {written}" in shown.stdout for name in named.split())


NO_SETTINGS = "/etc/cpsched/bridge.yaml: No such file or directory"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulat"], "No such command 'simulat'"),
        (["simulate"], "Missing argument 'trace'; `cpsched simulate -h` explains the usage"),
        (["simulate", "TRACE", "--dispacher", "easy"], "No such option: --dispacher"),
        (["simulate", "TRACE", "--dispatcher"], "Option '--dispatcher' requires an argument"),
        (["simulate", "TRACE", "--max-jobs", "0"], "Invalid value for '--max-jobs'"),
        (["simulate", "TRACE", "--dispatcher", "esay"], "unknown dispatcher 'esay'"),
        (["simulate", "TRACE", "--set", "a\nb\x1b[31m"], "--set=a\\nb\\x1b[31m: must be NAME=VALUE"),
        (["simulate", "gone\nfile"], "gone\\nfile: No such file or directory"),
        (["accuracy", "TRACE", "--predictor", " , "], "--predictor= , : must contain at least one name"),
        (["compare", "TRACE", "--dispatcher", ""], "--dispatcher=: must contain at least one name"),
        (
            ["compare", "TRACE", "--dispatcher", "easy", "--predictor", ","],
            "--predictor=,: must contain at least one name",
        ),
        (["compare", "TRACE", "--dispatcher", "easy", "--resume"], "--resume=True: requires --out DIR"),
        (["simulate", "TRACE", "--out", "/proc/x"], "/proc/x: cannot be written"),
        (["accuracy", "TRACE", "--out", "/proc/x"], "/proc/x: cannot be written"),
        (["compare", "TRACE", "--dispatcher", "easy", "--out", "/proc/x"], "/proc/x: cannot be written"),
        (["workload", "eurora", "--out", "/proc/x/y"], "/proc/x: cannot be written"),
        (["workload", "eurora", "--days", "1e9", "--out", "x.csv"], "days=1000000000.0: must be at least a second"),
        (["status", "--config", "gone.yaml"], "gone.yaml: No such file or directory"),
        (["status"], f"{NO_SETTINGS}; set the path with --config or CPSCHED_CONFIG"),
        (["bridge"], f"{NO_SETTINGS}; set the path with --config or CPSCHED_CONFIG"),
    ],
)
def test_every_user_error_is_one_uniform_line(four_jobs, arguments, message):
    ended = invoke(*(four_jobs if argument == "TRACE" else argument for argument in arguments))
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.lower().startswith(f"error: {message}".lower())  # some typers write TRACE
    assert ended.stderr.removesuffix("\n").isprintable()


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["simulat"], "simulate"),
        (["simulate", "x", "--dispacher", "easy"], "--dispatcher"),
        (["compare", "TRACE", "--dispatcher", "list-sag"], "list-saf"),
        (["simulate", "TRACE", "--predictor", "walltme"], "walltime"),
    ],
)
def test_suggests_probable_option(four_jobs, arguments, meant):
    ended = invoke(*(four_jobs if argument == "TRACE" else argument for argument in arguments))
    assert meant in ended.stderr.lower().partition("did you mean")[2]


def test_shows_help_without_arguments():
    ended = invoke()
    assert "Usage: cpsched" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_output_is_one_line_error_and_results_are_saved(four_jobs, tmp_path):
    simulate = ("simulate", four_jobs, "--json", "--out", tmp_path / "out")
    for command in ([*CPSCHED, "--help"], forked("dispatchers"), forked(*simulate)):
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (2, "error: output: No space left on device\n")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["schedule.csv.gz", "summary.json"]


def test_prints_figures_that_cannot_be_saved(many_jobs, tmp_path):
    with files_no_larger_than(4096):
        ended = invoke("simulate", many_jobs, "--json", "--out", tmp_path / "out")
    assert ended.exit_code == 2
    assert json.loads(ended.stdout)["jobs"] == 2999
    assert ended.stderr == f"error: {tmp_path}/out/schedule.csv.gz: cannot be written: File too large\n"
    assert list((tmp_path / "out").iterdir()) == []


def test_prints_comparison_that_cannot_be_saved(many_jobs, tmp_path):
    command = [*CPSCHED, "compare", many_jobs, "--dispatcher", "fcfs,easy", "--json", "--out", tmp_path / "out"]
    with files_no_larger_than(4096):  # replays have it by the server that forks them: so a server of its own
        ended = subprocess.run([*map(str, command), "--plots"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert [row["summary"]["jobs"] for row in json.loads(ended.stdout)["results"]] == [2999, 2999]
    assert "error: fcfs/walltime: " in ended.stderr
    assert "bars.png: cannot be written: File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    left = [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert left == ["compare.csv"]


def test_comparison_resumes_after_stop(four_jobs, tmp_path):
    def compare(*arguments):
        out = tmp_path / "out"
        ended = invoke("compare", four_jobs, "--json", "--out", out, *arguments)
        assert ended.exit_code == 0, ended.stderr
        return json.loads(ended.stdout)["results"], ended.stderr

    first, _ = compare("--dispatcher", "fcfs,easy", "--plots")
    again, said = compare("--dispatcher", "easy,greedy,fcfs", "--resume", "--plots")
    assert said == "note: 2 of 3 combinations were already finished\n"
    assert [row["dispatcher"] for row in again] == ["easy", "greedy", "fcfs"]
    assert [again[2]["summary"], again[0]["summary"]] == [row["summary"] for row in first]
    assert compare("--dispatcher", "greedy", "--resume")[1] == (
        "note: 1 of 1 combination was already finished; 2 other results are kept\n"
    )
    summary = tmp_path / "out" / "greedy-walltime" / "summary.json"
    for damaged in ("", "{", "[]", summary.read_text().replace('"bsld"', '"dlsb"')):
        summary.write_text(damaged)
        assert compare("--dispatcher", "greedy", "--resume")[1].startswith("note: 0 of 1")


def test_comparison_does_not_resume_with_another_trace(four_jobs, tmp_path):
    arguments = ("compare", four_jobs, "--dispatcher", "fcfs", "--out", tmp_path / "out")
    assert invoke(*arguments).exit_code == 0
    four_jobs.write_text(FOUR_JOBS + line("9", submit="500") + "\n")
    ended = invoke(*arguments, "--resume")
    assert (ended.exit_code, "trace_sha256 was" in ended.stderr) == (2, True)


def test_keeps_finished_rows_of_stopped_comparison(four_jobs):
    setups = [ReplaySpec(), ReplaySpec()]
    done: dict[int, ComparisonRow] = {}

    def stop(finished, total):
        if finished >= 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_in_processes(SharedComparisonInputs(four_jobs), setups, 1, stop, done)
    assert [row.summary["jobs"] for row in done.values()] == [4]
    rows = compare_in_processes(SharedComparisonInputs(four_jobs), setups, 1, done=done)
    assert [row.summary["jobs"] for row in rows] == [4, 4]


def test_shows_markup_in_names_unchanged(tmp_path):
    path = tmp_path / "[red]a[_x].swf"
    path.write_text(FOUR_JOBS)
    for command in (["simulate", path], ["accuracy", path], ["compare", path, "--dispatcher", "fcfs,easy"]):
        ended = invoke(*command)
        assert ended.exit_code == 0
        assert "[red]a[_x].swf" in ended.stdout


def test_comparison_has_one_output_format(four_jobs):
    ended = invoke("compare", four_jobs, "-d", "easy", "--csv", "--json")
    assert (ended.exit_code, ended.stderr) == (
        2, "error: --json, --csv, --markdown=['--json', '--csv']: cannot be combined: set only one of them\n"
    )  # fmt: skip


def test_comparison_prints_markdown_table(four_jobs):
    shown = invoke("compare", four_jobs, "-d", "fcfs,easy", "--markdown").stdout.splitlines()
    assert [line.split(" | ")[0] for line in shown[2:]] == ["| dispatcher", "| ---", "| fcfs", "| easy"]
    assert len({line.count("|") for line in shown[2:]}) == 1


def test_piped_table_is_not_wrapped_and_has_legend(four_jobs):
    shown = invoke("compare", four_jobs, "--dispatcher", "fcfs,easy").stdout
    begins = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert begins["dispatcher"].split()[-2:] == ["dispatch", "ms"]
    assert len([line for line in shown.splitlines() if line.split()[:1] == ["easy"]]) == 1
    assert "AWF: sum of r D F / sum of r D" in shown
    assert "W: wait, D: run time" in shown


def test_every_command_is_in_help_group():
    named = [name for names in HELP_GROUPS.values() for name in names.split()]
    assert sorted(named) == sorted({name.split()[0] for name in program().commands})
    shown = invoke("--help").stdout
    assert all(f"─ {panel} ─" in shown for panel in HELP_GROUPS)


def test_both_version_options_print_version():
    assert {invoke(name).stdout for name in ("-V", "--version")} == {f"cpsched {version('cpsched')}\n"}


def test_formats_shares_as_percent_or_factor():
    assert [format_percent_or_factor(value) for value in (83.12, 100, 999.4, 999.6, 7350)] == [
        "83.1%",
        "100%",
        "999%",
        "10x",
        "73.5x",
    ]
