"""Hints are shown only if a setting affects the result."""

import json

import pytest
from typer.testing import CliRunner

import cpsched_sim
from cpsched_sim.cli import app
from cpsched_sim.cli.input_commands import workload_eurora

TOLD = "of the jobs ran longer than estimated; overrun=one-second then expects each to end within a second"


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "day.csv.gz"
    workload_eurora(path, days=0.2, seed=1, load=2.5)
    return path


@pytest.mark.parametrize(
    ("dispatcher", "predictor", "overrun", "bites"),
    [
        ("easy", "last-two", "one-second", True),
        ("list-reg", "last-two", "one-second", True),
        ("ebf", "last-two", None, True),
        ("easy", "last-two", None, False),
        ("easy", "last-two", "double", False),
        ("easy", "walltime", "one-second", False),
        ("easy", "oracle", "one-second", False),
        ("fcfs", "last-two", "one-second", False),
        ("greedy", "last-two", "one-second", False),
    ],
)
def test_hints_at_reservations_that_depend_on_overdue_jobs(trace, dispatcher, predictor, overrun, bites):
    result = cpsched_sim.simulate(
        cpsched_sim.load(trace, max_jobs=300), dispatcher, predictor, settings={"overrun": overrun}
    )
    assert [TOLD in hint for hint in result.hints] == [True] * bites
    assert (TOLD in str(result)) is bites
    assert (TOLD in result._repr_html_()) is bites


def test_hint_states_share_of_underpredicted_jobs(trace):
    result = cpsched_sim.simulate(cpsched_sim.load(trace, max_jobs=300), "easy", "walltime")
    assert result.schedule.overran == sum(item.run_s > item.job.walltime_s for item in result.workload.jobs)


def test_commands_print_hint_on_stderr_with_row(trace, tmp_path):
    chosen = ["--max-jobs", "300", "--json"]
    one = CliRunner().invoke(app, ["simulate", str(trace), "--dispatcher", "ebf", "--predictor", "last-two", *chosen])
    assert f"hint: {json.loads(one.stdout)['jobs'] and ''}" in one.stderr
    assert TOLD in one.stderr
    both = ["compare", str(trace), "--dispatcher", "ebf", "--predictor", "walltime,last-two", *chosen]
    both += ["--out", str(tmp_path / "out")]
    for resumed in ([], ["--resume"]):
        told = CliRunner().invoke(app, [*both, *resumed]).stderr
        assert [line for line in told.splitlines() if line.startswith("hint: ")] == [
            line for line in told.splitlines() if line.startswith("hint: ebf/last-two: ") and TOLD in line
        ]
        assert TOLD in told


@pytest.mark.parametrize("dispatcher", ["slurm", "advised"])
def test_reports_unmodelled_slurm_parameters(trace, dispatcher):
    settings = {"scheduler_parameters": "bf_licenses,bf_yield_interval=100"}
    result = cpsched_sim.simulate(cpsched_sim.load(trace, max_jobs=50), dispatcher, "walltime", settings=settings)
    assert result.hints[-1] == "SchedulerParameters that the twin does not model: bf_licenses"
