"""The jobs and nodes that a reader sees, and their order."""

import pytest

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.web.page import page_selection
from cpsched_bridge.web.page.node_list import list_nodes
from cpsched_bridge.web.page.page_selection import StatusPageQuery
from tests.unit.bridge.web.page.views import a_running, a_view, a_waiting, an_outage, an_unscheduled, other, some_jobs

JOBS = some_jobs(
    waiting=[
        a_waiting(1, user="ada", account="bio", partition="main", qos="high", position=1, submit_s=50, planned_s=3000),
        a_waiting(2, user="ben", account="bio", partition="gpu", qos="", position=2, submit_s=10, units=8,
                 reason=PendingReason(PendingCode.NEVER, ("too large",))),
        a_waiting(3, user="ada", account="chem", partition="gpu", qos="low", position=3, submit_s=90, walltime_s=9000,
                 planned_s=2000),
    ],
    running=[a_running(50, label="8_1", user="eve", nodes=(("n0", 1), ("n1", 1))),
             a_running(51, user="ada", start_s=900)],
    unscheduled=[
        an_unscheduled(90, user="ada", units=2),
        an_unscheduled(91, user="ben", kind="unmanaged", reason=other("licenses")),
    ],
)  # fmt: skip


def found(**query):
    return [
        job.id
        for job in page_selection.filter_jobs(
            JOBS, StatusPageQuery.from_query({name: str(value) for name, value in query.items()})
        )
    ]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({}, [1, 2, 3]),
        ({"state": "waiting"}, [1, 2, 3]),
        ({"state": "nonsense"}, [1, 2, 3]),
        ({"state": "running"}, [50, 51]),
        ({"state": "unscheduled"}, [90, 91]),
        ({"state": "all"}, [1, 2, 3, 50, 51, 90, 91]),
        ({"user": "ada"}, [1, 3]),
        ({"user": "ad"}, []),
        ({"user": "ada", "state": "all"}, [1, 3, 51, 90]),
        ({"account": "bio"}, [1, 2]),
        ({"partition": "gpu", "user": "ada"}, [3]),
        ({"qos": "low"}, [3]),
        ({"kind": "never"}, [2]),
        ({"kind": "unmanaged", "state": "all"}, [91]),
        ({"node": "n1", "state": "all"}, [50]),
        ({"q": "LICENSES", "state": "all"}, [91]),
        ({"q": "never run here"}, [2]),
        ({"q": "51", "state": "all"}, [51]),
        ({"q": "50", "state": "all"}, [50]),
        ({"q": "5", "state": "all"}, [51]),
        ({"q": "8_", "state": "all"}, [50]),
        ({"q": "chem"}, [3]),
    ],
)
def test_filters_jobs_by_state_field_reason_node_and_text(query, ids):
    assert found(**query) == ids


@pytest.mark.parametrize(
    ("sort", "ids"),
    [
        ("queue", [1, 2, 3]),
        ("-queue", [3, 2, 1]),
        ("waited", [2, 1, 3]),
        ("start", [3, 1, 2]),
        ("size", [2, 1, 3]),
        ("walltime", [3, 1, 2]),
        ("user", [1, 3, 2]),
        ("partition", [2, 3, 1]),
        ("job", [1, 2, 3]),
        ("-job", [3, 2, 1]),
        ("nonsense", [1, 2, 3]),
    ],
)
def test_sorts_jobs(sort, ids):
    assert found(sort=sort) == ids


@pytest.mark.parametrize("sort", [sign + name for name in page_selection.JOB_ORDERS for sign in ("", "-")])
def test_sorts_jobs_of_all_states_in_each_order(sort):
    assert sorted(found(state="all", sort=sort)) == [1, 2, 3, 50, 51, 90, 91]


def test_offers_most_frequent_filter_values_up_to_limit():
    offered = {each.name: each for each in page_selection.list_filter_fields(JOBS, StatusPageQuery(user="ben"), False)}
    assert (offered["user"].values, offered["user"].value) == (["ada", "ben"], "ben")
    assert offered["partition"].values == ["gpu", "main"]
    many = some_jobs(waiting=[a_waiting(n, user=f"u{n}") for n in range(1000)])
    users = page_selection.list_filter_fields(many, StatusPageQuery(), False)[0]
    assert (len(users.values), users.complete) == (50, False)


def test_drops_unprintable_filter_values():
    offered = page_selection.list_filter_fields(
        some_jobs(waiting=[a_waiting(1, user="\x1b[31m"), a_waiting(2)]), StatusPageQuery(), False
    )
    assert offered[0].values == ["ada"]
    assert StatusPageQuery.from_query({"user": "\x1b[31ma", "q": "a\nb"}) == StatusPageQuery(user="[31ma", q="ab")


def test_offers_no_user_or_account_filter_if_hidden():
    fields = page_selection.list_filter_fields(some_jobs(), StatusPageQuery(), users_hidden=True)
    assert [field.name for field in fields] == ["partition", "qos"]


NODES = list_nodes(
    a_view(
        some_jobs(running=[
            a_running(1, amounts={"cores": 3}), a_running(2, nodes=(("n2", 1),), amounts={"cores": 4}),
        ]),
        outages=[an_outage("drained", 1, name="DRAIN disk")], capacity=((4,),) * 4, free=((1,), (0,), (0,), (4,)),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["n0", "n1", "n2", "n3"]),
        ({"state": "idle"}, ["n3"]),
        ({"state": "drained"}, ["n1"]),
        ({"q": "N2"}, ["n2"]),
        ({"q": "disk"}, ["n1"]),
        ({"sort": "state"}, ["n1", "n2", "n0", "n3"]),
        ({"sort": "use"}, ["n2", "n0", "n1", "n3"]),
        ({"sort": "-node"}, ["n3", "n2", "n1", "n0"]),
    ],
)
def test_filters_and_sorts_nodes(query, names):
    assert [node.name for node in page_selection.filter_nodes(NODES, StatusPageQuery.from_query(query))] == names


def test_query_address_keeps_choices_and_resets_page():
    asked = StatusPageQuery.from_query({"user": "a&b", "page": "3", "sort": "-start"})
    assert asked.make_address(page=4) == "?page=4&user=a%26b&sort=-start"
    assert asked.make_address(sort="") == "?user=a%26b"
    assert asked.make_other_page_query(state="all") == "?state=all"
