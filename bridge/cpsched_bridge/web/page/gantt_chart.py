"""Draw jobs over nodes and time as SVG, for the page and `cpsched gantt`.

Up to `MAX_ROWS` nodes are drawn as one row each, with one bar per job, whose height is its share of the node's
processors. More nodes are drawn in groups. A group's row shows the share of its processors that is in use or planned
over time. A drawing of 10,000 nodes is therefore small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cpsched.errors import escape_controls
from cpsched.formatting import format_count, format_duration, format_relative_time
from cpsched.markup import Markup, make_markup_element
from cpsched_bridge.views.status_view import GanttBar, GanttChartView, NodeOutageView

MAX_ROWS = 64
_MAX_BARS = 4000
"""Maximum number of bars in a drawing. With more bars, nodes are drawn in groups."""
_LEFT, _RIGHT, _TOP, _BOTTOM, _WIDTH = 130, 12, 26, 8, 1200
_MIN_EDGE_DISTANCE = 20
"""Minimum distance from the edge at which a centered label is not cut off."""
_MIN_ROW_HEIGHT, _MAX_ROW_HEIGHT, _ROW_GAP = 18, 120, 3
_TIME_STEPS = 300
"""Number of time steps in the curve that shows the use of a group."""
_TICKS_S = (60, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 30 * 86400)
_COLORS = 8
_OUTAGE_TEXTS = {"reserved": "reserved", "drained": "drained", "down": "down", "unknown": "drained, down or reserved"}

_MAX_LANES = 128
"""Maximum number of lanes in a node's row. Nodes with more processors have several per lane."""
_CAPTION = 36
"""Height of the title and the legend above the axis of a drawing in a file."""
BARS_LEGEND = "Each bar is a job. Its height is its share of the node's processors. Colors only separate jobs."
SHARES_LEGEND = "Not single jobs: each row shows the share of its processors that is in use over time, from 0 to 100 %."

Span = tuple[int, int, Sequence[tuple[int, int]]]
"""Begin and end in seconds, and processors in use as (node index, number)."""
_MAX_NAME_CHARS = 60

STYLE = """
.g-back { fill: #fff } .g-row { fill: #f1f3f5 } .g-text { fill: #333; font: 11px sans-serif }
.g-grid { stroke: #c9ced3; stroke-width: 1 } .g-now { stroke: #c62828; stroke-width: 2 }
.g-out { fill: url(#g-hatch); pointer-events: none }
.g-hatched { stroke: #7a828a; stroke-width: 2 }
.g-bar { stroke-width: 0 } .g-past { opacity: .45 }
.g-planned { fill-opacity: .25; stroke-width: 1.2; stroke-dasharray: 3 2 }
.g-0 { fill: #4477aa; stroke: #4477aa } .g-1 { fill: #cf3f52; stroke: #cf3f52 } .g-2 { fill: #228833; stroke: #228833 }
.g-3 { fill: #857000; stroke: #857000 } .g-4 { fill: #1d7690; stroke: #1d7690 } .g-5 { fill: #aa3377; stroke: #aa3377 }
.g-6 { fill: #5b5b8f; stroke: #5b5b8f } .g-7 { fill: #b4550f; stroke: #b4550f }
.g-label { fill: #fff; font: 10px sans-serif; stroke: none; pointer-events: none }
.g-labelp { fill: #333; font: 10px sans-serif; stroke: none; pointer-events: none }
.g-use { fill: #4477aa } .g-plan { fill: #4477aa; fill-opacity: .3 }
@media (prefers-color-scheme: dark) {
.g-back { fill: #16191d } .g-row { fill: #23282e } .g-text, .g-labelp { fill: #d6dade } .g-grid { stroke: #454c54 }
.g-now { stroke: #ff6b6b } .g-use, .g-plan { fill: #6ea8dc } }
"""
"""Style sheet with Paul Tol's colors, which suit all types of color vision. Contrast with white: at least 4.5."""


@dataclass(frozen=True, slots=True)
class GanttWindow:
    """The visible part of the chart.

    It is an interval in seconds and a half-open range of node indices.
    """

    from_s: int
    to_s: int
    first: int
    last: int
    live: bool = True
    """Whether to mark the current time. Otherwise, times are relative to the schedule's start, `now_s` of the chart."""

    @property
    def row_height(self) -> float:
        """Height of a row. Fewer rows are higher, which separates parallel jobs better."""
        return max(_MIN_ROW_HEIGHT, min(_MAX_ROW_HEIGHT, 320 / min(MAX_ROWS, self.last - self.first)))

    @classmethod
    def around_now(
        cls, chart: GanttChartView, before_s: int, after_s: int, first: int = 0, last: int | None = None
    ) -> GanttWindow:
        """Return a window around the current time, limited to existing nodes."""
        most = len(chart.node_names)
        low = min(max(0, first), max(0, most - 1))
        high = most if last is None else min(max(low + 1, last), most)
        return cls(chart.now_s - before_s, chart.now_s + max(1, after_s), low, high)

    def x(self, at_s: float) -> float:
        """Return the x coordinate of a time in seconds."""
        share = (at_s - self.from_s) / (self.to_s - self.from_s)
        return _LEFT + max(0.0, min(1.0, share)) * (_WIDTH - _LEFT - _RIGHT)


@dataclass(frozen=True, slots=True)
class GanttLinkTargets:
    """The link targets in a drawing. An empty address disables the links."""

    job: Callable[[int], str] = lambda id: ""
    nodes: Callable[[int, int], str] = lambda first, last: ""


def draw_gantt_svg(
    chart: GanttChartView,
    window: GanttWindow,
    links: GanttLinkTargets | None = None,
    alone: bool = False,
    title: str = "",
) -> Markup:
    """Return the chart as SVG. `alone` includes the style sheet in the file."""
    links = links or GanttLinkTargets()
    shown = [bar for bar in chart.bars if bar.end_s > window.from_s and bar.begin_s < window.to_s]
    inside = [bar for bar in shown if any(window.first <= node < window.last for node, _ in bar.nodes)]
    rows = window.last - window.first
    single = draws_single_jobs(chart, window)
    made = (
        _draw_single_nodes(chart, window, inside, links) if single else _draw_node_groups(chart, window, inside, links)
    )
    body = list(made)
    heights = rows if single else len(group_nodes(window))
    height = _TOP + heights * (window.row_height + _ROW_GAP) + _BOTTOM
    above = _CAPTION if alone else 0
    text = title or describe_chart(chart, window)
    hatch = make_markup_element("path", class_="g-hatched", d="M0 0V6")
    size = {"patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    return make_markup_element(
        "svg",
        make_markup_element("title", text),
        make_markup_element("style", Markup(STYLE)) if alone else "",
        make_markup_element("defs", make_markup_element("pattern", hatch, id="g-hatch", width=6, height=6, **size)),
        make_markup_element("rect", class_="g-back", y=-above, width=_WIDTH, height=height + above),
        *(_draw_caption(text, single) if alone else ()),
        *_draw_axis(chart, window, height),
        *body,
        *_draw_current_time(chart, window, height),
        class_="gantt", xmlns="http://www.w3.org/2000/svg" if alone else None,
        viewBox=f"0 {-above} {_WIDTH} {height + above:.0f}", role="img", aria_label=text,
    )  # fmt: skip


def draws_single_jobs(chart: GanttChartView, window: GanttWindow) -> bool:
    """Return whether the window is drawn with one bar per job, not as shares of groups."""
    pieces = sum(
        window.first <= node < window.last
        for bar in chart.bars
        if bar.end_s > window.from_s and bar.begin_s < window.to_s
        for node, _ in bar.nodes
    )
    return window.last - window.first <= MAX_ROWS and pieces <= _MAX_BARS


def _draw_caption(title: str, single: bool) -> Iterable[Markup]:
    """Return the title and the legend of a drawing in a file."""
    for y, text in ((14 - _CAPTION, title), (30 - _CAPTION, BARS_LEGEND if single else SHARES_LEGEND)):
        yield make_markup_element("text", escape_controls(text), class_="g-text", x=8, y=y)


def describe_chart(chart: GanttChartView, window: GanttWindow) -> str:
    """Return a sentence that describes the chart for readers who cannot see it."""
    kinds = dict.fromkeys(("running", "planned", "past"), 0)
    for bar in chart.bars:
        if bar.end_s > window.from_s and bar.begin_s < window.to_s:
            kinds[bar.kind] += 1
    nodes, running = window.last - window.first, kinds["running"]
    shut = {
        node for each in _select_outages(chart, window) for node in each.nodes if window.first <= node < window.last
    }
    return (
        f"{format_count(nodes, 'node')} from {format_duration(chart.now_s - window.from_s)} ago "
        f"until {format_duration(window.to_s - chart.now_s)} from now: {format_count(running, 'job')} running, "
        f"{kinds['planned']} planned, {kinds['past']} ended"
        + (f"; {len(shut)} of the nodes drained, down or reserved for a time" if shut else "")
        + ". The tables on this page list them."
    )


def group_nodes(window: GanttWindow) -> list[tuple[int, int]]:
    """Return at most `MAX_ROWS` groups of neighboring nodes."""
    nodes = window.last - window.first
    size = -(-nodes // MAX_ROWS)
    return [(first, min(first + size, window.last)) for first in range(window.first, window.last, size)]


# ---------------------------------------------------------------------------------------------------- time and frame


def _draw_axis(chart: GanttChartView, window: GanttWindow, height: float) -> Iterable[Markup]:
    length_s = window.to_s - window.from_s
    step_s = next((s for s in _TICKS_S if length_s / s <= 12), -(-length_s // 12))
    first = -((chart.now_s - window.from_s) // step_s) * step_s
    for ahead_s in range(first, window.to_s - chart.now_s + 1, step_s):
        x = window.x(chart.now_s + ahead_s)
        sign = "−" if ahead_s < 0 else "+" if window.live else ""
        text = f"{sign}{_format_tick(abs(ahead_s))}" if ahead_s else "now" if window.live else "0"
        yield _draw_vertical_line(x, height, "g-grid")
        anchor = "end" if x > _WIDTH - _MIN_EDGE_DISTANCE else "middle"
        x = min(x, _WIDTH - 2) if anchor == "end" else x
        yield make_markup_element("text", text, class_="g-text", text_anchor=anchor, x=x, y=_TOP - 10)


def _draw_vertical_line(x: float, height: float, kind: str) -> Markup:
    return make_markup_element("path", class_=kind, d=f"M{x:.1f} {_TOP - 6}V{height - _BOTTOM:.1f}")


def _format_tick(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds % size == 0 and (unit != "min" or seconds < 3600):
            return f"{seconds // size} {unit}"
    return format_duration(seconds)


def _draw_current_time(chart: GanttChartView, window: GanttWindow, height: float) -> Iterable[Markup]:
    if window.live and window.from_s <= chart.now_s <= window.to_s:
        yield _draw_vertical_line(window.x(chart.now_s), height, "g-now")


def _draw_row_label(y: float, high: float, words: str, link: str = "", more: str = "") -> Markup:
    shown = escape_controls(words)
    cut = shown if len(shown) <= 18 else shown[:17] + "…"
    full = f"{shown}{more}"
    place = {"text_anchor": "end", "x": _LEFT - 8, "y": y + high / 2 + 4}
    text = make_markup_element("text", cut, make_markup_element("title", full), class_="g-text", **place)
    return make_markup_element("a", text, href=link, aria_label=full, tabindex=-1) if link else text


def _draw_row(y: float, window: GanttWindow) -> Markup:
    return make_markup_element(
        "rect", class_="g-row", x=_LEFT, y=y, width=_WIDTH - _LEFT - _RIGHT, height=window.row_height
    )


def _draw_outage(outage: NodeOutageView, window: GanttWindow, y: float) -> Markup:
    """Return a hatched area for a node's outage, up to the edge if the end is unknown."""
    left, right = window.x(outage.from_s), window.x(_get_visible_end_s(outage, window))
    text = (
        f"{outage.kind} {escape_controls(outage.name)[:_MAX_NAME_CHARS]}" if outage.name else _OUTAGE_TEXTS[outage.kind]
    )
    size = {"width": max(1.0, right - left), "height": window.row_height}
    return make_markup_element("rect", make_markup_element("title", text), class_="g-out", x=left, y=y, **size)


def _get_visible_end_s(outage: NodeOutageView, window: GanttWindow) -> int:
    return window.to_s if outage.to_s is None else outage.to_s


def _select_outages(chart: GanttChartView, window: GanttWindow) -> list[NodeOutageView]:
    """Return the outages in the window."""
    return [
        each for each in chart.outages if each.from_s < window.to_s and _get_visible_end_s(each, window) > window.from_s
    ]


# ----------------------------------------------------------------------------------------------------- node by node


def _draw_single_nodes(
    chart: GanttChartView, window: GanttWindow, bars: Sequence[GanttBar], links: GanttLinkTargets
) -> Iterable[Markup]:
    outages = _select_outages(chart, window)
    by_node: dict[int, list[tuple[GanttBar, int]]] = {node: [] for node in range(window.first, window.last)}
    for bar in bars:
        for node, processors in bar.nodes:
            if node in by_node:
                by_node[node].append((bar, processors))
    for i, (node, on_it) in enumerate(by_node.items()):
        y = _TOP + i * (window.row_height + _ROW_GAP)
        yield _draw_row(y, window)
        yield _draw_row_label(y, window.row_height, chart.node_names[node])
        capacity = max(1, chart.processors[node])
        lanes = min(_MAX_LANES, capacity)
        wide = [min(lanes, max(1, round(used * lanes / capacity))) for _, used in on_it]
        spans = [(bar.begin_s, bar.end_s, number) for (bar, _), number in zip(on_it, wide, strict=True)]
        high = window.row_height / lanes
        for (bar, _), runs in zip(on_it, assign_lanes(spans, lanes), strict=True):
            link = links.job(bar.id)
            for lane, number in runs:
                drawn = _draw_bar(bar, chart.now_s, window, y + lane * high, number * high)
                yield make_markup_element("a", drawn, href=link, tabindex=-1) if link else drawn
        # Drawn on top of the bars, to show jobs that overlap a maintenance window.
        yield from (_draw_outage(outage, window, y) for outage in outages if node in outage.nodes)


def assign_lanes(bars: Sequence[tuple[int, int, int]], lanes: int) -> list[list[tuple[int, int]]]:
    """Return the lanes of each bar (begin, end, number of lanes) as runs (first lane, number).

    A bar gets the first lanes that are next to each other and free, or else the first free ones. If too few are free,
    because amounts are rounded or readings overlap, it shares those that become free first.
    """
    ends = np.full(lanes, np.iinfo(np.int64).min)
    found: list[list[tuple[int, int]]] = [[]] * len(bars)
    for i in sorted(range(len(bars)), key=lambda i: bars[i][0]):
        begin_s, end_s, wide = bars[i]
        taken = np.argsort(np.maximum(ends, begin_s), kind="stable")[:wide]
        runs = np.flatnonzero(np.convolve(ends <= begin_s, np.ones(wide, int), "valid") == wide)
        if len(runs):
            taken = np.arange(runs[0], runs[0] + wide)
        ends[taken] = end_s
        taken = np.sort(taken)
        cuts = np.split(taken, np.flatnonzero(np.diff(taken) > 1) + 1)
        found[i] = [(int(cut[0]), len(cut)) for cut in cuts]
    return found


def _draw_bar(bar: GanttBar, now_s: int, window: GanttWindow, y: float, high: float) -> Markup:
    left, right = window.x(bar.begin_s), window.x(bar.end_s)
    wide = max(1.0, right - left)
    kinds = f"g-bar g-{bar.id % _COLORS} g-{bar.kind}"
    title = make_markup_element("title", _format_bar_title(bar, now_s))
    gap = min(1.0, high / 4)
    shape = make_markup_element("rect", title, class_=kinds, x=left, y=y + gap / 2, width=wide, height=high - gap)
    label = escape_controls(bar.label)[:20]
    if wide > 7 * len(label) + 6 and high >= 11:
        kind = "g-labelp" if bar.kind == "planned" else "g-label"
        shape = Markup(shape + make_markup_element("text", label, class_=kind, x=left + 4, y=y + high / 2 + 3.5))
    return shape


def _format_bar_title(bar: GanttBar, now_s: int) -> str:
    user = f" of {escape_controls(bar.user)[:_MAX_NAME_CHARS]}" if bar.user else ""
    begun = {"past": "ran", "running": "runs", "planned": "is planned"}[bar.kind]
    return (
        f"job {escape_controls(bar.label)}{user} {begun} on {format_count(len(bar.nodes), 'node')}: "
        f"begin {format_relative_time(bar.begin_s, now_s)}, end {format_relative_time(bar.end_s, now_s)}"
    )


# -------------------------------------------------------------------------------------------------- group by group


def _draw_node_groups(
    chart: GanttChartView, window: GanttWindow, bars: Sequence[GanttBar], links: GanttLinkTargets
) -> Iterable[Markup]:
    parts = group_nodes(window)
    run = compute_group_usage(_list_spans(bars, ("past", "running")), window, parts, chart.processors)
    plan = compute_group_usage(_list_spans(bars, ("planned",)), window, parts, chart.processors)
    outages = _select_outages(chart, window)
    out = compute_group_usage(
        [
            (each.from_s, _get_visible_end_s(each, window), [(node, chart.processors[node]) for node in each.nodes])
            for each in outages
        ],
        window,
        parts,
        chart.processors,
    )
    for i, (first, last) in enumerate(parts):
        y = _TOP + i * (window.row_height + _ROW_GAP)
        yield _draw_row(y, window)
        names = chart.node_names
        words = names[first] if last - first == 1 else f"{names[first]} – {names[last - 1]}"
        yield _draw_row_label(y, window.row_height, words, links.nodes(first, last), f", {last - first} nodes")
        yield _draw_area(out[i], y, window.row_height, "g-out", f"{words}: {_OUTAGE_TEXTS['unknown']}")
        both = np.minimum(1.0, run[i] + plan[i])
        yield _draw_area(both, y, window.row_height, "g-plan", f"{words}: in use and planned")
        yield _draw_area(run[i], y, window.row_height, "g-use", f"{words}: in use")


def _list_spans(bars: Iterable[GanttBar], kinds: Sequence[str]) -> Iterable[Span]:
    return ((bar.begin_s, bar.end_s, bar.nodes) for bar in bars if bar.kind in kinds)


def compute_group_usage(
    spans: Iterable[Span], window: GanttWindow, parts: Sequence[tuple[int, int]], processors: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Return the mean share of each group's processors in use per bin, float64[groups, bins]."""
    size = parts[0][1] - parts[0][0]
    edges_s = np.linspace(window.from_s, window.to_s, _TIME_STEPS + 1)
    step_s = (window.to_s - window.from_s) / _TIME_STEPS
    busy = np.zeros((window.last - window.first, _TIME_STEPS))
    for begin_s, end_s, on in spans:
        inside = [(node - window.first, number) for node, number in on if window.first <= node < window.last]
        if inside:
            nodes, numbers = np.array(inside).T
            shares = np.diff(np.clip(edges_s, begin_s, max(begin_s, end_s))) / step_s
            busy[nodes] += numbers[:, None] * shares
    capacity = np.array(processors[window.first : window.last], np.int64)
    busy = np.minimum(busy, capacity[:, None])  # outages may overlap
    groups = [slice(i * size, i * size + (last - first)) for i, (first, last) in enumerate(parts)]
    return np.stack([busy[group].sum(axis=0) / max(1, int(capacity[group].sum())) for group in groups])


def _draw_area(shares: npt.NDArray[np.float64], y: float, high: float, kind: str, title: str) -> Markup:
    """Return the shares as an area bounded by a step curve."""
    if not shares.any():
        return Markup()
    wide = (_WIDTH - _LEFT - _RIGHT) / _TIME_STEPS
    base = y + high
    changes = [0, *(np.flatnonzero(np.diff(shares)) + 1).tolist(), _TIME_STEPS]
    path = [f"M{_LEFT} {base:.1f}"]
    for begin, end in pairwise(changes):
        path.append(f"V{base - high * float(shares[begin]):.1f}H{_LEFT + wide * end:.1f}")
    return make_markup_element(
        "path", make_markup_element("title", escape_controls(title)), class_=kind, d=f"{''.join(path)}V{base:.1f}Z"
    )


def draw_sparkline(shares: Sequence[float], title: str) -> Markup:
    """Return a small line chart of shares from 0 to 1."""
    if len(shares) < 2:
        return Markup()
    step = 160 / (len(shares) - 1)
    points = " ".join(f"{i * step:.1f},{30 - 28 * max(0.0, min(1.0, share)):.1f}" for i, share in enumerate(shares))
    line = make_markup_element("polyline", points=points)
    frame = {"class_": "spark", "viewBox": "0 0 160 31", "role": "img", "aria_label": title}
    return make_markup_element("svg", make_markup_element("path", class_="g-grid", d="M0 30.5H160"), line, **frame)
