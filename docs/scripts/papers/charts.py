"""Pictures of published figures, drawn of our own results: boxes, bars with deviations, and lines, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.markup import Markup, tag
from docs.scripts import svg
from docs.scripts.svg import GRID, INK, QUIET

COLOURS = ("#607d8b", "#ef6c00", "#2e7d32", "#1565c0", "#8e24aa", "#c62828", "#00838f", "#9e9d24")
LEFT, TOP, ROW, WIDTH = 232, 34, 20, 460
"""Names stand left of the axis; a row for each policy."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A horizontal or vertical axis: values from `low` to `high` on pixels from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value; what lies outside is drawn at the border."""
        low, high, value = (self._scaled(each) for each in (self.low, self.high, value))
        part = (value - low) / (high - low) if high > low else 0.0
        return self.begin + (self.end - self.begin) * min(1.0, max(0.0, part))

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, self.low)) if self.log else value

    def ticks(self) -> list[float]:
        """Powers of ten, or at most seven round numbers."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            step = max(1, math.ceil((last - first) / 8))
            return [10.0**power for power in range(first, last + 1, step)]
        step = 10 ** math.floor(math.log10((self.high - self.low) / 3 or 1))
        step = next(step * many for many in (1, 2, 5, 10) if (self.high - self.low) / (step * many) <= 6)
        return [tick * step for tick in range(math.ceil(self.low / step - 1e-9), int(self.high / step + 1e-9) + 1)]


@dataclass(slots=True)
class _Sheet:
    """A drawing that grows."""

    title: str
    height: float
    width: float = LEFT + WIDTH + 24
    parts: list[Markup] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> None:
        self.parts.append(svg.line(x1, y1, x2, y2, colour, width))

    def box(self, x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> None:
        self.parts.append(svg.box(x, y, width, height, fill, stroke))

    def text(self, x: float, y: float, text: str, colour: str = INK, anchor: str = "start") -> None:
        self.parts.append(svg.text(x, y, text, colour, anchor))

    def done(self) -> str:
        return svg.sheet(self.title, self.width, self.height, *self.parts)


def _rows(title: str, label: str, names: Sequence[str], axis: Axis) -> _Sheet:
    """A sheet with a row for each name and a horizontal axis below."""
    sheet = _Sheet(title, TOP + ROW * len(names) + 44)
    sheet.text(8, 18, title)
    bottom = TOP + ROW * len(names)
    for tick in axis.ticks():
        sheet.line(axis.at(tick), TOP, axis.at(tick), bottom, GRID)
        sheet.text(axis.at(tick), bottom + 16, f"{tick:,.6g}", QUIET, "middle")
    for at, name in enumerate(names):
        sheet.text(LEFT - 8, TOP + ROW * at + 14, name, INK, "end")
    sheet.text(LEFT + WIDTH / 2, bottom + 34, label, INK, "middle")
    return sheet


def boxes(title: str, label: str, spreads: Mapping[str, Sequence[float]], log: bool = True) -> str:
    """A box for each policy: least to largest value, quartiles, median (line), mean (triangle); see `SPREAD`."""
    least = [each[1] for each in spreads.values()]
    most = max(each[5] for each in spreads.values())
    low = max(min(least), 0.1) if log else 0.0
    axis = Axis(low, max(most, low * 10 if log else 1), LEFT, LEFT + WIDTH, log)
    sheet = _rows(title, label, list(spreads), axis)
    groups = list(dict.fromkeys(name.split(" / ")[0] for name in spreads))
    for at, (name, (_, least_, first, median, third, largest, mean, _sd)) in enumerate(spreads.items()):
        y, colour = TOP + ROW * at + 3, COLOURS[groups.index(name.split(" / ")[0]) % len(COLOURS)]
        sheet.line(axis.at(least_), y + 7, axis.at(largest), y + 7, colour)
        for end in (least_, largest):
            sheet.line(axis.at(end), y + 3, axis.at(end), y + 11, colour)
        sheet.box(axis.at(first), y, axis.at(third) - axis.at(first), 14, "#ffffff", colour)
        sheet.line(axis.at(median), y, axis.at(median), y + 14, colour, 2.5)
        x = axis.at(mean)
        sheet.parts.append(tag("path", d=f"M {x - 5:.1f} {y + 11:.1f} h 10 l -5 -9 z", fill=colour))
    return sheet.done()


def bars(
    title: str, label: str, rows: Mapping[str, tuple[float, float | None]], mark: float | None = None, log: bool = False
) -> str:
    """A bar for each name, with its deviation as a thin line where there is one; `mark` is a line across all bars."""
    most = max(value + (deviation or 0) for value, deviation in rows.values())
    axis = Axis(min(v for v, _ in rows.values()) / 2 if log else 0.0, most * 1.12 or 1.0, LEFT, LEFT + WIDTH, log)
    sheet = _rows(title, label, list(rows), axis)
    groups = list(dict.fromkeys(name.split(" / ")[0] for name in rows))
    for at, (name, (value, deviation)) in enumerate(rows.items()):
        y, colour = TOP + ROW * at + 3, COLOURS[groups.index(name.split(" / ")[0]) % len(COLOURS)]
        sheet.box(LEFT, y, axis.at(value) - LEFT, 14, colour)
        if deviation is not None:
            sheet.line(axis.at(max(0.0, value - deviation)), y + 7, axis.at(value + deviation), y + 7, INK)
        end = axis.at(value + (deviation or 0)) + 4
        sheet.text(min(end, LEFT + WIDTH - 10), y + 11, f"{value:,.4g}", INK)
    if mark is not None:
        sheet.line(axis.at(mark), TOP - 4, axis.at(mark), TOP + ROW * len(rows), INK)
    return sheet.done()


def lines(
    title: str,
    across: str,
    up: str,
    series: Mapping[str, Sequence[Sequence[float]]],
    log: bool = False,
    log_up: bool = False,
) -> str:
    """A line for each name through its points (across, up); the names stand right of the drawing's top."""
    points = [point for each in series.values() for point in each]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low = min((x for x in xs if x > 0), default=0.1) if log else min(xs)
    low_up = min((y for y in ys if y > 0), default=0.1) if log_up else min(0.0, *ys)
    x_axis = Axis(low, max(xs), 64, LEFT + WIDTH, log)
    y_axis = Axis(low_up, max(ys), TOP + 220, TOP, log_up)
    sheet = _Sheet(title, TOP + 220 + 46 + 18 * math.ceil(len(series) / 4))
    sheet.text(8, 18, title)
    for tick in x_axis.ticks():
        sheet.line(x_axis.at(tick), TOP, x_axis.at(tick), TOP + 220, GRID)
        sheet.text(x_axis.at(tick), TOP + 236, f"{tick:,.6g}", QUIET, "middle")
    for tick in y_axis.ticks():
        sheet.line(64, y_axis.at(tick), LEFT + WIDTH, y_axis.at(tick), GRID)
        sheet.text(58, y_axis.at(tick) + 4, f"{tick:,.6g}", QUIET, "end")
    sheet.text((64 + LEFT + WIDTH) / 2, TOP + 254, f"{across}; up: {up}", INK, "middle")
    for at, (name, each) in enumerate(series.items()):
        colour = COLOURS[at % len(COLOURS)]
        path = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in each)
        sheet.parts.append(tag("polyline", points=path, fill="none", stroke=colour, stroke_width=1.5))
        x, y = 64 + (at % 4) * 150, TOP + 274 + 18 * (at // 4)
        sheet.line(x, y - 4, x + 18, y - 4, colour, 3)
        sheet.text(x + 24, y, name)
    return sheet.done()
