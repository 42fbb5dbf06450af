"""The metrics that the bridge serves to Prometheus, from the table that the exporter is made of."""

from __future__ import annotations

from cpsched_bridge.telemetry.metric_families import METRICS, MetricFamily
from docs.scripts.markdown import code, table


def table_rows() -> list[tuple[str, str, str, str, str]]:
    """Name as served, type, labels, the most series it can have, and the sentence; in order of name."""
    return sorted(
        (_served_as(row), row.kind, ", ".join(map(code, row.labels)) or "none", str(row.series_at_most), row.sentence)
        for row in METRICS
    )


def _served_as(row: MetricFamily) -> str:
    return row.name + ("_total" if row.kind == "counter" else "")


def table_text() -> str:
    """The table."""
    heading = ("name", "type", "labels", "series at most", "meaning")
    return table(heading, [(code(name), *rest) for name, *rest in table_rows()])
