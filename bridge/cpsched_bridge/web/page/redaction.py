"""Reduce a view to what one user may see: the user's own jobs and the machine.

For other users, it keeps only what `sinfo` shows to everyone: the use of each node, the total use, and the nodes that
accept no jobs. It omits other users' names, jobs, job counts, accounts, reservations, and reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.telemetry.reason_kinds import KIND_TEXTS, OTHER, redact_reason
from cpsched_bridge.web.page.pending_reasons_summary import summarize_reasons
from cpsched_bridge.web.page_schema import (
    BridgeStatusView,
    GanttChartView,
    JobRequestView,
    NodeOutageView,
    PageAlert,
    QueuedJobView,
    StatusPageView,
    UnscheduledJobView,
)

_GENERIC_REASON = PendingReason(PendingCode.OTHER, (KIND_TEXTS[OTHER],))
"""Generic text that replaces a plug-in's reason, which may name other jobs."""
A = TypeVar("A", bound=JobRequestView)


def redact_for_user(view: StatusPageView, user: str) -> StatusPageView:
    """Return the part of the view that `user` may see."""
    queue = [job for job in view.queue if job.user == user]
    ids = {job.id for job in queue} | {job.id for job in view.running if job.user == user}
    queue = [_redact_queued_job(job, position, ids) for position, job in enumerate(queue, start=1)]
    running = [_redact_reservations(job) for job in view.running if job.user == user]
    aside = [_redact_unscheduled_job(job) for job in view.aside if job.user == user]
    return StatusPageView(
        status=_redact_status(view.status, user, queue, len(running), aside),
        queue=queue,
        running=running,
        aside=aside,
        decisions=[],
        history=view.history,
        chart=_redact_chart(view.chart, user),
        machine=view.machine,
    )


def _redact_queued_job(job: QueuedJobView, position: int, ids: Iterable[int]) -> QueuedJobView:
    known = set(ids)
    return _redact_reservations(job).model_copy(
        update={
            "position": position,
            "behind": [id for id in job.behind if id in known],
            "reason": _GENERIC_REASON if job.kind == OTHER else job.reason,
        }
    )


def _redact_reservations(job: A) -> A:
    """Return a job without the names of excluded reservations.

    Slurm names a reservation after its user.
    """
    parts = tuple(part for part in job.nodes_from if part.kind != "reservation")
    return job.model_copy(update={"nodes_from": parts})


def _redact_unscheduled_job(job: UnscheduledJobView) -> UnscheduledJobView:
    asked = _redact_reservations(job.asked) if job.asked is not None else None
    own = job.reason.code is PendingCode.DEPENDS_ON  # the owner specified these jobs
    return job.model_copy(update={"reason": job.reason if own else redact_reason(job.reason), "asked": asked})


def _redact_status(
    status: BridgeStatusView, user: str, queue: list[QueuedJobView], running: int, aside: list[UnscheduledJobView]
) -> BridgeStatusView:
    kinds = [*(job.kind for job in queue), *(job.kind for job in aside)]
    counts = Counter(filter(None, kinds))
    alarms = [PageAlert(urgent=True, words=alarm.words, details=[]) for alarm in status.alarms if alarm.urgent]
    return status.model_copy(
        update={
            "reader": user,
            "queued": len(queue),
            "running": running,
            "aside": len(aside),
            "held": 0,
            "causes": summarize_reasons(counts, [*queue, *aside]),
            "alarms": alarms,
        }
    )


def _redact_chart(chart: GanttChartView, user: str) -> GanttChartView:
    return chart.model_copy(
        update={
            "bars": [bar for bar in chart.bars if bar.user == user],
            "outages": [_redact_outage(outage) for outage in chart.outages],
        }
    )


def _redact_outage(outage: NodeOutageView) -> NodeOutageView:
    return outage.model_copy(update={"name": ""}) if outage.kind == "reserved" else outage
