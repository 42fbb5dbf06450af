"""The alerts for operators, on the page and on the wall display, and the pending jobs by reason."""

import re
from dataclasses import replace

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.errors import BackendTimeout
from cpsched_bridge.ports import Outage, ReadinessCheck, UnusableObject
from cpsched_bridge.web.page.page_summary import list_alerts, summarize_reasons
from tests.builders import a_cluster, a_cycle_report, an_observation
from tests.unit.bridge.web.page.views import a_waiting, an_unscheduled, other

CLUSTER = a_cluster(nodes=20)


def of(paused="", checks=(), outages=(), unusable=(), hidden=False, **facts):
    report = a_cycle_report(**facts)
    found = list_alerts(
        report,
        paused,
        checks,
        an_observation(cluster=CLUSTER, outages=tuple(outages), unusable=tuple(unusable)),
        hidden,
    )
    return [(each.urgent, each.text, each.details) for each in found]


def test_reports_no_alert_if_all_is_well():
    assert of(checks=[ReadinessCheck("clock", True, "fine")], outages=[Outage("drained", "", (1,), 0, None)]) == []


def test_sorts_urgent_alerts_first():
    events = [CycleEvent("backend_timeout", "no answer")]
    report = a_cycle_report(result="backend_timeout", bridge_events=events, overdue=1, fallback=True)
    found = list_alerts(
        report,
        "by an administrator",
        [ReadinessCheck("clock", False, "3 s late", "fix it")],
        an_observation(cluster=CLUSTER),
    )
    assert [(each.urgent, each.text) for each in found] == [
        (True, "The bridge starts no jobs."),
        (True, "The last cycle failed: backend timeout. This page shows an older state of the cluster."),
        (False, "The fallback decides instead of the dispatcher."),
        (False, "Repeated commands have no effect on 1 job."),
        (False, "Check clock fails: 3 s late"),
    ]
    assert [each.details for each in found] == [["by an administrator"], ["no answer"], [], [], ["fix it"]]


def test_names_down_nodes_but_not_drained_ones():
    down = Outage("down", "", tuple(range(7)), 0, None)
    assert of(outages=[down, Outage("reserved", "", (9,), 0, None)]) == [
        (False, "7 nodes are down.", ["n0, n1, n2, n3, n4 and 2 more"])
    ]


def test_names_unusable_objects_except_hidden_users():
    told = [
        UnusableObject("node", "n1", "configured_gres", "unreadable", "brackets"),
        UnusableObject("association", "user ada in account x", "GrpTRES", "unreadable"),
        UnusableObject("partition", "long", "LLN", "unknown", "YES"),
    ]
    words = "3 cluster objects ignored: a field is unusable."
    node, ada = "node n1: configured_gres cannot be read: brackets", "association user ada in account x: GrpTRES cannot"
    long = "partition long: LLN=YES: this version has no rule for it"
    assert of(unusable=told) == [(False, words, [f"{node}; {ada} be read; {long}"])]
    assert of(unusable=told, hidden=True) == [(False, words, [f"{node}; {long}"])]


def test_shows_alerts_on_every_page_and_clears_wall(site):
    site.cycle()
    assert "All is well" in site.get("wall")[2]
    site.cluster.fail("observe", BackendTimeout("no answer"))
    site.cycle()
    for path in ("", "jobs", "nodes", "wall", "jobs/1"):
        assert "The last cycle failed: backend timeout." in site.get(path)[2]
    assert re.search(r'class="wall-alert urgent"><p>The last cycle failed', site.get("wall")[2])
    assert "All is well" not in site.get("wall")[2]


def test_page_itself_reports_hung_bridge(site):
    site.cycle()
    tag = site.get("wall")[1]["etag"]
    late_s = site.watch.health.clock() + 10_000
    site.watch.health.clock = lambda: late_s
    status, _, text = site.get("wall", **{"If-None-Match": tag})
    assert status == 200
    assert "The bridge hangs" in text
    assert 'class="wall-alert urgent"' in text


def test_reports_failed_check_until_it_is_repeated(site):
    site.cycle()
    report = site.bridge.cycle()
    for checks, told in (
        ([ReadinessCheck("clock", False, "late")], 1),
        (None, 1),
        ([ReadinessCheck("clock", True, "")], 0),
    ):
        report = replace(report, checks=checks, number=report.number + 1)
        site.watch(report)
        assert len(site.view.status.alerts) == told


def test_lists_contents_of_each_kind_by_frequency():
    jobs = [a_waiting(n, reason=other(f"mercury is in retrograde for {n} days")) for n in range(5)]
    jobs += [
        a_waiting(10, reason=other("venus")),
        an_unscheduled(11, reason=PendingReason(PendingCode.CLUSTER, ("QOSMaxJobs", "8 of 8 taken"))),
    ]
    jobs += [an_unscheduled(12, reason=PendingReason(PendingCode.BACKED_OFF, ("QOSMaxJobs", "user ada")))]
    others, ineligible = summarize_reasons({"other": 6, "ineligible": 2, "never": 0}, jobs)
    assert (others.text, others.jobs) == ("other reasons", 6)
    assert others.common_reasons == [("mercury is in retrograde for days", 5), ("venus", 1)]
    assert (ineligible.text, ineligible.common_reasons) == ("may not start yet", [("QOSMaxJobs", 2)])


def test_names_at_most_3_reasons():
    (cause,) = summarize_reasons({"other": 9}, [a_waiting(n, reason=other(chr(97 + n) * 3)) for n in range(9)])
    assert len(cause.common_reasons) == 3
