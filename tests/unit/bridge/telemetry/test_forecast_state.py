"""The learned state of forecasts survives a restart, whatever the file contains."""

import json
import math
import random

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.forecast import HORIZONS_S, INTERVAL_OUTCOMES
from cpsched.model import EndedJob, RunningJob
from cpsched_bridge.program import bootstrap
from cpsched_bridge.store.corruption_checks import CorruptFileContent
from cpsched_bridge.telemetry import forecast_state
from cpsched_bridge.telemetry.forecast_outcomes import CLASS_LABELS, WEEK_H, PastWeekIntervalOutcomes
from cpsched_bridge.telemetry.start_forecasts import StartForecaster
from tests.bridges import a_report
from tests.builders import a_cluster, a_cycle_report, a_job, a_snapshot
from tests.fuzz.stored import a_memory


def again(kept, now_s=30_000):
    """Return a forecaster that has read the stored state."""
    forecaster = StartForecaster()
    forecaster.restore_memory_when_clock_known(forecast_state.forecast_state_from_json(json.loads(json.dumps(kept))))
    forecaster(a_report(now_s))
    return forecaster


def jobs_with_forecasts(forecaster):
    """Return the jobs with an interval but no start yet."""
    return {row[0] for row in forecaster.export_memory()["told"]}


def ends(forecaster):
    return len(forecaster.export_memory()["ends"])


def likely_start(forecaster, now_s=30_000):
    """Return the middle of the interval of a job behind a job of ada's that may run for another 600 s."""
    first = RunningJob(a_job(100, walltime_s=600, user="ada", name="run"), now_s, ((0, 1),))
    snapshot = a_snapshot(a_cluster(1, 1), [a_job(101, submit_s=now_s)], [first], now_s)
    decision = EasyDispatcher().decide(snapshot, "plan")
    forecaster(a_cycle_report(2, mode="shadow", snapshot=snapshot, decision=decision))
    forecaster.refresh()
    return forecaster.intervals[101].median_s


def test_restores_learned_state():
    kept = a_memory()
    assert (len(kept["ends"]), len(kept["told"]), len(kept["known"])) == (40, 20, 40)
    assert sum(row[-1] for row in kept["week"]) == 40
    assert again(kept).export_memory() == kept
    assert likely_start(again(kept)) < likely_start(StartForecaster()), "ada's jobs took half of what they asked for"


def test_learns_each_end_once_despite_repeated_accounting():
    forecaster = again(kept := a_memory())
    last_s = max(row[-1] for row in kept["ends"])
    for start_s, end_s in ((0, 300), (last_s - 300, last_s), (last_s, last_s + 1)):
        forecaster(a_report(30_000, EndedJob(a_job(9, walltime_s=600, user="ada"), start_s, end_s)))
    assert ends(forecaster) == 41


def test_judges_job_that_ran_while_bridge_was_down():
    forecaster = again(a_memory())
    assert 50 in jobs_with_forecasts(forecaster)
    forecaster(a_report(31_200, EndedJob(a_job(50, walltime_s=600, user="ada"), 31_000, 31_100)))
    assert 50 not in jobs_with_forecasts(forecaster)
    (score,) = forecaster.take_outcomes()
    assert score.width_s > 0 < score.pinball_s
    assert forecaster.take_outcomes() == []


def test_after_a_change_of_policy_forecasts_are_not_calibrated():
    """Run times still count, but neither outcomes under the earlier policy nor its open forecasts."""
    found = again(a_memory() | {"policy": "control, another"}).export_memory()
    assert (len(found["ends"]), found["known"], found["told"], found["policy"]) == (40, [], [], "")


@pytest.mark.parametrize(("now_s", "kept"), [(30_000 - 3601, 0), (30_000 - 3600, 40)])
def test_ignores_memory_of_another_clock(now_s, kept):
    assert ends(again(a_memory(), now_s)) == kept


def test_writes_nothing_before_first_reading(tmp_path):
    path = tmp_path / "outlook"
    forecast_state.write_forecast_state(path, a_memory())
    before, forecaster = path.read_bytes(), StartForecaster()
    bootstrap.load_forecast_state(forecaster, path)
    bootstrap.save_forecast_state(forecaster, path)
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600


def test_bounds_file_size():
    forecaster, kept = StartForecaster(), a_memory()
    jobs = (a_job(id, walltime_s=600, user="u" * 500) for id in range(forecast_state.MAX_ENDED_JOBS + 500))
    forecaster(a_report(0, *(EndedJob(job, job.id, job.id + 10) for job in jobs)))
    kept = forecaster.export_memory()
    assert len(kept["ends"]) == forecast_state.MAX_ENDED_JOBS
    assert max(len(row[1]) for row in kept["ends"]) == 256
    assert again(kept, 0).export_memory() == kept


def test_keeps_hourly_counts_of_one_week():
    week = PastWeekIntervalOutcomes()
    for hour in range(3 * WEEK_H):
        week.add_outcome(hour % len(CLASS_LABELS), "late", 3600 * hour)
    assert len(week.hours) == WEEK_H + 1
    assert sum(week.count_outcomes(3600 * (3 * WEEK_H - 1)).values()) == WEEK_H
    assert sum(week.count_outcomes(3600 * (3 * WEEK_H + 9)).values()) == WEEK_H - 10
    assert len(CLASS_LABELS) == len(HORIZONS_S) + 2


HOSTILE = [None, [], {}, "x", -1, 1.5, math.nan, math.inf, 1e308, 1 << 63, "9" * 5000, [[1]], True]


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_changed_value_is_rejected_or_harmless(first):
    """One value anywhere is another one."""
    text = json.dumps(a_memory())
    for seed in range(first, first + 50):
        assert harmless(random.Random(seed), json.loads(text)), f"seed {seed}"


def harmless(chance, kept):
    """Whether the memory with another value somewhere is refused, or used and can be kept again."""
    place = kept
    key = chance.choice(list(kept))
    while isinstance(place[key], list) and place[key] and chance.random() < 0.9:
        place, key = place[key], chance.randrange(len(place[key]))
    place[key] = chance.choice(HOSTILE)
    try:
        found = forecast_state.forecast_state_from_json(kept)
    except CorruptFileContent:
        return True
    forecaster = StartForecaster()
    forecaster.restore_memory_when_clock_known(found)
    forecaster(a_report(30_000))
    return forecast_state.forecast_state_from_json(json.loads(json.dumps(forecaster.export_memory()))) is not None


@pytest.mark.parametrize("content", [None, b"", b"x" * 100, bytes(1000), b"[" * 100_000])
def test_reports_and_replaces_invalid_file_but_no_directory(tmp_path, content):
    path, forecaster = tmp_path / "outlook", StartForecaster()
    if content is None:
        (path / "full").mkdir(parents=True)
    else:
        path.write_bytes(content)
    bootstrap.load_forecast_state(forecaster, path)
    forecaster(a_report(5))
    bootstrap.save_forecast_state(forecaster, path)
    stored = None if path.is_dir() else forecast_state.read_forecast_state(path)
    assert (content is None and stored is None) or (stored["clock_s"], stored["ends"]) == (5, [])


def test_rejects_file_that_decompresses_beyond_limit(tmp_path, monkeypatch):
    path = tmp_path / "outlook"
    forecast_state.write_forecast_state(path, [0] * 10_000)
    monkeypatch.setattr(forecast_state, "MAX_UNPACKED_BYTES", 10_000)
    with pytest.raises(CorruptFileContent, match="the compressed data has the wrong length"):
        forecast_state.read_forecast_state(path)
    monkeypatch.setattr(forecast_state, "MAX_BYTES", 50)
    with pytest.raises(CorruptFileContent, match="longer than"):
        forecast_state.read_forecast_state(path)
    assert INTERVAL_OUTCOMES[0] == "covered"
