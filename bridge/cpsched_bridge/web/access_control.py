"""Control access to the status page: who may read it, and what one user may see.

A web site can make its own host name resolve to the reader's machine. Its scripts can then read this page under that
name (DNS rebinding). The page therefore accepts a request only if its host is an IP address, localhost, or a configured
name. No web site can claim an IP address.

Redaction reduces a view to the user's own jobs and the machine. For other users, it keeps only what `sinfo` shows to
everyone: the use of each node, the total use, and the nodes that accept no jobs. It omits other users' names, jobs, job
counts, accounts, reservations, and reasons.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from cpsched.errors import InvalidValue
from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.settings import StatusPageSettings
from cpsched_bridge.telemetry.reason_kinds import KIND_TEXTS, OTHER, redact_reason
from cpsched_bridge.users import ProxyUserIdentifier, ProxyUserRejected, parse_trusted_network
from cpsched_bridge.views.job_view import JobsView, JobView
from cpsched_bridge.views.status_view import (
    BridgeStatusView,
    GanttChartView,
    NodeOutageView,
    PageAlert,
    StatusPageView,
)
from cpsched_bridge.web.page.page_summary import summarize_reasons

_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*))(?::(?P<port>[0-9]{1,5}))?"
)
"""Pattern for an address or a name with an optional port, but no user, path, trailing dot, zone or space."""
_HOST_NOT_ALLOWED = (
    "page.hosts: this host name is not allowed; use localhost or the host's IP address, or add the name to page.hosts\n"
)
Page = Callable[[Request], Response]
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_GENERIC_REASON = PendingReason(PendingCode.OTHER, (KIND_TEXTS[OTHER],))
"""Generic text that replaces a plug-in's reason, which may name other jobs."""


@dataclass(frozen=True, slots=True)
class PageAccessControl:
    """The page's access rules.

    Requests run one at a time because they share the interpreter with the main loop.
    """

    hosts: Sequence[str] = ()
    """Allowed host names in addition to IP addresses and localhost."""
    readers: ProxyUserIdentifier = field(default_factory=ProxyUserIdentifier)
    at_a_time: Lock = field(default_factory=Lock)

    @classmethod
    def from_settings(cls, page: StatusPageSettings) -> PageAccessControl:
        """Return the access rules from the settings."""
        readers = ProxyUserIdentifier(
            page.user_header, tuple(map(parse_trusted_network, page.trusted_proxies)), frozenset(page.operators)
        )
        return cls(page.hosts, readers)

    def restrict_to_readers(self, page: Page) -> Page:
        """Return `page` restricted to permitted readers.

        `request.state.reader` is None if the reader sees all jobs.
        """

        def handle_if_permitted(request: Request) -> Response:
            if not is_allowed_host(request.headers.get("host", ""), self.hosts):
                return make_error_response(request, _HOST_NOT_ALLOWED, 421)
            peer = request.client.host if request.client is not None else None
            try:
                request.state.reader = self.readers.identify_reader(peer, request.headers.getlist(self.readers.header))
                with self.at_a_time:
                    answer = page(request)
            except ProxyUserRejected as refused:
                answer = make_error_response(request, f"{refused}\n", 403)
            except InvalidValue as error:
                answer = make_error_response(request, f"{error}\n", 400)
            if self.readers.are_readers_restricted:
                answer.headers["Cache-Control"] = "private, no-cache"
                answer.headers.add_vary_header(self.readers.header)
            return answer

        return handle_if_permitted


def is_allowed_host(host: str, names: Collection[str] = ()) -> bool:
    """Return whether `host` is an IP address, localhost, or one of `names`.

    The host may include a port. Case does not matter.
    """
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65535:
        return False
    if found["v6"] is not None:
        return _is_ip_address(IPv6Address, found["v6"])
    name = found["name"].lower()
    return name == "localhost" or name in {each.lower() for each in names} or _is_ip_address(IPv4Address, name)


def _is_ip_address(kind: type[IPv4Address] | type[IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except AddressValueError:
        return False
    return True


def make_error_response(request: Request, text: str, status: int) -> Response:
    """Return an error response: JSON for paths below `/api`, otherwise text."""
    if request.scope["path"].startswith("/api/"):
        return to_json_response({"error": "; ".join(text.strip().splitlines())}, status)
    return PlainTextResponse(text, status, HEADERS)


def to_html_response(text: str, status: int = 200) -> Response:
    """Return an HTML response that clients revalidate before reuse."""
    return HTMLResponse(text, status, headers=HEADERS)


def to_json_response(content: dict[str, Any], status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(json.dumps(content), status, media_type="application/json", headers=HEADERS)


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
