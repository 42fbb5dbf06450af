"""Draws a comparison: mean slowdown and wait as bars, and their distributions over the jobs.

Shaped after cp19 figures 1 to 3 and mod17 figure 3. Values come from `compare` and from the schedules it wrote.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cpsched_sim.errors import Unusable
from cpsched_sim.metrics import BSLD_BOUND_S, FloatArray

if TYPE_CHECKING:
    from cpsched_sim.compare import Row

_BARS = {"mean_slowdown": "mean slowdown", "bsld": "mean bounded slowdown", "mean_wait_s": "mean wait, s"}


def check() -> None:
    """Raises `Unusable` where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise Unusable("plots need matplotlib: pip install 'cpsched[report]'") from error


def write_comparison(rows: Sequence[Row], folder: Path) -> list[Path]:
    """`bars.png` and `ecdf.png` of the combinations that did not fail, from the schedules below `folder`."""
    done = {row.name: row.summary for row in rows if row.summary is not None}
    if not done:
        return []
    jobs = {name: _schedule(folder / name.replace("/", "-") / "schedule.csv.gz") for name in done}
    return [_bars(done, folder / "bars.png"), _distributions(jobs, folder / "ecdf.png")]


def _schedule(path: Path) -> tuple[FloatArray, FloatArray]:
    """(wait in seconds, bounded slowdown) of every job that ran."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        times = [(int(r["submit_s"]), int(r["start_s"]), int(r["end_s"])) for r in csv.DictReader(file) if r["start_s"]]
    submit_s, start_s, end_s = np.array(times, dtype=np.float64).T
    slowdown = np.maximum(1.0, (end_s - submit_s) / np.maximum(end_s - start_s, BSLD_BOUND_S))
    return start_s - submit_s, slowdown


def _figure(columns: int, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns)


def _bars(done: Mapping[str, Mapping[str, Any]], path: Path) -> Path:
    figure, panels = _figure(len(_BARS), 1.2 + 0.35 * len(done))
    names = list(done)[::-1]
    for column, (axes, (key, label)) in enumerate(zip(panels, _BARS.items(), strict=True)):
        bars = axes.barh(names if column == 0 else range(len(names)), [done[name][key] for name in names])
        axes.bar_label(bars, fmt="{:,.4g}", padding=3)
        axes.margins(x=0.25)
        axes.set_xlabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        if column:
            axes.set_yticks([])
    figure.savefig(path, dpi=120)
    return path


def _distributions(jobs: Mapping[str, tuple[FloatArray, FloatArray]], path: Path) -> Path:
    figure, (waits, slowdowns) = _figure(2, 3.6)
    for number, (name, (wait_s, slowdown)) in enumerate(jobs.items()):
        style = {"label": name, "linestyle": ("-", "--", ":", "-.")[number // 10 % 4]}
        waits.ecdf(wait_s, **style)
        slowdowns.ecdf(slowdown, **style)
    waits.set_xscale("symlog", linthresh=1)
    slowdowns.set_xscale("log")
    for axes, label in ((waits, "wait, s"), (slowdowns, "bounded slowdown")):
        axes.set_xlabel(label)
        axes.set_ylabel("share of jobs")
        axes.grid(alpha=0.3)
    slowdowns.legend(fontsize="small", loc="lower right")
    figure.savefig(path, dpi=120)
    return path
