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


WIDE = job("ada") | {"schedselect": "2:ncpus=8+1:ncpus=1"}
OWNER = {key: value for key, value in job("").items() if key != "euser"} | {"Job_Owner": "ada@login1"}
SIZED = {"max_run": "[o:PBS_ALL=2]", "resources_available": {"ncpus": "8", "arch": "linux"}}


@pytest.mark.parametrize(
    ("server", "queues", "running", "waiting", "expected"),
    [
        # Resource limits sum requests, or the chunks of a request. Older forms of them are kept.
        ({"max_run_res": {"ncpus": "[u:PBS_GENERIC=16]", "mem": "[o:PBS_ALL=4gb]"}}, {},
         [job("ada", mem="1gb"), job("bob")], [job("ada", mem="512mb")],
         {(0, "max_run_res.ncpus user ada"): (4, 4, 16),
          (0, "max_run_res.mem all jobs"): (1 << 30, 512 << 20, 4 << 30)}),
        ({}, {"work": {"max_user_res": {"ncpus": "4"}}}, [job("ada"), job("bob")], [job("ada")],
         {(0, "max_run_res.ncpus user ada in queue work"): (4, 4, 4)}),
        ({}, {"work": {"max_group_res": {"ncpus": "4"}}}, [job("ada"), job("bob")], [job("ada")],
         {(0, "max_run_res.ncpus group staff in queue work"): (8, 4, 4)}),
        ({"max_user_res": {"ncpus": "20"}}, {}, [WIDE], [WIDE], {(0, "max_run_res.ncpus user ada"): (17, 17, 20)}),
        # A user's own entry replaces the generic limit.
        ({"max_run": "[u:PBS_GENERIC=1], [u:ada=5]"}, {}, [], [job("ada"), job("bob")],
         {(0, "max_run user ada"): (0, 1, 5), (1, "max_run user bob"): (0, 1, 1)}),
        # A queue's limit counts its own jobs, beside the server's limit.
        ({"max_run": "[o:PBS_ALL=9]"}, {"work": SIZED, "other": {}},
         [job("ada"), job("bob", "other")], [job("cyd"), job("dan", "other")],
         {(0, "max_run all jobs"): (2, 1, 9), (0, "max_run all jobs in queue work"): (1, 1, 2),
          (0, "max_run_res.ncpus all jobs in queue work"): (4, 4, 8), (1, "max_run all jobs"): (2, 1, 9)}),
        # The owner without the host is the user.
        ({"max_run": "[u:ada=5]"}, {}, [job("ada")], [OWNER], {(0, "max_run user ada"): (1, 1, 5)}),
    ],
)  # fmt: skip
def test_limits_count_what_runs_and_what_is_requested(server, queues, running, waiting, expected):
    assert told(server, queues, running, waiting) == expected


def test_names_limits_without_rule():
    """`qrun` ignores all limits, so the bridge must keep or name each of them."""
    known = {"max_queued": "[o:PBS_ALL=9]", "max_run_soft": "[o:PBS_ALL=1]", "max_array_size": "10000"}
    found = PbsRunLimitTable.from_attributes(known | {"max_moons": "1"}, {"work": {**known, "max_suns": "1"}})
    assert found.notes == [
        "max_moons on the server is not kept: this version has no rule for it",
        "max_suns on work is not kept: this version has no rule for it",
    ]


@pytest.mark.parametrize("value", ["[x:ada=1]", "u:ada=1", "[u:ada=many]", "[u:ada=1] and more"])
def test_reports_unreadable_limit_entry(value):
    found = PbsRunLimitTable.from_attributes({"max_run": value}, {})
    assert (found.limits, [note[:37] for note in found.notes]) == ((), ["max_run on the server cannot be read:"])
