"""One complex cluster state as shown by the page, the API and `cpsched status`: all values of the view.

Fields that are not named here, such as new ones, are not compared.
"""

import json
from dataclasses import asdict

import pytest

from cpsched.forecast import BackfillWindow
from cpsched.forecast.calibration import StartForecast
from cpsched.formatting import format_start_interval
from cpsched.model import NodeSetCondition, PendingCode, PendingReason
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, Hold, Outage, UnmanagedJob
from cpsched_bridge.settings import Settings
from cpsched_bridge.telemetry.start_forecasts import SubmissionStartEstimate
from cpsched_bridge.web import api_v1
from tests.builders import a_cluster, a_job
from tests.unit.bridge.cycle.test_limits import with_limits


def a_request_with(**given):
    return {"units": 1, "amounts": {"cores": 4}, "distinct": True, "exclusive": False, "nodes_from": ()} | given


NOBODY = {"account": "", "name": "", "partition": "", "qos": ""}
WIDE = {"state": "waiting", "priority": 0, "estimate_s": 600, "walltime_s": 600}
ADAS = {
    "id": 1, "label": "1", "state": "running", "user": "ada", "request": a_request_with(exclusive=True),
    "submit_s": 900, "walltime_s": 5000, "account": "bio", "name": "long", "partition": "main", "qos": "high",
    "start_s": 1000, "expected_end_s": 6000, "nodes": (("n0", 1),),
}  # fmt: skip
BENS = NOBODY | {
    "id": 2, "label": "2", "state": "running", "user": "ben", "submit_s": 950, "walltime_s": 300, "start_s": 1000,
    "request": a_request_with(units=2, amounts={"cores": 1}, distinct=False), "expected_end_s": 1300,
    "nodes": (("n1", 2),),
}  # fmt: skip
WAITS = NOBODY | WIDE | {
    "id": 5, "label": "5", "user": "ben", "request": a_request_with(units=2), "submit_s": 1055, "position": 1,
    "waits_for": (1,), "kind": "resources", "reason": {"code": "resources", "arguments": (0, 2)}, "planned_s": 6000,
    "first_planned_s": 6000,
}  # fmt: skip
NEVER = NOBODY | WIDE | {
    "id": 7, "label": "7", "user": "eve", "request": a_request_with(units=9), "submit_s": 1057, "position": 2,
    "waits_for": (), "kind": "never",
    "reason": {
        "code": "never", "arguments": ("requests 9 units on distinct nodes, but the empty cluster holds only 3",)
    },
    "planned_s": None, "first_planned_s": None, "likely_from_s": None, "likely_to_s": None,
}  # fmt: skip
UNSCHEDULED = {
    "id": 6, "label": "6", "state": "unscheduled", "user": "eve", "account": "", "name": "", "kind": "ineligible",
    "reason": {"code": "dependency", "arguments": ()}, "submit_s": 0, "walltime_s": 100,
    "request": a_request_with(amounts={"cores": 1}, distinct=False),
}  # fmt: skip
STATUS = {
    "round": 4, "users_hidden": False, "held": 3,
    "resources": [{"name": "cores", "capacity": 12, "in_use": 6, "unavailable": 4, "free": 2}],
}  # fmt: skip
BARS = [
    {"id": 1, "label": "1", "user": "ada", "kind": "running", "begin_s": 1000, "end_s": 6000, "nodes": [(0, 4)]},
    {"id": 2, "label": "2", "user": "ben", "kind": "running", "begin_s": 1000, "end_s": 1300, "nodes": [(1, 2)]},
    {"id": 5, "label": "5", "user": "ben", "kind": "planned", "begin_s": 6000, "end_s": 6600,
     "nodes": [(0, 4), (1, 4)]},
]  # fmt: skip


def among(found, expected):
    """Those parts of a found value that are expected, all the way down; rows must be as many."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return {name: among(found[name], value) for name, value in expected.items()}
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        return [among(each, value) for each, value in zip(found, expected, strict=True)]
    return found


@pytest.fixture
def instant(site):
    """Node n0 is full, n1 half full, n2 takes no jobs; two jobs wait, one may not start, one has ended."""
    site.cluster.submit(
        a_job(1, 1, 4, 5000, 900, user="ada", account="bio", name="long", qos="high", queue="main", distinct=True,
              exclusive=True),
        a_job(2, 2, 1, 300, 950, user="ben"),
        a_job(3, 1, 4, 60, 950, user="eve"),
    )  # fmt: skip
    site.cycle(1000)
    site.cluster.now_s = 1060
    site.cluster.end(3)
    site.cycle(1062)
    site.cluster.drained = {2}
    site.cluster.outages = (Outage("reserved", "maint", (0, 1, 2), 9000, 9900),)
    site.cluster.submit(
        a_job(5, 2, 4, 600, 1055, user="ben", distinct=True),
        a_job(6, user="eve", ineligible=PendingReason(PendingCode.DEPENDENCY)),
        a_job(7, 9, 4, 600, 1057, user="eve", distinct=True),
    )
    site.cycle(1070)
    site.watch.forecaster.refresh()
    site.cycle(1080)
    return site


def test_builds_complete_view(instant):
    """A node that is full of jobs is in use; one that is empty and takes none is unavailable."""
    told = instant.watch.forecaster.intervals[5].at(1080)
    likely = {"likely_from_s": told.from_s, "likely_to_s": told.to_s}
    reasons = [{"kind": kind, "jobs": 1} for kind in ("never", "resources", "ineligible")]
    expected = {
        "status": STATUS | {"pending_reasons": reasons},
        "jobs": {
            "now_s": 1080, "mode": "control", "predictor": "walltime", "reader": "", "waiting": [WAITS | likely, NEVER],
            "running": [ADAS, BENS], "unscheduled": [UNSCHEDULED], "ended": [],
        },
        "decisions": [
            dict(zip(("round", "path", "considered", "queued", "started"), row, strict=True))
            for row in (
                (4, "none-starts", 2, 2, 0), (3, "none-starts", 2, 2, 0), (2, "empty-queue", 0, 0, 0),
                (1, "all-start", 3, 3, 3),
            )
        ],
        "history": [
            {"now_s": 1000, "in_use": [0.0]}, {"now_s": 1062, "in_use": [0.5]}, {"now_s": 1080, "in_use": [0.8333]},
        ],
        "chart": {
            "now_s": 1080, "node_names": ["n0", "n1", "n2"], "unavailable": [2],
            "outages": [
                {"kind": "reserved", "name": "maint", "nodes": [0, 1, 2], "from_s": 9000, "to_s": 9900},
                {"kind": "unknown", "name": "", "nodes": [2], "from_s": 1080, "to_s": None},
            ],
            "bars": BARS,
        },
        "capacities": {"capacity": [[4], [4], [4]], "free": [[0], [2], [0]]},
    }  # fmt: skip
    found = asdict(instant.view)
    assert among(found, expected) == expected


@pytest.mark.parametrize(("from_s", "nodes", "named"), [(900, (0,), True), (9000, (0,), False), (900, (), False)])
def test_waiting_job_names_reservation_that_is_active_now(instant, from_s, nodes, named):
    """Its node set does not exclude these nodes, because it may use them after the reservation."""
    instant.cluster.outages = (
        Outage("reserved", "maint", nodes, from_s, 9900),
        Outage("down", "DOWN", (1,), 900, None),
    )
    instant.cycle(1090)
    parts = {job.id: job.request.nodes_from for job in instant.view.jobs.waiting}
    assert parts[5] == ((NodeSetCondition("reservation", "maint"),) if named else ())


def test_start_behind_job_without_time_limit_is_unknown(site):
    site.cluster.submit(a_job(1, 3, 4, UNLIMITED_WALLTIME_S, distinct=True), a_job(2, 3, 4, 600, distinct=True))
    for now_s in (1000, 1060):
        site.cycle(now_s)
    site.watch.forecaster.refresh()
    site.cycle(1070)
    assert [(job.walltime_s, job.expected_end_s) for job in site.view.jobs.running] == [(None, None)]
    found = site.json("jobs/2")
    assert (found["start"], found["plan"], found["planned_s"], found["likely_from_s"]) == (
        "not known yet",
        "",
        None,
        None,
    )
    assert "It can start when this job ends, at an unknown time: 1." in found["sentences"]


def test_job_that_runs_in_unknown_state_has_one_row(site):
    """The adapter lists it as unmanaged too, because no command may be sent for it."""
    site.cluster.submit(a_job(1, user="ada"))
    site.cycle(1000)
    site.cluster.unmanaged.append(UnmanagedJob(1, "LATER_RUN", user="ada"))
    site.cycle(1060)
    assert [(job["id"], job["state"]) for job in site.json("jobs")["jobs"]] == [(1, "running")]


def test_builds_complete_v1_jobs(instant):
    told = instant.watch.forecaster.intervals[5].at(1080)
    none = {
        "reason": "", "submit_s": None, "walltime_s": None, "planned_s": None, "likely_from_s": None,
        "likely_to_s": None, "start_s": None, "expected_end_s": None, "nodes": [],
    }  # fmt: skip
    expected = {
        1: {"state": "running", "submit_s": 900, "walltime_s": 5000, "start_s": 1000, "expected_end_s": 6000,
            "nodes": [["n0", 1]]},
        5: {"state": "waiting", "reason": "too few nodes have enough free resources: 0 of 2",
            "submit_s": 1055, "walltime_s": 600,
            "start": format_start_interval(told.from_s, told.to_s, 1080),
            "plan": "in 1 h 22 min at the latest, if every job runs to its limit", "planned_s": 6000,
            "likely_from_s": told.from_s, "likely_to_s": told.to_s,
            "start_quantiles_s": told.published_quantiles_s, "calibrated": False},
        6: {"state": "unscheduled", "reason": "its dependencies are not satisfied", "submit_s": 0,
            "walltime_s": 100},
        99: {"state": "unknown"},
    }  # fmt: skip
    for id, facts in expected.items():
        whole = none | {"id": id, "label": str(id), "now_s": 1080} | facts
        assert among(instant.json(f"jobs/{id}"), whole) == whole


def test_node_that_is_free_of_one_resource_is_in_use_or_idle(site):
    """n0 has no GPU, which is no free GPU either; n1 is drained."""
    site.cluster.cluster = a_cluster(nodes=2, gpus=[0, 1])
    site.cluster.drained = {1}
    assert site.cycle().chart.unavailable == [1]


def test_page_and_journal_give_one_reason_for_unscheduled_job(site):
    """A site limit, three holds, and a start: the page, the API and `cpsched why` from the journal agree."""
    site.cluster.view = with_limits
    site.cluster.submit(*(a_job(id, user="ada", account="lab") for id in (1, 2, 3)))
    site.cycle(1000)
    site.cluster.submit(a_job(4, user="bob", account="lab"), hold=Hold.ADMIN)
    site.cluster.submit(a_job(5, user="bob", account="lab"), hold=Hold.CLUSTER)
    site.cluster.submit(a_job(6, user="bob", account="lab"), hold=Hold.USER)
    site.cluster.submit(a_job(7, 3, 4, user="bob", account="lab"), hold=Hold.NONE, stubborn="held by the cluster")
    view = site.cycle(1001)
    expected = {
        3: ("ineligible", "AssocMaxJobsLimit: 2 of 2 jobs for user ada in account lab are in use"),
        4: ("in_transition", "held by an administrator, not by the bridge"),
        5: ("in_transition", "held by the cluster until the job is released or changed"),
        6: ("held_by_owner", "held by its owner"),
        7: ("in_transition", "held by the cluster until the job is released or changed: BadConstraints"),
    }
    assert {job.id: (job.kind, job.reason_text) for job in view.jobs.unscheduled} == expected
    assert {each.job_id: each.reason for each in site.bridge.journal.list_unscheduled_jobs()} == {
        id: why for id, (_, why) in expected.items()
    }
    assert {row["id"]: row["reason"] for row in site.json("jobs")["jobs"] if row["state"] == "unscheduled"} == {
        id: why for id, (_, why) in expected.items()
    }
    assert {each.kind: each.jobs for each in view.status.pending_reasons} == {
        "ineligible": 1, "held_by_owner": 1, "in_transition": 3,
    }  # fmt: skip


def test_the_file_for_portals_is_the_answer_about_all_jobs(instant, tmp_path):
    folder = tmp_path / "portal"
    folder.mkdir()
    instant.watch.write_start_forecasts_file()
    assert not list(folder.iterdir())
    instant.watch.settings = Settings.model_validate({"page": {"start_times_file": folder / "start-times.json"}})
    instant.watch.write_start_forecasts_file()
    assert [each.name for each in folder.iterdir()] == ["start-times.json"]
    assert json.loads((folder / "start-times.json").read_text()) == instant.json("jobs")


@pytest.mark.parametrize("calibrated", [False, True])
def test_builds_complete_v1_query_answers(calibrated):
    """A start that could never be has no interval, and is not calibrated."""
    quantiles_s = (1400, 1450, 1500, 1800, 2000, 2200, 2500, 2600, 2700)
    told = StartForecast(1000, quantiles_s, calibrated, True, True, "", (0.0,) * 6)
    estimates = [
        SubmissionStartEstimate("", 1800, told), SubmissionStartEstimate("half the time", None, None, "too big")
    ]  # fmt: skip
    found = api_v1.start_estimates_to_json(estimates, 1234, "walltime")
    assert found == {
        "now_s": 1234,
        "starts": [
            {"request": "", "start": "in 4 min 26 s to 21 min 06 s",
             "plan": "in 9 min 26 s at the latest, if every job runs to its limit", "planned_s": 1800,
             "likely_from_s": 1500, "likely_to_s": 2500,
             "start_quantiles_s": (1450, 1500, 1800, 2000, 2200, 2500, 2600), "calibrated": calibrated},
            {"request": "half the time", "start": "never: too big", "plan": "", "planned_s": None,
             "likely_from_s": None, "likely_to_s": None,
             "start_quantiles_s": (), "calibrated": False},
        ],
    }  # fmt: skip
    windows = [BackfillWindow(True, 3, 900), BackfillWindow(False, 7, 3600)]
    assert api_v1.backfill_windows_to_json(windows, 1234) == {
        "now_s": 1234,
        "windows": [
            {"exclusive": True, "units": 3, "walltime_s": 900},
            {"exclusive": False, "units": 7, "walltime_s": 3600},
        ],
    }
