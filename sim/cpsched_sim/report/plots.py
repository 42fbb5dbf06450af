"""Draws a comparison: figures as bars, and their distributions over the jobs, from the table of metrics.

Shaped after cp19 figures 1 to 3 and mod17 figure 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpsched.metrics import METRICS, Measures, Metric
from cpsched_sim.errors import Unusable

if TYPE_CHECKING:
    from cpsched_sim.comparison import Row


def check() -> None:
    """Raises `Unusable` where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise Unusable("plots need matplotlib: pip install 'cpsched[report]'") from error


def write_comparison(rows: Sequence[Row], folder: Path, more: Sequence[Metric] = ()) -> list[Path]:
    """`bars.png` and `ecdf.png` of the combinations that did not fail; each row has its measures with it."""
    done = {row.name: row for row in rows if row.summary is not None}
    if not done:
        return []
    drawn = [metric for metric in METRICS if metric.drawn] + list(more)
    measures = {name: row.measures for name, row in done.items() if row.measures is not None}
    summaries = {name: row.summary for name, row in done.items() if row.summary is not None}
    return [_bars(summaries, drawn, folder / "bars.png"), _distributions(measures, folder / "ecdf.png")]


def _figure(columns: int, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns)


def _bars(done: Mapping[str, Mapping[str, Any]], drawn: Sequence[Metric], path: Path) -> Path:
    figure, panels = _figure(len(drawn), 1.2 + 0.35 * len(done))
    names = list(done)[::-1]
    for column, (axes, metric) in enumerate(zip(panels, drawn, strict=True)):
        bars = axes.barh(names if column == 0 else range(len(names)), [done[name][metric.name] for name in names])
        axes.bar_label(bars, fmt="{:,.4g}", padding=3)
        axes.margins(x=0.25)
        axes.set_xlabel(metric.label)
        axes.spines[["top", "right"]].set_visible(False)
        if column:
            axes.set_yticks([])
    figure.savefig(path, dpi=120)
    return path


def _distributions(measures: Mapping[str, Measures], path: Path) -> Path:
    figure, (waits, slowdowns) = _figure(2, 3.6)
    for number, (name, jobs) in enumerate(measures.items()):
        style = {"label": name, "linestyle": ("-", "--", ":", "-.")[number // 10 % 4]}
        waits.ecdf(jobs.wait_s, **style)
        slowdowns.ecdf(jobs.bounded_slowdown, **style)
    waits.set_xscale("symlog", linthresh=1)
    slowdowns.set_xscale("log")
    for axes, label in ((waits, "wait, s"), (slowdowns, "bounded slowdown")):
        axes.set_xlabel(label)
        axes.set_ylabel("share of jobs")
        axes.grid(alpha=0.3)
    slowdowns.legend(fontsize="small", loc="lower right")
    figure.savefig(path, dpi=120)
    return path
