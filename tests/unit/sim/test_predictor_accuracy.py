import json
from dataclasses import dataclass

import numpy as np
import pytest

from cpsched.predictors.last_two import LastTwoPredictor
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.predictor_accuracy import (
    PredictorAccuracy,
    accuracy_ecdf,
    predict_run_times_s,
    run_time_interval_coverage,
    write_accuracy_table,
)
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.builders import a_job
from tests.fuzz.command_line import invoke


def ran(submit_s, run_s, user="ada"):
    return TraceJob(a_job(id=submit_s + 1, submit_s=submit_s, walltime_s=1000, user=user), run_s)


def test_job_is_learned_from_its_end():
    trace = [ran(0, 50), ran(49, 1), ran(50, 1), ran(60, 1, user="bob")]
    assert predict_run_times_s(trace, LastTwoPredictor()).tolist() == [1000, 1000, 25, 1000]


def test_evaluates_predictors_that_do_not_learn():
    assert predict_run_times_s([ran(0, 50), ran(1, 2)], WalltimePredictor()).tolist() == [1000, 1000]


def test_computes_rates():
    found = PredictorAccuracy.of(np.array([60, 75, 125, 300]), np.array([60, 100, 100, 60]))
    assert found == PredictorAccuracy(4, pytest.approx((0 + 25 + 25 + 240) / 4 / 60), under=0.5, over=0.25, close=0.75)


def test_ecdf_reaches_1():
    points = accuracy_ecdf(np.array([10, 20, 20, 40]), np.array([20, 20, 20, 20]))
    assert points == [(0.5, 0.25), (1.0, 0.75), (1.0, 0.75), (2.0, 1.0)]


def test_constant_user_gets_narrow_correct_intervals():
    trace = [ran(100 * number, 50) for number in range(200)]
    found = run_time_interval_coverage(trace)
    assert (found["all"].jobs, found["10 jobs or more"].covered) == (200, 1.0)
    assert found["10 jobs or more"].median_width < 0.2
    first = found["user not seen before"]
    assert (first.jobs, first.covered, first.shorter) == (1, 0.0, 1.0)


def test_intervals_have_stated_coverage():
    draw = np.random.default_rng(1)
    trace = [ran(1000 * number, int(draw.integers(1, 1000)), user=f"u{number % 5}") for number in range(3000)]
    found = run_time_interval_coverage(trace)["all"]
    assert 0.75 < found.covered < 0.87
    assert found.covered + found.shorter + found.longer == pytest.approx(1)
    assert found.shorter == pytest.approx(found.longer, abs=0.05)


def test_job_is_unknown_before_it_ends():
    """The same job repeatedly, each before the previous one has ended: no user has an ended job."""
    found = run_time_interval_coverage([ran(number, 900) for number in range(100)])
    assert list(found) == ["user not seen before", "all"]


def test_jobs_without_user_count_as_unknown():
    assert list(run_time_interval_coverage([ran(2000 * number, 5, user="") for number in range(9)])) == [
        "user not seen before",
        "all",
    ]


@dataclass
class Kind:
    jobs: int


def test_writes_figures_as_lines_with_settings(tmp_path):
    rows = {"a": {"jobs": 1}, "b": {"jobs": 2}}
    write_accuracy_table(tmp_path / "out.csv", "kind", rows, Kind, {"trace": "made"})
    assert (tmp_path / "out.csv").read_text().splitlines() == ["kind,jobs", "a,1", "b,2"]
    assert json.loads((tmp_path / "out.csv.json").read_text())["setup"] == {"trace": "made"}


def test_command_shows_and_writes_calibration(four_jobs, tmp_path):
    shown, plain = (
        invoke("accuracy", str(four_jobs), "--intervals"),
        ("accuracy", str(four_jobs), "--intervals", "--json"),
    )
    assert "80 % intervals" in shown.stdout
    ended = invoke(*plain, "--out", str(tmp_path / "out"))
    assert json.loads(ended.stdout)["all"]["jobs"] == 4
    assert (
        (tmp_path / "out" / "calibration.csv").read_text().startswith("kind,jobs,covered,shorter,longer,median_width")
    )
    assert invoke(*plain, "--out", str(tmp_path / "out")).exit_code == 2
