"""HTML templates, which escape user-written text. The only module that imports Jinja."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cpsched.errors import abbreviate, escape_controls
from cpsched.formatting import amount, change, from_now, many, milliseconds, percent, resource, span, to_come

HERE = Path(__file__).resolve().parent
STATIC = HERE / "static"
_MOST_LETTERS = 120
_MOST_NODES = 8


def shown(text: object) -> str:
    """Return user-written text as one line of limited length; the template escapes it."""
    words = escape_controls(str(text))
    return words if len(words) <= _MOST_LETTERS else words[: _MOST_LETTERS - 1] + "…"


def nodes(indices: Sequence[int], names: Sequence[str]) -> str:
    """Return `node01, node02, node03 and 5 more`."""
    return abbreviate(indices, _MOST_NODES, text=lambda index: shown(names[index]))


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip
_ENVIRONMENT.filters.update(
    span=span, from_now=from_now, to_come=to_come, change=change, shown=shown, percent=percent, ms=milliseconds,
    line=escape_controls, nodes=nodes, number=lambda value: f"{value:,}", amount=lambda value, name: amount(name, value),  # noqa: E501
    resource=resource, many=many,
)  # fmt: skip


def page(name: str, **values: Any) -> str:
    """Render a template. Raise Jinja's error if a value is missing."""
    return _ENVIRONMENT.get_template(name).render(values)
