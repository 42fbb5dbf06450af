"""A job's request as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cpsched.formatting import amount, many, quantity, resource, span
from cpsched_bridge.web.page_schema import RequestView


def request_summary(asked: RequestView, resources: Sequence[str]) -> str:
    """Return `4 nodes · 256 cores · 1,000 GiB · 8 GPUs · up to 6 h`."""
    totals = [quantity(name, asked.units * each) for name, each in zip(resources, asked.per_unit, strict=False) if each]
    whole = ["whole nodes"] if asked.exclusive else []
    return " · ".join([_places(asked), *totals, *whole, f"up to {span(asked.walltime_s)}"])


def request_details(asked: RequestView, resources: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, amount) of each part of the request."""
    yield "where", _where(asked)
    for name, each in zip(resources, asked.per_unit, strict=False):
        if each:
            yield resource(name), _amounts(name, each, asked)
    if asked.exclusive:
        yield "sharing", "exclusive nodes"
    if asked.nodes_from:
        yield "allowed nodes", ", ".join(map(str, asked.nodes_from))
    yield "time limit", span(asked.walltime_s)


def _places(asked: RequestView) -> str:
    return many(asked.units, "node") if asked.distinct or asked.units == 1 else many(asked.units, "part")


def _where(asked: RequestView) -> str:
    if asked.units == 1:
        return "on one node"
    if asked.distinct:
        return f"on {many(asked.units, 'node')}"
    return f"in {asked.units:,} equal parts, several of which may be on one node"


def _amounts(name: str, each: int, asked: RequestView) -> str:
    if asked.units == 1:
        return amount(name, each)
    place = "node" if asked.distinct else "part"
    return f"{amount(name, asked.units * each)}: {amount(name, each)} for each {place}"
