"""The figures of a schedule, from the one table of metrics."""

from __future__ import annotations

from cpsched.metrics import METRICS
from docs.scripts.markdown import code, table

HEADING = ("name", "in tables", "unit", "formula", "better", "source")


def figures() -> str:
    """The table of metrics, in their order."""
    rows = [(code(row.name), row.heading, row.unit or "1", row.formula, row.better, row.source) for row in METRICS]
    return table(HEADING, rows)
