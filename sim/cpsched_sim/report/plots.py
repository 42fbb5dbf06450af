"""Draws a comparison: figures as bars, and their distributions over the jobs, from the table of metrics.

Shaped after cp19 figures 1 to 3 and mod17 figure 3.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpsched.metrics import METRICS, Measures, Metric
from cpsched_sim.errors import Unusable
from cpsched_sim.files import write_whole

if TYPE_CHECKING:
    from cpsched_sim.comparison import Row

SQUASHED = 30
"""A bar this many times as long as the one in the middle makes an axis logarithmic."""


def check() -> None:
    """Raises `Unusable` where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise Unusable("plots need matplotlib: pip install 'cpsched[report]'") from error


def write_comparison(rows: Sequence[Row], folder: Path, more: Sequence[Metric] = (), title: str = "") -> list[Path]:
    """`bars.png` and `ecdf.png` of the combinations that did not fail; each row has its measures with it.

    Colours tell dispatchers apart, styles of line predictors. A picture is written whole or not at all. Raises
    `Unusable`.
    """
    done = {row.name: row for row in rows if row.summary is not None}
    if not done:
        return []
    drawn = [metric for metric in METRICS if metric.drawn] + list(more)
    measures = {name: row.measures for name, row in done.items() if row.measures is not None}
    summaries = {name: row.summary for name, row in done.items() if row.summary is not None}
    styles = _styles(list(done.values()))
    pictures = [
        _bars(summaries, drawn, styles, title, folder / "bars.png"),
        _distributions(measures, styles, title, folder / "ecdf.png"),
    ]
    if all("accounts" in summary for summary in summaries.values()):
        pictures.append(_shares(summaries, title, folder / "shares.png"))
    return pictures


def _styles(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Row name -> colour and line style: a colour for each dispatcher, a style of line for each predictor."""
    dispatchers = list(dict.fromkeys(row.dispatcher for row in rows))
    predictors = list(dict.fromkeys(row.predictor for row in rows))
    return {
        row.name: {
            "color": f"C{dispatchers.index(row.dispatcher) % 10}",
            "linestyle": ("-", "--", ":", "-.")[predictors.index(row.predictor) % 4],
        }
        for row in rows
    }


def _label(text: str) -> str:
    """`text` as it is: matplotlib takes `$` for mathematics, and leaves labels with `_` in front out of legends."""
    return (f"\u200b{text}" if text.startswith("_") else text).replace("$", r"\$")


def _save(figure: Any, path: Path) -> Path:
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format="png")
    write_whole(path, picture.getvalue())
    return path


def _scale(values: Sequence[float]) -> dict[str, Any]:
    """Arguments of `set_xscale`: logarithmic where one bar would squash the others."""
    positive = [value for value in values if value > 0]
    if not positive or max(positive) <= SQUASHED * sorted(positive)[len(positive) // 2]:
        return {"value": "linear"}
    if len(positive) == len(values):
        return {"value": "log"}
    return {"value": "symlog", "linthresh": min(positive)}


def _figure(columns: int, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns)


def _bars(
    done: Mapping[str, Mapping[str, Any]],
    drawn: Sequence[Metric],
    styles: Mapping[str, Mapping[str, Any]],
    title: str,
    path: Path,
) -> Path:
    figure, panels = _figure(len(drawn), 1.2 + 0.35 * len(done))
    names = list(done)[::-1]
    for column, (axes, metric) in enumerate(zip(panels, drawn, strict=True)):
        values = [done[name][metric.name] for name in names]
        bars = axes.barh(range(len(names)), values, color=[styles[name]["color"] for name in names])
        axes.set_xscale(**_scale(values))
        axes.bar_label(bars, fmt="{:,.4g}", padding=3)
        axes.margins(x=0.25)
        axes.set_xlabel(metric.label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_yticks(*([[]] if column else [range(len(names)), list(map(_label, names))]))
    figure.suptitle(_label(title))
    return _save(figure, path)


MOST_ACCOUNTS = 8
"""Accounts that a picture shows: those with the largest shares."""


MOST_POINTS = 60
"""Points of a line: of longer ones, means over several days are drawn."""


def _thinned(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """(days, means) of a line with a value for each day."""
    step = -(-len(values) // MOST_POINTS)
    parts = [values[at : at + step] for at in range(0, len(values), step)]
    return [at * step + (len(part) + 1) / 2 for at, part in enumerate(parts)], [sum(part) / len(part) for part in parts]


def _shares(done: Mapping[str, Mapping[str, Any]], title: str, path: Path) -> Path:
    """Use by account over time, beside what was due to it: a panel per combination, a colour per account."""
    figure, panels = _figure(len(done), 3.6)
    for axes, (name, summary) in zip([panels] if len(done) == 1 else panels, done.items(), strict=True):
        accounts = sorted(summary["accounts"].items(), key=lambda item: -item[1]["share"])[:MOST_ACCOUNTS]
        for place, (account, row) in enumerate(accounts):
            days, used = _thinned(row["used_by_window"])
            axes.plot(days, used, color=f"C{place}", label=_label(account))
            axes.plot(days, _thinned(row["due_by_window"])[1], color=f"C{place}", linestyle=":", linewidth=1)
        axes.set_title(_label(name), fontsize="small")
        axes.set_xlabel("day")
        axes.set_ylim(0, 1)
        axes.grid(alpha=0.3)
    first = panels if len(done) == 1 else panels[0]
    first.set_ylabel("part of all use (dotted: due by share)")
    axes.legend(fontsize="small", loc="best")
    figure.suptitle(_label(title))
    return _save(figure, path)


def _distributions(
    measures: Mapping[str, Measures], styles: Mapping[str, Mapping[str, Any]], title: str, path: Path
) -> Path:
    figure, (waits, slowdowns) = _figure(2, 3.6)
    for name, jobs in measures.items():
        style = {**styles[name], "label": _label(name)}
        waits.ecdf(jobs.wait_s, **style)
        slowdowns.ecdf(jobs.bounded_slowdown, **style)
    waits.set_xscale("symlog", linthresh=1)
    slowdowns.set_xscale("log")
    for axes, label in ((waits, "wait, s"), (slowdowns, "bounded slowdown")):
        axes.set_xlabel(label)
        axes.set_ylabel("share of jobs")
        axes.grid(alpha=0.3)
    slowdowns.legend(fontsize="small", loc="lower right")
    figure.suptitle(_label(title))
    return _save(figure, path)
