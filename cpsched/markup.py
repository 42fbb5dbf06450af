"""Build HTML and SVG elements from values, with all text and attributes escaped."""

from __future__ import annotations

from html import escape
from typing import Self

_EMPTY = frozenset(("circle", "line", "meta", "path", "polygon", "polyline", "rect"))
"""Elements that need no closing tag if they have no children."""


class Markup(str):
    """Text that is already HTML or SVG. Jinja does not escape it."""

    __slots__ = ()

    def __html__(self) -> Self:
        """Return the markup itself."""
        return self


def escape_markup(value: object) -> str:
    """Return a value as markup, with text escaped and floats rounded to one decimal."""
    if isinstance(value, Markup):
        return value
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))


def make_markup_element(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element, such as `make_markup_element("a", "x < y", href="?a&b")`.

    In attribute names, an underscore becomes a hyphen, and a trailing underscore is dropped (`class_`). An attribute
    whose value is None is omitted.
    """
    given = "".join(
        f' {each.rstrip("_").replace("_", "-")}="{escape_markup(value)}"'
        for each, value in attributes.items()
        if value is not None
    )
    if not children and name in _EMPTY:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{''.join(map(escape_markup, children))}</{name}>")
