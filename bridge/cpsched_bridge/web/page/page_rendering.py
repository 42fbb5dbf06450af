"""Render a view as the HTML text of a page, with templates that escape user-written text.

Only this module imports Jinja.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from statistics import median_low
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cpsched.errors import escape_controls, join_abbreviated
from cpsched.forecast import BackfillWindow
from cpsched.formatting import (
    format_amount,
    format_cluster_time,
    format_count,
    format_duration,
    format_milliseconds,
    format_percent,
    format_planned_time,
    format_quantity,
    format_relative_time,
    format_start_change,
    resource_label,
)
from cpsched_bridge.ports import UNKNOWN_NODES
from cpsched_bridge.telemetry.start_forecasts import SubmissionStartEstimate
from cpsched_bridge.views.job_explanation import (
    NOT_CALIBRATED,
    Explanation,
    format_easy_comparison,
    format_estimated_start,
    format_expected_end,
    format_job_wait,
    format_plan,
    format_time_limit,
    summarize_job,
    summarize_reason,
)
from cpsched_bridge.views.job_view import JobRequestView, JobState, JobsView, JobView
from cpsched_bridge.views.status_view import StatusPageView
from cpsched_bridge.web.page import gantt_chart, page_rendering, page_selection
from cpsched_bridge.web.page.gantt_chart import GanttLinkTargets, GanttWindow
from cpsched_bridge.web.page.node_list import NODE_STATES, list_nodes
from cpsched_bridge.web.page.page_selection import CHART_RANGES_H, StatusPageQuery

PAGE_FOLDER = Path(__file__).resolve().parent
STATIC_FOLDER = PAGE_FOLDER / "static"
_MAX_TEXT_CHARS = 120
_MAX_NODES = 8
ROWS_PER_PAGE = 100
"""Maximum number of table rows per page."""
START_PAGE_ROWS = 10
"""Maximum number of pending jobs on the start page."""
PAST_H = 1
_MAX_JOBS_PER_NODE = 4
_MIN_UPDATE_S = 2.0
"""Minimum seconds between two updates of an open page."""
_RELOAD_INTERVAL_S = 15
"""Seconds between reloads of the wall display and of the page shown before the first observation."""


def sanitize_display_text(text: object) -> str:
    """Return user-written text as one line of limited length, not yet escaped."""
    words = escape_controls(str(text))
    return words if len(words) <= _MAX_TEXT_CHARS else words[: _MAX_TEXT_CHARS - 1] + "…"


def format_node_names(indices: Sequence[int], names: Sequence[str]) -> str:
    """Return node names in short form, such as `node01, node02, node03 and 5 more`."""
    return join_abbreviated(indices, _MAX_NODES, text=lambda index: sanitize_display_text(names[index]))


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(PAGE_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip
_ENVIRONMENT.filters.update(
    span=format_duration, from_now=format_relative_time, to_come=format_planned_time, change=format_start_change, shown=sanitize_display_text, percent=format_percent, ms=format_milliseconds,  # noqa: E501
    line=escape_controls, nodes=format_node_names, number=lambda value: f"{value:,}", amount=lambda value, name: format_amount(name, value),  # noqa: E501
    resource=resource_label, many=format_count, easy_comparison=format_easy_comparison,
)  # fmt: skip


def render_template(name: str, **values: Any) -> str:
    """Return a rendered template. Raise a Jinja error if a value is missing."""
    return _ENVIRONMENT.get_template(name).render(values)


@dataclass(frozen=True, slots=True)
class StatusPageContext:
    """The input of every page."""

    view: StatusPageView
    query: StatusPageQuery
    part: bool = False
    """Whether to render only the part that changes, which updates an open page."""


def render_index(context: StatusPageContext) -> str:
    """Render the overview: alerts, resource use, pending reasons, jobs, and the plan."""
    view, query = context.view, context.query
    window = GanttWindow.around_now(view.chart, PAST_H * 3600, query.ahead * 3600, query.first or 0, query.last)
    links = GanttLinkTargets(lambda id: f"jobs/{id}", lambda first, last: query.make_address(first=first, last=last))
    return _render_page(
        "index.html", context,
        drawing=gantt_chart.draw_gantt_svg(view.chart, window, links),
        grouped=window.last - window.first > gantt_chart.MAX_ROWS,
        homeless=sum(bar.kind == "planned" and not bar.nodes for bar in view.chart.bars),
        sparks={
            r.name: gantt_chart.draw_sparkline([m.in_use[i] for m in view.history], f"{resource_label(r.name)} in use, past hour")  # noqa: E501
            for i, r in enumerate(view.status.resources)
        },
        starting=sum(job.starts_now for job in view.jobs.waiting), hours=CHART_RANGES_H,
        rows=_make_job_table_rows(view.jobs.waiting[:START_PAGE_ROWS], view.jobs, False),
    )  # fmt: skip


def render_jobs(context: StatusPageContext) -> str:
    """Render the selected jobs, at most `ROWS_PER_PAGE` per page."""
    view, query = context.view, context.query
    found = page_selection.filter_jobs(view.jobs, query)
    shown, pages, query = _select_page_rows(found, query)
    mixed = query.state in ("all", JobState.UNSCHEDULED)
    return _render_page(
        "jobs.html", replace(context, query=query), rows=_make_job_table_rows(shown, view.jobs, mixed),
        found=len(found), pages=pages,
        choices=page_selection.list_filter_fields(view.jobs, query, view.status.users_hidden),
        states=page_selection.STATE_LABELS,
        orders={name: label for name, (label, _) in page_selection.JOB_ORDERS.items()},
        kinds={each.kind: each.text for each in view.status.pending_reasons},
    )  # fmt: skip


def render_nodes(context: StatusPageContext) -> str:
    """Render the selected nodes with running and next jobs."""
    view, query = context.view, context.query
    every = list_nodes(view)
    found = page_selection.filter_nodes(every, query)
    shown, pages, query = _select_page_rows(found, query)
    counts = {state: sum(node.state == state for node in every) for state in NODE_STATES}
    return _render_page(
        "nodes.html", replace(context, query=query), rows=shown, found=len(found), pages=pages, counts=counts,
        orders={name: words for name, (words, _) in page_selection.NODE_ORDERS.items()}, most_named=_MAX_JOBS_PER_NODE,
        labels={job.id: job.label for job in (*view.jobs.waiting, *view.jobs.running)},
    )  # fmt: skip


def render_wall_display(context: StatusPageContext) -> str:
    """Render the overview for a wall display."""
    jobs = context.view.jobs
    waits_s = [jobs.now_s - job.submit_s for job in jobs.waiting if job.submit_s is not None]
    return _render_page("wall.html", context, half_waited_s=median_low(waits_s) if waits_s else None)


def render_job(context: StatusPageContext, explanation: Explanation) -> str:
    """Render one job's page."""
    job = explanation.job
    names = ("name", "user", "account", "partition", "qos")
    facts = [(name, getattr(job, name)) for name in names if getattr(job, name)]
    if job.state is JobState.WAITING and job.priority:
        facts.append(("priority", f"{job.priority:,}"))
    request = job.request
    if request is not None and request.nodes_from == (("partition", job.partition),):
        request = replace(request, nodes_from=())
    details = [] if request is None else list(list_job_request_details(request, job.walltime_s))
    return _render_page(
        "job.html", context, base="../", job=job, sentences=explanation.sentences, facts=facts, request_details=details,
        is_request_unknown=request is None and job.state is JobState.UNSCHEDULED,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StartEstimateAnswer:
    """The answer to a form for hypothetical submissions, at cluster time `now_s`."""

    now_s: int
    estimates: Sequence[SubmissionStartEstimate] | None = None
    windows: Sequence[BackfillWindow] | None = None
    """The sizes that could start now."""
    error: str = ""
    """The error message, or ""."""


def render_start_estimate(
    context: StatusPageContext, form: Mapping[str, str], answer: StartEstimateAnswer, partitions: Sequence[str]
) -> str:
    """Render the form for hypothetical submissions, its input, and the answer."""
    estimates, windows = answer.estimates or (), answer.windows or ()
    predictor, resources = context.view.jobs.predictor, context.view.status.resources
    amounts = [(each.name, _format_field_label(each.name)) for each in resources if each.capacity]
    rows = [
        (each.request, format_estimated_start(each, answer.now_s), format_plan(each.planned_s, answer.now_s, predictor))
        for each in estimates
    ]
    sizes = [
        (format_count(each.units, "whole node" if each.exclusive else "core"), format_duration(each.walltime_s))
        for each in windows
    ]
    guess = any(each.interval is not None and not each.interval.calibrated for each in estimates)
    note = NOT_CALIBRATED if guess else ""
    return _render_page(
        "when.html", context, form=form, amounts=amounts, rows=rows, sizes=sizes, error=answer.error, note=note,
        partitions=partitions[1:], has_result=answer.estimates is not None, has_windows=answer.windows is not None,
    )  # fmt: skip


def _format_field_label(name: str) -> str:
    """Return the form label for a resource."""
    units = {"memory_mib": "memory per node, in MiB", "memory_gib": "memory per node, in GiB"}
    return units.get(name, f"{resource_label(name)} per node")


def render_not_ready(base: str, version: str, why: Sequence[str]) -> str:
    """Render the page shown before the first observation, with the reasons."""
    return page_rendering.render_template(
        "waiting.html", base=base, home=base or "./", version=version, every_s=_MIN_UPDATE_S, part=False,
        here="", refresh_s=_RELOAD_INTERVAL_S, why=why,
    )  # fmt: skip


def _render_page(name: str, context: StatusPageContext, base: str = "", **values: Any) -> str:
    status, jobs = context.view.status, context.view.jobs
    return page_rendering.render_template(
        name, view=context.view, s=status, jobs=jobs, query=context.query, base=base,
        home=base or "./", part=context.part,
        here=name.partition(".")[0], version=status.version, clock=format_cluster_time(jobs.now_s),
        every_s=0 if name == "when.html" else max(_MIN_UPDATE_S, status.interval_s),
        refresh_s=_RELOAD_INTERVAL_S if name == "wall.html" else 0, **values,
    )  # fmt: skip


def _select_page_rows(found: Sequence[Any], query: StatusPageQuery) -> tuple[Sequence[Any], int, StatusPageQuery]:
    """Return one page's rows, the number of pages, and a query with a valid page."""
    pages = max(1, -(-len(found) // ROWS_PER_PAGE))
    query = replace(query, page=min(query.page, pages))
    return found[(query.page - 1) * ROWS_PER_PAGE : query.page * ROWS_PER_PAGE], pages, query


@dataclass(frozen=True, slots=True)
class JobTableRow:
    """A job in a table."""

    job: JobView
    state: str
    """State of the job, or empty if all rows have the same state."""
    request: str
    why: str
    when: str = ""
    more: str = ""
    """The plan of a pending job, or the end of a running one."""


def _make_job_table_rows(found: Sequence[JobView], jobs: JobsView, mixed: bool) -> list[JobTableRow]:
    """Return the jobs as table rows, with each job's state if states are `mixed`."""
    rows = [_make_job_table_row(job, jobs) for job in found]
    return rows if mixed else [replace(row, state="") for row in rows]


def _make_job_table_row(job: JobView, jobs: JobsView) -> JobTableRow:
    request = "" if job.request is None else summarize_job_request(job.request, job.walltime_s)
    if job.state is JobState.WAITING:
        summary = summarize_job(job, jobs)
        plan = "" if summary.start == "now" else summary.plan
        waited = f"{summarize_reason(job, jobs.mode)}; has waited {format_job_wait(job, jobs.now_s)}"
        return JobTableRow(job, job.state, request, waited, summary.start, plan)
    if job.state is JobState.RUNNING and job.start_s is not None:
        nodes = join_abbreviated(job.nodes, _MAX_JOBS_PER_NODE, text=itemgetter(0))
        why = f"on {nodes or UNKNOWN_NODES}; waited {format_job_wait(job, job.start_s)}"
        started = f"started {format_relative_time(job.start_s, jobs.now_s)}"
        return JobTableRow(job, job.state, request, why, started, f"ends {format_expected_end(job, jobs.now_s)}")
    return JobTableRow(job, job.kind.replace("_", " "), request, job.reason_text)


def summarize_job_request(request: JobRequestView, walltime_s: int | None) -> str:
    """Return a request as one line.

    Example: `4 nodes · 256 cores · 1,000 GiB · 8 GPUs · up to 6 h`.
    """
    totals = [format_quantity(name, request.units * amount) for name, amount in request.amounts.items() if amount]
    whole = ["whole nodes"] if request.exclusive else []
    limit = format_time_limit(walltime_s)
    longest_run = limit if walltime_s is None else f"up to {limit}"
    return " · ".join([_format_unit_count(request), *totals, *whole, longest_run])


def list_job_request_details(request: JobRequestView, walltime_s: int | None) -> Iterator[tuple[str, str]]:
    """Yield (name, amount) for each part of the request."""
    yield "where", _format_node_spread(request)
    for name, amount in request.amounts.items():
        if amount:
            yield resource_label(name), _format_amounts(name, amount, request)
    if request.exclusive:
        yield "sharing", "exclusive nodes"
    if request.nodes_from:
        yield "allowed nodes", ", ".join(map(str, request.nodes_from))
    yield "time limit", format_time_limit(walltime_s)


def _format_unit_count(request: JobRequestView) -> str:
    unit = "node" if request.distinct or request.units == 1 else "task"
    return format_count(request.units, unit)


def _format_node_spread(request: JobRequestView) -> str:
    if request.units == 1:
        return "on one node"
    if request.distinct:
        return f"on {format_count(request.units, 'node')}"
    return f"as {request.units:,} equal tasks, several of which may be on one node"


def _format_amounts(name: str, amount: int, request: JobRequestView) -> str:
    if request.units == 1:
        return format_amount(name, amount)
    place = "node" if request.distinct else "task"
    return f"{format_amount(name, request.units * amount)}: {format_amount(name, amount)} for each {place}"
