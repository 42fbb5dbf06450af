from __future__ import annotations

import pytest

from cpsched_bridge.adapters.pbs.pbs_objects import parse_job
from cpsched_bridge.adapters.pbs.translation.pbs_limits import PbsRunLimitTable


def job(user: str, queue: str = "work", **wanted: str) -> dict[str, object]:
    return {"euser": user, "egroup": "staff", "project": "p1", "queue": queue, "Resource_List": {"ncpus": "4"} | wanted}


def told(server: dict[str, object], queues: dict[str, dict[str, object]], running, waiting):
    """By job and limit in words: (used by what runs, what the job takes, limit)."""
    now = PbsRunLimitTable.from_attributes(server, queues).compute_limits_of_waiting_jobs(
        map(parse_job, running), dict(enumerate(map(parse_job, waiting)))
    )
    assert now is not None
    found = [
        ((number, f"{check.reason} {check.whose}"), (now.used[check.counter], check.amount, check.limit))
        for number, standing in now.standings.items()
        for check in standing.checks
    ]
    assert len(dict(found)) == len(found), "no limit is reported twice"
    return dict(found)


def test_no_limits_without_settings():
    table = PbsRunLimitTable.from_attributes({}, {"work": {}})
    assert table.compute_limits_of_waiting_jobs([parse_job(job("ada"))], {1: parse_job(job("bob"))}) is None


@pytest.mark.parametrize(
    ("server", "whose", "used"),
    [
        ({"max_run": "[o:PBS_ALL=3]"}, "max_run all jobs", 2),
        ({"max_run": "[u:PBS_GENERIC=3]"}, "max_run user ada", 1),
        ({"max_run": "[g:staff=3]"}, "max_run group staff", 2),
        ({"max_run": "[p:p1=3]"}, "max_run project p1", 2),
        ({"max_running": "3"}, "max_run all jobs", 2),
        ({"max_user_run": "3"}, "max_run user ada", 1),
        ({"max_group_run": "3"}, "max_run group staff", 2),
    ],
)
def test_job_limits_count_jobs_of_their_subject(server, whose, used):
    found = told(server, {}, [job("ada"), job("bob", "other")], [job("ada")])
    assert found == {(0, whose): (used, 1, 3)}


def test_resource_limits_sum_requests():
    server = {"max_run_res": {"ncpus": "[u:PBS_GENERIC=16]", "mem": "[o:PBS_ALL=4gb]"}}
    found = told(server, {}, [job("ada", mem="1gb"), job("bob")], [job("ada", mem="512mb")])
    assert found == {
        (0, "max_run_res.ncpus user ada"): (4, 4, 16),
        (0, "max_run_res.mem all jobs"): (1 << 30, 512 << 20, 4 << 30),
    }


@pytest.mark.parametrize(
    ("name", "whose", "used"), [("max_user_res", "user ada", 4), ("max_group_res", "group staff", 8)]
)
def test_older_resource_limits_are_kept(name, whose, used):
    found = told({}, {"work": {name: {"ncpus": "4"}}}, [job("ada"), job("bob")], [job("ada")])
    assert found == {(0, f"max_run_res.ncpus {whose} in queue work"): (used, 4, 4)}


def test_resource_limit_counts_chunks():
    wide = job("ada") | {"schedselect": "2:ncpus=8+1:ncpus=1"}
    assert told({"max_user_res": {"ncpus": "20"}}, {}, [wide], [wide]) == {
        (0, "max_run_res.ncpus user ada"): (17, 17, 20)
    }


def test_names_limits_without_rule():
    """`qrun` ignores all limits, so the bridge must keep or name each of them."""
    known = {"max_queued": "[o:PBS_ALL=9]", "max_run_soft": "[o:PBS_ALL=1]", "max_array_size": "10000"}
    found = PbsRunLimitTable.from_attributes(known | {"max_moons": "1"}, {"work": {**known, "max_suns": "1"}})
    assert found.notes == [
        "max_moons on the server is not kept: this version has no rule for it",
        "max_suns on work is not kept: this version has no rule for it",
    ]


def test_own_entry_replaces_generic_limit():
    found = told({"max_run": "[u:PBS_GENERIC=1], [u:ada=5]"}, {}, [], [job("ada"), job("bob")])
    assert {key: limit for key, (_, _, limit) in found.items()} == {
        (0, "max_run user ada"): 5,
        (1, "max_run user bob"): 1,
    }


def test_queue_limit_counts_own_jobs_besides_server_limit():
    queues = {"work": {"max_run": "[o:PBS_ALL=2]", "resources_available": {"ncpus": "8", "arch": "linux"}}, "other": {}}
    found = told(
        {"max_run": "[o:PBS_ALL=9]"}, queues, [job("ada"), job("bob", "other")], [job("cyd"), job("dan", "other")]
    )
    assert found == {
        (0, "max_run all jobs"): (2, 1, 9),
        (0, "max_run all jobs in queue work"): (1, 1, 2),
        (0, "max_run_res.ncpus all jobs in queue work"): (4, 4, 8),
        (1, "max_run all jobs"): (2, 1, 9),
    }


@pytest.mark.parametrize("value", ["[x:ada=1]", "u:ada=1", "[u:ada=many]", "[u:ada=1] and more"])
def test_reports_unreadable_limit_entry(value):
    found = PbsRunLimitTable.from_attributes({"max_run": value}, {})
    assert found.limits == ()
    assert len(found.notes) == 1
    assert found.notes[0].startswith("max_run on the server cannot be read")


def test_job_owner_is_user_without_host():
    waiting = {key: value for key, value in job("").items() if key != "euser"} | {"Job_Owner": "ada@login1"}
    assert told({"max_run": "[u:ada=5]"}, {}, [job("ada")], [waiting]) == {(0, "max_run user ada"): (1, 1, 5)}
