"""Format a job's request as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cpsched.formatting import format_amount, format_count, format_quantity, resource_label
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S
from cpsched_bridge.web.job_explanation import format_time_limit
from cpsched_bridge.web.page_schema import JobRequestView


def summarize_job_request(asked: JobRequestView, resources: Sequence[str]) -> str:
    """Return a request as one line.

    Example: `4 nodes · 256 cores · 1,000 GiB · 8 GPUs · up to 6 h`.
    """
    totals = [
        format_quantity(name, asked.units * each) for name, each in zip(resources, asked.per_unit, strict=False) if each
    ]
    whole = ["whole nodes"] if asked.exclusive else []
    return " · ".join([_format_unit_count(asked), *totals, *whole, _format_longest_run(asked)])


def list_job_request_details(asked: JobRequestView, resources: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, amount) for each part of the request."""
    yield "where", _format_node_spread(asked)
    for name, each in zip(resources, asked.per_unit, strict=False):
        if each:
            yield resource_label(name), _format_amounts(name, each, asked)
    if asked.exclusive:
        yield "sharing", "exclusive nodes"
    if asked.nodes_from:
        yield "allowed nodes", ", ".join(map(str, asked.nodes_from))
    yield "time limit", format_time_limit(asked.walltime_s)


def _format_longest_run(asked: JobRequestView) -> str:
    limit = format_time_limit(asked.walltime_s)
    return limit if asked.walltime_s == UNLIMITED_WALLTIME_S else f"up to {limit}"


def _format_unit_count(asked: JobRequestView) -> str:
    return (
        format_count(asked.units, "node") if asked.distinct or asked.units == 1 else format_count(asked.units, "task")
    )


def _format_node_spread(asked: JobRequestView) -> str:
    if asked.units == 1:
        return "on one node"
    if asked.distinct:
        return f"on {format_count(asked.units, 'node')}"
    return f"as {asked.units:,} equal tasks, several of which may be on one node"


def _format_amounts(name: str, each: int, asked: JobRequestView) -> str:
    if asked.units == 1:
        return format_amount(name, each)
    place = "node" if asked.distinct else "task"
    return f"{format_amount(name, asked.units * each)}: {format_amount(name, each)} for each {place}"
