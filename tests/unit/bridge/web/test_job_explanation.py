"""The explanation for a job's owner: plain sentences, with links to the objects that they mention."""

import dataclasses

import numpy as np
import pytest

from cpsched.model import Effort, NodeSetCondition, PendingCode, PendingReason, Wait
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S
from cpsched_bridge.store.round_records import RoundRecord
from cpsched_bridge.views.job_explanation import (
    NOT_CALIBRATED,
    PageLink,
    explain_job,
    explain_missing_array_task,
)
from cpsched_bridge.views.job_view import view_recorded_jobs
from cpsched_bridge.web.page.page_rendering import list_job_request_details, summarize_job_request
from tests.builders import a_cluster, a_job
from tests.builders import a_running as a_running_job
from tests.unit.bridge.web.page.views import a_running, a_waiting, an_ended, an_unscheduled, other, some_jobs


def sentences(view, job="1"):
    return explain_job(view, job).format_lines()


def links(view, job="1"):
    return [
        (each.to, each.key) for said in explain_job(view, job).sentences for each in said if isinstance(each, PageLink)
    ]


def test_pending_job_shows_position_reason_and_predecessors():
    reason = PendingReason(PendingCode.RESOURCES, (3, 4))
    job = a_waiting(1, units=4, distinct=True, reason=reason, waits_for=(50, 51), planned_s=4600)
    view = some_jobs(
        waiting=[job, a_waiting(2, position=2)], running=[a_running(50), a_running(51, expected_end_s=4600)]
    )
    assert sentences(view) == [
        "Start: not known yet.",
        "Planned start: in 1 h 00 min at the latest, if every job runs to its limit.",
        "It is first in the order of priority of 2 pending jobs, and has waited for 16 min 40 s.",
        "Why it waits: too few nodes have enough free resources: 3 of 4.",
        "It can start when these jobs end, expected in 1 h 00 min: 50, 51.",
        "Its time limit is 1 h 00 min, and it is expected to use all of it.",
    ]
    assert links(view) == [("job", "50"), ("job", "51")]


@pytest.mark.parametrize("calibrated", [False, True])
def test_explains_delayed_start_and_started_interval(calibrated):
    """No sentence speaks of a time that is past; a reader sees the place among the own jobs."""
    facts = {"position": 2, "submit_s": 940, "estimate_s": 600, "planned_s": 1000, "first_planned_s": 1600}
    job = a_waiting(1, **facts, likely_from_s=1000, likely_to_s=1120, calibrated=calibrated)
    view = some_jobs(waiting=[a_waiting(2), job], predictor="last-two", now_s=1000)
    expected = [
        "Start, with a probability of 80 %: within 2 min.",
        *([] if calibrated else [NOT_CALIBRATED]),
        "Planned start: now if every job runs as long as last-two predicts. This is 10 min earlier than first planned.",
        "It is 2nd in the order of priority of 2 pending jobs, and has waited for 1 min.",
        "Why it waits: other jobs go first.",
        "Its time limit is 1 h 00 min; last-two predicts a run time of 10 min.",
    ]
    assert sentences(view) == expected
    own = dataclasses.replace(view, reader="ada")
    assert sentences(own)[-3] == "It is the 2nd of your 2 pending jobs, and has waited for 1 min."
    alone = some_jobs(waiting=[a_waiting(1, submit_s=940)])
    assert sentences(alone) == [
        "Start: not known yet.",
        "It is the only pending job, and has waited for 1 min.",
        "Why it waits: other jobs go first.",
        "Its time limit is 1 h 00 min, and it is expected to use all of it.",
    ]


def test_job_without_time_limit_has_none():
    """Sentences, rows of the page and the API do not show the walltime that stands for no limit."""
    unlimited = {"walltime_s": None, "submit_s": None}
    job = a_waiting(1, **unlimited, estimate_s=None, waits_for=(50,))
    runs = a_running(50, **unlimited, start_s=1795879000, expected_end_s=None)
    view = some_jobs(waiting=[job], running=[runs], now_s=1795879600)
    assert sentences(view)[-2:] == [
        "It can start when this job ends, at an unknown time: 50.",
        "It has no time limit.",
    ]
    assert sentences(view, "50")[-1] == "It has no time limit, and its end is not known."
    assert summarize_job_request(job.request, None).endswith(" · no time limit")
    assert dict(list_job_request_details(job.request, None))["time limit"] == "no time limit"

    predicted = a_waiting(1, **unlimited, estimate_s=600)
    view = some_jobs(waiting=[predicted], running=[a_running(50, **unlimited)], predictor="last-two", now_s=500)
    assert sentences(view)[-1] == "It has no time limit; last-two predicts a run time of 10 min."
    assert sentences(view, "50")[-1] == "It is expected to end in 1 h 00 min; it has no time limit."


@pytest.mark.parametrize(
    ("submitted_s", "planned_s", "words"),
    [
        (5, 900, "Submitted later, but running or planned before it: 2."),
        (
            5,
            2100,
            "No job submitted later starts before it, so other jobs run longer than expected or nodes are missing.",
        ),
        (
            0,
            900,
            "No job submitted later starts before it, so other jobs run longer than expected or nodes are missing.",
        ),
    ],
)
def test_delayed_job_names_those_that_overtook_it(submitted_s, planned_s, words):
    slipped = a_waiting(1, planned_s=2000, first_planned_s=1800)
    view = some_jobs(waiting=[slipped, a_waiting(2, submit_s=submitted_s, planned_s=planned_s)])
    assert words in sentences(view)
    own = dataclasses.replace(view, reader="ada")
    assert words not in sentences(own), "jobs of others are not in the view"
    on_time = dataclasses.replace(slipped, first_planned_s=2000)
    assert words not in sentences(some_jobs(waiting=[on_time, *view.waiting[1:]]))


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("control", "It starts now on n1."),
        ("shadow", "It would start now on n1."),
        ("advise", "It is first in the plan and fits now on n1."),
    ],
)
def test_text_for_current_starts_depends_on_mode(mode, words):
    view = some_jobs(waiting=[a_waiting(1, reason=None, nodes=(("n1", 1),))], mode=mode)
    assert sentences(view)[1] == words
    assert any(each.startswith("The cluster's scheduler decides") for each in sentences(view)) == (mode == "advise")


def a_record(**given):
    running = (a_running_job(a_job(9, submit_s=10), ((0, 1),), start_s=50),)
    facts = {
        "number": 3, "now_s": 100, "policy": PolicySpec("easy", "walltime"), "cluster": a_cluster(nodes=2),
        "free": np.zeros((2, 1), np.int64), "queue": (a_job(1), a_job(2)), "running": running,
        "estimates": {1: 60, 2: 100, 9: 100}, "starts": {1: ((1, 1),)}, "effort": Effort("test"),
        "plan": {2: 150}, "waits": {2: Wait(PendingReason(PendingCode.RESOURCES, (0, 1)), (9,))},
        "memory": {"first_s": {"2": 120}}, "mode": "shadow", "labels": {9: "4_1"},
    }  # fmt: skip
    return RoundRecord(**facts | given)


def test_recorded_round_has_same_sentences():
    view = view_recorded_jobs(a_record())
    assert sentences(view, "1")[1] == "It would start now on n1."
    assert sentences(view, "2")[1] == (
        "Planned start: in 50 s at the latest, if every job runs to its limit. This is 30 s later than first planned."
    )
    assert sentences(view, "2")[3:6] == [
        "Why it waits: too few nodes have enough free resources: 0 of 1.",
        "It can start when this job ends, expected in 50 s: 4_1.",
        "Submitted later, but running or planned before it: 4_1.",
    ]
    assert sentences(view, "4_1")[0] == "It runs on n0."


def test_recorded_round_shows_no_start_behind_unknown_end():
    """The end of a job without a limit only stands for one that is unknown, and so does each later start."""
    endless = a_record(estimates={1: 60, 2: 100, 9: UNLIMITED_WALLTIME_S}, plan={2: 50 + UNLIMITED_WALLTIME_S})
    assert [job.planned_s for job in view_recorded_jobs(endless).waiting] == [100, None]
    assert sentences(view_recorded_jobs(endless), "2")[0] == "Start: not known yet."
    before = dataclasses.replace(endless, plan={2: 49 + UNLIMITED_WALLTIME_S})
    assert view_recorded_jobs(before).waiting[1].planned_s == 49 + UNLIMITED_WALLTIME_S


def test_reports_round_without_reasons():
    view = view_recorded_jobs(a_record(waits={}, starts={}))
    assert sentences(view, "1")[2] == "Why it waits: the dispatcher gives no reason."


def test_explains_ended_unscheduled_and_unknown_jobs():
    ended = an_ended(1, 400, 460, label="9_4")
    jobs = some_jobs(ended=[ended], unscheduled=[an_unscheduled(8, kind="unmanaged", reason=other("licenses"))])
    explanation = explain_job(jobs, " 9_4 ")
    assert (explanation.job, explanation.start) == (ended, "")
    assert explanation.format_lines() == ["It ran for 1 min and ended 9 min ago."]
    assert sentences(jobs, "8")[0].startswith("Only the cluster's own scheduler manages it")
    unknown = [explain_job(jobs, text).job for text in ("2", "x" * 200, "9" * 19)]
    assert [(job.id, job.label, job.state) for job in unknown] == [
        (2, "2", "unknown"), (-1, "x" * 100, "unknown"), (-1, "9" * 19, "unknown"),
    ]  # fmt: skip


def test_names_pending_predecessors_but_no_missing_jobs():
    view = some_jobs(waiting=[a_waiting(2), a_waiting(1, position=2, waits_for=(2, 777))])
    assert "The plan starts this job first: 2." in sentences(view)
    assert links(view) == [("job", "2")]
    assert not any("777" in each for each in sentences(view))


def test_link_has_label_as_text_and_job_id_as_key():
    view = some_jobs(waiting=[a_waiting(1, waits_for=(50,))], running=[a_running(50, label="9_4")])
    (link,) = [each for said in explain_job(view, "1").sentences for each in said if isinstance(each, PageLink)]
    assert (link.text, link.key) == ("9_4", "50")
    assert explain_job(view, "9_4").job.id == 50


def test_running_job_links_to_its_nodes():
    view = some_jobs(running=[a_running(1, submit_s=440, nodes=tuple((f"n{n}", 1 + n) for n in range(17)))])
    assert sentences(view) == [
        "It runs on n0, " + ", ".join(f"n{n} ({n + 1} tasks)" for n in range(1, 16)) + " and 1 more node.",
        "It started 8 min 20 s ago, after a wait of 1 min.",
        "It is expected to end in 51 min 40 s; its time limit is 1 h 00 min.",
    ]
    assert links(view)[:2] == [("node", "n0"), ("node", "n1")]


def test_preemption_is_named_on_both_sides():
    view = some_jobs(running=[a_running(1, preemptors="QOS high")])
    assert sentences(view)[-1] == "It may be preempted by jobs in QOS high."
    view = some_jobs(running=[a_running(1, preemptors="QOS high", checkpoint_s=view.now_s - 300)])
    assert sentences(view)[-1] == "Its last checkpoint was 5 min ago."
    reason = PendingReason(PendingCode.PREEMPTION, ("QOS low",))
    view = some_jobs(unscheduled=[an_unscheduled(1, kind="unmanaged", reason=reason)])
    expected = "Only the cluster's own scheduler manages it: it may start by preempting jobs in QOS low."
    assert sentences(view) == [expected]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("ineligible", "It may not start yet"),
        ("held_by_owner", "It does not start until its owner or the cluster releases it"),
        ("held", "It is currently not considered"),
        ("backoff", "It is in backoff after a failed start"),
    ],
)
def test_unscheduled_job_gives_reason(kind, words):
    jobs = some_jobs(unscheduled=[an_unscheduled(1, kind=kind)])
    assert sentences(jobs) == [f"{words}: its dependencies are not satisfied."]


@pytest.mark.parametrize(
    ("asked", "shown", "known"),
    [("7_700", 500, True), ("7_499", 500, False), ("7_700", 499, False), ("8_700", 500, False), ("700", 500, False)],
)
def test_explains_later_task_of_array(asked, shown, known):
    words = explain_missing_array_task(asked, ["1", "x_y", *(f"7_{task}" for task in range(shown))])
    expected = "It may come after the first 500 pending tasks of array 7: later tasks appear as these start."
    assert words == (expected if known else "")


def test_explains_task_beyond_limit_of_array():
    """Of `--array=1-2000%3`, three tasks are in the queue. The next 497 may not start yet."""
    view = some_jobs(
        waiting=[a_waiting(task, label=f"7_{task}") for task in range(1, 4)],
        unscheduled=[an_unscheduled(task, label=f"7_{task}") for task in range(4, 501)],
    )
    words = "It may come after the first 500 pending tasks of array 7: later tasks appear as these start."
    assert explain_job(view, "7_1700").format_lines() == [words]


def test_names_reservation_that_blocks_job():
    parts = (
        NodeSetCondition("partition", "main"),
        NodeSetCondition("reservation", "maint"),
        NodeSetCondition("reservation", "course"),
    )
    job = a_waiting(1, reason=PendingReason(PendingCode.RESOURCES, (0, 1)), nodes_from=parts)
    assert "It cannot use nodes that are reserved before its end: maint, course." in sentences(some_jobs(waiting=[job]))
    open_to_it = dataclasses.replace(job, request=dataclasses.replace(job.request, nodes_from=parts[:1]))
    assert not [each for each in sentences(some_jobs(waiting=[open_to_it])) if "reserved" in each]
