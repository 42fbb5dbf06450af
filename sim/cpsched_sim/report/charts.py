"""Plots of results for notebooks and papers: metrics as bars, and distributions over jobs.

The plots are modelled on cp19 figures 1 to 3 and mod17 figure 3. The functions of the public API return a `Chart`:

    from cpsched_sim import compare, draw_bars
    draw_bars(compare("day.csv.gz", ["easy", "list-saf"])).save("bars.png")
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpsched.errors import require
from cpsched.metrics import METRICS, Metric, ScheduleData, count_overlapping_intervals
from cpsched_sim.comparison import Comparison, ComparisonRow
from cpsched_sim.errors import InputError
from cpsched_sim.file_io import write_atomically
from cpsched_sim.simulation import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """A plot that a notebook displays.

    `figure` is a matplotlib figure, which may be changed before it is shown or saved.
    """

    figure: Figure

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the plot in the format of the file name: png, svg or pdf.

        Raise the same exceptions as matplotlib.
        """
        self.figure.savefig(path, dpi=120)
        return Path(path)

    def _repr_png_(self) -> bytes:
        """Return the plot as a PNG image for a notebook."""
        drawn = io.BytesIO()
        self.figure.savefig(drawn, dpi=96, format="png")
        return drawn.getvalue()


def draw_bars(results: Comparison | Simulation) -> Chart:
    """Draw one panel of bars per metric. Raise `InputError` without matplotlib."""
    rows, title = _successful_rows(results)
    drawn = [metric for metric in METRICS if metric.drawn] + list(results.more)
    summaries = {row.name: row.summary for row in rows if row.summary is not None}
    return Chart(plot_metric_bars(summaries, drawn, line_styles(rows), title))


def draw_distributions(results: Comparison | Simulation) -> Chart:
    """Draw the cumulative distributions of waits and bounded slowdowns."""
    rows, title = _successful_rows(results)
    measures = {row.name: row.measures for row in rows if row.measures is not None}
    return Chart(plot_distributions(measures, line_styles(rows), title))


def draw_account_shares(results: Comparison | Simulation) -> Chart:
    """Draw each account's usage and target share over time.

    Raise `InvalidValue` without a site policy.
    """
    rows, title = _successful_rows(results)
    summaries: Mapping[str, Any] = {row.name: row.summary for row in rows}
    of_site = all("accounts" in summary for summary in summaries.values())
    require(of_site, "policy", None, "must be set in simulate or compare, because shares come from a site's policy")
    return Chart(plot_account_shares(summaries, title))


def draw_utilization(results: Comparison | Simulation) -> Chart:
    """Draw waiting jobs and used processors over time, one line per combination."""
    rows, title = _successful_rows(results)
    figure, (waiting, use) = new_figure(2, 3.6)
    styles = line_styles(rows)
    for row in rows:
        if (jobs := row.measures) is None:
            continue
        style = {
            **styles[row.name],
            "label": escape_mathtext(row.name),
            "drawstyle": "steps-post",
            "linewidth": 1,
        }
        first_s = int(jobs.submit_s.min())
        at, length = jobs.queue_length()
        waiting.plot((at - first_s) / 3600, length, **style)
        at, busy = count_overlapping_intervals(jobs.start_s, jobs.end_s, jobs.processors)
        use.plot((at - first_s) / 3600, busy / max(1, jobs.machine), **style)
    for axes, name in ((waiting, "waiting jobs"), (use, "share of processors in use")):
        axes.set_xlabel("hours")
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    use.legend(fontsize="small")
    figure.suptitle(escape_mathtext(title))
    return Chart(figure)


def _successful_rows(results: Comparison | Simulation) -> tuple[Sequence[ComparisonRow], str]:
    """Return the successful rows and a title. Raise `InvalidValue` if there are none."""
    require_matplotlib()
    if isinstance(results, Simulation):
        policy = results.setup.policy
        row = ComparisonRow(policy.dispatcher, policy.predictor, results.summary(), measures=results.measures)
        return [row], f"{results.workload.name} on {results.workload.system}"
    require(isinstance(results, Comparison), "results", type(results).__name__, "must be a comparison or a simulation")
    done = [row for row in results.rows if row.summary is not None]
    require(bool(done), "results", results.title, "must contain at least one successful combination")
    return done, results.title


LOG_SCALE_RATIO = 30
"""Ratio of the longest bar to the median above which the axis is logarithmic."""


PLOT_FILES = ("bars.png", "ecdf.png", "shares.png")
"""The files that `write_comparison_plots` creates; the last requires a site policy."""


def require_matplotlib() -> None:
    """Raise `InputError` if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError("plots require matplotlib: pip install 'cpsched[report]'") from error


def write_comparison_plots(
    rows: Sequence[ComparisonRow], folder: Path, more: Sequence[Metric] = (), title: str = ""
) -> list[Path]:
    """Plot the successful combinations in the files `PLOT_FILES`. Raise `InputError`.

    Rows must have `measures`. Colours distinguish dispatchers, and line styles distinguish predictors. Files are
    written atomically.
    """
    done = {row.name: row for row in rows if row.summary is not None}
    if not done:
        return []
    drawn = [metric for metric in METRICS if metric.drawn] + list(more)
    measures = {name: row.measures for name, row in done.items() if row.measures is not None}
    summaries = {name: row.summary for name, row in done.items() if row.summary is not None}
    styles = line_styles(list(done.values()))
    pictures = [plot_metric_bars(summaries, drawn, styles, title), plot_distributions(measures, styles, title)]
    if all("accounts" in summary for summary in summaries.values()):
        pictures.append(plot_account_shares(summaries, title))
    return [save_png(picture, folder / name) for picture, name in zip(pictures, PLOT_FILES, strict=False)]


def line_styles(rows: Sequence[ComparisonRow]) -> dict[str, dict[str, Any]]:
    """Return the colour and line style of each row by name.

    Each dispatcher has a colour, and each predictor a line style.
    """
    dispatchers = list(dict.fromkeys(row.dispatcher for row in rows))
    predictors = list(dict.fromkeys(row.predictor for row in rows))
    return {
        row.name: {
            "color": f"C{dispatchers.index(row.dispatcher) % 10}",
            "linestyle": ("-", "--", ":", "-.")[predictors.index(row.predictor) % 4],
        }
        for row in rows
    }


def escape_mathtext(text: str) -> str:
    """Escape text for matplotlib.

    It would parse `$` as math, and omit labels that start with `_` from legends.
    """
    return (f"\u200b{text}" if text.startswith("_") else text).replace("$", r"\$")


def save_png(figure: Figure, path: Path) -> Path:
    """Write the figure as a PNG, atomically. Raise `InputError`."""
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format="png")
    write_atomically(path, picture.getvalue())
    return path


def x_scale_arguments(values: Sequence[float]) -> dict[str, Any]:
    """Return the arguments for `set_xscale`.

    The scale is logarithmic if one bar is much longer than the others.
    """
    positive = [value for value in values if value > 0]
    if not positive or max(positive) <= LOG_SCALE_RATIO * sorted(positive)[len(positive) // 2]:
        return {"value": "linear"}
    if len(positive) == len(values):
        return {"value": "log"}
    return {"value": "symlog", "linthresh": min(positive)}


def new_figure(columns: int, height: float) -> tuple[Figure, Any]:
    """Return a figure with `columns` panels side by side, and the panels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns)


def plot_metric_bars(
    done: Mapping[str, Mapping[str, Any]],
    drawn: Sequence[Metric],
    styles: Mapping[str, Mapping[str, Any]],
    title: str,
) -> Figure:
    """Draw one panel per metric, with one bar per combination."""
    figure, panels = new_figure(len(drawn), 1.2 + 0.35 * len(done))
    names = list(done)[::-1]
    for column, (axes, metric) in enumerate(zip(panels, drawn, strict=True)):
        values = [done[name][metric.name] for name in names]
        drawn_bars = axes.barh(range(len(names)), values, color=[styles[name]["color"] for name in names])
        axes.set_xscale(**x_scale_arguments(values))
        axes.bar_label(drawn_bars, fmt="{:,.4g}", padding=3)
        axes.margins(x=0.25)
        axes.set_xlabel(metric.label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_yticks(*([[]] if column else [range(len(names)), list(map(escape_mathtext, names))]))
    figure.suptitle(escape_mathtext(title))
    return figure


MAX_ACCOUNTS = 8
"""Maximum number of accounts in a plot. Those with the largest shares are shown."""


MAX_POINTS = 60
"""Maximum number of points in a line. Longer lines are averaged over several days."""


def _downsample_daily_values(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the days and mean values of a line's points, given one value per day."""
    step = -(-len(values) // MAX_POINTS)
    parts = [values[at : at + step] for at in range(0, len(values), step)]
    return [at * step + (len(part) + 1) / 2 for at, part in enumerate(parts)], [sum(part) / len(part) for part in parts]


def plot_account_shares(done: Mapping[str, Mapping[str, Any]], title: str) -> Figure:
    """Draw usage and target share over time.

    Each combination has a panel, and each account a colour.
    """
    figure, panels = new_figure(len(done), 3.6)
    for axes, (name, summary) in zip([panels] if len(done) == 1 else panels, done.items(), strict=True):
        accounts = sorted(summary["accounts"].items(), key=lambda item: -item[1]["share"])[:MAX_ACCOUNTS]
        for place, (account, row) in enumerate(accounts):
            days, used = _downsample_daily_values(row["used_by_window"])
            axes.plot(days, used, color=f"C{place}", label=escape_mathtext(account))
            axes.plot(
                days, _downsample_daily_values(row["due_by_window"])[1], color=f"C{place}", linestyle=":", linewidth=1
            )
        axes.set_title(escape_mathtext(name), fontsize="small")
        axes.set_xlabel("day")
        axes.set_ylim(0, 1)
        axes.grid(alpha=0.3)
    first = panels if len(done) == 1 else panels[0]
    first.set_ylabel("share of total usage (dotted: target share)")
    axes.legend(fontsize="small", loc="best")
    figure.suptitle(escape_mathtext(title))
    return figure


def plot_distributions(
    measures: Mapping[str, ScheduleData], styles: Mapping[str, Mapping[str, Any]], title: str
) -> Figure:
    """Draw distributions of waits and bounded slowdowns, one line per combination."""
    figure, (waits, slowdowns) = new_figure(2, 3.6)
    for name, jobs in measures.items():
        style = {**styles[name], "label": escape_mathtext(name)}
        waits.ecdf(jobs.wait_s, **style)
        slowdowns.ecdf(jobs.bounded_slowdown, **style)
    waits.set_xscale("symlog", linthresh=1)
    slowdowns.set_xscale("log")
    for axes, label in ((waits, "wait, s"), (slowdowns, "bounded slowdown")):
        axes.set_xlabel(label)
        axes.set_ylabel("share of jobs")
        axes.grid(alpha=0.3)
    slowdowns.legend(fontsize="small", loc="lower right")
    figure.suptitle(escape_mathtext(title))
    return figure
