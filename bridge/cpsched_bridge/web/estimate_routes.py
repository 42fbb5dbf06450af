"""Serve expected starts of hypothetical jobs, and job sizes that could start now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from cpsched.errors import InvalidValue
from cpsched_bridge.telemetry.start_forecasts import HypotheticalSubmission, StartForecaster
from cpsched_bridge.views.status_view import StatusPageView
from cpsched_bridge.web import api_v1
from cpsched_bridge.web.access_control import Page
from cpsched_bridge.web.http_responses import make_error_response, to_html_response, to_json_response
from cpsched_bridge.web.page import page_rendering
from cpsched_bridge.web.page.page_rendering import StatusPageContext

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
    """Return the request handlers by path."""

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
        text = page_rendering.render_start_estimate(
            context(request, view),
            form,
            found,
            windows,
            error_message,
            forecaster.get_plan_cluster_time_s(),
            forecaster.list_partition_choices(),
        )
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
