"""Receive cycle reports, and serve metrics, health endpoints and the status page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.settings import Settings
from cpsched_bridge.telemetry.forecast_outcomes import BridgeStatusFacts, ForecastOutcomeTracker
from cpsched_bridge.telemetry.loop_health import LoopHealth
from cpsched_bridge.telemetry.prometheus_exporter import CONTENT_TYPE, PrometheusExporter
from cpsched_bridge.telemetry.start_forecasts import StartForecaster
from cpsched_bridge.views import status_view
from cpsched_bridge.web import api_v1
from cpsched_bridge.web.access_control import HEADERS, PageAccessControl
from cpsched_bridge.web.page.page_summary import make_stalled_alert
from cpsched_bridge.web.page.view_model import StatusPageState
from cpsched_bridge.web.page_routes import make_page_routes


class StatusApplication:
    """A cycle listener that serves one bridge's metrics, health and status page."""

    def __init__(self, settings: Settings, context: Callable[[], BridgeStatusFacts] = BridgeStatusFacts) -> None:
        self.settings, self._around = settings, context
        self._following = ForecastOutcomeTracker()
        self.exporter = PrometheusExporter()
        self.health = LoopHealth(settings.cycle)
        self.forecaster = StartForecaster(policy=f"{settings.mode}, {settings.policy.to_spec()}")
        self.page_state = StatusPageState(settings, self.forecaster)

    def __call__(self, report: CycleReport) -> None:
        """Record one cycle."""
        self.health(report)
        cycle = self._following.record_report_and_get_outcomes(report, self._around())
        self.exporter(replace(cycle, outcomes=self.forecaster.take_outcomes()))
        if self.settings.serves_page:
            self.forecaster(report)
            self.page_state(cycle, self._following.first_planned_s)

    def on_startup_step(self, step: str) -> None:
        """Record a step before the first cycle. An empty string ends the start-up."""
        self.health.on_startup_step(step)

    def build_app(self) -> Starlette:
        """Return the web application to serve."""
        routes = self._make_metrics_routes() if self.settings.metrics.enabled else []
        if self.settings.serves_page:
            access = PageAccessControl.from_settings(self.settings.page)
            routes += make_page_routes(
                self._get_current_view,
                self.health.list_unready_reasons,
                access,
                self.forecaster,
                self.settings.policy.predictor,
            )
        return make_app(routes)

    def write_start_forecasts_file(self) -> None:
        """Write all jobs and their start forecasts to the configured file, if any.

        Raise `OSError` on failure.
        """
        path, view = self.settings.page.start_times_file, self.page_state.get_view()
        if path is None or view is None:
            return
        beside = path.with_name(f"{path.name}.new")
        beside.write_text(json.dumps(api_v1.jobs_to_json(view.jobs, view.status.users_hidden)))
        beside.replace(path)

    def _get_current_view(self) -> status_view.StatusPageView | None:
        """Return the latest view, with an alert if the loop appears to hang."""
        view, late = self.page_state.get_view(), self.health.list_stall_reasons()
        if view is None or not late:
            return view
        return replace(view, status=replace(view.status, alerts=[make_stalled_alert(late), *view.status.alerts]))

    def _make_metrics_routes(self) -> list[Route]:
        # The handlers are `async`, so a scrape does not wait for the thread pool.
        # Only operators may read metrics. A user identified by a proxy is not an operator.
        header = self.settings.page.user_header if self.settings.serves_page else ""

        async def send_metrics(request: Request) -> Response:
            if header and header in request.headers:
                return PlainTextResponse(
                    "page.user_header: readers of the page have no access to metrics\n", 403, HEADERS
                )
            return Response(self.exporter.render_metrics(), media_type=CONTENT_TYPE)

        async def answer_liveness(request: Request) -> Response:
            return self._make_health_response(
                self.health.list_stall_reasons(), header in request.headers if header else False
            )

        async def answer_readiness(request: Request) -> Response:
            return self._make_health_response(
                self.health.list_unready_reasons(), header in request.headers if header else False
            )

        return [Route("/metrics", send_metrics), Route("/healthz", answer_liveness), Route("/readyz", answer_readiness)]

    def _make_health_response(self, reasons: Sequence[str], in_short: bool) -> Response:
        """Return a response with status 200, or 503 with one reason per line."""
        lines = reasons or [f"ok: {self.health.describe_last_cycle()}"]
        lines = ["not ready" if reasons else "ok"] if in_short else lines
        return PlainTextResponse("\n".join(lines) + "\n", 503 if reasons else 200, {"Cache-Control": "no-store"})


def make_app(routes: Sequence[Route]) -> Starlette:
    """Return an application that answers unknown paths with 404.

    A redirect would reveal the bridge's own address.
    """
    app = Starlette(routes=list(routes))
    app.router.redirect_slashes = False
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=4)
    app.add_middleware(_RejectAbsoluteUrlMiddleware)
    return app


class _RejectAbsoluteUrlMiddleware:
    """A middleware that accepts only paths as targets.

    A target such as `GET http://somewhere/ HTTP/1.1` names a second host.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        asked = scope["type"] != "http" or scope["raw_path"].startswith(b"/")
        answer = (
            self._app if asked else PlainTextResponse("the request must be for a path on this host\n", 400, HEADERS)
        )
        await answer(scope, receive, send)
