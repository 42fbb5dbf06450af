"""Elements of HTML and SVG from values: texts and attributes are escaped in this one place."""

from __future__ import annotations

from html import escape
from typing import Self

_EMPTY = frozenset(("circle", "line", "meta", "path", "polygon", "polyline", "rect"))
"""Elements that seldom hold anything."""


class Markup(str):
    """A text that is HTML or SVG already. Jinja's templates take it as it is."""

    __slots__ = ()

    def __html__(self) -> Self:
        """The same."""
        return self


def safe(value: object) -> str:
    """A value as markup: a text is escaped, a number has at most one digit after its point."""
    if isinstance(value, Markup):
        return value
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element: `tag("a", "x < y", href="?a&b")`.

    In the names of attributes an underscore is a hyphen, and one at the end is nothing (`class_`); None leaves out.
    """
    given = "".join(
        f' {each.rstrip("_").replace("_", "-")}="{safe(value)}"'
        for each, value in attributes.items()
        if value is not None
    )
    if not children and name in _EMPTY:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{''.join(map(safe, children))}</{name}>")
