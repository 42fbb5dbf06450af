"""The status page as served to a browser without scripts."""

import platform
import re
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from importlib.metadata import version
from threading import Lock

import pytest

from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.model import Cluster, NodeSetCondition, PendingCode, PendingReason
from cpsched_bridge.errors import BackendTimeout
from cpsched_bridge.ports import Hold, Outage, UnmanagedJob
from cpsched_bridge.settings import Settings
from cpsched_bridge.telemetry.start_forecasts import list_requestable_partitions
from cpsched_bridge.views.job_explanation import explain_job
from cpsched_bridge.views.job_view import JobState
from cpsched_bridge.web.access_control import redact_for_user
from cpsched_bridge.web.http_server import HttpServer
from cpsched_bridge.web.page import page_selection
from cpsched_bridge.web.status_application import StatusApplication
from tests.builders import a_job
from tests.fakes import FakeCluster

HOSTILE = '<script>alert("x")</script>&\x1b[31m\ud800"\'{{7*7}}'


def crowd(site):
    """One job runs on every node, one waits for all of them, one behind it, and one that its owner holds."""
    site.cluster.submit(a_job(1, units=3, per_unit=4, walltime_s=600, user="ada", queue="main"))
    site.cycle()
    site.cluster.submit(a_job(2, units=3, per_unit=4, walltime_s=300, user="ben", name="wide", submit_s=1000))
    site.cluster.submit(a_job(3, per_unit=1, walltime_s=9000, user="eve", submit_s=1001))
    site.cluster.submit(a_job(4), hold=Hold.USER)
    return site.cycle(1060)


def listed(text):
    """Ids of the jobs in the table, from above."""
    return [int(id) for id in re.findall(r'<td class="job"><a href="jobs/(\d+)"', text)]


def test_shows_pending_running_and_planned_jobs(site):
    crowd(site)
    status, headers, text = site.get()
    assert status == 200
    assert headers["content-security-policy"].startswith("default-src 'none'")
    row = re.search(r'<tr><td class="job"><a href="jobs/2">.*?</tr>', text, re.DOTALL)[0]
    assert "ben" in row
    assert '<td class="when">not known yet <span class="soft">in 9 min at the latest, if every job runs' in row
    assert "too few resources are free: enough for 0 of 3 tasks" in row
    assert re.search(r'class="g-bar g-1 g-running".*?job 1 of ada runs on 3 nodes', text)
    assert re.search(r'class="g-bar g-2 g-planned".*?job 2 of ben is planned on 3 nodes: begin in 9 min', text)


def test_overview_counts_jobs_that_start_now(site):
    """Of the waiting jobs, those that start now have no reason."""
    crowd(site)
    assert "start now" not in site.get()[2]
    site.cluster.end(1)
    site.cycle(1100)
    assert "<strong>1</strong> start now" in site.get()[2]


def test_shows_ended_jobs_for_one_hour(site):
    crowd(site)
    site.cluster.end(1)
    view = site.cycle(1100)
    (past,) = [bar for bar in view.chart.bars if bar.kind == "past"]
    assert (past.id, past.begin_s, past.end_s, past.nodes) == (1, 1000, 1060, [(0, 4), (1, 4), (2, 4)])
    assert not [bar for bar in site.cycle(1060 + 3601).chart.bars if bar.kind == "past"]


def test_hatches_and_lists_drained_nodes(site):
    site.cluster.drained = {2}
    site.cycle()
    text = site.get()[2]
    assert 'class="g-out"' in text
    assert "not known" in re.search(r'id="outages-table".*?</table>', text, re.S)[0]


def test_shows_maintenance_in_chart_and_table(site):
    """Before it begins its nodes are available; while it lasts they are listed once, with its end."""
    site.cluster.outages = (Outage("reserved", "new kernel", (1, 2), 1600, 5200),)
    assert site.cycle(1000).chart.unavailable == []
    table = re.search(r'id="outages-table".*?</table>', site.get()[2], re.S)[0]
    for words in ("reserved", "new kernel", "n1, n2", "in 10 min", "in 1 h 10 min"):
        assert words in table
    site.cluster.drained = {1, 2}
    assert site.cycle(1700).chart.unavailable == [1, 2]
    (outage,) = site.view.chart.outages
    assert asdict(outage) == {
        "kind": "reserved",
        "name": "new kernel",
        "nodes": [1, 2],
        "from_s": 1600,
        "to_s": 5200,
    }
    site.cluster.outages, site.cluster.drained = (), set()
    site.cycle(5300)
    assert "outages-table" not in site.get()[2]


def test_plans_no_job_into_maintenance(site):
    """The job would begin on the first node when all are free again, and run for longer than that one is open."""
    site.cluster.submit(a_job(1, units=3, per_unit=4, walltime_s=600))
    site.cycle()
    site.cluster.submit(a_job(2, per_unit=4, walltime_s=300, submit_s=1000))
    before = next(bar for bar in site.cycle(1060).chart.bars if bar.id == 2)
    assert [node for node, _ in before.nodes] == [0]
    site.cluster.outages = (Outage("reserved", "update", (0,), before.begin_s + 60, 90_000),)
    after = next(bar for bar in site.cycle(1070).chart.bars if bar.id == 2)
    assert [node for node, _ in after.nodes] == [1]


def test_shows_comparison_with_easy_if_objective_is_adjusted(site_with):
    line = "Recent jobs compared with EASY: too few have ended; weight of large jobs 0.3"
    for objective in ("balance", "large-jobs"):
        site = site_with(LookaheadDispatcher(objective))
        crowd(site)
        assert (line in site.get()[2]) == (objective == "balance")


def test_hides_limit_details_of_users_with_their_names(site_with):
    site = site_with(users="hide")
    limit = PendingReason(PendingCode.CLUSTER, ("AssocMaxJobsLimit", "2 of 2 jobs of user ada are taken"))
    site.cluster.submit(
        a_job(1, user="ada", ineligible=limit),
        a_job(2, user="ada", ineligible="QOSGrpCpuLimit (user ada), in a plug-in's words"),
    )
    site.cluster.unmanaged = [UnmanagedJob(3, "cannot be read: user ada", user="ada")]
    site.cycle()
    assert "ada" not in repr(site.view)
    for path in ("", "jobs/1", "jobs/2", "jobs/3", "api/v1/jobs/1", "api/v1/jobs/3"):
        assert "ada" not in site.get(path)[2], path
    assert [job.reason_text for job in site.view.jobs.unscheduled] == [
        "cannot be read",
        "AssocMaxJobsLimit",
        "QOSGrpCpuLimit",
    ]


def test_hides_reservation_name_with_user_names(site_with):
    """Slurm names a reservation after its user by default."""
    site = site_with(users="hide")
    site.cluster.outages = (Outage("reserved", "ada_12", (0,), 900, 2000), Outage("down", "DOWN", (1,), 900, None))
    site.cycle()
    assert "ada_12" not in site.get()[2]
    assert "DOWN" in site.get()[2]


@pytest.mark.parametrize(("users", "named"), [("show", "main, a &amp; b, not ada_12"), ("hide", "main, a &amp; b")])
def test_hides_reservations_among_allowed_nodes(site_with, users, named):
    parts = (
        NodeSetCondition("partition", "main"),
        NodeSetCondition("feature", "a & b"),
        NodeSetCondition("reservation", "ada_12"),
    )
    site = site_with(users=users)
    cluster = Cluster.of([[4]] * 3, ["cores"], node_sets={"some": [0, 1]})
    site.cluster.cluster = replace(cluster, node_set_parts=((NodeSetCondition("all", "all"),), parts))
    site.cluster.submit(a_job(1, units=9, node_set=1, user="ada"))
    site.cycle()
    assert f"<dd>{named}</dd>" in site.get("jobs/1")[2]
    assert redact_for_user(site.view, "" if users == "hide" else "ada").jobs.waiting[0].request.nodes_from == parts[:2]
    assert list_requestable_partitions(site.cluster.cluster) == ["all"]


@pytest.mark.parametrize(
    ("job", "status", "words"),
    [
        ("1", 200, 'It runs on <a href="../nodes?q=n0">n0</a>, <a href="../nodes?q=n1">n1</a>, '),
        ("2", 200, "It is first in the order of priority of 2 pending jobs, and has waited for 1 min."),
        ("2", 200, 'It can start when this job ends, expected in 9 min: <a href="../jobs/1">1</a>.'),
        ("4", 200, "held by its owner"),
        ("9", 200, "array job"),
        ("77", 404, "neither pending nor running"),
        ("%3Cb%3E", 404, "&lt;b&gt;"),
    ],
)
def test_each_job_page_gives_reason(site, job, status, words):
    site.cluster.unmanaged = [UnmanagedJob(9, "array job")]
    crowd(site)
    found, _, text = site.get(f"jobs/{job}")
    assert (found, words in text, "<b>" in text) == (status, True, False)


def test_hostile_user_text_is_escaped(site):
    job = a_job(1, per_unit=4, user=HOSTILE, name=HOSTILE, account=HOSTILE, queue=HOSTILE)
    site.cluster.submit(job, a_job(2, units=3, per_unit=4, user=HOSTILE, name=HOSTILE, queue=HOSTILE, submit_s=1))
    site.cluster.unmanaged = [UnmanagedJob(3, HOSTILE, label=HOSTILE, user=HOSTILE)]
    site.cycle()
    site.cycle()
    pages = ("", "jobs?state=all", "nodes", "wall")
    for path in (
        *pages,
        "jobs/1",
        "jobs/2",
        "jobs/3",
        "jobs?q=%3Cscript%3E&user=%3Cscript%3E&sort=%3Cb%3E&kind=%22%3E",
    ):
        status, _, text = site.get(path)
        assert (status, "<script>" in text, "\x1b" in text) == (200, False, False)
        assert "49" not in re.findall(r">(\d+)<", text), "a template in a template"
    assert site.json("jobs/3")["reason"].startswith('<script>alert("x")'), "JSON carries what the user wrote"
    assert (site.get("api/v1/jobs/3")[1]["content-type"], site.get("metrics")[0]) == ("application/json", 200)


def test_hides_names_on_all_pages_and_says_so(site_with):
    site = site_with(users="hide")
    secret = {"user": "ada", "name": "secret-name", "account": "phys-account"}
    site.cluster.submit(a_job(1, units=3, per_unit=4, **secret), a_job(2, units=3, per_unit=4, submit_s=1, **secret))
    site.cluster.unmanaged = [UnmanagedJob(3, "array", user="ada")]
    site.cycle()
    site.cycle()
    texts = [site.get(path)[2] for path in (*PAGES, "jobs/1", "jobs/2", "jobs/3")]
    for text in (*texts, repr(site.view)):
        assert not re.search("ada|secret-name|phys-account", text)
    assert "page.users: hide" in texts[0]


@pytest.mark.parametrize("mode", ["shadow", "advise", "control"])
def test_explains_mode_without_starts(bridge_at, mode):
    watch = StatusApplication(Settings.model_validate({"mode": mode}))
    bridge_at(FakeCluster(), mode=mode, listeners=(watch,)).cycle()
    with closing(HttpServer(watch.build_app(), "127.0.0.1", 0)) as endpoint:
        text = urllib.request.urlopen(endpoint.url).read().decode()
    assert ("writes nothing to the cluster" in text) is (mode == "shadow")
    assert ("Slurm starts the jobs" in text) is (mode == "advise")


def test_reports_failed_cycle_with_last_known_state(site):
    crowd(site)
    site.cluster.fail("observe", BackendTimeout("no <answer>"))
    site.cycle()
    _, _, text = site.get()
    assert "The last cycle failed: backend timeout." in text
    assert "no &lt;answer&gt;" in text
    assert "jobs/2" in text


def test_names_cluster_host_version_and_time(site):
    """Two clusters in two tabs look alike otherwise; a cluster's name is text from outside."""
    crowd(site)
    observe = site.cluster.observe
    site.cluster.observe = lambda pinned: replace(observe(pinned), cluster_name="al<b>pha")
    site.cycle()
    for path in ("", "jobs", "nodes", "when", "jobs/2", "wall"):
        _, _, text = site.get(path)
        assert "<title>al&lt;b&gt;pha: " in text
        if path != "jobs/2":
            assert '<strong id="cluster">al&lt;b&gt;pha</strong>' in text
            assert platform.node() in text.partition("<footer>")[0]
            assert re.search(r"as of (<span id=.clock.>)?(day \d+, )?[\d-]*\d\d:\d\d:\d\d", text)
        if path not in ("wall", "jobs/2"):
            assert f"cpsched {version('cpsched')} on {platform.node()}" in text


def test_wall_shows_median_wait(site):
    site.cluster.submit(*(a_job(id, units=3, per_unit=4, submit_s=400 + id) for id in range(1, 5)))
    site.cycle(1000)
    assert 'id="half-waited">9 min 57 s<' in site.get("wall")[2]


def test_does_not_send_unchanged_page_again(site):
    crowd(site)
    tag = site.get("?part=live")[1]["etag"]
    assert site.get("?part=live", **{"If-None-Match": tag})[0] == 304
    site.cycle()
    assert site.get("?part=live", **{"If-None-Match": tag})[0] == 200


def test_long_queue_is_paged_and_searchable(site):
    site.cluster.submit(*(a_job(n, units=3, per_unit=4, submit_s=n, user=f"u{n}") for n in range(1, 252)))
    site.cycle()
    site.cycle()
    assert len(listed(site.get("jobs?page=3")[2])) == 50
    assert "page 3 of 3" in site.get("jobs?page=99")[2]
    assert listed(site.get("jobs?q=u77")[2]) == [77]
    assert listed(site.get()[2]) == list(range(2, 12)), "the first ten on the first page"


PAGES = ("", "jobs", "jobs?state=all", "jobs?state=running", "jobs?state=unscheduled", "nodes", "wall")
NO_SENSE = (
    "sort=evil",
    "sort=-",
    "state=evil",
    "kind=%00",
    "user=" + "x" * 5000,
    "node=../..",
    "ahead=abc",
    "ahead=-5",
    "first=9&last=2",
    "first=-3",
    "page=0",
    "page=" + "9" * 400,
    "q=" + "x" * 5000,
)


@pytest.mark.parametrize("query", [*NO_SENSE, "first=99999999999999&last=1", "at=1", "ahead=%C2%B2"])
def test_invalid_query_gets_page(site, query):
    crowd(site)
    for page in ("", "jobs", "nodes", "wall"):
        assert site.get(f"{page}?{query}")[0] == 200


def test_links_are_relative_for_any_prefix(site):
    crowd(site)
    for path, back in (*((page, "") for page in PAGES), ("jobs/2", "../")):
        text = site.get(path)[2]
        found = re.findall(r'(?:href|src|action)="([^"]*)"', text)
        assert f"{back}static/page.css" in found
        assert not [address for address in found if address.startswith(("/", "http"))]


@pytest.mark.parametrize(
    ("settings", "served"),
    [
        ({}, True),
        ({"page": {"enabled": False}}, False),
        ({"metrics": {"host": "0.0.0.0"}}, False),
        ({"metrics": {"host": "0.0.0.0"}, "page": {"hosts": ["a"], "users": "hide"}}, False),
        ({"metrics": {"host": "0.0.0.0"}, "page": {"user_header": "X-User", "trusted_proxies": ["127.0.0.1"]}}, True),
        ({"metrics": {"enabled": False}}, True),
    ],
)
def test_serves_page_on_loopback_or_with_known_readers(settings, served):
    watch = StatusApplication(Settings.model_validate(settings))
    assert watch.settings.serves_page is served
    with closing(HttpServer(watch.build_app(), "127.0.0.1", 0)) as endpoint:
        asked = urllib.request.Request(endpoint.url, headers={"X-User": "ada"})
        assert not served or urllib.request.urlopen(asked).status == 200


def test_later_array_changes_do_not_change_view(site):
    free = site.cluster.free()
    site.cluster.free = lambda: free
    site.cycle()
    site.cycle()
    free[:] = 0
    assert site.watch.page_state._instant.free.any()  # noqa: SLF001


def test_renders_each_page_once_for_many_readers(site, monkeypatch):
    crowd(site)
    made, together, at_once = [], [], Lock()

    def slow(view, asked, real=page_selection.filter_jobs):
        together.append(at_once.acquire(blocking=False))
        time.sleep(0.01)
        made.append(asked.q)
        if together[-1]:
            at_once.release()
        return real(view, asked)

    monkeypatch.setattr(page_selection, "filter_jobs", slow)
    with ThreadPoolExecutor(12) as readers:
        answers = list(readers.map(lambda n: site.get(f"jobs?q=user{n % 4}"), range(24)))
    assert {status for status, _, _ in answers} == {200}
    assert all(together), "no two at the same time"
    assert sorted(made) == ["user0", "user1", "user2", "user3"]
    site.cycle(1061)
    site.get("jobs?q=user0")
    assert len(made) == 5, "another round is another page"


def test_array_task_never_seen_pending_has_its_name(site):
    site.cluster.labels = {8001: "7_1"}
    site.cluster.submit(a_job(8001))
    site.cluster.run_now(8001, ((0, 1),))
    view = site.cycle()
    assert [job.label for job in view.jobs.running] == [bar.label for bar in view.chart.bars] == ["7_1"]
    assert explain_job(view.jobs, "7_1").job.state is JobState.RUNNING
    site.cluster.end(8001)
    view = site.cycle(1010)
    assert [(bar.kind, bar.label) for bar in view.chart.bars] == [("past", "7_1")]
    assert explain_job(view.jobs, "7_1").job.state is JobState.ENDED
