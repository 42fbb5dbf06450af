"""Version 1 of the API: its responses match its OpenAPI document, and no other path is part of it."""

import json

import pytest

from cpsched_bridge.web import api_v1
from tests.builders import a_job
from tests.unit.bridge.web.page.test_page_forecasts import forecast
from tests.unit.bridge.web.page.views import a_running, a_waiting, some_jobs


@pytest.fixture
def asked(site):
    """Asks an address of version 1; every answer is held against the document that the bridge serves."""
    from jsonschema import Draft202012Validator  # 1.4 CPU seconds, which each process would pay to collect the tests

    document = json.loads(site.get("api/v1/openapi.json")[2])

    def ask(path, route=None):
        status, headers, text = site.get(f"api/v1/{path}")
        assert headers["content-type"] == "application/json"
        said = document["paths"][route or f"/api/v1/{path.partition('?')[0]}"]["get"]["responses"][str(status)]
        found = json.loads(text)
        schema = {"components": document["components"], **said["content"]["application/json"]["schema"]}
        Draft202012Validator(schema).validate(found)
        return status, found

    site.document = document
    return ask


def full(site):
    """A job runs on all nodes, two wait, one may not start."""
    forecast(site)
    site.cluster.submit(a_job(4, ineligible="Dependency"))
    site.cycle(1020)


def test_answers_have_present_plan_and_expected_end():
    """Not the first plan, and not the end of the time limit (500 + 3600)."""
    waiting, running = a_waiting(1, planned_s=4600, first_planned_s=2000), a_running(2, expected_end_s=1300)
    found = api_v1.jobs_to_json(some_jobs(waiting=[waiting], running=[running]), users_hidden=False)["jobs"]
    assert [(job["planned_s"], job["expected_end_s"]) for job in found] == [(4600, None), (None, 1300)]


def test_document_is_openapi(asked, site):
    from openapi_spec_validator import validate

    validate(site.document)
    assert site.document["openapi"] == "3.1.0"
    assert set(site.document["paths"]) == {"/api/v1/jobs", "/api/v1/jobs/{job}", "/api/v1/when", "/api/v1/windows"}


def test_jobs_in_each_state(asked, site):
    full(site)
    found = {id: asked(f"jobs/{id}", "/api/v1/jobs/{job}") for id in (1, 2, 3, 4, 99, "x")}
    assert {id: (status, job["state"]) for id, (status, job) in found.items()} == {
        1: (200, "running"), 2: (200, "waiting"), 3: (200, "waiting"), 4: (200, "unscheduled"),
        99: (404, "unknown"), "x": (404, "unknown"),
    }  # fmt: skip
    assert found["x"][1]["id"] == -1


def test_start_estimate_and_windows(asked, site):
    full(site)
    status, found = asked("when?time=20&nodes=3&cores=4")
    assert (status, found["now_s"]) == (200, 1020)
    assert [each["request"] for each in found["starts"]] == [""], "smaller requests do not start earlier"
    (start,) = found["starts"]
    assert (start["planned_s"], start["calibrated"]) == (4600 + 2 * 600, False)
    assert 1020 < start["likely_from_s"] <= start["likely_to_s"]
    never, smaller = asked("when?time=20&nodes=4&cores=4")[1]["starts"]
    assert (never["planned_s"], never["likely_from_s"], never["likely_to_s"]) == (None, None, None)
    assert smaller["request"] == "3 instead of 4"
    assert asked("windows") == (200, {"now_s": 1020, "windows": []})
    site.cluster.end(1)
    site.cluster.cancel(2)
    site.cluster.cancel(3)
    site.cycle(1030)
    site.watch.forecaster.clock = lambda: 1e9
    windows = asked("windows")[1]["windows"]
    assert {"exclusive": True, "units": 3, "walltime_s": 72 * 3600} in windows
    assert {"exclusive": False, "units": 12, "walltime_s": 72 * 3600} in windows


def test_errors_are_json(asked, site):
    assert asked("when?time=10")[0] == 503
    assert asked("jobs/1", "/api/v1/jobs/{job}") == (
        503,
        {"error": "the bridge has not read the cluster yet; no cycle has ended yet"},
    )
    full(site)
    status, found = asked("when?time=10&gpus=1")
    assert (status, found) == (400, {"error": "resource=gpus: must be one of cores"})
    assert asked("windows?partition=none")[0] == 400
    status, _, text = site.get("api/v1/nothing/at/all")
    assert (status, "openapi.json" in json.loads(text)["error"]) == (404, True)
    status, _, text = site.get("api/v1/when?time=10", Host="evil.example")
    assert (status, "page.hosts" in json.loads(text)["error"]) == (421, True)


@pytest.mark.parametrize("path", ["status", "queue", "jobs/2", "when?time=10", "windows", "schema", "v2/jobs/2"])
def test_unversioned_address_names_version_1(site, path):
    full(site)
    status, headers, text = site.get(f"api/{path}")
    assert (status, headers["content-type"]) == (404, "application/json")
    assert "/api/v1/openapi.json" in json.loads(text)["error"]
