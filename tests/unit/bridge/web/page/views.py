"""Values of the page with defaults, so that a test shows only what matters."""

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.web.page_schema import (
    BridgeStatusView,
    GanttBar,
    GanttChartView,
    JobRequestView,
    NodeCapacitiesView,
    NodeOutageView,
    QueuedJobView,
    ResourceUsageView,
    RunningJobView,
    StatusPageView,
    UnscheduledJobView,
)

FACTS = {"user": "ada", "account": "", "name": "", "partition": "", "qos": ""}
ASKED = {
    "units": 1, "per_unit": [1], "distinct": False, "exclusive": False, "nodes_from": (), "submit_s": 0,
    "walltime_s": 3600,
}  # fmt: skip
WAITS = {
    "position": 1, "priority": 0, "estimate_s": 3600, "reason": PendingReason(PendingCode.PRIORITY), "behind": [],
    "expected_s": None, "first_expected_s": None,
}  # fmt: skip
STATUS = {
    "version": "0", "round": 1, "at_unix_s": 0.0, "now_s": 1000, "mode": "control",
    "dispatcher": "easy", "predictor": "walltime", "interval_s": 1.0, "users_hidden": False, "nodes": 2,
    "unavailable_nodes": 0, "queued": 0, "running": 0, "aside": 0, "held": 0, "causes": [], "alarms": [],
}  # fmt: skip


def an_asked(**given):
    return JobRequestView.model_validate(ASKED | given)


def other(text):
    return PendingReason(PendingCode.OTHER, (text,))


def a_queued(id=1, **given):
    return QueuedJobView.model_validate({"id": id, "label": str(id), **FACTS, **ASKED, **WAITS, **given})


def a_running(id=50, **given):
    runs = {"start_s": 500, "expected_end_s": 4100, "nodes": [("n0", 1)]}
    return RunningJobView.model_validate({"id": id, "label": str(id), **FACTS, **ASKED, **runs, **given})


def an_aside(id=90, asked=None, **given):
    aside = {"kind": "ineligible", "reason": PendingReason(PendingCode.DEPENDENCY), "asked": asked}
    return UnscheduledJobView.model_validate({"id": id, "label": str(id), **FACTS, **aside, **given})


def a_plan(id, begin_s, *nodes):
    on = [(node, 1) for node in nodes]
    return GanttBar(id=id, label=str(id), user="", kind="planned", begin_s=begin_s, end_s=begin_s + 60, nodes=on)


def an_outage(kind, *nodes, from_s=0, to_s=None, name=""):
    return NodeOutageView(kind=kind, name=name, nodes=list(nodes), from_s=from_s, to_s=to_s)


def a_view(queue=(), running=(), aside=(), bars=(), outages=(), capacity=((4,), (4,)), free=((4,), (4,)), **status):
    resources = [ResourceUsageView(name="cores", capacity=8, in_use=0, unavailable=0, free=8)]
    names = [f"n{i}" for i in range(len(capacity))]
    return StatusPageView(
        status=BridgeStatusView.model_validate(STATUS | {"resources": resources} | status), queue=list(queue),
        running=list(running), aside=list(aside), decisions=[], history=[],
        chart=GanttChartView(
            now_s=1000, node_names=names, processors=[each[0] for each in capacity], unavailable=[],
            outages=list(outages), bars=list(bars),
        ),
        machine=NodeCapacitiesView(capacity=[list(row) for row in capacity], free=[list(row) for row in free]),
    )  # fmt: skip
