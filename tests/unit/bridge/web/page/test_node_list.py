"""The description of each node's state."""

from dataclasses import replace

import pytest

from cpsched_bridge.views.status_view import NodeCapacitiesView
from cpsched_bridge.web.page.node_list import list_nodes
from tests.unit.bridge.web.page.views import a_plan, a_running, a_view, an_outage, some_jobs


def test_node_has_usage_running_and_planned_jobs():
    two = [
        a_running(1, amounts={"cores": 2}, nodes=(("n0", 1),)),
        a_running(2, amounts={"cores": 1}, nodes=(("n0", 2), ("n1", 1))),
    ]
    plans = [a_plan(7, 3000, 0), a_plan(8, 2000, 0, 1)]
    first, second = list_nodes(a_view(some_jobs(running=two), bars=plans, free=((0,), (3,))))
    assert (first.running, first.in_use, first.state) == ([1, 2], [4], "full")
    assert first.planned == [(8, 2000), (7, 3000)]
    assert (second.running, second.in_use, second.state, second.planned) == ([2], [1], "in use", [(8, 2000)])


def test_exclusive_job_uses_whole_node():
    first, _ = list_nodes(
        a_view(some_jobs(running=[a_running(1, amounts={"cores": 1}, exclusive=True)]), free=((0,), (4,)))
    )
    assert first.in_use == [4]


@pytest.mark.parametrize(
    ("outages", "state"),
    [
        ([], "idle"),
        ([an_outage("down", 0)], "down"),
        ([an_outage("reserved", 0), an_outage("down", 0)], "down"),
        ([an_outage("reserved", 0, from_s=1001)], "idle"),
        ([an_outage("reserved", 0, from_s=1000, to_s=2000)], "reserved"),
        ([an_outage("unknown", 0)], "unavailable"),
    ],
)
def test_state_is_most_severe_current_one(outages, state):
    assert list_nodes(a_view(outages=outages))[0].state == state


def test_node_without_free_resources_or_jobs_is_unavailable():
    assert list_nodes(a_view(free=((0,), (4,))))[0].state == "unavailable"


def test_reserved_node_shows_reason_and_end():
    node, _ = list_nodes(a_view(outages=[an_outage("reserved", 0, to_s=2000, name="new kernel")]))
    assert (node.because, node.until_s) == ("new kernel", 2000)


def test_lists_nodes_of_schedule_without_capacities():
    view = a_view(some_jobs(running=[a_running(1, amounts={})]))
    found = list_nodes(replace(view, capacities=NodeCapacitiesView(capacity=[], free=[])))
    assert [(node.state, node.running) for node in found] == [("in use", [1]), ("idle", [])]


def test_names_few_planned_jobs():
    assert len(list_nodes(a_view(bars=[a_plan(n, n, 0) for n in range(100)]))[0].planned) == 8
