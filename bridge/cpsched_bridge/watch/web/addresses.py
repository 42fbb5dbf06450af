"""Every name under /api, and the type of its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

from cpsched_bridge.watch.page import schema
from cpsched_bridge.watch.page.nodes import nodes

API: dict[str, tuple[Any, Callable[[schema.View], Any]]] = {
    "status": (schema.Status, lambda view: view.status),
    "queue": (list[schema.QueuedJob], lambda view: view.queue),
    "running": (list[schema.RunningJob], lambda view: view.running),
    "aside": (list[schema.AsideJob], lambda view: view.aside),
    "decisions": (list[schema.DecisionLine], lambda view: view.decisions),
    "history": (list[schema.UseAt], lambda view: view.history),
    "trend": (list[schema.Point], lambda view: view.trend),
    "plan": (schema.Chart, lambda view: view.chart),
    "nodes": (list[schema.Node], nodes),
    "settings": (list[schema.Setting], lambda view: view.settings),
    "promises": (list[schema.Promised], lambda view: view.promises),
}
"""Name under /api -> the type of the answer, and how it is taken from a view."""

QUESTIONS: dict[str, Any] = {"when": list[schema.WhenAnswer], "windows": list[schema.WindowAnswer]}
"""Names under /api of what a bridge answers to those who would submit something -> the type of the answer."""
ADDRESSES: dict[str, Any] = {name: kind for name, (kind, _) in API.items()} | {
    "jobs/ID": schema.JobAnswer,
    **QUESTIONS,
}
"""Every name under /api -> the type of the answer."""


SCHEMA: dict[str, Any] = {
    f"/api/{name}": TypeAdapter(kind).json_schema(mode="serialization") for name, kind in ADDRESSES.items()
}
"""JSON Schema of every answer, by its address."""
