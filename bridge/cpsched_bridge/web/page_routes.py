"""Route requests to the status page and to version 1 of the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from cpsched.errors import InvalidValue
from cpsched_bridge.telemetry.start_forecasts import HypotheticalSubmission, StartForecaster
from cpsched_bridge.views.job_explanation import Explanation, explain_job
from cpsched_bridge.views.job_view import JobState
from cpsched_bridge.views.status_view import StatusPageView
from cpsched_bridge.web import api_v1
from cpsched_bridge.web.access_control import (
    HEADERS,
    Page,
    PageAccessControl,
    make_error_response,
    redact_for_user,
    to_html_response,
    to_json_response,
)
from cpsched_bridge.web.page import gantt_chart, page_rendering
from cpsched_bridge.web.page.page_rendering import StatusPageContext
from cpsched_bridge.web.page.page_selection import StatusPageQuery

_MAX_CACHED_PAGES = 16
_STATIC_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


def make_page_routes(
    view: Callable[[], StatusPageView | None],
    nothing_yet: Callable[[], Sequence[str]],
    access: PageAccessControl,
    forecaster: StartForecaster,
    predictor: str,
) -> list[Route]:
    """Return the routes of the status page and of version 1 of the API.

    The routes enforce `access`. `view` returns the current view. If there is none, `nothing_yet` returns the reasons.
    Handlers are plain functions that run in the server's thread pool. Pages are cached per request, round and reader.
    """
    made = dict[str, str]()

    def get_reader_view(request: Request) -> StatusPageView | None:
        found, reader = view(), request.state.reader
        return redact_for_user(found, reader) if found is not None and reader is not None else found

    def make_page_context(request: Request, view: StatusPageView) -> StatusPageContext:
        query = request.query_params
        return StatusPageContext(view, StatusPageQuery.from_query(query), query.get("part") == "live")

    def make_no_view_response(request: Request) -> Response:
        return make_error_response(
            request,
            "\n".join(["the bridge has not read the cluster yet", *list_visible_unready_reasons(request), ""]),
            503,
        )

    def list_visible_unready_reasons(request: Request) -> Sequence[str]:
        """Return why there is no view yet.

        Errors may name jobs. A user who sees only their own jobs therefore gets an empty list.
        """
        return nothing_yet() if request.state.reader is None else []

    def make_page_handler(make: Callable[[StatusPageContext], str]) -> Page:
        def render_or_revalidate(request: Request) -> Response:
            view = get_reader_view(request)
            if view is None:
                return to_html_response(
                    page_rendering.render_not_ready("", version("cpsched"), list_visible_unready_reasons(request))
                )
            tag = _make_entity_tag(view, request.scope["path"], str(request.query_params))
            if request.headers.get("if-none-match") == tag:
                return Response(status_code=304, headers={"ETag": tag, **HEADERS})
            if tag not in made:
                if len(made) >= _MAX_CACHED_PAGES:
                    made.clear()
                made[tag] = make(make_page_context(request, view))
            return HTMLResponse(made[tag], headers={"ETag": tag, **HEADERS})

        return render_or_revalidate

    def render_job_page(request: Request) -> Response:
        view, asked = get_reader_view(request), request.path_params["job"]
        if view is None:
            return to_html_response(
                page_rendering.render_not_ready("../", version("cpsched"), list_visible_unready_reasons(request))
            )
        explanation = explain_job(view.jobs, asked)
        text = page_rendering.render_job(make_page_context(request, view), explanation)
        return to_html_response(text, _get_job_status(explanation))

    def answer_api_job(request: Request) -> Response:
        view = get_reader_view(request)
        if view is None:
            return make_no_view_response(request)
        explanation = explain_job(view.jobs, request.path_params["job"])
        return to_json_response(
            api_v1.explained_job_to_json(explanation, view.jobs.now_s), _get_job_status(explanation)
        )

    def answer_api_jobs(request: Request) -> Response:
        view = get_reader_view(request)
        if view is None:
            return make_no_view_response(request)
        user = request.query_params.get("user", "")
        return to_json_response(api_v1.jobs_to_json(view.jobs, view.status.users_hidden, user))

    def send_static_file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC_FILES:
            return PlainTextResponse("file not found\n", 404)
        content, kind = _STATIC_FILES[name]
        return Response(content, media_type=kind, headers=HEADERS)

    found: dict[str, Page] = {
        "/": make_page_handler(page_rendering.render_index),
        "/jobs": make_page_handler(page_rendering.render_jobs),
        "/nodes": make_page_handler(page_rendering.render_nodes),
        "/wall": make_page_handler(page_rendering.render_wall_display),
        "/jobs/{job}": render_job_page,
        "/static/{name}": send_static_file,
        **make_estimate_routes(forecaster, get_reader_view, make_page_context, list_visible_unready_reasons, predictor),
        f"{api_v1.PREFIX}/jobs": answer_api_jobs,
        f"{api_v1.PREFIX}/jobs/{{job}}": answer_api_job,
        f"{api_v1.PREFIX}/openapi.json": _send_openapi_document,
        "/api/{rest:path}": _reject_unknown_path,
    }
    return [Route(path, access.restrict_to_readers(each)) for path, each in found.items()]


def _get_job_status(explanation: Explanation) -> int:
    return 404 if explanation.job.state is JobState.UNKNOWN else 200


def _send_openapi_document(_: Request) -> Response:
    return to_json_response(_OPENAPI)


def _reject_unknown_path(request: Request) -> Response:
    return make_error_response(request, f"not found; {api_v1.PREFIX}/openapi.json lists the API\n", 404)


def _make_entity_tag(view: StatusPageView, path: str, query: str) -> str:
    """Return an entity tag for a page in its current state.

    It changes with the round, the alerts, the reader, and a restart of the bridge.
    """
    status, jobs = view.status, view.jobs
    state = f"{status.round} {status.at_unix_s} {jobs.now_s} {status.alerts} {path} {query} {jobs.reader!r}"
    return f'"{sha256(state.encode()).hexdigest()[:20]}"'


def _read_static_files() -> Mapping[str, tuple[bytes, str]]:
    """Return the style sheet with the chart's colors, the script and the icon."""
    found = {name: ((page_rendering.STATIC_FOLDER / name).read_bytes(), kind) for name, kind in _STATIC_TYPES.items()}
    css, kind = found["page.css"]
    return found | {"page.css": (css + gantt_chart.STYLE.encode(), kind)}


_STATIC_FILES = _read_static_files()
_OPENAPI = api_v1.build_openapi_document()


_PARAMETER_NAMES = frozenset(("nodes", "time", "partition", "exclusive"))
"""Query parameters other than the cluster's resources."""
_NO_PLAN = "the dispatcher has no plan yet; try again in the next cycle\n"


def make_estimate_routes(
    forecaster: StartForecaster,
    at: Callable[[Request], StatusPageView | None],
    context: Callable[[Request, StatusPageView], StatusPageContext],
    why_not: Callable[[Request], Sequence[str]],
    predictor: str,
) -> dict[str, Page]:
    """Return the handlers, by path, for starts of hypothetical jobs and for job sizes that could start now."""

    def answer_start_estimate(request: Request) -> Response:
        found = forecaster.estimate_start(_parse_submission(request.query_params))
        if found is None:
            return make_error_response(request, _NO_PLAN, 503)
        now_s = forecaster.get_plan_cluster_time_s()
        return to_json_response(api_v1.start_estimates_to_json(found, now_s, predictor))

    def answer_backfill_windows(request: Request) -> Response:
        found = forecaster.backfill_windows(request.query_params.get("partition", ""))
        if found is None:
            return make_error_response(request, _NO_PLAN, 503)
        return to_json_response(api_v1.backfill_windows_to_json(found, forecaster.get_plan_cluster_time_s()))

    def render_estimate_form(request: Request) -> Response:
        view = at(request)
        if view is None:
            return to_html_response(page_rendering.render_not_ready("", version("cpsched"), why_not(request)))
        form = {name: value.strip() for name, value in request.query_params.items()}
        error_message, found = "", None
        try:
            found = (
                forecaster.estimate_start(_parse_submission(_drop_empty_fields(request.query_params)))
                if "time" in form
                else None
            )
            windows = forecaster.backfill_windows(form.get("partition", ""))
        except InvalidValue as error:
            error_message, windows = str(error), None
        error_message = error_message or ("" if windows is not None else _NO_PLAN.strip())
        answer = page_rendering.StartEstimateAnswer(forecaster.get_plan_cluster_time_s(), found, windows, error_message)
        partitions = forecaster.list_partition_choices()
        text = page_rendering.render_start_estimate(context(request, view), form, answer, partitions)
        return to_html_response(text, 400 if error_message else 200)

    return {
        "/when": render_estimate_form,
        f"{api_v1.PREFIX}/when": answer_start_estimate,
        f"{api_v1.PREFIX}/windows": answer_backfill_windows,
    }


def _drop_empty_fields(query: QueryParams) -> QueryParams:
    """Return the parameters without the empty fields that a form sends."""
    return QueryParams([(name, value.strip()) for name, value in query.items() if value.strip() or name == "time"])


def _parse_submission(query: QueryParams) -> HypotheticalSubmission:
    """Parse a request's parameters. Raise `InvalidValue` if a parameter is invalid."""
    amounts = {name: _parse_count(name, value) for name, value in query.items() if name not in _PARAMETER_NAMES}
    nodes, exclusive = _parse_count("nodes", query.get("nodes", "1")), query.get("exclusive", "0")
    if exclusive not in ("0", "1"):
        raise InvalidValue("exclusive", exclusive, "must be 0 or 1")
    return HypotheticalSubmission(nodes, query.get("time", ""), query.get("partition", ""), exclusive == "1", amounts)


def _parse_count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
        raise InvalidValue(name, text, "must be a whole number of at least 0")
    return int(text)
