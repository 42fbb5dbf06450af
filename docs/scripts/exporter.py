"""The metrics that the bridge serves to Prometheus, from the exporter's own registry."""

from __future__ import annotations

from prometheus_client.metrics import MetricWrapperBase

from cpsched_bridge.watch.exporter import Exporter
from docs.scripts.markdown import code, table


def table_rows() -> list[tuple[str, str, str, str]]:
    """Name as served, type, labels, and the sentence; in order of name."""
    exporter = Exporter()
    collectors = [value for value in vars(exporter).values() if isinstance(value, MetricWrapperBase)]
    labels = {family.name: collector._labelnames for collector in collectors for family in collector.describe()}
    rows = []
    for family in exporter.registry.collect():
        # The gauge of the version is set once and kept by nobody: its labels are those of its sample.
        used = {label for sample in family.samples for label in sample.labels} - {"le"}
        named = labels.get(family.name) or sorted(used)
        name = family.name + ("_total" if family.type == "counter" else "")
        rows.append((name, family.type, ", ".join(map(code, named)) or "none", family.documentation))
    return sorted(rows)


def table_text() -> str:
    """The table."""
    return table(("name", "type", "labels", "meaning"), [(code(name), *rest) for name, *rest in table_rows()])
