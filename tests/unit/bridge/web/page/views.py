"""Values of the page with defaults, so that a test shows only what matters."""

from dataclasses import replace

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.views.job_view import JobRequestView, JobState, JobsView, JobView, make_reason_fields
from cpsched_bridge.views.status_view import (
    BridgeStatusView,
    GanttBar,
    GanttChartView,
    NodeCapacitiesView,
    NodeOutageView,
    ResourceUsageView,
    StatusPageView,
)

PRIORITY = PendingReason(PendingCode.PRIORITY)
DEPENDENCY = PendingReason(PendingCode.DEPENDENCY)
REQUEST_FIELDS = ("units", "amounts", "distinct", "exclusive", "nodes_from")
STATUS = {
    "version": "0", "round": 1, "at_unix_s": 0.0, "dispatcher": "easy", "interval_s": 1.0, "users_hidden": False,
    "held": 0, "pending_reasons": [], "alerts": [],
}  # fmt: skip


def a_request(units=1, amounts=None, **given):
    return JobRequestView(units=units, amounts={"cores": 1} if amounts is None else amounts, **given)


def other(text):
    return PendingReason(PendingCode.OTHER, (text,))


def _a_job_view(id, state, given):
    request = a_request(**{name: given.pop(name) for name in REQUEST_FIELDS if name in given})
    facts = {"label": str(id), "user": "ada", "request": request, "submit_s": 0, "walltime_s": 3600}
    return JobView(id=id, state=state, **facts | given)


def a_waiting(id=1, reason=PRIORITY, **given):
    """Pending, and scheduled by the bridge."""
    facts = {"position": 1, "estimate_s": 3600, **make_reason_fields(reason)}
    return _a_job_view(id, JobState.WAITING, facts | given)


def a_running(id=50, **given):
    facts = {"start_s": 500, "expected_end_s": 4100, "nodes": (("n0", 1),)}
    return _a_job_view(id, JobState.RUNNING, facts | given)


def an_ended(id=70, start_s=400, end_s=460, **given):
    return _a_job_view(id, JobState.ENDED, {"start_s": start_s, "end_s": end_s} | given)


def an_unscheduled(id=90, reason=DEPENDENCY, kind="ineligible", **given):
    """Pending, but not scheduled by the bridge, which does not model its request by default."""
    return _a_job_view(id, JobState.UNSCHEDULED, {"request": None, "kind": kind, "reason": reason} | given)


def a_plan(id, begin_s, *nodes, **given):
    bar = GanttBar(
        id=id, label=str(id), user="", kind="planned", begin_s=begin_s, end_s=begin_s + 60,
        nodes=[(node, 1) for node in nodes],
    )  # fmt: skip
    return replace(bar, **given)


def an_outage(kind, *nodes, from_s=0, to_s=None, name=""):
    return NodeOutageView(kind=kind, name=name, nodes=list(nodes), from_s=from_s, to_s=to_s)


def some_jobs(waiting=(), running=(), unscheduled=(), ended=(), mode="control", now_s=1000, **given):
    return JobsView(
        now_s=now_s, mode=mode, waiting=waiting, running=running, unscheduled=unscheduled, ended=ended,
        **{"predictor": "walltime"} | given,
    )  # fmt: skip


def a_view(jobs=None, bars=(), outages=(), capacity=((4,), (4,)), free=((4,), (4,)), **status):
    resources = [ResourceUsageView(name="cores", capacity=8, in_use=0, unavailable=0, free=8)]
    names = [f"n{i}" for i in range(len(capacity))]
    return StatusPageView(
        status=BridgeStatusView(**STATUS | {"resources": resources} | status), jobs=jobs or some_jobs(),
        decisions=[], history=[],
        chart=GanttChartView(
            now_s=1000, node_names=names, processors=[each[0] for each in capacity], unavailable=[],
            outages=list(outages), bars=list(bars),
        ),
        capacities=NodeCapacitiesView(capacity=[list(row) for row in capacity], free=[list(row) for row in free]),
    )  # fmt: skip
