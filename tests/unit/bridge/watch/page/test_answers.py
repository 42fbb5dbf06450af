"""What a job's owner reads: plain sentences, with links to what they name."""

import pytest

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.watch.page.answers import Link, told
from cpsched_bridge.watch.page.words import behind_its_array
from tests.unit.bridge.watch.page.views import a_plan, a_queued, a_running, a_view, an_aside


def sentences(view, job="1"):
    return told(view, job).answer.sentences


def links(view, job="1"):
    return [(each.to, each.key) for said in told(view, job).sentences for each in said if isinstance(each, Link)]


def test_a_waiting_job_says_its_place_the_reason_and_whom_it_waits_for():
    reason = PendingReason(PendingCode.RESOURCES, (3, 4))
    job = a_queued(1, units=4, distinct=True, reason=reason, behind=[50, 51], expected_s=4600)
    view = a_view(queue=[job, a_queued(2, position=2)], running=[a_running(50), a_running(51, expected_end_s=4600)])
    assert sentences(view) == [
        "It is first in the queue of 2 waiting jobs, and has waited for 16 min 40 s.",
        "Why it waits: 3 of its 4 nodes have room now.",
        "It can start when these jobs end, expected in 1 h 00 min: 50, 51.",
        "It is expected to start in 1 h 00 min.",
        "It may run for 1 h 00 min, and is expected to need all of it.",
    ]
    assert links(view) == [("job", "50"), ("job", "51")]


def test_a_moved_start_and_an_interval_that_has_begun():
    """No sentence speaks of a time that is past; a reader sees the place among the own jobs."""
    facts = {"position": 2, "submit_s": 940, "estimate_s": 600, "expected_s": 1000, "first_expected_s": 1600}
    job = a_queued(1, **facts, likely_from_s=900, likely_to_s=1120)
    view = a_view(queue=[a_queued(2), job], predictor="last-two", now_s=1000)
    expected = [
        "It is 2nd in the queue of 2 waiting jobs, and has waited for 1 min.",
        "Why it waits: others go first.",
        "It is expected to start now, which is 10 min earlier than first expected.",
        "Of ten such jobs eight start between now and in 2 min.",
        "It may run for 1 h 00 min; last-two expects it to run for 10 min.",
    ]
    assert sentences(view) == expected
    own = view.model_copy(update={"status": view.status.model_copy(update={"reader": "ada"})})
    assert sentences(own)[0] == "Of your jobs that wait it is 2nd of 2. It has waited for 1 min."
    alone = a_view(queue=[a_queued(1, submit_s=940)])
    assert sentences(alone) == [
        "It is the only job that waits, and has done so for 1 min.",
        "Why it waits: others go first.",
        "When it will start is not known: the dispatcher has no plan for it yet.",
        "It may run for 1 h 00 min, and is expected to need all of it.",
    ]


def test_a_job_that_has_ended_and_one_that_nobody_knows():
    bar = a_plan(1, 400, 0).model_copy(update={"kind": "past", "label": "9_4"})
    view = a_view(bars=[bar, a_plan(2, 2000, 0)])
    assert told(view, " 9_4 ").answer.model_dump(include={"id", "label", "state", "sentences"}) == {
        "id": 1, "label": "9_4", "state": "ended", "sentences": ["It ran for 1 min and ended 9 min ago."],
    }  # fmt: skip
    unknown = [told(view, job).answer for job in ("2", "x" * 200, "9" * 19)]
    assert [(each.id, each.label, each.state) for each in unknown] == [
        (2, "2", "unknown"), (-1, "x" * 100, "unknown"), (-1, "9" * 19, "unknown"),
    ]  # fmt: skip


def test_jobs_that_wait_go_before_it_and_jobs_that_are_gone_are_not_named():
    view = a_view(queue=[a_queued(2), a_queued(1, position=2, behind=[2, 777])])
    assert "This job goes before it: 2." in sentences(view)
    assert links(view) == [("job", "2")]
    assert not any("777" in each for each in sentences(view))


def test_a_job_is_called_by_its_label_and_led_to_by_its_id():
    view = a_view(queue=[a_queued(1, behind=[50])], running=[a_running(50, label="9_4")])
    (link,) = [each for said in told(view, "1").sentences for each in said if isinstance(each, Link)]
    assert (link.words, link.key) == ("9_4", "50")
    assert told(view, "9_4").answer.id == 50


def test_a_running_job_leads_to_its_nodes():
    view = a_view(running=[a_running(1, submit_s=440, nodes=[(f"n{n}", 1 + n) for n in range(17)])])
    assert sentences(view) == [
        "It runs on n0, " + ", ".join(f"n{n} ({n + 1} parts)" for n in range(1, 16)) + " and 1 more node.",
        "It started 8 min 20 s ago, after a wait of 1 min.",
        "It is expected to end in 51 min 40 s; it may run for 1 h 00 min.",
    ]
    assert links(view)[:2] == [("node", "n0"), ("node", "n1")]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("ineligible", "It may not start yet: Dependency."),
        ("held_by_owner", "It does not start before its owner or the cluster lets go of it: Dependency."),
    ],
)
def test_a_job_that_is_not_decided_on_says_why(kind, words):
    assert sentences(a_view(aside=[an_aside(1, kind=kind)])) == [words]


@pytest.mark.parametrize(
    ("asked", "shown", "known"),
    [("7_700", 500, True), ("7_499", 500, False), ("7_700", 499, False), ("8_700", 500, False), ("700", 500, False)],
)
def test_a_task_behind_the_first_ones_of_its_array_is_told_so(asked, shown, known):
    words = behind_its_array(asked, ["1", "x_y", *(f"7_{task}" for task in range(shown))])
    expected = "It may wait behind the first 500 waiting tasks of array 7: the others follow as these start."
    assert words == (expected if known else "")
