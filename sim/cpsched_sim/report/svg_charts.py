"""Draw a site's charts as SVG for a web page.

Colours are CSS variables, which follow dark mode.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cpsched_sim.report.charts import escape_mathtext, require_matplotlib

INK, MUTED, BAND = "#101011", "#101012", "#101013"
LINE_COLOURS = tuple(f"#10102{at}" for at in range(8))
"""Placeholder colours that occur nowhere else in a drawing. The page's style sheet defines the actual colours."""
_COLOUR_NAMES = {
    INK: "ink",
    MUTED: "quiet",
    BAND: "band",
    **{color: f"line{at}" for at, color in enumerate(LINE_COLOURS)},
}
_WIDTH = 7.6
Line = tuple[Sequence[float], Sequence[float]]
"""X and y coordinates of a line's points."""


def draw_dot_plot(rows: Sequence[tuple[str, float, float, float]], label: str, band: float, name: str) -> str:
    """Draw differences (name, value, low, high) with their intervals.

    Shade the range within `band` of 0.
    """
    require_matplotlib()
    figure, axes = _new_figure(0.75 + 0.34 * len(rows))
    if band > 0:
        axes.axvspan(-band, band, color=BAND, linewidth=0)
    axes.axvline(0, color=MUTED, linewidth=1)
    for at, (_, value, low, high) in enumerate(rows):
        axes.plot([low, high], [at, at], color=LINE_COLOURS[0], linewidth=3, solid_capstyle="round")
        axes.plot([value], [at], "o", color=INK, markersize=6)
    axes.set_yticks(range(len(rows)), [escape_mathtext(row[0]) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(label, loc="right")
    return _render_svg(figure, axes, name, label)


def draw_line_plot(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    across: str,
    up: str,
    name: str,
    logarithmic: bool = False,
) -> str:
    """Draw one line per name in `series`, given by its x and y coordinates."""
    require_matplotlib()
    figure, axes = _new_figure(3.2)
    for at, (title, (x, y)) in enumerate(series.items()):
        style = (
            {"color": MUTED, "linestyle": "--"} if at == 0 else {"color": LINE_COLOURS[(at - 1) % len(LINE_COLOURS)]}
        )
        axes.plot(x, y, label=escape_mathtext(title), linewidth=1.6, **style)
    if logarithmic:
        axes.set_xscale("symlog", linthresh=60)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    legend = axes.legend(fontsize="small", frameon=False)
    for text in legend.get_texts():
        text.set_color(INK)
    return _render_svg(figure, axes, name, f"{up} by {across}")


def _new_figure(height: float) -> Any:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasSVG(figure)
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    return figure, axes


def _render_svg(figure: Any, axes: Any, name: str, label: str) -> str:
    """Return the drawing as SVG with unique ids and the page's colours and fonts."""
    from matplotlib import rc_context

    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
    for part in (axes.xaxis.label, axes.yaxis.label):
        part.set_color(INK)
    for spine in axes.spines.values():
        spine.set_color(MUTED)
    axes.grid(axis="x", color=BAND, linewidth=0.8)
    axes.set_axisbelow(True)
    drawn = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": ["sans-serif"]}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(#|href="#)', rf"\1{name}-", text)
    for color, variable in _COLOUR_NAMES.items():
        text = text.replace(color, f"var(--{variable})")
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{html_attribute_text(label)}">{rest}'


def html_attribute_text(text: str) -> str:
    """Return text that is safe in an HTML attribute."""
    return re.sub(r'[<>&"]', " ", text)
