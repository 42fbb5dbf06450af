"""What an outlook has learned outlives a restart, whatever is in the file."""

import json
import math
import random

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.forecast import HORIZONS_S, INTERVAL_OUTCOMES
from cpsched.model import EndedJob, RunningJob
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.program import bootstrap
from cpsched_bridge.store import forecast_state
from cpsched_bridge.store.corruption import CorruptFileContent
from cpsched_bridge.telemetry import forecast_memory
from cpsched_bridge.telemetry.past_week_outcomes import HORIZONS, WEEK_H, PastWeekIntervalOutcomes
from cpsched_bridge.telemetry.start_forecasts import StartForecaster
from tests.bridges import a_report
from tests.builders import a_cluster, a_job, a_snapshot
from tests.fuzz.stored import a_memory


def again(kept, now_s=30_000):
    """An outlook that began with what was kept."""
    outlook = StartForecaster()
    outlook.restore_memory(forecast_memory.memory_from_json(json.loads(json.dumps(kept))))
    outlook(a_report(now_s))
    return outlook


def told(outlook):
    """Return the jobs with an interval but no start yet."""
    return {row[0] for row in outlook.export_memory()["told"]}


def ends(outlook):
    return len(outlook.export_memory()["ends"])


def likely_start(outlook, now_s=30_000):
    """Return the middle of the interval of a job behind a job of ada's that may run for another 600 s."""
    first = RunningJob(a_job(100, walltime_s=600, user="ada", name="run"), now_s, ((0, 1),))
    snapshot = a_snapshot(a_cluster(1, 1), [a_job(101, submit_s=now_s)], [first], now_s)
    decision = EasyDispatcher().decide(snapshot, "plan")
    outlook(CycleReport(2, "shadow", 0.0, snapshot=snapshot, decision=decision))
    outlook.refresh()
    return outlook.intervals[101].median_s


def test_what_was_learned_is_there_again():
    kept = a_memory()
    assert (len(kept["ends"]), len(kept["told"]), len(kept["known"])) == (40, 20, 40)
    assert sum(row[-1] for row in kept["week"]) == 40
    assert again(kept).export_memory() == kept
    assert likely_start(again(kept)) < likely_start(StartForecaster()), "ada's jobs took half of what they asked for"


def test_an_end_is_learned_from_once_though_the_accounting_tells_it_again():
    outlook = again(kept := a_memory())
    last_s = max(row[-1] for row in kept["ends"])
    for start_s, end_s in ((0, 300), (last_s - 300, last_s), (last_s, last_s + 1)):
        outlook(a_report(30_000, EndedJob(a_job(9, walltime_s=600, user="ada"), start_s, end_s)))
    assert ends(outlook) == 41


def test_a_job_that_started_and_ended_while_no_bridge_ran_is_judged():
    outlook = again(a_memory())
    assert 50 in told(outlook)
    outlook(a_report(31_200, EndedJob(a_job(50, walltime_s=600, user="ada"), 31_000, 31_100)))
    assert 50 not in told(outlook)
    assert sum(outlook.take_outcomes().values()) == 1
    assert sum(outlook.take_outcomes().values()) == 0


@pytest.mark.parametrize(("now_s", "kept"), [(30_000 - 3601, 0), (30_000 - 3600, 40)])
def test_the_memory_of_another_clock_does_not_count(now_s, kept):
    assert ends(again(a_memory(), now_s)) == kept


def test_nothing_is_written_before_the_cluster_was_read(tmp_path):
    path = tmp_path / "outlook"
    forecast_state.write_forecast_state(path, a_memory())
    before, outlook = path.read_bytes(), StartForecaster()
    bootstrap.load_forecast_state(outlook, path)
    bootstrap.save_forecast_state(outlook, path)
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_does_not_grow_without_bound():
    outlook, kept = StartForecaster(), a_memory()
    jobs = (a_job(id, walltime_s=600, user="u" * 500) for id in range(forecast_memory.MOST_ENDS + 500))
    outlook(a_report(0, *(EndedJob(job, job.id, job.id + 10) for job in jobs)))
    kept = outlook.export_memory()
    assert len(kept["ends"]) == forecast_memory.MOST_ENDS
    assert max(len(row[1]) for row in kept["ends"]) == 256
    assert again(kept, 0).export_memory() == kept


def test_a_week_is_counted_by_the_hour():
    week = PastWeekIntervalOutcomes()
    for hour in range(3 * WEEK_H):
        week.add_outcome(hour % len(HORIZONS), "late", 3600 * hour)
    assert len(week.hours) == WEEK_H + 1
    assert sum(week.count_outcomes(3600 * (3 * WEEK_H - 1)).values()) == WEEK_H
    assert sum(week.count_outcomes(3600 * (3 * WEEK_H + 9)).values()) == WEEK_H - 10
    assert len(HORIZONS) == len(HORIZONS_S) + 1


HOSTILE = [None, [], {}, "x", -1, 1.5, math.nan, math.inf, 1e308, 1 << 63, "9" * 5000, [[1]], True]


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_whatever_is_in_it_is_either_refused_or_does_no_harm(first):
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
        found = forecast_memory.memory_from_json(kept)
    except CorruptFileContent:
        return True
    outlook = StartForecaster()
    outlook.restore_memory(found)
    outlook(a_report(30_000))
    return forecast_memory.memory_from_json(json.loads(json.dumps(outlook.export_memory()))) is not None


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(1000), b"[" * 100_000])
def test_a_file_that_is_none_is_told_of_and_replaced(tmp_path, content, capsys):
    path, outlook = tmp_path / "outlook", StartForecaster()
    path.write_bytes(content)
    bootstrap.load_forecast_state(outlook, path)
    outlook(a_report(5))
    bootstrap.save_forecast_state(outlook, path)
    assert (forecast_state.read_forecast_state(path)["clock_s"], forecast_state.read_forecast_state(path)["ends"]) == (
        5,
        [],
    )


def test_what_is_in_the_place_of_a_file_ends_nothing(tmp_path):
    path = tmp_path / "outlook"
    (path / "full").mkdir(parents=True)
    outlook = StartForecaster()
    bootstrap.load_forecast_state(outlook, path)
    outlook(a_report(5))
    bootstrap.save_forecast_state(outlook, path)
    assert path.is_dir()


def test_a_file_that_unpacks_to_more_than_was_written_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "outlook"
    forecast_state.write_forecast_state(path, [0] * 10_000)
    monkeypatch.setattr(forecast_state, "MOST_UNPACKED", 10_000)
    with pytest.raises(CorruptFileContent, match="does not end"):
        forecast_state.read_forecast_state(path)
    monkeypatch.setattr(forecast_state, "MOST_BYTES", 50)
    with pytest.raises(CorruptFileContent, match="longer than"):
        forecast_state.read_forecast_state(path)
    assert INTERVAL_OUTCOMES[0] == "held"
