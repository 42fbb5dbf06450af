"""The page with the metrics that the bridge serves to Prometheus, generated from the exporter's table."""

from __future__ import annotations

from cpsched_bridge.telemetry.metric_families import METRICS, MetricFamily
from docs.scripts.markdown import code, codes, document, table, unit_of

INTRODUCTION = """\
The bridge serves these metrics at `/metrics`. The settings under `metrics` define the address and port. No metric has a
label per job, user, account or node. *Series* is the largest number of series that a metric can have. The process
metrics `process_*` are also served. [Monitoring](monitoring.md) describes alerts and dashboards."""


def page() -> str:
    """Return the page, with the metrics in order of name."""
    rows = sorted(
        (
            code(served_as(row)),
            row.kind,
            unit_of(row.name),
            codes(row.labels),
            row.max_series,
            row.sentence,
        )
        for row in METRICS
    )
    return document("Metrics", INTRODUCTION, table(("name", "type", "unit", "labels", "series", "meaning"), rows))


def served_as(row: MetricFamily) -> str:
    """Return the name that Prometheus shows for a metric."""
    return f"{row.name}_total" if row.kind == "counter" else row.name
