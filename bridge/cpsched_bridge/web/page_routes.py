"""Route requests to the status page and to version 1 of the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from cpsched_bridge.telemetry.start_forecasts import StartForecaster
from cpsched_bridge.web import api_v1, page_schema
from cpsched_bridge.web.access_control import Page, PageAccessControl
from cpsched_bridge.web.estimate_routes import estimate_routes
from cpsched_bridge.web.http_responses import HEADERS, error_response, to_html_response, to_json_response
from cpsched_bridge.web.job_explanation import explain
from cpsched_bridge.web.page import gantt_chart, html_templates, page_rendering
from cpsched_bridge.web.page.page_query import StatusPageQuery
from cpsched_bridge.web.page.page_rendering import StatusPageContext
from cpsched_bridge.web.page.redaction import redact_for_user

_MAX_CACHED_PAGES = 16
_STATIC_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


def page_routes(
    view: Callable[[], page_schema.StatusPageView | None],
    nothing_yet: Callable[[], Sequence[str]],
    access: PageAccessControl,
    forecaster: StartForecaster,
) -> list[Route]:
    """Return the routes of the status page and version 1 of the API, with access control.

    `view` returns the current view. If there is none, `nothing_yet` returns the reasons. Handlers are plain functions
    that run in the server's thread pool. Pages are cached per request, round and reader.
    """
    made = dict[str, str]()

    def at(request: Request) -> page_schema.StatusPageView | None:
        found, reader = view(), request.state.reader
        return redact_for_user(found, reader) if found is not None and reader is not None else found

    def context(request: Request, view: page_schema.StatusPageView) -> StatusPageContext:
        query = request.query_params
        return StatusPageContext(view, StatusPageQuery.from_query(query), query.get("part") == "live")

    def too_early(request: Request) -> Response:
        return error_response(
            request, "\n".join(["the bridge has not read the cluster yet", *why_not(request), ""]), 503
        )

    def why_not(request: Request) -> Sequence[str]:
        """Return why there is no view yet. Errors may name jobs, so users who see only their own jobs get none."""
        return nothing_yet() if request.state.reader is None else []

    def page(make: Callable[[StatusPageContext], str]) -> Page:
        def answered(request: Request) -> Response:
            view = at(request)
            if view is None:
                return to_html_response(page_rendering.render_not_ready("", version("cpsched"), why_not(request)))
            tag = _make_entity_tag(view, request.scope["path"], str(request.query_params))
            if request.headers.get("if-none-match") == tag:
                return Response(status_code=304, headers={"ETag": tag, **HEADERS})
            if tag not in made:
                if len(made) >= _MAX_CACHED_PAGES:
                    made.clear()
                made[tag] = make(context(request, view))
            return HTMLResponse(made[tag], headers={"ETag": tag, **HEADERS})

        return answered

    def job(request: Request) -> Response:
        view, asked = at(request), request.path_params["job"]
        if view is None:
            return to_html_response(page_rendering.render_not_ready("../", version("cpsched"), why_not(request)))
        found = explain(view, asked)
        return to_html_response(
            page_rendering.render_job(context(request, view), found), 404 if found.state == "unknown" else 200
        )

    def api_job(request: Request) -> Response:
        view = at(request)
        if view is None:
            return too_early(request)
        found = explain(view, request.path_params["job"])
        status = 404 if found.state == "unknown" else 200
        return to_json_response(api_v1.to_job(found, view.status.now_s).model_dump_json().encode(), status)

    def api_jobs(request: Request) -> Response:
        view = at(request)
        if view is None:
            return too_early(request)
        return to_json_response(api_v1.to_jobs(view, request.query_params.get("user", "")).model_dump_json().encode())

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC_FILES:
            return PlainTextResponse("file not found\n", 404)
        content, kind = _STATIC_FILES[name]
        return Response(content, media_type=kind, headers=HEADERS)

    found: dict[str, Page] = {
        "/": page(page_rendering.render_index), "/jobs": page(page_rendering.render_jobs), "/nodes": page(page_rendering.render_nodes), "/wall": page(page_rendering.render_wall),  # noqa: E501
        "/jobs/{job}": job, "/static/{name}": static, **estimate_routes(forecaster, at, context, why_not),
        f"{api_v1.PREFIX}/jobs": api_jobs, f"{api_v1.PREFIX}/jobs/{{job}}": api_job, f"{api_v1.PREFIX}/openapi.json": _send_openapi_document, "/api/{rest:path}": _reject_unknown_path,  # noqa: E501
    }  # fmt: skip
    return [Route(path, access.guard(each)) for path, each in found.items()]


def _send_openapi_document(_: Request) -> Response:
    return to_json_response(_OPENAPI)


def _reject_unknown_path(request: Request) -> Response:
    return error_response(request, f"not found; {api_v1.PREFIX}/openapi.json lists the API\n", 404)


def _make_entity_tag(view: page_schema.StatusPageView, path: str, query: str) -> str:
    """Return an entity tag that changes with the round, the alerts, the reader, and a restart of the bridge."""
    status = view.status
    state = f"{status.round} {status.at_unix_s} {status.now_s} {status.alarms} {path} {query} {status.reader!r}"
    return f'"{sha256(state.encode()).hexdigest()[:20]}"'


def _read_static_files() -> Mapping[str, tuple[bytes, str]]:
    """Return the style sheet, which includes the chart's colors, the script and the icon, by name."""
    found = {name: ((html_templates.STATIC_FOLDER / name).read_bytes(), kind) for name, kind in _STATIC_TYPES.items()}
    css, kind = found["page.css"]
    return found | {"page.css": (css + gantt_chart.STYLE.encode(), kind)}


_STATIC_FILES = _read_static_files()
_OPENAPI = api_v1.build_openapi_document()
