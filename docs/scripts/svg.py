"""The parts that all drawings of the site are made of."""

from __future__ import annotations

from cpsched.markup import Markup, tag

INK, QUIET, GRID = "#37474f", "#78909c", "#eceff1"


def sheet(title: str, width: float, height: float, *parts: Markup) -> str:
    """A drawing on white ground."""
    ground = tag("rect", width=width, height=height, fill="#ffffff")
    drawn = tag(
        "svg", *(part for each in (tag("title", title), ground, *parts) for part in ("\n", each)), "\n",
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}", role="img", font_family="sans-serif",
        font_size=12,
    )  # fmt: skip
    return f"{drawn}\n"


def text(x: float, y: float, words: str, fill: str = INK, anchor: str = "start", **more: object) -> Markup:
    """Words from, around or up to a point."""
    return tag("text", words, x=x, y=y, fill=fill, text_anchor=anchor, **more)


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none", **more: object) -> Markup:
    """A rectangle of at least half a pixel."""
    return tag("rect", x=x, y=y, width=max(width, 0.5), height=height, fill=fill, stroke=stroke, **more)


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, width: float = 1) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_width=width)
