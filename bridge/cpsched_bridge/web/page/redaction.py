"""Reduce a view to what one user may see: the user's own jobs and the machine.

For other users, it keeps only what `sinfo` shows to everyone: the use of each node, the total use, and the nodes that
accept no jobs. It omits other users' names, jobs, job counts, accounts, reservations, and reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.telemetry.reason_kinds import KIND_TEXTS, OTHER, redact_reason
from cpsched_bridge.views.job_view import JobsView, JobView
from cpsched_bridge.views.status_view import (
    BridgeStatusView,
    GanttChartView,
    NodeOutageView,
    PageAlert,
    StatusPageView,
)
from cpsched_bridge.web.page.pending_reasons_summary import summarize_reasons

_GENERIC_REASON = PendingReason(PendingCode.OTHER, (KIND_TEXTS[OTHER],))
"""Generic text that replaces a plug-in's reason, which may name other jobs."""


def redact_for_user(view: StatusPageView, user: str) -> StatusPageView:
    """Return the part of the view that `user` may see."""
    jobs = _redact_jobs(view.jobs, user)
    return StatusPageView(
        status=_redact_status(view.status, jobs),
        jobs=jobs,
        decisions=[],
        history=view.history,
        chart=_redact_chart(view.chart, user),
        capacities=view.capacities,
    )


def _redact_jobs(jobs: JobsView, user: str) -> JobsView:
    waiting = [job for job in jobs.waiting if job.user == user]
    running = [job for job in jobs.running if job.user == user]
    ids = {job.id for job in (*waiting, *running)}
    return replace(
        jobs,
        waiting=[_redact_waiting_job(job, position, ids) for position, job in enumerate(waiting, start=1)],
        running=list(map(_redact_reservations, running)),
        unscheduled=[_redact_unscheduled_job(job) for job in jobs.unscheduled if job.user == user],
        ended=[_redact_reservations(job) for job in jobs.ended if job.user == user],
        reader=user,
    )


def _redact_waiting_job(job: JobView, position: int, ids: Collection[int]) -> JobView:
    return replace(
        _redact_reservations(job),
        position=position,
        waits_for=tuple(id for id in job.waits_for if id in ids),
        reason=_GENERIC_REASON if job.kind == OTHER else job.reason,
    )


def _redact_reservations(job: JobView) -> JobView:
    """Return a job without the names of excluded reservations.

    Slurm names a reservation after its user.
    """
    if job.request is None:
        return job
    parts = tuple(part for part in job.request.nodes_from if part.kind != "reservation")
    return replace(job, request=replace(job.request, nodes_from=parts))


def _redact_unscheduled_job(job: JobView) -> JobView:
    if job.reason is None or job.reason.code is PendingCode.DEPENDS_ON:  # the owner specified these jobs
        return _redact_reservations(job)
    return replace(_redact_reservations(job), reason=redact_reason(job.reason))


def _redact_status(status: BridgeStatusView, jobs: JobsView) -> BridgeStatusView:
    pending = [*jobs.waiting, *jobs.unscheduled]
    counts = Counter(job.kind for job in pending if job.kind)
    alerts = [PageAlert(urgent=True, text=alert.text, details=[]) for alert in status.alerts if alert.urgent]
    return replace(status, held=0, pending_reasons=summarize_reasons(counts, pending), alerts=alerts)


def _redact_chart(chart: GanttChartView, user: str) -> GanttChartView:
    bars = [bar for bar in chart.bars if bar.user == user]
    return replace(chart, bars=bars, outages=list(map(_redact_outage, chart.outages)))


def _redact_outage(outage: NodeOutageView) -> NodeOutageView:
    return replace(outage, name="") if outage.kind == "reserved" else outage
