"""Format a job's request as text."""

from __future__ import annotations

from collections.abc import Iterator

from cpsched.formatting import format_amount, format_count, format_quantity, resource_label
from cpsched_bridge.views.job_explanation import format_time_limit
from cpsched_bridge.views.job_view import JobRequestView


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
