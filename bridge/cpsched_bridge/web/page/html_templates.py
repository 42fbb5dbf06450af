"""Render HTML templates, which escape user-written text.

Only this module imports Jinja.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cpsched.errors import escape_controls, join_abbreviated
from cpsched.formatting import (
    format_amount,
    format_count,
    format_duration,
    format_milliseconds,
    format_percent,
    format_planned_time,
    format_relative_time,
    format_start_change,
    resource_label,
)
from cpsched_bridge.views.job_explanation import format_easy_comparison

PAGE_FOLDER = Path(__file__).resolve().parent
STATIC_FOLDER = PAGE_FOLDER / "static"
_MAX_TEXT_CHARS = 120
_MAX_NODES = 8


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
