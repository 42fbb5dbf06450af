"""What a job's owner reads: plain sentences, with links to what they name."""

import pytest

from cpsched_bridge.watch.page.answers import Link, answer, because, told
from tests.unit.bridge.watch.page.views import a_queued, a_running, a_view, an_aside


def sentences(view, job="1"):
    return answer(view, job).sentences


def links(view, job="1"):
    return [(each.to, each.key) for said in told(view, job).sentences for each in said if isinstance(each, Link)]


def test_a_waiting_job_says_its_place_the_reason_and_whom_it_waits_for():
    reason = "not enough free resources: 3 of 4 units would fit"
    job = a_queued(1, units=4, distinct=True, kind="resources", reason=reason, behind=[50, 51], expected_s=4600)
    view = a_view(queue=[job, a_queued(2, position=2)], running=[a_running(50), a_running(51, expected_end_s=4600)])
    assert sentences(view) == [
        "It is first in the queue of 2 waiting jobs, and has waited for 16 min 40 s.",
        "Why it waits: 3 of its 4 nodes have room now.",
        "It can start when these jobs end, expected in 1 h 00 min: 50, 51.",
        "It is expected to start in 1 h 00 min.",
        "It may run for 1 h 00 min, and is expected to need all of it.",
    ]
    assert links(view) == [("job", "50"), ("job", "51")]


def test_jobs_that_wait_go_before_it_and_jobs_that_are_gone_are_not_named():
    view = a_view(queue=[a_queued(2), a_queued(1, position=2, behind=[2, 777])])
    assert "This job goes before it: 2." in sentences(view)
    assert links(view) == [("job", "2")]
    assert not any("777" in each for each in sentences(view))


def test_a_job_is_called_by_its_label_and_led_to_by_its_id():
    view = a_view(queue=[a_queued(1, behind=[50])], running=[a_running(50, label="9_4")])
    (link,) = [each for said in told(view, "1").sentences for each in said if isinstance(each, Link)]
    assert (link.words, link.key) == ("9_4", "50")
    assert answer(view, "9_4").id == 50


def test_a_running_job_leads_to_its_nodes():
    view = a_view(running=[a_running(1, nodes=[(f"n{n}", 1 + n) for n in range(20)])])
    assert sentences(view)[0].startswith("It runs on n0, n1 (2 parts), n2")
    assert sentences(view)[0].endswith("and 4 more nodes.")
    assert links(view)[:2] == [("node", "n0"), ("node", "n1")]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("ineligible", "It may not start yet: Dependency."),
        ("left_to_slurm", "It is left to the cluster's own scheduler, since the bridge does not model what it asks"),
        ("held_by_owner", "It does not start before its owner or the cluster lets go of it: "),
    ],
)
def test_a_job_that_is_not_decided_on_says_why(kind, words):
    assert sentences(a_view(aside=[an_aside(1, kind=kind)]))[0].startswith(words)


@pytest.mark.parametrize(
    ("reason", "kind", "facts", "words"),
    [
        ("", "", {}, "starts now"),
        ("not enough free resources: 0 of 1 units would fit", "resources", {}, "no node has enough free for it"),
        ("not planned yet: not enough free resources: 0 of 8 units would fit", "resources", {"units": 8},
         "none of its 8 parts have room now"),
        ("not enough whole free nodes: 1 of 2 units would fit; planned in 9 s", "resources",
         {"units": 2, "distinct": True}, "1 of its 2 nodes is wholly free"),
        ("not enough free resources: 1 of 2 units would fit", "resources", {"units": 2},
         "1 of its 2 parts has room now"),
        ("not enough whole free nodes: 0 of 1 units would fit", "resources", {}, "no node is wholly free for it"),
        ("can never run: 5 of 4 nodes", "never", {}, "can never run here: 5 of 4 nodes"),
        ("the nodes that are free are reserved", "reserved", {}, "would fit, but delay a job that goes first"),
        ("others are first", "priority", {}, "others go first"),
        ("mercury is in retrograde", "other", {}, "mercury is in retrograde"),
        ("not enough luck", "resources", {}, "not enough luck"),
    ],
)  # fmt: skip
def test_reasons_are_plain_and_those_of_plugins_stay(reason, kind, facts, words):
    assert because(a_queued(1, reason=reason, kind=kind, **facts)) == words
