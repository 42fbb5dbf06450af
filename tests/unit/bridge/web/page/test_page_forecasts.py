"""Forecasts on the page and in the API: of pending jobs, and of jobs that are not submitted."""

import json
import re
from dataclasses import asdict

import pytest

from cpsched_bridge.telemetry import start_forecasts as forecasters
from cpsched_bridge.views.job_explanation import NOT_CALIBRATED
from tests.builders import a_job


def full(site, until_s=4600):
    """All three nodes of four cores are taken; two jobs wait."""
    site.cluster.submit(a_job(1, units=3, per_unit=4, walltime_s=until_s - 1000, user="ada", distinct=True))
    site.cycle()
    site.cluster.submit(*(a_job(id, 3, 4, 600, 1000, distinct=True, user="ada") for id in (2, 3)))
    return site.cycle(1010)


def forecast(site):
    """The same, with forecasts."""
    full(site)
    site.watch.forecaster.refresh()


def asked(site, words):
    status, _, text = site.get(f"api/v1/when?{words}")
    return json.loads(text)["starts"] if status == 200 else (status, text)


def test_pending_job_gets_interval_once_available(site):
    full(site)
    assert site.view.jobs.waiting[0].likely_from_s is None
    site.watch.forecaster.refresh()
    site.cycle(1020)
    first, second = site.view.jobs.waiting
    assert 1010 <= first.likely_from_s <= first.likely_to_s < second.likely_to_s
    assert "Start, with a probability of 80 %: in " in site.get("jobs/2")[2]
    for path in ("jobs/2", "api/v1/jobs/2", "when?time=10"):
        assert NOT_CALIBRATED in site.get(path)[2]


@pytest.mark.slow
def test_learns_from_actual_starts(site):
    forecaster = site.watch.forecaster
    for id in range(10, 115):
        now_s = 1000 * id
        site.cluster.submit(a_job(id, 3, 4, 600, now_s, distinct=True, user="ada"))
        site.cycle(now_s)
        site.cluster.submit(a_job(1000 + id, 3, 4, 600, now_s, distinct=True, user="ada"))
        site.cycle(now_s + 1)
        forecaster.refresh()
        site.cluster.now_s = now_s + 60
        site.cluster.end(id)
        site.cycle(now_s + 60)
        site.cycle(now_s + 61)
        site.cluster.now_s = now_s + 120
        site.cluster.end(1000 + id)
        site.cycle(now_s + 120)
    full(site, 1000 + 600)
    forecaster.refresh()
    told = forecaster.intervals[2]
    assert told.calibrated
    assert told.to_s - told.from_s < 200, "run times and waits were always the same"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("nodes=1", "time=.*must be a time limit"),
        ("time=nonsense", "time"),
        ("nodes=x&time=10", "nodes=x: must be a whole number"),
        ("nodes=0&time=10", "units"),
        ("time=10&gpus=1", "resource=gpus: must be one of cores"),
        ("time=10&partition=none", "partition=none: must be one of all"),
        ("time=10&exclusive=maybe", "exclusive=maybe"),
        ("time=10&cores=9999999999", "cores="),
    ],
)
def test_rejects_invalid_query_in_one_line(site, words, why):
    full(site)
    status, text = asked(site, words)
    assert status == 400
    assert re.search(why, json.loads(text)["error"])


def test_has_no_answer_before_first_plan(site):
    assert asked(site, "time=10") == (503, '{"error": "the dispatcher has no plan yet; try again in the next cycle"}')
    assert site.get("api/v1/windows")[0] == 503
    site.watch.forecaster.refresh()
    assert site.watch.forecaster.intervals == {}


def test_tolerates_job_that_vanishes_without_start(site):
    forecast(site)
    site.cluster.cancel(2)
    site.cycle(1020)
    site.watch.forecaster.refresh()
    assert set(site.watch.forecaster.intervals) == {3}


def test_shows_interval_quality_on_page_and_in_metrics(site):
    forecast(site)
    assert site.view.coverage == []
    assert "h-coverage" not in site.get("when")[2]
    assert 'cpsched_start_intervals_total{outcome="covered"} 0.0' in site.get("metrics")[2]
    site.cluster.now_s = 4600
    site.cluster.end(1)
    for to_s in (4600, 4601, 4602):
        site.cycle(to_s)
    site.watch.forecaster.refresh()
    site.cycle(4603)
    rows = {row.forecast: row for row in site.view.coverage}
    assert asdict(rows["first"]) == {"forecast": "first", "count": 1, "covered": 1, "early": 0, "late": 0}
    assert set(rows) == {"first"}
    assert 'cpsched_start_intervals_total{outcome="covered"} 1.0' in site.get("metrics")[2]
    assert "100" in site.get("when")[2].partition("h-coverage")[2]


def test_form_shows_estimate_and_windows(site):
    full(site)
    text = site.get("when?time=20&nodes=4&cores=4&exclusive=1")[2]
    assert "never: requests 4 units on distinct nodes" in text
    assert "3 instead of 4" in text
    assert 'value="20"' in text
    assert "checked" in text
    status, _, text = site.get("when?time=%22%3E%3Cscript%3E&nodes=1")
    assert status == 400
    assert "<script>" not in text
    assert 'role="alert"' in text
    assert site.get("when")[0] == 200
    assert "If it were submitted now" not in site.get("when")[2]
    assert site.get("when?time=20&cores=&partition=")[0] == 200


def test_answers_queries_from_one_plan_for_a_while(site):
    full(site)
    forecaster, readings = site.watch.forecaster, [5.0, 0.25, 0.0]
    forecaster.clock = lambda: readings.pop() if len(readings) > 1 else readings[0]
    asked(site, "time=10")  # the queue took a quarter of a second to place: for five there is no new plan
    site.cycle(1100)
    assert site.json("when?time=10")["now_s"] == 1010
    readings[0] = 5.25
    assert site.json("when?time=10")["now_s"] == 1100


def test_estimate_after_many_jobs_uses_plans_near_that_time(site, monkeypatch):
    full(site)
    whole = asked(site, "nodes=3&time=10&cores=4")[0]
    monkeypatch.setattr(forecasters, "MAX_JOBS_AHEAD", 1)
    found = asked(site, "nodes=3&time=10&cores=4")[0]
    assert found["planned_s"] == whole["planned_s"]
    assert found["likely_from_s"] <= found["planned_s"] <= found["likely_to_s"]
